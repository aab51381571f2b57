//! H2, N1: whatever is sent, the daemon answers it or closes the connection, and goes on serving all others.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot be set up has failed")]

mod common;

use common::{Daemon, Redis, allow_files, command, connect, exchange, now, pause, read_all};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// What is sent after a case, and the reply to it.
const NEXT: &[u8] = b"*2\r\n$4\r\nECHO\r\n$8\r\nstill on\r\n";
const STILL_ON: &[u8] = b"$8\r\nstill on\r\n";

/// A line of `malformed/cases.txt`, where the notation is described.
struct Case {
    line: &'static str,
    is_as_redis: bool,
    sent: Vec<u8>,
    replies: Vec<u8>,
}

impl Case {
    fn parse(line: &'static str, hint: &str) -> Case {
        let (case, reply) = line.split_once("  =>").unwrap();
        let (mark, case) = case.split_once(' ').unwrap();
        let (end, sent) = case.split_at(7);
        let (mut sent, mut replies) = (bytes(sent), bytes(&reply.trim_start_matches(' ').replace("{hint}", hint)));
        match end.trim() {
            "open" => {
                sent.extend(NEXT);
                replies.extend(STILL_ON);
            }
            "close" => sent.extend(NEXT),
            "cut" => {}
            other => panic!("{other:?} in {line}"),
        }
        Case { line, is_as_redis: mark == "=", sent, replies }
    }
}

/// All of them. What an unknown command is answered with after its name is the hint.
fn cases(hint: &str) -> Vec<Case> {
    let lines = include_str!("malformed/cases.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| Case::parse(line, hint)).collect()
}

fn hint(daemon: &Daemon) -> String {
    let reply = daemon.ask(b"NOSUCH\r\n");
    let hint = reply.trim_end().strip_prefix("-ERR unknown command 'nosuch'").unwrap();
    assert!(hint.starts_with("; there are CL.THROTTLE, THROTTLE, CHECK, "), "{hint}");
    hint.to_owned()
}

/// What a notation stands for: repeats are unfolded from the innermost on, then escapes undone.
fn bytes(notation: &str) -> Vec<u8> {
    let mut text = notation.to_owned();
    while let Some((start, end, repeated)) = innermost(&text) {
        text.replace_range(start..end, &repeated);
    }
    unescape(&text)
}

/// The first `{text*count}` without another one in it.
fn innermost(text: &str) -> Option<(usize, usize, String)> {
    text.match_indices('}').find_map(|(end, _)| {
        let start = text[..end].rfind('{')?;
        let (repeated, count) = text[start + 1..end].rsplit_once('*')?;
        Some((start, end + 1, repeated.repeat(count.parse().ok()?)))
    })
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let escaped = if byte == b'\\' { rest.next() } else { None };
        bytes.push(match escaped {
            None => byte,
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'x') => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            Some(other) => other,
        });
    }
    bytes
}

/// The beginning of something long, for people.
fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(300)].escape_ascii().to_string()
}

#[test]
fn what_is_no_resp_gets_the_right_error_and_nobody_else_notices() {
    let daemon = Daemon::start(&[]);
    let mut bystander = daemon.connect();
    let cases = cases(&hint(&daemon));
    assert!(cases.len() >= 200, "{}", cases.len());
    for case in &cases {
        let replies = exchange(daemon.address, &case.sent);
        assert_eq!(shown(&replies), shown(&case.replies), "{}", case.line);
        assert!(replies == case.replies, "{}", case.line);
        bystander.write_all(b"PING\r\n").unwrap();
        let mut reply = [0; 7];
        bystander.read_exact(&mut reply).unwrap();
    }
}

#[test]
fn what_comes_byte_by_byte_gets_the_same_error() {
    let daemon = Daemon::start(&[]);
    for case in cases(&hint(&daemon)).iter().filter(|case| case.sent.len() < 150) {
        let mut stream = daemon.connect();
        // Whoever is told that it is over may still be sending.
        let sent = case.sent.iter().try_for_each(|byte| stream.write_all(&[*byte]));
        let _ = sent.and_then(|()| stream.shutdown(Shutdown::Write));
        assert_eq!(shown(&read_all(&mut stream)), shown(&case.replies), "{}", case.line);
    }
}

