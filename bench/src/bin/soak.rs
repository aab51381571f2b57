//! Mixed load on the daemon for a long time: all protocols, clients that come and go, connections that come and go, and
//! what makes no sense. Its memory must stay as it is once everything has been seen.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads clocks")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tollgate_bench::server::daemon::{self, Daemon};
use tollgate_bench::server::load::{Shape, Talk, Until, run};

/// Far more than there is room for.
const CLIENTS: u64 = 10_000_000;

/// In each second and over each protocol.
const DECISIONS: u64 = 2000;

/// Before memory is compared, so that all of it was touched that ever will be.
const FILL: u64 = 5_000_000;

/// Memory may grow by this much from the first tenth of the time to the end.
const SLACK: u64 = 8 << 20;

/// What makes no sense in any of the protocols.
const NONSENSE: [&[u8]; 4] = [
    b"*1\r\n$99999999\r\n",
    b"POST /v1/check HTTP/1.1\r\ncontent-length: 9\r\n\r\n{",
    b"PRI * HTTP/2.0\r\n\r\n",
    b"\x16\x03\x01\0\xff",
];

fn main() -> ExitCode {
    let minutes = std::env::args().nth(1).map_or(Some(30), |text| text.parse::<u64>().ok());
    let Some(minutes) = minutes.filter(|minutes| *minutes > 0) else {
        eprintln!("usage: bench/run soak [MINUTES]");
        return ExitCode::from(2);
    };
    let daemon = Daemon::start();
    println!("getting to know {FILL} clients");
    ask(&daemon, daemon.addresses.resp, 64, FILL, daemon::resp);
    ask(&daemon, daemon.addresses.http, 1, FILL / 10, daemon::http);
    let (start, end) = (Instant::now(), Duration::from_secs(60 * minutes));
    let (mut decisions, mut before) = (0, None);
    let mut next = Duration::ZERO;
    while start.elapsed() < end {
        decisions += turn(&daemon);
        if before.is_none() && start.elapsed() > end / 10 {
            before = Some(daemon.server.memory());
        }
        if start.elapsed() >= next {
            println!(
                "{:>5} s  {decisions:>10} decisions  {:>6.1} MiB",
                next.as_secs(),
                mebibytes(daemon.server.memory())
            );
            next += (end / 15).max(Duration::from_secs(1));
        }
    }
    let (before, after) = (before.unwrap_or_default(), daemon.server.memory());
    println!("{:.1} MiB after a tenth of the time, {:.1} MiB at the end", mebibytes(before), mebibytes(after));
    ExitCode::from(u8::from(after > before + SLACK))
}

/// A second of it. Says how many decisions there were.
fn turn(daemon: &Daemon) -> u64 {
    let began = Instant::now();
    let decisions = ask(daemon, daemon.addresses.resp, 16, DECISIONS, daemon::resp)
        + ask(daemon, daemon.addresses.http, 1, DECISIONS, daemon::http)
        + ask(daemon, daemon.addresses.grpc, 16, DECISIONS, daemon::envoy);
    for address in daemon.addresses.all() {
        NONSENSE.iter().for_each(|bytes| talk_nonsense(address, bytes));
    }
    std::thread::sleep(Duration::from_secs(1).saturating_sub(began.elapsed()));
    decisions
}

fn ask<T: Talk>(
    daemon: &Daemon,
    address: SocketAddr,
    pipeline: usize,
    decisions: u64,
    talk: impl Fn() -> T + Sync,
) -> u64 {
    let shape = Shape { connections: 20, pipeline };
    run((&daemon.server, address), shape, (CLIENTS, Until::Decided(decisions)), talk).decisions
}

/// Whatever is answered, the daemon goes on.
fn talk_nonsense(address: SocketAddr, bytes: &[u8]) {
    let Ok(mut stream) = TcpStream::connect(address) else { panic!("the daemon is gone") };
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
    let _ = stream.read(&mut [0; 256]);
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
