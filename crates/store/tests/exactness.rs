//! Eight hosts, each a process of its own, and one store. Exact limits and lent tokens: never a token more than burst + rate × time,
//! and nearly all of those. Limits that are only told of: within the bound that the docs state.
//!
//! A host is this program, started again with an environment that says so. `TOLLGATE_LONG=1` makes the runs as long as
//! the promises are stated for.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::indexing_slicing, reason = "hosts and keys are numbered by the test itself")]

mod common;

use common::{Client, Kind, PATIENCE, Random, Server, now};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tollgate::{Clock, Engine, Request, RuleSet, Sharing, Source, Time, Value};
use tollgate_store::{Config, Reply, Store};

const HOSTS: u64 = 8;

/// What makes this program a host: its number, where the store is, how long it lasts, how many keys there are, how many requests
/// a second it gets (as many as it can if there are none), and its rules.
const HOST: &str = "TOLLGATE_TEST_HOST";

/// How long a run lasts, and how long if there is time.
fn lasts(short: u64, long: u64) -> u64 {
    if std::env::var_os("TOLLGATE_LONG").is_some() { long } else { short }
}

/// What a host is told.
struct Orders {
    number: u64,
    address: String,
    lasts: Duration,
    keys: usize,
    rate: u64,
    rules: String,
}

impl Orders {
    fn read() -> Option<Orders> {
        let text = std::env::var(HOST).ok()?;
        let words: Vec<&str> = text.splitn(6, '|').collect();
        let [number, address, lasts, keys, rate, rules] = words.as_slice() else { panic!("{text}") };
        Some(Orders {
            number: number.parse().unwrap(),
            address: (*address).to_owned(),
            lasts: Duration::from_secs(lasts.parse().unwrap()),
            keys: keys.parse().unwrap(),
            rate: rate.parse().unwrap(),
            rules: (*rules).to_owned(),
        })
    }
}

/// Not a test but a host, where somebody started it as one.
#[test]
fn a_host_does_what_it_is_told() {
    let Some(orders) = Orders::read() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(host(&orders));
}

/// Asks for keys at random for a while, and at the end for each until it is refused.
async fn host(orders: &Orders) {
    let patient = Duration::from_secs(5);
    let config = Config { budget: patient, connect_timeout: patient, ..Config::new(orders.address.clone()) };
    let clock = Clock::system();
    let rules = RuleSet::parse(&[Source::new("rules", &*orders.rules)]).unwrap();
    let engine = Arc::new(Engine::builder().accounts(4_096).build(rules, clock.now()));
    let sharing = Sharing::start(&engine, clock.clone(), config);
    tokio::time::timeout(PATIENCE, sharing.store().connected()).await.unwrap();
    // From now to a week ahead: where the store decides, it does not matter what hosts take the time for.
    let skew =
        if orders.rules.contains("store-exact") { Duration::from_secs(orders.number * 86_400) } else { Duration::ZERO };
    let host = Host { engine, store: sharing.store().clone(), now: Arc::new(move || clock.now() + skew) };
    let mut counts = vec![Count::default(); orders.keys];
    until_all_are_there(&host, sharing.store()).await;
    say("ready");
    hear();
    if orders.rate == 0 {
        host.hammer(orders, &mut counts).await;
    } else {
        host.stroll(orders, &mut counts).await;
    }
    say("done");
    hear();
    if orders.rate == 0 {
        for key in (0..orders.keys).filter(|key| *key as u64 % HOSTS == orders.number) {
            while host.ask(key).await {
                counts[key].admitted += 1;
            }
            counts[key].ends_at = unix_micros();
        }
    }
    let counts: Vec<String> = counts.iter().map(Count::words).collect();
    say(&format!("{} {}", sharing.store().stats().answered, counts.join(" ")));
}

