use super::deciding::Plan;
use super::hold::Booking;
use super::rules::Rules;
use crate::headers::{self, Policy, Told};
use crate::problem::{self, Kind, Problem};
use arc_swap::Guard;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tollgate_limit::{Decision, Time};
use tollgate_rules::model::{Amount, OnFailure, Over, Rule, Shared};
use tollgate_rules::{CompiledLimit, CompiledRule, Dialect};

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Let it through.
    Allow,
    /// Hold it for so long, then let it through.
    Wait(Duration),
    /// Turn it away with this status.
    Refuse(u16),
    /// Close its connection without an answer.
    Drop,
}

/// For people: `refused with 429`.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Allow => f.write_str("allowed"),
            Action::Wait(wait) => write!(f, "allowed after {wait:?}"),
            Action::Refuse(status) => write!(f, "refused with {status}"),
            Action::Drop => f.write_str("dropped without an answer"),
        }
    }
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nobody has rules for the namespace.
    UnknownNamespace,
    /// No rule applies.
    NoRule,
    /// Only rules apply that limit nothing.
    Unlimited,
    /// All limits that apply have room for it.
    WithinLimits,
    /// A limit has no room for it.
    OverLimit,
    /// A rule lets nothing of this kind through.
    Banned,
    /// A limit that is kept elsewhere could not be asked, and its rule says to refuse then.
    Unavailable,
}

impl Reason {
    /// What every protocol calls it.
    pub fn name(self) -> &'static str {
        match self {
            Reason::UnknownNamespace => "unknown-namespace",
            Reason::NoRule => "no-rule",
            Reason::Unlimited => "unlimited",
            Reason::WithinLimits => "within-limits",
            Reason::OverLimit => "over-limit",
            Reason::Banned => "banned",
            Reason::Unavailable => "unavailable",
        }
    }
}

/// What one limit said about a request.
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    /// Which of several requests that were decided together.
    pub part: usize,
    /// What the limit said; of one that was only looked at, as it would have said.
    pub decision: Decision,
    /// What the request costs there.
    pub cost: u64,
    /// Whether it has no say: it only reports.
    pub is_shadow: bool,
    /// Whether its state could not be reached, so that this is not all that there is to know.
    pub is_degraded: bool,
    /// Who counts together.
    pub(super) shared: Shared,
    /// Whether the answer from there is still to come.
    pub(super) is_open: bool,
    /// Whether requests over it may be held.
    pub(super) is_queued: bool,
    /// Whether it refuses only together with all others of this kind.
    pub(super) is_quota_mode: bool,
    pub(super) namespace: u32,
    pub(super) rule: u32,
    pub(super) limit: u32,
    /// The key's fingerprint.
    pub(super) client: u64,
}

/// The answer to a request: what to do, which rule said so and why, and what to tell the client.
///
/// It belongs to the version of the rules that it was made by, and keeps that from being freed; do not keep verdicts
/// for long.
#[must_use = "a verdict that nobody looks at limits nothing"]
pub struct Verdict {
    pub(super) plan: Plan,
    pub(super) action: Action,
    pub(super) reason: Reason,
    /// The check that decided.
    pub(super) decided: Option<usize>,
}

impl Verdict {
    /// A verdict by these rules about a request of which nothing is known yet. It is large, so it is made where it
    /// stays and filled in there: copying it around took a fifth of the instructions of a decision.
    #[inline(always)]
    pub(super) fn open(rules: Guard<Arc<Rules>>) -> Verdict {
        Verdict { plan: Plan::new(rules), action: Action::Allow, reason: Reason::NoRule, decided: None }
    }

    /// Draws the conclusion from what was found out.
    #[inline]
    pub(super) fn close(&mut self) {
        (self.action, self.reason, self.decided) = self.plan.conclude();
    }

    /// What to do.
    pub fn action(&self) -> Action {
        self.action
    }

    /// Why.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Whether the request may go ahead, now or after a wait.
    #[inline]
    pub fn is_allowed(&self) -> bool {
        matches!(self.action, Action::Allow | Action::Wait(_))
    }

    /// Whether a limit that hosts share could not be asked, so that its rule's `on_failure` has decided.
    pub fn is_degraded(&self) -> bool {
        self.plan.checks.iter().any(|check| check.is_degraded)
    }

    /// How long to hold it before it goes ahead.
    pub fn wait(&self) -> Duration {
        match self.action {
            Action::Wait(wait) => wait,
            _ => Duration::ZERO,
        }
    }

