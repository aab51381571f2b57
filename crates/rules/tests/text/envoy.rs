//! Configurations of envoyproxy/ratelimit: what it does with them, as a model that is slow and obvious.

use crate::{parse, parsed, reads_back};
use proptest::prelude::*;
use tollgate_limit::Time;
use tollgate_rules::identity::Part;
use tollgate_rules::model::{Limits, NoMatch, Over, RuleSet, Selector};
use tollgate_rules::{Compiled, Request, RuleSet as Set, Source, Value};

/// What a descriptor leads to: the rule's name and the values that tell its buckets apart.
fn ask(compiled: &Compiled, entries: &[(&str, &str)]) -> Option<(String, Vec<String>)> {
    let namespace = &compiled.namespaces()[0];
    let attributes: Vec<(&str, Value<'_>)> = entries.iter().map(|(key, value)| (*key, (*value).into())).collect();
    let attributes = namespace.attributes(&Request::new(&namespace.model().name, &attributes));
    let mut found = Vec::new();
    namespace.each_match(&attributes, |number| {
        let rule = namespace.rule(number).unwrap();
        let key = rule.key(&attributes).into_iter().map(|part| match part {
            Part::Text(text) => text.to_owned(),
            other => panic!("{other:?} in the key of a descriptor"),
        });
        found.push((rule.rule().name.to_string(), key.collect()));
    });
    assert!(found.len() <= 1, "one descriptor leads to several rules: {found:?}");
    found.pop()
}

fn compiled(text: &str) -> Compiled {
    Compiled::new(parsed(text), None, Time::ZERO)
}

#[track_caller]
fn leads_to(compiled: &Compiled, entries: &[(&str, &str)], rule: &str, key: &[&str]) {
    let expected = Some((rule.to_owned(), key.iter().map(|value| (*value).to_owned()).collect()));
    assert_eq!(ask(compiled, entries), expected, "{entries:?}");
}

#[test]
fn the_exact_value_comes_first_then_wildcards_in_their_order_then_the_key_alone() {
    let rules = compiled(
        "
domain: a
descriptors:
  - { key: path, rate_limit: { unit: second, requests_per_unit: 1 } }
  - { key: path, value: '/v*', rate_limit: { unit: second, requests_per_unit: 2 } }
  - { key: path, value: '/*1', rate_limit: { unit: second, requests_per_unit: 3 } }
  - { key: path, value: '/v1', rate_limit: { unit: second, requests_per_unit: 4 } }
  - { key: 'pa*', rate_limit: { unit: second, requests_per_unit: 5 } }
",
    );
    leads_to(&rules, &[("path", "/v1")], "path_/v1", &["/v1"]);
    leads_to(&rules, &[("path", "/v21")], "path_/v*", &["/v21"]);
    leads_to(&rules, &[("path", "/w1")], "path_/*1", &["/w1"]);
    leads_to(&rules, &[("path", "/w")], "pa*", &["/w"]);
    leads_to(&rules, &[("party", "x")], "pa*", &["x"]);
    assert_eq!(ask(&rules, &[("other", "/v1")]), None);
}

#[test]
fn a_limit_applies_only_at_the_depth_of_the_last_entry_and_nothing_goes_back() {
    let rules = compiled(
        "
domain: a
descriptors:
  - key: a
    value: x
    descriptors: [{ key: b, value: y, rate_limit: { unit: second, requests_per_unit: 1 } }]
  - key: a
    rate_limit: { unit: second, requests_per_unit: 2 }
    descriptors: [{ key: b, rate_limit: { unit: second, requests_per_unit: 3 } }]
",
    );
    leads_to(&rules, &[("a", "x"), ("b", "y")], "a_x.b_y", &["x", "y"]);
    leads_to(&rules, &[("a", "z")], "a", &["z"]);
    leads_to(&rules, &[("a", "z"), ("b", "w")], "a.b", &["z", "w"]);
    // The exact value led astray; the way by the key alone is not tried.
    assert_eq!(ask(&rules, &[("a", "x"), ("b", "z")]), None);
    assert_eq!(ask(&rules, &[("a", "x")]), None);
    assert_eq!(ask(&rules, &[("a", "z"), ("b", "w"), ("c", "v")]), None);
    assert_eq!(ask(&rules, &[("b", "y"), ("a", "x")]), None);
    assert_eq!(ask(&rules, &[]), None);
}

#[test]
fn a_leaf_without_a_limit_is_allowed_whatever_the_key_alone_says() {
    let set = parsed(
        "
domain: a
descriptors:
  - { key: user, rate_limit: { unit: second, requests_per_unit: 1 } }
  - { key: user, value: root }
",
    );
    assert_eq!(set.namespaces[0].no_match, NoMatch::Allow);
    assert_eq!(set.namespaces[0].rules[1].limits, Limits::Each(Vec::new()));
    leads_to(&Compiled::new(set, None, Time::ZERO), &[("user", "root")], "user_root", &["root"]);
}

#[test]
fn shared_thresholds_count_all_matching_values_together() {
    let rules = compiled(
        "
domain: a
descriptors:
  - key: file
    value: 'img*'
    share_threshold: true
    rate_limit: { unit: second, requests_per_unit: 1 }
    descriptors: [{ key: user, rate_limit: { unit: second, requests_per_unit: 1 } }]
  - { key: file, value: 'doc*', rate_limit: { unit: second, requests_per_unit: 1 } }
",
    );
    leads_to(&rules, &[("file", "img1")], "file_img*", &[]);
    leads_to(&rules, &[("file", "img2"), ("user", "a")], "file_img*.user", &["a"]);
    leads_to(&rules, &[("file", "doc1")], "file_doc*", &["doc1"]);
}

#[test]
fn limits_are_replaced_by_name() {
    let rules = compiled(
        "
domain: a
descriptors:
  - { key: a, rate_limit: { unit: second, requests_per_unit: 1, name: both } }
  - { key: b, rate_limit: { unit: second, requests_per_unit: 1, name: both } }
  - { key: c, rate_limit: { unit: second, requests_per_unit: 1, name: new, replaces: [{ name: both }, { name: gone }] } }
",
    );
    let namespace = rules.namespace("a").unwrap();
    assert_eq!(namespace.rule(2).unwrap().replaces(), [0, 1]);
    assert!(namespace.rule(0).unwrap().replaces().is_empty());
}

#[test]
fn modes_and_units_are_taken_over() {
    let set = parsed(
        "
domain: a
descriptors:
  - { key: a, shadow_mode: true, rate_limit: { unit: week, requests_per_unit: 7 } }
  - { key: b, quota_mode: true, rate_limit: { unit: YEAR, requests_per_unit: 7, name: n } }
  - { key: c, rate_limit: { unit: minute, unit_multiplier: 2, requests_per_unit: 7 } }
  - { key: d, rate_limit: { unit: month } }
  - { key: e, rate_limit: { unlimited: true } }
",
    );
    let rules = &set.namespaces[0].rules;
    assert_eq!((rules[0].over, rules[1].quota_mode), (Over::Shadow, true));
    let written: Vec<String> = rules
        .iter()
        .map(|rule| match &rule.limits {
            Limits::Each(limits) => limits[0].amount.to_string(),
            Limits::Unlimited => "unlimited".to_owned(),
        })
        .collect();
    assert_eq!(
        written,
        [
            "7 per week using fixed-window",
            "7 per 365 days using fixed-window",
            "7 per 2 minutes using fixed-window",
            "0 per 30 days",
            "unlimited",
        ]
    );
    reads_back(&set);
}

#[test]
fn only_the_first_document_of_a_file_is_read() {
    let set = parsed("domain: a\n---\ndomain: b\n---\nnamespace: c\nrules: []\n");
    assert_eq!(set.namespaces.len(), 1);
}

#[test]
fn names_that_would_be_the_same_or_too_long_are_told_apart() {
    let long = "x".repeat(300);
    let set = parsed(format!(
        "{{ domain: a, descriptors: [{{ key: b.c }}, {{ key: b, descriptors: [{{ key: c }}] }}, {{ key: d, value: {long}1 }}, \
         {{ key: d, value: {long}2 }}, {{ key: e, value: \"\\e[2J\" }}] }}"
    ));
    let names: Vec<&str> = set.namespaces[0].rules.iter().map(|rule| &*rule.name).collect();
    assert_eq!(names[..2], ["b.c", "b.c#2"]);
    assert!(names[2].ends_with("x#3") && names[3].ends_with("x#4") && names[4] == "e_\u{fffd}[2J", "{names:?}");
    reads_back(&set);
}

#[test]
fn a_domain_in_two_files_is_refused() {
    let file = |name: &str| Source::new(name, "domain: a\n");
    let mistakes = Set::parse(&[file("one.yaml"), file("two.yaml")]).unwrap_err();
    assert!(mistakes.to_string().contains("the other is in one.yaml"), "{mistakes}");
    assert!(parse("domain: a\ndescriptors: [{ key: x, value: 1.5 }]").is_err());
}

/// A descriptor as the model knows it.
#[derive(Clone, Debug)]
struct Descriptor {
    key: &'static str,
    value: Option<&'static str>,
    limit: bool,
    shared: bool,
    children: Vec<Descriptor>,
}

impl Descriptor {
    fn composite(&self) -> String {
        match self.value {
            Some(value) if !value.is_empty() => format!("{}_{value}", self.key),
            _ => self.key.to_owned(),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{{ key: \"{}\"", self.key);
        if let Some(value) = self.value {
            text += &format!(", value: \"{value}\"");
        }
        if self.limit {
            text += ", rate_limit: { unit: second, requests_per_unit: 5 }";
        }
        if self.shared {
            text += ", share_threshold: true";
        }
        format!("{text}, descriptors: {} }}", list(&self.children))
    }
}

fn list(descriptors: &[Descriptor]) -> String {
    format!("[{}]", descriptors.iter().map(Descriptor::text).collect::<Vec<_>>().join(", "))
}

/// Each `*` is tried with every number of characters.
fn glob(pattern: &str, text: &str) -> bool {
    match pattern.chars().next() {
        None => text.is_empty(),
        Some('*') => (0..=text.len()).any(|taken| glob(&pattern[1..], &text[taken..])),
        Some(c) => text.starts_with(c) && glob(&pattern[1..], &text[1..]),
    }
}

/// The path to the descriptor that a request leads to, and the values by which it is counted.
fn look_up(descriptors: &[Descriptor], entries: &[(&str, &str)]) -> Option<(String, Vec<String>)> {
    let ((key, value), rest) = entries.split_first()?;
    let both = format!("{key}_{value}");
    let exact = descriptors.iter().find(|descriptor| descriptor.composite() == both);
    let wildcard = || descriptors.iter().find(|d| d.composite().contains('*') && glob(&d.composite(), &both));
    let bare = || descriptors.iter().find(|descriptor| descriptor.composite() == *key);
    let found = exact.or_else(wildcard).or_else(bare)?;
    let own = if found.shared { None } else { Some((*value).to_owned()) };
    if rest.is_empty() {
        let counts = found.limit || found.children.is_empty();
        return counts.then(|| (found.composite(), own.into_iter().collect()));
    }
    let (path, values) = look_up(&found.children, rest)?;
    Some((format!("{}/{path}", found.composite()), own.into_iter().chain(values).collect()))
}

fn unique(mut descriptors: Vec<Descriptor>) -> Vec<Descriptor> {
    let mut seen = std::collections::HashSet::new();
    descriptors.retain(|descriptor| seen.insert(descriptor.composite()));
    descriptors
}

fn descriptors() -> impl Strategy<Value = Vec<Descriptor>> {
    let keys = prop::sample::select(vec!["a", "b", "a_b", "a*"]);
    let values = prop::sample::select(vec![
        None,
        Some(""),
        Some("b"),
        Some("x"),
        Some("x*"),
        Some("*"),
        Some("*y"),
        Some("x*y*"),
    ]);
    let one = (keys, values, any::<bool>(), any::<bool>()).prop_map(|(key, value, limit, shared)| {
        let bare = Descriptor { key, value, limit, shared: false, children: Vec::new() };
        Descriptor { shared: shared && bare.composite().contains('*'), ..bare }
    });
    let leaves = prop::collection::vec(one.clone(), 0..6).prop_map(unique).boxed();
    leaves.prop_recursive(3, 40, 6, move |below| {
        let node = (one.clone(), below).prop_map(|(descriptor, children)| Descriptor { children, ..descriptor });
        prop::collection::vec(node, 1..6).prop_map(unique)
    })
}

fn requests() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let entry = (
        prop::sample::select(vec!["a", "b", "a_b", "aa"]),
        prop::sample::select(vec!["", "b", "x", "xy", "xyz", "y", "b_x"]),
    );
    prop::collection::vec(entry, 0..4)
}

/// Where the rule that is found stands, instead of its name.
fn path(set: &RuleSet, name: &str) -> String {
    let rule = set.namespaces[0].rules.iter().find(|rule| &*rule.name == name).unwrap();
    let Selector::Descriptor(entries) = &rule.selector else { panic!("{rule:?}") };
    let steps = entries.iter().map(|entry| match &entry.value {
        Some(value) => format!("{}_{value}", entry.key),
        None => entry.key.to_string(),
    });
    steps.collect::<Vec<_>>().join("/")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn descriptors_lead_where_envoys_would(tree in descriptors(), asked in prop::collection::vec(requests(), 1..12)) {
        let set = parsed(format!("{{ domain: a, descriptors: {} }}", list(&tree)));
        let ours = parsed(set.to_yaml());
        prop_assert_eq!(&ours, &set);
        for compiled in [Compiled::new(set.clone(), None, Time::ZERO), Compiled::new(ours, None, Time::ZERO)] {
            for entries in &asked {
                let found = ask(&compiled, entries).map(|(name, key)| (path(&set, &name), key));
                prop_assert_eq!(found, look_up(&tree, entries), "{:?} in {}", entries, set.to_yaml());
            }
        }
    }
}
