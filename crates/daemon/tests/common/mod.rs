//! What several tests share: the program itself on free ports, and commands as clients send them.

#![allow(dead_code, reason = "no test uses all of it")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The longest that anything may take. Far more than it does, so that a busy machine fails no test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Where a daemon logs to.
const LOG: &str = "log.txt";

/// A folder that is gone after the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tollgate-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program `tollgate serve`, ended when this is dropped.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    /// Where it answers Redis clients.
    pub(crate) address: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    /// Where it works: it may write examples there.
    folder: Folder,
}

impl Daemon {
    pub(crate) fn start(arguments: &[&str]) -> Daemon {
        Daemon::start_in(Folder::new(), arguments, &[], Stdio::inherit())
    }

    /// The same with variables in its environment, and what it logs in a file.
    pub(crate) fn start_logging(arguments: &[&str], variables: &[(&str, &str)]) -> Daemon {
        let folder = Folder::new();
        let log = std::fs::File::create(folder.path().join(LOG)).unwrap();
        Daemon::start_in(folder, arguments, variables, log.into())
    }

    fn start_in(folder: Folder, arguments: &[&str], variables: &[(&str, &str)], log: Stdio) -> Daemon {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["serve", "--resp", "127.0.0.1:0"])
            .args(arguments)
            .envs([("TOLLGATE_GRPC", "127.0.0.1:0"), ("TOLLGATE_HTTP", "127.0.0.1:0")])
            .envs(variables.iter().copied())
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let [address, grpc, http] = addresses(&mut lines);
        // Somebody has to read the rest, or the program would wait for it.
        std::thread::spawn(move || lines.for_each(drop));
        Daemon { child, address, grpc, http, folder }
    }

    /// What it has logged so far, if that goes to a file.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join(LOG)).unwrap()
    }

    pub(crate) fn port(&self) -> String {
        self.address.port().to_string()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    /// Sends bytes, says that nothing follows, and returns all replies.
    pub(crate) fn ask(&self, bytes: &[u8]) -> String {
        String::from_utf8(exchange(self.address, bytes)).unwrap()
    }

    /// Sends commands to be answered together.
    pub(crate) fn ask_all(&self, commands: &[&[&str]]) -> String {
        let bytes: Vec<u8> = commands.iter().flat_map(|words| command(words)).collect();
        self.ask(&bytes)
    }

    pub(crate) fn redis_cli(&self, arguments: &[&str]) -> String {
        let output = Command::new("redis-cli").args(["-p", &self.port()]).args(arguments).output();
        let output = output.unwrap_or_else(|error| panic!("redis-cli: {error}; install the package `redis-tools`"));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Tells it to end.
    pub(crate) fn terminate(&self) {
        let kill = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(kill.success());
    }

    /// How it ended, and after how long.
    pub(crate) fn wait(&mut self) -> (ExitStatus, Duration) {
        let start = now();
        (self.child.wait().unwrap(), start.elapsed())
    }

    /// Bytes of memory that are in use.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where it answers, from what it prints when it is ready.
fn addresses(lines: &mut Lines<BufReader<ChildStdout>>) -> [SocketAddr; 3] {
    let said: Vec<String> = lines.map(Result::unwrap).take_while(|line| line != "Ready.").collect();
    ["RESP", "gRPC", "HTTP"].map(|name| {
        let address = said.iter().find_map(|line| line.trim().strip_prefix(name)?.trim().parse().ok());
        address.unwrap_or_else(|| panic!("no address of {name} in {said:?}"))
    })
}

/// `redis-server`, ended when this is dropped.
pub(crate) struct Redis {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Redis {
    pub(crate) fn start() -> Redis {
        // Somebody else may be given the port in the moment between; then the next one is tried.
        (0..10).find_map(|_| Redis::start_once()).unwrap_or_else(|| panic!("redis-server does not answer"))
    }

    fn start_once() -> Option<Redis> {
        let address = free_address();
        let mut redis = Redis { child: Redis::spawn(address), address };
        eventually(|| redis.answers() || redis.child.try_wait().unwrap().is_some());
        redis.answers().then_some(redis)
    }

    fn spawn(address: SocketAddr) -> Child {
        let child = Command::new("redis-server")
            .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn();
        child.unwrap_or_else(|error| panic!("redis-server: {error}; install the package `redis-server`"))
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again where it was.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = Redis::spawn(self.address);
        assert!(eventually(|| self.answers()), "redis-server does not come back");
    }

    /// Whether it is this process that answers.
    fn answers(&self) -> bool {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.address)?;
            stream.write_all(b"INFO server\r\nQUIT\r\n")?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply).map(|_| reply)
        };
        ask().is_ok_and(|reply| reply.contains(&format!("process_id:{}\r\n", self.child.id())))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends bytes, says that nothing follows, and returns all replies. Whoever closes early may do so.
pub(crate) fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    // Written while replies are read: neither side waits for the other.
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(bytes).and_then(|()| writer.shutdown(Shutdown::Write)));
        read_all(&mut stream)
    })
}

/// Everything that comes until the connection ends.
pub(crate) fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut reply = Vec::new();
    match stream.read_to_end(&mut reply) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no end in {PATIENCE:?}: {reply:?}"),
        // A reset is an end, too.
        _ => reply,
    }
}

/// A command as clients send it.
pub(crate) fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    bytes.into_bytes()
}

/// Lets this process and those that it starts have so many files open at the same time.
pub(crate) fn allow_files(files: usize) {
    let limit = format!("--nofile={files}:");
    let done = Command::new("prlimit").args(["--pid", &std::process::id().to_string(), &limit]).output();
    let done = done.unwrap_or_else(|error| panic!("prlimit: {error}; install the package `util-linux`"));
    assert!(done.status.success(), "{files} open files: {}", String::from_utf8_lossy(&done.stderr));
}

/// One of this machine that nobody uses at present.
pub(crate) fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Whether something comes true within a minute.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let start = now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > PATIENCE {
            return false;
        }
        pause(Duration::from_millis(20));
    }
}

#[expect(clippy::disallowed_methods, reason = "another process is timed")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "another process is waited for")]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
