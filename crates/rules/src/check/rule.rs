//! One rule.

use super::condition;
use super::fields::{Fields, list, name, named, number, shorten, text, truth, unknown};
use crate::Dialect;
use crate::identity::parse_address;
use crate::limits;
use crate::mistake::{Place, Report, Source};
use crate::model::names::name_of;
use crate::model::{
    Amount, Condition, Cost, Entry, ErrorBudget, Identity, LimitRule, Limits, Over, Override, Rule, Selector, Shared,
    Then, Tiers, names,
};
use crate::yaml::{Name, Node, Value};
use std::collections::HashMap;
use std::time::Duration;
use tollgate_limit::parse_duration;

pub(crate) const FIELDS: [&str; 19] = [
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
    "error_budget",
    "headers",
    "replaces",
    "quota_mode",
    "metadata",
];
pub(crate) const LIMIT_FIELDS: [&str; 2] = ["limit", "name"];
pub(crate) const COST_FIELDS: [&str; 3] = ["attribute", "default", "max"];
pub(crate) const OVERRIDE_FIELDS: [&str; 2] = ["client", "limits"];
pub(crate) const ENTRY_FIELDS: [&str; 3] = ["key", "value", "shared"];

/// The most attributes of a key: longer ones cannot be passed on.
const MOST_ATTRIBUTES: usize = crate::identity::MOST_PARTS;

/// The most limits that apply to one client at once.
pub(crate) const MOST_LIMITS: usize = 64;

/// What can be written for `over`.
pub(crate) const OVER_FORMS: [&str; 6] =
    ["reject", "reject with 503", "queue up to 2s", "queue up to 2s and 100 deep", "drop", "shadow"];

/// The longest that a request may be held.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

pub(super) fn read_all(nodes: &[Node], identity: &Identity, report: &mut Report<'_>) -> Vec<Rule> {
    let rules: Vec<_> = nodes.iter().filter_map(|node| Some((read(node, identity, report)?, node))).collect();
    // Also the names of rules that could not be read: they are there.
    let named: Vec<_> = nodes.iter().filter_map(named_at).collect();
    let mut lines = HashMap::new();
    for (name, place) in &named {
        if let Some(line) = lines.insert(*name, place.line) {
            let problem = format!("there are two rules called `{}`", shorten(name));
            report.wrong(*place, problem, format!("rename one of them; the other is in line {line}"));
        }
    }
    for node in nodes {
        let replaced = field(node, "replaces").and_then(|(_, list)| list.list()).unwrap_or_default();
        let missing = replaced
            .iter()
            .filter_map(|node| Some((node.text().filter(|name| !name.is_empty() && !lines.contains_key(name))?, node)));
        for (name, node) in missing {
            unknown(name, node.place, "rule", named.iter().map(|(name, _)| *name), report);
        }
    }
    contradictions(&rules, report);
    rules.into_iter().map(|(rule, _)| rule).collect()
}

/// What a rule is called, and where; of an alias, where the alias stands.
fn named_at(node: &Node) -> Option<(&str, Place)> {
    let (_, name) = field(node, "name")?;
    Some((name.text()?, name.place.max(node.place)))
}

/// Rules that can never be reached because another one takes all of their requests.
fn contradictions(rules: &[(Rule, &Node)], report: &mut Report<'_>) {
    let mut order: Vec<_> = rules.iter().collect();
    order.sort_by_key(|(rule, _)| std::cmp::Reverse(rule.priority));
    let mut taken: HashMap<String, &str> = HashMap::new();
    let mut all = None;
    // Nothing but a stop or a descriptor takes requests away from other rules.
    let may_take = |rule: &Rule| rule.then == Then::Stop || matches!(rule.selector, Selector::Descriptor(_));
    let first = order.iter().position(|(rule, _)| may_take(rule)).unwrap_or(order.len());
    for (rule, node) in order.into_iter().skip(first) {
        let requests = requests(&rule.selector);
        if let Some(before) = all.or_else(|| taken.get(&requests).copied()) {
            let help = format!("`{}` before it takes all of its requests; change one of them", shorten(before));
            report.wrong(node.place, format!("`{}` can never apply", shorten(&rule.name)), help);
        }
        if may_take(rule) {
            taken.entry(requests).or_insert(&rule.name);
        }
        if rule.then == Then::Stop && matches!(&rule.selector, Selector::Match(conditions) if conditions.is_empty()) {
            all.get_or_insert(&*rule.name);
        }
    }
}

