//! H2, N1: plain connections are served by loops until there is something to wait for. Nobody notices when one goes over
//! to a task, wherever it stands.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{Daemon, allow_files, command, eventually, pause, read_all};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// Numbers in the order in which they are asked for, and what is answered.
fn echoes(count: usize, length: usize) -> (Vec<u8>, Vec<u8>) {
    let words: Vec<String> = (0..count).map(|number| format!("{number:0length$}")).collect();
    let asked = words.iter().flat_map(|word| command(&["ECHO", word])).collect();
    let replies = words.iter().flat_map(|word| format!("${length}\r\n{word}\r\n").into_bytes()).collect();
    (asked, replies)
}

#[test]
fn whoever_reads_late_misses_nothing_and_hears_nothing_twice() {
    let daemon = Daemon::start(&[]);
    // More than the kernel keeps on the way: the loop cannot send it all, wherever that happens to be.
    let (asked, expected) = echoes(20_000, 1000);
    let mut stream = daemon.connect();
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&asked).and_then(|()| writer.shutdown(Shutdown::Write)));
        pause(Duration::from_millis(500));
        assert!(read_all(&mut stream) == expected, "not the replies in their order");
    });
}

#[test]
fn what_takes_long_is_answered_in_its_place_in_the_pipeline() {
    let daemon = Daemon::start(&[]);
    let tokens = |daemon: &Daemon| daemon.ask(&command(&["CL.THROTTLE", "k", "9", "1", "3600", "0"]));
    let one = command(&["CL.THROTTLE", "k", "9", "1", "3600"]);
    let slow = [command(&["EXPLAIN", "no-such-namespace", "1"]), b"ECHO \"a word\"\r\n".to_vec()];
    // Both before, in between and after what is decided at once.
    let sent = [&slow[0], &one, &slow[1], &one, &one, &slow[0], &slow[0], &one, &slow[1]].map(Vec::as_slice).concat();
    let replies = daemon.ask(&sent);
    let kinds = replies.lines().filter(|line| line.starts_with(['*', '$'])).map(|line| line.starts_with('*'));
    let expected = [false, true, false, true, true, false, false, true, false];
    assert_eq!(kinds.collect::<Vec<_>>(), expected, "{replies}");
    assert_eq!(replies.matches("a word").count(), 2, "{replies}");
    assert_eq!(tokens(&daemon), "*5\r\n:0\r\n:10\r\n:6\r\n:-1\r\n:14400\r\n", "four were taken, none of them twice");
}

#[test]
fn what_comes_in_two_parts_goes_over_with_its_first() {
    let daemon = Daemon::start(&[]);
    let long = command(&["ECHO", &"x".repeat(60_000)]);
    let (first, second) = long.split_at(30_000);
    let mut stream = daemon.connect();
    stream.write_all(&[&command(&["PING"]), first].concat()).unwrap();
    stream.read_exact(&mut [0; 7]).unwrap();
    daemon.terminate();
    stream.write_all(second).unwrap();
    let replies = String::from_utf8(read_all(&mut stream)).unwrap();
    assert_eq!(replies, format!("$60000\r\n{}\r\n", "x".repeat(60_000)));
}

/// How many connections of Redis clients the daemon takes for open.
fn open(daemon: &Daemon) -> String {
    let mut stream = common::connect(daemon.http);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let page = String::from_utf8(read_all(&mut stream)).unwrap();
    let name = r#"tollgate_connections_open{protocol="resp"} "#;
    page.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned()
}

#[test]
fn however_a_connection_ends_it_is_no_longer_counted() {
    let daemon = Daemon::start(&["--idle-timeout", "3 seconds"]);
    let says = |bytes: &[u8]| {
        let mut stream = daemon.connect();
        stream.write_all(bytes).unwrap();
        stream
    };
    let (idle, cut) = (says(b""), says(b"*1\r\n$4\r\nPI"));
    let mut served = says(b"PING\r\n");
    served.read_exact(&mut [0; 7]).unwrap();
    // Not all of them are served by the same loop, and another one may not have got to it yet.
    assert!(eventually(|| open(&daemon) == "3"), "{} are open", open(&daemon));
    drop((cut, served));
    // Said goodbye, made no sense, and went away with replies unread.
    assert_eq!(daemon.ask(b"QUIT\r\n"), "+OK\r\n");
    assert_eq!(daemon.ask(b"*x\r\n"), "-ERR Protocol error: invalid multibulk length\r\n");
    drop(says(&b"INFO\r\n".repeat(2000)));
    assert!(eventually(|| open(&daemon) == "0"), "{} are open", open(&daemon));
    drop(idle);
}

#[test]
fn thousands_who_rest_take_little_memory_and_do_not_hold_up_the_end() {
    let count = 3000;
    allow_files(6000);
    let mut daemon = Daemon::start(&["--connections-per-peer", "5000"]);
    let before = daemon.memory();
    let mut resting: Vec<TcpStream> = (0..count).map(|_| daemon.connect()).collect();
    let question = command(&["CL.THROTTLE", "k", "1", "1", "1"]);
    resting.iter_mut().for_each(|stream| stream.write_all(&question.repeat(20)).unwrap());
    resting.iter_mut().for_each(|stream| assert!(stream.read(&mut [0; 64]).unwrap() > 0));
    let grown = || daemon.memory().saturating_sub(before) / count;
    assert!(eventually(|| grown() <= 6 << 10), "{} bytes for each", grown());
    println!("{} bytes for each", grown());
    daemon.terminate();
    resting.iter_mut().for_each(|stream| drop(read_all(stream)));
    let (status, time) = daemon.wait();
    assert!(status.success() && time < Duration::from_secs(10), "{status} after {time:?}");
}
