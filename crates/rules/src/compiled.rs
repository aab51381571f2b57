//! Rules made ready to be asked: an immutable set that is swapped as a whole.

use crate::attributes::{Attribute, Attributes, Names};
use crate::descriptors::Descriptors;
use crate::dialect::Dialect;
use crate::identity::{Part, parse_address};
use crate::index::{Candidates, Index};
use crate::lineage::{Lineage, Population, Predecessor};
use crate::model::{Amount, Condition, Cost, LimitRule, Limits, Namespace, Rule, RuleSet, Selector, Then};
use crate::overrides::{Overrides, OwnedPart, Owner};
use crate::request::Request;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use tollgate_limit::Time;

type ByName<T> = HashMap<Box<str>, T, foldhash::fast::RandomState>;

/// The parts of a client's key.
pub type KeyParts<'a> = SmallVec<[Part<'a>; 4]>;

/// A set of rules, ready to be asked.
#[derive(Debug, Default)]
pub struct Compiled {
    namespaces: Vec<CompiledNamespace>,
    names: Names,
}

/// The rules of one namespace, ready to be asked.
#[derive(Debug)]
pub struct CompiledNamespace {
    model: Namespace,
    names: Names,
    index: Index,
    descriptors: Descriptors,
    rules: Vec<CompiledRule>,
    /// Those of all rules, tiers and overrides.
    limits: Vec<CompiledLimit>,
}

/// One rule, ready to be asked.
#[derive(Debug)]
pub struct CompiledRule {
    /// What it says. Its conditions, limits, tiers and overrides are compiled below.
    rule: Rule,
    conditions: Vec<(u32, Condition)>,
    /// The attribute whose condition holds if the index finds the rule at all.
    proven: Option<u32>,
    key: KeySource,
    limits: CompiledLimits,
    /// The attribute that says it, and what each of its values means.
    tiers: Option<(u32, ByName<CompiledLimits>)>,
    overrides: Overrides,
    cost: CostSource,
    replaces: Vec<u32>,
    dialect: Dialect,
    population: Population,
}

/// Where the parts of a key come from.
#[derive(Debug)]
enum KeySource {
    Attributes(Vec<u32>),
    /// The entries at these positions.
    Entries(Vec<usize>),
}

#[derive(Debug)]
enum CostSource {
    Asked,
    Fixed(u64),
    Attribute { number: u32, default: u64, most: u64 },
}

/// How much is allowed, and where it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompiledLimits {
    /// Everything.
    Unlimited,
    /// All of these, by their numbers in the namespace.
    Each(Range<u32>),
}

/// One limit, and where it is counted.
#[derive(Debug)]
pub struct CompiledLimit {
    /// What its buckets are known by, on every host and after every restart.
    pub id: u64,
    /// What clients are told that it is called.
    pub name: Box<str>,
    /// How much.
    pub amount: Amount,
    /// Which clients of the rule it is for: all, a tier's, or a single one.
    pub(crate) whose: Box<str>,
    /// Limits that it replaces, whose buckets hold what was spent.
    pub predecessors: Vec<Predecessor>,
}

impl Compiled {
    /// Makes rules ready. Limits that differ from those of the set before are told which ones they replace, so
    /// that what was spent is kept.
    pub fn new(set: RuleSet, before: Option<&Compiled>, now: Time) -> Compiled {
        let compile = |namespace: Namespace| {
            let before = before.and_then(|before| before.namespace(&namespace.name));
            CompiledNamespace::new(namespace, before, now)
        };
        let namespaces: Vec<CompiledNamespace> = set.namespaces.into_iter().map(compile).collect();
        let mut names = Names::default();
        for namespace in &namespaces {
            names.number(&namespace.model.name);
        }
        Compiled { namespaces, names }
    }

    /// The number of a namespace.
    #[inline]
    pub fn number(&self, name: &str) -> Option<u32> {
        self.names.get(name)
    }

    /// The namespace of this name.
    pub fn namespace(&self, name: &str) -> Option<&CompiledNamespace> {
        self.get(self.number(name)?)
    }

