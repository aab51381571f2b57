//! Behaviours that once broke.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot be set up has failed")]

use tollgate_limit::Time;
use tollgate_rules::{Compiled, CompiledLimits, Request, RuleSet, Source, Value};

fn compile(rules: &str) -> Compiled {
    let text = format!("namespace: n\nrules:\n{rules}");
    Compiled::new(RuleSet::parse(&[Source::new("rules.yaml", text)]).unwrap(), None, Time::ZERO)
}

fn matched(rules: &Compiled, attributes: &[(&str, Value<'_>)]) -> Vec<String> {
    let namespace = rules.namespace("n").unwrap();
    let mut names = Vec::new();
    namespace.each_match(&namespace.attributes(&Request::new("n", attributes)), |number| {
        names.push(namespace.rules()[number as usize].rule().name.to_string());
    });
    names
}

#[test]
fn an_address_is_not_an_empty_text() {
    let rules = compile(
        "  - { name: empty, match: { a: '' }, key: [], limits: [1 per second] }\n  - { name: any, match: { a: '*' }, key: [], limits: [1 per second] }\n",
    );
    assert_eq!(matched(&rules, &[("a", "".into())]), ["empty", "any"]);
    assert!(matched(&rules, &[("a", Value::Address([10, 0, 0, 1].into()))]).is_empty());
}

#[test]
fn a_value_that_is_spelt_like_a_wildcard_is_found_before_wildcards() {
    let rules = compile(
        "  - { name: any, descriptor: [{ key: a, value: '*' }], limits: [1 per second] }
  - { name: b, descriptor: [{ key: a, value: 'b*' }], limits: [1 per second] }\n",
    );
    assert_eq!(matched(&rules, &[("a", "bc".into())]), ["any"]);
    assert_eq!(matched(&rules, &[("a", "b*".into())]), ["b"]);
}

#[test]
fn overrides_of_descriptors_apply_to_what_was_sent() {
    let rules = compile(
        "  - name: by-address
    descriptor: [{ key: ip }, { key: path }]
    limits: [1 per second]
    overrides: [{ client: { ip: 10.0.0.1, path: /a/ }, limits: unlimited }]\n",
    );
    let namespace = rules.namespace("n").unwrap();
    let attributes = [("ip", "10.0.0.1".into()), ("path", "/a/".into())];
    let attributes = namespace.attributes(&Request::new("n", &attributes));
    let rule = &namespace.rules()[0];
    assert_eq!(*rule.limits(&attributes), CompiledLimits::Unlimited);
}