#[test]
fn what_is_marked_so_is_answered_as_by_redis() {
    let redis = Redis::start();
    let cases = cases("");
    let same: Vec<&Case> = cases.iter().filter(|case| case.is_as_redis).collect();
    assert!(same.len() >= 150, "{}", same.len());
    for case in same {
        assert_eq!(shown(&exchange(redis.address, &case.sent)), shown(&case.replies), "{}", case.line);
    }
}

#[test]
fn a_thousand_that_announce_much_and_send_nothing_take_no_memory() {
    allow_files(6000);
    let daemon = Daemon::start(&["--connections-per-peer", "5000"]);
    for announced in ["*1\r\n$1048576\r\n", "*1\r\n$65536\r\n", "*1024\r\n$65536\r\n", "*1024\r\n", "x"] {
        let before = daemon.memory();
        let mut connections: Vec<TcpStream> = (0..1000).map(|_| daemon.connect()).collect();
        // When the first part is answered the second one has been read.
        let sent = ["PING\r\n", announced].concat();
        connections.iter_mut().for_each(|stream| stream.write_all(sent.as_bytes()).unwrap());
        connections.iter_mut().for_each(|stream| stream.read_exact(&mut [0; 7]).unwrap());
        let grown = daemon.memory().saturating_sub(before);
        println!("{announced:?}: {} bytes per connection", grown / 1000);
        assert!(grown <= 64 << 20, "{announced:?}: {grown} bytes more");
    }
}

