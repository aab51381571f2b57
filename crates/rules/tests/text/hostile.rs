//! Texts that somebody wrote to do harm, or that a program got wrong: an error or a clean load, and soon.

use crate::{parse, parsed, reads_back};
use std::fmt::Write;
use tollgate_limit::Time;
use tollgate_rules::{Compiled, Request};

/// How many rules are many. Without optimisation a tenth is enough to see what grows too fast.
const MANY: usize = if cfg!(debug_assertions) { 10_000 } else { 100_000 };

/// A set of this many rules that differ.
fn many(count: usize) -> String {
    let mut text = "namespace: a\nrules:\n".to_owned();
    for number in 0..count {
        let _ = write!(
            text,
            "  - name: rule-{number}\n    match: {{ path: /v1/{number}/**, method: [GET, POST] }}\n    key: [ip]\n    \
             limits: [{} per second burst 9, 5 per minute using sliding-window]\n",
            number + 1
        );
    }
    text
}

#[test]
fn a_hundred_thousand_rules_load_cleanly() {
    let set = parsed(many(MANY));
    let compiled = Compiled::new(set, None, Time::ZERO);
    let namespace = compiled.namespace("a").unwrap();
    assert_eq!(namespace.rules().len(), MANY);
    let attributes = [("path", "/v1/7777/x".into()), ("method", "GET".into())];
    let mut found = Vec::new();
    namespace.each_match(&namespace.attributes(&Request::new("a", &attributes)), |number| found.push(number));
    assert_eq!(found, [7777]);
}

#[test]
fn a_hundred_thousand_wrong_rules_give_a_report_that_can_be_read() {
    let wrong = many(MANY).replace("limits:", "limts:").replace("path:", "pth:");
    let mistakes = parse(wrong).unwrap_err();
    assert_eq!((mistakes.len(), mistakes.iter().count()), (2 * MANY, 1000));
    assert!(mistakes.to_string().len() < 20_000);
    let (more, all) = (2 * MANY - 50, 2 * MANY);
    assert!(mistakes.to_string().ends_with(&format!("… and {more} more\n\n{all} mistakes; nothing was loaded")));
}

#[test]
fn a_hundred_thousand_rules_that_replace_what_is_not_there_are_reported_soon() {
    let mut text = "namespace: a\nrules:\n".to_owned();
    for number in 0..MANY {
        let _ = writeln!(text, "  - {{ name: rule-{number}, key: [], limits: [], replaces: [role-{number}x] }}");
    }
    assert_eq!(parse(text).unwrap_err().len(), MANY);
}

#[test]
fn long_lists_within_a_rule_are_refused_or_read() {
    let listed = |field: &str, item: &dyn Fn(usize) -> String, count: usize| {
        let items: Vec<String> = (0..count).map(item).collect();
        let key = if field == "key" { "" } else { "key: [], " };
        let limits = if field == "limits" { "" } else { "limits: [], " };
        format!("namespace: a\nrules: [{{ name: a, {key}{limits}{field}: [{}] }}]", items.join(", "))
    };
    assert!(parse(listed("limits", &|n| format!("{} per second", n + 1), 100_000)).is_err());
    assert!(parse(listed("limits", &|n| format!("{} per second", n + 1), 64)).is_ok());
    assert!(parse(listed("key", &|n| format!("a{n}"), 100_000)).is_err());
    assert!(parse(listed("key", &|n| format!("a{n}"), 64)).is_ok());
    let values: Vec<String> = (0..100_000).map(|n| format!("v{n}")).collect();
    let list =
        format!("namespace: a\nrules: [{{ name: a, match: {{ x: [{}] }}, key: [], limits: [] }}]", values.join(", "));
    reads_back(&parsed(list));
}

#[test]
fn many_large_regular_expressions_are_refused_before_they_fill_the_memory() {
    let mut text = "namespace: a\nrules:\n".to_owned();
    for number in 0..1000 {
        let _ = writeln!(
            text,
            "  - {{ name: r{number}, match: {{ a: {{ regex: '(?:x{{0,200}}){{0,200}}{number}' }} }}, key: [], limits: [] }}"
        );
    }
    says(text, "take up too much memory");
}

fn says(text: impl AsRef<str>, problem: &str) {
    let mistakes = parse(text).unwrap_err();
    assert!(mistakes.iter().any(|mistake| mistake.problem().contains(problem)), "{mistakes}");
}

