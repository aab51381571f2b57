//! Configurations of envoyproxy/ratelimit, taken as they are.
//!
//! Each descriptor that has a limit, or is a leaf, becomes a rule with the path that leads to it. Windows are
//! fixed and aligned to multiples of their unit, as they are there.

use crate::check::fields::{LONGEST_NAME, list, name, number, shorten, text, unknown};
use crate::descriptors::composite;
use crate::mistake::Report;
use crate::model::{
    Amount, Cost, Entry, ErrorBudget, Identity, LimitRule, Limits, Namespace, NoMatch, OnFailure, Over, Rule, Selector,
    Shared, Then,
};
use crate::yaml::{Node, Value};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tollgate_limit::{Limit, Quota};

/// YAML 1.1 has more words for truth than 1.2, and envoyproxy/ratelimit reads 1.1.
const TRUE: [&str; 11] = ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"];
const FALSE: [&str; 11] = ["n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"];

/// Everything that may be the name of a field, at whatever depth: one that stands where it means nothing is
/// accepted there, too.
const KNOWN: [&str; 17] = [
    "domain",
    "descriptors",
    "key",
    "value",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
    "unit_multiplier",
];

const UNITS: [(&str, u64); 7] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3_600),
    ("day", 86_400),
    ("week", 604_800),
    ("month", 30 * 86_400),
    ("year", 365 * 86_400),
];

/// Whether a document is meant for envoyproxy/ratelimit.
pub(crate) fn is_envoys(document: &Node) -> bool {
    let fields = document.map().unwrap_or_default();
    let has = |name: &str| fields.iter().any(|(known, _)| &*known.text == name);
    (has("domain") || has("descriptors")) && !has("namespace") && !has("rules")
}

pub(crate) fn namespace(document: &Node, report: &mut Report<'_>) -> Option<Namespace> {
    check_form(document, report);
    let domain = field(document, "domain").filter(|node| node.text() != Some(""));
    if domain.is_none() {
        report.wrong(document.place, "the domain is empty", "write `domain: …` as the first line");
    }
    let domain = domain.and_then(|node| name(node, "a domain", report));
    let mut reader = Reader::new(report);
    reader.descriptors(document, &[]);
    let rules = reader.finish();
    Some(Namespace {
        name: domain?,
        no_match: NoMatch::Allow,
        headers: crate::Dialect::Draft6,
        identity: Identity::default(),
        rules,
    })
}

/// Only maps, lists of maps, and leaves that are texts, whole numbers, truth values or nothing; only known
/// names, except in metadata.
fn check_form(node: &Node, report: &mut Report<'_>) {
    for (name, node) in node.map().unwrap_or_default() {
        if !KNOWN.contains(&&*name.text) {
            unknown(&name.text, name.place, "field", KNOWN.into_iter(), report);
        }
        match &node.value {
            _ if &*name.text == "metadata" => {}
            Value::Map(_) => check_form(node, report),
            Value::List(nodes) => nodes.iter().for_each(|node| check_item(node, report)),
            // These are looked at as numbers.
            _ if matches!(&*name.text, "requests_per_unit" | "unit_multiplier") => {}
            Value::Text(text, true) if is_fraction(text) => {
                report.wrong(node.place, format!("`{}` is no whole number", shorten(text)), "put it into quotes");
            }
            Value::Text(..) | Value::Null => {}
        }
    }
}

fn check_item(node: &Node, report: &mut Report<'_>) {
    if node.map().is_none() {
        let problem = format!("this list holds {}, not only maps", node.kind());
        report.wrong(node.place, problem, "write maps here, as in `- key: …`");
    }
    check_form(node, report);
}

fn is_fraction(text: &str) -> bool {
    let is_named = matches!(text.trim_start_matches(['+', '-']).to_ascii_lowercase().as_str(), ".inf" | ".nan");
    is_named
        || text.parse::<i128>().is_err()
            && text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
            && text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte))
            && text.parse::<f64>().is_ok()
}

fn field<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    let (_, node) = node.map()?.iter().find(|(known, _)| &*known.text == name)?;
    if let Value::Null = node.value { None } else { Some(node) }
}

/// The step that leads to a descriptor, and its spelling as `key` or `key_value`.
#[derive(Clone)]
struct Step {
    entry: Entry,
    composite: String,
}

