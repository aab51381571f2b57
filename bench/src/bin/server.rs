//! The daemon beside redis-server and throttlecrab-server: processor time per decision, in one run.

use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::time::Duration;
use tollgate_bench::report::{Row, Section, all_reached, processor, progress};
use tollgate_bench::server::daemon::{self, Addresses, Daemon, LIMIT, program};
use tollgate_bench::server::grpc::Grpc;
use tollgate_bench::server::http::Http;
use tollgate_bench::server::load::{Measured, Shape, Talk, Until, run};
use tollgate_bench::server::process::{Server, free_address};
use tollgate_bench::server::resp::{KEY, Resp, load_script};
use tollgate_bench::timing::worst_idle;

const CLIENTS: u64 = 1_000_000;
/// Requests before anything is measured: by then nearly all clients are known.
const FILL: Until = Until::Decided(2 * CLIENTS);
const SAMPLE: Duration = Duration::from_millis(800);
const ROUNDS: usize = 7;
/// As many as `redis-benchmark` has.
const CONNECTIONS: usize = 50;
const ENVOY: Shape = Shape { connections: 4, pipeline: 64 };

const SCRIPT: &str = include_str!("../server/gcra.lua");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = arguments == ["--check"];
    if !arguments.is_empty() && !check {
        eprintln!("usage: bench/run server [--check]");
        return ExitCode::from(2);
    }
    let servers = Servers::start();
    let mut speed = Speed::new();
    let sections = [throttle(&servers, &mut speed), meshes(&servers, &mut speed), speed.section()];
    write_docs(&sections);
    let reached = all_reached(&sections);
    ExitCode::from(u8::from(check && !reached))
}

/// Everybody who takes part, each in a process of its own.
struct Servers {
    redis: (Server, SocketAddr),
    crab: Server,
    crab_addresses: Addresses,
    tollgate: Daemon,
}

impl Servers {
    fn start() -> Servers {
        let redis = free_address();
        let port = redis.port().to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let redis = (Server::start(&mut command, &[redis]), redis);
        let (crab, crab_addresses) = start_crab();
        Servers { redis, crab, crab_addresses, tollgate: Daemon::start() }
    }
}

fn start_crab() -> (Server, Addresses) {
    let addresses = Addresses::free();
    let mut command = program("THROTTLECRAB");
    for (name, address) in [("redis", addresses.resp), ("http", addresses.http), ("grpc", addresses.grpc)] {
        command.args([format!("--{name}"), format!("--{name}-host"), "127.0.0.1".to_owned()]);
        command.args([format!("--{name}-port"), address.port().to_string()]);
    }
    (Server::start(command.args(["--log-level", "error"]), &addresses.all()), addresses)
}

/// One that is asked in one way.
struct Contestant<'a> {
    server: &'a Server,
    address: SocketAddr,
    talk: Box<dyn Fn() -> Box<dyn Talk> + Sync + 'a>,
}

impl<'a> Contestant<'a> {
    fn new<T: Talk + Clone + Sync + 'static>(server: &'a Server, address: SocketAddr, talk: T) -> Contestant<'a> {
        Contestant { server, address, talk: Box::new(move || Box::new(talk.clone())) }
    }

    fn measure(&self, shape: Shape, until: Until) -> Measured {
        run((self.server, self.address), shape, (CLIENTS, until), &self.talk)
    }

    fn fill(&self) {
        self.measure(Shape { connections: CONNECTIONS, pipeline: 64 }, FILL);
    }
}

