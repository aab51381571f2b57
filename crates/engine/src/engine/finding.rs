//! Which limits apply to a request, and in which buckets.

use super::deciding::Plan;
use super::rules::Rules;
use super::verdict::{Action, Checked, Reason};
use smallvec::SmallVec;
use std::time::Duration;
use tollgate_limit::{Decision, Outcome, Table};
use tollgate_rules::model::{NoMatch, Over, Rule, Shared};
use tollgate_rules::{Attributes, CompiledLimits, CompiledNamespace, CompiledRule, Request};

impl Plan {
    /// Finds out what applies.
    #[inline]
    pub(super) fn find(&mut self, table: &Table, parts: &[Request<'_>]) {
        let Plan { rules, checks, free, unlimited, otherwise, is_shared, .. } = self;
        let mut finder = Finder { rules, table, checks, free, unlimited, otherwise, is_shared, has_replacing: false };
        parts.iter().enumerate().for_each(|(part, request)| finder.add(part, request));
        if finder.has_replacing {
            finder.drop_replaced();
        }
    }
}

/// Collects what applies to the parts of a request.
struct Finder<'a> {
    rules: &'a Rules,
    table: &'a Table,
    checks: &'a mut SmallVec<[Checked; 4]>,
    free: &'a mut SmallVec<[(u32, u32, u64); 1]>,
    unlimited: &'a mut Option<(u32, u32)>,
    otherwise: &'a mut (Action, Reason),
    is_shared: &'a mut bool,
    has_replacing: bool,
}

impl Finder<'_> {
    fn add(&mut self, part: usize, request: &Request<'_>) {
        let Some(number) = self.rules.compiled.number(request.namespace) else {
            if self.rules.unknown == NoMatch::Refuse {
                *self.otherwise = (Action::Refuse(503), Reason::UnknownNamespace);
            }
            return;
        };
        let Some(namespace) = self.rules.compiled.get(number) else { return };
        let mut attributes = Attributes::new(request);
        namespace.resolve(&mut attributes);
        let mut has_match = false;
        namespace.each_match(&attributes, |rule_number| {
            has_match = true;
            let Some(rule) = namespace.rule(rule_number) else { return };
            self.has_replacing |= !rule.replaces().is_empty();
            let client = self.table.fingerprint(&rule.client(&attributes));
            let limits = rule.limits(&attributes);
            if limits.numbers().is_empty() {
                self.free.push((number, rule_number, client));
            }
            if *limits == CompiledLimits::Unlimited {
                *self.unlimited = Some((number, rule_number));
            }
            *self.is_shared |= rule.rule().shared != Shared::Local;
            let check = new_check(part, rule.rule(), rule.cost(request.cost, &attributes));
            for limit in limits.numbers() {
                // By the time that it is asked, it is there.
                namespace.limit(limit).inspect(|limit| self.table.prefetch(&(limit.id, client)));
                self.checks.push(Checked { namespace: number, rule: rule_number, limit, client, ..check });
            }
        });
        self.conclude(namespace, has_match);
    }

    /// What no limit says is said by the namespaces; one that refuses has the last word.
    fn conclude(&mut self, namespace: &CompiledNamespace, has_match: bool) {
        if self.otherwise.0 != Action::Allow {
            return;
        }
        *self.otherwise = match (has_match, namespace.model().no_match) {
            (true, _) => (Action::Allow, Reason::Unlimited),
            (false, NoMatch::Refuse) => (Action::Refuse(503), Reason::NoRule),
            (false, NoMatch::Allow) if self.otherwise.1 == Reason::Unlimited => *self.otherwise,
            (false, NoMatch::Allow) => (Action::Allow, Reason::NoRule),
        };
    }

    /// Drops the rules that others of the same request replace.
    fn drop_replaced(&mut self) {
        let rules = self.rules;
        let replaces = |namespace: u32, rule: u32| {
            let rule = rules.compiled.get(namespace).and_then(|namespace| namespace.rule(rule));
            rule.map(CompiledRule::replaces).unwrap_or_default()
        };
        let here = self
            .checks
            .iter()
            .map(|check| (check.namespace, check.rule))
            .chain(self.free.iter().map(|free| (free.0, free.1)));
        let replaced: SmallVec<[(u32, u32); 4]> = here
            .flat_map(|(namespace, rule)| replaces(namespace, rule).iter().map(move |replaced| (namespace, *replaced)))
            .collect();
        if !replaced.is_empty() {
            self.checks.retain(|check| !replaced.contains(&(check.namespace, check.rule)));
            self.free.retain(|free| !replaced.contains(&(free.0, free.1)));
            *self.unlimited = self.unlimited.filter(|unlimited| !replaced.contains(unlimited));
        }
    }
}

/// A check that has not been made yet, of no limit in particular.
fn new_check(part: usize, rule: &Rule, cost: u64) -> Checked {
    let decision = Decision {
        outcome: Outcome::Allowed,
        granted: 0,
        limit: 0,
        remaining: 0,
        debt: 0,
        reset_after: Duration::ZERO,
    };
    Checked {
        part,
        decision,
        cost,
        is_shadow: rule.over == Over::Shadow,
        is_degraded: false,
        shared: rule.shared,
        is_open: false,
        is_queued: matches!(rule.over, Over::Queue { .. }),
        is_quota_mode: rule.quota_mode,
        namespace: 0,
        rule: 0,
        limit: 0,
        client: 0,
    }
}
