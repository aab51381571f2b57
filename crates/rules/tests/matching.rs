//! The index finds exactly the rules that a look at each of them finds.

use proptest::prelude::*;
use proptest::sample::select;
use tollgate_limit::Time;
use tollgate_rules::{Attributes, Compiled, CompiledNamespace, Request, RuleSet, Source, Value, model::Then};

/// Each rule by itself, in order, up to the first one that says stop.
fn slowly(namespace: &CompiledNamespace, attributes: &Attributes<'_>) -> Vec<u32> {
    let mut found = Vec::new();
    for (number, rule) in (0..).zip(namespace.rules()) {
        if namespace.explain(attributes, rule).is_err() {
            continue;
        }
        found.push(number);
        if rule.rule().then == Then::Stop {
            break;
        }
    }
    found
}

fn quickly(namespace: &CompiledNamespace, attributes: &Attributes<'_>) -> Vec<u32> {
    let mut found = Vec::new();
    namespace.each_match(attributes, |number| found.push(number));
    found
}

fn values(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    let one = select(of.to_vec()).prop_map(str::to_owned);
    let several =
        prop::collection::vec(select(of.to_vec()), 1..4).prop_map(|values| format!("[{}]", values.join(", ")));
    prop_oneof![one, several]
}

const PATHS: &[&str] = &[
    "/",
    "/a",
    "/a/b",
    "/a/**",
    "/a/b/**",
    "'/a/*'",
    "'/*/b'",
    "'/**'",
    "'/**/b'",
    "/a/b/c/a/b/c/a/b/c/**",
    "'/a/b*'",
];
const NETWORKS: &[&str] =
    &["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "0.0.0.0/0", "'::/0'", "'2001:db8::/32'", "'2001:db8::1'"];
const TEXTS: &[&str] = &["x", "y", "''", "'x*'", "'*y'", "'*'", "5"];

fn conditions() -> impl Strategy<Value = String> {
    let present = || any::<bool>().prop_map(|present| format!("{{ present: {present} }}"));
    let text = |name: &'static str| {
        prop_oneof![
            values(TEXTS),
            values(TEXTS).prop_map(|values| format!("{{ not: {values} }}")),
            values(TEXTS).prop_map(|values| format!("{{ exact: {values} }}")),
            select(vec!["x|y", "[xy]*", "5?", ".+"]).prop_map(|regex| format!("{{ regex: '{regex}' }}")),
            values(NETWORKS).prop_map(|values| format!("{{ cidr: {values} }}")),
            present(),
        ]
        .prop_map(move |condition| format!("{name}: {condition}"))
    };
    let path = prop_oneof![
        4 => values(PATHS),
        1 => values(PATHS).prop_map(|values| format!("{{ not: {values} }}")),
        1 => Just("{ regex: '/a.*' }".to_owned()),
        1 => present()
    ];
    let ip = prop_oneof![
        4 => values(NETWORKS),
        1 => values(NETWORKS).prop_map(|values| format!("{{ not: {values} }}")),
        1 => present()
    ];
    let optional = |of: BoxedStrategy<String>| prop::option::weighted(0.4, of);
    (
        optional(path.prop_map(|path| format!("path: {path}")).boxed()),
        optional(ip.prop_map(|ip| format!("ip: {ip}")).boxed()),
        optional(text("a").boxed()),
        optional(text("b").boxed()),
    )
        .prop_map(|(path, ip, a, b)| [path, ip, a, b].into_iter().flatten().map(|one| format!("{one}, ")).collect())
}

/// Rules, none of which has the same conditions as another, or it might never apply.
fn rules() -> impl Strategy<Value = String> {
    let descriptor = (select(vec!["a", "b"]), prop::option::of(select(vec!["x", "x*", "*"])));
    let rule = (conditions(), -2..3_i32, prop::bool::weighted(0.2), prop::option::weighted(0.15, descriptor));
    prop::collection::vec(rule, 0..25).prop_map(|rules| {
        let mut descriptors = std::collections::HashSet::new();
        let each = rules.into_iter().enumerate().map(|(number, (conditions, priority, stops, descriptor))| {
            let selector = match descriptor.filter(|descriptor| descriptors.insert(*descriptor)) {
                Some((key, None)) => format!("descriptor: [{{ key: {key} }}]"),
                Some((key, Some(value))) => format!("descriptor: [{{ key: {key}, value: '{value}' }}]"),
                None => format!("match: {{ {conditions}own{number}: {{ present: false }} }}, key: []"),
            };
            let then = if stops { "stop" } else { "continue" };
            format!("  - {{ name: r{number}, {selector}, limits: [], priority: {priority}, then: {then} }}\n")
        });
        let rules: String = each.collect();
        format!("namespace: n\nrules:{}", if rules.is_empty() { " []".to_owned() } else { format!("\n{rules}") })
    })
}

fn attribute() -> impl Strategy<Value = (&'static str, Value<'static>)> {
    let texts = select(vec!["x", "y", "", "xy", "z", "10.1.2.3", "2001:db8::1", "5"]);
    let paths =
        select(vec!["/", "/a", "/a/b", "/a/b/c", "/a/b/c/a/b/c/a/b/c/d", "//a/./b/", "/A", "/b?x", "a", "/a/x/b"]);
    let addresses =
        select(vec!["10.1.2.3", "10.9.9.9", "::ffff:10.1.0.1", "2001:db8::1", "2001:db8:1::", "192.0.2.1", "unknown"]);
    prop_oneof![
        (select(vec!["a", "b"]), texts).prop_map(|(name, text)| (name, text.into())),
        (select(vec!["a", "b"]), 4..7_u64).prop_map(|(name, number)| (name, number.into())),
        (0..4_u8).prop_map(|last| ("ip", Value::Address([10, 1, 2, last].into()))),
        paths.prop_map(|path| ("path", path.into())),
        addresses.prop_map(|address| ("ip", address.into())),
        Just(("other", "x".into())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_index_finds_what_a_look_at_every_rule_finds(
        text in rules(),
        requests in prop::collection::vec(prop::collection::vec(attribute(), 0..6), 1..10),
    ) {
        let set = RuleSet::parse(&[Source::new("rules.yaml", text.as_str())]).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let compiled = Compiled::new(set, None, Time::ZERO);
        let namespace = compiled.namespace("n").unwrap();
        for attributes in &requests {
            let attributes = namespace.attributes(&Request::new("n", attributes));
            prop_assert_eq!(quickly(namespace, &attributes), slowly(namespace, &attributes), "{}", text);
        }
    }
}
