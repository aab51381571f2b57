//! The decision path beside limitador's: one limit, one condition, one variable; and how it takes many rules.

use limitador::RateLimiter as Limitador;
use limitador::limit::{Context, Limit, Namespace};
use std::collections::HashMap;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tollgate::{Capacity, Request, RuleSet, Tollgate};
use tollgate_bench::report::{Row, Section, all_reached, processor, progress};
use tollgate_bench::rules::{NAMESPACE, many, one};
use tollgate_bench::timing::{Comparison, Of, compare, on_threads, timed, worst};
use tollgate_bench::workload::{KeyBuffer, Random, uniform};

const OPERATIONS: usize = 200_000;
const ROUNDS: usize = 7;
/// With a million clients most requests should be of another one.
const MANY_OPERATIONS: (usize, usize) = (3, 1_000_000);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = arguments == ["--check"];
    if !arguments.is_empty() && !check {
        eprintln!("usage: bench/run engine [--check]");
        return ExitCode::from(2);
    }
    let sections = [beside_limitador(), many_rules(), swaps()];
    write_docs(&sections);
    let reached = all_reached(&sections);
    ExitCode::from(u8::from(check && !reached))
}

fn beside_limitador() -> Section {
    let mut section = Section::new(
        "One limit, one condition, one variable",
        "The request's attributes are given as texts, and the clock is read on every call, on both sides. Limitador's \
         context is made from a map of owned strings, as its interface asks for.",
        &["tollgate", "limitador", "ratio"],
    );
    for (work, clients, threads, target) in [
        ("1 client, 1 thread", 1, 1, None),
        ("10 k clients, 1 thread", 10_000, 1, None),
        ("1 M clients, 1 thread", 1_000_000, 1, Some(20.0)),
        ("1 M clients, 2 threads", 1_000_000, 2, None),
    ] {
        progress(work);
        let comparison = one_limit(clients, threads);
        let ratio = comparison.ratios[1];
        section.push(Row {
            work: work.to_owned(),
            cells: vec![nanos(comparison.nanos[0]), nanos(comparison.nanos[1]), format!("{ratio:.1}x")],
            target: target.map_or(String::new(), |target| format!("{target:.0}x")),
            reached: target.map(|target| ratio >= target),
        });
    }
    section
}

fn one_limit(clients: usize, threads: usize) -> Comparison {
    let (rounds, operations) = if clients < 1_000_000 { (ROUNDS, OPERATIONS) } else { MANY_OPERATIONS };
    let tollgate = gate(one(), clients);
    let limitador = Limitador::new(2 * clients as u64);
    let condition = "req_method == 'GET'".try_into().expect("a condition");
    let variable = "user_id".try_into().expect("a variable");
    limitador.add_limit(Limit::new(NAMESPACE, 100_000_000, 6000, vec![condition], vec![variable]));
    let namespace: Namespace = NAMESPACE.into();
    let ask_tollgate = |key: &str| {
        let attributes = [("method", "GET".into()), ("user", key.into())];
        black_box(tollgate.check(&Request::new(NAMESPACE, &attributes)).is_allowed())
    };
    let ask_limitador = |key: &str| {
        let values: HashMap<String, String> =
            [("req_method".to_owned(), "GET".to_owned()), ("user_id".to_owned(), key.to_owned())].into();
        let context: Context<'_> = values.into();
        let answer = limitador.check_rate_limited_and_update(&namespace, &context, 1);
        black_box(answer.is_ok_and(|answer| !answer.limited))
    };
    let mut key = KeyBuffer::default();
    for client in 0..clients as u64 {
        ask_tollgate(key.write(client));
        ask_limitador(key.write(client));
    }
    let each = |ask: &(dyn Fn(&str) -> bool + Sync)| {
        on_threads(threads, |thread| {
            let (mut random, mut key) = (Random(thread as u64), KeyBuffer::default());
            let mut asked = (0..operations / threads).map(|_| ask(key.write(random.draw() % clients as u64)));
            assert!(asked.all(|allowed| allowed), "a client was refused");
        });
    };
    let of = if threads == 1 { Of::OneThread } else { Of::Threads };
    compare(of, (rounds, operations), &mut [&mut || each(&ask_tollgate), &mut || each(&ask_limitador)])
}

