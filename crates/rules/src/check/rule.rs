//! One rule.

use super::condition;
use super::fields::{Fields, list, name, named, number, shorten, text, truth, unknown};
use crate::Dialect;
use crate::limits;
use crate::mistake::{Place, Report};
use crate::model::{Condition, Cost, Entry, Identity, LimitRule, Limits, Over, Override, Rule, Selector, Tiers, names};
use crate::yaml::{Name, Node, Value};
use std::collections::HashMap;
use std::time::Duration;
use tollgate_limit::parse_duration;

pub(super) const FIELDS: [&str; 18] = [
    "name",
    "description",
    "match",
    "descriptor",
    "key",
    "limits",
    "tiers",
    "overrides",
    "cost",
    "priority",
    "then",
    "over",
    "on_failure",
    "shared",
    "headers",
    "replaces",
    "quota_mode",
    "metadata",
];
pub(super) const LIMIT_FIELDS: [&str; 2] = ["limit", "name"];
pub(super) const COST_FIELDS: [&str; 3] = ["attribute", "default", "max"];
pub(super) const OVERRIDE_FIELDS: [&str; 2] = ["client", "limits"];
pub(super) const ENTRY_FIELDS: [&str; 3] = ["key", "value", "shared"];

/// Attributes, limits, tiers or overrides of one rule.
const MOST_PARTS: usize = 1_000_000;

/// The longest that a request may be held.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

pub(super) fn read_all(nodes: &[Node], identity: &Identity, report: &mut Report<'_>) -> Vec<Rule> {
    let mut lines = HashMap::new();
    let mut rules = Vec::with_capacity(nodes.len());
    for node in nodes {
        let Some(rule) = read(node, identity, report) else { continue };
        if let Some(line) = lines.insert(rule.name.clone(), node.place.line) {
            let problem = format!("there are two rules called `{}`", rule.name);
            report.wrong(node.place, problem, format!("rename one of them; the other is in line {line}"));
        }
        rules.push((rule, node));
    }
    for (rule, node) in &rules {
        for replaced in rule.replaces.iter().filter(|name| !lines.contains_key(&***name)) {
            let known = lines.keys().map(|name| &**name);
            unknown(replaced, field_place(node, "replaces"), "rule", known, report);
        }
    }
    contradictions(&rules, report);
    rules.into_iter().map(|(rule, _)| rule).collect()
}

/// Rules that can never be reached because another one takes all of their requests.
fn contradictions(rules: &[(Rule, &Node)], report: &mut Report<'_>) {
    let mut stops: HashMap<String, &str> = HashMap::new();
    let mut order: Vec<_> = rules.iter().collect();
    order.sort_by_key(|(rule, _)| std::cmp::Reverse(rule.priority));
    for (rule, node) in order {
        let selector = format!("{:?}", rule.selector);
        if let Some(before) = stops.get(&selector) {
            let help = format!("`{before}` takes the same requests and says `then: stop`; change one of them");
            report.wrong(node.place, format!("`{}` can never apply", shorten(&rule.name)), help);
        }
        if rule.then == crate::model::Then::Stop {
            stops.entry(selector).or_insert(&rule.name);
        }
    }
}

fn read(node: &Node, identity: &Identity, report: &mut Report<'_>) -> Option<Rule> {
    let fields = Fields::new(node, "a rule", &FIELDS, report)?;
    let given = fields.required("name", "name it, as in `name: login-attempts`", report);
    let name = given.and_then(|node| name(node, "rule", report));
    let selector = selector(&fields, identity, report);
    let key = key(&fields, selector.as_ref(), report);
    let limits = default_limits(&fields, report);
    let tiers = fields.get("tiers", report).and_then(|node| tiers(node, report));
    let overrides = fields.get("overrides", report).map(|node| overrides(node, key.as_deref(), report));
    let rule = Rule {
        description: fields
            .get("description", report)
            .and_then(|node| text(node, "a description", report))
            .map(Box::from),
        metadata: fields.get("metadata", report).map(Node::to_json),
        cost: fields.get("cost", report).and_then(|node| cost(node, report)).unwrap_or(Cost::Asked),
        priority: fields
            .get("priority", report)
            .and_then(|node| number(node, i32::MIN..=i32::MAX, report))
            .unwrap_or(0),
        then: fields.get("then", report).and_then(|node| named(node, &names::THEN, report)).unwrap_or_default(),
        over: fields.get("over", report).and_then(|node| over(node, report)).unwrap_or(Over::DEFAULT),
        on_failure: fields
            .get("on_failure", report)
            .and_then(|node| named(node, &names::ON_FAILURE, report))
            .unwrap_or_default(),
        shared: fields.get("shared", report).and_then(|node| named(node, &names::SHARED, report)).unwrap_or_default(),
        headers: fields.get("headers", report).and_then(|node| named(node, &Dialect::NAMES, report)),
        replaces: replaces(&fields, name.as_deref(), report),
        quota_mode: fields.get("quota_mode", report).and_then(|node| truth(node, report)).unwrap_or(false),
        name: name?,
        selector: selector?,
        key: key?,
        limits: limits?,
        tiers,
        overrides: overrides.unwrap_or_default(),
    };
    Some(rule)
}

