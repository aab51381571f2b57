//! A real nginx in front of a backend, which asks `/v1/auth` about every request, set up as `docs/http.md` says.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;
#[path = "common/front.rs"]
mod front;
#[path = "http/server.rs"]
mod server;

use front::{Front, free_address};
use server::{Reply, Server};
use std::net::SocketAddr;
use std::process::Command;

/// What the documentation tells people to write.
fn documented() -> String {
    let page = include_str!("../../../docs/http.md");
    let block = page.split("```nginx\n").nth(1).and_then(|after| after.split("```").next());
    block.unwrap_or_else(|| panic!("docs/http.md has no configuration of nginx")).to_owned()
}

/// nginx in front of a backend, as the documentation says.
fn documented_nginx(daemon: SocketAddr) -> Front {
    let (address, backend) = (free_address(), free_address());
    let server = documented()
        .replace("listen 80;", &format!("listen {address};"))
        .replace("127.0.0.1:8080", &daemon.to_string())
        .replace("127.0.0.1:3000", &backend.to_string());
    let backend = format!("server {{ listen {backend}; location / {{ return 200 hello; }} }}");
    Front::nginx(address, &format!("{server}\n{backend}"))
}

/// Asks from an address of this machine.
fn get(nginx: &Front, path: &str, from: &str, headers: &[&str]) -> Reply {
    let mut command = Command::new("curl");
    command.args(["-sSi", "--max-time", "60", "--interface", from, &format!("http://{}{path}", nginx.address)]);
    headers.iter().for_each(|header| _ = command.args(["-H", header]));
    let output = command.output().unwrap_or_else(|error| panic!("curl: {error}; install the package `curl`"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Reply::new(&String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a2_behind_nginx_a_client_is_served_until_its_limit_and_then_told_when_to_come_back() {
    let server = Server::start();
    let nginx = documented_nginx(server.address);
    let login = |from: &str, headers: &[&str]| get(&nginx, "/login?next=/", from, headers);
    for remaining in ["1", "0"] {
        let reply = login("127.0.0.2", &[]);
        assert_eq!((reply.status, reply.body.as_str()), (200, "hello"));
        assert!(reply.header("ratelimit").unwrap().contains(&format!("r={remaining};")), "{reply:?}");
    }
    let refused = login("127.0.0.2", &[]);
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1800")));
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(refused.json()["status"], 429);
    assert!(refused.header("ratelimit-policy").unwrap().starts_with("\"logins\";q=2"), "{refused:?}");
    // Nothing that the client says about itself helps it.
    let lies = [
        "X-Forwarded-For: 6.6.6.6",
        "X-Real-IP: 6.6.6.6",
        "Forwarded: for=6.6.6.6",
        "X-Original-URI: /free",
        "X-Forwarded-Uri: /free",
        "X-Original-Method: PUT",
        "X-Forwarded-Host: free",
        "Content-Type: application/grpc",
        "X-Tollgate-Namespace: free",
        "X-Tollgate-Token: guess",
    ];
    for lie in lies {
        assert_eq!(login("127.0.0.2", &[lie]).status, 429, "{lie}");
    }
    assert_eq!(login("127.0.0.3", &[]).status, 200, "another client");
    assert_eq!(get(&nginx, "/free", "127.0.0.2", &[]).status, 200, "another page");
    assert_eq!(get(&nginx, "/tollgate", "127.0.0.2", &[]).status, 404, "nobody else can ask");
}

#[test]
fn n4_behind_nginx_everybody_is_served_while_the_daemon_is_gone() {
    let server = Server::start();
    let nginx = documented_nginx(server.address);
    let statuses: Vec<u16> = (0..3).map(|_| get(&nginx, "/login", "127.0.0.2", &[]).status).collect();
    assert_eq!(statuses, [200, 200, 429]);
    server.stopper.stop();
    server.runtime.block_on(server.running).unwrap();
    assert_eq!(get(&nginx, "/login", "127.0.0.2", &[]).status, 200);
}
