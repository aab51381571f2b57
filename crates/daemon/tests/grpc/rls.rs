//! What Envoy asks: `envoy.service.ratelimit.v3`.

use crate::messages::rls::{Descriptor, Entry, Limit, Override, RateLimitRequest, RateLimitResponse, Status};
use crate::server::{Client, SHOULD_RATE_LIMIT, Server};
use tonic::Code;

const OK: i32 = 1;
const OVER_LIMIT: i32 = 2;
const MINUTE: i32 = 2;
const HOUR: i32 = 3;
const WEEK: i32 = 7;

pub(crate) fn descriptor(entries: &[(&str, &str)]) -> Descriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    Descriptor { entries: entries.iter().map(entry).collect(), ..Descriptor::default() }
}

fn request(domain: &str, descriptors: &[Descriptor]) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors: descriptors.to_vec(), hits_addend: 0 }
}

async fn ask(client: &mut Client, request: RateLimitRequest) -> RateLimitResponse {
    client.call(SHOULD_RATE_LIMIT, request).await.unwrap()
}

fn plain(code: i32) -> Status {
    Status { code, ..Status::default() }
}

fn limited(code: i32, (requests_per_unit, unit, name): (u32, i32, &str), remaining: u32, seconds: i64) -> Status {
    Status {
        code,
        current_limit: Some(Limit { requests_per_unit, unit, name: name.to_owned() }),
        limit_remaining: remaining,
        duration_until_reset: Some(prost_types::Duration { seconds, nanos: 0 }),
    }
}

const OURS: &str = "
namespace: shop
rules:
  - { name: logins, match: { op: login }, key: [ip], limits: [3 per minute using fixed-window] }
  - { name: odd, match: { op: odd }, key: [], limits: [10 per 5m] }
  - { name: watched, match: { op: watched }, key: [], limits: [1 per hour using fixed-window], over: shadow }
  - { name: patient, match: { op: patient }, key: [], limits: [1 per second], over: queue up to 5s }
  - { name: free, match: { op: free }, key: [], limits: unlimited }
  - { name: two, match: { op: two }, key: [], limits: [5 per hour using fixed-window, 2 per minute using fixed-window] }
";

#[tokio::test]
async fn h2_rules_of_our_own_limit_envoy_with_one_status_per_descriptor_in_order() {
    let server = Server::start(OURS).await;
    let mut client = server.client().await;
    let login = descriptor(&[("op", "login"), ("ip", "192.0.2.1")]);
    let both = request("shop", &[login.clone(), descriptor(&[("op", "unheard of")])]);
    for left in (0..3).rev() {
        let response = ask(&mut client, both.clone()).await;
        let logins = limited(OK, (3, MINUTE, "logins"), left, 30);
        assert_eq!(response, RateLimitResponse { overall_code: OK, statuses: vec![logins, plain(OK)] });
    }
    let response = ask(&mut client, both).await;
    let logins = limited(OVER_LIMIT, (3, MINUTE, "logins"), 0, 30);
    assert_eq!(response, RateLimitResponse { overall_code: OVER_LIMIT, statuses: vec![logins, plain(OK)] });
    let another = request("shop", &[descriptor(&[("op", "login"), ("ip", "192.0.2.2")])]);
    assert_eq!(ask(&mut client, another).await.overall_code, OK);
    server.hands.advance(std::time::Duration::from_secs(30));
    assert_eq!(ask(&mut client, request("shop", &[login])).await.overall_code, OK);
    assert_eq!(server.meter().questions.load(std::sync::atomic::Ordering::Relaxed), 6);
}

#[tokio::test]
async fn the_descriptors_of_a_request_pay_together_or_not_at_all() {
    let server = Server::start(OURS).await;
    let mut client = server.client().await;
    let login = |ip| descriptor(&[("op", "login"), ("ip", ip)]);
    let many = RateLimitRequest { hits_addend: 3, ..request("shop", &[login("192.0.2.1")]) };
    assert_eq!(ask(&mut client, many).await.overall_code, OK);
    let both = request("shop", &[login("192.0.2.2"), login("192.0.2.1")]);
    let refused = ask(&mut client, both).await;
    assert_eq!(refused.overall_code, OVER_LIMIT);
    assert_eq!(refused.statuses.iter().map(|status| status.code).collect::<Vec<_>>(), [OK, OVER_LIMIT]);
    assert_eq!(refused.statuses[0].limit_remaining, 3, "the first one has not paid");
}

