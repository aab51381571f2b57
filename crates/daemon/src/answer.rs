//! What a verdict says, in the terms that all protocols share.

use std::time::Duration;
use tollgate::{Action, Verdict};

/// A verdict, taken apart. RESP, gRPC and HTTP write the same fields under the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Whether the request may go ahead, be it after a wait.
    pub allowed: bool,
    /// As HTTP would answer; 0 for a connection that is to be closed without an answer.
    pub status: u16,
    /// What the limit that decided hands out at most; nothing where none applies.
    pub limit: Option<u64>,
    /// What is left of it.
    pub remaining: Option<u64>,
    /// How long to wait before going ahead.
    pub wait: Duration,
    /// When asking again could succeed; nothing where the request may go ahead, or never can.
    pub retry_after: Option<Duration>,
    /// When all of the limit is there again.
    pub reset_after: Option<Duration>,
    /// The rule that decided.
    pub rule: Option<&'a str>,
    /// Why; see [`tollgate::Reason`].
    pub reason: &'static str,
    /// Whether those were not asked whom a limit is shared with, so that its rule's `on_failure` has decided.
    pub degraded: bool,
}

impl<'a> Answer<'a> {
    /// What a verdict says.
    pub fn new(verdict: &'a Verdict) -> Answer<'a> {
        let decision = verdict.deciding().map(|check| check.decision);
        Answer {
            allowed: verdict.is_allowed(),
            status: match verdict.action() {
                Action::Allow | Action::Wait(_) => 200,
                Action::Refuse(status) => status,
                Action::Drop => 0,
            },
            limit: decision.map(|decision| decision.limit),
            remaining: decision.map(|decision| decision.remaining),
            wait: verdict.wait(),
            retry_after: verdict.retry_after(),
            reset_after: decision.map(|decision| decision.reset_after),
            rule: verdict.rule(),
            reason: verdict.reason().name(),
            degraded: verdict.is_degraded(),
        }
    }
}

/// Whole milliseconds, rounded up: whoever waits that long has waited long enough.
pub fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
