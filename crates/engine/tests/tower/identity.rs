//! Who the client is.

use crate::http::{Client, serve_hello};
use crate::service::{Setting, ask};
use http::Request;
use http::request::Builder;
use tollgate::identity::fingerprint;
use tollgate::tower::PeerAddress;

/// All that rules can want to know.
const ALL: &str = "
rules:
  - { name: all, key: [method, path, host, ip, api_key, login, header.x-tenant, header.cookie], limits: [9 per day] }
";

/// The attribute that is found in a request.
fn found(identity: &str, name: &str, request: Builder) -> Option<String> {
    let setting = Setting::new(&format!("identity: {{ {identity} }}\n{ALL}"));
    ask(&mut setting.service(), request.body(()).unwrap());
    let seen = setting.seen.lock().unwrap();
    seen.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

#[test]
fn i1_method_path_host_and_headers_are_what_the_request_says() {
    let request = || Request::post("http://Example.COM.:8080/a//b?c=d").header("x-tenant", "acme");
    let found = |name| found("", name, request());
    assert_eq!(found("method").as_deref(), Some("POST"));
    assert_eq!(found("path").as_deref(), Some("/a//b"));
    assert_eq!(found("host").as_deref(), Some("example.com"));
    assert_eq!(found("header.x-tenant").as_deref(), Some("acme"));
    assert_eq!([found("ip"), found("api_key"), found("login"), found("header.cookie")], [const { None }; 4]);
}

#[test]
fn i2_a_host_has_one_spelling() {
    let cases = [
        ("example.com", "example.com"),
        ("EXAMPLE.com:443", "example.com"),
        ("example.com.", "example.com"),
        ("Example.com.:80", "example.com"),
        ("192.0.2.1:80", "192.0.2.1"),
        ("[2001:DB8::1]:80", "[2001:db8::1]"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("", ""),
    ];
    for (header, host) in cases {
        assert_eq!(found("", "host", Request::get("/").header("host", header)).as_deref(), Some(host), "{header}");
    }
}

#[test]
fn i1_an_api_key_is_known_by_its_fingerprint() {
    let print = |key: &str| Some(fingerprint(key.as_bytes()).to_string());
    let request = Request::get("/");
    assert_eq!(found("", "api_key", request.header("x-api-key", "k-17")), print("k-17"));
    let custom = "api_key: X-Token";
    assert_eq!(found(custom, "api_key", Request::get("/").header("x-token", "k-17")), print("k-17"));
    assert_eq!(found(custom, "api_key", Request::get("/").header("x-api-key", "k-17")), None);
    let bearer = "api_key: authorization";
    let by = |value: &str| found(bearer, "api_key", Request::get("/").header("authorization", value));
    assert_eq!(by("Bearer k-17"), print("k-17"));
    assert_eq!(by("bEARER   k-17"), print("k-17"));
    assert_eq!([by("Basic azoxNw=="), by("Bearer"), by("Bearer "), by("Bearerk-17"), by("")], [const { None }; 5]);
    // Nobody poses as somebody else by sending a fingerprint.
    assert_ne!(by(&format!("Bearer {}", fingerprint(b"k-17").as_str())), print("k-17"));
}

#[test]
fn i1_a_login_is_read_only_from_the_header_that_the_rules_name() {
    let request = || Request::get("/").header("x-user", "alice");
    assert_eq!(found("", "login", request()), None);
    assert_eq!(found("login: X-User", "login", request()).as_deref(), Some("alice"));
    assert_eq!(found("login: x-user", "login", Request::get("/").header("x-user", "")), None);
    let bytes = Request::get("/").header("x-user", b"\xFFx".as_slice());
    assert_eq!(found("login: x-user", "login", bytes).as_deref(), Some("\u{FFFD}x"));
}

#[test]
fn i2_several_credentials_are_nobodys_and_several_headers_count_as_the_first() {
    let keys = |a: &str, b: &str| {
        found("", "api_key", Request::get("/").header("x-api-key", a).header("x-api-key", b)).unwrap()
    };
    assert_eq!(keys("k-17", "k-17"), fingerprint(b"k-17").as_str());
    assert_eq!([keys("k-17", "k-18"), keys("k-19", "k-17")], ["several", "several"]);
    let tenants = Request::get("/").header("x-tenant", "acme").header("x-tenant", "other");
    assert_eq!(found("", "header.x-tenant", tenants).as_deref(), Some("acme"));
}

#[test]
fn i2_secrets_in_other_headers_are_fingerprinted_too() {
    let request = Request::get("/").header("cookie", "session=secret");
    assert_eq!(found("", "header.cookie", request).unwrap(), fingerprint(b"session=secret").as_str());
}

#[test]
fn i2_forwarded_addresses_count_only_from_trusted_proxies() {
    let from = |peer: [u8; 4], identity: &str| {
        let request = Request::get("/").header("x-forwarded-for", "6.6.6.6").header("x-forwarded-for", "192.0.2.7");
        found(identity, "ip", request.extension(PeerAddress(peer.into()))).unwrap()
    };
    assert_eq!(from([10, 0, 0, 1], ""), "10.0.0.1");
    assert_eq!(from([10, 0, 0, 1], "trusted_proxies: [10.0.0.0/8]"), "192.0.2.7");
    assert_eq!(from([203, 0, 113, 9], "trusted_proxies: [10.0.0.0/8]"), "203.0.113.9");
    // Without a peer there is nobody who could be trusted.
    let request = Request::get("/").header("x-forwarded-for", "192.0.2.7");
    assert_eq!(found("hops: 1", "ip", request), None);
}

#[tokio::test]
async fn i2_a_spoofed_address_does_not_change_the_bucket_but_a_trusted_proxys_word_does() {
    let setting = Setting::new(
        "identity: { trusted_proxies: [127.0.0.9] }\nrules: [{ name: visitors, key: [ip], limits: [2 per hour] }]",
    );
    let address = serve_hello(&setting).await;
    let mut spoofer = Client::connect_from([127, 0, 0, 2], address).await;
    let mut statuses = Vec::new();
    for last in 1..=4 {
        statuses.push(spoofer.status(&[("x-forwarded-for", &format!("192.0.2.{last}"))]).await);
    }
    assert_eq!(statuses, [200, 200, 429, 429]);

    let mut proxy = Client::connect_from([127, 0, 0, 9], address).await;
    for last in 1..=4 {
        let client = format!("192.0.2.{last}");
        let twice = [proxy.status(&[("x-forwarded-for", &client)]).await, {
            // What a client writes in front of it does not matter.
            proxy.status(&[("x-forwarded-for", &format!("6.6.6.{last}, {client}"))]).await
        }];
        assert_eq!(twice, [200, 200]);
        assert_eq!(proxy.status(&[("x-forwarded-for", &client)]).await, 429);
    }
}

#[tokio::test]
async fn i1_an_api_key_never_appears_in_events_statistics_or_answers() {
    let setting = Setting::new(
        "identity: { api_key: authorization }
rules:
  - { name: keys, key: [api_key, header.authorization], limits: [1 per hour] }
  - { name: shadow, key: [api_key], limits: [1 per hour], over: shadow }",
    );
    let mut client = Client::connect(serve_hello(&setting).await).await;
    let mut answers = String::new();
    for _ in 0..3 {
        answers += &format!("{:?}", client.get(&[("authorization", "Bearer hunter2")]).await);
    }
    let seen = setting.seen.lock().unwrap();
    let everything = format!("{seen:?} {answers} {:?}", setting.tollgate.engine().snapshot());
    assert!(everything.contains(fingerprint(b"hunter2").as_str()));
    assert!(!everything.contains("hunter2"));
}