#[tokio::test]
async fn hits_are_the_descriptors_or_else_the_requests_or_else_one() {
    let server = Server::start(OURS).await;
    let mut client = server.client().await;
    let login = descriptor(&[("op", "login"), ("ip", "192.0.2.1")]);
    let hits = |of_request, of_descriptor| RateLimitRequest {
        hits_addend: of_request,
        ..request("shop", &[Descriptor { hits_addend: of_descriptor, ..login.clone() }])
    };
    let expected = [
        (hits(7, Some(0)), OK, 3),
        (hits(0, None), OK, 2),
        (hits(9, Some(1)), OK, 1),
        (hits(2, None), OVER_LIMIT, 0),
        (hits(1, None), OK, 0),
        (hits(0, Some(0)), OK, 0),
        (hits(0, Some(u64::MAX)), OVER_LIMIT, 0),
    ];
    for (request, code, left) in expected {
        let response = ask(&mut client, request.clone()).await;
        assert_eq!((response.overall_code, response.statuses[0].limit_remaining), (code, left), "{request:?}");
    }
}

#[tokio::test]
async fn odd_periods_shadows_and_unlimited_rules_are_told_as_envoy_can_be_told() {
    let server = Server::start(OURS).await;
    let mut client = server.client().await;
    let statuses = async |client: &mut Client, ops: &[&str]| {
        let descriptors: Vec<_> = ops.iter().map(|op| descriptor(&[("op", op)])).collect();
        ask(client, request("shop", &descriptors)).await
    };
    let first = statuses(&mut client, &["odd", "watched", "free", "two"]).await;
    let free = Status { code: OK, limit_remaining: u32::MAX, ..Status::default() };
    let expected = [
        limited(OK, (10, 0, "odd"), 9, 30),
        limited(OK, (1, HOUR, "watched"), 0, 3570),
        free.clone(),
        limited(OK, (2, MINUTE, "two.2"), 1, 30),
    ];
    assert_eq!((first.overall_code, &first.statuses[..]), (OK, &expected[..]));
    let again = statuses(&mut client, &["watched", "free", "nothing", "free"]).await;
    let shadow = limited(OK, (1, HOUR, "watched"), 0, 3570);
    assert_eq!((again.overall_code, again.statuses), (OK, vec![shadow, free.clone(), plain(OK), free.clone()]));
    assert_eq!(statuses(&mut client, &["free"]).await.statuses, std::slice::from_ref(&free));
    assert_eq!(statuses(&mut client, &["nothing", "free"]).await.statuses, [plain(OK), free]);
}

#[tokio::test]
async fn who_would_have_to_wait_is_refused_and_pays_nothing() {
    let server = Server::start(OURS).await;
    let mut client = server.client().await;
    let patient = request("shop", &[descriptor(&[("op", "patient")])]);
    assert_eq!(ask(&mut client, patient.clone()).await.overall_code, OK);
    for _ in 0..20 {
        let refused = ask(&mut client, patient.clone()).await;
        assert_eq!((refused.overall_code, refused.statuses[0].code), (OVER_LIMIT, OVER_LIMIT));
    }
    server.hands.advance(std::time::Duration::from_secs(1));
    assert_eq!(ask(&mut client, patient).await.overall_code, OK);
}

/// As envoyproxy/ratelimit has it.
const ENVOYS: &str = "
domain: mongo_cps
descriptors:
  - key: database
    value: users
    rate_limit: { unit: hour, requests_per_unit: 2, name: users }
  - key: database
    rate_limit: { unit: week, requests_per_unit: 5 }
    descriptors:
      - key: table
        value: secret
        rate_limit: { unit: minute, requests_per_unit: 0 }
      - key: table
        value: open
        rate_limit: { unlimited: true }
  - key: watched
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: listed
  - key: cheap
    rate_limit: { unit: hour, requests_per_unit: 1, name: cheaper, replaces: [{ name: users }] }
  - key: quota
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