fn many_rules() -> Section {
    let mut section = Section::new(
        "Many rules",
        "A third of the rules each for an operation, a path pattern and a network; 10,000 clients. The target compares with \
         ten rules; instructions are gated by `bench/run instructions --check`.",
        &["tollgate", "ratio"],
    );
    let single = "10 per second burst 10000000";
    let four = "10 per second burst 10000000, 11 per second burst 10000001, 12 per second burst 10000002, 13 per second burst 10000003";
    let mut ten = 0.0;
    for (work, rules, limits, target) in [
        ("10 rules, 1 limit", 10, single, None),
        ("1,000 rules, 1 limit", 1000, single, None),
        ("10,000 rules, 1 limit", 10_000, single, Some(1.5)),
        ("10,000 rules, 4 limits", 10_000, four, None),
    ] {
        progress(work);
        let tollgate = gate(many(rules, limits), 40_000);
        let keys = uniform(OPERATIONS, 10_000);
        let took = compare(
            Of::OneThread,
            (ROUNDS, OPERATIONS),
            &mut [&mut || {
                for key in &keys {
                    let attributes =
                        [("operation", "op-3".into()), ("path", "/v2/other".into()), ("user", key.as_str().into())];
                    black_box(tollgate.check(&Request::new(NAMESPACE, &attributes)).is_allowed());
                }
            }],
        );
        ten = if rules == 10 { took.nanos[0] } else { ten };
        let ratio = took.nanos[0] / ten;
        section.push(Row {
            work: work.to_owned(),
            cells: vec![nanos(took.nanos[0]), format!("{ratio:.2}x")],
            target: target.map_or(String::new(), |target| format!("at most {target:.1}x")),
            reached: target.map(|target| ratio <= target),
        });
    }
    section
}

fn swaps() -> Section {
    let mut section = Section::new(
        "Swapping 10,000 rules",
        "While one thread decides. A swap is timed from the checked rules to their being in force; the worst decision beside \
         the worst turn of an idle loop in the same time.",
        &["took", "worst decision", "idle"],
    );
    progress("swapping 10,000 rules");
    let sets = [many(10_000, "10 per second burst 10000000"), many(10_000, "20 per second burst 10000000")];
    let tollgate = gate(sets[0].clone(), 40_000);
    let done = AtomicBool::new(false);
    let slowest = AtomicU64::new(0);
    let mut fastest = Duration::MAX;
    let worst = std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..20 {
                let next = sets[turn % 2].clone();
                let took = timed(|| tollgate.replace(next));
                slowest.fetch_max(took.as_nanos() as u64, Ordering::Relaxed);
                fastest = fastest.min(took);
            }
            done.store(true, Ordering::Relaxed);
        });
        let attributes = [("operation", "op-3".into()), ("user", "alice".into())];
        let request = Request::new(NAMESPACE, &attributes);
        let mut calls = 0;
        let mut longest = Duration::ZERO;
        while !done.load(Ordering::Relaxed) {
            longest = longest.max(timed(|| tollgate.check(&request).is_allowed()));
            calls += 1;
        }
        let mut idle = worst(calls, |_| timed(|| ()));
        idle.call = longest;
        idle
    });
    let slowest = Duration::from_nanos(slowest.load(Ordering::Relaxed));
    section.push(Row {
        work: "20 swaps, the slowest".to_owned(),
        cells: vec![millis(slowest), millis(worst.call), millis(worst.idle)],
        target: "at most 50 ms; 1 ms beyond idle".to_owned(),
        reached: Some(slowest <= Duration::from_millis(50) && worst.beyond_idle() <= Duration::from_millis(1)),
    });
    section.push(Row {
        work: "the fastest".to_owned(),
        cells: vec![millis(fastest)],
        target: String::new(),
        reached: None,
    });
    section
}

fn gate(rules: RuleSet, clients: usize) -> Tollgate {
    Tollgate::builder().capacity(Capacity::Keys(clients)).build(rules)
}

fn nanos(nanos: f64) -> String {
    if nanos < 10_000.0 { format!("{nanos:.0} ns") } else { format!("{:.1} us", nanos / 1000.0) }
}

fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}

fn write_docs(sections: &[Section]) {
    let mut text = format!(
        "# The decision path, measured\n\nWritten by `bench/run engine` on {}; limitador 0.14 with its in-memory storage. One-thread \
         figures are the fastest of {ROUNDS} rounds, of three with a million clients.\n",
        processor()
    );
    for section in sections {
        text += &format!("\n{}", section.markdown());
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/performance-engine.md");
    match std::fs::write(path, text) {
        Ok(()) => println!("written to docs/performance-engine.md"),
        Err(error) => eprintln!("cannot write docs/performance-engine.md: {error}"),
    }
}