    /// When it could succeed, if it was refused and ever can.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_allowed() {
            return None;
        }
        // It was the strictest that decided. Where no limit did, waiting does not help.
        self.deciding()?.decision.retry_after()
    }

    /// What is left of the tightest limit.
    pub fn remaining(&self) -> Option<u64> {
        self.deciding().map(|check| check.decision.remaining)
    }

    /// The rule that decided: the one that refused, or else the tightest.
    pub fn rule(&self) -> Option<&str> {
        self.deciding_rule().map(|rule| &*rule.rule().name)
    }

    /// What the limit said that decided.
    pub fn deciding(&self) -> Option<&Checked> {
        self.plan.checks.get(self.decided?)
    }

    /// What every limit said, in the order of the rules.
    pub fn checks(&self) -> &[Checked] {
        &self.plan.checks
    }

    /// The rule that a check belongs to, without its limits, tiers and overrides: those are compiled away. What applied
    /// is [`limit_of`](Self::limit_of).
    pub fn rule_of(&self, check: &Checked) -> Option<&Rule> {
        self.compiled_rule(check.namespace, check.rule).map(CompiledRule::rule)
    }

    /// The limit that a check belongs to.
    pub fn limit_of(&self, check: &Checked) -> Option<&CompiledLimit> {
        self.plan.rules.compiled.get(check.namespace)?.limit(check.limit)
    }

    /// Which version of the rules it was made by.
    pub fn version(&self) -> u64 {
        self.plan.rules.version
    }

    fn compiled_rule(&self, namespace: u32, rule: u32) -> Option<&CompiledRule> {
        self.plan.rules.compiled.get(namespace)?.rule(rule)
    }

    fn deciding_rule(&self) -> Option<&CompiledRule> {
        let (namespace, rule) = match self.deciding() {
            Some(check) => (check.namespace, check.rule),
            None => self.plan.unlimited?,
        };
        self.compiled_rule(namespace, rule)
    }

    /// What it took that [can be given back](super::Engine::cancel), without the rules that it was made by.
    pub fn into_booking(mut self) -> Booking {
        self.take_booking()
    }

    /// The same, taken out of it.
    pub fn take_booking(&mut self) -> Booking {
        Booking(std::mem::take(&mut self.plan.reservations))
    }

    /// Calls `each` with the headers to be sent to the client, in lower case, whatever the protocol.
    pub fn headers(&self, now: Time, each: impl FnMut(&'static str, &str)) {
        let dialect = self.deciding_rule().map_or(Dialect::None, CompiledRule::dialect);
        self.tell(|told| headers::write(dialect, told, now, each));
    }

    /// The body of a refusal, as [problem details](problem).
    pub fn problem(&self) -> String {
        let mut body = String::new();
        self.tell(|told| problem::write(&Problem { kind: self.kind(), told }, &mut body));
        body
    }

    /// What a refusal's body tells people, for protocols without a body.
    pub fn detail(&self) -> String {
        let mut text = String::new();
        self.tell(|told| problem::write_detail(&Problem { kind: self.kind(), told }, &mut text));
        text
    }

    /// Whose fault a refusal is.
    fn kind(&self) -> Kind {
        match (self.reason, self.action) {
            (Reason::Unavailable, _) => Kind::Unavailable,
            (_, Action::Refuse(503)) => Kind::ReducedCapacity,
            (Reason::Banned, _) => Kind::AbnormalUsage,
            _ => Kind::QuotaExceeded,
        }
    }

    /// What clients are told: the limits that have a say, the one that decided first.
    fn tell(&self, tell: impl FnOnce(&Told<'_>)) {
        let decided = self.decided.into_iter();
        let others = (0..self.plan.checks.len()).filter(|index| Some(*index) != self.decided);
        let told = decided.chain(others).filter_map(|index| self.plan.checks.get(index));
        // Of a limit whose answer is still to come there is nothing to tell.
        let told = told.filter(|check| !check.is_shadow && !check.is_open);
        let quotas_refuse = quotas_refuse(&self.plan.checks);
        let policies: SmallVec<[Policy<'_>; 4]> = told.filter_map(|check| self.policy(check, quotas_refuse)).collect();
        tell(&Told { policies: &policies, retry_after: self.retry_after(), refused: !self.is_allowed() });
    }

    fn policy(&self, check: &Checked, quotas_refuse: bool) -> Option<Policy<'_>> {
        let limit = self.limit_of(check)?;
        // A limit that could not be asked has not been reached, unless this host counts its share meanwhile.
        let shuts = self.rule_of(check).is_some_and(|rule| rule.on_failure == OnFailure::Refuse);
        let is_unknown = check.is_degraded && shuts;
        Some(Policy {
            name: &limit.name,
            quota: check.decision.limit,
            window: Some(window(&limit.amount, check.decision.limit)),
            remaining: check.decision.remaining,
            reset_after: check.decision.reset_after,
            violated: !self.is_allowed() && check.refuses() && !is_unknown && (quotas_refuse || !check.is_quota_mode),
        })
    }
}

/// How long it takes until as much has come in as can be taken at once.
fn window(amount: &Amount, most: u64) -> Duration {
    match amount {
        Amount::Banned { period } => *period,
        Amount::Limit { quota, .. } => {
            let nanos = quota.period().as_nanos().saturating_mul(most.into()).div_ceil(quota.count().into());
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        }
    }
}

impl Checked {
    /// Whether the limit has no room for the request, and a say.
    pub(super) fn refuses(&self) -> bool {
        !self.is_shadow && !self.decision.is_allowed()
    }
}

/// Whether there are limits in quota mode, and all of them refuse.
pub(super) fn quotas_refuse(checks: &[Checked]) -> bool {
    let mut quotas = checks.iter().filter(|check| check.is_quota_mode && !check.is_shadow).peekable();
    quotas.peek().is_some() && quotas.all(Checked::refuses)
}

/// What becomes of a request that a rule refuses.
pub(super) fn refusal(over: Over) -> Action {
    match over {
        Over::Reject(status) => Action::Refuse(status),
        Over::Drop => Action::Drop,
        // Whoever cannot be queued is turned away.
        Over::Queue { .. } | Over::Shadow => Action::Refuse(429),
    }
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verdict")
            .field("action", &self.action)
            .field("reason", &self.reason)
            .field("rule", &self.rule())
            .field("checks", &self.plan.checks)
            .finish_non_exhaustive()
    }
}
