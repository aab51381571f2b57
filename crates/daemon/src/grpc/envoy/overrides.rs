//! Limits that a descriptor brings along: they are counted by themselves, whatever the rules say.

use super::decode::{Override, RateLimitRequest};
use crate::fault::Fault;
use crate::grpc::envoy::units::Unit;
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::time::Duration;
use tollgate::{Decision, Limit, Op, Outcome, Quota, Retry, Table, Time, Value};

/// The limits that the descriptors of one request have brought along.
pub(super) type Overrides<'r> = SmallVec<[Overriding<'r>; 4]>;

/// The limit of one descriptor, and what it said.
#[derive(Debug)]
pub(super) struct Overriding<'r> {
    /// Which of the request's descriptors.
    pub(super) descriptor: usize,
    pub(super) limit: Override,
    pub(super) unit: Unit,
    pub(super) decision: Decision,
    bucket: Bucket<'r>,
    /// Nothing where everything is refused.
    amount: Option<Limit>,
    hits: u64,
}

/// Where what was taken is counted.
#[derive(Clone, Copy, Debug)]
struct Bucket<'r> {
    domain: &'r str,
    entries: &'r [(&'r str, Value<'r>)],
    limit: Override,
}

impl Hash for Bucket<'_> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // Unlike anything that `CL.THROTTLE` calls a key.
        ("descriptor", self.domain, self.entries.len()).hash(hasher);
        for (key, value) in self.entries {
            key.hash(hasher);
            match value {
                Value::Text(text) => text.hash(hasher),
                Value::Number(number) => number.hash(hasher),
                Value::Address(address) => address.hash(hasher),
            }
        }
        (self.limit.requests_per_unit, self.limit.unit).hash(hasher);
    }
}

/// What nothing has been said about yet.
const UNDECIDED: Decision = Decision {
    outcome: Outcome::Refused(Retry::Never),
    granted: 0,
    limit: 0,
    remaining: 0,
    debt: 0,
    reset_after: Duration::ZERO,
};

/// The limits that come with a request.
pub(super) fn find<'r>(request: &'r RateLimitRequest<'_>) -> Result<Overrides<'r>, Fault> {
    let limited = request.descriptors.iter().enumerate();
    let limited = limited.filter_map(|(index, descriptor)| Some((index, descriptor, descriptor.limit?)));
    limited
        .map(|(index, descriptor, limit)| {
            let unit = Unit::from_number(limit.unit).ok_or_else(unknown_unit)?;
            // No limit has more requests in a unit than it has nanoseconds, so only 0 has no quota.
            let quota = Quota::new(limit.requests_per_unit.into(), unit.period()).ok();
            let bucket = Bucket { domain: request.domain, entries: request.entries(descriptor), limit };
            Ok(Overriding {
                descriptor: index,
                limit,
                unit,
                decision: UNDECIDED,
                bucket,
                amount: quota.map(Limit::fixed_window),
                hits: request.hits(descriptor),
            })
        })
        .collect()
}

fn unknown_unit() -> Fault {
    Fault::Malformed("the unit of a limit is SECOND, MINUTE, HOUR, DAY, MONTH or YEAR".into())
}

/// Takes what all of them ask for, or nothing. Says whether it was there.
pub(super) fn take(overrides: &mut Overrides<'_>, table: &Table, now: Time) -> bool {
    overrides.iter_mut().for_each(|one| one.ask(table, Op::Peek(one.hits), now));
    if !overrides.iter().all(|one| one.decision.is_allowed()) {
        return false;
    }
    for index in 0..overrides.len() {
        let Some(one) = overrides.get_mut(index) else { continue };
        one.ask(table, Op::Take(one.hits), now);
        if !one.decision.is_allowed() {
            // Somebody else was quicker.
            overrides.iter_mut().take(index).for_each(|one| one.give_back(table, now));
            return false;
        }
    }
    true
}

/// Gives back what was taken for a request that is refused after all.
pub(super) fn give_back(overrides: &mut Overrides<'_>, table: &Table, now: Time) {
    overrides.iter_mut().for_each(|one| one.give_back(table, now));
}

impl Overriding<'_> {
    fn ask(&mut self, table: &Table, op: Op, now: Time) {
        if let Some(limit) = &self.amount {
            self.decision = table.decide(&self.bucket, limit, op, now);
        }
    }

    fn give_back(&mut self, table: &Table, now: Time) {
        if let Some(limit) = &self.amount {
            let given = table.put_back(&self.bucket, limit, self.decision.granted, now);
            self.decision = Decision { outcome: self.decision.outcome, granted: 0, ..given };
        }
    }
}
