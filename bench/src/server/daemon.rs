//! Our own daemon as a process, and how it is asked.

use super::grpc::Grpc;
use super::http::Http;
use super::process::{Server, free_address};
use super::resp::{KEY, Resp};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

/// A burst that is never used up, and a rate so slow that every client stays known.
pub const LIMIT: [&str; 3] = ["100000", "1", "60"];
const RULES: &str = "namespace: bench\nrules: [{ name: users, key: [user], limits: [1 per minute burst 100001] }]\n";

/// Where a server answers in each of the ways.
#[derive(Clone, Copy)]
pub struct Addresses {
    pub resp: SocketAddr,
    pub http: SocketAddr,
    pub grpc: SocketAddr,
}

impl Addresses {
    pub fn free() -> Addresses {
        Addresses { resp: free_address(), http: free_address(), grpc: free_address() }
    }

    pub fn all(&self) -> [SocketAddr; 3] {
        [self.resp, self.http, self.grpc]
    }
}

/// The program that `bench/run` has found or built.
pub fn program(variable: &str) -> Command {
    let path = std::env::var_os(variable);
    Command::new(path.unwrap_or_else(|| panic!("{variable} says where a program is; bench/run sets it")))
}

/// The daemon, with one rule.
pub struct Daemon {
    pub server: Server,
    pub addresses: Addresses,
    rules: PathBuf,
}

impl Daemon {
    pub fn start() -> Daemon {
        let rules = std::env::temp_dir().join(format!("tollgate-bench-{}.yaml", std::process::id()));
        std::fs::write(&rules, RULES).expect("a temporary file");
        let addresses = Addresses::free();
        let mut command = program("TOLLGATE");
        command.arg("serve").arg("--rules").arg(&rules);
        for (name, address) in [("resp", addresses.resp), ("http", addresses.http), ("grpc", addresses.grpc)] {
            command.args([format!("--{name}"), address.to_string()]);
        }
        Daemon { server: Server::start(&mut command, &addresses.all()), addresses, rules }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.rules);
    }
}

/// `CL.THROTTLE`
pub fn resp() -> Resp {
    Resp::new(&[&["CL.THROTTLE", KEY], &LIMIT[..]].concat(), 6)
}

/// `POST /v1/check`
pub fn http() -> Http {
    Http::new("/v1/check", r#"{"namespace":"bench","attributes":{"user":""#, r#""}}"#)
}

/// Envoy's `ShouldRateLimit`
pub fn envoy() -> Grpc {
    Grpc::new("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", descriptor(), Vec::new())
}

/// `domain: bench`, one descriptor of one entry `user`, and the beginning of its value.
fn descriptor() -> Vec<u8> {
    let entry = [&[0x0a, 4][..], b"user", &[0x12, 20]].concat();
    let length = entry.len() as u8 + 20;
    [&[0x0a, 5][..], b"bench", &[0x12, length + 2, 0x0a, length], &entry].concat()
}
