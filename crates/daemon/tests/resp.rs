//! H2: any language that has a Redis client has a client.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The program itself, on a free port, ended when this is dropped.
struct Daemon {
    child: Child,
    address: SocketAddr,
}

impl Daemon {
    fn start(arguments: &[&str]) -> Daemon {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["serve", "--resp", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split(" on ").nth(1).unwrap().split(". ").next().unwrap().parse().unwrap();
        Daemon { child, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    /// Sends bytes, says that nothing follows, and returns all replies.
    fn ask(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        String::from_utf8(reply).unwrap()
    }

    fn redis_cli(&self, arguments: &[&str]) -> String {
        let port = self.address.port().to_string();
        let output = Command::new("redis-cli").args(["-p", &port]).args(arguments).output();
        let output = output.unwrap_or_else(|error| panic!("redis-cli: {error}; install the package `redis-tools`"));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command as clients send it.
fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    bytes.into_bytes()
}

#[test]
fn h2_redis_cli_is_throttled_as_by_redis_cell() {
    let daemon = Daemon::start(&[]);
    assert_eq!(daemon.redis_cli(&["CL.THROTTLE", "alice", "15", "30", "60"]), "0\n16\n15\n-1\n2\n");
    assert_eq!(daemon.redis_cli(&["PING"]), "PONG\n");
    assert_eq!(daemon.redis_cli(&["-3", "THROTTLE", "bob", "0", "1", "60"]), "1\n0\n0\n60\n0\n");
    let wrong = daemon.redis_cli(&["CL.THROTTLE", "alice", "x", "30", "60"]);
    assert_eq!(wrong.trim_end(), "Cell error: Couldn't parse as integer: x");
    assert!(daemon.redis_cli(&["NOSUCH"]).contains("there are CL.THROTTLE"));
}

#[test]
fn h2_rules_are_asked_by_redis_cli_and_change_while_it_runs() {
    let folder = std::env::temp_dir().join(format!("tollgate-resp-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("rules.yaml");
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
    std::fs::write(folder.join("new"), rules("7 per hour")).unwrap();
    std::fs::rename(folder.join("new"), &file).unwrap();
    let limit = || daemon.redis_cli(&["PEEK", "shop", "1", "op", "login", "ip", "192.0.2.1"]);
    assert!(eventually(|| limit().contains("limit\n7\nremaining\n6\n")), "{}", limit());
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Whether something comes true within ten seconds.
fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    (0..200).any(|_| {
        let holds = condition();
        if !holds {
            // Rules are looked at every second.
            #[expect(clippy::disallowed_methods, reason = "another process is waited for")]
            std::thread::sleep(Duration::from_millis(50));
        }
        holds
    })
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
    assert!(
        hello.starts_with("%5\r\n$6\r\nserver\r\n$8\r\ntollgate\r\n") && hello.ends_with("$5\r\nproto\r\n:3\r\n"),
        "{hello}"
    );
    assert!(daemon.ask(&command(&["HELLO", "4"])).starts_with("-NOPROTO"));
    let mut bytes = command(&["CLIENT", "SETINFO", "LIB-NAME", "some"]);
    bytes.extend(command(&["CLIENT", "SETNAME", "me"]));
    bytes.extend(command(&["CLIENT", "GETNAME"]));
    bytes.extend(command(&["SELECT", "0"]));
    bytes.extend(command(&["SELECT", "1"]));
    bytes.extend(command(&["COMMAND", "DOCS"]));
    bytes.extend(command(&["QUIT"]));
    bytes.extend(command(&["PING"]));
    let expected = "+OK\r\n+OK\r\n$2\r\nme\r\n+OK\r\n-ERR DB index is out of range; there is only 0\r\n*0\r\n+OK\r\n";
    assert_eq!(daemon.ask(&bytes), expected);
    assert!(daemon.ask(&command(&["INFO"])).contains("tollgate_version:"));
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
    let kill = Command::new("kill").args(["-TERM", &daemon.child.id().to_string()]).status().unwrap();
    assert!(kill.success() && daemon.child.wait().unwrap().success());
    assert_eq!(stream.read(&mut reply).unwrap(), 0, "the connection ends in order");
}
