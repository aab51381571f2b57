//! The engine again, slow and plain: one cell per limit and client, all looked at before any is taken.

use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;
use tollgate::{Action, Cell, Decision, Limit, Op, Quota, Reason, Time, Value};

/// How a limit is made of a quota.
type Make = fn(Quota) -> Limit;

/// Limits as they are written, and as they are.
const KINDS: [(&str, Make); 5] = [
    ("", Limit::token_bucket),
    (" burst 9", Limit::token_bucket),
    (" using fixed-window", Limit::fixed_window),
    (" using sliding-window", Limit::sliding_window),
    (" using sliding-log", Limit::sliding_log),
];

/// A rule, as far as the model goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    pub(crate) number: usize,
    /// Which operation it is about; all, if there is none.
    pub(crate) op: Option<u8>,
    pub(crate) has_key: bool,
    /// How many per minute, of which kind.
    pub(crate) limits: Vec<(u64, usize)>,
    /// Those of the gold plan.
    pub(crate) gold: Option<Vec<(u64, usize)>>,
    pub(crate) cost: Option<u64>,
    pub(crate) priority: i32,
    pub(crate) stops: bool,
    pub(crate) is_shadow: bool,
    pub(crate) is_quota: bool,
    pub(crate) drops: bool,
    /// Which other rule it replaces, counted from itself.
    pub(crate) replaces: Option<usize>,
}

/// A request, as far as the model goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) later: Duration,
    pub(crate) op: u8,
    pub(crate) user: Option<u8>,
    pub(crate) is_gold: bool,
    pub(crate) cost: u64,
}

/// What matters of a verdict.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) action: Action,
    pub(crate) reason: Reason,
    pub(crate) rule: Option<String>,
    pub(crate) remaining: Option<u64>,
    pub(crate) retry: Option<Duration>,
}

fn limits() -> impl Strategy<Value = Vec<(u64, usize)>> {
    // Different counts, as the same limit twice is a mistake.
    prop::collection::btree_map(1..8_u64, 0..KINDS.len(), 0..3).prop_map(|limits| limits.into_iter().collect())
}

prop_compose! {
    pub(crate) fn written()(
        op in prop::option::weighted(0.7, 0..3_u8),
        has_key: bool,
        limits in limits(),
        gold in prop::option::weighted(0.3, limits()),
        cost in prop::option::weighted(0.2, 0..4_u64),
        priority in -1..2_i32,
        (stops, is_shadow, is_quota) in (prop::bool::weighted(0.15), prop::bool::weighted(0.2), prop::bool::weighted(0.3)),
        drops: bool,
        replaces in prop::option::weighted(0.2, 1..4_usize),
    ) -> Written {
        Written { number: 0, op, has_key, limits, gold, cost, priority, stops, is_shadow, is_quota, drops, replaces }
    }
}

prop_compose! {
    pub(crate) fn asked()(
        later in prop_oneof![4 => Just(0_u64), 2 => 1..20_000_u64, 1 => 20_000..90_000_u64],
        op in 0..4_u8,
        user in prop::option::weighted(0.8, 0..2_u8),
        is_gold: bool,
        cost in prop_oneof![6 => Just(1_u64), 2 => 0..4_u64, 1 => 4..10_u64],
    ) -> Asked {
        Asked { later: Duration::from_millis(later), op, user, is_gold, cost }
    }
}

impl Asked {
    pub(crate) fn attributes(&self) -> Vec<(&'static str, Value<'static>)> {
        let mut attributes = vec![("op", Value::Number(self.op.into()))];
        attributes.extend(self.user.map(|user| ("user", Value::Text(["ann", "bob"][usize::from(user)]))));
        attributes.extend(self.is_gold.then_some(("plan", Value::Text("gold"))));
        attributes
    }
}

impl Written {
    pub(crate) fn name(&self) -> String {
        format!("rule-{}", self.number)
    }

    pub(crate) fn matches(&self, request: &Asked) -> bool {
        self.op.is_none_or(|op| op == request.op)
    }

    fn limits_for(&self, request: &Asked) -> &[(u64, usize)] {
        self.gold.as_ref().filter(|_| request.is_gold).unwrap_or(&self.limits)
    }
}

pub(crate) fn numbered(rules: &[Written]) -> Vec<Written> {
    rules.iter().enumerate().map(|(number, rule)| Written { number, ..rule.clone() }).collect()
}

/// The rules as a file.
pub(crate) fn text(rules: &[Written]) -> String {
    let mut text = "namespace: n\nrules:\n".to_owned();
    let list = |limits: &[(u64, usize)]| {
        limits
            .iter()
            .map(|(count, kind)| format!("{count} per minute{}", KINDS[*kind].0))
            .collect::<Vec<_>>()
            .join(", ")
    };
    for rule in numbered(rules) {
        let key = if rule.has_key { "user" } else { "" };
        write!(text, "  - {{ name: {}, key: [{key}], limits: [{}]", rule.name(), list(&rule.limits)).unwrap();
        let mut conditions: Vec<String> = rule.op.iter().map(|op| format!("op: \"{op}\"")).collect();
        // Always true, so that nobody can say that rules after one that stops never apply.
        conditions.extend(rule.stops.then(|| format!("skip-{}: {{ present: false }}", rule.number)));
        write!(text, ", match: {{ {} }}", conditions.join(", ")).unwrap();
        rule.gold.iter().for_each(|gold| write!(text, ", tiers: {{ plan: {{ gold: [{}] }} }}", list(gold)).unwrap());
        rule.cost.inspect(|cost| write!(text, ", cost: {cost}").unwrap());
        let over = if rule.is_shadow { "shadow" } else { ["reject", "drop"][usize::from(rule.drops)] };
        let then = ["continue", "stop"][usize::from(rule.stops)];
        write!(text, ", priority: {}, then: {then}, over: {over}, quota_mode: {}", rule.priority, rule.is_quota)
            .unwrap();
        if let Some(other) = replaced(&rule, rules.len()) {
            write!(text, ", replaces: [rule-{other}]").unwrap();
        }
        text.push_str(" }\n");
    }
    text
}