    /// The namespace of this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&CompiledNamespace> {
        self.namespaces.get(number as usize)
    }

    /// All of them, by their numbers.
    pub fn namespaces(&self) -> &[CompiledNamespace] {
        &self.namespaces
    }
}

impl CompiledNamespace {
    fn new(mut model: Namespace, before: Option<&CompiledNamespace>, now: Time) -> CompiledNamespace {
        let mut written = std::mem::take(&mut model.rules);
        written.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
        let mut names = Names::default();
        let mut lineage = Lineage::new(&model.name, before, now);
        // Who replaces nobody need not know where the others are.
        let has_replacing = written.iter().any(|rule| !rule.replaces.is_empty());
        let named = (0..).zip(&written).filter(|_| has_replacing);
        let numbers: ByName<u32> = named.map(|(number, rule)| (rule.name.clone(), number)).collect();
        let mut limits = Vec::new();
        let mut compiler = Compiler {
            namespace: &model,
            names: &mut names,
            lineage: &mut lineage,
            numbers: &numbers,
            limits: &mut limits,
        };
        let mut rules: Vec<CompiledRule> = written.into_iter().map(|rule| compiler.rule(rule)).collect();
        lineage.inherit(&rules, &mut limits);
        let mut descriptors = Descriptors::default();
        for (number, rule) in (0..).zip(&rules) {
            if let Selector::Descriptor(entries) = &rule.rule.selector {
                descriptors.add(entries, number);
            }
        }
        let (index, proven) = Index::new(rules.iter().map(CompiledRule::filed_by), names.len());
        rules.iter_mut().zip(proven).for_each(|(rule, proven)| rule.proven = proven);
        CompiledNamespace { model, names, index, descriptors, rules, limits }
    }

    /// What it says about everything but its rules.
    pub fn model(&self) -> &Namespace {
        &self.model
    }

    /// The rules, in the order in which they are looked at.
    pub fn rules(&self) -> &[CompiledRule] {
        &self.rules
    }

    /// A rule by its number.
    #[inline]
    pub fn rule(&self, number: u32) -> Option<&CompiledRule> {
        self.rules.get(number as usize)
    }

    /// All limits of its rules, by their numbers.
    pub fn limits(&self) -> &[CompiledLimit] {
        &self.limits
    }

    /// A limit by its number.
    #[inline]
    pub fn limit(&self, number: u32) -> Option<&CompiledLimit> {
        self.limits.get(number as usize)
    }

    /// The names of the attributes that some rule mentions, in no order. Nothing else of a request is looked at, but
    /// by rules for descriptors.
    pub fn mentioned(&self) -> impl Iterator<Item = &str> {
        self.names.iter()
    }

    /// What the rules know of a request.
    pub fn attributes<'a>(&'a self, request: &Request<'a>) -> Attributes<'a> {
        let mut attributes = Attributes::new(request);
        self.resolve(&mut attributes);
        attributes
    }

