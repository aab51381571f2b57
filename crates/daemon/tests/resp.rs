//! H2: any language that has a Redis client has a client.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{Daemon, Folder, Redis, command, eventually, exchange};
use std::io::{Read, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollgate::{RuleSet, Tollgate};
use tollgate_daemon::State;
use tollgate_daemon::access::Access;
use tollgate_daemon::listen::{FrontEnd, Peer, Stop};
use tollgate_daemon::resp::RespServer;

#[test]
fn h2_redis_cli_is_throttled_as_by_redis_cell() {
    let daemon = Daemon::start(&[]);
    assert_eq!(daemon.redis_cli(&["CL.THROTTLE", "alice", "15", "30", "60"]), "0\n16\n15\n-1\n2\n");
    assert_eq!(daemon.redis_cli(&["PING"]), "PONG\n");
    assert_eq!(daemon.redis_cli(&["-3", "THROTTLE", "bob", "1", "1", "60"]), "1\n1\n0\n60\n0\n");
    let wrong = daemon.redis_cli(&["CL.THROTTLE", "alice", "x", "30", "60"]);
    assert_eq!(wrong.trim_end(), "Cell error: Store error: Couldn't parse as integer: x");
    assert!(daemon.redis_cli(&["NOSUCH"]).contains("there are CL.THROTTLE"));
}

#[test]
fn h2_rules_are_asked_by_redis_cli_and_change_while_it_runs() {
    let folder = Folder::new();
    let file = folder.path().join("rules.yaml");
    let rules = |limit: &str| {
        format!("namespace: shop\nrules: [{{ name: logins, match: {{ op: login }}, key: [ip], limits: [{limit}] }}]\n")
    };
    std::fs::write(&file, rules("2 per hour")).unwrap();
    let daemon = Daemon::start(&["--rules", file.to_str().unwrap()]);
    let login = ["CHECK", "shop", "1", "op", "login", "ip", "192.0.2.1"];
    let first = daemon.redis_cli(&login);
    assert!(first.starts_with("allowed\n1\nstatus\n200\nlimit\n2\nremaining\n1\n"), "{first}");
    daemon.redis_cli(&login);
    let refused = daemon.redis_cli(&login);
    assert!(
        refused.contains("allowed\n0\nstatus\n429") && refused.contains("rule\nlogins\nreason\nover-limit"),
        "{refused}"
    );
    assert!(daemon.redis_cli(&["EXPLAIN", "shop", "1", "op", "logout"]).contains("op is logout"));
    assert_eq!(daemon.redis_cli(&["RESET.CLIENT", "shop", "1", "op", "login", "ip", "192.0.2.1"]), "1\n");
    assert!(daemon.redis_cli(&login).starts_with("allowed\n1\n"));
    let new = folder.path().join("new");
    std::fs::write(&new, rules("7 per hour")).unwrap();
    std::fs::rename(&new, &file).unwrap();
    let limit = || daemon.redis_cli(&["PEEK", "shop", "1", "op", "login", "ip", "192.0.2.1"]);
    assert!(eventually(|| limit().contains("limit\n7\nremaining\n6\n")), "{}", limit());
}

#[test]
fn what_comes_byte_by_byte_is_answered_as_what_comes_at_once() {
    let daemon = Daemon::start(&[]);
    let mut bytes = command(&["PING", "one"]);
    bytes.extend(b"PING two\r\n\r\n");
    bytes.extend(command(&["ECHO", "three\r\n"]));
    bytes.extend(b"ECHO \"fo\\x75r\"\r\n*0\r\n");
    bytes.extend(command(&["CL.THROTTLE", "k", "0", "1", "60"]));
    let expected = "$3\r\none\r\n$3\r\ntwo\r\n$7\r\nthree\r\n\r\n$4\r\nfour\r\n*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n";
    assert_eq!(daemon.ask(&bytes), expected);
    let mut stream = daemon.connect();
    stream.set_nodelay(true).unwrap();
    for byte in command(&["ECHO", "slowly"]) {
        stream.write_all(&[byte]).unwrap();
    }
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"$6\r\nslowly\r\n");
}

