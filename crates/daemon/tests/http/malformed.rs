//! What is no HTTP, no JSON or no question: the right error or a close, and others are served.

use crate::server::{Reply, Server, post};

const ASK: &str = r#"{"namespace":"shop","attributes":{"path":"/login","ip":"192.0.2.1"}}"#;

/// What is answered: a status, or nothing at all.
fn status(reply: &str) -> Option<u16> {
    reply.split(' ').nth(1).and_then(|status| status.parse().ok())
}

/// Lines that no request begins with, or goes on with.
fn broken_heads() -> Vec<Vec<u8>> {
    let first_lines = [
        " ",
        "GET",
        "GET /",
        "GET / HTTP/1.1x",
        "GET / HTTP/3.0",
        "GET / HTTP/0.9",
        "GET / http/1.1",
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "G\u{e9}T / HTTP/1.1",
        "GET / HTTP/1.1 x",
        "GET /\u{1} HTTP/1.1",
        "G(T / HTTP/1.1",
        "\u{0}",
        "{\"namespace\":\"shop\"}",
        "*1",
        "PRI * HTTP/1.1 ",
        "GET \t HTTP/1.1",
        "HTTP/1.1 200 OK",
        "\u{16}\u{3}\u{1}",
    ];
    let headers = [
        "no colon",
        ": no name",
        "na me: x",
        "na\u{0}me: x",
        "name : x",
        "name: \u{0}",
        "name: a\u{1}b",
        " folded: x",
        "\u{e9}: x",
        "name: x\rname: y",
        "(name): x",
        "name\t: x",
    ];
    let lengths = [
        "content-length: x",
        "content-length: -1",
        "content-length: +1",
        "content-length: 1 1",
        "content-length: 0x1",
        "content-length: 1,2",
        "content-length: 1\r\ncontent-length: 2",
        "content-length: 99999999999999999999999",
        "content-length: ",
        "content-length: 1.0",
        "transfer-encoding: gzip",
        "transfer-encoding: chunked, gzip",
        "transfer-encoding: x",
        "content-length: 1e1",
    ];
    let of_line = first_lines.iter().map(|line| format!("{line}\r\nhost: x\r\n\r\n"));
    let of_header = headers.iter().map(|line| format!("GET /v1/check HTTP/1.1\r\nhost: x\r\n{line}\r\n\r\n"));
    let quick = headers.iter().map(|line| post("/v1/check", ASK).replace("host: x", line));
    let of_length = lengths.iter().map(|line| format!("POST /v1/check HTTP/1.1\r\nhost: x\r\n{line}\r\n\r\n{ASK}"));
    of_line.chain(of_header).chain(quick).chain(of_length).map(String::into_bytes).collect()
}

#[test]
fn what_is_no_http_is_refused_and_closed() {
    let server = Server::start();
    let cases = broken_heads();
    for case in &cases {
        let reply = server.send(&[case.as_slice(), b"\r\n\r\n"].concat());
        let shown = String::from_utf8_lossy(case).into_owned();
        // HTTP has no name for what comes in an encoding that nobody knows but this.
        assert!(matches!(status(&reply), Some(400 | 404 | 405 | 501) | None), "{shown:?}: {reply}");
        assert!(!reply.contains("\"allowed\""), "{shown:?} was decided: {reply}");
    }
    assert!(cases.len() >= 58 && server.ask("/v1/check", ASK).status == 200);
}

#[test]
fn chunks_that_are_none_are_refused() {
    let server = Server::start();
    let bodies = [
        "x\r\n",
        "-1\r\n",
        "0x1\r\na\r\n",
        "1\r\nab\r\n0\r\n\r\n",
        "1\n a\n",
        "ffffffffffffffff1\r\n",
        "1;\u{0}\r\na\r\n",
        "\r\n",
        "1",
        "1\r\n",
        "1\r\na",
        "0\r\nbroken\r\n\r\n",
        "5\r\n{\"\r\n",
        "ffffffffffffffff\r\na",
        "g\r\n",
    ];
    for body in bodies {
        let request = format!("POST /v1/check HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{body}");
        let reply = server.send(request.as_bytes());
        assert!(matches!(status(&reply), Some(400 | 413) | None), "{body:?}: {reply}");
    }
    assert_eq!(server.ask("/v1/check", ASK).status, 200);
}

#[test]
fn a_request_that_is_cut_anywhere_is_not_decided() {
    let server = Server::start();
    let request = post("/v1/check", ASK);
    for cut in 0..request.len() {
        let reply = server.send(&request.as_bytes()[..cut]);
        assert!(matches!(status(&reply), Some(400) | None), "{cut}: {reply}");
    }
    assert_eq!(server.ask("/v1/peek", ASK).json()["remaining"], 2);
}

#[test]
fn a_length_and_chunks_together_smuggle_nothing() {
    let server = Server::start();
    let smuggled = post("/v1/check", ASK);
    for head in ["content-length: 3\r\ntransfer-encoding: chunked", "transfer-encoding: chunked\r\ncontent-length: 3"] {
        let request = format!("POST /v1/peek HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n0\r\n\r\n{smuggled}");
        server.send(request.as_bytes());
        let quick = request.replace("/v1/peek", "/v1/check");
        server.send(quick.as_bytes());
    }
    // Whatever was made of it, nobody took what stood in the body for a body's end.
    assert!(server.ask("/v1/check", ASK).status == 200);
}