#[tokio::test]
async fn h2_a_configuration_of_envoyproxy_ratelimit_is_answered_as_there() {
    let server = Server::start(ENVOYS).await;
    let mut client = server.client().await;
    let mut answer = async |descriptors: &[&[(&str, &str)]]| {
        let descriptors: Vec<_> = descriptors.iter().map(|entries| descriptor(entries)).collect();
        let response = ask(&mut client, request("mongo_cps", &descriptors)).await;
        (response.overall_code, response.statuses)
    };
    let users: &[_] = &[("database", "users")];
    assert_eq!(answer(&[users]).await, (OK, vec![limited(OK, (2, HOUR, "users"), 1, 3570)]));
    assert_eq!(answer(&[users]).await, (OK, vec![limited(OK, (2, HOUR, "users"), 0, 3570)]));
    assert_eq!(answer(&[users]).await, (OVER_LIMIT, vec![limited(OVER_LIMIT, (2, HOUR, "users"), 0, 3570)]));
    // Limits without a name have none, and each value of a key without one is counted by itself.
    for name in ["a", "b"] {
        let until_thursday = 604_800 - 1_800_000_030 % 604_800;
        let weekly = limited(OK, (5, WEEK, ""), 4, until_thursday);
        assert_eq!(answer(&[&[("database", name)]]).await, (OK, vec![weekly]));
    }
    let banned = limited(OVER_LIMIT, (0, MINUTE, ""), 0, 30);
    assert_eq!(answer(&[&[("database", "a"), ("table", "secret")]]).await, (OVER_LIMIT, vec![banned]));
    let unlimited = Status { code: OK, limit_remaining: u32::MAX, ..Status::default() };
    assert_eq!(answer(&[&[("database", "a"), ("table", "open")]]).await, (OK, vec![unlimited]));
    for entries in [&[("listed", "x")][..], &[("database", "a"), ("table", "other")], &[("nothing", "x")]] {
        assert_eq!(answer(&[entries]).await, (OK, vec![plain(OK)]), "{entries:?}");
    }
    for _ in 0..3 {
        assert_eq!(answer(&[&[("watched", "x")]]).await, (OK, vec![limited(OK, (1, HOUR, ""), 0, 3570)]));
    }
    // What is replaced is neither charged nor told of, though it would refuse.
    let cheap = limited(OK, (1, HOUR, "cheaper"), 0, 3570);
    assert_eq!(answer(&[users, &[("cheap", "x")]]).await, (OK, vec![plain(OK), cheap]));
    // Quotas refuse only together.
    let quota = |code, left| limited(code, (1, HOUR, ""), left, 3570);
    assert_eq!(answer(&[&[("quota", "a")]]).await, (OK, vec![quota(OK, 0)]));
    let one_left = answer(&[&[("quota", "a")], &[("quota", "b")]]).await;
    assert_eq!(one_left, (OK, vec![quota(OVER_LIMIT, 0), quota(OK, 0)]));
    assert_eq!(answer(&[&[("quota", "a")], &[("quota", "b")]]).await.0, OVER_LIMIT);
    let unknown = ask(&mut client, request("elsewhere", &[descriptor(users)])).await;
    assert_eq!((unknown.overall_code, unknown.statuses), (OK, vec![plain(OK)]));
}

