//! The bodies as clients see them.

use super::*;
use crate::headers::Policy;
use std::time::Duration;

fn policy(name: &str, violated: bool) -> Policy<'_> {
    Policy { name, quota: 1, window: None, remaining: 0, reset_after: Duration::ZERO, violated }
}

fn body(kind: Kind, policies: &[Policy<'_>], retry_after: Option<Duration>) -> String {
    let mut body = String::new();
    write(&Problem { kind, told: &Told { policies, retry_after, refused: true } }, &mut body);
    body
}

fn detail_of(kind: Kind, names: &[&str], wait: Option<u64>) -> String {
    let policies: Vec<_> = names.iter().map(|name| policy(name, true)).collect();
    let body = body(kind, &policies, wait.map(Duration::from_secs));
    let (_, after) = body.split_once(r#""detail":""#).unwrap();
    after.split_once(r#"","violated-policies""#).unwrap().0.into()
}

#[test]
fn a_body_is_compact_json_with_all_members() {
    let policies = [policy("burst", true), policy("daily", false), policy("hourly", true)];
    assert_eq!(
        body(Kind::QuotaExceeded, &policies, Some(Duration::from_millis(29_001))),
        concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Quota Exceeded","status":429,"#,
            r#""detail":"The limits \"burst\", \"hourly\" have been reached. Try again in 30 seconds.","#,
            r#""violated-policies":["burst","hourly"],"retry-after":30}"#,
        )
    );
}

#[test]
fn each_kind_has_its_type_and_status() {
    for (kind, name, status) in [
        (Kind::QuotaExceeded, "quota-exceeded", 429),
        (Kind::ReducedCapacity, "temporary-reduced-capacity", 503),
        (Kind::Unavailable, "temporary-reduced-capacity", 503),
        (Kind::AbnormalUsage, "abnormal-usage-detected", 429),
    ] {
        let body = body(kind, &[], None);
        assert!(body.starts_with(&format!(r#"{{"type":"https://iana.org/assignments/http-problem-types#{name}","#)));
        assert!(body.contains(&format!(r#","status":{status},"#)));
        assert!(body.ends_with(r#","violated-policies":[]}"#), "{body}");
    }
}

#[test]
fn the_detail_says_what_happened_and_what_to_do() {
    let limit = Kind::QuotaExceeded;
    for (detail, expected) in [
        (detail_of(limit, &["a"], Some(1)), r#"The limit \"a\" has been reached. Try again in 1 second."#),
        (
            detail_of(limit, &["a"], None),
            r#"The limit \"a\" has been reached. Asking for the same again will not help."#,
        ),
        (detail_of(limit, &[], Some(9)), "The request is not within any quota. Try again in 9 seconds."),
        (detail_of(Kind::ReducedCapacity, &[], None), "The service is at its capacity."),
        (
            detail_of(Kind::Unavailable, &[], Some(1)),
            "The service cannot tell at present what you have used. Try again in 1 second.",
        ),
        (detail_of(Kind::AbnormalUsage, &["a"], Some(60)), "Unusual use was detected. Try again in 60 seconds."),
    ] {
        assert_eq!(detail, expected);
    }
}

#[test]
fn waits_are_spoken_as_a_person_would_and_never_too_short() {
    for (seconds, spoken) in [
        (1, "1 second"),
        (119, "119 seconds"),
        (120, "2 minutes"),
        (121, "3 minutes"),
        (7_199, "120 minutes"),
        (7_200, "2 hours"),
        (172_800, "2 days"),
        (172_801, "3 days"),
    ] {
        assert_eq!(Spoken(seconds).to_string(), spoken);
    }
}

#[test]
fn names_cannot_break_out_of_their_string() {
    let name = "q\"b\\n\nr\rt\tz\0e\x1b é\u{2028}";
    let escaped = "q\\\"b\\\\n\\nr\\rt\\tz\\u0000e\\u001b é\u{2028}";
    let body = body(Kind::QuotaExceeded, &[policy(name, true)], None);
    assert!(body.ends_with(&format!(r#""violated-policies":["{escaped}"]}}"#)), "{body}");
    assert!(body.contains(&format!(r#"The limit \"{escaped}\" has been reached."#)), "{body}");
}
