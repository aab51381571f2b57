//! Counters of a window, each in one word: the window's start and what was used in it.
//!
//! A word is a moment: the start of its window, moved by `hold`, plus the share of the window's length that
//! the used tokens are of the limit. So it tells its count, it tells its window, it lies in the future for as
//! long as it matters, and what was used beyond the limit reaches into the next window as debt. Where there
//! are more tokens than nanoseconds in a window the word counts 1024ths of a nanosecond, as in
//! [`pace`](crate::pace).

use super::calendar::Span;
use crate::pace::{BOOKING_NANOS, SKEW_NANOS, Ticks};
use crate::time::Time;

/// A counter can be charged into debt by this many limits; more is forgiven.
const MOST_DEBT_IN_LIMITS: u64 = 10;

/// Clocks that differ by more than so many windows count as having jumped.
const MOST_WINDOWS_OF_SKEW: u64 = 64;

/// Words never reach further ahead than this.
const FURTHEST: u64 = 1 << 62;

/// How one window's counter is written down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter {
    limit: u64,
    ticks: Ticks,
    /// What a word that counts nothing says, in ticks.
    zero: u64,
    /// The window's length in ticks.
    length: u64,
}

impl Counter {
    /// The counter of one window, kept for `hold` nanoseconds after the window's start at least.
    pub(crate) fn new(limit: u64, ticks: Ticks, window: Span, hold: u64) -> Counter {
        let zero = ticks.word(ticks.at(Time::from_nanos(window.start)).saturating_add(ticks.of(hold)));
        Counter { limit, ticks, zero, length: ticks.of(window.length) }
    }

    pub(crate) fn used(&self, word: u64) -> u64 {
        mul_div(self.ticks.ahead(word, self.zero), self.limit, self.length)
    }

    pub(crate) fn word(&self, used: u64) -> u64 {
        let share = mul_div_up(used, self.length, self.limit).min(FURTHEST);
        self.ticks.word(self.zero.saturating_add(share))
    }

    /// The most that can have been charged.
    pub(crate) fn deepest(&self) -> u64 {
        let windows = (FURTHEST / self.length).min(MOST_DEBT_IN_LIMITS + 1);
        self.limit.saturating_mul(windows)
    }

    /// The most that can have been charged or booked.
    pub(crate) fn ceiling(&self) -> u64 {
        let booked = self.ticks.of(BOOKING_NANOS) / self.length + 2;
        let windows = (FURTHEST / self.length).min(booked.max(MOST_DEBT_IN_LIMITS + 1));
        self.limit.saturating_mul(windows)
    }

    /// What is more than `most` by this was written before the clock jumped: a caller whose clock is late sees
    /// what was used in a window after its own as so many limits more.
    pub(crate) fn skew(&self) -> u64 {
        let windows = (self.ticks.of(SKEW_NANOS) / self.length).min(MOST_WINDOWS_OF_SKEW) + 2;
        self.limit.saturating_mul(windows)
    }

    /// `used` after `cost` more were charged, as deep as debts go.
    pub(crate) fn charged(&self, used: u64, cost: u64) -> u64 {
        used.saturating_add(cost).min(self.deepest()).max(used)
    }
}

/// How much of the limit is left, as a number that may be negative.
pub(crate) fn left(limit: u64, used: u64) -> i64 {
    let clamp = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    match limit.checked_sub(used) {
        Some(left) => clamp(left),
        None => -clamp(used - limit),
    }
}

/// `a * b / c`, rounded down, no larger than `u64::MAX`.
pub(crate) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX),
    }
}

/// `a * b / c`, rounded up, no larger than `u64::MAX`.
pub(crate) fn mul_div_up(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product.div_ceil(c),
        None => u64::try_from((u128::from(a) * u128::from(b)).div_ceil(u128::from(c))).unwrap_or(u64::MAX),
    }
}
