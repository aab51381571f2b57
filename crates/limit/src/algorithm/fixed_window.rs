//! Fixed window, and Resilience4j's cycles: a fixed window whose callers may wait for the next ones.
//!
//! What is used beyond the limit, by charge or by booking, is used up in the windows that follow: `permits`
//! below zero in Resilience4j's words.

use super::calendar::{Calendar, Span};
use super::window::{self, Counter, mul_div_up};
use super::{Algorithm, Booking, Unserved};
use crate::pace::Ticks;
use crate::quota::{Quota, QuotaError};
use crate::time::{Time, nanos};
use std::iter;
use std::time::Duration;

/// So many per window, then nothing until the next one begins.
///
/// Around the moment at which a window ends, up to twice the limit can pass at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedWindow {
    pub(crate) limit: u64,
    pub(crate) frame: Frame,
    timeout: Duration,
}

/// When windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// At every multiple of so many nanoseconds since the epoch.
    Every(u64),
    Calendar(Calendar),
}

/// Calendar windows that a word reaches ahead at the most: as deep as debts are, and some.
const CALENDAR_WINDOWS: usize = 16;

impl FixedWindow {
    pub(crate) const fn new(quota: Quota) -> FixedWindow {
        FixedWindow { limit: quota.count(), frame: Frame::Every(nanos(quota.period())), timeout: Duration::ZERO }
    }

    pub(crate) const fn calendar(limit: u64, calendar: Calendar) -> Result<FixedWindow, QuotaError> {
        let (shortest, _) = calendar.lengths();
        match limit {
            0 => Err(QuotaError::ZeroCount),
            _ if limit > shortest => Err(QuotaError::TooFast),
            _ => Ok(FixedWindow { limit, frame: Frame::Calendar(calendar), timeout: Duration::ZERO }),
        }
    }

    pub(crate) const fn cycles(quota: Quota, timeout: Duration) -> FixedWindow {
        FixedWindow { timeout, ..FixedWindow::new(quota) }
    }

    pub(crate) const fn ticks(&self) -> Ticks {
        match self.frame {
            Frame::Every(period) => Ticks::for_rate(self.limit, period),
            Frame::Calendar(_) => Ticks::COARSE,
        }
    }

    pub(crate) fn span(&self, now: Time) -> Span {
        match self.frame {
            Frame::Every(period) => Span { start: now.as_nanos() / period * period, length: period },
            Frame::Calendar(calendar) => calendar.span(now),
        }
    }

    fn counter(&self, window: Span) -> Counter {
        Counter::new(self.limit, self.ticks(), window, nanos(self.longest()))
    }

    /// How long its windows are at the most.
    pub(crate) const fn longest(&self) -> Duration {
        Duration::from_nanos(match self.frame {
            Frame::Every(period) => period,
            Frame::Calendar(calendar) => calendar.lengths().1,
        })
    }

    pub(crate) fn current(&self, now: Time) -> Counter {
        self.counter(self.span(now))
    }

    /// This window and those after it, as far as a word can reach. Calendar windows differ in length, so what
    /// is used beyond the limit has to be measured in each of them.
    fn windows(&self, now: Time) -> impl Iterator<Item = Counter> {
        let first = self.span(now);
        let most = if let Frame::Every(_) = self.frame { 1 } else { CALENDAR_WINDOWS };
        iter::successors(Some(first), |window| Some(self.span(window.end()))).take(most).map(|span| self.counter(span))
    }

    fn used(&self, word: u64, now: Time) -> u64 {
        match self.frame {
            Frame::Every(_) => self.current(now).used(word),
            Frame::Calendar(_) => self.windows(now).map(|window| window.used(word).min(self.limit)).sum(),
        }
    }

    pub(crate) fn word(&self, used: u64, now: Time) -> u64 {
        let mut left = used;
        let mut written = self.current(now).word(left);
        if let Frame::Calendar(_) = self.frame {
            for window in self.windows(now) {
                written = window.word(left.min(self.limit));
                left = left.saturating_sub(self.limit);
                if left == 0 {
                    break;
                }
            }
        }
        written
    }

