//! Sliding window: this window's count, plus the last one's weighted by how much of it still overlaps.
//!
//! The state is two counters, one for windows with an even number and one for those with an odd one. While a
//! window lasts only its own counter changes, so that each can be updated with one compare-and-swap.

use super::calendar::Span;
use super::window::{self, Counter, mul_div_up};
use super::{Algorithm, Ask, Booking, Unserved};
use crate::pace::Ticks;
use crate::quota::Quota;
use crate::time::{Time, nanos};
use std::time::Duration;

/// So many per sliding window, by an estimate that spreads the previous window's requests evenly.
///
/// Admits at most `limit × (1 + d / window)` in any interval `d`, as a token bucket does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlidingWindow {
    pub(crate) limit: u64,
    pub(crate) period: u64,
}

/// What the two counters say at one moment.
struct View {
    current: u64,
    previous: u64,
    /// Nanoseconds until the current window ends.
    left: u64,
}

impl SlidingWindow {
    /// `count` tokens per `period`. The burst plays no part.
    pub(crate) const fn new(quota: Quota) -> SlidingWindow {
        SlidingWindow { limit: quota.count(), period: nanos(quota.period()) }
    }

    pub(crate) const fn ticks(&self) -> Ticks {
        Ticks::for_rate(self.limit, self.period)
    }

    /// Which of the two counters is the current one.
    pub(crate) const fn turn(&self, now: Time) -> usize {
        (now.as_nanos() / self.period % 2) as usize
    }

    /// Asks where only the current counter can be written.
    pub(crate) fn ask_current<A: Ask>(&self, current: &mut u64, previous: u64, ask: A, now: Time) -> A::Answer {
        let turn = self.turn(now);
        let mut words = if turn == 0 { [*current, previous] } else { [previous, *current] };
        let answer = ask.ask(self, &mut words, now);
        let [even, odd] = words;
        *current = if turn == 0 { even } else { odd };
        answer
    }

    /// The counter of the window `back` windows ago, or an empty one if there was none.
    pub(crate) fn counter(&self, back: u64, now: Time) -> Counter {
        let number = now.as_nanos() / self.period;
        let window = Span { start: number.saturating_sub(back) * self.period, length: self.period };
        Counter::new(self.limit, self.ticks(), window, self.period.saturating_mul(2))
    }

    fn view(&self, words: &[u64; 2], now: Time) -> View {
        let [current, previous] = self.in_order(words, now);
        let (this, last) = (self.counter(0, now), self.counter(1, now));
        // What was written before the clock jumped back is forgotten.
        let previous = Some(last.used(previous)).filter(|used| *used <= most(&last)).unwrap_or(0);
        View { current: this.used(current), previous, left: self.period - now.as_nanos() % self.period }
    }

    /// The current word, then the previous one.
    fn in_order(&self, &[even, odd]: &[u64; 2], now: Time) -> [u64; 2] {
        if self.turn(now) == 0 { [even, odd] } else { [odd, even] }
    }

    fn set_current(&self, [even, odd]: &mut [u64; 2], used: u64, now: Time) {
        let word = if self.turn(now) == 0 { even } else { odd };
        *word = self.counter(0, now).word(used);
    }

    /// What the counters will say when the next window begins, if nobody asks until then. A counter comes
    /// round every two windows; what it was charged beyond the limits of those is still owed.
    fn next(&self, view: &View) -> View {
        let current = view.previous.saturating_sub(self.limit.saturating_mul(2));
        View { current, previous: view.current, left: self.period }
    }

    /// How much of the limit is used, rounded up.
    fn used(&self, view: &View) -> u64 {
        view.current.saturating_add(mul_div_up(view.previous, view.left, self.period))
    }

    /// How long from the start of a window until what the previous one left has faded to `room`; at most a
    /// window.
    fn fade(&self, previous: u64, room: u64) -> u64 {
        if previous <= room {
            return 0;
        }
        // previous × (period − t) / period <= room
        let kept = u128::from(room) * u128::from(self.period) / u128::from(previous);
        self.period - u64::try_from(kept).unwrap_or(u64::MAX).min(self.period)
    }
}

/// The most that a counter can say to a caller whose clock is not far off.
fn most(counter: &Counter) -> u64 {
    counter.deepest().saturating_add(counter.skew())
}

impl Algorithm for SlidingWindow {
    type State = [u64; 2];

    fn limit(&self) -> u64 {
        self.limit
    }

    fn available(&self, words: &[u64; 2], now: Time) -> i64 {
        window::left(self.limit, self.used(&self.view(words, now)))
    }

    fn delay(&self, words: &[u64; 2], cost: u64, now: Time) -> Option<Duration> {
        if cost > self.limit {
            return None;
        }
        let room = self.limit - cost;
        let mut view = self.view(words, now);
        if self.used(&view) <= room {
            return Some(Duration::ZERO);
        }
        let mut start = now.as_nanos() - (self.period - view.left);
        loop {
            let fades = room.checked_sub(view.current).map(|room| self.fade(view.previous, room));
            match fades {
                Some(fades) if fades < self.period => return Some(Time::from_nanos(start + fades).since(now)),
                _ => (view, start) = (self.next(&view), start + self.period),
            }
        }
    }

    /// It cannot book ahead: what will be left of a window is not known before it ends.
    fn patience(&self, _cost: u64, _asked: Option<Duration>) -> Duration {
        Duration::ZERO
    }

    fn spend(&self, words: &mut [u64; 2], cost: u64, now: Time) {
        let used = self.view(words, now).current.saturating_add(cost);
        self.set_current(words, used, now);
    }

    fn charge(&self, words: &mut [u64; 2], cost: u64, now: Time) {
        let used = self.counter(0, now).charged(self.view(words, now).current, cost);
        self.set_current(words, used, now);
    }

    fn refund(&self, words: &mut [u64; 2], tokens: u64, now: Time) {
        match self.view(words, now).current {
            0 => {}
            used => self.set_current(words, used.saturating_sub(tokens), now),
        }
    }

    fn reset_after(&self, words: &[u64; 2], now: Time) -> Duration {
        let mut view = self.view(words, now);
        let mut wait = 0_u64;
        while (view.current, view.previous) != (0, 0) {
            wait = wait.saturating_add(view.left);
            view = self.next(&view);
        }
        Duration::from_nanos(wait)
    }

    fn repair(&self, words: &mut [u64; 2], now: Time) -> bool {
        let broken = self.view(words, now).current > most(&self.counter(0, now));
        if broken {
            self.set_current(words, self.limit, now);
        }
        broken
    }

    /// All of it while its window lasts.
    fn unserved(&self, _words: &[u64; 2], booking: &Booking, now: Time) -> Unserved {
        let window = |time: Time| time.as_nanos() / self.period;
        let tokens = if window(booking.made_at) == window(now) { booking.cost } else { 0 };
        Unserved { tokens, moves: 0 }
    }
}