#[tokio::test]
async fn a_limit_that_comes_with_a_descriptor_applies_instead_of_the_rules() {
    let server = Server::start(ENVOYS).await;
    let mut client = server.client().await;
    let limit = |requests_per_unit, unit| Some(Override { requests_per_unit, unit });
    let users = descriptor(&[("database", "users")]);
    let own = |entries: &[(&str, &str)], limit| Descriptor { limit, ..descriptor(entries) };
    let watched = own(&[("watched", "x")], limit(2, MINUTE));
    for left in [1, 0] {
        let response = ask(&mut client, request("mongo_cps", std::slice::from_ref(&watched))).await;
        assert_eq!(response.statuses, [limited(OK, (2, MINUTE, ""), left, 30)]);
    }
    let look = Descriptor { hits_addend: Some(0), ..watched.clone() };
    assert_eq!(ask(&mut client, request("mongo_cps", &[look])).await.overall_code, OK);
    // It is refused although the rule only watches; and then nobody pays.
    let mixed = request("mongo_cps", &[users.clone(), watched.clone(), descriptor(&[("nothing", "x")])]);
    for _ in 0..5 {
        let response = ask(&mut client, mixed.clone()).await;
        let expected =
            [limited(OK, (2, HOUR, "users"), 2, 3570), limited(OVER_LIMIT, (2, MINUTE, ""), 0, 30), plain(OK)];
        assert_eq!((response.overall_code, &response.statuses[..]), (OVER_LIMIT, &expected[..]));
    }
    // Where the rules refuse, what comes with a descriptor is not paid, either.
    let other = own(&[("watched", "y")], limit(1, HOUR));
    let many = Descriptor { hits_addend: Some(3), ..users.clone() };
    assert_eq!(ask(&mut client, request("mongo_cps", &[other.clone(), many])).await.overall_code, OVER_LIMIT);
    let response = ask(&mut client, request("mongo_cps", &[other, users])).await;
    assert_eq!(response.statuses, [limited(OK, (1, HOUR, ""), 0, 3570), limited(OK, (2, HOUR, "users"), 1, 3570)]);
    let banned = own(&[("a", "b")], limit(0, HOUR));
    let response = ask(&mut client, request("mongo_cps", &[banned])).await;
    assert_eq!(
        (response.overall_code, response.statuses),
        (OVER_LIMIT, vec![limited(OVER_LIMIT, (0, HOUR, ""), 0, 3570)])
    );
    let elsewhere = ask(&mut client, request("elsewhere", &[watched])).await;
    assert_eq!((elsewhere.overall_code, elsewhere.statuses), (OK, vec![plain(OK)]));
}

#[tokio::test]
async fn what_is_no_request_is_an_error_and_never_an_answer() {
    let server = Server::start(ENVOYS).await;
    let mut client = server.client().await;
    let some = descriptor(&[("database", "users")]);
    let unit = Descriptor { limit: Some(Override { requests_per_unit: 1, unit: 9 }), ..some.clone() };
    let many_entries = descriptor(&[("key", "value"); 65]);
    let cases = [
        (request("", std::slice::from_ref(&some)), Code::InvalidArgument, "the domain is empty"),
        (request("mongo_cps", &[]), Code::InvalidArgument, "there are no descriptors"),
        (request("mongo_cps", &[unit]), Code::InvalidArgument, "the unit of a limit is SECOND"),
        (request("mongo_cps", &vec![some.clone(); 257]), Code::ResourceExhausted, "at most 256 descriptors"),
        (request("mongo_cps", &[many_entries]), Code::ResourceExhausted, "at most 64 entries"),
        (request(&"x".repeat(70_000), &[some]), Code::ResourceExhausted, "at most 65536 bytes"),
    ];
    for (request, code, text) in cases {
        let status = client.call::<_, RateLimitResponse>(SHOULD_RATE_LIMIT, request).await.unwrap_err();
        assert_eq!(status.code(), code, "{text}");
        assert!(status.message().contains(text), "{} does not say {text}", status.message());
    }
    let faults = server.meter().faults();
    assert_eq!((faults["malformed"], faults["too-large"]), (3, 3));
}

#[tokio::test]
async fn as_many_descriptors_as_there_can_be_have_as_many_statuses() {
    let server = Server::start(OURS).await;
    let mut client = server.client().await;
    let names: Vec<String> = (0..256).map(|number| format!("192.0.2.{number}")).collect();
    let descriptors: Vec<_> = names.iter().map(|ip| descriptor(&[("op", "login"), ("ip", ip)])).collect();
    let response = ask(&mut client, request("shop", &descriptors)).await;
    assert_eq!(response.statuses, vec![limited(OK, (3, MINUTE, "logins"), 2, 30); 256]);
}

#[tokio::test]
async fn namespaces_that_refuse_what_they_do_not_know_refuse_it_to_envoy() {
    let server = Server::start("namespace: strict\nno_match: refuse\nrules: []\n").await;
    let mut client = server.client().await;
    let response = ask(&mut client, request("strict", &[descriptor(&[("a", "b")])])).await;
    assert_eq!((response.overall_code, response.statuses), (OVER_LIMIT, vec![plain(OVER_LIMIT)]));
}
