//! Which rule a descriptor leads to, as envoyproxy/ratelimit finds it: entry by entry, never back.

use crate::attributes::Digits;
use crate::model::Entry;
use crate::pattern::Glob;
use crate::request::Value;
use smallvec::SmallVec;
use std::collections::HashMap;

/// A tree of entries. Siblings are told apart by `key` or `key_value`.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    root: Step,
}

#[derive(Debug, Default)]
struct Step {
    rule: Option<u32>,
    exact: HashMap<Box<str>, Step, foldhash::fast::RandomState>,
    /// In the order of the file.
    wildcards: Vec<(Glob, Step)>,
    /// Where each of them is.
    positions: HashMap<Box<str>, usize, foldhash::fast::RandomState>,
}

impl Descriptors {
    /// Adds a rule. The first one of the same entries stays.
    pub(crate) fn add(&mut self, entries: &[Entry], rule: u32) {
        let step = entries.iter().fold(&mut self.root, |step, entry| step.next_or_new(&composite(entry)));
        step.rule.get_or_insert(rule);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.root.exact.is_empty() && self.root.wildcards.is_empty()
    }

    /// The rule of exactly these entries in this order.
    pub(crate) fn find(&self, entries: &[(&str, Value<'_>)]) -> Option<u32> {
        let mut step = &self.root;
        for (key, value) in entries {
            step = step.next(key, *value)?;
        }
        step.rule
    }
}

/// What an entry is known by among its siblings.
pub(crate) fn composite(entry: &Entry) -> String {
    match &entry.value {
        Some(value) => format!("{}_{value}", entry.key),
        None => entry.key.to_string(),
    }
}

impl Step {
    fn next_or_new(&mut self, composite: &str) -> &mut Step {
        if !composite.contains('*') {
            return self.exact.entry(composite.into()).or_default();
        }
        let position = *self.positions.entry(composite.into()).or_insert_with(|| {
            self.wildcards.push((Glob::new(composite), Step::default()));
            self.wildcards.len() - 1
        });
        match self.wildcards.get_mut(position) {
            Some((_, step)) => step,
            // It was found or put there just before.
            None => unreachable!(),
        }
    }

    /// The exact value first (also one that is spelt like a wildcard), then wildcards in their order, then any value.
    fn next(&self, key: &str, value: Value<'_>) -> Option<&Step> {
        let mut composite: SmallVec<[u8; 128]> = SmallVec::from_slice(key.as_bytes());
        composite.push(b'_');
        append(&mut composite, value);
        let composite = std::str::from_utf8(&composite).unwrap_or_default();
        let wildcard = || self.wildcards.iter().find(|(glob, _)| glob.matches(composite)).map(|(_, step)| step);
        let spelt_alike = || self.wildcards.get(*self.positions.get(composite)?).map(|(_, step)| step);
        self.exact.get(composite).or_else(spelt_alike).or_else(wildcard).or_else(|| self.exact.get(key))
    }
}

fn append(out: &mut SmallVec<[u8; 128]>, value: Value<'_>) {
    match value {
        Value::Text(text) => out.extend_from_slice(text.as_bytes()),
        Value::Number(number) => out.extend_from_slice(Digits::new(number).as_str().as_bytes()),
        // Descriptors are made of texts; only a caller of the library has anything else.
        Value::Address(address) => out.extend_from_slice(address.to_string().as_bytes()),
    }
}
