//! How long requests over a limit are held.

use super::deciding::rule;
use super::rules::Rules;
use super::verdict::Checked;
use std::time::Duration;
use tollgate_limit::{Limit, Outcome, Retry};
use tollgate_rules::model::{Amount, Over};

/// How long requests of a rule may be held, if it says so. Otherwise that is for its limits to say.
#[inline]
pub(super) fn patience(rules: &Rules, check: &Checked) -> Option<Duration> {
    if !check.is_queued {
        return None;
    }
    match rule(rules, check)?.over {
        Over::Queue { wait, depth: None } => Some(wait),
        Over::Queue { wait, depth: Some(depth) } => Some(wait.min(queue_length(rules, check, depth))),
        Over::Reject(_) | Over::Drop | Over::Shadow => None,
    }
}

/// What a limit would say to a request that can be held for so long, by what it says to one whose wait is up to it.
pub(super) fn queued(outcome: Outcome, limit: &Limit, cost: u64, wait: Duration) -> Outcome {
    let delay = match outcome {
        Outcome::AllowedAfter(delay) => delay,
        Outcome::Refused(Retry::After(longer)) => longer.saturating_add(limit.patience(cost, None)),
        Outcome::Allowed | Outcome::Refused(Retry::Never) => return outcome,
    };
    match delay.checked_sub(limit.patience(cost, Some(wait))) {
        None | Some(Duration::ZERO) => Outcome::AllowedAfter(delay),
        Some(longer) => Outcome::Refused(Retry::After(longer)),
    }
}

/// How long it takes until so many have left a queue.
fn queue_length(rules: &Rules, check: &Checked, depth: u64) -> Duration {
    let limit = rules.compiled.get(check.namespace).and_then(|namespace| namespace.limit(check.limit));
    match limit.map(|limit| &limit.amount) {
        Some(Amount::Limit { quota, .. }) => {
            let nanos = quota.period().as_nanos().saturating_mul(depth.into()) / u128::from(quota.count());
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        }
        _ => Duration::ZERO,
    }
}
