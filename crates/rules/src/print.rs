//! Rules as text in our own format, such that reading it gives the same rules.

use crate::dialect::Dialect;
use crate::identity::{EncodedSlash, PathForm};
use crate::limits::compact;
use crate::model::names::name_of;
use crate::model::{
    Condition, Cost, Entry, ErrorBudget, Identity, LimitRule, Limits, Namespace, NoMatch, OnFailure, Over, Override,
    Rule, RuleSet, Selector, Shared, Then, names,
};
use crate::pattern::Pattern;
use serde_json::{Map, Value, json};
use std::fmt::{self, Display, Write};

impl RuleSet {
    /// Writes the rules as YAML, one document for each namespace, without what goes without saying.
    ///
    /// ```
    /// use tollgate_rules::{RuleSet, Source};
    ///
    /// let envoys = "
    /// domain: mesh
    /// descriptors:
    ///   - key: remote_address
    ///     rate_limit: { unit: second, requests_per_unit: 10 }
    /// ";
    /// let rules = RuleSet::parse(&[Source::new("envoy.yaml", envoys)])?;
    /// let ours = rules.to_yaml();
    /// assert!(ours.contains("limits: [\"10 per second using fixed-window\"]"));
    /// assert_eq!(RuleSet::parse(&[Source::new("ours.yaml", ours)])?, rules);
    /// # Ok::<(), tollgate_rules::Mistakes>(())
    /// ```
    pub fn to_yaml(&self) -> String {
        self.namespaces.iter().map(namespace).collect::<Vec<_>>().join("---\n")
    }
}

fn namespace(namespace: &Namespace) -> String {
    let mut out = String::new();
    line(&mut out, "", "namespace", &(*namespace.name).into());
    if namespace.no_match != NoMatch::default() {
        line(&mut out, "", "no_match", &name_of(&names::NO_MATCH, &namespace.no_match).into());
    }
    if namespace.headers != Dialect::default() {
        line(&mut out, "", "headers", &name_of(&Dialect::NAMES, &namespace.headers).into());
    }
    if namespace.identity != Identity::default() {
        line(&mut out, "", "identity", &identity(&namespace.identity));
    }
    let _ = writeln!(out, "rules:{}", if namespace.rules.is_empty() { " []" } else { "" });
    namespace.rules.iter().for_each(|written| rule(&mut out, written));
    out
}

/// One field. JSON is YAML, and quotes whatever has to be.
fn line(out: &mut String, indent: &str, name: &str, value: &Value) {
    let _ = writeln!(out, "{indent}{name}: {value}");
}

fn rule(out: &mut String, rule: &Rule) {
    line(out, "  - ", "name", &(*rule.name).into());
    let mut add = |name, differs: bool, value: &dyn Display| {
        if differs {
            let _ = writeln!(out, "    {name}: {value}");
        }
    };
    selection(rule, &mut add);
    amounts(rule, &mut add);
    add("cost", rule.cost != Cost::Asked, &cost(&rule.cost));
    add("priority", rule.priority != 0, &rule.priority);
    add("then", rule.then != Then::default(), &name_of(&names::THEN, &rule.then));
    add("over", rule.over != Over::DEFAULT, &over(rule.over));
    add("on_failure", rule.on_failure != OnFailure::default(), &name_of(&names::ON_FAILURE, &rule.on_failure));
    add("shared", rule.shared != Shared::default(), &name_of(&names::SHARED, &rule.shared));
    add("error_budget", rule.error_budget != ErrorBudget::default(), &rule.error_budget);
    if let Some(headers) = &rule.headers {
        add("headers", true, &name_of(&Dialect::NAMES, headers));
    }
    add("replaces", !rule.replaces.is_empty(), &texts(&rule.replaces));
    add("quota_mode", rule.quota_mode, &true);
    if let Some(metadata) = &rule.metadata {
        add("metadata", true, metadata);
    }
}

/// Which requests, and who shares a bucket.
fn selection(rule: &Rule, add: &mut impl FnMut(&'static str, bool, &dyn Display)) {
    if let Some(description) = &rule.description {
        add("description", true, &Value::from(&**description));
    }
    match &rule.selector {
        Selector::Match(conditions) => {
            let each = conditions.iter().map(|(name, c)| (&**name, condition(name, c)));
            add("match", !conditions.is_empty(), &InOrder(each.collect()));
            add("key", true, &texts(&rule.key));
        }
        Selector::Descriptor(entries) => add("descriptor", true, &entries.iter().map(entry).collect::<Value>()),
    }
}

/// How much for whom.
fn amounts(rule: &Rule, add: &mut impl FnMut(&'static str, bool, &dyn Display)) {
    add("limits", true, &limits(&rule.limits));
    if let Some(tiers) = &rule.tiers {
        let by_value = InOrder(tiers.tiers.iter().map(|(name, tier)| (&**name, limits(tier))).collect());
        add("tiers", true, &InOrder(vec![(&*tiers.attribute, by_value)]));
    }
    let overrides: Value = rule.overrides.iter().map(|one| client_limits(&rule.key, one)).collect();
    add("overrides", !rule.overrides.is_empty(), &overrides);
}

fn texts(texts: &[Box<str>]) -> Value {
    texts.iter().map(|text| &**text).collect()
}

/// A map in the order in which it was written.
struct InOrder<'a, T>(Vec<(&'a str, T)>);

