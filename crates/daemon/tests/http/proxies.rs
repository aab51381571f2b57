//! `/v1/auth`: what nginx, Traefik and Caddy ask.

use crate::server::{Reply, Server};
use serde_json::json;
use std::time::Duration;

fn auth(server: &Server, query: &str, headers: &str) -> Reply {
    server.get(&format!("/v1/auth?namespace=shop{query}"), headers)
}

#[test]
fn a2_a_proxy_is_told_200_and_then_429_with_headers() {
    let server = Server::start();
    let headers = "x-forwarded-uri: /login?x=1\r\nx-forwarded-method: POST\r\nx-forwarded-for: 192.0.2.9\r\n";
    let first = auth(&server, "", headers);
    assert_eq!((first.status, first.body.as_str()), (200, ""));
    assert_eq!(first.header("ratelimit"), Some(r#""logins";r=1;t=1800"#));
    auth(&server, "", headers);
    let refused = auth(&server, "", headers);
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1800")));
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(refused.json()["violated-policies"], json!(["logins"]));
    let for_nginx = auth(&server, "&refuse=403", headers);
    assert_eq!((for_nginx.status, for_nginx.header("retry-after")), (403, Some("1800")));
    // Another client, and the same one under another name for the same path.
    assert_eq!(auth(&server, "", &headers.replace("192.0.2.9", "192.0.2.10")).status, 200);
    assert_eq!(auth(&server, "", &headers.replace("/login", "/x/..//login/")).status, 429);
    assert_eq!(auth(&server, "", &headers.replace("/login", "/logout|<>")).status, 200);
}

#[test]
fn i2_addresses_count_as_far_as_proxies_are_trusted() {
    let server = Server::start();
    let from = |line: &str| auth(&server, "", &format!("x-original-uri: /login\r\n{line}\r\n")).status;
    // The client writes what it likes; the proxy appends the truth.
    let statuses =
        ["6.6.6.1", "6.6.6.2", "6.6.6.3"].map(|forged| from(&format!("x-forwarded-for: {forged}, 192.0.2.1")));
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(["x-real-ip: 192.0.2.1", "x-real-ip: 192.0.2.2"].map(from), [429, 200]);
}

#[test]
fn the_request_is_put_together_from_what_the_proxy_says() {
    let server = Server::start();
    let put = "x-original-uri: /\r\nx-original-method: PUT\r\nx-original-host: Example.org:8443\r\n";
    let grpc = format!("{put}content-type: application/grpc\r\n");
    let statuses = [&*grpc, &grpc, put, put].map(|headers| auth(&server, "", headers).status);
    assert_eq!(statuses, [200, 429, 200, 429], "also a request of gRPC is refused by its status");
    assert_eq!(auth(&server, "", &put.replace("PUT", "GET")).status, 200);
    let busy = "x-forwarded-uri: https://example.org/busy\r\n";
    assert_eq!([busy, busy].map(|headers| auth(&server, "", headers).status), [200, 503]);
    let dropped = "x-forwarded-uri: /dropped\r\n";
    assert_eq!([dropped, dropped].map(|headers| auth(&server, "", headers).status), [200, 429]);
    assert_eq!(auth(&server, "&refuse=401", dropped).status, 401);
    let by_header = server.get("/v1/auth", "x-tollgate-namespace: shop\r\nx-forwarded-uri: /dropped\r\n");
    assert_eq!(by_header.status, 429);
}

#[test]
fn a_request_that_is_queued_is_held() {
    let server = Server::start();
    let headers = "x-forwarded-uri: /queued\r\n";
    assert_eq!(auth(&server, "", headers).status, 200);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| auth(&server, "", headers).status);
        let waits = || server.ask("/v1/peek", r#"{"namespace":"shop","attributes":{"path":"/queued"}}"#).json();
        assert!(crate::common::eventually(|| waits()["wait_ms"] == 2000), "{}", waits());
        assert!(!held.is_finished());
        server.hands.advance(Duration::from_secs(1));
        assert_eq!(held.join().unwrap(), 200);
    });
}

#[test]
fn what_is_not_said_or_said_twice_is_a_mistake_and_nobody_passes() {
    let server = Server::start();
    let cases = [
        ("/v1/auth", "x-original-uri: /\r\n", "?namespace=NAME"),
        ("/v1/auth?namespace=shop", "", "X-Original-URI"),
        ("/v1/auth?namespace=shop&refuse=200", "x-original-uri: /\r\n", "from 400 to 499"),
        ("/v1/auth?namespace=shop&headers=any", "x-original-uri: /\r\n", "`original` or `forwarded`"),
        ("/v1/auth?namespace=a&namespace=b", "x-original-uri: /\r\n", "several `namespace`"),
        ("/v1/auth?namespace=%ff", "x-original-uri: /\r\n", "not UTF-8"),
        ("/v1/auth?namespace=shop", "x-original-uri: /a\r\nx-forwarded-uri: /b\r\n", "disagree"),
        ("/v1/auth?namespace=shop", "x-original-uri: /a\r\nx-original-uri: /b\r\n", "disagree"),
        ("/v1/auth?namespace=shop", "x-original-uri: /a\r\nx-original-method: a b\r\n", "the method"),
    ];
    for (target, headers, problem) in cases {
        let reply = server.get(target, headers);
        assert_eq!(reply.status, 400, "{target} {headers}");
        assert!(reply.json()["detail"].as_str().unwrap().contains(problem), "{reply:?}");
    }
    // Who knows which of them the proxy sets can say so.
    let both = "x-original-uri: /login\r\nx-forwarded-uri: /forged\r\n";
    let told = auth(&server, "&headers=original", both);
    assert!(told.header("ratelimit").unwrap().contains("logins"), "{told:?}");
    assert_eq!(auth(&server, "&headers=forwarded", both).header("ratelimit"), None);
}

#[test]
fn a_proxy_from_elsewhere_shows_its_token_beside_the_clients() {
    let server = Server::start_suspicious("secret");
    let ask = |headers: &str| auth(&server, "", &format!("x-original-uri: /\r\n{headers}")).status;
    assert_eq!(ask(""), 401);
    assert_eq!(ask("authorization: Bearer the-clients-own\r\n"), 401);
    assert_eq!(ask("authorization: Bearer the-clients-own\r\nx-tollgate-token: secret\r\n"), 200);
    assert_eq!(ask("authorization: Bearer secret\r\n"), 200);
}
