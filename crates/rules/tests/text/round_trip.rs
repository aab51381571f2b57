//! Whatever our own format can say is written so that it is read as the same.

use crate::{parsed, reads_back};
use proptest::prelude::*;
use proptest::sample::select;

/// A text in quotes, whatever is in it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        select(vec!["", "null", "~", "1", "true", " a ", "*", "a*b", "#", "- x", "\u{85}\u{2028}\u{feff}\u{7f}\r\n\t"])
            .prop_map(str::to_owned)
    ]
    .prop_map(|text| quoted(&text.replace('\0', "")))
}

fn any_name() -> impl Strategy<Value = String> {
    "[ -~é日]{1,20}".prop_map(|name| quoted(&name))
}

fn words(words: &[&'static str]) -> impl Strategy<Value = String> + use<> {
    select(words.to_vec()).prop_map(str::to_owned)
}

fn joined(items: impl Strategy<Value = Vec<String>>) -> impl Strategy<Value = String> {
    items.prop_map(|items| format!("[{}]", items.join(", ")))
}

fn some(of: impl Strategy<Value = String>, least: usize) -> impl Strategy<Value = String> {
    joined(prop::collection::vec(of, least..4))
}

fn condition(value: BoxedStrategy<String>, kinds: &'static [&'static str]) -> impl Strategy<Value = String> {
    let one_or_more = prop_oneof![value.clone(), some(value, 1)].boxed();
    let in_full =
        (select(kinds.to_vec()), one_or_more.clone()).prop_map(|(kind, values)| format!("{{ {kind}: {values} }}"));
    prop_oneof![one_or_more, in_full, any::<bool>().prop_map(|present| format!("{{ present: {present} }}"))]
}

fn regex() -> impl Strategy<Value = String> {
    words(&["'v[0-9]+|beta'", "'(?i)a.*'", "''", "'[^/]+'", r"'\\.x'"])
        .prop_map(|regex| format!("{{ regex: {regex} }}"))
}

/// Conditions on attributes that are understood, and on any others; in any order.
fn matched() -> impl Strategy<Value = String> {
    let network = words(&["10.0.0.0/8", "192.0.2.1", "'2001:db8::/32'", "0.0.0.0/0"]).boxed();
    let path = words(&["/", "/v1", "/v1/**", "'/*/x'", "'/**/edit'", "/a%20b"]).boxed();
    let fingerprint = words(&["'sha256:8ef1f0aafe1d3fb6ab37a6dffd8ebe29'"]).boxed();
    let parts = [
        condition(network.clone(), &["not", "cidr"]).prop_map(|c| format!("ip: {c}")).boxed(),
        condition(path, &["not", "glob"]).prop_map(|c| format!("path: {c}")).boxed(),
        condition(fingerprint, &["not", "exact"]).prop_map(|c| format!("api_key: {c}")).boxed(),
        condition(any_text().boxed(), &["not", "exact", "glob"]).prop_map(|c| format!("z: {c}")).boxed(),
        prop_oneof![regex(), network.prop_map(|network| format!("{{ cidr: {network} }}"))]
            .prop_map(|c| format!("b: {c}"))
            .boxed(),
        Just("path: { exact: '/*' }".to_owned()).boxed(),
    ];
    let each: Vec<_> = parts.into_iter().map(prop::option::of).collect();
    (each, any::<prop::sample::Index>()).prop_map(|(parts, turn)| {
        let mut parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.iter().filter(|part| part.starts_with("path")).count() > 1 {
            parts.pop();
        }
        if !parts.is_empty() {
            let turn = turn.index(parts.len());
            parts.rotate_left(turn);
        }
        parts.join(", ")
    })
}

fn duration() -> impl Strategy<Value = String> {
    (1_u64..5000, select(vec!["ns", "us", "ms", "s", "min", "h"])).prop_map(|(count, unit)| format!("{count}{unit}"))
}