fn selector(fields: &Fields<'_>, identity: &Identity, report: &mut Report<'_>) -> Option<Selector> {
    match (fields.has("match"), fields.has("descriptor")) {
        (true, true) => {
            report.wrong(fields.place(), "a rule has a match or a descriptor, not both", "make two rules of it");
            None
        }
        (false, true) => descriptor(fields.get("descriptor", report)?, report).map(Selector::Descriptor),
        (false, false) => Some(Selector::Match(Vec::new())),
        (true, false) => conditions(fields.get("match", report)?, identity, report).map(Selector::Match),
    }
}

fn conditions(node: &Node, identity: &Identity, report: &mut Report<'_>) -> Option<Vec<(Box<str>, Condition)>> {
    let Some(conditions) = node.map() else {
        let problem = format!("a match is a map, not {}", node.kind());
        report.wrong(node.place, problem, "write `match: { path: \"/v1/**\" }`");
        return None;
    };
    let read = conditions.iter().filter_map(|(name, node)| {
        let attribute = attribute(&name.text, name.place, report)?;
        if let Value::Null = node.value {
            let help = "write a value, or `{ present: true }` for any";
            report.wrong(name.place, format!("`{attribute}` is blank"), help);
            return None;
        }
        Some((attribute.clone(), condition::read(&attribute, node, identity, report)?))
    });
    let read: Vec<_> = read.collect();
    (read.len() == conditions.len()).then_some(read)
}

/// The name of an attribute.
fn attribute(text: &str, place: Place, report: &mut Report<'_>) -> Option<Box<str>> {
    let node = Node { place, value: Value::Text(text.into(), false) };
    name(&node, "attribute", report)
}

fn descriptor(node: &Node, report: &mut Report<'_>) -> Option<Vec<Entry>> {
    let nodes = list(node, "the entries of a descriptor", report);
    let entries: Vec<_> = nodes.iter().filter_map(|node| entry(node, report)).collect();
    if nodes.is_empty() && node.list().is_some() {
        report.wrong(
            node.place,
            "a descriptor without entries",
            "write at least one, as in `[{ key: path, value: /login }]`",
        );
    }
    (!nodes.is_empty() && entries.len() == nodes.len()).then_some(entries)
}

fn entry(node: &Node, report: &mut Report<'_>) -> Option<Entry> {
    let fields = Fields::new(node, "an entry", &ENTRY_FIELDS, report)?;
    let key = fields.required("key", "write `{ key: path, value: /login }`", report)?;
    let value = fields.get("value", report).and_then(|node| text(node, "a value", report));
    let shared = fields.get("shared", report).and_then(|node| truth(node, report)).unwrap_or(false);
    if shared && !value.is_some_and(|value| value.contains('*')) {
        report.wrong(node.place, "only values with a `*` can be shared", "leave `shared` out");
        return None;
    }
    Some(Entry { key: name(key, "attribute", report)?, value: value.map(Box::from), shared })
}

/// Who shares a bucket. With a descriptor it follows from the entries.
fn key(fields: &Fields<'_>, selector: Option<&Selector>, report: &mut Report<'_>) -> Option<Vec<Box<str>>> {
    if let Some(Selector::Descriptor(entries)) = selector {
        if fields.has("key") {
            report.wrong(
                fields.place(),
                "a rule with a descriptor has no key",
                "leave it out: each value has its own bucket",
            );
        }
        let told_apart = entries.iter().filter(|entry| !entry.shared);
        return Some(told_apart.map(|entry| entry.key.clone()).collect());
    }
    let node = fields.required("key", "say who shares a bucket: `key: [ip]`, or `key: []` for all together", report)?;
    let nodes = list(node, "the attributes of a key", report);
    let mut key: Vec<Box<str>> = Vec::new();
    for node in nodes {
        let Some(attribute) = name(node, "attribute", report) else { continue };
        if key.contains(&attribute) {
            report.wrong(node.place, format!("`{attribute}` is in the key twice"), "leave one of them out");
        }
        key.push(attribute);
    }
    node.list().map(|_| key)
}