/// How long a question takes that 99 in 100 are faster than.
fn p99(address: SocketAddr, questions: usize) -> Duration {
    let (mut stream, asked) = (connect(address), command(&["CL.THROTTLE", "steady", "1000000", "1000000", "1"]));
    let mut reply = [0; 256];
    let mut times: Vec<Duration> = (0..questions)
        .map(|_| {
            let start = now();
            stream.write_all(&asked).unwrap();
            assert!(stream.read(&mut reply).unwrap() > 0);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

#[test]
fn n1_two_thousand_slow_clients_do_not_slow_down_another_one() {
    allow_files(6000);
    let daemon = Daemon::start(&["--connections-per-peer", "5000"]);
    let questions = 5000;
    let alone = p99(daemon.address, questions).min(p99(daemon.address, questions));
    let mut slow: Vec<TcpStream> = (0..2000).map(|_| daemon.connect()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(b"*2\r\n$4\r\nECHO\r\n$60000\r\n").unwrap());
    let (is_over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let among = std::thread::scope(|scope| {
        // A byte a second each, from one half; the other half is idle.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for stream in slow.iter().step_by(2) {
                    let mut stream = stream;
                    stream.write_all(b"x").unwrap();
                    pause(Duration::from_micros(900));
                }
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut among = p99(daemon.address, questions);
        while rounds.load(Ordering::Relaxed) < 2 {
            among = among.min(p99(daemon.address, questions));
        }
        is_over.store(true, Ordering::Relaxed);
        among
    });
    println!("99 in 100 took at most {alone:?} alone, {among:?} among 2000 slow clients");
    // Two milliseconds are what a busy machine may add by itself.
    assert!(
        among <= (2 * alone).max(alone + Duration::from_millis(2)),
        "{alone:?} alone, {among:?} among slow clients"
    );
}

#[test]
fn all_that_was_sent_before_sigterm_is_answered() {
    let mut daemon = Daemon::start(&[]);
    let (address, sent) = (daemon.address, Arc::new(Barrier::new(21)));
    let clients: Vec<_> = (0..20)
        .map(|client| {
            let sent = Arc::clone(&sent);
            std::thread::spawn(move || {
                let mut stream = connect(address);
                let key = format!("client-{client}");
                stream.write_all(&command(&["CL.THROTTLE", &key, "99", "1", "3600"]).repeat(500)).unwrap();
                sent.wait();
                read_all(&mut stream)
            })
        })
        .collect();
    sent.wait();
    daemon.terminate();
    for client in clients {
        let replies = String::from_utf8(client.join().unwrap()).unwrap();
        assert_eq!(replies.matches("*5\r\n").count(), 500, "all are answered");
        assert_eq!(replies.matches("*5\r\n:0\r\n").count(), 100);
    }
    let (status, time) = daemon.wait();
    assert!(status.success() && time < Duration::from_secs(10), "{status} after {time:?}");
}

/// Asks in batches until the connection ends. A batch that was not answered as a whole was sent when it had ended.
fn ask_until_the_end(address: SocketAddr, batches: &AtomicUsize) {
    let mut stream = connect(address);
    let (asked, mut reply) = (b"PING\r\n".repeat(50), [0; 50 * 7]);
    while stream.write_all(&asked).is_ok() {
        match stream.read(&mut reply) {
            // Closed, or closed while the batch was on its way.
            Ok(0) | Err(_) => return,
            Ok(some) => {
                let rest = stream.read_exact(&mut reply[some..]);
                assert!(rest.is_ok(), "a batch was begun and not finished: {some} bytes, then {rest:?}");
            }
        }
        batches.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn it_ends_in_order_under_load() {
    let mut daemon = Daemon::start(&[]);
    let (address, batches) = (daemon.address, AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| ask_until_the_end(address, &batches));
        }
        assert!(common::eventually(|| batches.load(Ordering::Relaxed) > 1000));
        daemon.terminate();
        let (status, time) = daemon.wait();
        assert!(status.success() && time < Duration::from_secs(10), "{status} after {time:?}");
    });
}

#[test]
fn connections_beyond_the_limit_of_a_peer_are_closed() {
    let daemon = Daemon::start(&["--connections-per-peer", "5"]);
    let mut open: Vec<TcpStream> = (0..5).map(|_| daemon.connect()).collect();
    let is_served = |stream: &mut TcpStream| {
        let _ = stream.write_all(b"PING\r\n");
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).is_ok()
    };
    assert!(open.iter_mut().all(is_served));
    assert_eq!(read_all(&mut daemon.connect()), b"", "the sixth is closed");
    assert!(open.iter_mut().all(is_served), "the others go on");
    open.clear();
    assert!(common::eventually(|| is_served(&mut daemon.connect())), "there is room again");
}

#[test]
fn a_command_that_never_ends_is_not_waited_for() {
    let daemon = Daemon::start(&[]);
    let mut stream = daemon.connect();
    let (mut writer, start) = (stream.try_clone().unwrap(), now());
    let dripping = std::thread::spawn(move || {
        let beginning = b"*2\r\n$4\r\nECHO\r\n$60000\r\n";
        while writer.write_all(if start.elapsed() < Duration::from_secs(1) { beginning } else { b"x" }).is_ok() {
            pause(Duration::from_secs(1));
        }
    });
    let reply = String::from_utf8(read_all(&mut stream)).unwrap();
    assert_eq!(reply, "-ERR the request took too long to arrive\r\n");
    assert!(start.elapsed() >= Duration::from_secs(29), "{:?}", start.elapsed());
    drop(stream);
    dripping.join().unwrap();
}

#[test]
fn who_says_nothing_is_let_go() {
    let daemon = Daemon::start(&["--idle-timeout", "1 second"]);
    let mut stream = daemon.connect();
    stream.write_all(b"PING\r\n").unwrap();
    assert_eq!(read_all(&mut stream), b"+PONG\r\n");
}

#[test]
fn who_does_not_read_replies_does_not_fill_the_memory() {
    let daemon = Daemon::start(&[]);
    let before = daemon.memory();
    let mut deaf = daemon.connect();
    deaf.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    // Each asks for much more than it sends. When replies cannot be sent, nothing more is read.
    let sent = (0..1000).try_for_each(|_| deaf.write_all(&b"INFO\r\n".repeat(1000)));
    assert!(sent.is_err(), "a million questions were taken from somebody who reads no reply");
    assert_eq!(daemon.ask(b"PING\r\n"), "+PONG\r\n");
    let grown = daemon.memory().saturating_sub(before);
    assert!(grown <= 16 << 20, "{grown} bytes more");
}

#[test]
fn a_connection_that_ends_in_the_middle_leaves_nothing_behind() {
    let daemon = Daemon::start(&["--connections-per-peer", "50"]);
    let whole = command(&["CL.THROTTLE", "cut", "0", "1", "3600"]);
    for cut in 0..whole.len() {
        let replies = exchange(daemon.address, &[&whole, &whole[..cut]].concat());
        let expected = if cut == 0 {
            "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:3600\r\n"
        } else {
            "*5\r\n:1\r\n:1\r\n:0\r\n:3600\r\n:3600\r\n"
        };
        assert_eq!(String::from_utf8(replies).unwrap(), expected, "cut after {cut} bytes");
    }
}