fn limit(number: u64) -> impl Strategy<Value = String> {
    let period = words(&["second", "minute", "5 hours", "day", "3 weeks", "250ms"]);
    let algorithm = prop_oneof![
        words(&[
            "",
            " burst 900",
            " using token-bucket",
            " using leaky-bucket",
            " using leaky-queue",
            " using fixed-window"
        ]),
        words(&[" using sliding-window", " using sliding-log", " using sliding-log counting-refused"]),
        duration().prop_map(|gap| format!(" using sliding-log gap {gap}")),
        duration().prop_map(|wait| format!(" using cycles wait {wait}")),
        (1..50_u32).prop_map(|wait| format!(" using smooth-bursty wait {wait}ms")),
        (1..50_u32).prop_map(|warm_up| format!(" using smooth-warming-up warm-up {warm_up}s")),
    ];
    let rolling = (period, algorithm).prop_map(move |(period, algorithm)| format!("{number} per {period}{algorithm}"));
    let calendar = words(&["minute", "hour", "day", "week", "month", "year"]);
    let calendar = (calendar, words(&["", " at +09:00", " at -00:30", " at +00:00"]))
        .prop_map(move |(unit, at)| format!("{number} per {unit} using calendar-window{at}"));
    let ban = (1..100_u64).prop_map(move |seconds| format!("0 per {} seconds", 3 * seconds + number));
    let plain = prop_oneof![4 => rolling, 1 => calendar, 1 => ban];
    let named = plain.clone().prop_map(move |limit| format!("{{ limit: {limit}, name: 'limit {number}' }}"));
    prop_oneof![plain, named]
}

fn limits() -> impl Strategy<Value = String> {
    let each = (limit(1), limit(2), limit(3), 0..4_usize)
        .prop_map(|(a, b, c, count)| format!("[{}]", [a, b, c][..count.min(3)].join(", ")));
    prop_oneof![4 => each, 1 => Just("unlimited".to_owned())]
}

fn tiers() -> impl Strategy<Value = String> {
    (limits(), limits(), any_name())
        .prop_map(|(one, other, name)| format!("{{ plan: {{ zebra: {one}, a{}: {other} }} }}", name.len()))
}

/// What a rule may say besides whom it concerns.
fn optional() -> impl Strategy<Value = Vec<String>> {
    let field = |name: &'static str, value: BoxedStrategy<String>| {
        prop::option::of(value.prop_map(move |value| format!("{name}: {value}")))
    };
    let metadata = prop_oneof![
        any_text(),
        (any_text(), any::<i64>(), any::<f64>().prop_filter("JSON has no others", |n| n.is_finite()), any_name())
            .prop_map(|(text, whole, part, name)| format!(
                "{{ no name is like this: [{text}, {whole}, {part:e}], {name}: {{ b: true, c: null }} }}"
            )),
    ];
    let cost = prop_oneof![
        any::<u64>().prop_map(|cost| cost.to_string()),
        any_name(),
        (any_name(), 1..u64::MAX)
            .prop_map(|(name, max)| format!("{{ attribute: {name}, max: {max}, default: {} }}", max / 2)),
    ];
    let over = prop_oneof![
        words(&["reject", "reject with 503", "drop", "shadow", "queue up to 1 hour"]),
        (1..3000_u32, 1..u64::MAX).prop_map(|(wait, depth)| format!("queue up to {wait}ms and {depth} deep")),
    ];
    vec![
        field("description", any_text().boxed()),
        field("limits", limits().boxed()),
        field("tiers", tiers().boxed()),
        field("cost", cost.boxed()),
        field("priority", any::<i32>().prop_map(|priority| priority.to_string()).boxed()),
        field("then", words(&["continue", "stop"]).boxed()),
        field("over", over.boxed()),
        field("on_failure", words(&["allow", "local", "refuse"]).boxed()),
        field("shared", words(&["local", "cluster", "store-exact"]).boxed()),
        field("error_budget", words(&["0%", "2.5%", "100%"]).boxed()),
        field(
            "headers",
            words(&["draft-11", "draft-7", "draft-6", "x-ratelimit", "x-ratelimit-epoch", "none"]).boxed(),
        ),
        field("quota_mode", words(&["true", "false"]).boxed()),
        field("metadata", metadata.boxed()),
    ]
    .prop_map(|fields| fields.into_iter().flatten().collect())
}

