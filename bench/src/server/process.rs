//! Servers as processes of their own, and the processor time that they take.
#![expect(clippy::disallowed_methods, reason = "another process is waited for")]

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that is ended when this is dropped.
pub struct Server {
    child: Child,
}

impl Server {
    /// Starts a program and waits until something listens on all of its addresses.
    pub fn start(command: &mut Command, addresses: &[SocketAddr]) -> Server {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut server = Server { child: child.unwrap_or_else(|error| panic!("cannot start {name}: {error}")) };
        for address in addresses {
            server.wait_for(*address, &name);
        }
        server
    }

    fn wait_for(&mut self, address: SocketAddr, name: &str) {
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = self.child.try_wait().ok().flatten();
            assert!(ended.is_none(), "{name} has ended: {ended:?}");
            assert!(start.elapsed() < PATIENCE, "{name} does not listen on {address}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
    }

    /// Processor time of each of its threads so far, in nanoseconds.
    pub fn processor_time(&self) -> Vec<(String, u64)> {
        threads_time(&self.child.id().to_string())
    }
}

/// The same of this process.
pub fn own_processor_time() -> Vec<(String, u64)> {
    threads_time("self")
}

/// Of all threads together.
pub fn total(threads: &[(String, u64)]) -> u64 {
    threads.iter().map(|(_, nanos)| nanos).sum()
}

fn threads_time(process: &str) -> Vec<(String, u64)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    tasks.filter_map(|task| Some((task.file_name().into_string().ok()?, on_processor(&task.path())?))).collect()
}

/// The first number of `schedstat`: nanoseconds on a processor, in the kernel or out of it.
fn on_processor(task: &std::path::Path) -> Option<u64> {
    fs::read_to_string(task.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address on this machine that nobody listens on.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.unwrap_or_else(|error| panic!("no free port: {error}"))
}
