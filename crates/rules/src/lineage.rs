//! Which buckets belong to which limits, from one set of rules to the next.
//!
//! The buckets of a limit are known by what the limit is: the namespace, which requests, whose key, how much. So
//! a rule can be renamed or moved, and a host restarted, without anybody's bucket being another one. A limit that
//! changes has new buckets; it is told its predecessor's, and takes over what was spent there client by client,
//! when each next asks.

use crate::compiled::{CompiledLimit, CompiledNamespace, CompiledRule};
use crate::model::{Amount, Rule, Selector};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tollgate_limit::{Limit, Time};

/// Predecessors beyond these are forgotten: nobody changes a limit that often within its memory.
const MOST_PREDECESSORS: usize = 8;

/// A limit that another one has replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct Predecessor {
    /// What its buckets are known by.
    pub id: u64,
    /// How they are read.
    pub limit: Limit,
    /// When they say nothing more.
    pub until: Time,
}

/// What one set of rules inherits from another.
pub(crate) struct Lineage<'a> {
    namespace: &'a str,
    before: Option<&'a CompiledNamespace>,
    now: Time,
    /// How often the same limit was met.
    met: HashMap<u64, u64>,
}

impl<'a> Lineage<'a> {
    pub(crate) fn new(namespace: &'a str, before: Option<&'a CompiledNamespace>, now: Time) -> Lineage<'a> {
        Lineage { namespace, before, now, met: HashMap::new() }
    }

    /// What the buckets of a limit are known by. The same limit on the same clients for a second time has its
    /// own, or a request would pay twice into one bucket.
    pub(crate) fn id(&mut self, population: Population, whose: &str, amount: &Amount) -> u64 {
        let id = hash(&[self.namespace, &population.0.to_string(), whose, &amount.to_string()]);
        let times = self.met.entry(id).or_default();
        *times += 1;
        if *times == 1 { id } else { hash(&[&id.to_string(), &times.to_string()]) }
    }

    /// Tells new limits which ones they replace: those of the rule of the same name, or of the rule that counted
    /// the same clients.
    pub(crate) fn inherit(&self, rules: &[CompiledRule], limits: &mut [CompiledLimit]) {
        let Some(before) = self.before else { return };
        let by_name: HashMap<&str, &CompiledRule> =
            before.rules().iter().map(|rule| (&*rule.rule().name, rule)).collect();
        let by_population: HashMap<Population, &CompiledRule> =
            before.rules().iter().map(|rule| (rule.population(), rule)).collect();
        let known: HashMap<u64, &CompiledLimit> = before.limits().iter().map(|limit| (limit.id, limit)).collect();
        let living: HashSet<u64> = limits.iter().map(|limit| limit.id).collect();
        for rule in rules {
            let same_key = |old: &&&CompiledRule| old.rule().key == rule.rule().key;
            let old = by_name.get(&*rule.rule().name).filter(same_key);
            let old = old.or_else(|| by_population.get(&rule.population()));
            let numbers = old.into_iter().flat_map(|old| old.all_limits());
            let mut ended: Vec<&CompiledLimit> =
                numbers.filter_map(|number| before.limit(number)).filter(|limit| !living.contains(&limit.id)).collect();
            for number in rule.all_limits() {
                let Some(limit) = limits.get_mut(number as usize) else { continue };
                limit.predecessors = match known.get(&limit.id) {
                    Some(same) => self.still_remembered(&same.predecessors),
                    None => self.succeed(limit, &mut ended),
                };
            }
        }
    }

    /// The ended limit that a new one replaces: the one of the most similar period.
    fn succeed(&self, limit: &CompiledLimit, ended: &mut Vec<&CompiledLimit>) -> Vec<Predecessor> {
        let distance = |old: &&CompiledLimit| match (period(&old.amount), period(&limit.amount)) {
            (Some(old), Some(new)) => old.abs_diff(new),
            _ => Duration::MAX,
        };
        let closest = ended.iter().enumerate().min_by_key(|(_, old)| distance(old)).map(|(index, _)| index);
        let Some(old) = closest.map(|index| ended.remove(index)) else { return Vec::new() };
        let mut inherited = self.still_remembered(&old.predecessors);
        inherited.retain(|predecessor| predecessor.id != limit.id);
        if let Amount::Limit { quota, limit: old_limit, .. } = &old.amount {
            let refill = quota.period().as_secs_f64() * (quota.burst() as f64 / quota.count() as f64).max(2.0);
            // Bookings and debts reach up to an hour further.
            let memory =
                Duration::try_from_secs_f64(refill).unwrap_or(Duration::MAX).saturating_add(Duration::from_secs(3600));
            inherited.insert(0, Predecessor { id: old.id, limit: *old_limit, until: self.now + memory });
        }
        inherited.truncate(MOST_PREDECESSORS);
        inherited
    }

    fn still_remembered(&self, predecessors: &[Predecessor]) -> Vec<Predecessor> {
        predecessors.iter().filter(|predecessor| predecessor.until > self.now).cloned().collect()
    }
}

fn period(amount: &Amount) -> Option<Duration> {
    match amount {
        Amount::Banned { .. } => None,
        Amount::Limit { quota, .. } => Some(quota.period()),
    }
}

/// Who is counted by a rule: which requests, and what tells their clients apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Population(u64);

impl Population {
    pub(crate) fn of(rule: &Rule) -> Population {
        let text = match &rule.selector {
            Selector::Match(conditions) => {
                let mut conditions: Vec<String> = conditions.iter().map(|condition| format!("{condition:?}")).collect();
                conditions.sort_unstable();
                format!("{conditions:?} {:?}", rule.key)
            }
            Selector::Descriptor(entries) => format!("{entries:?}"),
        };
        Population(hash(&[&text]))
    }
}

/// The same on every host and in every version.
fn hash(parts: &[&str]) -> u64 {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut first = [0; 8];
    first.iter_mut().zip(hasher.finalize()).for_each(|(to, from)| *to = from);
    u64::from_le_bytes(first)
}
