//! What a decision adds to the statistics of rules.

use super::deciding::{Plan, has_less_left};
use super::verdict::Checked;
use crate::stats::{KeyName, Use};
use std::fmt::Write;
use tollgate_limit::Outcome;
use tollgate_rules::Request;
use tollgate_rules::identity::Key;

impl Plan {
    /// Adds the decision to the statistics of every rule that had a part in it.
    #[inline]
    pub(super) fn count(&self, refused: bool, parts: &[Request<'_>]) {
        let mut rest = self.checks.as_slice();
        while let Some(first) = rest.first() {
            let same = |check: &&Checked| {
                (check.part, check.rule, check.namespace) == (first.part, first.rule, first.namespace)
            };
            let (group, after) = rest.split_at(rest.iter().take_while(same).count());
            self.count_rule(first, group, refused, parts);
            rest = after;
        }
        if !refused {
            for (namespace, rule, client) in &self.free {
                if let Some(stats) = self.rules.stats(*namespace, *rule) {
                    stats.allowed(*client, None);
                }
            }
        }
    }

    /// Adds to the statistics of every rule that was decided without those whom it is shared with.
    #[cold]
    pub(super) fn count_degraded(&self) {
        let of = |check: &Checked| (check.part, check.namespace, check.rule);
        let degraded = self.checks.iter().enumerate().filter(|(_, check)| check.is_degraded);
        for (index, check) in degraded {
            // Limits of one rule are one after the other, and the rule is counted once.
            let is_known = self.checks.iter().take(index).any(|other| other.is_degraded && of(other) == of(check));
            if !is_known && let Some(stats) = self.rules.stats(check.namespace, check.rule) {
                stats.degraded();
            }
        }
    }

    /// `group` is what the limits of one rule said.
    fn count_rule(&self, first: &Checked, group: &[Checked], refused: bool, parts: &[Request<'_>]) {
        let Some(stats) = self.rules.stats(first.namespace, first.rule) else { return };
        // Mostly there is one limit, and it has room.
        if let [Checked { decision, client, .. }] = group
            && decision.outcome == Outcome::Allowed
            && !refused
        {
            return stats.allowed(*client, Some(Use::after(decision)));
        }
        let name = |name: &mut KeyName| self.name_key(first, parts, name);
        let over = group.iter().any(|check| !check.decision.is_allowed());
        let waits = group.iter().any(|check| !check.decision.wait().is_zero());
        match (over, first.is_shadow) {
            // In quota mode, too, a limit that is used up may have no say.
            (true, is_shadow) if is_shadow || !refused => stats.shadowed(first.client, name),
            (true, _) => stats.refused(first.client, name),
            // It had room for a request that others refused.
            (false, _) if refused => {}
            (false, _) if waits => stats.waited(first.client),
            (false, _) => {
                let decisions = group.iter().map(|check| &check.decision);
                let tightest = decisions.reduce(|one, other| if has_less_left(other, one) { other } else { one });
                stats.allowed(first.client, tightest.map(Use::after));
            }
        }
    }

    /// Whom a check is about, for people.
    fn name_key(&self, check: &Checked, parts: &[Request<'_>], name: &mut KeyName) {
        let named = self.rules.compiled.get(check.namespace).zip(parts.get(check.part));
        if let Some((namespace, request)) = named
            && let Some(rule) = namespace.rule(check.rule)
        {
            let attributes = namespace.attributes(request);
            // A name that does not fit is cut.
            let _ = write!(name, "{}", Key::new(&rule.key(&attributes)));
        }
    }
}