/// Values that are no JSON, or none of what is asked for.
const NO_QUESTIONS: &[&str] = &[
    "",
    " ",
    "null",
    "true",
    "1",
    "\"text\"",
    "{",
    "}",
    "[",
    "]",
    "[[]]",
    "[1]",
    "[null]",
    "{}",
    "[{}]",
    "{\"namespace\"}",
    "{namespace:\"a\"}",
    "{\"namespace\":}",
    "{\"namespace\":1}",
    "{\"namespace\":null}",
    "{\"namespace\":[]}",
    "{\"namespace\":{}}",
    "{\"namespace\":\"a\",}",
    "{\"namespace\":\"a\"}x",
    "{\"namespace\":\"a\"}{}",
    "{\"namespace\":\"a\",\"namespace\":\"b\"}",
    "{\"Namespace\":\"a\"}",
    "{'namespace':'a'}",
    "{\"namespace\":\"a\",\"other\":1}",
    "{\"namespace\":\"a\",\"cost\":-1}",
    "{\"namespace\":\"a\",\"cost\":1.5}",
    "{\"namespace\":\"a\",\"cost\":\"1\"}",
    "{\"namespace\":\"a\",\"cost\":null}",
    "{\"namespace\":\"a\",\"cost\":1e300}",
    "{\"namespace\":\"a\",\"cost\":18446744073709551616}",
    "{\"namespace\":\"a\",\"cost\":01}",
    "{\"namespace\":\"a\",\"cost\":+1}",
    "{\"namespace\":\"a\",\"cost\":NaN}",
    "{\"namespace\":\"a\",\"cost\":true}",
    "{\"namespace\":\"a\",\"cost\":[]}",
    "{\"namespace\":\"a\",\"attributes\":null}",
    "{\"namespace\":\"a\",\"attributes\":[]}",
    "{\"namespace\":\"a\",\"attributes\":\"x\"}",
    "{\"namespace\":\"a\",\"attributes\":{\"x\":null}}",
    "{\"namespace\":\"a\",\"attributes\":{\"x\":true}}",
    "{\"namespace\":\"a\",\"attributes\":{\"x\":[]}}",
    "{\"namespace\":\"a\",\"attributes\":{\"x\":{}}}",
    "{\"namespace\":\"a\",\"attributes\":{\"x\":-1}}",
    "{\"namespace\":\"a\",\"attributes\":{\"x\":1.5}}",
    "{\"namespace\":\"a\",\"attributes\":{\"x\":\"1\",\"x\":\"2\"}}",
    "{\"namespace\":\"a\",\"attributes\":{\"x\":\"1\",\"\\u0078\":\"2\"}}",
    "{\"namespace\":\"a\",\"attributes\":{1:\"x\"}}",
    "{\"namespace\":\"\\ud800\"}",
    "{\"namespace\":\"\\x\"}",
    "{\"namespace\":\"\u{1}\"}",
    "{\"namespace\":\"a",
    "{\"namespace\":\"a\",\"attributes\":{\"x\":\"1\"}",
    "/* */{\"namespace\":\"a\"}",
    "\u{feff}{\"namespace\":\"a\"}",
    "namespace=a",
    "<namespace>a</namespace>",
];

#[test]
fn what_is_no_question_is_a_mistake_that_says_what_is_expected() {
    let server = Server::start();
    let deep = ["[".repeat(60_000), format!("{{\"namespace\":\"a\",\"attributes\":{}", "{\"a\":".repeat(10_000))];
    let many: Vec<String> = (0..65).map(|number| format!("\"a{number}\":1")).collect();
    let many = format!("{{\"namespace\":\"a\",\"attributes\":{{{}}}}}", many.join(","));
    let bodies = NO_QUESTIONS.iter().copied().chain(deep.iter().map(String::as_str)).chain([&*many]);
    let mut count = 0;
    for body in bodies {
        for page in
            ["/v1/check", "/v1/peek", "/v1/explain", "/v1/reset", "/v1/reserve", "/v1/settle", "/throttle", "/json"]
        {
            let reply = server.ask(page, body);
            assert_eq!(reply.status, 400, "{page} {body:.100}: {reply:?}");
            let problem = reply.json();
            assert_eq!((problem["fault"].as_str(), problem["type"].as_str()), (Some("malformed"), Some("about:blank")));
            assert!(problem["detail"].as_str().unwrap().len() > 10);
            count += 1;
        }
    }
    assert_eq!(server.faults("malformed"), count);
    assert!(count > 400);
    let bytes = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 17\r\n\r\n{\"namespace\":\"\xff\"}";
    assert_eq!(Reply::new(&server.send(bytes)).status, 400);
    let unknown = server.ask("/v1/check", r#"{"namespace":"a","attribute":{}}"#).json();
    let expected =
        "the body: unknown field `attribute`, expected one of `namespace`, `attributes`, `cost` at line 1 column 28";
    assert_eq!(unknown["detail"], expected);
    assert_eq!(server.ask("/v1/check", ASK).status, 200);
}