#[test]
fn what_is_no_resp_gets_the_error_of_redis_and_a_closed_connection() {
    let daemon = Daemon::start(&[]);
    let long_line = vec![b'x'; 70_000];
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"*x\r\n".to_vec(), "invalid multibulk length"),
        (b"*99999\r\n".to_vec(), "invalid multibulk length"),
        (b"*9223372036854775808\r\n".to_vec(), "invalid multibulk length"),
        (b"*1\rx".to_vec(), "invalid multibulk length"),
        (b"*1111111111111111111111111".to_vec(), "invalid multibulk length"),
        (b"*1\r\n:1\r\n".to_vec(), "expected '$', got ':'"),
        (b"*1\r\n\x00".to_vec(), "expected '$', got '\\x00'"),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n".to_vec(), "expected '$', got '*'"),
        (b"*1\r\n$-1\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$99999999\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$x\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$4\r\nPINGxx".to_vec(), "invalid bulk length"),
        (b"PING \"one\r\n".to_vec(), "unbalanced quotes in request"),
        (b"PING 'one'two\r\n".to_vec(), "unbalanced quotes in request"),
        (long_line, "too big inline request"),
    ];
    for (bytes, problem) in cases {
        let reply = daemon.ask(&[bytes.clone(), command(&["PING"])].concat());
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
        assert_eq!(reply, format!("-ERR Protocol error: {problem}\r\n"), "{shown:?}");
    }
    // What is only cut short is no error, and nothing is answered.
    for cut in ["*1\r\n$4\r\nPIN", "*1", "*2\r\n$4\r\nECHO\r\n", "PING"] {
        assert_eq!(daemon.ask(cut.as_bytes()), "", "{cut:?}");
    }
    assert_eq!(daemon.ask(b"*-1\r\nPING\r\n"), "+PONG\r\n");
}

#[test]
fn the_handshake_of_stock_clients_is_understood() {
    let daemon = Daemon::start(&[]);
    let hello = daemon.ask(&command(&["HELLO", "3", "SETNAME", "me"]));
    assert!(hello.starts_with("%7\r\n$6\r\nserver\r\n$8\r\ntollgate\r\n$7\r\nversion\r\n"), "{hello}");
    assert!(hello.contains("$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:"), "{hello}");
    let replies = daemon.ask_all(&[
        &["CLIENT", "GETNAME"],
        &["CLIENT", "SETINFO", "LIB-NAME", "some"],
        &["client", "setname", "me"],
        &["CLIENT", "GETNAME"],
        &["CLIENT", "NO-EVICT", "on"],
        &["SELECT", "0"],
        &["COMMAND"],
        &["COMMAND", "DOCS"],
        &["QUIT"],
        &["PING"],
    ]);
    assert_eq!(replies, "$-1\r\n+OK\r\n+OK\r\n$2\r\nme\r\n+OK\r\n+OK\r\n*0\r\n*0\r\n+OK\r\n");
    let info = daemon.ask(&command(&["INFO"]));
    assert!(info.contains("tollgate_version:") && info.contains("\r\nloading:0\r\n"), "{info}");
    assert_eq!(
        daemon.ask(b"HELLO 3\r\nCLIENT GETNAME\r\nRESET\r\nCLIENT GETNAME\r\n").rsplit_once("modules").unwrap().1,
        "\r\n*0\r\n_\r\n+RESET\r\n$-1\r\n"
    );
}

#[test]
fn each_connection_has_a_number_of_its_own() {
    let daemon = Daemon::start(&[]);
    let ids: std::collections::HashSet<String> = (0..10).map(|_| daemon.ask(b"CLIENT ID\r\n")).collect();
    assert_eq!(ids.len(), 10, "{ids:?}");
}

#[test]
fn the_handshake_that_is_wrong_gets_the_error_of_redis() {
    let (daemon, redis) = (Daemon::start(&[]), Redis::start());
    let cases: &[&[&str]] = &[
        &["AUTH", "secret"],
        &["AUTH", "default", "secret"],
        &["HELLO", "4"],
        &["HELLO", "x"],
        &["HELLO", "3", "FOO"],
        &["HELLO", "3", "AUTH", "default"],
        &["HELLO", "3", "SETNAME", "a b"],
        &["CLIENT", "SETNAME", "a\nb"],
        &["SELECT", "x"],
    ];
    for case in cases {
        let theirs = String::from_utf8(exchange(redis.address, &command(case))).unwrap();
        assert_eq!(daemon.ask(&command(case)), theirs, "{case:?}");
    }
    // The same, and then how it would be right.
    let cases: &[&[&str]] =
        &[&["AUTH", "somebody", "secret"], &["SELECT", "99"], &["PING", "a", "b"], &["ECHO"], &["CLIENT"], &["AUTH"]];
    for case in cases {
        let theirs = String::from_utf8(exchange(redis.address, &command(case))).unwrap();
        let word = |reply: &str| reply.split_whitespace().next().unwrap().to_owned();
        assert_eq!(word(&daemon.ask(&command(case))), word(&theirs), "{case:?}");
    }
}

