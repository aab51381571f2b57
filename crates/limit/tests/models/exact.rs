//! What the models of bucket, queue and Guava's limiter share: exact time, and how far an answer may be off.
//!
//! Time is counted in *shares*, of which a nanosecond has `count`: a token then takes exactly `period` of
//! them, whatever the quota.
//!
//! Where a token does not take a whole number of nanoseconds the limit rounds `now` down to a unit of its own
//! of less than two nanoseconds (two 1024ths above one token per nanosecond). Seen from the models its clock
//! is late by up to a unit, when it asks as well as when it last wrote, so that a level is off by less than a
//! unit either way and never drifts further. That much is allowed and no more. For all other quotas it is
//! nothing.

use crate::{Model, expect_within, nanos};
use std::time::Duration;
use tollgate_limit::{Decision, Op, Outcome, Quota, Retry};

/// The numbers of a quota, in shares.
#[derive(Clone, Copy)]
pub(crate) struct Shares {
    count: i128,
    /// What a token takes.
    pub(crate) token: i128,
    /// What a full bucket holds.
    pub(crate) fill: i128,
    pub(crate) burst: u64,
    /// How far a level may be off.
    slack: i128,
    /// Nanoseconds by which the sum of two waits may be too long: where tokens do not take whole nanoseconds
    /// each is rounded up.
    rounding: u64,
}

impl Shares {
    pub(crate) fn new(quota: &Quota) -> Shares {
        let count = i128::from(quota.count());
        let token = i128::from(nanos(quota.period()));
        let ticks = if count > token { 1024 } else { 1 };
        let slack = if token * ticks % count == 0 { 0 } else { 2 * count / ticks };
        let rounding = u64::from(token % count != 0);
        Shares { count, token, fill: token * i128::from(quota.burst()), burst: quota.burst(), slack, rounding }
    }

    pub(crate) fn of_tokens(&self, tokens: u64) -> i128 {
        i128::from(tokens).saturating_mul(self.token)
    }

    pub(crate) fn of_nanos(&self, nanos: u64) -> i128 {
        i128::from(nanos) * self.count
    }

    pub(crate) fn of(&self, duration: Duration) -> i128 {
        self.of_nanos(nanos(duration))
    }

    /// Whole nanoseconds in which so many shares pass.
    fn nanos(&self, shares: i128) -> u64 {
        let nanos = shares.div_euclid(self.count) + i128::from(shares.rem_euclid(self.count) > 0);
        u64::try_from(nanos).unwrap_or(0)
    }

    fn expect_wait(&self, what: &str, said: Duration, expected: i128, rounding: u64) -> Result<(), String> {
        let (least, most) = (self.nanos(expected - self.slack), self.nanos(expected + self.slack));
        expect_within(what, nanos(said), least, most + rounding)
    }

    /// Tokens in a level, rounded down, as little and as much as they may be.
    fn tokens(&self, level: i128) -> (i128, i128) {
        ((level - self.slack).div_euclid(self.token), (level + self.slack).div_euclid(self.token))
    }
}

/// A limit that tokens flow through.
pub(crate) trait Flow {
    fn shares(&self) -> &Shares;

    /// Lets time pass.
    fn pass(&mut self, now: u64);

    /// What could be taken, in shares; below zero what is owed.
    fn level(&self) -> i128;

    /// How long a request is held back, and how long it lets itself be held back; `None` if it is too large.
    fn delay(&self, cost: u64, asked: Option<Duration>) -> Option<(i128, i128)>;

    fn spend(&mut self, shares: i128);

    fn refund(&mut self, shares: i128);

    /// Back to how it is for a client that was never seen.
    fn reset(&mut self);
}

impl<F: Flow> Model for F {
    fn check(&mut self, op: Op, now: u64, said: &Decision) -> Result<(), String> {
        self.pass(now);
        match op {
            Op::Take(cost) => take(self, cost, None, said)?,
            Op::Reserve { cost, max_wait } => take(self, cost, Some(max_wait), said)?,
            Op::Peek(cost) => admit(self, cost, None, said, 0)?,
            Op::TakeUpTo(most) => {
                let (least, available) = self.shares().tokens(self.level());
                let granted = if said.is_allowed() { said.granted } else { most.min(1) };
                expect_within("granted", i128::from(granted), least.min(i128::from(most)), available.max(1))?;
                take(self, granted, None, said)?;
            }
            Op::Charge(cost) => {
                // Debts are ten bursts deep at most.
                let room = self.level() + 10 * self.shares().fill;
                self.spend(self.shares().of_tokens(cost).min(room.max(0)));
            }
            Op::Refund(tokens) => self.refund(self.shares().of_tokens(tokens)),
            Op::Drain => {
                let (least, most) = self.shares().tokens(self.level());
                expect_within("granted", i128::from(said.granted), least.max(0), most.max(0))?;
                self.spend(self.shares().of_tokens(said.granted));
            }
            Op::Reset => self.reset(),
        }
        describe(self, said)
    }
}

fn take<F: Flow>(model: &mut F, cost: u64, asked: Option<Duration>, said: &Decision) -> Result<(), String> {
    admit(model, cost, asked, said, cost)?;
    if said.is_allowed() {
        model.spend(model.shares().of_tokens(cost));
    }
    Ok(())
}

fn admit<F: Flow>(model: &F, cost: u64, asked: Option<Duration>, said: &Decision, grants: u64) -> Result<(), String> {
    let shares = model.shares();
    let granted = if said.is_allowed() { grants } else { 0 };
    expect_within("granted", said.granted, granted, granted)?;
    let Some((delay, patience)) = model.delay(cost, asked) else {
        return crate::expect("outcome", said.outcome, Outcome::Refused(Retry::Never));
    };
    match said.outcome {
        Outcome::Allowed => expect_within("delay", delay, 0, shares.slack),
        Outcome::AllowedAfter(wait) => {
            expect_within("delay", delay, 1 - shares.slack, patience + shares.slack)?;
            expect_within("wait", wait, Duration::from_nanos(1), asked.unwrap_or(Duration::MAX))?;
            shares.expect_wait("wait", wait, delay, 0)
        }
        Outcome::Refused(Retry::After(wait)) => {
            expect_within("delay", delay, patience + 1 - shares.slack, i128::MAX)?;
            shares.expect_wait("retry after", wait, delay - patience, shares.rounding)
        }
        Outcome::Refused(Retry::Never) => Err("it is possible".to_owned()),
    }
}

fn describe<F: Flow>(model: &F, said: &Decision) -> Result<(), String> {
    let shares = model.shares();
    let (least, most) = shares.tokens(model.level());
    expect_within("remaining", i128::from(said.remaining), least.max(0), most.max(0))?;
    expect_within("debt", i128::from(said.debt), (-most).max(0), (-least).max(0))?;
    crate::expect("limit", said.limit, shares.burst)?;
    shares.expect_wait("reset after", said.reset_after, shares.fill - model.level(), 0)
}