/// Hosts know of each other after a heartbeat or two.
async fn until_all_are_there(host: &Host, store: &Store) {
    let start = now();
    while host.engine.ledger().hosts() < HOSTS || !store.is_connected() {
        assert!(start.elapsed() < PATIENCE, "{} hosts", host.engine.ledger().hosts());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[derive(Clone)]
struct Host {
    engine: Arc<Engine>,
    store: Store,
    now: Arc<dyn Fn() -> Time + Send + Sync>,
}

impl Host {
    async fn ask(&self, key: usize) -> bool {
        let user = key.to_string();
        let attributes = [("user", Value::Text(&user))];
        let request = Request::new("n", &attributes);
        let verdict = self.engine.check_with(&self.store, &request, (self.now)()).await;
        assert!(!verdict.is_degraded(), "{:?}", self.store.stats());
        verdict.is_allowed()
    }

    async fn ask_at_once(&self, keys: &[usize], counts: &mut [Count]) {
        for key in keys {
            let begins_at = &mut counts[*key].begins_at;
            *begins_at = begins_at.or_else(|| Some(unix_micros()));
        }
        let asking: Vec<_> = keys
            .iter()
            .map(|key| {
                let (host, key) = (self.clone(), *key);
                tokio::spawn(async move { (key, host.ask(key).await) })
            })
            .collect();
        for task in asking {
            let (key, is_allowed) = task.await.unwrap();
            counts[key].admitted += u64::from(is_allowed);
        }
    }

    /// As fast as it can, several at once.
    async fn hammer(&self, orders: &Orders, counts: &mut [Count]) {
        let (start, mut random) = (now(), Random(orders.number));
        while start.elapsed() < orders.lasts {
            let keys: Vec<usize> = (0..16).map(|_| random.below(orders.keys as u64) as usize).collect();
            self.ask_at_once(&keys, counts).await;
        }
    }

    /// At an even rate.
    async fn stroll(&self, orders: &Orders, counts: &mut [Count]) {
        let (start, mut random, mut asked) = (now(), Random(orders.number), 0);
        while start.elapsed() < orders.lasts {
            let due = (start.elapsed().as_secs_f64() * orders.rate as f64) as u64;
            let keys: Vec<usize> = (asked..due).map(|_| random.below(orders.keys as u64) as usize).collect();
            asked = due;
            self.ask_at_once(&keys, counts).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// What a host has seen of a key, or all of them together.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Let through.
    admitted: u64,
    /// When it was first asked for, and when it was refused at the end, in microseconds.
    begins_at: Option<u64>,
    ends_at: u64,
}

impl Count {
    fn words(&self) -> String {
        format!("{} {} {}", self.admitted, self.begins_at.unwrap_or(u64::MAX), self.ends_at)
    }

    fn of_words(words: &[u64]) -> Count {
        let [admitted, begins_at, ends_at] = words else { panic!("{words:?}") };
        Count { admitted: *admitted, begins_at: Some(*begins_at), ends_at: *ends_at }
    }

    fn with(self, other: Count) -> Count {
        let begins_at = self.begins_at.into_iter().chain(other.begins_at).min();
        Count { admitted: self.admitted + other.admitted, begins_at, ends_at: self.ends_at.max(other.ends_at) }
    }

    /// For how long there was demand.
    fn seconds(&self) -> f64 {
        self.ends_at.saturating_sub(self.begins_at.unwrap_or(self.ends_at)) as f64 / 1e6
    }
}

/// A time that all hosts share.
#[expect(clippy::disallowed_methods, reason = "it tells when hosts have asked, and decides nothing")]
fn unix_micros() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64
}

fn say(line: &str) {
    println!("host: {line}");
    std::io::stdout().flush().unwrap();
}

fn hear() {
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
}

/// A host, as whoever started it sees it.
struct Process {
    child: Child,
    orders: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Process {
    fn start(number: u64, server: &Server, run: &Run<'_>) -> Process {
        let Run { lasts, keys, rules, .. } = run;
        let rate = run.rates.map_or(0, |rates| rates[number as usize]);
        let orders = format!("{number}|{}|{lasts}|{keys}|{rate}|{rules}", server.address);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_host_does_what_it_is_told", "--nocapture"])
            .env(HOST, orders)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, says) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Process { child, orders, says }
    }

    fn go_on(&mut self) {
        self.orders.write_all(b"\n").unwrap();
    }

    /// The next thing that it says as a host.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        while self.says.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.trim_end().split_once("host: ") {
                return said.to_owned();
            }
            line.clear();
        }
        panic!("a host has ended");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Run<'a> {
    kind: Kind,
    lasts: u64,
    keys: usize,
    rules: &'a str,
    /// Requests a second to each host.
    rates: Option<[u64; HOSTS as usize]>,
}

/// What all hosts together did.
#[derive(Debug)]
struct Outcome {
    keys: Vec<Count>,
    calls: u64,
    /// Seconds from before the first request to after the last, and the part of it in which they came all the time.
    seconds: f64,
    busy_seconds: f64,
}

/// One at a time: eight hosts are enough for this machine, and where requests are few there is nothing to let through.
fn run(run: &Run<'_>) -> Outcome {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::start(run.kind, &[]);
    let mut client = server.client();
    let mut hosts: Vec<Process> = (0..HOSTS).map(|number| Process::start(number, &server, run)).collect();
    hosts.iter_mut().for_each(|host| assert_eq!(host.hear(), "ready"));
    let started = store_time(&mut client);
    hosts.iter_mut().for_each(Process::go_on);
    hosts.iter_mut().for_each(|host| assert_eq!(host.hear(), "done"));
    let middle = store_time(&mut client);
    hosts.iter_mut().for_each(Process::go_on);
    let (mut keys, mut calls) = (vec![Count::default(); run.keys], 0);
    for host in &mut hosts {
        let said = host.hear();
        let numbers: Vec<u64> = said.split(' ').map(|number| number.parse().unwrap()).collect();
        calls += numbers[0];
        let counts = numbers[1..].chunks(3).map(Count::of_words);
        keys.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.with(count));
    }
    Outcome { keys, calls, seconds: store_time(&mut client) - started, busy_seconds: middle - started }
}