    /// Finds out what the rules know of a request.
    #[inline]
    pub fn resolve<'a>(&'a self, attributes: &mut Attributes<'a>) {
        attributes.resolve(&self.names, &self.model.identity);
        if !self.descriptors.is_empty() {
            attributes.write_digits();
        }
    }

    /// Calls `each` with the number of every rule that applies, in order.
    #[inline]
    pub fn each_match(&self, attributes: &Attributes<'_>, mut each: impl FnMut(u32)) {
        let mut candidates = Candidates::new();
        let descriptor = self.candidates(attributes, &mut candidates);
        // By reference: as an iterator of its own it would be copied first.
        for &number in &candidates {
            let Some(rule) = self.rule(number) else { continue };
            if !rule.applies(attributes, descriptor == Some(number)) {
                continue;
            }
            each(number);
            if rule.rule.then == Then::Stop {
                break;
            }
        }
    }

    /// Finds the rules that may apply, and the one that the descriptor leads to.
    #[inline]
    fn candidates(&self, attributes: &Attributes<'_>, candidates: &mut Candidates) -> Option<u32> {
        self.index.candidates(attributes, candidates);
        if self.descriptors.is_empty() {
            return None;
        }
        let found = self.descriptors.find(attributes.entries)?;
        let position = candidates.partition_point(|number| *number < found);
        candidates.insert(position, found);
        Some(found)
    }

    /// Why a rule applies to a request or not, looked at by itself.
    pub fn explain(&self, attributes: &Attributes<'_>, rule: &CompiledRule) -> Result<(), String> {
        match &rule.rule.selector {
            Selector::Descriptor(_) => {
                let found = self.descriptors.find(attributes.entries).and_then(|number| self.rule(number));
                match found {
                    Some(found) if std::ptr::eq(found, rule) => Ok(()),
                    Some(found) => Err(format!("these entries lead to `{}`", found.rule.name)),
                    None => Err("these entries lead to no rule".to_owned()),
                }
            }
            Selector::Match(written) => {
                let failed = rule
                    .conditions
                    .iter()
                    .zip(written)
                    .find(|((number, condition), _)| !satisfies(attributes, *number, condition));
                let Some(((number, condition), (name, _))) = failed else { return Ok(()) };
                Err(complain(name, condition, attributes.get(*number).map(Attribute::part)))
            }
        }
    }
}

fn complain(name: &str, condition: &Condition, value: Option<Part<'_>>) -> String {
    let parts = [value.unwrap_or(Part::Absent)];
    let value = crate::identity::Key::new(&parts);
    let list = |patterns: &[crate::Pattern]| {
        let mut texts: Vec<String> = patterns.iter().take(4).map(ToString::to_string).collect();
        if patterns.len() > 4 {
            texts.push("…".to_owned());
        }
        texts.join(", ")
    };
    match condition {
        Condition::AnyOf(patterns) => format!("{name} is {value}, not {}", list(patterns)),
        Condition::NoneOf(patterns) => format!("{name} is {value}, one of {}", list(patterns)),
        Condition::Present => format!("{name} is absent"),
        Condition::Absent => format!("{name} is {value}, not absent"),
    }
}

#[inline]
fn satisfies(attributes: &Attributes<'_>, number: u32, condition: &Condition) -> bool {
    let attribute = attributes.get(number);
    let looks_like = |patterns: &[crate::Pattern]| {
        attribute.is_some_and(|attribute| {
            patterns.iter().any(|pattern| match pattern {
                crate::Pattern::Network(network) => attribute.ip().is_some_and(|address| network.contains(address)),
                pattern => attribute.text().is_some_and(|text| pattern.matches(text, None)),
            })
        })
    };
    match condition {
        Condition::AnyOf(patterns) => looks_like(patterns),
        Condition::NoneOf(patterns) => !looks_like(patterns),
        Condition::Present => attribute.is_some(),
        Condition::Absent => attribute.is_none(),
    }
}

impl CompiledRule {
    /// What it says, but for its limits, tiers and overrides: those are compiled away.
    #[inline]
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Which headers tell clients about it.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(crate) fn population(&self) -> Population {
        self.population
    }

    /// The rules that do not apply where this one does.
    pub fn replaces(&self) -> &[u32] {
        &self.replaces
    }

    /// Descriptors are found by themselves.
    fn filed_by(&self) -> &[(u32, Condition)] {
        // A condition that no request satisfies: an attribute that has no number.
        static NEVER: std::sync::LazyLock<[(u32, Condition); 1]> =
            std::sync::LazyLock::new(|| [(u32::MAX, Condition::AnyOf(vec![crate::Pattern::Exact("".into())]))]);
        match self.rule.selector {
            Selector::Match(_) => &self.conditions,
            Selector::Descriptor(_) => &*NEVER,
        }
    }