impl<T: Display> Display for InOrder<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.0.iter().map(|(name, value)| format!("{}: {value}", Value::from(*name)));
        write!(f, "{{{}}}", fields.collect::<Vec<_>>().join(", "))
    }
}

fn condition(attribute: &str, condition: &Condition) -> Value {
    match condition {
        Condition::Present => json!({ "present": true }),
        Condition::Absent => json!({ "present": false }),
        Condition::NoneOf(patterns) => json!({ "not": patterns.iter().map(pattern_text).collect::<Vec<_>>() }),
        Condition::AnyOf(patterns) => {
            let values: Vec<String> = patterns.iter().map(pattern_text).collect();
            match kind(attribute, patterns) {
                Some(kind) => json!({ kind: values }),
                None => one_or_all(values),
            }
        }
    }
}

/// The word that is needed to read patterns as what they are, where a plain value would be read otherwise.
fn kind(attribute: &str, patterns: &[Pattern]) -> Option<&'static str> {
    patterns.iter().find_map(|pattern| match pattern {
        Pattern::Regex(_) => Some("regex"),
        Pattern::Network(_) if attribute != "ip" => Some("cidr"),
        Pattern::Exact(text) if text.contains('*') => Some("exact"),
        _ => None,
    })
}

fn pattern_text(pattern: &Pattern) -> String {
    match pattern {
        Pattern::Exact(text) => text.to_string(),
        Pattern::Glob(glob) => glob.text().to_owned(),
        Pattern::Path(glob) => glob.text().to_owned(),
        Pattern::Network(network) => network.to_string(),
        Pattern::Regex(regex) => regex.text().to_owned(),
    }
}

fn one_or_all(mut values: Vec<String>) -> Value {
    match values.len() {
        1 => values.remove(0).into(),
        _ => values.into(),
    }
}

fn entry(entry: &Entry) -> Value {
    let mut fields = Map::new();
    fields.insert("key".to_owned(), (*entry.key).into());
    if let Some(value) = &entry.value {
        fields.insert("value".to_owned(), (**value).into());
    }
    if entry.shared {
        fields.insert("shared".to_owned(), true.into());
    }
    fields.into()
}

fn limits(limits: &Limits) -> Value {
    match limits {
        Limits::Unlimited => "unlimited".into(),
        Limits::Each(limits) => limits.iter().map(limit).collect(),
    }
}

fn limit(limit: &LimitRule) -> Value {
    let text = limit.amount.to_string();
    match &limit.name {
        None => text.into(),
        Some(name) => json!({ "limit": text, "name": &**name }),
    }
}

fn client_limits(key: &[Box<str>], one: &Override) -> Value {
    let client: Map<String, Value> =
        key.iter().zip(&one.client).map(|(name, value)| (name.to_string(), (**value).into())).collect();
    json!({ "client": client, "limits": limits(&one.limits) })
}

fn cost(cost: &Cost) -> Value {
    match cost {
        Cost::Asked => 1.into(),
        Cost::Fixed(cost) => (*cost).into(),
        Cost::Attribute { name, default: 1, most: u64::MAX } => (**name).into(),
        Cost::Attribute { name, default, most } => json!({ "attribute": &**name, "default": default, "max": most }),
    }
}

fn over(over: Over) -> String {
    match over {
        Over::Reject(429) => "reject".to_owned(),
        Over::Reject(status) => format!("reject with {status}"),
        Over::Queue { wait, depth: None } => format!("queue up to {}", compact(wait)),
        Over::Queue { wait, depth: Some(depth) } => format!("queue up to {} and {depth} deep", compact(wait)),
        Over::Drop => "drop".to_owned(),
        Over::Shadow => "shadow".to_owned(),
    }
}

fn identity(identity: &Identity) -> Value {
    let mut fields = Map::new();
    let usual = Identity::default();
    let mut add = |name: &str, differs: bool, value: Value| {
        if differs {
            fields.insert(name.to_owned(), value);
        }
    };
    let (trust, grouping, path) = (&identity.trust, &identity.grouping, &identity.path);
    add("trusted_proxies", !trust.proxies().is_empty(), trust.proxies().iter().map(ToString::to_string).collect());
    add("hops", trust.hops() != 0, trust.hops().into());
    add("forwarded", trust.header() != usual.trust.header(), trust.header().name().into());
    add("ipv4_prefix", grouping.v4() != usual.grouping.v4(), grouping.v4().into());
    add("ipv6_prefix", grouping.v6() != usual.grouping.v6(), grouping.v6().into());
    add("path", *path != usual.path, path_form(path));
    add("api_key", identity.api_key.is_some(), identity.api_key.as_deref().into());
    add("login", identity.login.is_some(), identity.login.as_deref().into());
    fields.into()
}

fn path_form(form: &PathForm) -> Value {
    let suffixes: Vec<&str> = form.suffixes.iter().collect();
    json!({
        "fold_case": form.fold_case,
        "suffixes": suffixes,
        "encoded_slash": name_of(&EncodedSlash::NAMES, &form.encoded_slash),
        "keep_trailing_slash": form.keep_trailing_slash,
        "drop_parameters": form.drop_parameters,
    })
}
