//! Which buckets belong to which limits, from one set of rules to the next.
//!
//! The buckets of a limit are known by what the limit is: the namespace, which requests, whose key, how much. So
//! a rule can be renamed or moved, and a host restarted, without anybody's bucket being another one. A limit that
//! changes has new buckets; it is told its predecessor's, and takes over what was spent there client by client,
//! when each next asks.

use crate::compiled::{CompiledLimit, CompiledNamespace, CompiledRule};
use crate::model::{Amount, Condition, Cost, Rule, Selector};
use crate::pattern::Pattern;
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;
use std::hash::Hasher;
use std::time::Duration;
use tollgate_limit::{Limit, Time};

type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
type HashSet<K> = std::collections::HashSet<K, foldhash::fast::RandomState>;

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
        Lineage { namespace, before, now, met: HashMap::default() }
    }

    /// What the buckets of a limit are known by: also what is counted, so that a limit on requests and one on bytes can
    /// change places. The same limit on the same clients for a second time has its own, or a request would pay twice
    /// into one bucket.
    pub(crate) fn id(&mut self, (population, cost): (Population, &Cost), whose: &str, amount: &Amount) -> u64 {
        let mut id = Id::default();
        id.add(self.namespace).add_number(population.0).add(whose);
        match amount {
            Amount::Limit { text, .. } => id.add(text),
            Amount::Banned { .. } => id.add(&amount.to_string()),
        };
        if *cost != Cost::Asked {
            id.add(&format!("{cost:?}"));
        }
        let id = id.finish();
        let times = self.met.entry(id).or_default();
        *times += 1;
        if *times == 1 { id } else { Id::default().add_number(id).add_number(*times).finish() }
    }

    /// Tells new limits which ones they replace: those of the rule's [ancestor](ancestors).
    pub(crate) fn inherit(&self, rules: &[CompiledRule], limits: &mut [CompiledLimit]) {
        let Some(before) = self.before else { return };
        let known: HashMap<u64, &CompiledLimit> = before.limits().iter().map(|limit| (limit.id, limit)).collect();
        let living: HashSet<u64> = limits.iter().map(|limit| limit.id).collect();
        for (rule, old) in rules.iter().zip(ancestors(before.rules(), rules)) {
            let mut ended: Vec<&CompiledLimit> = in_order(old)
                .filter_map(|number| before.limit(number))
                .filter(|old| !living.contains(&old.id))
                .collect();
            for number in in_order(Some(rule)) {
                let Some(limit) = limits.get_mut(number as usize) else { continue };
                limit.predecessors = match known.get(&limit.id) {
                    Some(same) => self.still_remembered(&same.predecessors),
                    None => self.succeed(limit, &mut ended),
                };
            }
        }
    }

    /// The ended limit that a new one replaces: of those for the same clients, the one of the most similar period.
    fn succeed(&self, limit: &CompiledLimit, ended: &mut Vec<&CompiledLimit>) -> Vec<Predecessor> {
        let distance = |old: &CompiledLimit| match (period(&old.amount), period(&limit.amount)) {
            (Some(old), Some(new)) => old.abs_diff(new),
            _ => Duration::MAX,
        };
        let same = ended.iter().enumerate().filter(|(_, old)| old.whose == limit.whose);
        let closest = same.min_by_key(|(_, old)| distance(old)).map(|(index, _)| index);
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

/// Which rule of the set before each new one takes the place of: the one that counted the same clients, at best under
/// the same name; or else the one of the same name, if it told clients apart alike. None has two heirs.
fn ancestors<'a>(before: &'a [CompiledRule], rules: &[CompiledRule]) -> Vec<Option<&'a CompiledRule>> {
    let mut by_name: HashMap<&str, &CompiledRule> = before.iter().map(|old| (&*old.rule().name, old)).collect();
    let mut by_population: HashMap<Population, Vec<&CompiledRule>> = HashMap::default();
    let mut found = vec![None; rules.len()];
    for (found, rule) in found.iter_mut().zip(rules) {
        *found = by_name.get(&*rule.rule().name).copied().filter(|old| old.population() == rule.population());
        found.map(|old| by_name.remove(&*old.rule().name));
    }
    // Those that have no heir yet.
    before.iter().rev().filter(|old| by_name.contains_key(&*old.rule().name)).for_each(|old| {
        by_population.entry(old.population()).or_default().push(old);
    });
    for (found, rule) in found.iter_mut().zip(rules).filter(|(found, _)| found.is_none()) {
        *found = by_population.get_mut(&rule.population()).and_then(Vec::pop);
        found.map(|old| by_name.remove(&*old.rule().name));
    }
    for (found, rule) in found.iter_mut().zip(rules).filter(|(found, _)| found.is_none()) {
        *found = by_name.get(&*rule.rule().name).copied().filter(|old| old.rule().key == rule.rule().key);
    }
    found
}

/// The numbers of all limits of a rule, as they are written.
fn in_order(rule: Option<&CompiledRule>) -> impl Iterator<Item = u32> {
    let mut numbers: SmallVec<[u32; 8]> = rule.into_iter().flat_map(CompiledRule::all_limits).collect();
    numbers.sort_unstable();
    numbers.into_iter()
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
        let mut id = Id::default();
        match &rule.selector {
            Selector::Match(conditions) => {
                let mut conditions: Vec<_> = conditions.iter().collect();
                conditions.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
                conditions.into_iter().for_each(|(name, condition)| {
                    add_condition(id.add(name), condition);
                });
                rule.key.iter().for_each(|name| {
                    id.add(name);
                });
            }
            Selector::Descriptor(entries) => entries.iter().for_each(|entry| {
                let value = entry.value.as_deref();
                id.add(&entry.key).add(value.unwrap_or_default());
                id.add_number(u64::from(value.is_some()) << 1 | u64::from(entry.shared));
            }),
        }
        Population(id.finish())
    }
}

fn add_condition(id: &mut Id, condition: &Condition) {
    let (kind, patterns) = match condition {
        Condition::AnyOf(patterns) => (0, patterns.as_slice()),
        Condition::NoneOf(patterns) => (1, patterns.as_slice()),
        Condition::Present => (2, [].as_slice()),
        Condition::Absent => (3, [].as_slice()),
    };
    id.add_number(kind).add_number(patterns.len() as u64);
    for pattern in patterns {
        match pattern {
            Pattern::Exact(text) => id.add_number(0).add(text),
            Pattern::Glob(glob) => id.add_number(1).add(glob.text()),
            Pattern::Path(glob) => id.add_number(2).add(glob.text()),
            Pattern::Network(network) => id.add_number(3).add(&network.to_string()),
            Pattern::Regex(regex) => id.add_number(4).add(regex.text()),
        };
    }
}

/// A hash that is the same on every host and in every version.
struct Id(SipHasher13);

impl Default for Id {
    fn default() -> Id {
        Id(SipHasher13::new())
    }
}

impl Id {
    fn add(&mut self, text: &str) -> &mut Id {
        self.0.write(&(text.len() as u64).to_le_bytes());
        self.0.write(text.as_bytes());
        self
    }

    fn add_number(&mut self, number: u64) -> &mut Id {
        self.0.write(&number.to_le_bytes());
        self
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}