/// Lets them take turns, and returns of each the round with the median of processor time.
fn compare(contestants: &[&Contestant<'_>], shape: Shape) -> Vec<Measured> {
    let mut rounds = vec![Vec::new(); contestants.len()];
    for _ in 0..ROUNDS {
        for (rounds, contestant) in rounds.iter_mut().zip(contestants) {
            rounds.push(contestant.measure(shape, Until::Passed(SAMPLE)));
        }
    }
    let median = |mut rounds: Vec<Measured>| {
        rounds.sort_by(|one, other| one.micros().total_cmp(&other.micros()));
        rounds.swap_remove(ROUNDS / 2)
    };
    rounds.into_iter().map(median).collect()
}

fn throttle(servers: &Servers, speed: &mut Speed) -> Section {
    let mut section = Section::new(
        "CL.THROTTLE",
        "Beside the cheapest command of redis-server, which decides nothing: what is more than that is the price of the decision. \
         The script is GCRA, called by its hash; throttlecrab-server's command is `THROTTLE`.",
        &["tollgate", "redis PING", "ratio", "redis script", "throttlecrab"],
    );
    let (redis, redis_address) = (&servers.redis.0, servers.redis.1);
    let limited = |words: &[&str]| Resp::new(&[words, &LIMIT].concat(), 6);
    let tollgate = Contestant::new(&servers.tollgate.server, servers.tollgate.addresses.resp, daemon::resp());
    let ping = Contestant::new(redis, redis_address, Resp::new(&["PING"], 1));
    let hash = load_script(redis_address, SCRIPT);
    let script = Contestant::new(redis, redis_address, limited(&["EVALSHA", &hash, "1", KEY]));
    let crab = Contestant::new(&servers.crab, servers.crab_addresses.resp, limited(&["THROTTLE", KEY]));
    for (who, contestant) in [("tollgate", &tollgate), ("redis", &script), ("throttlecrab", &crab)] {
        progress(&format!("{who} gets to know {CLIENTS} clients"));
        contestant.fill();
    }
    for (pipeline, target) in [(1, 1.1), (16, 1.3), (64, 1.5)] {
        let work = format!("{CONNECTIONS} connections, {pipeline} at a time");
        progress(&work);
        let shape = Shape { connections: CONNECTIONS, pipeline };
        let measured = compare(&[&tollgate, &ping, &script, &crab], shape);
        let [tollgate, ping, script, crab] = &measured[..] else { unreachable!("four take part") };
        let ratio = tollgate.micros() / ping.micros();
        let cells = [micros(tollgate), micros(ping), format!("{ratio:.2}x"), micros(script), micros(crab)];
        section.push(Row {
            work,
            cells: cells.into(),
            target: format!("at most {target}x"),
            reached: Some(ratio <= target),
        });
        speed.push(&format!("CL.THROTTLE, {pipeline} at a time"), tollgate, true);
        speed.push(&format!("redis PING, {pipeline} at a time"), ping, false);
    }
    section
}

fn meshes(servers: &Servers, speed: &mut Speed) -> Section {
    let mut section = Section::new(
        "HTTP and gRPC",
        "Beside throttlecrab-server, which is asked with the limit in the request, while we look it up in the rules. HTTP is one \
         request at a time on each connection; gRPC is Envoy's `ShouldRateLimit` with one descriptor.",
        &["tollgate", "throttlecrab", "ratio"],
    );
    let (tollgate, crab) = (servers.tollgate.addresses, servers.crab_addresses);
    let server = &servers.tollgate.server;
    let [burst, count, period] = LIMIT;
    let limit = format!(r#"","max_burst":{burst},"count_per_period":{count},"period":{period},"quantity":1}}"#);
    let their_http = Http::new("/throttle", r#"{"key":""#, &limit);
    let http =
        (Contestant::new(server, tollgate.http, daemon::http()), Contestant::new(&servers.crab, crab.http, their_http));
    let throttle = Grpc::new("/throttlecrab.RateLimiter/Throttle", vec![0x0a, 20], throttle_fields());
    let grpc =
        (Contestant::new(server, tollgate.grpc, daemon::envoy()), Contestant::new(&servers.crab, crab.grpc, throttle));
    progress(&format!("tollgate gets to know {CLIENTS} clients of a rule"));
    http.0.fill();
    let plain = Shape { connections: CONNECTIONS, pipeline: 1 };
    for (work, (ours, theirs), shape, target) in
        [("HTTP, 50 connections", http, plain, 0.65), ("gRPC, 4 connections of 64 streams", grpc, ENVOY, 0.6)]
    {
        progress(work);
        let measured = compare(&[&ours, &theirs], shape);
        let [ours, theirs] = &measured[..] else { unreachable!("two take part") };
        let ratio = ours.micros() / theirs.micros();
        section.push(Row {
            work: work.to_owned(),
            cells: vec![micros(ours), micros(theirs), format!("{ratio:.2}x")],
            target: format!("at most {target}x"),
            reached: Some(ratio <= target),
        });
        speed.push(work, ours, true);
        speed.push(&format!("throttlecrab, {work}"), theirs, false);
    }
    section
}

/// A burst of 100,000, one per sixty seconds, one at a time.
fn throttle_fields() -> Vec<u8> {
    vec![0x10, 0xa0, 0x8d, 0x06, 0x18, 1, 0x20, 60, 0x28, 1]
}

/// How fast it was, for those who do not count processor time.
struct Speed {
    rows: Vec<Row>,
    idle: Duration,
    cores: usize,
}

impl Speed {
    fn new() -> Speed {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Speed { rows: Vec::new(), idle: worst_idle(SAMPLE), cores }
    }

    fn push(&mut self, work: &str, measured: &Measured, is_ours: bool) {
        let threads = measured.busy_threads(self.cores);
        let latencies = [0.5, 0.99, 1.0].map(|part| millis(measured.percentile(part)));
        let counts = [format!("{:.0}", measured.per_second()), threads.to_string()];
        self.rows.push(Row {
            work: work.to_owned(),
            cells: [&counts[..], &latencies, &[millis(self.idle)]].concat(),
            target: if is_ours { format!("{} threads", self.cores.min(2)) } else { String::new() },
            reached: is_ours.then_some(threads >= self.cores.min(2)),
        });
    }

    fn section(self) -> Section {
        let mut section = Section::new(
            "Latency",
            "Of the same rounds, from the write of the requests that are sent together to the last of their replies; the load \
             generator is on the same cores and keeps them busy. Threads are those of the server that did a fair share. The last \
             column is the longest turn of a loop that does nothing, before it all began.",
            &["per second", "threads", "median", "99 %", "max", "idle max"],
        );
        self.rows.into_iter().for_each(|row| section.push(row));
        section
    }
}

fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}

fn micros(measured: &Measured) -> String {
    format!("{:.2} us", measured.micros())
}

fn write_docs(sections: &[Section]) {
    let mut text = format!(
        "# The daemon, measured\n\nWritten by `bench/run server` on {}. Microseconds are processor time of the server's process per decision, \
         in the kernel and out of it, by `/proc`: the median of {ROUNDS} rounds of {SAMPLE:?}, in which the servers take turns. There \
         are a million clients, each as likely as the others, and all of them are known before it begins. The load comes from two \
         threads on the same machine over TCP.\n",
        processor()
    );
    for section in sections {
        text += &format!("\n{}", section.markdown());
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/performance-server.md");
    match std::fs::write(path, text) {
        Ok(()) => println!("written to docs/performance-server.md"),
        Err(error) => eprintln!("cannot write docs/performance-server.md: {error}"),
    }
}
