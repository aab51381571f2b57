//! Clients that take their time, or more than there is.

use crate::common::{eventually, read_all};
use crate::server::{Reply, Server, post};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const ASK: &str = r#"{"namespace":"shop","attributes":{"path":"/login","ip":"192.0.2.1"}}"#;
const SOON: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(60);

fn is_served(server: &Server) -> bool {
    server.ask("/v1/peek", ASK).status == 200
}

#[test]
fn heads_that_do_not_end_are_given_up_and_others_are_served() {
    let server = Server::start_patient(LONG, SOON);
    let beginnings = ["P", "PRI * HT", "POST /v1/check HTTP/1.1\r\nhost: ", "GET /healthz HTTP/1.1\r\n"];
    let mut slow: Vec<TcpStream> = beginnings
        .iter()
        .cycle()
        .take(200)
        .map(|begin| {
            let mut stream = server.connect();
            stream.write_all(begin.as_bytes()).unwrap();
            stream
        })
        .collect();
    assert!(is_served(&server));
    for stream in &mut slow {
        assert_eq!(read_all(stream), b"");
    }
    assert!(eventually(|| server.faults("too-slow") > 0));
    // One that dribbles is no better off than one that says nothing.
    let mut stream = server.connect();
    let dribbled = (0..10_000).find(|_| {
        crate::common::pause(Duration::from_millis(5));
        stream.write_all(b"x").is_err()
    });
    assert!(dribbled.is_some(), "it was served for longer than a minute");
}

#[test]
fn bodies_that_do_not_come_are_answered_with_408() {
    let server = Server::start_patient(LONG, SOON);
    for page in ["/v1/check", "/v1/peek"] {
        let request = post(page, ASK);
        let reply = Reply::new(&server.send_and_wait(&request.as_bytes()[..request.len() - 1]));
        assert_eq!((reply.status, reply.json()["fault"].as_str()), (408, Some("too-slow")), "{page}");
    }
    assert!(is_served(&server));
}

#[test]
fn connections_that_say_nothing_are_closed_without_a_word() {
    let server = Server::start_patient(SOON, LONG);
    for before in ["", &post("/v1/peek", ASK), &post("/v1/check", ASK)] {
        let mut stream = server.connect();
        stream.write_all(before.as_bytes()).unwrap();
        let replies = String::from_utf8(read_all(&mut stream)).unwrap();
        assert_eq!(replies.matches("HTTP/1.1 200 OK").count(), usize::from(!before.is_empty()), "{replies}");
    }
    assert_eq!(server.faults("too-slow"), 0);
}

#[test]
fn who_does_not_read_its_replies_is_dropped() {
    let server = Server::start_patient(LONG, SOON);
    // Each answer is larger than its question, and none of them is read.
    for page in ["/v1/check", "/v1/explain"] {
        let mut stream = server.connect();
        let many = post(page, ASK).repeat(100);
        let stuck = (0..2_000).find(|_| stream.write_all(many.as_bytes()).is_err());
        assert!(stuck.is_some(), "{page}: more was taken than any buffer holds");
    }
    assert!(is_served(&server));
}

#[test]
fn what_is_too_large_is_refused_before_it_is_kept() {
    let server = Server::start();
    let large = |length: usize, begin: &str| {
        let head = format!("POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{begin}");
        Reply::new(&server.send_and_wait(head.as_bytes()))
    };
    assert_eq!(large(64 * 1024 + 1, "{").status, 413);
    assert_eq!(large(1024 * 1024 + 1, "[").status, 413);
    assert_eq!(large(99_999_999_999, "[").status, 413);
    let padded = |size: usize| format!("{}{ASK}", " ".repeat(size - ASK.len()));
    assert_eq!(server.ask("/v1/check", &padded(64 * 1024)).status, 200);
    assert_eq!(server.ask("/v1/check", &padded(64 * 1024 + 1)).status, 413);
    let list = |size: usize| format!("[{}{ASK}]", " ".repeat(size - ASK.len() - 2));
    assert_eq!(server.ask("/v1/check", &list(1024 * 1024)).status, 200);
    assert_eq!(server.ask("/v1/check", &list(1024 * 1024 + 1)).status, 413);
    assert_eq!(server.ask("/v1/peek", &list(65 * 1024)).status, 413);
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let endless =
        format!("POST /v1/check HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{}", chunk.repeat(4));
    assert_eq!(Reply::new(&server.send(endless.as_bytes())).status, 413);
    assert_eq!(server.ask("/v1/check", &format!("[{}]", vec![ASK; 1001].join(","))).status, 400);
    let long = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(33 * 1024));
    assert_eq!(Reply::new(&server.send(long.as_bytes())).status, 431);
    let many = format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(101));
    assert_eq!(Reply::new(&server.send(many.as_bytes())).status, 431);
    assert!(eventually(|| server.faults("too-large") == 9), "{}", server.faults("too-large"));
    assert!(is_served(&server));
}

#[test]
fn http_2_that_is_abused_ends_and_others_are_served() {
    let server = Server::start_patient(LONG, SOON);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    // The head of a stream, and its being taken back: three hundred times.
    let mut resets = preface.to_vec();
    for stream in (1_u32..601).step_by(2) {
        resets.extend([0, 0, 4, 1, 4]);
        resets.extend(stream.to_be_bytes());
        resets.extend([0x82, 0x86, 0x84, 0x84]);
        resets.extend([0, 0, 4, 3, 0]);
        resets.extend(stream.to_be_bytes());
        resets.extend(8_u32.to_be_bytes());
    }
    // Headers that never end.
    let mut endless = preface.to_vec();
    endless.extend([0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82]);
    (0..10_000).for_each(|_| endless.extend([0, 0, 1, 9, 0, 0, 0, 0, 1, 0x82]));
    let mut huge_frame = preface.to_vec();
    huge_frame.extend([0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]);
    let mut wrong_stream = preface.to_vec();
    wrong_stream.extend([0, 0, 0, 0, 0, 0, 0, 0, 2]);
    for attack in [resets, endless, huge_frame, wrong_stream] {
        let mut stream = server.connect();
        let _ = stream.write_all(&attack);
        let replies = read_all(&mut stream);
        let is_goodbye = |window: &[u8]| window[3] == 7 && window[5..9] == [0; 4];
        assert!(replies.windows(9).any(is_goodbye), "{replies:?}");
        assert!(is_served(&server));
    }
}

#[test]
fn two_thousand_slow_clients_keep_nobody_else_waiting() {
    let server = Server::start_patient(LONG, LONG);
    let slow: Vec<TcpStream> = (0..2000)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(b"POST /v1/check HTTP/1.1\r\ncontent-length: 9\r\n\r\n").unwrap();
            stream
        })
        .collect();
    let mut stream = server.connect();
    let request = post("/v1/check", ASK);
    let mut reply = [0; 12];
    stream.write_all(request.as_bytes()).unwrap();
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"HTTP/1.1 200");
    drop(slow);
}