#[test]
fn bombs_of_aliases_do_not_go_off() {
    let bomb = |item: &str| {
        let mut text = format!("a0: &a0 {item}\n");
        for level in 1..40 {
            let before = level - 1;
            let _ = writeln!(text, "a{level}: &a{level} [*a{before}, *a{before}, *a{before}, *a{before}]");
        }
        text
    };
    says(bomb("[x, x]"), "add up to too much");
    let mut merges = "a0: &a0 { x0: 1 }\n".to_owned();
    for level in 1..40 {
        let before = level - 1;
        let _ = writeln!(
            merges,
            "a{level}: &a{level} {{ <<: [*a{before}, *a{before}, *a{before}], l: *a{before}, r: *a{before} }}"
        );
    }
    says(merges, "add up to too much");
    let mut chain = "a0: &a0 [x]\n".to_owned();
    (1..200).for_each(|level| {
        let _ = writeln!(chain, "a{level}: &a{level} [*a{}]", level - 1);
    });
    says(chain, "nested too deeply");
    let nested_anchors: String = (0..40).map(|level| format!("&a{level} [")).collect();
    says(format!("{nested_anchors}{}{}", "x, ".repeat(100_000), "]".repeat(40)), "add up to too much");
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    for (open, close) in
        [("[", "]"), ("{a: ", "}"), ("[[[{? ", ""), ("- ", ""), ("? ", ""), ("a: [", "]"), ("{{", "}}")]
    {
        assert!(parse(format!("{}{}", open.repeat(10_000), close.repeat(10_000))).is_err());
        assert!(parse(open.repeat(10_000)).is_err());
    }
    let mut block = String::new();
    for depth in 0..3000 {
        let _ = writeln!(block, "{}a:", " ".repeat(depth));
    }
    says(block, "nested too deeply");
}

#[test]
fn huge_scalars_and_numbers_are_read_or_refused() {
    let size = if cfg!(debug_assertions) { 1 << 14 } else { 1 << 20 };
    let long = "x".repeat(size);
    let digits = "9".repeat(size);
    let rule = |fields: &str| format!("namespace: a\nrules: [{{ name: a, key: [], limits: [], {fields} }}]");
    reads_back(&parsed(rule(&format!("description: {long}"))));
    reads_back(&parsed(rule(&format!("metadata: [{digits}, {long}]"))));
    for field in [
        "match: { HUGE: 1 }",
        "priority: HUGE",
        "cost: HUGE",
        "over: HUGE",
        "then: HUGE",
        "HUGE: 1",
        "replaces: [HUGE]",
    ] {
        for huge in [&long, &digits] {
            let mistakes = parse(rule(&field.replace("HUGE", huge))).unwrap_err();
            assert!(mistakes.to_string().len() < 2000, "{field}");
        }
    }
    for limit in [
        &long,
        &digits,
        &format!("{digits} per second"),
        &format!("5 per {digits} seconds"),
        &format!("5 per second burst {digits}"),
    ] {
        let mistakes = parse(format!("namespace: a\nrules: [{{ name: a, key: [], limits: [{limit}] }}]")).unwrap_err();
        assert!(mistakes.to_string().len() < 2000);
    }
    if !cfg!(debug_assertions) {
        says(format!("namespace: {}", " ".repeat(65 << 20)), "too large");
    }
}

#[test]
fn nothing_behind_a_nul_is_lost_unseen() {
    says("namespace: a\nrules: []\n\0\nno_match: refuse\n", "NUL");
    says("namespace: a\0\nrules: []\n", "NUL");
}

#[test]
fn byte_order_marks_and_line_ends_of_all_kinds_are_read() {
    let text = "namespace: a\nrules:\n  - name: b\n    key: []\n    limits: [5 per minute]\n";
    let expected = parsed(text);
    assert_eq!(parsed(format!("\u{feff}{text}")), expected);
    assert_eq!(parsed(text.replace('\n', "\r\n")), expected);
    assert_eq!(parsed(text.replace('\n', "\r")), expected);
}

#[test]
fn an_empty_file_is_not_an_empty_set_of_rules() {
    for text in ["", "\n\n", "# nothing\n", "\u{feff}", "---\n", "...\n", "null", "{}", "[]"] {
        assert!(parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn json_is_read_with_all_its_escapes() {
    let set = parsed(r#"{"namespace": "\ud83d\ude00\u00e9\/\"\\\t".., "rules": []}"#.replace("\\t\"..", "\""));
    assert_eq!(&*set.namespaces[0].name, "😀é/\"\\");
    assert!(parse(r#"{"namespace": "\ud83d", "rules": []}"#).is_err());
    let kept = parsed(r#"{"namespace": "\\ud83d\\ude00", "rules": []}"#);
    assert_eq!(&*kept.namespaces[0].name, r"\ud83d\ude00");
}

#[test]
fn very_many_mistakes_in_yaml_itself_are_counted_not_kept() {
    let mut text = "namespace: a\nrules: []\n".to_owned();
    (0..200_000).for_each(|_| text.push_str("a: 1\n"));
    let mistakes = parse(text).unwrap_err();
    assert!(mistakes.len() >= 199_999 && mistakes.iter().count() == 1000);
}
