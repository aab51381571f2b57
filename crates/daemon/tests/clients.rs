//! H2: clients that know nothing of Tollgate work with it unchanged. What they are and do is in `clients/`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{Daemon, Folder, command};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(file)
}

/// The daemon with rules from a file of its own.
struct Limited {
    daemon: Daemon,
    _folder: Folder,
}

impl Limited {
    fn start() -> Limited {
        let folder = Folder::new();
        let rules = folder.path().join("rules.yaml");
        std::fs::copy(source("rules.yaml"), &rules).unwrap();
        Limited { daemon: Daemon::start(&["--rules", rules.to_str().unwrap()]), _folder: folder }
    }
}

/// Where a client and what it needs is installed: once, and again when what it needs changes.
fn installed(name: &str, manifest: &str, programs: &[&str], install: impl Fn(&Path)) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(name);
    let (wanted, mark) = (std::fs::read_to_string(source(manifest)).unwrap(), folder.join("installed"));
    if std::fs::read_to_string(&mark).ok().as_ref() != Some(&wanted) {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(manifest), &wanted).unwrap();
        install(&folder);
        std::fs::write(&mark, &wanted).unwrap();
    }
    for program in programs {
        std::fs::copy(source(program), folder.join(program)).unwrap();
    }
    folder
}

/// Runs a program in a folder, and returns what it says. Go may complete its list of what is needed.
fn run(folder: &Path, package: &str, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).env("GOFLAGS", "-mod=mod").output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; install the package `{package}`"));
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{program} {arguments:?}\n{}\n{}", said[0], said[1]);
    said.concat()
}

fn assert_well(said: &str) {
    assert!(said.contains("all is well"), "{said}");
}

/// Whether there is such a program. Go and Java are tried where they are installed.
fn is_present(program: &str) -> bool {
    let is_present = Command::new(program).arg("--version").output().is_ok();
    if !is_present {
        eprintln!("{program} is not installed: its client is not tried");
    }
    is_present
}

#[test]
fn h2_redis_py_works_unchanged() {
    let folder = installed("python", "requirements.txt", &["client.py"], |folder| {
        run(folder, "python3-venv", "python3", &["-m", "venv", "venv"]);
        run(folder, "python3-venv", "venv/bin/pip", &["install", "--quiet", "-r", "requirements.txt"]);
    });
    let limited = Limited::start();
    assert_well(&run(&folder, "python3", "venv/bin/python", &["client.py", &limited.daemon.port()]));
}

#[test]
fn h2_node_redis_and_ioredis_work_unchanged() {
    let folder = installed("node", "package.json", &["client.mjs", "ioredis.mjs"], |folder| {
        run(folder, "npm", "npm", &["install", "--no-audit", "--no-fund"]);
    });
    let limited = Limited::start();
    for program in ["client.mjs", "ioredis.mjs"] {
        assert_well(&run(&folder, "nodejs", "node", &[program, &limited.daemon.port()]));
    }
}

#[test]
fn h2_go_redis_works_unchanged() {
    if !is_present("go") {
        return;
    }
    let folder = installed("go", "go.mod", &["client.go"], |_| {});
    run(&folder, "golang", "go", &["build", "-o", "client", "client.go"]);
    let limited = Limited::start();
    assert_well(&run(&folder, "golang", "./client", &[&limited.daemon.port()]));
}

#[test]
fn h2_jedis_works_unchanged() {
    if !is_present("java") || !is_present("mvn") {
        return;
    }
    let folder = installed("java", "pom.xml", &["Client.java"], |folder| {
        let goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";
        run(folder, "maven", "mvn", &["-q", "-B", "-Dmaven.repo.local=repository", goal, "-DoutputDirectory=jars"]);
    });
    let limited = Limited::start();
    assert_well(&run(
        &folder,
        "default-jdk-headless",
        "java",
        &["-cp", "jars/*", "Client.java", &limited.daemon.port()],
    ));
}

#[test]
fn h2_redis_cli_works_unchanged() {
    for protocol in ["-2", "-3"] {
        let limited = Limited::start();
        let ask = |line: &str| limited.daemon.redis_cli(&[&[protocol, "--raw"], &*words(line)].concat());
        assert_eq!(ask("PING"), "PONG\n");
        let replies: Vec<String> = (0..4).map(|_| ask("CL.THROTTLE alice 2 1 3600").replace('\n', " ")).collect();
        assert_eq!(replies, ["0 3 2 -1 3600 ", "0 3 1 -1 7200 ", "0 3 0 -1 10800 ", "1 3 0 3600 10800 "]);
        assert_eq!(ask("THROTTLE bob 1 1 60"), "1\n1\n0\n60\n0\n");
        let login = "shop 1 op login ip 192.0.2.1";
        for allowed in ["allowed 1", "allowed 1", "allowed 0"] {
            let reply = ask(&format!("CHECK {login}")).replace('\n', " ");
            assert!(reply.starts_with(allowed), "{reply}");
        }
        assert!(ask(&format!("EXPLAIN {login}")).contains("logins: counts for 192.0.2.1"));
        assert_eq!(ask(&format!("RESET.CLIENT {login}")), "1\n");
        assert!(ask(&format!("PEEK {login}")).replace('\n', " ").contains("limit 2 remaining 2"));
        let reserved = ask("RESERVE shop 600 60000 op complete team red");
        let reservation = reserved.split_whitespace().last().unwrap();
        assert_eq!(ask(&format!("SETTLE {reservation} 100")), "OK\n");
        assert!(ask(&format!("REFUND {reservation}")).starts_with("ERR there is no such reservation"));
        assert!(ask("GET k").starts_with("ERR unknown command 'get'"));
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn h2_redis_cli_sends_a_thousand_in_a_pipe() {
    let limited = Limited::start();
    let cli = Command::new("redis-cli")
        .args(["-p", &limited.daemon.port(), "--pipe"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut cli = cli.unwrap_or_else(|error| panic!("redis-cli: {error}; install the package `redis-tools`"));
    let mut input = cli.stdin.take().unwrap();
    input.write_all(&command(&["CL.THROTTLE", "many", "99", "1", "3600"]).repeat(1000)).unwrap();
    drop(input);
    let said = String::from_utf8(cli.wait_with_output().unwrap().stdout).unwrap();
    assert!(said.contains("errors: 0, replies: 1000"), "{said}");
    assert_eq!(limited.daemon.redis_cli(&["CL.THROTTLE", "many", "99", "1", "3600", "0"]).lines().nth(2), Some("0"));
}

/// The lines between the marks, without what they are indented by.
fn example(file: &str) -> String {
    let text = std::fs::read_to_string(source(file)).unwrap();
    let lines = text.lines().skip_while(|line| !line.ends_with("example begins")).skip(1);
    let lines: Vec<&str> = lines.take_while(|line| !line.ends_with("example ends")).collect();
    let indent = lines.iter().filter(|line| !line.is_empty()).map(|line| line.len() - line.trim_start().len()).min();
    let lines = lines.iter().map(|line| line.get(indent.unwrap_or(0)..).unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn what_the_documentation_shows_is_what_these_tests_run() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/resp.md");
    let page = std::fs::read_to_string(page).unwrap();
    for file in ["client.py", "client.mjs", "client.go", "Client.java"] {
        let shown = example(file).replace("PORT", "6380").replace("{ port }", "{ port: 6380 }");
        let shown = shown.replace("port)", "6380)").replace("Addr: address", "Addr: \"127.0.0.1:6380\"");
        assert!(!shown.is_empty() && page.contains(&shown), "docs/resp.md lacks these lines of {file}:\n{shown}");
    }
}
