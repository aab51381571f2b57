//! Rules to decide by.

use std::fmt::Write;
use tollgate::{RuleSet, Source};

/// The namespace of all of them.
pub const NAMESPACE: &str = "bench";

/// One rule: one limit, one condition, one attribute in the key.
pub fn one() -> RuleSet {
    parse("  - { name: get, match: { method: GET }, key: [user], limits: [10 per second burst 100000000] }\n")
}

/// So many rules, each for an operation, a path and a network of its own; every one with the given limits.
pub fn many(count: usize, limits: &str) -> RuleSet {
    let mut text = String::new();
    for number in 0..count {
        let condition = match number % 3 {
            0 => format!("operation: op-{number}"),
            1 => format!("path: \"/v1/things-{number}/**\""),
            _ => format!("ip: 10.{}.{}.0/24", number / 256 % 256, number % 256),
        };
        let _ =
            writeln!(text, "  - {{ name: rule-{number}, match: {{ {condition} }}, key: [user], limits: [{limits}] }}");
    }
    parse(&text)
}

fn parse(rules: &str) -> RuleSet {
    let text = format!("namespace: {NAMESPACE}\nrules:\n{rules}");
    RuleSet::parse(&[Source::new("bench", text)]).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}