fn store_time(client: &mut Client) -> f64 {
    let Reply::Array(parts) = client.ask(&["TIME"]) else { panic!("no time") };
    let number = |part: &Reply| match part {
        Reply::Text(text) => std::str::from_utf8(text).unwrap().parse::<f64>().unwrap(),
        other => panic!("{other:?}"),
    };
    parts.iter().map(number).zip([1.0, 1e-6]).map(|(number, unit)| number * unit).sum()
}

fn rules(limit: &str, shared: &str) -> String {
    format!(
        "namespace: n\nrules: [{{ name: a, key: [user], limits: [{limit}], shared: {shared}, on_failure: refuse }}]\n"
    )
}

/// Not one token too many for any key, and at least 99 of 100 of those that came in from when somebody first wanted one.
fn is_exact(kind: Kind, shared: &str, limit: &str, keys: usize, (burst, rate): (f64, f64)) {
    let rules = rules(limit, shared);
    let outcome = run(&Run { kind, lasts: lasts(4, 30), keys, rules: &rules, rates: None });
    let most = burst + rate * outcome.seconds;
    let there = |count: &Count| burst + rate * count.seconds();
    let all: f64 = outcome.keys.iter().map(|count| count.admitted as f64).sum();
    let all_there: f64 = outcome.keys.iter().map(there).sum();
    // Tokens of which a part has come in are no tokens yet.
    let whole: f64 = outcome.keys.iter().map(|count| there(count).floor()).sum();
    println!(
        "{kind:?}: {shared}, {limit}, {keys} keys: {all} let through of at most {:.0}, {:.4} of what was there, {:.4} of whole tokens",
        most * keys as f64,
        all / all_there,
        all / whole,
    );
    let is_too_much = |count: &&Count| count.admitted as f64 > most;
    assert_eq!(outcome.keys.iter().filter(is_too_much).count(), 0, "{kind:?}: {limit}: {outcome:?} of {most}");
    assert!(all >= 0.99 * whole, "{kind:?}: {limit}: {all} of {whole}");
    // Where they are next to nothing it is so with them, too.
    assert!(all >= 0.99 * all_there || whole < 0.995 * all_there, "{kind:?}: {limit}: {all} of {all_there}");
}

#[test]
fn n2_eight_hosts_let_through_exactly_the_limit_of_one_key() {
    for kind in Kind::ALL {
        is_exact(kind, "store-exact", "300 per second burst 500", 1, (500.0, 300.0));
    }
    is_exact(Kind::Redis, "store-exact", "7000 per minute burst 500", 1, (500.0, 7_000.0 / 60.0));
}

#[test]
fn n2_eight_hosts_let_through_exactly_the_limits_of_a_thousand_keys() {
    for kind in Kind::ALL {
        is_exact(kind, "store-exact", "5 per second burst 20", 1_000, (20.0, 5.0));
    }
    is_exact(Kind::Redis, "store-exact", "2 per second burst 10", 1_000, (10.0, 2.0));
}

#[test]
fn n2_eight_hosts_that_borrow_let_through_exactly_the_limit_of_one_key() {
    for kind in Kind::ALL {
        is_exact(kind, "store-lease", "300 per second burst 500", 1, (500.0, 300.0));
    }
    is_exact(Kind::Redis, "store-lease", "5000 per second burst 5000", 1, (5_000.0, 5_000.0));
}

#[test]
fn n2_eight_hosts_that_borrow_let_through_exactly_the_limits_of_a_thousand_keys() {
    for kind in Kind::ALL {
        is_exact(kind, "store-lease", "5 per second burst 20", 1_000, (20.0, 5.0));
    }
    is_exact(Kind::Redis, "store-lease", "2 per second burst 10", 1_000, (10.0, 2.0));
}

/// Ten times as many requests as are allowed, most of them to one host.
#[test]
fn n2_eight_hosts_that_only_tell_stay_within_their_bound_and_near_the_limit() {
    let (rate, burst, budget) = (300.0, 300.0, 0.05);
    let rules = rules("300 per second", "store");
    let seconds = lasts(10, 60);
    let rates = Some([1_500, 600, 300, 200, 150, 100, 100, 50]);
    let outcome = run(&Run { kind: Kind::Redis, lasts: seconds, keys: 1, rules: &rules, rates });
    let admitted = outcome.keys[0].admitted as f64;
    let (most, least) = (burst + rate * outcome.seconds, burst + rate * outcome.busy_seconds);
    // What the hosts may hide, and what they decide while they tell: a round trip and a gathering of all requests.
    let bound = most + budget * burst + 3_000.0 * 0.02;
    println!(
        "store: {admitted} let through of {least:.0}, {:.4} of it; at most {bound:.0}; {:.4} calls a decision",
        admitted / least,
        outcome.calls as f64 / (3_000.0 * outcome.busy_seconds)
    );
    assert!(admitted <= bound, "{outcome:?}");
    assert!(admitted >= 0.97 * least, "{outcome:?}");
    if seconds >= 60 {
        assert!((0.99..=1.01).contains(&(admitted / least)), "{outcome:?}");
    }
}
