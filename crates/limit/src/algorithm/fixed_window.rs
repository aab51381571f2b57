//! Fixed window, and Resilience4j's cycles: a fixed window whose callers may wait for the next ones.
//!
//! What is used beyond the limit, by charge or by booking, is used up in the windows that follow: `permits`
//! below zero in Resilience4j's words.

use super::calendar::{Calendar, Span};
use super::window::{self, Counter};
use super::{Algorithm, Booking};
use crate::pace::Ticks;
use crate::quota::{Quota, QuotaError};
use crate::time::{Time, nanos};
use std::time::Duration;

/// So many per window, then nothing until the next one begins.
///
/// Around the moment at which a window ends, up to twice the limit can pass at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedWindow {
    limit: u64,
    frame: Frame,
    timeout: Duration,
}

/// When windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// At every multiple of so many nanoseconds since the epoch.
    Every(u64),
    Calendar(Calendar),
}

impl FixedWindow {
    /// `count` tokens per `period`; windows begin at multiples of the period since the epoch. The burst plays
    /// no part.
    pub(crate) const fn new(quota: Quota) -> FixedWindow {
        FixedWindow { limit: quota.count(), frame: Frame::Every(nanos(quota.period())), timeout: Duration::ZERO }
    }

    /// `limit` tokens per minute, hour, day, week, month or year of a calendar.
    ///
    /// # Errors
    /// A limit of zero, or of more than one token per nanosecond.
    pub(crate) const fn calendar(limit: u64, calendar: Calendar) -> Result<FixedWindow, QuotaError> {
        let (shortest, _) = calendar.lengths();
        match limit {
            0 => Err(QuotaError::ZeroCount),
            _ if limit > shortest => Err(QuotaError::TooFast),
            _ => Ok(FixedWindow { limit, frame: Frame::Calendar(calendar), timeout: Duration::ZERO }),
        }
    }

    /// Resilience4j's limiter: `count` permits renewed every `period`; a caller waits up to `timeout` for
    /// permits of later cycles.
    pub(crate) const fn cycles(quota: Quota, timeout: Duration) -> FixedWindow {
        FixedWindow { timeout, ..FixedWindow::new(quota) }
    }

    pub(crate) const fn ticks(&self) -> Ticks {
        match self.frame {
            Frame::Every(period) => Ticks::for_rate(self.limit, period),
            Frame::Calendar(_) => Ticks::COARSE,
        }
    }

    fn span(&self, now: Time) -> Span {
        match self.frame {
            Frame::Every(period) => Span { start: now.as_nanos() / period * period, length: period },
            Frame::Calendar(calendar) => calendar.span(now),
        }
    }

    fn counter(&self, now: Time) -> Counter {
        let hold = match self.frame {
            Frame::Every(period) => period,
            Frame::Calendar(calendar) => calendar.lengths().1,
        };
        Counter::new(self.limit, self.ticks(), self.span(now), hold)
    }

    /// How long until the window begins that comes `ahead` windows after this one.
    fn until_window(&self, ahead: u64, now: Time) -> Duration {
        let this = self.span(now);
        let begins = match self.frame {
            Frame::Every(period) => this.end() + Duration::from_nanos((ahead - 1).saturating_mul(period)),
            // As many windows as a debt is deep: eleven at most.
            Frame::Calendar(calendar) => (1..ahead.min(16)).fold(this.end(), |end, _| calendar.span(end).end()),
        };
        begins.since(now)
    }
}

impl Algorithm for FixedWindow {
    type State = u64;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn available(&self, word: &u64, now: Time) -> i64 {
        window::left(self.limit, self.counter(now).used(*word))
    }

    /// Until the window in which there is room.
    fn delay(&self, word: &u64, cost: u64, now: Time) -> Option<Duration> {
        if cost > self.limit || self.ticks().is_too_late(now) {
            return None;
        }
        let excess = (self.counter(now).used(*word) + cost).saturating_sub(self.limit);
        Some(if excess == 0 { Duration::ZERO } else { self.until_window(excess.div_ceil(self.limit), now) })
    }

    fn patience(&self, _cost: u64, asked: Option<Duration>) -> Duration {
        match self.frame {
            // The last window that can be booked is two before the ceiling: one is this, one is the booking's own.
            Frame::Every(period) => {
                let windows = self.counter(Time::ZERO).ceiling() / self.limit;
                let longest = Duration::from_nanos(windows.saturating_sub(2).saturating_mul(period));
                asked.unwrap_or(self.timeout).min(longest)
            }
            Frame::Calendar(_) => Duration::ZERO,
        }
    }

    fn spend(&self, word: &mut u64, cost: u64, now: Time) {
        let counter = self.counter(now);
        *word = counter.word(counter.used(*word).saturating_add(cost));
    }

    fn charge(&self, word: &mut u64, cost: u64, now: Time) {
        let counter = self.counter(now);
        *word = counter.word(counter.charged(counter.used(*word), cost));
    }

    fn refund(&self, word: &mut u64, tokens: u64, now: Time) {
        let counter = self.counter(now);
        match counter.used(*word) {
            0 => {}
            used => *word = counter.word(used.saturating_sub(tokens)),
        }
    }

    fn reset_after(&self, word: &u64, now: Time) -> Duration {
        match self.counter(now).used(*word) {
            0 => Duration::ZERO,
            used => self.until_window(used.div_ceil(self.limit), now),
        }
    }

    fn repair(&self, word: &mut u64, now: Time) -> bool {
        let counter = self.counter(now);
        let broken = counter.used(*word) > counter.ceiling();
        if broken {
            *word = counter.word(self.limit);
        }
        broken
    }

    /// All of it until its window ends, nothing afterwards: that window's tokens are gone.
    fn unserved(&self, booking: &Booking, now: Time) -> u64 {
        if now < booking.full_at { booking.cost } else { 0 }
    }
}