    /// How long until the window begins that comes `ahead` windows after this one.
    fn until_window(&self, ahead: u64, now: Time) -> Duration {
        let this = self.span(now);
        let begins = match self.frame {
            Frame::Every(period) => this.end() + Duration::from_nanos((ahead - 1).saturating_mul(period)),
            Frame::Calendar(calendar) => {
                let windows = ahead.min(CALENDAR_WINDOWS as u64);
                (1..windows).fold(this.end(), |end, _| calendar.span(end).end())
            }
        };
        begins.since(now)
    }

    /// Tokens that the windows since then have brought.
    fn brought_since(&self, then: Time, now: Time) -> u64 {
        let (then, now) = (self.span(then), self.span(now));
        match self.frame {
            Frame::Every(period) => (now.start.saturating_sub(then.start) / period).saturating_mul(self.limit),
            Frame::Calendar(_) => {
                if then == now {
                    0
                } else {
                    u64::MAX
                }
            }
        }
    }
}

impl Algorithm for FixedWindow {
    type State = u64;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn available(&self, word: &u64, now: Time) -> i64 {
        window::left(self.limit, self.used(*word, now))
    }

    /// Until the window in which there is room.
    fn delay(&self, word: &u64, cost: u64, now: Time) -> Option<Duration> {
        if cost > self.limit {
            return None;
        }
        let excess = self.used(*word, now).saturating_add(cost).saturating_sub(self.limit);
        Some(if excess == 0 { Duration::ZERO } else { self.until_window(excess.div_ceil(self.limit), now) })
    }

    fn patience(&self, _cost: u64, asked: Option<Duration>) -> Duration {
        match self.frame {
            // The last window that can be booked is two before the ceiling: one is this, one is the booking's own.
            Frame::Every(period) => {
                let windows = self.current(Time::ZERO).ceiling() / self.limit;
                let longest = Duration::from_nanos(windows.saturating_sub(2).saturating_mul(period));
                asked.unwrap_or(self.timeout).min(longest)
            }
            Frame::Calendar(_) => Duration::ZERO,
        }
    }

    fn spend(&self, word: &mut u64, cost: u64, now: Time) {
        *word = self.word(self.used(*word, now).saturating_add(cost), now);
    }

    fn charge(&self, word: &mut u64, cost: u64, now: Time) {
        *word = self.word(self.current(now).charged(self.used(*word, now), cost), now);
    }

    fn refund(&self, word: &mut u64, tokens: u64, now: Time) {
        match self.used(*word, now) {
            0 => {}
            used => *word = self.word(used.saturating_sub(tokens), now),
        }
    }

    fn reset_after(&self, word: &u64, now: Time) -> Duration {
        match self.used(*word, now) {
            0 => Duration::ZERO,
            used => self.until_window(used.div_ceil(self.limit), now),
        }
    }

    fn repair(&self, word: &mut u64, now: Time) -> bool {
        let window = self.current(now);
        let most = match self.frame {
            Frame::Every(_) => window.ceiling().saturating_add(window.skew()),
            // As far as a word is measured, and further than debts are deep.
            Frame::Calendar(_) => self.limit.saturating_mul(CALENDAR_WINDOWS as u64) - 1,
        };
        let broken = self.used(*word, now) > most;
        if broken {
            *word = self.word(self.limit, now);
        }
        broken
    }

    /// Its tokens are the last of those that were used, less what the windows since have brought and others
    /// have given back. While others wait behind it for later windows, nothing can be given back.
    fn unserved(&self, word: &u64, booking: &Booking, now: Time) -> Unserved {
        let used = self.used(*word, now);
        let ahead = booking.used.saturating_sub(self.brought_since(booking.made_at, now));
        let is_last = used <= ahead;
        if !is_last && used > self.limit {
            return Unserved::default();
        }
        let length = self.span(now).length;
        let left = ahead.saturating_sub(mul_div_up(booking.moved_ahead, self.limit, length));
        let tokens = left.min(booking.cost);
        Unserved { tokens, moves: if is_last { 0 } else { mul_div_up(tokens, length, self.limit) } }
    }
}