/// Whom a rule concerns: each rule has something of its own, so that none takes the requests of another.
fn concerned(number: usize) -> impl Strategy<Value = String> {
    let matched = matched().prop_map(move |conditions| format!("match: {{ own{number}: x, {conditions} }}"));
    let clients = "overrides: [{ client: { login: '', ip: '::1' }, limits: unlimited }, { client: { ip: 192.0.2.1, login: bob }, limits: [9 per hour] }]";
    let keys = words(&["key: []", "key: [ip]", "key: ['x y', login, ip]"]);
    let keys = prop_oneof![3 => keys, 1 => Just(format!("key: [ip, login], {clients}"))];
    let descriptor = (any_text(), any_name(), any::<bool>()).prop_map(move |(value, key, shared)| {
        format!("descriptor: [{{ key: own{number} }}, {{ key: {key}, value: {value} }}, {{ key: f, value: 'x*', shared: {shared} }}]")
    });
    prop_oneof![4 => (matched, keys).prop_map(|(matched, keys)| format!("{matched}, {keys}")), 1 => descriptor]
}

fn rule(number: usize) -> impl Strategy<Value = String> {
    (concerned(number), optional()).prop_map(move |(concerned, mut fields)| {
        if !fields.iter().any(|field| field.starts_with("limits")) {
            fields.push("limits: []".to_owned());
        }
        let replaces = if number > 0 { ", replaces: ['rule 0']" } else { "" };
        format!("  - {{ name: 'rule {number}', {concerned}, {}{replaces} }}\n", fields.join(", "))
    })
}

fn identity() -> impl Strategy<Value = String> {
    let path = (any::<bool>(), any::<bool>(), any::<bool>(), words(&["separator", "keep"]), words(&["[]", "[.json]", "[.b, .a]"]))
        .prop_map(|(keep, drop, fold, slash, suffixes)| {
            format!("{{ keep_trailing_slash: {keep}, drop_parameters: {drop}, encoded_slash: {slash}, suffixes: {suffixes}, fold_case: {fold} }}")
        });
    (path, 0..=32_u8, words(&["forwarded", "x-forwarded-for"]), 1..=32_u8, 1..=128_u8, any::<bool>()).prop_map(
        |(path, hops, forwarded, v4, v6, headers)| {
            let headers = if headers { ", api_key: authorization, login: X-User" } else { "" };
            format!(
                "identity: {{ path: {path}, hops: {hops}, forwarded: {forwarded}, ipv4_prefix: {v4}, ipv6_prefix: {v6}, \
                 trusted_proxies: [10.0.0.0/8, '::1']{headers} }}\n"
            )
        },
    )
}

fn namespace(number: usize) -> impl Strategy<Value = String> {
    let rules = (rule(0), rule(1), rule(2), 0..4_usize).prop_map(|(a, b, c, count)| match count {
        0 => "rules: []\n".to_owned(),
        count => format!("rules:\n{}", [a, b, c][..count].concat()),
    });
    let head = (prop::option::of(identity()), words(&["allow", "refuse"]), words(&["draft-11", "none"]));
    (head, rules).prop_map(move |((identity, no_match, headers), rules)| {
        format!(
            "namespace: 'n {number}'\nno_match: {no_match}\nheaders: {headers}\n{}{rules}",
            identity.unwrap_or_default()
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn rules_read_the_same_when_they_are_written_again(one in namespace(0), other in namespace(1)) {
        reads_back(&parsed(format!("{one}---\n{other}")));
    }
}
