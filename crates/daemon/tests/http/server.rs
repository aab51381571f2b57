//! A server within the test.

#![allow(dead_code, reason = "no test uses all of it")]

#[path = "../common/within.rs"]
mod within;

use crate::common::{connect, exchange, read_all};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tollgate::ManualClock;
use tollgate_daemon::State;
use tollgate_daemon::http::HttpServer;
use tollgate_daemon::listen::{Door, FrontEnd, Listener, Stop, Stopper, listen};
use tollgate_daemon::meters::{Meter, Protocol};
use within::{Suspicious, state};

/// Two requests an hour for each address, and others by their own rules.
pub(crate) const RULES: &str = r#"
namespace: shop
identity: { trusted_proxies: [127.0.0.1] }
rules:
  - { name: logins, match: { path: /login }, key: [ip], limits: [2 per hour] }
  - { name: queued, match: { path: /queued }, key: [], limits: [1 per second], over: queue up to 5s }
  - { name: dropped, match: { path: /dropped }, key: [], limits: [1 per hour], over: drop }
  - { name: busy, match: { path: /busy }, key: [], limits: [1 per hour], over: reject with 503 }
  - { name: by-host, match: { host: example.org, method: PUT }, key: [header.content-type], limits: [1 per hour] }
  - { name: tokens, match: { op: llm }, key: [user], limits: [1000 per hour] }
"#;

/// A server on a free port, whose clock stands still. It ends when this is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) state: Arc<State>,
    pub(crate) hands: ManualClock,
    pub(crate) stopper: Stopper,
    pub(crate) running: JoinHandle<()>,
    pub(crate) runtime: Runtime,
}

impl Server {
    pub(crate) fn start() -> Server {
        Server::start_patient(Duration::from_secs(60), Duration::from_secs(10))
    }

    /// One that waits so long for a request, and so long for its rest.
    pub(crate) fn start_patient(idle: Duration, rest: Duration) -> Server {
        let (state, hands) = state(RULES, &[]);
        Server::run(HttpServer::new(Arc::clone(&state), idle).with_patience(rest), state, hands)
    }

    /// One that wants to see a token.
    pub(crate) fn start_suspicious(token: &str) -> Server {
        let (state, hands) = state(RULES, &[token]);
        let server = HttpServer::new(Arc::clone(&state), Duration::from_secs(60));
        Server::run(Suspicious(server), state, hands)
    }

    fn run(server: impl FrontEnd, state: Arc<State>, hands: ManualClock) -> Server {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let (stopper, stop) = Stop::new();
        // All that come are from one machine.
        let door = Door { per_peer: 3000, ..Door::default() };
        let running = runtime.spawn(listen(Listener::Tcp(listener), door, Arc::new(server), stop));
        Server { address, state, hands, stopper, running, runtime }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    /// Sends bytes, says that nothing follows, and returns all replies.
    pub(crate) fn send(&self, bytes: &[u8]) -> String {
        String::from_utf8(exchange(self.address, bytes)).unwrap()
    }

    /// Sends bytes and nothing more, and returns all replies once the server has closed.
    pub(crate) fn send_and_wait(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        let _ = stream.write_all(bytes);
        String::from_utf8(read_all(&mut stream)).unwrap()
    }

    /// What is answered to a question in JSON.
    #[track_caller]
    pub(crate) fn ask(&self, page: &str, body: &str) -> Reply {
        Reply::new(&self.send(post(page, body).as_bytes()))
    }

    #[track_caller]
    pub(crate) fn get(&self, target: &str, headers: &str) -> Reply {
        Reply::new(&self.send(format!("GET {target} HTTP/1.1\r\nhost: x\r\n{headers}\r\n").as_bytes()))
    }

    /// What curl says. `URL` stands for where the server is.
    pub(crate) fn curl(&self, arguments: &[&str]) -> String {
        let url = format!("http://{}", self.address);
        let arguments = arguments.iter().map(|argument| argument.replace("URL", &url));
        let output = Command::new("curl").args(["-sS", "--max-time", "60"]).args(arguments).output();
        let output = output.unwrap_or_else(|error| panic!("curl: {error}; install the package `curl`"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn meter(&self) -> &Meter {
        self.state.meters().of(Protocol::Http)
    }

    pub(crate) fn faults(&self, name: &str) -> u64 {
        self.meter().faults().get(name).copied().unwrap_or_default()
    }
}

/// A request with a body.
pub(crate) fn post(page: &str, body: &str) -> String {
    format!("POST {page} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// A reply, taken apart.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    #[track_caller]
    pub(crate) fn new(text: &str) -> Reply {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no reply: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
