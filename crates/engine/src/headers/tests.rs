//! Every dialect as its users know it, and what holds whatever the numbers are.

use super::*;

const NOW: Time = Time::from_nanos(1_700_000_000_500_000_000);

const BURST: Policy<'static> = Policy {
    name: "burst",
    quota: 100,
    window: Some(Duration::from_secs(60)),
    remaining: 50,
    reset_after: Duration::from_secs(30),
    violated: false,
};

const DAILY: Policy<'static> = Policy {
    name: "daily",
    quota: 1000,
    window: Some(Duration::from_secs(86_400)),
    remaining: 980,
    reset_after: Duration::from_secs(36_000),
    violated: false,
};

fn allowed<'a>(policies: &'a [Policy<'a>]) -> Told<'a> {
    Told { policies, retry_after: None, refused: false }
}

fn refused<'a>(policies: &'a [Policy<'a>], millis: u64) -> Told<'a> {
    Told { policies, retry_after: Some(Duration::from_millis(millis)), refused: true }
}

fn lines(dialect: Dialect, told: &Told<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    write(dialect, told, NOW, |name, value| lines.push(format!("{name}: {value}")));
    lines
}

#[test]
fn each_dialect_tells_an_allowed_request_its_own_way() {
    let policies = [BURST, DAILY];
    let expected: [(Dialect, &[&str]); 6] = [
        (
            Dialect::Draft11,
            &[
                r#"ratelimit-policy: "burst";q=100;w=60, "daily";q=1000;w=86400"#,
                r#"ratelimit: "burst";r=50;t=30, "daily";r=980;t=36000"#,
            ],
        ),
        (
            Dialect::Draft7,
            &["ratelimit-policy: 100;w=60, 1000;w=86400", "ratelimit: limit=100, remaining=50, reset=30"],
        ),
        (
            Dialect::Draft6,
            &[
                "ratelimit-policy: 100;w=60, 1000;w=86400",
                "ratelimit-limit: 100",
                "ratelimit-remaining: 50",
                "ratelimit-reset: 30",
            ],
        ),
        (
            Dialect::XRateLimit,
            &[
                r#"x-ratelimit-limit: 100, 100;w=60;name="burst", 1000;w=86400;name="daily""#,
                "x-ratelimit-remaining: 50",
                "x-ratelimit-reset: 30",
            ],
        ),
        (
            Dialect::XRateLimitEpoch,
            &["x-ratelimit-limit: 100", "x-ratelimit-remaining: 50", "x-ratelimit-reset: 1700000031"],
        ),
        (Dialect::None, &[]),
    ];
    for (dialect, expected) in expected {
        assert_eq!(lines(dialect, &allowed(&policies)), expected, "{dialect:?}");
    }
}

#[test]
fn each_dialect_tells_a_refusal_its_own_way() {
    // A bucket that is full again in half a minute, but has the token that was asked for much sooner.
    let policies = [Policy { remaining: 0, violated: true, ..BURST }, DAILY];
    let expected: [(Dialect, &[&str]); 6] = [
        (
            Dialect::Draft11,
            &[
                "retry-after: 2",
                r#"ratelimit-policy: "burst";q=100;w=60, "daily";q=1000;w=86400"#,
                r#"ratelimit: "burst";r=0;t=2"#,
            ],
        ),
        (
            Dialect::Draft7,
            &[
                "retry-after: 2",
                "ratelimit-policy: 100;w=60, 1000;w=86400",
                "ratelimit: limit=100, remaining=0, reset=2",
            ],
        ),
        (
            Dialect::Draft6,
            &[
                "retry-after: 2",
                "ratelimit-policy: 100;w=60, 1000;w=86400",
                "ratelimit-limit: 100",
                "ratelimit-remaining: 0",
                "ratelimit-reset: 2",
            ],
        ),
        (
            Dialect::XRateLimit,
            &[
                "retry-after: 2",
                r#"x-ratelimit-limit: 100, 100;w=60;name="burst", 1000;w=86400;name="daily""#,
                "x-ratelimit-remaining: 0",
                "x-ratelimit-reset: 2",
            ],
        ),
        (
            Dialect::XRateLimitEpoch,
            &[
                "retry-after: 2",
                "x-ratelimit-limit: 100",
                "x-ratelimit-remaining: 0",
                // 1.2 s after half past the second.
                "x-ratelimit-reset: 1700000002",
            ],
        ),
        (Dialect::None, &["retry-after: 2"]),
    ];
    for (dialect, expected) in expected {
        assert_eq!(lines(dialect, &refused(&policies, 1_200)), expected, "{dialect:?}");
    }
}

#[test]
fn dialects_with_room_for_one_tell_about_the_limit_that_refused() {
    let policies = [BURST, Policy { remaining: 0, violated: true, ..DAILY }];
    let told = refused(&policies, 36_000_000);
    assert_eq!(lines(Dialect::Draft7, &told)[2], "ratelimit: limit=1000, remaining=0, reset=36000");
    assert_eq!(lines(Dialect::Draft11, &told)[2], r#"ratelimit: "daily";r=0;t=36000"#);
}

#[test]
fn the_examples_of_other_services_are_matched() {
    let second = Policy { name: "x", quota: 10, window: Some(Duration::from_secs(1)), remaining: 3, ..BURST };
    let told = [Policy { reset_after: Duration::from_secs(12), ..second }];
    let envoy = [r#"x-ratelimit-limit: 10, 10;w=1;name="x""#, "x-ratelimit-remaining: 3", "x-ratelimit-reset: 12"];
    assert_eq!(lines(Dialect::XRateLimit, &allowed(&told)), envoy);

    let ten = [Policy { window: Some(Duration::from_secs(10)), reset_after: Duration::from_secs(5), ..BURST }];
    let express = ["ratelimit-policy: 100;w=10", "ratelimit: limit=100, remaining=50, reset=5"];
    assert_eq!(lines(Dialect::Draft7, &allowed(&ten)), express);
}

#[test]
fn a_request_that_can_never_pass_is_not_told_to_come_back() {
    let policies = [Policy { violated: true, ..BURST }];
    let told = Told { policies: &policies, retry_after: None, refused: true };
    assert_eq!(lines(Dialect::None, &told), [""; 0]);
    assert_eq!(lines(Dialect::Draft11, &told)[1], r#"ratelimit: "burst";r=50;t=30"#);
}

#[test]
fn an_allowed_request_is_not_told_to_come_back() {
    let told = Told { retry_after: Some(Duration::from_secs(9)), ..allowed(&[BURST]) };
    assert_eq!(lines(Dialect::None, &told), [""; 0]);
    assert_eq!(lines(Dialect::Draft6, &told)[3], "ratelimit-reset: 30");
}

#[test]
fn a_refusal_for_another_reason_than_a_limit_tells_no_state() {
    let told = refused(&[BURST], 5_000);
    assert_eq!(lines(Dialect::Draft11, &told), ["retry-after: 5", r#"ratelimit-policy: "burst";q=100;w=60"#]);
    assert_eq!(lines(Dialect::XRateLimit, &told), ["retry-after: 5"]);
}

#[test]
fn nothing_to_tell_is_no_header() {
    for (_, dialect) in Dialect::NAMES {
        assert_eq!(lines(dialect, &allowed(&[])), [""; 0]);
    }
}

#[test]
fn a_limit_without_a_window_has_none() {
    let told = [Policy { window: None, ..BURST }];
    assert_eq!(lines(Dialect::Draft11, &allowed(&told))[0], r#"ratelimit-policy: "burst";q=100"#);
    assert_eq!(lines(Dialect::Draft6, &allowed(&told))[0], "ratelimit-limit: 100");
    assert_eq!(lines(Dialect::XRateLimit, &allowed(&told))[0], r#"x-ratelimit-limit: 100, 100;name="burst""#);
}

#[test]
fn times_are_rounded_up() {
    let nano = Duration::from_nanos(1);
    let told = [Policy { window: Some(nano), reset_after: Duration::from_secs(1) + nano, ..BURST }];
    assert_eq!(
        lines(Dialect::Draft11, &allowed(&told)),
        [r#"ratelimit-policy: "burst";q=100;w=1"#, r#"ratelimit: "burst";r=50;t=2"#]
    );
    for (millis, seconds) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2)] {
        assert_eq!(lines(Dialect::None, &refused(&[], millis)), [format!("retry-after: {seconds}")]);
    }
}

#[test]
fn numbers_stop_where_structured_fields_do() {
    let max = Policy { quota: u64::MAX, remaining: u64::MAX, window: Some(Duration::MAX), ..BURST };
    let told = [Policy { reset_after: Duration::MAX, ..max }];
    let most = "999999999999999";
    let expected =
        [format!(r#"ratelimit-policy: "burst";q={most};w={most}"#), format!(r#"ratelimit: "burst";r={most};t={most}"#)];
    assert_eq!(lines(Dialect::Draft11, &allowed(&told)), expected);
    assert_eq!(lines(Dialect::XRateLimitEpoch, &allowed(&told))[2], "x-ratelimit-reset: 18446744074");
    let never = Told { policies: &told, retry_after: Some(Duration::MAX), refused: true };
    assert_eq!(lines(Dialect::None, &never), [format!("retry-after: {most}")]);
}

#[test]
fn names_are_spelt_as_structured_fields_can() {
    for (name, spelt) in [("", r#""""#), (r#"a"b\c"#, r#""a\"b\\c""#), ("naïve\r\nx: y\x7f", r#""na?ve??x: y?""#)] {
        let told = [Policy { name, ..BURST }];
        assert_eq!(lines(Dialect::Draft11, &allowed(&told))[1], format!("ratelimit: {spelt};r=50;t=30"));
    }
}

#[test]
fn the_parser_of_these_tests_knows_the_examples_of_the_draft() {
    let policies = parse(r#""burst";q=100;w=60, "daily";q=1000;w=86400;qu="requests""#).unwrap();
    let name = |text: &str| Bare::String(text.into());
    assert_eq!(policies[0], (name("burst"), vec![("q".into(), Bare::Integer(100)), ("w".into(), Bare::Integer(60))]));
    assert_eq!(policies[1].1[2], ("qu".into(), name("requests")));
    for wrong in
        ["", "\"a", "\"a\";", "\"a\";q=", "\"a\";Q=1", "\"a\",", "\"a\"x", "\"\\a\"", "1234567890123456", "\"ä\""]
    {
        assert_eq!(parse(wrong), None, "{wrong}");
    }
}

#[test]
fn whatever_is_told_parses_and_keeps_its_promises() {
    let mut seed = 1;
    for _ in 0..20_000 {
        let name = name(&mut seed);
        let policies: Vec<_> = (0..1 + random(&mut seed) % 4).map(|_| policy(&name, &mut seed)).collect();
        let wait = duration(&mut seed);
        let told = Told { policies: &policies, retry_after: Some(wait), refused: random(&mut seed).is_multiple_of(2) };
        keeps_its_promises(&told);
    }
}

fn keeps_its_promises(told: &Told<'_>) {
    let mut retry = None;
    write(Dialect::Draft11, told, NOW, |name, value| match name {
        "retry-after" => retry = value.parse::<u64>().ok(),
        "ratelimit-policy" => assert_eq!(parse(value).unwrap().len(), told.policies.len()),
        "ratelimit" => {
            for (name, parameters) in parse(value).unwrap() {
                assert!(matches!(name, Bare::String(_)));
                let [(r, Bare::Integer(_)), (t, Bare::Integer(reset))] = &parameters[..] else {
                    panic!("{parameters:?}");
                };
                assert_eq!((r.as_str(), t.as_str()), ("r", "t"));
                assert!(retry.is_none_or(|retry| retry >= *reset), "{value} but to be retried after {retry:?}");
            }
        }
        _ => panic!("{name}"),
    });
    assert_eq!(retry.is_some(), told.refused);
    if let (Some(retry), Some(wait)) = (retry, told.retry_after) {
        assert!(retry >= 1);
        assert!(retry == value::LARGEST || Duration::from_secs(retry) >= wait);
        assert!(Duration::from_secs(retry - 1) < wait.max(Duration::from_nanos(1)));
    }
}

/// splitmix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Small ones as likely as large ones.
fn number(seed: &mut u64) -> u64 {
    random(seed) >> (random(seed) % 64)
}

fn duration(seed: &mut u64) -> Duration {
    Duration::new(number(seed), (random(seed) % 1_000_000_000) as u32)
}

fn name(seed: &mut u64) -> String {
    (0..random(seed) % 12).filter_map(|_| char::from_u32((number(seed) % 0x500) as u32)).collect()
}

fn policy<'a>(name: &'a str, seed: &mut u64) -> Policy<'a> {
    Policy {
        name,
        quota: number(seed),
        window: (!random(seed).is_multiple_of(4)).then(|| duration(seed)),
        remaining: number(seed),
        reset_after: duration(seed),
        violated: random(seed).is_multiple_of(2),
    }
}

/// What a structured field may hold, as far as it concerns us (RFC 9651).
#[derive(Debug, PartialEq)]
enum Bare {
    String(String),
    Integer(u64),
}

type Item = (Bare, Vec<(String, Bare)>);

/// A list, by the letter of the RFC's grammar.
fn parse(text: &str) -> Option<Vec<Item>> {
    let mut rest = text;
    let mut items = vec![item(&mut rest)?];
    while !rest.is_empty() {
        rest = rest.strip_prefix(',')?.trim_start_matches([' ', '\t']);
        items.push(item(&mut rest)?);
    }
    Some(items)
}

fn item(rest: &mut &str) -> Option<Item> {
    let value = bare(rest)?;
    let mut parameters = Vec::new();
    while let Some(after) = rest.strip_prefix(';') {
        let end = after.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit()))?;
        let (key, after) = after.split_at(end);
        *rest = after.strip_prefix('=').filter(|_| key.starts_with(|c: char| c.is_ascii_lowercase()))?;
        parameters.push((key.into(), bare(rest)?));
    }
    Some((value, parameters))
}

fn bare(rest: &mut &str) -> Option<Bare> {
    if let Some(after) = rest.strip_prefix('"') {
        *rest = after;
        return string(rest).map(Bare::String);
    }
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, after) = rest.split_at(end);
    *rest = after;
    digits.parse().ok().filter(|_| digits.len() <= 15).map(Bare::Integer)
}

fn string(rest: &mut &str) -> Option<String> {
    let mut text = String::new();
    loop {
        let mut characters = rest.chars();
        match characters.next()? {
            '"' => {
                *rest = characters.as_str();
                return Some(text);
            }
            '\\' => text.push(characters.next().filter(|c| matches!(c, '"' | '\\'))?),
            plain @ ' '..='~' => text.push(plain),
            _ => return None,
        }
        *rest = characters.as_str();
    }
}