/// The same for selectors that are the same.
fn requests(selector: &Selector) -> String {
    match selector {
        Selector::Match(conditions) => {
            let mut conditions: Vec<String> = conditions.iter().map(|condition| format!("{condition:?}")).collect();
            conditions.sort_unstable();
            format!("match {conditions:?}")
        }
        Selector::Descriptor(entries) => {
            let steps: Vec<String> = entries.iter().map(crate::descriptors::composite).collect();
            format!("descriptor {steps:?}")
        }
    }
}

fn field<'a>(node: &'a Node, name: &str) -> Option<&'a (Name, Node)> {
    node.map()?.iter().find(|(known, _)| *known.text == *name)
}

fn read(node: &Node, identity: &Identity, report: &mut Report<'_>) -> Option<Rule> {
    let fields = Fields::new(node, "a rule", &FIELDS, report)?;
    let given = fields.required("name", "name it, as in `name: login-attempts`", report);
    let name = given.and_then(|node| name(node, "a rule", report));
    let selector = selector(&fields, identity, report);
    let key = key(&fields, selector.as_ref(), report);
    let limits = default_limits(&fields, report);
    let tiers = fields.get("tiers", report).and_then(|node| tiers(node, report));
    let understood = Some(identity).filter(|_| !matches!(selector, Some(Selector::Descriptor(_))));
    let overrides = fields.get("overrides", report).map(|node| overrides(node, key.as_deref(), understood, report));
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
        error_budget: fields.get("error_budget", report).and_then(|node| percent(node, report)).unwrap_or_default(),
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
    can_be_shared(&rule, &fields, report);
    Some(rule)
}

/// What hosts spend by themselves must add up to what was spent, and a store counts by whole microseconds and in numbers of 52 bits.
fn can_be_shared(rule: &Rule, fields: &Fields<'_>, report: &mut Report<'_>) {
    let Some(node) = fields.get("shared", report) else { return };
    let (is_kept_there, is_spent_here) = match rule.shared {
        Shared::Local | Shared::Cluster => return,
        Shared::StoreExact => (true, false),
        Shared::StoreLease => (true, true),
        Shared::Store => (false, true),
    };
    let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.tiers).map(|(_, limits)| limits);
    let all = std::iter::once(&rule.limits).chain(tiers).chain(rule.overrides.iter().map(|other| &other.limits));
    let mut amounts = all.flat_map(|limits| match limits {
        Limits::Each(limits) => limits.as_slice(),
        Limits::Unlimited => &[],
    });
    let wait = match rule.over {
        Over::Queue { wait, .. } => Some(wait),
        Over::Reject(_) | Over::Drop | Over::Shadow => None,
    };
    let why_not = |amount: &Amount| match amount {
        Amount::Limit { limit, .. } if is_spent_here && !limit.adds_up() => Some(
            "it matters when each of them let requests through; write `store-exact`, or limit by a bucket or a fixed or calendar window",
        ),
        Amount::Limit { limit, .. } if is_kept_there && limit.terms(1, wait).is_none() => Some(
            "a store counts windows of whole microseconds, and fewer than 2^52 tokens; write `shared: local`, or another limit",
        ),
        _ => None,
    };
    if let Some((limit, help)) = amounts.find_map(|limit| Some((limit, why_not(&limit.amount)?))) {
        let shared = name_of(&names::SHARED, &rule.shared);
        let what = format!("hosts cannot share `{}` by `{shared}`", shorten(&limit.amount.to_string()));
        report.wrong(node.place, what, help);
    }
}

/// A share, as in `5%`.
fn percent(node: &Node, report: &mut Report<'_>) -> Option<ErrorBudget> {
    let written = node.text().and_then(|text| text.trim().strip_suffix('%'));
    let budget = written.and_then(|percent| ErrorBudget::from_percent(percent.trim_end().parse().ok()?));
    if budget.is_none() {
        report.wrong(node.place, "this is no share of a limit", "write a percentage from 0% to 100%, as in `2.5%`");
    }
    budget
}

