//! A log: when what was taken, in a list from which nothing is ever removed but by a refund.

use crate::random::{Kind, Workload};
use crate::{Model, compare, expect, expect_within, nanos};
use std::time::Duration;
use tollgate_limit::{Blocked, Decision, Limit, Op, Outcome, Quota, Retry};

struct SlidingLog {
    limit: u64,
    period: u64,
    gap: u64,
    blocked: Blocked,
    log: Vec<(u64, u128)>,
}

impl SlidingLog {
    fn new(quota: &Quota, gap: Duration, blocked: Blocked) -> SlidingLog {
        SlidingLog { limit: quota.count(), period: nanos(quota.period()), gap: nanos(gap), blocked, log: Vec::new() }
    }

    /// Forgets what is twice as old as what can matter, so that the list does not grow without end.
    fn tidy(&mut self, now: u64) {
        self.log.retain(|(taken, _)| taken + 2 * self.period.max(self.gap) > now);
    }

    /// What counts at a moment: the tokens of the window that ends there.
    fn used(&self, at: u64) -> u128 {
        self.log.iter().rev().take_while(|(taken, _)| taken + self.period > at).map(|(_, tokens)| tokens).sum()
    }

    /// The first moment from `now` on at which the request could pass: now, or when something leaves the
    /// window, or when the gap has passed.
    fn first_with_room(&self, cost: u64, now: u64) -> u64 {
        let room = u128::from(self.limit - cost);
        let after_the_gap = self.log.last().map_or(now, |(taken, _)| if self.gap > 0 { taken + self.gap } else { now });
        let from = now.max(after_the_gap);
        let leaving = self.log.iter().map(|(taken, _)| taken + self.period).filter(|leaves| *leaves > from);
        std::iter::once(from).chain(leaving).find(|at| self.used(*at) <= room).unwrap_or(from)
    }

    fn outcome(&self, cost: u64, now: u64) -> Outcome {
        if cost > self.limit {
            return Outcome::Refused(Retry::Never);
        }
        match self.first_with_room(cost, now) - now {
            0 => Outcome::Allowed,
            wait => Outcome::Refused(Retry::After(Duration::from_nanos(wait))),
        }
    }

    /// A refused attempt that counts is told when it would pass with itself in the log.
    fn take(&mut self, cost: u64, now: u64) -> (Outcome, u64) {
        let outcome = self.outcome(cost, now);
        if outcome == Outcome::Allowed {
            self.record(cost, now);
            return (outcome, cost);
        }
        if self.blocked == Blocked::Counted {
            self.record(cost, now);
        }
        (self.outcome(cost, now), 0)
    }

    fn record(&mut self, tokens: u64, now: u64) {
        if tokens > 0 {
            self.log.push((now, tokens.into()));
        }
    }

    fn left(&self, now: u64) -> u64 {
        u64::try_from(u128::from(self.limit).saturating_sub(self.used(now))).unwrap_or(0)
    }

    /// Gives back the oldest tokens that still count.
    fn refund(&mut self, tokens: u64, now: u64) {
        let mut tokens = u128::from(tokens);
        self.log.retain(|(taken, _)| taken + self.period > now);
        for (_, of_entry) in &mut self.log {
            let back = tokens.min(*of_entry);
            (*of_entry, tokens) = (*of_entry - back, tokens - back);
        }
        self.log.retain(|(_, left)| *left > 0);
    }

    fn answer(&mut self, op: Op, now: u64) -> (Outcome, u64) {
        match op {
            Op::Take(cost) | Op::Reserve { cost, .. } => self.take(cost, now),
            Op::Peek(cost) => (self.outcome(cost, now), 0),
            Op::TakeUpTo(most) => self.take(self.left(now).max(1).min(most), now),
            Op::Charge(cost) => {
                self.record(cost, now);
                (Outcome::Allowed, cost)
            }
            Op::Refund(tokens) => {
                self.refund(tokens, now);
                (Outcome::Allowed, tokens)
            }
            Op::Drain => {
                let all = self.left(now);
                self.record(all, now);
                (Outcome::Allowed, all)
            }
            Op::Reset => {
                self.log.clear();
                (Outcome::Allowed, 0)
            }
        }
    }
}