    #[inline]
    fn applies(&self, attributes: &Attributes<'_>, found_by_descriptor: bool) -> bool {
        match self.rule.selector {
            Selector::Descriptor(_) => found_by_descriptor,
            Selector::Match(_) => {
                let doubtful = self.conditions.iter().filter(|(number, _)| Some(*number) != self.proven);
                doubtful.into_iter().all(|(number, condition)| satisfies(attributes, *number, condition))
            }
        }
    }

    /// What a request costs.
    #[inline]
    pub fn cost(&self, asked: u64, attributes: &Attributes<'_>) -> u64 {
        match self.cost {
            CostSource::Asked => asked,
            // Who only asks pays nothing.
            _ if asked == 0 => 0,
            CostSource::Fixed(cost) => cost,
            CostSource::Attribute { number, default, most } => match attributes.get(number) {
                None => default,
                // What is no number is not cheaper than what is.
                Some(attribute) => attribute.number().unwrap_or(most).min(most),
            },
        }
    }

    /// Who shares a bucket with this request. Whoever lacks an attribute shares it with all others who do.
    #[inline]
    pub fn key<'a>(&self, attributes: &'a Attributes<'_>) -> KeyParts<'a> {
        match &self.key {
            KeySource::Attributes(numbers) => {
                numbers.iter().map(|number| attributes.get(*number).map_or(Part::Absent, Attribute::part)).collect()
            }
            KeySource::Entries(positions) => {
                positions.iter().map(|position| entry_part(attributes, *position)).collect()
            }
        }
    }

    /// What [`key`](Self::key) says, to be hashed: the same as its [`Key`](crate::identity::Key), without being written down first.
    #[inline]
    pub fn client<'a, 'r>(&'a self, attributes: &'a Attributes<'r>) -> impl Hash + use<'a, 'r> {
        Client { key: &self.key, attributes }
    }

    /// The limits that apply to a client: its own, its tier's, or those for everybody.
    #[inline]
    pub fn limits(&self, attributes: &Attributes<'_>) -> &CompiledLimits {
        if !self.overrides.is_empty()
            && let Some(limits) = self.overrides.get(&self.key(attributes))
        {
            return limits;
        }
        if let Some((number, tiers)) = &self.tiers
            && let Some(limits) = attributes.get(*number).and_then(|tier| tiers.get(tier.text()?))
        {
            return limits;
        }
        &self.limits
    }

    /// The numbers of all limits that it may apply, for whomever.
    pub fn all_limits(&self) -> impl Iterator<Item = u32> {
        let tiers = self.tiers.iter().flat_map(|(_, tiers)| tiers.values());
        std::iter::once(&self.limits).chain(tiers).chain(self.overrides.iter()).flat_map(CompiledLimits::numbers)
    }
}

/// The key of a request.
struct Client<'a, 'r> {
    key: &'a KeySource,
    attributes: &'a Attributes<'r>,
}

impl Hash for Client<'_, '_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.key {
            KeySource::Attributes(numbers) => {
                state.write_usize(numbers.len());
                for number in numbers {
                    self.attributes.get(*number).map_or(Part::Absent, Attribute::part).hash(state);
                }
            }
            KeySource::Entries(positions) => {
                state.write_usize(positions.len());
                positions.iter().for_each(|position| entry_part(self.attributes, *position).hash(state));
            }
        }
    }
}

fn entry_part<'a>(attributes: &'a Attributes<'_>, position: usize) -> Part<'a> {
    match attributes.entries.get(position) {
        None => Part::Absent,
        Some((_, crate::Value::Text(text))) => Part::Text(text),
        Some((_, crate::Value::Address(address))) => Part::Address(*address),
        Some((_, crate::Value::Number(_))) => attributes.digits(position).map_or(Part::Absent, Part::Text),
    }
}

impl CompiledLimits {
    /// The numbers of the limits, of which what is unlimited has none.
    pub fn numbers(&self) -> Range<u32> {
        match self {
            CompiledLimits::Unlimited => 0..0,
            CompiledLimits::Each(numbers) => numbers.clone(),
        }
    }
}