#[test]
fn errors_of_cl_throttle_are_those_of_redis_cell() {
    let daemon = Daemon::start(&[]);
    let usage = "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";
    let cases: &[(&[&str], &str)] = &[
        (&[], usage),
        (&["k", "1", "1"], usage),
        (&["k", "1", "1", "1", "1", "1"], usage),
        (&["k", "a", "b", "c", "d"], "Couldn't parse as integer: a"),
        (&["k", "1", "1.5", "1"], "Couldn't parse as integer: 1.5"),
        (&["k", "1", "1", ""], "Couldn't parse as integer: "),
        (&["k", "1", "1", "1", "ü"], "Couldn't parse as integer: ü"),
        (&["k", "1", "1", "9223372036854775808"], "Couldn't parse as integer: 9223372036854775808"),
        (&["k", "1", "0", "1"], "Zero rates are not supported"),
        (&["k", "1", "1", "0"], "Zero rates are not supported"),
    ];
    for (words, error) in cases {
        let asked = command(&[&["cl.throttle"], *words].concat());
        assert_eq!(daemon.ask(&asked), format!("-Cell error: Store error: {error}\r\n"), "{words:?}");
    }
    // What breaks redis-cell breaks nothing here: a line break in an argument, and what is not UTF-8.
    assert!(daemon.ask(&command(&["CL.THROTTLE", "k", "1\r\n+OK", "1", "1"])).ends_with(": 1  +OK\r\n"));
    let no_text = b"*5\r\n$11\r\nCL.THROTTLE\r\n$2\r\n\xff\xfe\r\n$1\r\n0\r\n$1\r\n1\r\n$1\r\n1\r\n";
    assert_eq!(daemon.ask(no_text), "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:1\r\n");
}

#[test]
fn errors_of_throttle_are_those_of_throttlecrab() {
    let daemon = Daemon::start(&[]);
    let cases: &[(&[&str], &str)] = &[
        (&["k"], "wrong number of arguments for 'throttle' command"),
        (&["k", "x", "x", "x", "x"], "invalid max_burst"),
        (&["k", "1", "x", "x", "x"], "invalid count_per_period"),
        (&["k", "1", "1", "x", "x"], "invalid period"),
        (&["k", "1", "1", "1", "x"], "invalid quantity"),
        (&["k", "0", "1", "1", "-2"], "Rate limit check failed: negative quantity: -2"),
        (&["k", "0", "1", "1"], "Rate limit check failed: invalid rate limit parameters"),
        (&["k", "1", "-1", "1"], "Rate limit check failed: invalid rate limit parameters"),
        (&["k", "1", "1", "0"], "Rate limit check failed: invalid rate limit parameters"),
    ];
    for (words, error) in cases {
        let asked = command(&[&["throttle"], *words].concat());
        assert_eq!(daemon.ask(&asked), format!("-ERR {error}\r\n"), "{words:?}");
    }
    // Its burst is all that can be taken at once, where that of redis-cell comes on top of the first.
    let one = command(&["THROTTLE", "k", "3", "1", "60"]);
    let first_numbers = daemon.ask(&one.repeat(4)).replace("\r\n", "").replace("*5", "\n");
    let expected = ["", ":1:3:2:60:0", ":1:3:1:120:0", ":1:3:0:180:0", ":0:3:0:180:60"].join("\n");
    assert_eq!(first_numbers, expected);
}

#[test]
fn questions_by_rules_that_are_wrong_are_told_how_they_would_be_right() {
    let daemon = Daemon::start(&[]);
    let cases: &[(&[&str], &str)] = &[
        (
            &["CHECK"],
            "wrong number of arguments for 'check' command; usage: CHECK namespace cost [attribute value ...]",
        ),
        (
            &["peek", "a"],
            "wrong number of arguments for 'peek' command; usage: PEEK namespace cost [attribute value ...]",
        ),
        (
            &["EXPLAIN", "a", "1", "b"],
            "an attribute without a value; usage: EXPLAIN namespace cost [attribute value ...]",
        ),
        (&["CHECK", "a", "-1"], "the cost is a whole number from 0"),
        (&["CHECK", "a", "1.5"], "the cost is a whole number from 0"),
        (
            &["RESERVE", "a", "1"],
            "wrong number of arguments for 'reserve' command; usage: RESERVE namespace cost milliseconds [attribute value ...]",
        ),
        (&["RESERVE", "a", "1", "soon"], "the time to settle it within is a whole number from 0"),
        (&["SETTLE", "a"], "wrong number of arguments for 'settle' command; usage: SETTLE reservation actual-cost"),
        (&["SETTLE", "0000000000000001", "1"], "there is no such reservation: it was settled, or its time ran out"),
        (&["REFUND"], "wrong number of arguments for 'refund' command; usage: REFUND reservation"),
        (&["REFUND", "0000000000000001"], "there is no such reservation: it was settled, or its time ran out"),
    ];
    for (words, error) in cases {
        assert_eq!(daemon.ask(&command(words)), format!("-ERR {error}\r\n"), "{words:?}");
    }
}

