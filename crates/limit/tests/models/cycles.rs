//! Resilience4j's limiter, as its sources tell it: permits left in a cycle, renewed with every cycle that
//! begins, below zero where callers wait for later ones. A fixed window is that without a timeout.

use crate::random::Workload;
use crate::{Model, compare, expect, nanos, quotas};
use std::time::Duration;
use tollgate_limit::{Decision, Limit, Op, Outcome, Quota, Retry};

struct Cycles {
    per_cycle: i128,
    period: u64,
    timeout: Duration,
    permits: i128,
    cycle: u64,
}

impl Cycles {
    fn new(quota: &Quota, timeout: Duration) -> Cycles {
        let per_cycle = i128::from(quota.count());
        Cycles { per_cycle, period: nanos(quota.period()), timeout, permits: per_cycle, cycle: 0 }
    }

    fn renew(&mut self, now: u64) {
        let cycle = now / self.period;
        let renewed = i128::from(cycle - self.cycle) * self.per_cycle;
        self.permits = (self.permits + renewed).min(self.per_cycle);
        self.cycle = cycle;
    }

    /// `nanosToWaitForPermission`.
    fn wait(&self, cost: i128, now: u64) -> Duration {
        if self.permits >= cost {
            return Duration::ZERO;
        }
        let to_next_cycle = (self.cycle + 1) * self.period - now;
        let missing_then = cost - (self.permits + self.per_cycle);
        let full_cycles = (missing_then + self.per_cycle - 1).div_euclid(self.per_cycle).max(0);
        Duration::from_nanos(to_next_cycle + u64::try_from(full_cycles).unwrap_or(u64::MAX) * self.period)
    }

    fn outcome(&self, cost: u64, asked: Option<Duration>, now: u64) -> Outcome {
        let cost = i128::from(cost);
        if cost > self.per_cycle {
            return Outcome::Refused(Retry::Never);
        }
        let timeout = asked.unwrap_or(self.timeout);
        match self.wait(cost, now) {
            Duration::ZERO => Outcome::Allowed,
            wait if wait <= timeout => Outcome::AllowedAfter(wait),
            wait => Outcome::Refused(Retry::After(wait - timeout)),
        }
    }

    fn take(&mut self, cost: u64, asked: Option<Duration>, now: u64) -> (Outcome, u64) {
        let outcome = self.outcome(cost, asked, now);
        if let Outcome::Refused(_) = outcome {
            return (outcome, 0);
        }
        self.permits -= i128::from(cost);
        (outcome, cost)
    }

    fn left(&self) -> u64 {
        u64::try_from(self.permits).unwrap_or(0)
    }

    fn answer(&mut self, op: Op, now: u64) -> (Outcome, u64) {
        match op {
            Op::Take(cost) => self.take(cost, None, now),
            Op::Reserve { cost, max_wait } => self.take(cost, Some(max_wait), now),
            Op::Peek(cost) => (self.outcome(cost, None, now), 0),
            Op::TakeUpTo(most) => self.take(self.left().max(1).min(most), None, now),
            Op::Charge(cost) => {
                // Ten cycles ahead at most.
                self.permits = (self.permits - i128::from(cost)).max(self.permits.min(-10 * self.per_cycle));
                (Outcome::Allowed, cost)
            }
            Op::Refund(tokens) => {
                self.permits = (self.permits + i128::from(tokens)).min(self.per_cycle);
                (Outcome::Allowed, tokens)
            }
            Op::Drain => {
                let drained = self.left();
                self.permits -= i128::from(drained);
                (Outcome::Allowed, drained)
            }
            Op::Reset => {
                self.permits = self.per_cycle;
                (Outcome::Allowed, 0)
            }
        }
    }
}

impl Model for Cycles {
    fn check(&mut self, op: Op, now: u64, said: &Decision) -> Result<(), String> {
        self.renew(now);
        let (outcome, granted) = self.answer(op, now);
        let expected = Decision {
            outcome,
            granted,
            limit: self.per_cycle as u64,
            remaining: self.left(),
            debt: u64::try_from(-self.permits).unwrap_or(0),
            reset_after: self.wait(self.per_cycle, now),
        };
        expect("it", *said, expected)
    }
}

#[test]
fn fixed_window_answers_as_its_model() {
    for quota in quotas() {
        let workload = Workload::of_everything(quota.count(), nanos(quota.period()));
        compare(&Limit::fixed_window(quota), &workload, |_| Cycles::new(&quota, Duration::ZERO));
    }
}

#[test]
fn cycles_answer_as_their_model() {
    for (index, quota) in quotas().enumerate() {
        let period = nanos(quota.period());
        let timeout = Duration::from_nanos([period / 2, period, 3 * period][index % 3]);
        let workload = Workload::of_everything(quota.count(), period);
        compare(&Limit::cycles(quota, timeout), &workload, |_| Cycles::new(&quota, timeout));
    }
}
