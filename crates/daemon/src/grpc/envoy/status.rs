//! What Envoy is told about one descriptor.

use super::overrides::Overriding;
use super::units::{Unit, until_window_ends};
use crate::grpc::wire::Writer;
use crate::state::State;
use std::time::Duration;
use tollgate::model::{Amount, Selector};
use tollgate::{Checked, Decision, Reason, Request, Time, Verdict};

/// `RateLimitResponse.Code`; the one that says nothing is never used, for Envoy takes it to be a yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Ok = 1,
    OverLimit = 2,
}

impl Code {
    pub(super) fn new(is_allowed: bool) -> Code {
        if is_allowed { Code::Ok } else { Code::OverLimit }
    }
}

/// `RateLimitResponse.DescriptorStatus`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status<'v> {
    /// No limit applies.
    Plain(Code),
    /// A rule says that there is none.
    Unlimited,
    /// What a limit said.
    Limited { code: Code, limit: RateLimit<'v>, remaining: u64, reset_after: Duration },
}

/// `RateLimitResponse.RateLimit`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateLimit<'v> {
    requests_per_unit: u64,
    unit: Option<Unit>,
    name: &'v str,
}

impl<'v> Status<'v> {
    /// What a verdict says about one of its parts.
    pub(super) fn of_part(
        state: &State,
        verdict: &'v Verdict,
        (part, asked): (usize, &Request<'_>),
        now: Time,
    ) -> Status<'v> {
        let refuses_unknown = !verdict.is_allowed() && verdict.deciding().is_none();
        if refuses_unknown {
            return Status::Plain(Code::OverLimit);
        }
        let checks = verdict.checks();
        let start = checks.partition_point(|check| check.part < part);
        let checks = checks.get(start..).unwrap_or_default().iter().take_while(|check| check.part == part);
        match checks.min_by(|one, other| compare(one, other)) {
            Some(check) => Status::of_check(verdict, check, now),
            None if is_unlimited(state, verdict, asked, now) => Status::Unlimited,
            None => Status::Plain(Code::Ok),
        }
    }

    fn of_check(verdict: &'v Verdict, check: &Checked, now: Time) -> Status<'v> {
        let (Some(rule), Some(limit)) = (verdict.rule_of(check), verdict.limit_of(check)) else {
            return Status::Plain(Code::new(goes_ahead(check)));
        };
        let (requests_per_unit, period) = match &limit.amount {
            Amount::Banned { period } => (0, *period),
            Amount::Limit { quota, .. } => (quota.count(), quota.period()),
        };
        let is_envoys = matches!(rule.selector, Selector::Descriptor(_));
        // A limit that its author has not named is told by the rule, which Envoy's configurations do not name, either.
        let name = if is_envoys && limit.name == rule.name { "" } else { &*limit.name };
        let mut reset_after = check.decision.reset_after;
        if is_envoys && reset_after.is_zero() {
            reset_after = until_window_ends(period, now);
        }
        Status::Limited {
            code: Code::new(goes_ahead(check)),
            limit: RateLimit { requests_per_unit, unit: Unit::from_period(period), name },
            remaining: remaining(&check.decision),
            reset_after,
        }
    }

    /// What a limit said that came with the descriptor.
    pub(super) fn of_override(one: &Overriding<'_>, now: Time) -> Status<'static> {
        Status::Limited {
            code: Code::new(one.decision.is_allowed()),
            limit: RateLimit { requests_per_unit: one.limit.requests_per_unit.into(), unit: Some(one.unit), name: "" },
            remaining: remaining(&one.decision),
            reset_after: until_window_ends(one.unit.period(), now),
        }
    }

    pub(super) fn write(&self, reply: &mut Writer) {
        reply.message(2, |reply| match self {
            Status::Plain(code) => reply.number(1, *code as u64),
            Status::Unlimited => {
                reply.number(1, Code::Ok as u64);
                reply.number(3, u32::MAX.into());
            }
            Status::Limited { code, limit, remaining, reset_after } => {
                reply.number(1, *code as u64);
                reply.message(2, |reply| limit.write(reply));
                reply.plain_number(3, (*remaining).min(u32::MAX.into()));
                reply.message(4, |reply| reply.plain_number(1, whole_seconds(*reset_after)));
            }
        });
    }
}

impl RateLimit<'_> {
    fn write(&self, reply: &mut Writer) {
        reply.plain_number(1, self.requests_per_unit.min(u32::MAX.into()));
        if let Some(unit) = self.unit {
            reply.number(2, unit as u64);
        }
        if !self.name.is_empty() {
            reply.bytes(3, self.name.as_bytes());
        }
    }
}

/// Whoever would have to wait is refused, for Envoy cannot be told to.
fn goes_ahead(check: &Checked) -> bool {
    check.is_shadow || check.decision.is_allowed() && check.decision.wait().is_zero()
}

/// Which of a descriptor's limits comes first: those that refuse, the longest of them; then the one that has the least
/// left in proportion; and last those that have no say.
fn compare(one: &Checked, other: &Checked) -> std::cmp::Ordering {
    let refused_for = |check: &Checked| {
        let wait = check.decision.retry_after().unwrap_or(Duration::MAX);
        (!goes_ahead(check)).then(|| wait.max(check.decision.wait()))
    };
    let left = |left: &Decision, of: &Decision| u128::from(left.remaining) * u128::from(of.limit.max(1));
    refused_for(other)
        .cmp(&refused_for(one))
        .then(one.is_shadow.cmp(&other.is_shadow))
        .then_with(|| left(&one.decision, &other.decision).cmp(&left(&other.decision, &one.decision)))
}

/// Whether a rule applies to a part that says that there is no limit. A verdict knows it only of all parts together.
fn is_unlimited(state: &State, verdict: &Verdict, asked: &Request<'_>, now: Time) -> bool {
    let says_so = |verdict: &Verdict| verdict.reason() == Reason::Unlimited && verdict.rule().is_some();
    let may_be = says_so(verdict) || !verdict.checks().is_empty();
    may_be && says_so(&state.engine().peek(asked, now))
}

/// Who was refused has nothing left that would be of use.
fn remaining(decision: &Decision) -> u64 {
    if decision.is_allowed() { decision.remaining } else { 0 }
}

/// Rounded up: whoever waits that long has waited long enough.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
