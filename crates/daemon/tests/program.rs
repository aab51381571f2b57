//! The program as people run it: certificates, tokens, signals, systemd, and the command line.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{Folder, eventually, free_address};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const TOLLGATE: &str = env!("CARGO_BIN_EXE_tollgate");

/// The program on free ports, with what it said when it was ready.
struct Program {
    child: Child,
    said: Vec<String>,
}

impl Program {
    fn start(folder: &Path, arguments: &[&str]) -> Program {
        let mut command = Command::new(TOLLGATE);
        command.arg("serve").args(arguments);
        for flag in ["--resp", "--grpc", "--http"].iter().filter(|flag| !arguments.contains(flag)) {
            command.args([flag, "127.0.0.1:0"]);
        }
        Program::spawn(command.current_dir(folder))
    }

    fn spawn(command: &mut Command) -> Program {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let said = lines.take_while(|line| line != "Ready.").collect();
        Program { child, said }
    }

    fn address(&self, name: &str) -> SocketAddr {
        let line = self.said.iter().find_map(|line| line.trim().strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {:?}", self.said)).trim().parse().unwrap()
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn redis_cli(address: SocketAddr, arguments: &[&str]) -> String {
    let output = Command::new("redis-cli").args(["-p", &address.port().to_string()]).args(arguments).output();
    text(&output.unwrap_or_else(|error| panic!("redis-cli: {error}; install the package `redis-tools`")))
}

fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl").args(["-sS", "--max-time", "20"]).args(arguments).output();
    text(&output.unwrap_or_else(|error| panic!("curl: {error}; install the package `curl`")))
}

/// Writes an authority, a certificate by it for this machine and one for a client: `ca.pem`, `server.pem`, …
fn write_certificates(folder: &Path, host: &str) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.distinguished_name.push(DnType::CommonName, "an authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
    for (name, purpose) in
        [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
    {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([host.to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        let certificate = params.signed_by(&key, &authority).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
    }
}

const TLS: [&str; 4] = ["--tls-certificate", "server.pem", "--tls-key", "server.key"];

#[test]
fn every_listener_speaks_tls_and_reads_new_certificates() {
    let folder = Folder::new();
    write_certificates(folder.path(), "localhost");
    let program = Program::start(folder.path(), &TLS);
    let (resp, http) = (program.address("RESP"), program.address("HTTP"));
    let authority = folder.path().join("ca.pem").display().to_string();
    assert_eq!(redis_cli(resp, &["--tls", "--cacert", &authority, "PING"]), "PONG\n");
    for version in ["--http1.1", "--http2"] {
        let page = format!("https://{http}/healthz");
        assert!(curl(&[version, "--cacert", &authority, "-w", "%{http_code}", &page]).ends_with("200"));
    }
    let grpc = format!("https://{}/", program.address("gRPC"));
    let grpc_answer = curl(&["--http2", "--cacert", &authority, "-o", "/dev/null", "-w", "%{http_version}", &grpc]);
    assert_eq!(grpc_answer, "2");
    // Whoever speaks plainly is not understood, and nobody else is the worse for it.
    assert_ne!(redis_cli(resp, &["PING"]), "PONG\n");
    assert_eq!(redis_cli(resp, &["--tls", "--cacert", &authority, "PING"]), "PONG\n");

    write_certificates(folder.path(), "localhost");
    program.signal("-HUP");
    assert!(eventually(|| redis_cli(resp, &["--tls", "--cacert", &authority, "PING"]) == "PONG\n"));
    // Files that are none leave it as it was.
    std::fs::write(folder.path().join("server.pem"), "no certificate").unwrap();
    program.signal("-HUP");
    assert_eq!(redis_cli(resp, &["--tls", "--cacert", &authority, "PING"]), "PONG\n");
}

#[test]
fn only_those_with_a_certificate_connect_where_one_is_asked_for() {
    let folder = Folder::new();
    write_certificates(folder.path(), "localhost");
    let program = Program::start(folder.path(), &[&TLS[..], &["--tls-client-ca", "ca.pem"]].concat());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (authority, certificate, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let resp = program.address("RESP");
    let with = ["--tls", "--cacert", &authority, "--cert", &certificate, "--key", &key];
    assert_eq!(redis_cli(resp, &[&with[..], &["PING"]].concat()), "PONG\n");
    assert_ne!(redis_cli(resp, &["--tls", "--cacert", &authority, "PING"]), "PONG\n");
    let page = format!("https://{}/healthz", program.address("HTTP"));
    let with = ["--cacert", &authority, "--cert", &certificate, "--key", &key, "-o", "/dev/null", "-w", "%{http_code}"];
    assert_eq!(curl(&[&with[..], &[&page]].concat()), "200");
}

/// `redis-server` that only those are served by who speak TLS and know its password.
fn start_secured_redis(folder: &Path) -> (Child, SocketAddr) {
    let address = free_address();
    let child = Command::new("redis-server")
        .args(["--port", "0", "--bind", "127.0.0.1", "--tls-port", &address.port().to_string(), "--save", ""])
        .args(["--tls-cert-file", "server.pem", "--tls-key-file", "server.key", "--tls-ca-cert-file", "ca.pem"])
        .args(["--tls-auth-clients", "no", "--requirepass", "secret"])
        .current_dir(folder)
        .stdout(Stdio::null())
        .spawn();
    (child.unwrap_or_else(|error| panic!("redis-server: {error}; install the package `redis-server`")), address)
}

#[test]
fn limits_are_shared_through_a_store_that_speaks_tls() {
    let folder = Folder::new();
    write_certificates(folder.path(), "localhost");
    let rules = "namespace: n\nrules: [{ name: a, key: [user], limits: [2 per day], shared: store-exact }]";
    std::fs::write(folder.path().join("rules.yaml"), rules).unwrap();
    let (mut redis, address) = start_secured_redis(folder.path());
    let store = format!("rediss://:secret@localhost:{}", address.port());
    let arguments =
        ["--rules", "rules.yaml", "--store", &store, "--store-tls-ca", "ca.pem", "--store-budget", "1 second"];
    let programs = [Program::start(folder.path(), &arguments), Program::start(folder.path(), &arguments)];
    let ask = |program: &Program, user: &str| {
        redis_cli(program.address("RESP"), &["CHECK", "n", "1", "user", user]).replace('\n', " ")
    };
    let is_exact = |program: &Program| !ask(program, "nobody").contains("degraded");
    assert!(eventually(|| programs.iter().all(is_exact)), "{}", ask(&programs[0], "nobody"));
    let answers: Vec<String> = [0, 1, 0, 1].map(|program: usize| ask(&programs[program], "ann")).to_vec();
    let is_allowed: Vec<bool> = answers.iter().map(|answer| answer.starts_with("allowed 1 ")).collect();
    assert_eq!(is_allowed, [true, true, false, false], "{answers:?}");
    let authority = folder.path().join("ca.pem").display().to_string();
    let keys = redis_cli(address, &["--tls", "--cacert", &authority, "-a", "secret", "--no-auth-warning", "DBSIZE"]);
    assert!(keys.trim().parse::<u64>().unwrap() >= 2, "{keys}");
    redis.kill().unwrap();
    redis.wait().unwrap();
}

/// In a network namespace of its own, where 192.0.2.10 is this machine and nobody else can be reached.
const STRANGER: &str = r#"
set -e
ip link set lo up
ip addr add 192.0.2.10/32 dev lo
"$TOLLGATE" serve --resp 192.0.2.10:6380 --http 192.0.2.10:8080 --grpc off --token-file tokens >said 2>log &
trap 'kill $!' EXIT
until grep -qs Ready said; do sleep 0.05; done
ask() { redis-cli --no-auth-warning -h 192.0.2.10 -p 6380 "$@" 2>&1 | grep -om 1 'NOAUTH\|WRONGPASS\|PONG'; }
page() { curl -s -o /dev/null -w '%{http_code}\n' --max-time 20 "$@" http://192.0.2.10:8080/metrics; }
ask PING
ask -a 0123456789abcdef PING
ask -a wrong PING
page
page -H 'authorization: Bearer wrong'
page -H 'authorization: Bearer 0123456789abcdef'
grep -c 0123456789abcdef log || true
"#;

#[test]
fn strangers_need_a_token_and_it_is_in_no_log() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("tokens"), "0123456789abcdef\n").unwrap();
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "bash", "-c", STRANGER])
        .env("TOLLGATE", TOLLGATE)
        .current_dir(folder.path())
        .output()
        .unwrap_or_else(|error| panic!("unshare: {error}; install the package `util-linux`"));
    let expected = "NOAUTH\nPONG\nWRONGPASS\n401\n401\n200\n0\n";
    assert_eq!(text(&output), expected, "this needs `ip` (package iproute2) and leave to make network namespaces");
}

#[test]
fn nothing_is_open_to_the_world_unless_somebody_says_so() {
    let output = Command::new(TOLLGATE).args(["serve", "--http", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("let everybody in with `allow-anonymous`"), "{}", text(&output));
}

#[test]
fn systemd_is_told_when_it_is_ready_and_hands_over_sockets() {
    let folder = Folder::new();
    let notify = folder.path().join("notify");
    let heard = UnixDatagram::bind(&notify).unwrap();
    heard.set_read_timeout(Some(common::PATIENCE)).unwrap();
    // What systemd does: sockets from descriptor 3 on, in the order RESP, gRPC, HTTP.
    let script = "
import os, socket, sys
for number in range(3, 6):
    listener = socket.create_server(('127.0.0.1', 0))
    os.dup2(listener.fileno(), number)
    os.set_inheritable(number, True)
    print(listener.getsockname()[1], file=sys.stderr, flush=True)
    keep = listener.detach()
os.environ.update(LISTEN_FDS='3', LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[1], sys.argv[1:])
";
    let mut command = Command::new("python3");
    command.args(["-c", script, TOLLGATE, "serve"]).env("NOTIFY_SOCKET", &notify).current_dir(folder.path());
    let program = Program::spawn(&mut command);
    let mut word = [0; 64];
    let length = heard.recv(&mut word).unwrap();
    assert_eq!(&word[..length], b"READY=1");
    assert_eq!(redis_cli(program.address("RESP"), &["PING"]), "PONG\n");
    assert_ne!(program.address("RESP").port(), 6380, "not its own, but the one that was handed over");
    program.signal("-TERM");
    let length = heard.recv(&mut word).unwrap();
    assert_eq!(&word[..length], b"STOPPING=1");
}

#[test]
fn too_many_open_files_are_waited_out() {
    let folder = Folder::new();
    let mut command = Command::new("bash");
    let serve = format!("ulimit -n 48; exec {TOLLGATE} serve --resp 127.0.0.1:0 --grpc off --http off --log error");
    let program = Program::spawn(command.args(["-c", &serve]).current_dir(folder.path()));
    let resp = program.address("RESP");
    let crowd: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(resp).unwrap()).collect();
    drop(crowd);
    assert_eq!(redis_cli(resp, &["PING"]), "PONG\n");
}

#[test]
fn a_unix_socket_is_opened_and_tidied_away() {
    let folder = Folder::new();
    let mut program = Program::start(folder.path(), &["--resp-socket", "tollgate.sock"]);
    let socket = folder.path().join("tollgate.sock");
    let output = Command::new("redis-cli").arg("-s").arg(&socket).arg("PING").output().unwrap();
    assert_eq!(text(&output), "PONG\n");
    program.signal("-TERM");
    assert!(program.child.wait().unwrap().success());
    assert!(!socket.exists());
}

/// The commands of the README's start, each with what it says they print, for a daemon on other ports.
fn readme(program: &Program) -> Vec<(String, String)> {
    let text = include_str!("../../../README.md");
    let start = text.split("## Sixty seconds").nth(1).unwrap().split("```sh\n");
    let blocks: Vec<&str> = start.skip(1).map(|block| block.split("```").next().unwrap()).collect();
    assert_eq!(blocks.first(), Some(&"cargo run --release -- serve\n"), "what this program is");
    let lines: Vec<&str> = blocks.get(1).unwrap().lines().collect();
    let (pairs, []) = lines.as_chunks::<2>() else { panic!("a command and its answer each: {lines:?}") };
    let moved = |line: &str| {
        let line = line.replace("127.0.0.1:8080", &program.address("HTTP").to_string());
        line.replace("-p 6380", &format!("-p {}", program.address("RESP").port()))
    };
    pairs.iter().map(|[command, answer]| (moved(command), answer.strip_prefix("# ").unwrap().to_owned())).collect()
}

#[test]
fn what_the_readme_says_to_try_works_line_by_line() {
    let folder = Folder::new();
    let program = Program::start(folder.path(), &[]);
    assert!(folder.path().join("tollgate-rules.yaml").exists(), "examples to edit");
    for (command, answer) in readme(&program) {
        let output = Command::new("bash").args(["-c", &command]).output().unwrap();
        assert_eq!(text(&output).trim_end(), answer, "{command}");
    }
    for line in program.said.iter().filter(|line| line.contains("curl") || line.contains("redis-cli")) {
        let output = Command::new("bash").args(["-c", line]).output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty(), "{line}: {}", text(&output));
    }

    let server = program.address("RESP").to_string();
    let tollgate =
        |arguments: &[&str]| Command::new(TOLLGATE).args(arguments).args(["--server", &server]).output().unwrap();
    let request = ["demo", "operation=login", "ip=192.0.2.1"];
    assert!(text(&tollgate(&[&["check"], &request[..]].concat())).contains("rule           logins"));
    assert!(text(&tollgate(&[&["explain"], &request[..]].concat())).contains("+ logins: counts for 192.0.2.1"));
    assert_eq!(text(&tollgate(&[&["reset"], &request[..]].concat())), "2 buckets are full again\n");
    let refused = tollgate(&["check", "demo", "operation=hello", "user=you"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&tollgate(&["top", "--once"])).contains("demo/hello"));

    let port = program.address("HTTP");
    let edited = std::fs::read_to_string(folder.path().join("tollgate-rules.yaml"))
        .unwrap()
        .replace("5 per minute", "7 per minute");
    std::fs::write(folder.path().join("tollgate-rules.yaml"), edited).unwrap();
    let body = r#"{"namespace":"demo","attributes":{"operation":"hello","user":"me"}}"#;
    assert!(eventually(|| curl(&["-d", body, &format!("http://{port}/v1/peek")]).contains("\"limit\":7")));
}

#[test]
fn the_command_line_explains_itself() {
    let tollgate = |arguments: &[&str]| text(&Command::new(TOLLGATE).args(arguments).output().unwrap());
    for word in ["serve", "config", "check", "peek", "reset", "explain", "top", "rules", "completions", "man"] {
        assert!(tollgate(&["--help"]).contains(word), "{word}");
    }
    assert!(tollgate(&["completions", "bash"]).contains("complete -F _tollgate"));
    assert!(tollgate(&["man"]).contains(".TH tollgate 1"));
    assert!(tollgate(&["check", "demo", "-s", "127.0.0.1:1"]).contains("start one with `tollgate serve`"));
    let folder = Folder::new();
    let rules = folder.path().join("rules.yaml");
    std::fs::write(
        &rules,
        "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: minute, requests_per_unit: 5 } }]\n",
    )
    .unwrap();
    let path = rules.display().to_string();
    assert_eq!(tollgate(&["rules", "lint", &path]), "all is well: 1 rules in 1 namespaces\n");
    assert!(tollgate(&["rules", "import", &path]).contains("namespace: \"shop\""));
    std::fs::write(&rules, "namespace: shop\nrulez: []\n").unwrap();
    assert!(tollgate(&["rules", "lint", &path]).contains("did you mean `rules`?"));
}