fn default_limits(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Limits> {
    let help = "say how much, as in `limits: [100 per second]`; or `limits: unlimited`";
    limits(fields.required("limits", help, report)?, report)
}

/// A list of limits, or `unlimited`.
fn limits(node: &Node, report: &mut Report<'_>) -> Option<Limits> {
    match &node.value {
        Value::Text(text, _) if &**text == "unlimited" => Some(Limits::Unlimited),
        Value::Text(text, _) => {
            let help = format!("write a list, as in `[{}]`, or `unlimited`", shorten(text));
            report.wrong(node.place, "limits are a list", help);
            None
        }
        Value::List(nodes) => {
            let limits: Vec<_> = nodes.iter().filter_map(|node| limit(node, report)).collect();
            duplicates(&limits, nodes, report);
            (limits.len() == nodes.len()).then_some(Limits::Each(limits))
        }
        _ => {
            report.wrong(node.place, format!("limits are a list, not {}", node.kind()), "write `[100 per second]`");
            None
        }
    }
}

fn duplicates(limits: &[LimitRule], nodes: &[Node], report: &mut Report<'_>) {
    for (index, (limit, node)) in limits.iter().zip(nodes).enumerate() {
        if limits.iter().take(index).any(|before| before.amount == limit.amount) {
            report.wrong(node.place, "this limit is there twice", "leave one of them out");
        }
    }
}

fn limit(node: &Node, report: &mut Report<'_>) -> Option<LimitRule> {
    let (node, limit_name) = match &node.value {
        Value::Map(_) => {
            let fields = Fields::new(node, "a limit", &LIMIT_FIELDS, report)?;
            let limit = fields.required("limit", "write `{ limit: 100 per second, name: burst }`", report)?;
            (limit, fields.get("name", report).and_then(|node| name(node, "limit", report)))
        }
        _ => (node, None),
    };
    let text = text(node, "a limit", report)?;
    match limits::parse(text) {
        Ok(amount) => Some(LimitRule { name: limit_name, amount }),
        Err(wrong) => {
            let columns = |bytes: usize| text.get(..bytes).map_or(bytes, |text| text.chars().count());
            let (start, end) = (columns(wrong.place.start), columns(wrong.place.end));
            let quotes = usize::from(node.plain().is_none());
            report.wrong(node.place.within(start + quotes, end.saturating_sub(start)), wrong.problem, wrong.help);
            None
        }
    }
}

/// `{ plan: { free: [...], gold: [...] } }`
fn tiers(node: &Node, report: &mut Report<'_>) -> Option<Tiers> {
    let help = "write `tiers: { plan: { free: [10 per second], gold: [1000 per second] } }`";
    let Some([(Name { text, place }, by_value)]) = node.map() else {
        report.wrong(node.place, "tiers are told apart by one attribute", help);
        return None;
    };
    let attribute = attribute(text, *place, report)?;
    let Some(tiers) = by_value.map().filter(|tiers| !tiers.is_empty() && tiers.len() <= MOST_PARTS) else {
        report.wrong(by_value.place, format!("which tiers does `{attribute}` know?"), help);
        return None;
    };
    let tiers = tiers.iter().filter_map(|(name, node)| Some((name.text.clone(), limits(node, report)?))).collect();
    Some(Tiers { attribute, tiers })
}

fn overrides(node: &Node, key: Option<&[Box<str>]>, report: &mut Report<'_>) -> Vec<Override> {
    let nodes = list(node, "overrides", report);
    let mut lines = HashMap::new();
    let mut overrides = Vec::new();
    for node in nodes {
        let Some(read) = one_override(node, key, report) else { continue };
        if let Some(line) = lines.insert(read.client.clone(), node.place.line) {
            report.wrong(node.place, "this client is overridden twice", format!("the other one is in line {line}"));
        }
        overrides.push(read);
    }
    overrides
}

fn one_override(node: &Node, key: Option<&[Box<str>]>, report: &mut Report<'_>) -> Option<Override> {
    let fields = Fields::new(node, "an override", &OVERRIDE_FIELDS, report)?;
    let client = fields.required("client", "write `{ client: { api_key: … }, limits: [...] }`", report);
    let given = fields.required("limits", "say how much this client may", report);
    let limits = given.and_then(|node| limits(node, report));
    let (client, key) = (client?, key?);
    let Some(values) = client.map() else {
        report.wrong(
            client.place,
            format!("a client is a map, not {}", client.kind()),
            "write `client: { ip: 192.0.2.1 }`",
        );
        return None;
    };
    let value = |attribute: &str| values.iter().find(|(name, _)| *name.text == *attribute)?.1.text().map(Box::from);
    let client_values: Option<Vec<Box<str>>> = key.iter().map(|attribute| value(attribute)).collect();
    if key.is_empty() || client_values.is_none() || values.len() != key.len() {
        let help = match key {
            [] => "leave it out: all clients of this rule share one bucket".to_owned(),
            key => format!("give a value for each attribute of the key: {}", key.join(", ")),
        };
        report.wrong(client.place, "this does not name one client of the rule", help);
        return None;
    }
    Some(Override { client: client_values?, limits: limits? })
}

/// A number, the name of an attribute, or a map.
fn cost(node: &Node, report: &mut Report<'_>) -> Option<Cost> {
    if node.map().is_some() {
        return cost_in_full(node, report);
    }
    let text = text(node, "a cost", report)?;
    if node.plain().is_some() && text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+') {
        return number(node, 0..=u64::MAX, report).map(Cost::Fixed);
    }
    Some(Cost::Attribute { name: attribute(text, node.place, report)?, default: 1, most: u64::MAX })
}