fn replaced(rule: &Written, rules: usize) -> Option<usize> {
    rule.replaces.map(|offset| (rule.number + offset) % rules).filter(|other| *other != rule.number)
}

/// Which limit, and which client: the rule, whether it is of the gold plan, the position, and the user.
type Place = (usize, bool, usize, Option<u8>);

pub(crate) struct Model {
    /// In the order in which they are looked at.
    rules: Vec<Written>,
    cells: HashMap<Place, Cell>,
}

/// One limit that applies.
struct Check<'a> {
    rule: &'a Written,
    place: Place,
    limit: Limit,
    cost: u64,
    decision: Decision,
}

impl Model {
    pub(crate) fn new(rules: &[Written]) -> Model {
        let mut rules = numbered(rules);
        rules.sort_by_key(|rule| Reverse(rule.priority));
        Model { rules, cells: HashMap::new() }
    }

    fn matching(&self, request: &Asked) -> Vec<&Written> {
        let mut found = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.matches(request)) {
            found.push(rule);
            if rule.stops {
                break;
            }
        }
        found
    }

    fn remaining_rules(&self, request: &Asked) -> Vec<&Written> {
        let found = self.matching(request);
        let gone: Vec<_> = found.iter().filter_map(|rule| replaced(rule, self.rules.len())).collect();
        found.into_iter().filter(|rule| !gone.contains(&rule.number)).collect()
    }

    pub(crate) fn applying(&self, request: &Asked) -> Vec<String> {
        self.remaining_rules(request).iter().map(|rule| rule.name()).collect()
    }

    pub(crate) fn check(&mut self, request: &Asked, now: Time) -> Said {
        let mut cells = std::mem::take(&mut self.cells);
        let mut checks = Vec::new();
        for rule in self.remaining_rules(request) {
            let cost = if request.cost == 0 { 0 } else { rule.cost.unwrap_or(request.cost) };
            for (position, (count, kind)) in rule.limits_for(request).iter().enumerate() {
                let is_gold = request.is_gold && rule.gold.is_some();
                let place = (rule.number, is_gold, position, request.user.filter(|_| rule.has_key));
                let (suffix, limit) = KINDS[*kind];
                let burst = if suffix.starts_with(" burst") { suffix } else { "" };
                let limit = limit(format!("{count} per minute{burst}").parse().unwrap());
                let cell = cells.entry(place).or_insert_with(|| Cell::new(&limit, now));
                let decision = cell.decide(&limit, Op::Peek(cost), now);
                checks.push(Check { rule, place, limit, cost, decision });
            }
        }
        let said = match checks.is_empty() {
            true => nothing_limits(!self.matching(request).is_empty()),
            false => decide(&mut checks, &cells, now),
        };
        self.cells = cells;
        said
    }
}

fn nothing_limits(matched: bool) -> Said {
    let reason = if matched { Reason::Unlimited } else { Reason::NoRule };
    Said { action: Action::Allow, reason, rule: None, remaining: None, retry: None }
}

fn decide(checks: &mut [Check<'_>], cells: &HashMap<Place, Cell>, now: Time) -> Said {
    let refuses = |check: &&Check<'_>| !check.rule.is_shadow && !check.decision.is_allowed();
    let wait = |check: &&Check<'_>| check.decision.retry_after().unwrap_or(Duration::MAX);
    let quotas: Vec<_> = checks.iter().filter(|check| check.rule.is_quota && !check.rule.is_shadow).collect();
    let quota = quotas.iter().copied().min_by_key(wait).filter(|_| quotas.iter().all(refuses));
    let plain = checks.iter().filter(|check| !check.rule.is_quota && refuses(check)).rev().max_by_key(wait);
    if let Some(strictest) = quota.into_iter().chain(plain).max_by_key(wait) {
        return Said {
            action: if strictest.rule.drops { Action::Drop } else { Action::Refuse(429) },
            reason: Reason::OverLimit,
            rule: Some(strictest.rule.name()),
            remaining: Some(strictest.decision.remaining),
            retry: strictest.decision.retry_after(),
        };
    }
    for check in checks.iter_mut().filter(|check| check.decision.is_allowed()) {
        check.decision = cells[&check.place].decide(&check.limit, Op::Take(check.cost), now);
    }
    let share = |check: &&Check<'_>| (u128::from(check.decision.remaining) << 64) / u128::from(check.decision.limit);
    let tightest = checks.iter().filter(|check| !check.rule.is_shadow).min_by_key(share);
    Said {
        action: Action::Allow,
        reason: Reason::WithinLimits,
        rule: tightest.map(|check| check.rule.name()),
        remaining: tightest.map(|check| check.decision.remaining),
        retry: None,
    }
}
