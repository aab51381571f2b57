//! Limits in a store, beside what people write for one today: processor time per decision on both sides, in one run.

use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tollgate_bench::report::{Row, Section, all_reached, processor, progress};
use tollgate_bench::server::process::{Server, free_address};
use tollgate_bench::store::host::{Host, Load, measure_host};
use tollgate_bench::store::limiter::Limiter;
use tollgate_bench::store::load::{Cost, fill, measure};

const CLIENTS: u64 = 1_000_000;
const SAMPLE: Duration = Duration::from_millis(800);
const ROUNDS: usize = 7;

/// What one limit and four limits may cost, by what the plain script does.
const ONE_LIMIT: f64 = 1.1;
const FOUR_LIMITS: f64 = 2.0;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = arguments == ["--check"];
    if !arguments.is_empty() && !check {
        eprintln!("usage: bench/run store [--check]");
        return ExitCode::from(2);
    }
    let bench = Bench::start();
    let sections = [bench.exact(&MANY), bench.exact(&ONE), bench.local()];
    write_docs(&sections);
    let reached = all_reached(&sections);
    ExitCode::from(u8::from(check && !reached))
}

/// What a decision of a host by itself may cost, by what one costs that nobody else hears of, and how often it may ask.
const BY_ITSELF: f64 = 2.0;
const CALLS: f64 = 0.05;

/// How many clients there are.
struct Crowd {
    title: &'static str,
    about: &'static str,
    clients: u64,
    /// How many seconds a log remembers: of a busy client it would hold too much otherwise.
    log_period: &'static str,
}

const MANY: Crowd = Crowd {
    title: "store-exact, a million clients",
    about: "Each is as likely as the others, and all of them are known before it begins.",
    clients: CLIENTS,
    log_period: "3600",
};

const ONE: Crowd = Crowd {
    title: "store-exact, one busy client",
    about: "All requests are of one client, and none is refused.",
    clients: 1,
    log_period: "1",
};

/// One store, and a runtime with a thread for each core, as a service has.
struct Bench {
    server: Server,
    address: SocketAddr,
    runtime: Runtime,
}

impl Bench {
    fn start() -> Bench {
        let address = free_address();
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &address.port().to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        let server = Server::start(&mut command, &[address]);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        Bench { server, address, runtime }
    }

    fn exact(&self, crowd: &Crowd) -> Section {
        let mut section = Section::new(crowd.title, crowd.about, &["store", "client", "both", "of the script"]);
        let limiters = self.runtime.block_on(async {
            [
                Limiter::gcra(self.address).await,
                Limiter::counter(self.address).await,
                Limiter::sorted_set(self.address, crowd.log_period).await,
                Limiter::exact(self.address, 1).await,
                Limiter::exact(self.address, 4).await,
            ]
            .map(Arc::new)
        });
        let costs = self.compare(&limiters, crowd.clients);
        let works = [
            ("GCRA in a script", None),
            ("INCR and EXPIRE", None),
            ("a sorted set", None),
            ("store-exact, one limit", Some(ONE_LIMIT)),
            ("store-exact, four limits", Some(FOUR_LIMITS)),
        ];
        let script = costs.first().map_or(0.0, Cost::both);
        for ((work, target), cost) in works.into_iter().zip(&costs) {
            let ratio = cost.both() / script;
            let cells = [cost.store, cost.client, cost.both()].map(|micros| format!("{micros:.2} us"));
            section.push(Row {
                work: work.to_owned(),
                cells: [&cells[..], &[format!("{ratio:.2}x")]].concat(),
                target: target.map_or(String::new(), |target| format!("at most {target}x")),
                reached: target.map(|target| ratio <= target),
            });
        }
        section
    }

    /// One busy client, about whom the host decides by itself.
    fn local(&self) -> Section {
        let about = "One busy client, as many decisions as one task can make, none of which is refused. All threads of the host are \
                     counted, and so is whoever talks to the store in the background.";
        let columns = &["host", "of local", "store", "calls each"];
        let mut section = Section::new("store and store-lease, one busy client", about, columns);
        let modes = ["local", "store", "store-lease"];
        let hosts = modes.map(|shared| self.runtime.block_on(Host::start(self.address, shared)));
        let mut rounds = vec![Vec::new(); modes.len()];
        for _ in 0..ROUNDS {
            for (rounds, host) in rounds.iter_mut().zip(&hosts) {
                rounds.push(measure_host(self.runtime.handle(), host, &self.server, SAMPLE));
            }
        }
        let loads: Vec<Load> = rounds.into_iter().map(median_of).collect();
        let alone = loads.first().map_or(0.0, |load| load.cost.client);
        for (shared, load) in modes.into_iter().zip(&loads) {
            let ratio = load.cost.client / alone;
            let is_shared = shared != "local";
            let nanos = |micros: f64| format!("{:.0} ns", micros * 1e3);
            section.push(Row {
                work: shared.to_owned(),
                cells: vec![
                    nanos(load.cost.client),
                    format!("{ratio:.2}x"),
                    nanos(load.cost.store),
                    format!("{:.5}", load.calls),
                ],
                target: if is_shared { format!("at most {BY_ITSELF}x and {CALLS}") } else { String::new() },
                reached: is_shared.then_some(ratio <= BY_ITSELF && load.calls <= CALLS),
            });
        }
        section
    }

    /// Lets them take turns, and returns of each the round with the median of processor time.
    fn compare(&self, limiters: &[Arc<Limiter>], clients: u64) -> Vec<Cost> {
        for limiter in limiters {
            progress(&format!("getting to know {clients} clients"));
            fill(self.runtime.handle(), limiter, clients);
        }
        let mut rounds = vec![Vec::new(); limiters.len()];
        for _ in 0..ROUNDS {
            for (rounds, limiter) in rounds.iter_mut().zip(limiters) {
                rounds.push(measure(self.runtime.handle(), limiter, &self.server, clients, SAMPLE));
            }
        }
        rounds.into_iter().map(median).collect()
    }
}

fn median_of(mut rounds: Vec<Load>) -> Load {
    rounds.sort_by(|one, other| one.cost.client.total_cmp(&other.cost.client));
    rounds.swap_remove(rounds.len() / 2)
}

fn median(mut rounds: Vec<Cost>) -> Cost {
    rounds.sort_by(|one, other| one.both().total_cmp(&other.both()));
    rounds.swap_remove(rounds.len() / 2)
}

fn write_docs(sections: &[Section]) {
    let mut text = format!(
        "# Limits in a store, measured\n\nWritten by `bench/run store` on {}. Microseconds are processor time per decision, in the kernel and \
         out of it, by `/proc`, of redis-server and of the process that asks it: the median of {ROUNDS} rounds of {SAMPLE:?}, in which those \
         who take part take turns. 50 decisions are always under way. What is not ours is asked over the multiplexed connection of the \
         `redis` crate, as it comes; scripts are called by their hash. No request is refused: a refusal of ours would be remembered, \
         and cost the store nothing.\n",
        processor()
    );
    for section in sections {
        text += &format!("\n{}", section.markdown());
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/performance-store.md");
    match std::fs::write(path, text) {
        Ok(()) => println!("written to docs/performance-store.md"),
        Err(error) => eprintln!("cannot write docs/performance-store.md: {error}"),
    }
}
