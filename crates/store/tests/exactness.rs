//! Eight hosts with wrong clocks and one store: never a token more than burst + rate × time, and nearly all of those.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{Client, Kind, PATIENCE, Random, Server, now};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;
use tollgate::{Clock, Engine, Request, RuleSet, Source, Time, Value};
use tollgate_store::{Config, Reply, Store};

const HOSTS: u64 = 8;
const LASTS: Duration = Duration::from_secs(4);

/// What all hosts let through, by key.
type Admitted = Arc<Vec<AtomicU64>>;

/// A host that asks for keys at random for a while, several at once, and at the end for each until it is refused.
fn host(number: u64, server: &Server, rules: &str, admitted: &Admitted, phases: &Barrier) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config {
        budget: Duration::from_secs(5),
        connect_timeout: Duration::from_secs(5),
        ..Config::new(server.address.to_string())
    };
    runtime.block_on(async {
        let store = Store::open(config);
        tokio::time::timeout(PATIENCE, store.connected()).await.unwrap();
        let clock = Clock::system();
        // From a day behind to six days ahead.
        let now_here = move || clock.now() + Duration::from_secs(number * 86_400);
        let engine = Arc::new(Engine::new(RuleSet::parse(&[Source::new("rules", rules)]).unwrap(), now_here()));
        phases.wait();
        let (start, mut random) = (now(), Random(number));
        while start.elapsed() < LASTS {
            let keys: Vec<usize> = (0..16).map(|_| random.below(admitted.len() as u64) as usize).collect();
            let asking = keys.into_iter().map(|key| {
                let (store, engine, admitted, at) =
                    (store.clone(), Arc::clone(&engine), Arc::clone(admitted), now_here());
                tokio::spawn(async move { ask(&store, &engine, &admitted, key, at).await })
            });
            for task in asking.collect::<Vec<_>>() {
                task.await.unwrap();
            }
        }
        phases.wait();
        // The test reads the clock here.
        phases.wait();
        for key in (0..admitted.len()).filter(|key| *key as u64 % HOSTS == number) {
            while ask(&store, &engine, admitted, key, now_here()).await {}
        }
        phases.wait();
    });
}

async fn ask(store: &Store, engine: &Engine, admitted: &Admitted, key: usize, at: Time) -> bool {
    let user = key.to_string();
    let attributes = [("user", Value::Text(&user))];
    let verdict = engine.check_with(&store, &Request::new("n", &attributes), at).await;
    assert!(verdict.checks().iter().all(|check| !check.is_degraded), "{:?}", store.stats());
    if verdict.is_allowed() {
        admitted.get(key).unwrap().fetch_add(1, Ordering::Relaxed);
    }
    verdict.is_allowed()
}

fn store_time(client: &mut Client) -> f64 {
    let Reply::Array(parts) = client.ask(&["TIME"]) else { panic!("no time") };
    let number = |part: &Reply| match part {
        Reply::Text(text) => std::str::from_utf8(text).unwrap().parse::<f64>().unwrap(),
        other => panic!("{other:?}"),
    };
    parts.iter().map(number).zip([1.0, 1e-6]).map(|(number, unit)| number * unit).sum()
}

fn run(kind: Kind, limit: &str, keys: usize, burst: f64, rate: f64) {
    let server = Server::start(kind, &[]);
    let rules = format!(
        "namespace: n\nrules: [{{ name: a, key: [user], limits: [{limit}], shared: store-exact, on_failure: refuse }}]\n"
    );
    let admitted: Admitted = Arc::new((0..keys).map(|_| AtomicU64::new(0)).collect());
    let phases = Barrier::new(HOSTS as usize + 1);
    let (start, lasted, end) = thread::scope(|scope| {
        for number in 0..HOSTS {
            let (server, rules, admitted, phases) = (&server, &rules, &admitted, &phases);
            scope.spawn(move || host(number, server, rules, admitted, phases));
        }
        let mut client = server.client();
        // Before the first of them asks, and after the last of them has stopped.
        let start = store_time(&mut client);
        phases.wait();
        let started = store_time(&mut client);
        phases.wait();
        let middle = store_time(&mut client);
        phases.wait();
        phases.wait();
        (start, middle - started, store_time(&mut client))
    });
    let counts: Vec<f64> = admitted.iter().map(|count| count.load(Ordering::Relaxed) as f64).collect();
    let (most, least) = (burst + rate * (end - start), burst + rate * lasted);
    let all: f64 = counts.iter().sum();
    println!(
        "{kind:?}: {limit}, {keys} keys: {all} let through of {:.0}, at least {:.4}",
        most * keys as f64,
        all / (least * keys as f64)
    );
    assert!(counts.iter().all(|count| *count <= most), "{kind:?}: {limit}: {counts:?} of {most}");
    // Tokens of which a part has come in are no tokens yet.
    assert!(all >= 0.99 * least * keys as f64 - keys as f64, "{kind:?}: {limit}: {all} of {least} each");
}

#[test]
fn n2_eight_hosts_let_through_exactly_the_limit_of_one_key() {
    for kind in Kind::ALL {
        run(kind, "300 per second burst 500", 1, 500.0, 300.0);
        run(kind, "7000 per minute burst 500", 1, 500.0, 7_000.0 / 60.0);
    }
}

#[test]
fn n2_eight_hosts_let_through_exactly_the_limits_of_a_thousand_keys() {
    for kind in Kind::ALL {
        run(kind, "2 per second burst 10", 1_000, 10.0, 2.0);
    }
}