struct Reader<'a, 'r> {
    report: &'a mut Report<'r>,
    rules: Vec<Rule>,
    /// The names that rules have got.
    names: HashSet<Box<str>>,
    /// The rules whose limit bears a name.
    named: HashMap<Box<str>, Vec<Box<str>>>,
    /// Which rule replaces limits of which name.
    replaces: Vec<(usize, Box<str>)>,
}

impl<'a, 'r> Reader<'a, 'r> {
    fn new(report: &'a mut Report<'r>) -> Reader<'a, 'r> {
        Reader { report, rules: Vec::new(), names: HashSet::new(), named: HashMap::new(), replaces: Vec::new() }
    }

    fn descriptors(&mut self, parent: &Node, path: &[Step]) {
        let Some(node) = field(parent, "descriptors") else { return };
        let mut seen = HashSet::new();
        for node in list(node, "descriptors", self.report) {
            let Some(step) = self.step(node) else { continue };
            if !seen.insert(step.composite.clone()) {
                let problem = format!("there are two descriptors `{}`", shorten(&metric(path, &step)));
                let help = "leave one of them out; `a_b` and `a` with the value `b` are the same";
                self.report.wrong(node.place, problem, help);
            }
            self.descriptor(node, path, step);
        }
    }

    fn step(&mut self, node: &Node) -> Option<Step> {
        let key = field(node, "key").filter(|node| node.text() != Some(""));
        // What is no map at all was reported.
        if key.is_none() && node.map().is_some() {
            self.report.wrong(node.place, "a descriptor has an empty key", "write `key: …`");
        }
        let key = name(key?, "an attribute", self.report)?;
        let value =
            field(node, "value").and_then(|node| text(node, "a value", self.report)).filter(|value| !value.is_empty());
        let shared = self.truth(node, "share_threshold");
        let entry = Entry { key, value: value.map(Box::from), shared };
        let composite = composite(&entry);
        if shared && !composite.contains('*') {
            let place = field(node, "share_threshold").map_or(node.place, |node| node.place);
            self.report.wrong(place, "share_threshold needs a `*` in the value", "leave share_threshold out");
        }
        Some(Step { entry, composite })
    }

    fn descriptor(&mut self, node: &Node, path: &[Step], step: Step) {
        let limit = field(node, "rate_limit");
        let is_leaf = field(node, "descriptors").and_then(Node::list).is_none_or(<[Node]>::is_empty);
        let metric = metric(path, &step);
        let path = &[path, &[step]].concat();
        if limit.is_some() || is_leaf {
            let name = self.unique(&metric);
            let limits = match limit {
                Some(limit) => self.limits(limit, &name),
                None => Some(Limits::Each(Vec::new())),
            };
            let rule = self.rule(node, name, path, limits.unwrap_or(Limits::Unlimited));
            self.rules.push(rule);
        }
        self.descriptors(node, path);
    }

    /// A name for a rule: what metrics call it, unless that is too long for a name or not the only one.
    fn unique(&mut self, metric: &str) -> Box<str> {
        let printable: String = metric.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        let number = format!("#{}", self.rules.len() + 1);
        let fits = printable.len() <= LONGEST_NAME && !self.names.contains(&*printable);
        let name = if fits {
            printable
        } else {
            let room = LONGEST_NAME - number.len();
            let cut: String =
                printable.char_indices().take_while(|(at, c)| at + c.len_utf8() <= room).map(|(_, c)| c).collect();
            format!("{cut}{number}")
        };
        self.names.insert(name.as_str().into());
        name.into()
    }

    fn rule(&mut self, node: &Node, name: Box<str>, path: &[Step], limits: Limits) -> Rule {
        let over = if self.truth(node, "shadow_mode") { Over::Shadow } else { Over::DEFAULT };
        let quota_mode = self.truth(node, "quota_mode");
        for flag in ["detailed_metric", "value_to_metric"] {
            self.truth(node, flag);
        }
        let told_apart = path.iter().filter(|step| !step.entry.shared);
        Rule {
            name,
            description: None,
            key: told_apart.map(|step| step.entry.key.clone()).collect(),
            selector: Selector::Descriptor(path.iter().map(|step| step.entry.clone()).collect()),
            limits,
            tiers: None,
            overrides: Vec::new(),
            cost: Cost::Asked,
            priority: 0,
            then: Then::Continue,
            over,
            on_failure: OnFailure::default(),
            shared: Shared::Local,
            error_budget: ErrorBudget::default(),
            headers: None,
            replaces: Vec::new(),
            quota_mode,
            metadata: field(node, "metadata").map(Node::to_json),
        }
    }

