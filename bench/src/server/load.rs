//! The load: a fixed number of connections, each of which always has something to be answered.
//!
//! The load generator shares the processor with the server, so it does as little as it can: blocking sockets, served in
//! turn. When a connection's turn comes its replies are usually there already, and the next requests go out at once. That
//! takes one read and one write, without asking the kernel who is ready.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads clocks")]

use super::process::Server;
use crate::workload::Random;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// How one kind of request is written, and its replies are counted.
pub trait Talk {
    /// Appends a request about one of the clients.
    fn ask(&mut self, client: u64, bytes: &mut Vec<u8>);

    /// How many more replies are complete now that these bytes have come. What has to be answered regardless of requests
    /// goes into `bytes`.
    fn hear(&mut self, received: &[u8], bytes: &mut Vec<u8>) -> usize;
}

impl Talk for Box<dyn Talk> {
    fn ask(&mut self, client: u64, bytes: &mut Vec<u8>) {
        self.as_mut().ask(client, bytes);
    }

    fn hear(&mut self, received: &[u8], bytes: &mut Vec<u8>) -> usize {
        self.as_mut().hear(received, bytes)
    }
}

/// Who asks: so many connections, with so many requests under way on each.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub connections: usize,
    pub pipeline: usize,
}

/// How long they go on.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    Passed(Duration),
    Decided(u64),
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Measured {
    pub decisions: u64,
    pub took: Duration,
    /// Processor time of the server's threads, in nanoseconds, the busiest one first.
    pub threads: Vec<u64>,
    /// From a write to the last of its replies, in ascending order.
    pub latencies: Vec<Duration>,
}

impl Measured {
    /// Microseconds of processor time per decision.
    pub fn micros(&self) -> f64 {
        self.threads.iter().sum::<u64>() as f64 / 1000.0 / self.decisions as f64
    }

    pub fn per_second(&self) -> f64 {
        self.decisions as f64 / self.took.as_secs_f64()
    }

    /// The latency that so large a part was faster than.
    pub fn percentile(&self, part: f64) -> Duration {
        let at = (self.latencies.len() as f64 * part) as usize;
        self.latencies.get(at.min(self.latencies.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    /// Threads that did a fair share: at least half of what each would do if it were spread evenly over so many.
    pub fn busy_threads(&self, of: usize) -> usize {
        let fair = self.threads.iter().sum::<u64>() / of as u64 / 2;
        self.threads.iter().filter(|nanos| **nanos >= fair).count()
    }
}

/// Threads that generate load: enough to keep a server busy that uses both cores.
const GENERATORS: usize = 2;

/// Asks a server for a while about random ones of so many clients.
pub fn run<T: Talk>(
    (server, address): (&Server, SocketAddr),
    shape: Shape,
    (clients, until): (u64, Until),
    talk: impl Fn() -> T + Sync,
) -> Measured {
    let start = Barrier::new(GENERATORS + 1);
    std::thread::scope(|scope| {
        let generate = |number: usize| {
            let connections = (number..shape.connections).step_by(GENERATORS);
            let connect = |_| Connection::open(address, talk());
            let mut connections: Vec<_> = connections.map(connect).collect();
            let random = Random(number as u64 ^ u64::from(address.port()) << 8 ^ (shape.pipeline as u64) << 32);
            let mut generator = Generator { random, clients, pipeline: shape.pipeline, latencies: Vec::new() };
            start.wait();
            let decisions = generator.run(&mut connections, until);
            (decisions, generator.latencies)
        };
        let generators: Vec<_> = (0..GENERATORS).map(|number| scope.spawn(move || generate(number))).collect();
        let before = server.processor_time();
        start.wait();
        let began = Instant::now();
        let results: Vec<_> = generators.into_iter().map(|thread| thread.join().expect("a generator")).collect();
        let took = began.elapsed();
        let mut latencies: Vec<_> = results.iter().flat_map(|(_, latencies)| latencies).copied().collect();
        latencies.sort_unstable();
        Measured {
            decisions: results.iter().map(|(decisions, _)| decisions).sum(),
            took,
            threads: spent(&before, &server.processor_time()),
            latencies,
        }
    })
}

fn spent(before: &[(String, u64)], after: &[(String, u64)]) -> Vec<u64> {
    let earlier = |thread: &String| before.iter().find(|(name, _)| name == thread).map_or(0, |(_, nanos)| *nanos);
    let mut spent: Vec<u64> = after.iter().map(|(thread, nanos)| nanos - earlier(thread)).collect();
    spent.sort_unstable_by(|one, other| other.cmp(one));
    spent
}

struct Generator {
    random: Random,
    clients: u64,
    pipeline: usize,
    latencies: Vec<Duration>,
}

impl Generator {
    /// Serves the connections in turn, then waits for the last replies. Says how many there were.
    fn run<T: Talk>(&mut self, connections: &mut [Connection<T>], until: Until) -> u64 {
        let start = Instant::now();
        let round = (connections.len() * self.pipeline) as u64;
        let mut decisions = round;
        connections.iter_mut().for_each(|connection| self.send(connection));
        while match until {
            Until::Passed(duration) => start.elapsed() < duration,
            Until::Decided(most) => decisions < most / GENERATORS as u64,
        } {
            for connection in &mut *connections {
                self.receive(connection);
                self.send(connection);
            }
            decisions += round;
        }
        connections.iter_mut().for_each(|connection| self.receive(connection));
        decisions
    }

    fn send<T: Talk>(&mut self, connection: &mut Connection<T>) {
        for _ in 0..self.pipeline {
            let client = self.random.draw() % self.clients;
            connection.talk.ask(client, &mut connection.requests);
        }
        connection.sent = Instant::now();
        connection.flush().expect("the server takes requests");
    }

    fn receive<T: Talk>(&mut self, connection: &mut Connection<T>) {
        connection.replies(self.pipeline).expect("the server replies");
        self.latencies.push(connection.sent.elapsed());
    }
}

struct Connection<T> {
    stream: TcpStream,
    talk: T,
    requests: Vec<u8>,
    received: Box<[u8]>,
    sent: Instant,
}

impl<T: Talk> Connection<T> {
    fn open(address: SocketAddr, talk: T) -> Connection<T> {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_nodelay(true).expect("a TCP socket");
        let received = vec![0; 64 * 1024].into();
        Connection { stream, talk, requests: Vec::new(), received, sent: Instant::now() }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.requests)?;
        self.requests.clear();
        Ok(())
    }

    /// Waits for so many replies.
    fn replies(&mut self, count: usize) -> io::Result<()> {
        let mut heard = 0;
        while heard < count {
            let read = self.stream.read(&mut self.received)?;
            assert!(read > 0, "the server has closed a connection");
            heard += self.talk.hear(&self.received[..read], &mut self.requests);
        }
        Ok(())
    }
}
