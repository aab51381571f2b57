//! A sliding window: how many there were in which window, and the estimate of the textbook,
//! `current + previous × (1 − f)`, tried out moment by moment.

use crate::random::Workload;
use crate::{Model, compare, expect, nanos, quotas};
use std::collections::BTreeMap;
use std::time::Duration;
use tollgate_limit::{Decision, Limit, Op, Outcome, Quota, Retry};

struct SlidingWindow {
    limit: u128,
    period: u64,
    /// What was used in which window.
    windows: BTreeMap<u64, u128>,
}

impl SlidingWindow {
    fn new(quota: &Quota) -> SlidingWindow {
        SlidingWindow { limit: quota.count().into(), period: nanos(quota.period()), windows: BTreeMap::new() }
    }

    /// What counts in a window: its own, or what one of those two, four, six … before was charged beyond what
    /// all windows since could have held.
    fn count(&self, window: u64) -> u128 {
        let same_turn = |(number, _): &(&u64, &u128)| (window - **number).is_multiple_of(2);
        let Some((number, used)) = self.windows.range(..=window).rev().find(same_turn) else { return 0 };
        used.saturating_sub(self.limit * u128::from(window - number))
    }

    /// The estimate, rounded up: what is used at a moment if nobody asks until then.
    fn used(&self, at: u64) -> u128 {
        let (window, left) = (at / self.period, self.period - at % self.period);
        let previous = window.checked_sub(1).map_or(0, |previous| self.count(previous));
        self.count(window) + (previous * u128::from(left)).div_ceil(self.period.into())
    }

    /// The first moment from `now` on at which no more than `room` is used.
    fn first_with_room(&self, room: u128, now: u64) -> u64 {
        let mut from = now;
        loop {
            let last = from / self.period * self.period + self.period - 1;
            if self.used(last) <= room {
                return first(from, last, |at| self.used(at) <= room);
            }
            from = last + 1;
        }
    }

    fn outcome(&self, cost: u64, now: u64) -> Outcome {
        let Some(room) = self.limit.checked_sub(cost.into()) else { return Outcome::Refused(Retry::Never) };
        match self.first_with_room(room, now) - now {
            0 => Outcome::Allowed,
            wait => Outcome::Refused(Retry::After(Duration::from_nanos(wait))),
        }
    }

    fn take(&mut self, cost: u64, now: u64) -> (Outcome, u64) {
        let outcome = self.outcome(cost, now);
        if outcome != Outcome::Allowed {
            return (outcome, 0);
        }
        self.change(now, |used| used + u128::from(cost));
        (outcome, cost)
    }

    fn change(&mut self, now: u64, change: impl Fn(u128) -> u128) {
        let window = now / self.period;
        let used = self.count(window);
        self.windows.insert(window, change(used));
        self.windows.retain(|number, _| number + 40 > window);
    }

    fn left(&self, now: u64) -> u64 {
        u64::try_from(self.limit.saturating_sub(self.used(now))).unwrap_or(u64::MAX)
    }

    fn answer(&mut self, op: Op, now: u64) -> (Outcome, u64) {
        match op {
            Op::Take(cost) | Op::Reserve { cost, .. } => self.take(cost, now),
            Op::Peek(cost) => (self.outcome(cost, now), 0),
            Op::TakeUpTo(most) => self.take(self.left(now).max(1).min(most), now),
            Op::Charge(cost) => {
                // Debts are ten limits deep at most.
                let deepest = 11 * self.limit;
                self.change(now, |used| (used + u128::from(cost)).min(deepest.max(used)));
                (Outcome::Allowed, cost)
            }
            Op::Refund(tokens) => {
                self.change(now, |used| used.saturating_sub(tokens.into()));
                (Outcome::Allowed, tokens)
            }
            Op::Drain => {
                let all = self.left(now);
                self.change(now, |used| used + u128::from(all));
                (Outcome::Allowed, all)
            }
            Op::Reset => {
                self.windows.clear();
                (Outcome::Allowed, 0)
            }
        }
    }

    /// When a window begins that knows of nothing.
    fn reset_after(&self, now: u64) -> Duration {
        let this = now / self.period;
        let is_clear = |window: &u64| self.count(*window) == 0 && (*window == 0 || self.count(window - 1) == 0);
        let clear = (this..).find(is_clear).unwrap_or(this);
        Duration::from_nanos((clear * self.period).saturating_sub(now))
    }
}

/// The first number from `least` to `most` of which `is_true`, which stays true once it is, and is for `most`.
fn first(mut least: u64, mut most: u64, is_true: impl Fn(u64) -> bool) -> u64 {
    while least < most {
        let middle = least + (most - least) / 2;
        if is_true(middle) { most = middle } else { least = middle + 1 }
    }
    least
}

impl Model for SlidingWindow {
    fn check(&mut self, op: Op, now: u64, said: &Decision) -> Result<(), String> {
        let (outcome, granted) = self.answer(op, now);
        let expected = Decision {
            outcome,
            granted,
            limit: self.limit as u64,
            remaining: self.left(now),
            debt: u64::try_from(self.used(now).saturating_sub(self.limit)).unwrap_or(u64::MAX),
            reset_after: self.reset_after(now),
        };
        expect("it", *said, expected)
    }
}

#[test]
fn sliding_window_answers_as_its_model() {
    for quota in quotas() {
        let workload = Workload::of_everything(quota.count(), nanos(quota.period()));
        compare(&Limit::sliding_window(quota), &workload, |_| SlidingWindow::new(&quota));
    }
}
