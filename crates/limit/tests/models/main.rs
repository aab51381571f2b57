//! Every algorithm against a slow and obvious model of it: the same random requests to both, every answer
//! compared, more than a million of them.
//!
//! The models keep what the textbooks keep (tokens, a backlog, counts of windows, a list of times) in exact
//! numbers and never round. They are told what the limit answered and say what is wrong with it. A failure
//! names the seed and the step, and the same seed fails again.
//!
//! Each request also goes to a [`Table`], which has to give the same answer as the [`Cell`].

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod calendar_window;
mod cycles;
mod exact;
mod leaky_queue;
mod random;
mod sliding_log;
mod sliding_window;
mod smooth_bursty;
mod smooth_warming_up;
mod token_bucket;

use random::{Random, Workload};
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;
use tollgate_limit::{Capacity, Cell, Decision, Limit, Op, Quota, Table, Time};

/// A limit in slow motion.
trait Model {
    /// What is wrong with an answer, if anything. Takes note of what was answered.
    fn check(&mut self, op: Op, now: u64, said: &Decision) -> Result<(), String>;
}

/// Quotas that divide evenly and quotas that do not, from one token a month to a thousand a nanosecond.
const QUOTAS: [&str; 16] = [
    "10 per second",
    "1 per second",
    "3 per second",
    "3 per second burst 1",
    "5 per 15 minutes burst 10",
    "7 per 11 milliseconds",
    "100 per minute burst 7",
    "1 per 30 days",
    "1000 per 30 days",
    "1_000_000 per second",
    "1_000_000 per second burst 1000",
    "999_999_937 per second",
    "1_000_000_000 per second burst 50",
    "2_000_000_000 per second burst 1000",
    "1_000_000_000_000 per second",
    "999_999_999_989 per second burst 5_000_000",
];

const RUNS: u64 = 10;
const STEPS: u64 = 1_000;

fn quotas() -> impl Iterator<Item = Quota> {
    QUOTAS.iter().map(|text| text.parse().unwrap())
}

/// Nanoseconds that an empty bucket takes to fill.
fn fill_nanos(quota: &Quota) -> u64 {
    let nanos = quota.period().as_nanos() * u128::from(quota.burst()) / u128::from(quota.count());
    u64::try_from(nanos).unwrap().max(1)
}

/// Drives a limit and its model, for as many runs as there are seeds.
fn compare<M: Model>(limit: &Limit, workload: &Workload, model: impl Fn(u64) -> M) {
    for seed in 0..RUNS {
        run(limit, workload, seed, &model);
    }
}

fn run<M: Model>(limit: &Limit, workload: &Workload, seed: u64, model: &impl Fn(u64) -> M) {
    let mut random = Random::new(seed);
    let mut now = random.start();
    let mut model = model(now);
    let cell = Cell::new(limit, Time::from_nanos(now));
    let table = Table::new(Capacity::Keys(10), &BuildHasherDefault::<DefaultHasher>::default());
    bring_into_the_state_of(&cell, &table, limit, Time::from_nanos(now));
    for step in 0..STEPS {
        now += workload.pause(&mut random);
        let op = workload.op(&mut random);
        let said = cell.decide(limit, op, Time::from_nanos(now));
        let in_table = table.decide("key", limit, op, Time::from_nanos(now));
        let same = if in_table == said { Ok(()) } else { Err(format!("the table said {in_table:?}")) };
        if let Err(problem) = same.and_then(|()| model.check(op, now, &said)) {
            panic!("{limit:?}, seed {seed}, step {step}, at {now}: {op:?} was answered with {said:?}, but {problem}");
        }
    }
}

/// A new cell of Guava's limiter starts empty. A table cannot tell a new client from an idle one.
fn bring_into_the_state_of(cell: &Cell, table: &Table, limit: &Limit, now: Time) {
    let missing = limit.most() - cell.decide(limit, Op::Peek(0), now).remaining;
    assert!(table.decide("key", limit, Op::Take(missing), now).is_allowed());
}

/// An error that says what was expected.
fn expect<T: Copy + PartialEq + Debug>(what: &str, said: T, expected: T) -> Result<(), String> {
    if said == expected { Ok(()) } else { Err(format!("{what} should be {expected:?}, not {said:?}")) }
}

/// The same for a number that may lie within a range.
fn expect_within<T: Copy + PartialOrd + Debug>(what: &str, said: T, least: T, most: T) -> Result<(), String> {
    if least <= said && said <= most {
        Ok(())
    } else {
        Err(format!("{what} should be {least:?} to {most:?}, not {said:?}"))
    }
}

/// Nanoseconds, which here always fit.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