    fn limits(&mut self, node: &Node, rule: &str) -> Option<Limits> {
        let given = field(node, "name").filter(|node| node.text() != Some(""));
        let name = given.and_then(|node| name(node, "a limit", self.report));
        if let Some(name) = &name {
            self.named.entry(name.clone()).or_default().push(rule.into());
        }
        self.replaces(node, name.as_deref());
        let unit = self.unit(node);
        if self.truth(node, "unlimited") {
            if let Some(unit) = field(node, "unit") {
                self.report.wrong(unit.place, "what is unlimited has no unit", "leave the unit out");
            }
            return Some(Limits::Unlimited);
        }
        if field(node, "unit").is_none() {
            let help = "write `unit: second`, or minute, hour, day, week, month, year";
            self.report.wrong(node.place, "a rate limit has a unit", help);
        }
        let count = field(node, "requests_per_unit").map_or(Some(0), |node| number(node, 0..=u32::MAX, self.report));
        let units = field(node, "unit_multiplier").map_or(Some(1), |node| number(node, 1..=u32::MAX, self.report));
        let period = Duration::from_secs(unit?.saturating_mul(units?.into()));
        let Some(amount) = amount(count?, period) else {
            self.report.wrong(node.place, "no limit can be kept for so long", "write a smaller unit_multiplier");
            return None;
        };
        Some(Limits::Each(vec![LimitRule { name, amount }]))
    }

    fn unit(&mut self, node: &Node) -> Option<u64> {
        let node = field(node, "unit")?;
        let given = text(node, "a unit", self.report)?.to_ascii_lowercase();
        let known = UNITS.iter().find(|(name, _)| *name == given);
        if known.is_none() {
            unknown(&given, node.place, "unit", UNITS.iter().map(|(name, _)| *name), self.report);
        }
        known.map(|(_, seconds)| *seconds)
    }

    fn replaces(&mut self, node: &Node, own: Option<&str>) {
        let Some(replaces) = field(node, "replaces") else { return };
        for node in list(replaces, "the limits that are replaced", self.report) {
            let name = field(node, "name").and_then(|node| text(node, "the name of a limit", self.report));
            match name {
                // What is no map at all was reported.
                _ if node.map().is_none() => {}
                None | Some("") => self.report.wrong(node.place, "this names no limit to replace", "write `- name: …`"),
                same if same == own => {
                    self.report.wrong(node.place, "a limit cannot replace itself", "name another one");
                }
                Some(name) => self.replaces.push((self.rules.len(), name.into())),
            }
        }
    }

    fn truth(&mut self, node: &Node, name: &str) -> bool {
        let Some(node) = field(node, name) else { return false };
        let given = node.plain().unwrap_or_default();
        if !TRUE.contains(&given) && !FALSE.contains(&given) {
            self.report.wrong(node.place, "this is neither true nor false", "write `true` or `false`");
        }
        TRUE.contains(&given)
    }

    /// Limits are replaced by name, rules by theirs. Names that no limit has are replaced in vain, as there.
    fn finish(self) -> Vec<Rule> {
        let Reader { mut rules, named, replaces, .. } = self;
        for (index, name) in replaces {
            if let (Some(rule), Some(replaced)) = (rules.get_mut(index), named.get(&name)) {
                rule.replaces.extend(replaced.iter().filter(|name| **name != rule.name).cloned());
            }
        }
        rules
    }
}

fn amount(count: u32, period: Duration) -> Option<Amount> {
    if count == 0 {
        return Some(Amount::Banned { period });
    }
    let quota = Quota::new(count.into(), period).ok()?;
    let text = format!("{quota} using fixed-window").into();
    Some(Amount::Limit { text, quota, limit: Limit::fixed_window(quota) })
}

/// What metrics call a descriptor: `key_value.key`.
fn metric(path: &[Step], step: &Step) -> String {
    let steps = path.iter().chain([step]);
    steps.map(|step| step.composite.as_str()).collect::<Vec<_>>().join(".")
}
