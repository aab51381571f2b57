//! The rules in force, with what each of them has done so far.

use crate::stats::{RuleSnapshot, RuleStats};
use std::collections::HashMap;
use std::sync::Arc;
use tollgate_limit::Time;
use tollgate_rules::model::NoMatch;
use tollgate_rules::{Compiled, RuleSet};

/// One version of the rules.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) version: u64,
    pub(super) compiled: Compiled,
    /// What becomes of requests of namespaces that nobody has rules for.
    pub(super) unknown: NoMatch,
    /// By the numbers of namespaces and rules.
    stats: Vec<Vec<Arc<RuleStats>>>,
}

impl Rules {
    /// Rules of the same name go on counting where they were.
    pub(super) fn new(set: RuleSet, before: Option<&Rules>, unknown: NoMatch, now: Time) -> Rules {
        let compiled = Compiled::new(set, before.map(|before| &before.compiled), now);
        let known: HashMap<(&str, &str), &Arc<RuleStats>> = before.into_iter().flat_map(Rules::each).collect();
        let namespaces = compiled.namespaces().iter().map(|namespace| {
            let name = &*namespace.model().name;
            let stats = |rule: &str| known.get(&(name, rule)).map_or_else(Arc::default, |stats| Arc::clone(stats));
            namespace.rules().iter().map(|rule| stats(&rule.rule().name)).collect()
        });
        let stats = namespaces.collect();
        Rules { version: before.map_or(1, |before| before.version + 1), compiled, unknown, stats }
    }

    pub(super) fn stats(&self, namespace: u32, rule: u32) -> Option<&RuleStats> {
        self.stats.get(namespace as usize)?.get(rule as usize).map(|stats| &**stats)
    }

    fn each(&self) -> impl Iterator<Item = ((&str, &str), &Arc<RuleStats>)> {
        self.compiled.namespaces().iter().zip(&self.stats).flat_map(|(namespace, stats)| {
            let rules = namespace.rules().iter().zip(stats);
            rules.map(|(rule, stats)| ((&*namespace.model().name, &*rule.rule().name), stats))
        })
    }

    pub(super) fn snapshot(&self) -> Vec<(String, String, RuleSnapshot)> {
        self.each()
            .map(|((namespace, rule), stats)| (namespace.to_owned(), rule.to_owned(), stats.snapshot()))
            .collect()
    }
}