fn selector(fields: &Fields<'_>, identity: &Identity, report: &mut Report<'_>) -> Option<Selector> {
    match (fields.has("match"), fields.has("descriptor")) {
        (true, true) => {
            let help = "make two rules of it";
            report.wrong(fields.place_of("descriptor"), "a rule has a match or a descriptor, not both", help);
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
    name(&node, "an attribute", report)
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
    if nodes.len() > MOST_ATTRIBUTES {
        report.wrong(node.place, "this descriptor is too long", format!("write at most {MOST_ATTRIBUTES} entries"));
    }
    (!nodes.is_empty() && entries.len() == nodes.len()).then_some(entries)
}

fn entry(node: &Node, report: &mut Report<'_>) -> Option<Entry> {
    let fields = Fields::new(node, "an entry", &ENTRY_FIELDS, report)?;
    let key = fields.required("key", "write `{ key: path, value: /login }`", report);
    let key = key.and_then(|node| name(node, "an attribute", report));
    let value = match fields.get("value", report) {
        Some(node) => Some(text(node, "a value", report)?.into()),
        None => None,
    };
    let shared = fields.get("shared", report).and_then(|node| truth(node, report)).unwrap_or(false);
    let entry = Entry { key: key?, value, shared };
    if shared && !crate::descriptors::composite(&entry).contains('*') {
        report.wrong(fields.place_of("shared"), "only what has a `*` in it can be shared", "leave `shared` out");
    }
    Some(entry)
}

/// Who shares a bucket. With a descriptor it follows from the entries.
fn key(fields: &Fields<'_>, selector: Option<&Selector>, report: &mut Report<'_>) -> Option<Vec<Box<str>>> {
    if let Some(Selector::Descriptor(entries)) = selector {
        if fields.has("key") {
            report.wrong(
                fields.place_of("key"),
                "a rule with a descriptor has no key",
                "leave it out: each value has its own bucket",
            );
        }
        let told_apart = entries.iter().filter(|entry| !entry.shared);
        return Some(told_apart.map(|entry| entry.key.clone()).collect());
    }
    if fields.has("descriptor") {
        return None;
    }
    let node = fields.required("key", "say who shares a bucket: `key: [ip]`, or `key: []` for all together", report)?;
    let nodes = list(node, "the attributes of a key", report);
    if nodes.len() > MOST_ATTRIBUTES {
        report.wrong(node.place, "this key is too long", format!("write at most {MOST_ATTRIBUTES} attributes"));
        return None;
    }
    let mut key: Vec<Box<str>> = Vec::new();
    for node in nodes {
        let Some(attribute) = name(node, "an attribute", report) else { continue };
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
            let example = if limits::parse(text).is_ok() { text } else { "100 per second" };
            let help = format!("write a list, as in `[{example}]`, or `unlimited`");
            report.wrong(node.place, "limits are a list", help);
            None
        }
        Value::List(nodes) => {
            if nodes.len() > MOST_LIMITS {
                report.wrong(node.place, "these are too many limits", format!("write at most {MOST_LIMITS}"));
                return None;
            }
            let limits: Vec<_> = nodes.iter().filter_map(|node| Some((limit(node, report)?, node.place))).collect();
            duplicates(&limits, report);
            let limits: Vec<_> = limits.into_iter().map(|(limit, _)| limit).collect();
            (limits.len() == nodes.len()).then_some(Limits::Each(limits))
        }
        _ => {
            report.wrong(
                node.place,
                format!("limits are a list, not {}", node.kind()),
                "write `[100 per second]`, or `unlimited`",
            );
            None
        }
    }
}

fn duplicates(limits: &[(LimitRule, Place)], report: &mut Report<'_>) {
    for (index, (limit, place)) in limits.iter().enumerate() {
        let before = || limits.iter().take(index).map(|(limit, _)| limit);
        if before().any(|before| before.amount == limit.amount) {
            report.wrong(*place, "this limit is there twice", "leave one of them out");
        } else if limit.name.is_some() && before().any(|before| before.name == limit.name) {
            report.wrong(*place, "there are two limits of this name", "rename one of them");
        }
    }
}

fn limit(node: &Node, report: &mut Report<'_>) -> Option<LimitRule> {
    let (node, limit_name) = match &node.value {
        Value::Map(_) => {
            let fields = Fields::new(node, "a limit", &LIMIT_FIELDS, report)?;
            let limit = fields.required("limit", "write `{ limit: 100 per second, name: burst }`", report)?;
            (limit, fields.get("name", report).and_then(|node| name(node, "a limit", report)))
        }
        _ => (node, None),
    };
    let text = text(node, "a limit", report)?;
    match limits::parse(text) {
        Ok(amount) => Some(LimitRule { name: limit_name, amount }),
        Err(wrong) => {
            report.wrong(within(report.source, node, text, &wrong.place), wrong.problem, wrong.help);
            None
        }
    }
}

/// The place of some bytes of a text, or all of it if it stands there otherwise: escaped, folded, or elsewhere.
fn within(source: &Source, node: &Node, text: &str, bytes: &std::ops::Range<usize>) -> Place {
    let columns = |bytes: usize| text.get(..bytes).map_or(bytes, |text| text.chars().count());
    let quotes = usize::from(node.plain().is_none());
    let inside = node.place.within(quotes, columns(text.len()));
    if !source.has(text, inside) {
        return node.place;
    }
    let (start, end) = (columns(bytes.start), columns(bytes.end));
    inside.within(start, end.saturating_sub(start))
}

/// `{ plan: { free: [...], gold: [...] } }`
fn tiers(node: &Node, report: &mut Report<'_>) -> Option<Tiers> {
    let help = "write `tiers: { plan: { free: [10 per second], gold: [1000 per second] } }`";
    let Some([(Name { text, place }, by_value)]) = node.map() else {
        report.wrong(node.place, "tiers are told apart by one attribute", help);
        return None;
    };
    let attribute = attribute(text, *place, report);
    let Some(tiers) = by_value.map().filter(|tiers| !tiers.is_empty()) else {
        report.wrong(by_value.place, format!("which tiers does `{}` know?", shorten(text)), help);
        return None;
    };
    let tiers = tiers.iter().filter_map(|(name, node)| Some((name.text.clone(), limits(node, report)?))).collect();
    Some(Tiers { attribute: attribute?, tiers })
}

/// Attributes are understood in some way, but those of descriptors are mere texts.
fn overrides(
    node: &Node,
    key: Option<&[Box<str>]>,
    understood: Option<&Identity>,
    report: &mut Report<'_>,
) -> Vec<Override> {
    let mut lines = HashMap::new();
    let mut overrides = Vec::new();
    for node in list(node, "overrides", report) {
        let Some(read) = one_override(node, key, understood, report) else { continue };
        let named = key.unwrap_or_default().iter().zip(&read.client);
        let client: Vec<_> = named.map(|(attribute, value)| as_compared(attribute, value, understood)).collect();
        if let Some(line) = lines.insert(client, node.place.line) {
            report.wrong(
                node.place,
                "this client is overridden twice",
                format!("it is the same client as in line {line}"),
            );
        }
        overrides.push(read);
    }
    overrides
}

/// A value of a client's key in the one spelling that requests are compared by.
fn as_compared(attribute: &str, value: &str, understood: Option<&Identity>) -> String {
    match (attribute, understood) {
        ("ip", Some(identity)) => {
            parse_address(value).map_or_else(|| value.to_owned(), |ip| identity.grouping.group(ip).to_string())
        }
        ("path", Some(identity)) => identity.path.normalise(value).into_owned(),
        _ => value.to_owned(),
    }
}

/// Whether a client can have this value.
fn is_possible(attribute: &str, node: &Node, report: &mut Report<'_>) -> bool {
    match (attribute, node.text()) {
        ("api_key", Some(value)) => condition::api_key(value, node.place, report).is_some(),
        ("ip", Some(value)) if parse_address(value).is_none() => {
            report.wrong(node.place, "this is no address", "write a single one, as in `192.0.2.1`");
            false
        }
        _ => true,
    }
}

fn one_override(
    node: &Node,
    key: Option<&[Box<str>]>,
    understood: Option<&Identity>,
    report: &mut Report<'_>,
) -> Option<Override> {
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
    let value = |attribute: &str| field(client, attribute)?.1.text().map(Box::from);
    let client_values: Option<Vec<Box<str>>> = key.iter().map(|attribute| value(attribute)).collect();
    if key.is_empty() || client_values.is_none() || values.len() != key.len() {
        let help = match key {
            [] => "leave it out: all clients of this rule share one bucket".to_owned(),
            key => format!("give a value for each attribute of the key: {}", key.join(", ")),
        };
        report.wrong(client.place, "this does not name one client of the rule", help);
        return None;
    }
    let possible = values.iter().filter(|(name, node)| understood.is_none() || is_possible(&name.text, node, report));
    if possible.count() < values.len() {
        return None;
    }
    Some(Override { client: client_values?, limits: limits? })
}

/// A number, the name of an attribute, or a map.
fn cost(node: &Node, report: &mut Report<'_>) -> Option<Cost> {
    if node.map().is_some() {
        return cost_in_full(node, report);
    }
    let Some(text) = node.text() else {
        let problem = format!("a cost is a number or an attribute, not {}", node.kind());
        report.wrong(node.place, problem, "write `1`, `bytes`, or `{ attribute: bytes, max: 1000000 }`");
        return None;
    };
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
    Some(Cost::Attribute { name: name(attribute?, "an attribute", report)?, default, most })
}

/// `reject`, `reject with 503`, `queue up to 2s`, `queue up to 2s and 100 deep`, `drop`, `shadow`.
fn over(node: &Node, report: &mut Report<'_>) -> Option<Over> {
    let text = text(node, "what happens over the limit", report)?;
    let words: Vec<&str> = text.split_whitespace().collect();
    match *words.as_slice() {
        ["reject"] | ["reject", "with", "429"] => Some(Over::Reject(429)),
        ["reject", "with", "503"] => Some(Over::Reject(503)),
        ["drop"] => Some(Over::Drop),
        ["shadow"] => Some(Over::Shadow),
        ["queue", "up", "to", ref wait @ ..] => queue(node, wait, report),
        _ => {
            let problem = format!("`{}` is nothing that can happen over the limit", shorten(text));
            report.wrong(
                node.place,
                problem,
                format!("write {}", OVER_FORMS.map(|form| format!("`{form}`")).join(", ")),
            );
            None
        }
    }
}

/// `2s`, `2 seconds and 100 deep`
fn queue(node: &Node, words: &[&str], report: &mut Report<'_>) -> Option<Over> {
    let (wait, depth) = match words {
        [wait @ .., "and", depth, "deep"] => (wait, Some(*depth)),
        wait => (wait, None),
    };
    let wait = parse_duration(&wait.join(" ")).ok().filter(|wait| *wait <= LONGEST_WAIT && !wait.is_zero());
    let depth = depth.map(|depth| depth.parse().ok().filter(|depth| *depth > 0));
    match (wait, depth) {
        (Some(wait), None) => Some(Over::Queue { wait, depth: None }),
        (Some(wait), Some(Some(depth))) => Some(Over::Queue { wait, depth: Some(depth) }),
        (None, _) => {
            report.wrong(
                node.place,
                "this is no time that somebody can wait",
                "write from 1ns to 1h, as in `queue up to 2s`",
            );
            None
        }
        (_, Some(None)) => {
            let help = "write how many may wait, at least 1, as in `queue up to 2s and 100 deep`";
            report.wrong(node.place, "no queue is so deep", help);
            None
        }
    }
}

fn replaces(fields: &Fields<'_>, own: Option<&str>, report: &mut Report<'_>) -> Vec<Box<str>> {
    let Some(node) = fields.get("replaces", report) else { return Vec::new() };
    let nodes = list(node, "the names of replaced rules", report);
    for node in nodes.iter().filter(|node| own.is_some() && node.text() == own) {
        report.wrong(node.place, "a rule cannot replace itself", "leave it out");
    }
    nodes.iter().filter_map(|node| name(node, "a rule", report)).collect()
}