#[test]
fn a_pipeline_of_ten_thousand_is_answered_in_order_and_to_the_token() {
    let daemon = Daemon::start(&[]);
    let one = command(&["CL.THROTTLE", "hot", "99", "1", "3600"]);
    let replies = daemon.ask(&one.repeat(10_000));
    assert_eq!(replies.matches("*5\r\n:0\r\n").count(), 100);
    assert_eq!(replies.matches("*5\r\n:1\r\n").count(), 9_900);
    assert!(replies.starts_with("*5\r\n:0\r\n:100\r\n:99\r\n"), "the first one has all but one left");
}

#[test]
fn a_request_in_flight_is_answered_when_it_is_told_to_end() {
    let mut daemon = Daemon::start(&[]);
    let mut stream = daemon.connect();
    stream.write_all(&command(&["PING"])).unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    daemon.terminate();
    assert!(daemon.wait().0.success());
    assert_eq!(stream.read(&mut reply).unwrap(), 0, "the connection ends in order");
}

/// What a stranger is answered where there is a token.
fn ask_as_stranger(commands: &[&[&str]]) -> String {
    let state = State::new(Tollgate::builder().build(RuleSet::default()), 1000, Access::new(["secret"]));
    let (stopper, stop) = Stop::new();
    let peer = Peer { address: Some(IpAddr::from([192, 0, 2, 1])), is_trusted: false };
    let bytes: Vec<u8> = commands.iter().flat_map(|words| command(words)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reply = runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        client.write_all(&bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let mut reply = String::new();
        let serving = RespServer::new(Arc::new(state), Duration::from_secs(60));
        let ((), read) = tokio::join!(serving.serve(server, peer, stop), client.read_to_string(&mut reply));
        read.map(|_| reply).unwrap()
    });
    drop(stopper);
    reply
}

#[test]
fn strangers_are_answered_nothing_before_they_show_a_token() {
    let commands: &[&[&str]] = &[
        &["PING"],
        &["CL.THROTTLE", "k", "1", "1", "1"],
        &["THROTTLE", "k", "1", "1", "1"],
        &["CHECK", "shop", "1"],
        &["PEEK", "shop", "1"],
        &["RESERVE", "shop", "1", "1000"],
        &["SETTLE", "0000000000000001", "1"],
        &["REFUND", "0000000000000001"],
        &["RESET.CLIENT", "shop", "1"],
        &["EXPLAIN", "shop", "1"],
        &["STATS"],
        &["ECHO", "a"],
        &["CLIENT", "ID"],
        &["COMMAND"],
        &["INFO"],
        &["SELECT", "0"],
        &["RESET"],
        &["HELLO"],
        &["HELLO", "3"],
        &["NOSUCH"],
    ];
    let replies = ask_as_stranger(commands);
    assert_eq!(replies.lines().count(), commands.len(), "{replies}");
    assert!(replies.lines().all(|line| line.starts_with("-NOAUTH ")), "{replies}");
    assert_eq!(ask_as_stranger(&[&["QUIT"], &["PING"]]), "+OK\r\n");
}

#[test]
fn strangers_with_a_token_are_let_in() {
    let starts =
        |replies: String| replies.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>();
    let wrong: &[&[&str]] = &[
        &["AUTH", "guess"],
        &["AUTH", "default", "guess"],
        &["AUTH", ""],
        &["AUTH", "secret "],
        &["HELLO", "3", "AUTH", "default", "guess"],
        &["AUTH"],
        &["PING"],
    ];
    let expected = ["-WRONGPASS", "-WRONGPASS", "-WRONGPASS", "-WRONGPASS", "-WRONGPASS", "-ERR", "-NOAUTH"];
    assert_eq!(starts(ask_as_stranger(wrong)), expected);
    assert_eq!(ask_as_stranger(&[&["AUTH", "secret"], &["PING"]]), "+OK\r\n+PONG\r\n");
    assert_eq!(ask_as_stranger(&[&["AUTH", "anybody", "secret"], &["PING"]]), "+OK\r\n+PONG\r\n");
    let hello =
        ask_as_stranger(&[&["HELLO", "3", "AUTH", "default", "secret", "SETNAME", "me"], &["CLIENT", "GETNAME"]]);
    assert!(hello.starts_with("%7\r\n") && hello.ends_with("$2\r\nme\r\n"), "{hello}");
    // A wrong token later on takes nothing away; starting over does.
    let again = ask_as_stranger(&[&["AUTH", "secret"], &["AUTH", "guess"], &["PING"], &["RESET"], &["PING"]]);
    assert_eq!(starts(again), ["+OK", "-WRONGPASS", "+PONG", "+RESET", "-NOAUTH"]);
}