/// Compiles the rules of one namespace.
struct Compiler<'a, 'b> {
    namespace: &'a Namespace,
    names: &'a mut Names,
    lineage: &'a mut Lineage<'b>,
    numbers: &'a ByName<u32>,
    limits: &'a mut Vec<CompiledLimit>,
}

impl Compiler<'_, '_> {
    fn rule(&mut self, mut rule: Rule) -> CompiledRule {
        let conditions = match &rule.selector {
            Selector::Match(conditions) => {
                conditions.iter().map(|(name, c)| (self.names.number(name), c.clone())).collect()
            }
            Selector::Descriptor(_) => Vec::new(),
        };
        let key = match &rule.selector {
            Selector::Match(_) => KeySource::Attributes(rule.key.iter().map(|name| self.names.number(name)).collect()),
            Selector::Descriptor(entries) => {
                let told_apart = entries.iter().enumerate().filter(|(_, entry)| !entry.shared);
                KeySource::Entries(told_apart.map(|(position, _)| position).collect())
            }
        };
        let population = Population::of(&rule);
        let limits = std::mem::replace(&mut rule.limits, Limits::Unlimited);
        let limits = self.limits(limits, &rule, population, "");
        let tiers = rule.tiers.take().map(|tiers| {
            let number = self.names.number(&tiers.attribute);
            let compile = |(value, limits): (Box<str>, Limits)| {
                let compiled = self.limits(limits, &rule, population, &format!("tier {value}"));
                (value, compiled)
            };
            (number, tiers.tiers.into_iter().map(compile).collect())
        });
        let mut overrides = Overrides::default();
        for one in std::mem::take(&mut rule.overrides) {
            let label = format!("client {:?}", one.client);
            let limits = self.limits(one.limits, &rule, population, &label);
            overrides.insert(self.client(&rule, one.client), limits);
        }
        let cost = match &rule.cost {
            Cost::Asked => CostSource::Asked,
            Cost::Fixed(cost) => CostSource::Fixed(*cost),
            Cost::Attribute { name, default, most } => {
                CostSource::Attribute { number: self.names.number(name), default: *default, most: *most }
            }
        };
        CompiledRule {
            conditions,
            proven: None,
            key,
            limits,
            tiers,
            overrides,
            cost,
            replaces: rule.replaces.iter().filter_map(|name| self.numbers.get(name).copied()).collect(),
            dialect: rule.headers.unwrap_or(self.namespace.headers),
            population,
            rule,
        }
    }

    fn limits(&mut self, limits: Limits, rule: &Rule, population: Population, whose: &str) -> CompiledLimits {
        let Limits::Each(limits) = limits else { return CompiledLimits::Unlimited };
        let start = self.limits.len();
        let single = limits.len() == 1;
        for (index, LimitRule { name, amount }) in limits.into_iter().enumerate() {
            let id = self.lineage.id((population, &rule.cost), whose, &amount);
            let numbered = || if single { rule.name.clone() } else { format!("{}.{}", rule.name, index + 1).into() };
            let name = name.unwrap_or_else(numbered);
            self.limits.push(CompiledLimit { id, name, amount, whose: whose.into(), predecessors: Vec::new() });
        }
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        CompiledLimits::Each(number(start)..number(self.limits.len()))
    }

    /// The values of an override in the form that requests have. The entries of descriptors are texts, whatever their
    /// names.
    fn client(&self, rule: &Rule, values: Vec<Box<str>>) -> Owner {
        let identity = &self.namespace.identity;
        let is_descriptor = matches!(rule.selector, Selector::Descriptor(_));
        let names = rule.key.iter().map(|name| if is_descriptor { "" } else { &**name });
        let part = |(name, value): (&str, Box<str>)| match (name, parse_address(&value)) {
            ("ip", Some(address)) => OwnedPart::Address(identity.grouping.group(address)),
            ("path", _) => OwnedPart::Text(identity.path.normalise(&value).into()),
            _ => OwnedPart::Text(value),
        };
        names.zip(values).map(part).collect()
    }
}