impl Model for SlidingLog {
    fn check(&mut self, op: Op, now: u64, said: &Decision) -> Result<(), String> {
        self.tidy(now);
        let (outcome, granted) = self.answer(op, now);
        expect("outcome", said.outcome, outcome)?;
        expect("granted", said.granted, granted)?;
        expect("limit", said.limit, self.limit)?;
        expect("remaining", said.remaining, self.left(now))?;
        let free = self.log.last().map_or(0, |(taken, _)| (taken + self.period).saturating_sub(now));
        expect("reset after", nanos(said.reset_after), free)
    }
}

/// The same, of a log that may lump together what is older than a whole limit's worth: where that is given
/// back, it may have less to give than the model, and never more.
struct AtMost(SlidingLog);

impl Model for AtMost {
    fn check(&mut self, op: Op, now: u64, said: &Decision) -> Result<(), String> {
        let AtMost(model) = self;
        model.tidy(now);
        if let Op::Take(cost) | Op::Reserve { cost, .. } = op
            && said.is_allowed()
        {
            expect("outcome", said.outcome, model.outcome(cost, now))?;
        }
        match op {
            Op::Refund(_) | Op::Charge(_) | Op::Reset => _ = model.answer(op, now),
            _ => model.record(said.granted, now),
        }
        expect_within("remaining", said.remaining, 0, model.left(now))
    }
}

/// The log is not meant for millions of tokens.
fn quotas() -> impl Iterator<Item = Quota> {
    let texts =
        ["1 per second", "3 per second", "10 per second", "7 per 11 milliseconds", "1 per 30 days", "50 per minute"];
    texts.into_iter().map(|text| text.parse().unwrap())
}

/// Asking for nothing at all says nothing about a log, and what is charged has to fit into it.
fn workload(quota: &Quota) -> Workload {
    let (least, absurd) = (1, 3 * quota.count());
    Workload { least, absurd, ..Workload::of_everything(quota.count(), nanos(quota.period())) }
}

fn compare_logs(quota: &Quota, gap: Duration, blocked: Blocked, without: &[Kind]) {
    let limit = Limit::rolling_log(*quota, gap, blocked);
    compare(&limit, &workload(quota).without(without), |_| SlidingLog::new(quota, gap, blocked));
}

#[test]
fn sliding_log_answers_as_its_model() {
    for quota in quotas() {
        let workload = Workload::of_everything(quota.count(), nanos(quota.period())).without(&[Kind::Charge]);
        let model = |_| SlidingLog::new(&quota, Duration::ZERO, Blocked::Ignored);
        compare(&Limit::sliding_log(quota), &workload, model);
    }
}

#[test]
fn sliding_log_with_a_gap_answers_as_its_model() {
    for quota in quotas() {
        let gap = quota.period() / (2 * quota.count() as u32);
        compare_logs(&quota, gap, Blocked::Ignored, &[Kind::Charge]);
    }
}

#[test]
fn charged_sliding_log_answers_as_its_model() {
    for quota in quotas() {
        compare_logs(&quota, Duration::ZERO, Blocked::Ignored, &[Kind::Refund]);
    }
}

#[test]
fn sliding_log_gives_back_no_more_than_it_was_charged() {
    for quota in quotas() {
        let model = |_| AtMost(SlidingLog::new(&quota, Duration::ZERO, Blocked::Ignored));
        compare(&Limit::sliding_log(quota), &workload(&quota), model);
    }
}

#[test]
fn sliding_log_that_counts_blocked_attempts_answers_as_its_model() {
    for quota in quotas() {
        let gap = quota.period() / (4 * quota.count() as u32);
        compare_logs(&quota, gap, Blocked::Counted, &[Kind::Charge, Kind::Refund]);
    }
}
