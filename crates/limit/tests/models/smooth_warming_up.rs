//! Guava's `SmoothWarmingUp`, as its sources tell it, in floating point.
//!
//! As in Guava prices are rounded down to the unit of time, here the nanosecond. Two ways to compute the same
//! price in floating point may end up on either side of a nanosecond; the two may be apart by a few of those,
//! and by the permits that come into store in that time.

use crate::random::{Kind, Workload};
use crate::{Model, compare, expect, expect_within, nanos, quotas};
use std::time::Duration;
use tollgate_limit::{Decision, Limit, Op, Outcome, Quota, Retry};

/// Nanoseconds that the two may be apart, and the part of a number that floating point does not tell.
const SLACK: f64 = 4.0;
const PRECISION: f64 = 1e-14;

struct SmoothWarmingUp {
    timeout: Duration,
    interval: f64,
    cold_interval: f64,
    warm_up: f64,
    threshold: f64,
    most: f64,
    stored: f64,
    /// Nanoseconds from `now` until the next request may go ahead.
    until_free: f64,
    now: u64,
}

impl SmoothWarmingUp {
    fn cold(quota: &Quota, warm_up: Duration, timeout: Duration, now: u64) -> SmoothWarmingUp {
        let interval = quota.period().as_nanos() as f64 / quota.count() as f64;
        let (cold_interval, warm_up) = (3.0 * interval, warm_up.as_nanos() as f64);
        let threshold = 0.5 * warm_up / interval;
        let most = threshold + 2.0 * warm_up / (interval + cold_interval);
        let (stored, until_free) = (most, 0.0);
        SmoothWarmingUp { timeout, interval, cold_interval, warm_up, threshold, most, stored, until_free, now }
    }

    /// `resync`: idle time cools down.
    fn pass(&mut self, now: u64) {
        let left = self.until_free - (now - self.now) as f64;
        let idle = (-left).max(0.0);
        self.stored = self.most.min(self.stored + idle / self.cool_down());
        (self.until_free, self.now) = (left.max(0.0), now);
    }

    /// `coolDownIntervalMicros`.
    fn cool_down(&self) -> f64 {
        self.warm_up / self.most
    }

    /// `storedPermitsToWaitTime`, and the fresh ones.
    fn price(&self, permits: f64) -> f64 {
        let slope = (self.cold_interval - self.interval) / (self.most - self.threshold);
        let permits_to_time = |above: f64| self.interval + above * slope;
        let above = (self.stored - self.threshold).max(0.0);
        let taken_above = above.min(permits);
        let length = permits_to_time(above) + permits_to_time(above - taken_above);
        taken_above * length / 2.0 + (permits - taken_above) * self.interval
    }

    fn spend(&mut self, permits: u64) {
        self.until_free += self.price(permits as f64).floor();
        self.stored = (self.stored - permits as f64).max(0.0);
    }

    /// How far numbers of permits may be off.
    fn permit_slack(&self) -> f64 {
        SLACK / self.cool_down() + self.most * PRECISION + 1e-6
    }

    fn check_wait(&mut self, what: &str, said: Duration, less: Duration) -> Result<(), String> {
        let (said, less) = (nanos(said) as f64, nanos(less) as f64);
        let slack = SLACK + self.until_free * PRECISION;
        expect_within(what, said + less, self.until_free - slack, self.until_free + slack)?;
        // From here on both know the same.
        self.until_free = said + less;
        Ok(())
    }

    fn admit(&mut self, cost: u64, asked: Option<Duration>, said: &Decision) -> Result<(), String> {
        let timeout = asked.unwrap_or(self.timeout);
        match said.outcome {
            Outcome::Refused(Retry::Never) => expect("cost", cost, u64::MAX),
            Outcome::Refused(Retry::After(wait)) => self.check_wait("retry after", wait, timeout),
            Outcome::AllowedAfter(wait) if wait > timeout => Err(format!("nobody waits longer than {timeout:?}")),
            Outcome::AllowedAfter(_) | Outcome::Allowed => self.check_wait("wait", said.wait(), Duration::ZERO),
        }
    }

    fn take(&mut self, cost: u64, asked: Option<Duration>, said: &Decision) -> Result<(), String> {
        self.admit(cost, asked, said)?;
        if said.is_allowed() {
            expect("granted", said.granted, cost)?;
            self.spend(cost);
        }
        Ok(())
    }

    /// The least and the most that may be left: nothing as long as something is unpaid.
    fn left(&self) -> (f64, f64) {
        let least = if self.until_free > 0.0 { 0.0 } else { self.stored - self.permit_slack() - 1.0 };
        let most = if self.until_free > SLACK { 0.0 } else { self.stored + self.permit_slack() };
        (least.max(0.0), most)
    }

    fn describe(&self, said: &Decision) -> Result<(), String> {
        let reset = self.until_free + (self.most - self.stored) * self.cool_down();
        let slack = 2.0 * SLACK + reset * PRECISION;
        expect_within("reset after", nanos(said.reset_after) as f64, reset - slack, reset + slack)?;
        let (least, most) = self.left();
        expect_within("remaining", said.remaining as f64, least, most)?;
        let (debt, slack) = (self.until_free / self.interval, self.permit_slack());
        expect_within("debt", said.debt as f64, debt - slack, debt + slack + 1.0)
    }
}

impl Model for SmoothWarmingUp {
    fn check(&mut self, op: Op, now: u64, said: &Decision) -> Result<(), String> {
        self.pass(now);
        let (least_left, most_left) = self.left();
        match op {
            Op::Take(cost) => self.take(cost, None, said)?,
            Op::Reserve { cost, max_wait } => self.take(cost, Some(max_wait), said)?,
            Op::Peek(cost) => self.admit(cost, None, said)?,
            Op::TakeUpTo(most) => {
                let granted = if said.is_allowed() { said.granted } else { most.min(1) };
                expect_within("granted", granted as f64, least_left.min(most as f64), most_left.max(1.0))?;
                self.take(granted, None, said)?;
            }
            Op::Charge(cost) => self.spend(cost),
            Op::Drain => {
                expect_within("granted", said.granted as f64, least_left, most_left)?;
                self.spend(said.granted);
            }
            Op::Refund(permits) => unreachable!("{permits} permits put back, which Guava does not know"),
            Op::Reset => (self.stored, self.until_free) = (self.most, 0.0),
        }
        self.describe(said)
    }
}

#[test]
fn smooth_warming_up_answers_as_its_model() {
    for (index, quota) in quotas().enumerate() {
        // Within a month: a thousand requests every few months would not end before the year 2262.
        let warm_up = (quota.period() * [1, 5, 10][index % 3]).min(Duration::from_secs(30 * 86_400));
        let timeout = warm_up * [0, 1, 2][index / 3 % 3];
        let limit = Limit::smooth_warming_up(quota, warm_up, timeout).unwrap();
        let most = limit.most().max(1);
        let workload = Workload { absurd: 3 * most, ..Workload::of_everything(most, nanos(warm_up)) };
        let workload = workload.without(&[Kind::Refund]);
        compare(&limit, &workload, |now| SmoothWarmingUp::cold(&quota, warm_up, timeout, now));
    }
}