fn cost_in_full(node: &Node, report: &mut Report<'_>) -> Option<Cost> {
    let fields = Fields::new(node, "a cost", &COST_FIELDS, report)?;
    let attribute = fields.required("attribute", "write `{ attribute: bytes, max: 1000000 }`", report);
    let most = fields.get("max", report).and_then(|node| number(node, 1..=u64::MAX, report)).unwrap_or(u64::MAX);
    let default = fields.get("default", report).and_then(|node| number(node, 0..=most, report)).unwrap_or(1.min(most));
    Some(Cost::Attribute { name: name(attribute?, "attribute", report)?, default, most })
}

/// `reject`, `reject with 503`, `queue up to 2s`, `queue up to 2s and 100 deep`, `drop`, `shadow`.
fn over(node: &Node, report: &mut Report<'_>) -> Option<Over> {
    const FORMS: &str =
        "write `reject`, `reject with 503`, `queue up to 2s`, `queue up to 2s and 100 deep`, `drop` or `shadow`";
    let text = text(node, "what happens over the limit", report)?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let over = match *words.as_slice() {
        ["reject"] | ["reject", "with", "429"] => Some(Over::Reject(429)),
        ["reject", "with", "503"] => Some(Over::Reject(503)),
        ["drop"] => Some(Over::Drop),
        ["shadow"] => Some(Over::Shadow),
        ["queue", "up", "to", wait] => queue(wait, None),
        ["queue", "up", "to", wait, "and", depth, "deep"] => {
            depth.parse().ok().filter(|depth| *depth > 0).and_then(|depth| queue(wait, Some(depth)))
        }
        _ => None,
    };
    if over.is_none() {
        report.wrong(node.place, format!("`{}` is nothing that can happen over the limit", shorten(text)), FORMS);
    }
    over
}

fn queue(wait: &str, depth: Option<u64>) -> Option<Over> {
    let wait = parse_duration(wait).ok().filter(|wait| *wait <= LONGEST_WAIT && !wait.is_zero())?;
    Some(Over::Queue { wait, depth })
}

fn replaces(fields: &Fields<'_>, own: Option<&str>, report: &mut Report<'_>) -> Vec<Box<str>> {
    let Some(node) = fields.get("replaces", report) else { return Vec::new() };
    let mut names = Vec::new();
    for node in list(node, "the names of replaced rules", report) {
        let Some(name) = name(node, "rule", report) else { continue };
        if own == Some(&*name) {
            report.wrong(node.place, "a rule cannot replace itself", "leave it out");
        }
        names.push(name);
    }
    names
}

fn field_place(node: &Node, field: &str) -> Place {
    let found = node.map().and_then(|fields| fields.iter().find(|(name, _)| &*name.text == field));
    found.map_or(node.place, |(name, _)| name.place)
}
