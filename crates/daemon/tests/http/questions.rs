//! Questions by rules.

use crate::server::{Reply, Server, post};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::Duration;

const LOGIN: &str = r#"{"namespace":"shop","attributes":{"path":"/login","ip":"192.0.2.1"}}"#;

#[test]
fn h2_curl_sees_a_200_turn_into_a_429() {
    let server = Server::start();
    let ask = |page: &str| server.curl(&["-i", &format!("URL{page}"), "-d", LOGIN]);
    let first = ask("/v1/check");
    assert!(first.starts_with("HTTP/1.1 200 OK") && first.contains(r#""remaining":1"#), "{first}");
    assert!(first.contains("date: Fri, 15 Jan 2027 08:00:30 GMT"), "{first}");
    let second = ask("/v1/check?status=verdict");
    assert!(second.starts_with("HTTP/1.1 200 OK") && second.contains("ratelimit: "), "{second}");
    let refused = ask("/v1/check?status=verdict");
    assert!(refused.starts_with("HTTP/1.1 429 Too Many Requests"), "{refused}");
    assert!(refused.contains("retry-after: 1800\r\n") && refused.contains("#quota-exceeded"), "{refused}");
    let preferred = server.curl(&["-i", "-H", "Prefer: status", "URL/v1/check", "-d", LOGIN]);
    assert!(preferred.starts_with("HTTP/1.1 429"), "{preferred}");
    let as_answer = ask("/v1/check");
    assert!(as_answer.starts_with("HTTP/1.1 200") && as_answer.contains(r#""status":429"#), "{as_answer}");
}

#[test]
fn h2_curl_is_answered_over_http_2_as_over_http_1() {
    let server = Server::start();
    let ask = |version: &str| server.curl(&[version, "-w", "%{http_version}", "URL/v1/peek", "-d", LOGIN]);
    let (one, two) = (ask("--http1.1"), ask("--http2-prior-knowledge"));
    assert_eq!(one.strip_suffix("1.1").unwrap(), two.strip_suffix('2').unwrap());
    let large = format!("[{}]", vec![LOGIN; 1000].join(","));
    let all = server.curl(&["--http2-prior-knowledge", "URL/v1/check", "-d", &large]);
    assert_eq!(serde_json::from_str::<Vec<Value>>(&all).unwrap().len(), 1000);
    assert!(server.curl(&["--http2-prior-knowledge", "URL/metrics"]).contains("tollgate_decisions_total"));
}

#[test]
fn an_answer_has_all_fields_and_null_where_there_is_none() {
    let server = Server::start();
    let reply = server.ask("/v1/check", LOGIN);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let expected = json!({
        "allowed": true, "status": 200, "limit": 2, "remaining": 1, "wait_ms": 0, "retry_after_ms": null,
        "reset_after_ms": 1_800_000, "rule": "logins", "reason": "within-limits"
    });
    assert_eq!(reply.json(), expected);
    server.ask("/v1/check", LOGIN);
    let expected = json!({
        "allowed": false, "status": 429, "limit": 2, "remaining": 0, "wait_ms": 0, "retry_after_ms": 1_800_000,
        "reset_after_ms": 3_600_000, "rule": "logins", "reason": "over-limit"
    });
    assert_eq!(server.ask("/v1/check", LOGIN).json(), expected);
    let nobody = server.ask("/v1/check", r#"{"namespace":"nobody"}"#).json();
    assert_eq!((&nobody["reason"], &nobody["rule"]), (&json!("unknown-namespace"), &Value::Null));
    let dropped = r#"{"namespace":"shop","attributes":{"path":"/dropped"},"cost":2}"#;
    assert_eq!(server.ask("/v1/check", dropped).json()["status"], 0);
    assert_eq!(server.ask("/v1/check?status=verdict", dropped).status, 429);
}

#[test]
fn a_list_is_decided_one_by_one_in_order() {
    let server = Server::start();
    let reply = server.ask("/v1/check", &format!(" [{LOGIN}, {LOGIN}, {LOGIN}]"));
    let allowed: Vec<bool> = reply.json().as_array().unwrap().iter().map(|one| one["allowed"] == true).collect();
    assert_eq!(allowed, [true, true, false]);
    assert_eq!(server.ask("/v1/check", "[]").body, "[]");
    assert_eq!(server.meter().questions.load(std::sync::atomic::Ordering::Relaxed), 4);
    // What is wrong with one is wrong with all, and nobody pays.
    let other = LOGIN.replace("192.0.2.1", "192.0.2.2");
    assert_eq!(server.ask("/v1/check", &format!("[{other},{{}}]")).status, 400);
    assert_eq!(server.ask("/v1/peek", &other).json()["remaining"], 2);
    assert_eq!(server.ask("/v1/check?status=verdict", &format!("[{LOGIN}]")).status, 200);
}

#[test]
fn the_quick_way_and_the_general_one_give_the_same_answers() {
    let server = Server::start();
    let crab = r#"{"key":"k","max_burst":3,"count_per_period":1,"period":60}"#;
    let bodies = [("/v1/check", LOGIN.to_owned()), ("/v1/check", format!("[{LOGIN}]")), ("/throttle", crab.to_owned())];
    for (page, body) in bodies {
        let quick = server.ask(page, &body);
        server.hands.advance(Duration::from_secs(7200));
        // A chunked body is not plain.
        let chunked = format!(
            "POST {page} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        );
        let general = Reply::new(&server.send(chunked.as_bytes()));
        assert_eq!((quick.status, &quick.body), (general.status, &general.body), "{page}");
        assert_eq!(quick.header("content-type"), general.header("content-type"));
        assert!(quick.header("date").is_some() && general.header("date").is_some());
        server.hands.advance(Duration::from_secs(7200));
    }
}

#[test]
fn requests_in_a_row_on_one_connection_are_answered_in_order_however_they_are_cut() {
    let server = Server::start();
    let all = [
        post("/v1/check", LOGIN),
        post("/v1/check", LOGIN),
        post("/v1/peek", LOGIN),
        "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        post("/v1/check", LOGIN),
    ]
    .concat();
    let together = server.send(all.as_bytes());
    let of = |text: &str| {
        let statuses = text.matches("HTTP/1.1 200 OK").count();
        (statuses, text.matches(r#""allowed":true"#).count(), text.matches(r#""allowed":false"#).count())
    };
    assert_eq!(of(&together), (5, 2, 2), "{together}");
    server.hands.advance(Duration::from_secs(7200));
    let mut stream = server.connect();
    for byte in all.bytes() {
        stream.write_all(&[byte]).unwrap();
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut one_by_one = String::new();
    stream.read_to_string(&mut one_by_one).unwrap();
    assert_eq!(of(&one_by_one), (5, 2, 2), "{one_by_one}");
}

#[test]
fn reservations_are_settled_and_given_back() {
    let server = Server::start();
    let ask = |cost: u64| format!(r#"{{"namespace":"shop","attributes":{{"op":"llm","user":"a"}},"cost":{cost}}}"#);
    let left = || server.ask("/v1/peek", &ask(0)).json()["remaining"].clone();
    let open = server.ask("/v1/reserve", &ask(800)).json();
    assert_eq!((&open["allowed"], &open["wait_ms"]), (&json!(true), &json!(0)));
    assert_eq!(left(), 200);
    assert_eq!(server.ask("/v1/reserve", &ask(300)).json()["reason"], "over-limit");
    let settle = format!(r#"{{"reservation":{},"actual":100}}"#, open["reservation"]);
    assert_eq!(server.ask("/v1/settle", &settle).json(), json!({"settled": true}));
    assert_eq!(left(), 900);
    let again = server.ask("/v1/settle", &settle);
    assert_eq!((again.status, &again.json()["fault"]), (404, &json!("no-reservation")));
    let open = server.ask("/v1/reserve", &ask(500)).json();
    let refund = format!(r#"{{"reservation":{}}}"#, open["reservation"]);
    assert_eq!(server.ask("/v1/refund", &refund).status, 200);
    assert_eq!(left(), 900);
    let brief = ask(100).replace(r#""cost""#, r#""expires_ms":1000,"cost""#);
    let open = server.ask("/v1/reserve", &brief).json();
    server.hands.advance(Duration::from_secs(2));
    let late = format!(r#"{{"reservation":{},"actual":0}}"#, open["reservation"]);
    assert_eq!(server.ask("/v1/settle", &late).status, 404);
}

#[test]
fn a_client_is_reset_and_every_rule_explained() {
    let server = Server::start();
    server.ask("/v1/check", LOGIN);
    assert_eq!(server.ask("/v1/reset", LOGIN).json(), json!({"buckets": 1}));
    assert_eq!(server.ask("/v1/peek", LOGIN).json()["remaining"], 2);
    let explained = server.ask("/v1/explain", LOGIN).json();
    assert_eq!(explained["verdict"]["rule"], "logins");
    let logins = &explained["rules"][0];
    assert_eq!((&logins["applies"], &logins["client"]), (&json!(true), &json!("192.0.2.1")));
    assert_eq!(logins["limits"][0]["limit"], "2 per hour");
    assert!(explained["rules"][1]["because"].as_str().unwrap().contains("path"), "{explained}");
    assert!(explained["text"].as_str().unwrap().contains("+ logins"), "{explained}");
}

#[test]
fn throttlecrabs_clients_are_answered_as_by_throttlecrab() {
    let server = Server::start();
    let ask = r#"{"key":"bob","max_burst":2,"count_per_period":1,"period":60,"quantity":2}"#;
    let expected = json!({"allowed": true, "limit": 3, "remaining": 1, "reset_after": 120, "retry_after": 0});
    assert_eq!(server.ask("/throttle", ask).json(), expected);
    let expected = json!({"allowed": false, "limit": 3, "remaining": 1, "reset_after": 120, "retry_after": 60});
    assert_eq!(server.ask("/throttle", ask).json(), expected);
    assert_eq!(server.ask("/throttle", &ask.replace("60", "0")).status, 400);
    assert_eq!(server.get("/health", "").status, 200);
}

#[test]
fn envoys_requests_in_json_are_answered_as_by_envoyproxy_ratelimit() {
    let server = Server::start();
    let ask = |hits: &str| {
        let entries = r#"[{"key":"op","value":"llm"},{"key":"user","value":"b"}]"#;
        server.ask("/json", &format!(r#"{{"domain":"shop","descriptors":[{{"entries":{entries}}}],{hits}}}"#))
    };
    let first = ask(r#""hitsAddend":600"#);
    let expected = json!({"overallCode": "OK", "statuses": [{
        "code": "OK", "currentLimit": {"requestsPerUnit": 1000, "unit": "HOUR", "name": "tokens"},
        "limitRemaining": 400, "durationUntilReset": "2160s"
    }]});
    assert_eq!((first.status, first.json()), (200, expected));
    let over = ask(r#""hits_addend":"600""#);
    assert_eq!((over.status, &over.json()["overallCode"]), (429, &json!("OVER_LIMIT")));
    for wrong in [r#""hitsAddend":4294967296"#, r#""hitsAddend":-1"#, r#""what":1"#] {
        assert_eq!(ask(wrong).status, 400, "{wrong}");
    }
    assert_eq!(server.ask("/json", r#"{"domain":"","descriptors":[{}]}"#).status, 400);
    assert_eq!(server.ask("/json", r#"{"domain":"shop"}"#).status, 400);
    let own = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"a","value":"b"}],
        "limit":{"requests_per_unit":1,"unit":"MINUTE"}}]}"#;
    assert_eq!((server.ask("/json", own).status, server.ask("/json", own).status), (200, 429));
}

#[test]
fn pages_know_their_methods() {
    let server = Server::start();
    let ask = |method: &str, page: &str| {
        Reply::new(&server.send(format!("{method} {page} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()))
    };
    let wrong = ask("GET", "/v1/check");
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("post, options")));
    assert_eq!(wrong.json()["fault"], "wrong-method");
    assert_eq!(ask("DELETE", "/metrics").header("allow"), Some("get, head, options"));
    let options = ask("OPTIONS", "/v1/check");
    assert_eq!((options.status, options.header("allow")), (204, Some("post, options")));
    assert_eq!(ask("OPTIONS", "*").status, 204);
    let head = ask("HEAD", "/openapi.json");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert!(head.header("content-length").unwrap().parse::<usize>().unwrap() > 1000);
    let unknown = ask("GET", "/nothing");
    assert_eq!((unknown.status, &unknown.json()["fault"]), (404, &json!("unknown")));
    assert_eq!(unknown.header("content-type"), Some("application/problem+json"));
    assert!(server.get("/", "").json()["pages"]["POST /v1/check"].is_string());
    assert_eq!(server.get("/healthz", "").body, "alive\n");
    assert_eq!(server.get("/readyz", "").body, "ready\n");
    server.state.begin_to_stop();
    assert_eq!((server.get("/readyz", "").status, server.get("/healthz", "").status), (503, 200));
}

#[test]
fn strangers_need_a_token_for_all_but_health() {
    let server = Server::start_suspicious("secret");
    assert_eq!((server.get("/healthz", "").status, server.get("/readyz", "").status), (200, 200));
    let refused = server.get("/metrics", "");
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("bearer")));
    assert_eq!(refused.json()["fault"], "no-token");
    assert_eq!(server.ask("/v1/check", LOGIN).status, 401);
    assert_eq!(server.get("/nothing", "").status, 401);
    let wrong = server.get("/metrics", "authorization: Bearer guess\r\n");
    assert_eq!((wrong.status, &wrong.json()["fault"]), (401, &json!("wrong-token")));
    assert_eq!(server.get("/metrics", "authorization: Bearer secret\r\n").status, 200);
    assert_eq!(server.get("/metrics", "x-tollgate-token: secret\r\n").status, 200);
    for header in ["authorization: bearer secret", "X-Tollgate-Token: secret"] {
        let ask = post("/v1/check", LOGIN).replace("host: x", header);
        assert_eq!(Reply::new(&server.send(ask.as_bytes())).status, 200, "{header}");
    }
    let wrong = post("/v1/check", LOGIN).replace("host: x", "authorization: Bearer guess");
    assert_eq!(Reply::new(&server.send(wrong.as_bytes())).status, 401);
}

#[test]
fn the_last_request_is_answered_when_the_daemon_is_told_to_end() {
    let server = Server::start();
    let mut plain = server.connect();
    let mut general = server.connect();
    let mut reply = [0; 15];
    plain.write_all(post("/v1/peek", LOGIN).replace("peek", "check").as_bytes()).unwrap();
    general.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    for stream in [&mut plain, &mut general] {
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"HTTP/1.1 200 OK");
    }
    server.stopper.stop();
    plain.write_all(post("/v1/check", LOGIN).as_bytes()).unwrap();
    let mut rest = String::new();
    plain.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("HTTP/1.1 200 OK") && rest.contains("connection: close"), "{rest}");
    let mut rest = String::new();
    general.read_to_string(&mut rest).unwrap();
    drop((plain, general));
    server.runtime.block_on(server.running).unwrap();
}
