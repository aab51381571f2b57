//! A real nginx in front of a backend, which asks `/v1/auth` about every request, set up as `docs/http.md` says.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;
#[path = "http/server.rs"]
mod server;

use common::{Folder, eventually};
use server::{Reply, Server};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// nginx on a free port, ended when this is dropped.
struct Nginx {
    child: Child,
    address: SocketAddr,
    _folder: Folder,
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// What the documentation tells people to write.
fn documented() -> String {
    let page = include_str!("../../../docs/http.md");
    let block = page.split("```nginx\n").nth(1).and_then(|after| after.split("```").next());
    block.unwrap_or_else(|| panic!("docs/http.md has no configuration of nginx")).to_owned()
}

impl Nginx {
    /// One process alone, so that nothing of it stays when it is ended.
    fn start(daemon: SocketAddr) -> Nginx {
        let (folder, address, backend) = (Folder::new(), free_address(), free_address());
        let server = documented()
            .replace("listen 80;", &format!("listen {address};"))
            .replace("127.0.0.1:8080", &daemon.to_string())
            .replace("127.0.0.1:3000", &backend.to_string());
        let configuration = format!(
            "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n\
             access_log off;\nclient_body_temp_path body;\nproxy_temp_path proxy;\nfastcgi_temp_path fastcgi;\n\
             uwsgi_temp_path uwsgi;\nscgi_temp_path scgi;\n{server}\n\
             server {{ listen {backend}; location / {{ return 200 hello; }} }}\n}}\n"
        );
        std::fs::write(folder.path().join("nginx.conf"), configuration).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder.path()).args(["-c", "nginx.conf"]).stderr(Stdio::null());
        // It is not on every user's path.
        command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap()));
        let child = command.spawn().unwrap_or_else(|error| panic!("nginx: {error}; install the package `nginx`"));
        let nginx = Nginx { child, address, _folder: folder };
        assert!(eventually(|| TcpStream::connect(address).is_ok()), "nginx does not answer");
        nginx
    }

    /// Asks from an address of this machine.
    fn get(&self, path: &str, from: &str, headers: &[&str]) -> Reply {
        let mut command = Command::new("curl");
        command.args(["-sSi", "--max-time", "60", "--interface", from, &format!("http://{}{path}", self.address)]);
        headers.iter().for_each(|header| _ = command.args(["-H", header]));
        let output = command.output().unwrap_or_else(|error| panic!("curl: {error}; install the package `curl`"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Reply::new(&String::from_utf8(output.stdout).unwrap())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a2_behind_nginx_a_client_is_served_until_its_limit_and_then_told_when_to_come_back() {
    let server = Server::start();
    let nginx = Nginx::start(server.address);
    let login = |from: &str, headers: &[&str]| nginx.get("/login?next=/", from, headers);
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
    assert_eq!(nginx.get("/free", "127.0.0.2", &[]).status, 200, "another page");
    assert_eq!(nginx.get("/tollgate", "127.0.0.2", &[]).status, 404, "nobody else can ask");
}

#[test]
fn n4_behind_nginx_everybody_is_served_while_the_daemon_is_gone() {
    let server = Server::start();
    let nginx = Nginx::start(server.address);
    let statuses: Vec<u16> = (0..3).map(|_| nginx.get("/login", "127.0.0.2", &[]).status).collect();
    assert_eq!(statuses, [200, 200, 429]);
    server.stopper.stop();
    server.runtime.block_on(server.running).unwrap();
    assert_eq!(nginx.get("/login", "127.0.0.2", &[]).status, 200);
}
