//! Instructions per decision, counted by valgrind's callgrind: the same on every run, however busy the machine.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::hint::black_box;
use std::process::{Command, ExitCode};
use tollgate::{Capacity, Cell, Engine, Limit, Op, Request, RuleSet, Table, Time};
use tollgate_bench::rules::{NAMESPACE, many, one};

/// More instructions than the baseline by this factor are too many.
const TOLERANCE: f64 = 1.03;

/// With 10,000 rules a decision may take this many times the instructions that it takes with ten.
const MANY_RULES: f64 = 1.5;

const WORKS: [&str; 9] = [
    "unkeyed allow",
    "unkeyed refuse",
    "keyed allow",
    "keyed refuse",
    "keyed refuse, described",
    "1 rule",
    "10 rules",
    "10000 rules",
    "10000 rules, 4 limits",
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--loop", work, times] => {
            run(work, times.parse().unwrap_or(0));
            ExitCode::SUCCESS
        }
        [] => report(false, false),
        ["--check"] => report(true, false),
        ["--bless"] => report(false, true),
        _ => {
            eprintln!("usage: instructions [--check | --bless]");
            ExitCode::from(2)
        }
    }
}

/// The loop that is counted. Time stands still and the hash's secret is fixed.
fn run(work: &str, times: u64) {
    if let Some((rules, _)) = work.split_once(" rule") {
        return run_engine(&rules_of(rules, work.ends_with("4 limits")), times);
    }
    let now = Time::from_nanos(1_700_000_000_000_000_000);
    let limit = Limit::token_bucket("1 per second burst 10000000".parse().expect("a quota"));
    let table = Table::new(Capacity::Keys(1000), &BuildHasherDefault::<DefaultHasher>::default());
    let cell = Cell::new(&limit, now);
    let key = "client-0000000000001";
    if work.contains("refuse") {
        let _ = (cell.decide(&limit, Op::Drain, now), table.decide(key, &limit, Op::Drain, now));
    }
    for _ in 0..times {
        let limit = black_box(&limit);
        match work {
            "unkeyed allow" | "unkeyed refuse" => drop(black_box(cell.allow(limit, 1, now))),
            "keyed allow" | "keyed refuse" => drop(black_box(table.allow(black_box(key), limit, 1, now))),
            _ => drop(black_box(table.decide(black_box(key), limit, Op::Take(1), now))),
        }
    }
}

fn rules_of(count: &str, four_limits: bool) -> RuleSet {
    let four = "1000 per day burst 10000000, 1001 per day burst 10000001, 1002 per day burst 10000002, 1003 per day burst 10000003";
    match count {
        "1" => one(),
        count => many(count.parse().unwrap_or(0), if four_limits { four } else { "1000 per day burst 10000000" }),
    }
}

fn run_engine(rules: &RuleSet, times: u64) {
    let now = Time::from_nanos(1_700_000_000_000_000_000);
    let engine = Engine::new(rules.clone(), now);
    let one = [("method", "GET".into()), ("user", "client-0000000000001".into())];
    let several = [("operation", "op-3".into()), ("path", "/v2/other".into()), ("user", "client-0000000000001".into())];
    let attributes: &[_] = if rules.namespaces[0].rules.len() == 1 { &one } else { &several };
    for _ in 0..times {
        let request = Request::new(NAMESPACE, black_box(attributes));
        assert!(black_box(engine.check(&request, now)).deciding().is_some(), "no rule applied");
    }
}

fn report(check: bool, bless: bool) -> ExitCode {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");
    let baseline = std::fs::read_to_string(path).unwrap_or_default();
    let mut grown = false;
    let mut ten_rules = f64::MAX;
    let mut lines = String::new();
    for work in WORKS {
        let Some(count) = count(work) else {
            eprintln!("cannot run valgrind; install the package `valgrind`");
            return ExitCode::FAILURE;
        };
        let known = baseline.lines().find_map(|line| line.strip_prefix(&format!("{work}: "))?.parse::<f64>().ok());
        let too_many = known.is_none_or(|known| count > known * TOLERANCE);
        grown |= too_many;
        match work {
            "10 rules" => ten_rules = count,
            "10000 rules" => grown |= above_ten(count / ten_rules),
            _ => {}
        }
        let beside = known.map_or("no baseline".to_owned(), |known| format!("baseline {known:.0}"));
        println!("{work:<28}{count:>6.0} instructions  ({beside}){}", if too_many { "  grown" } else { "" });
        lines += &format!("{work}: {count:.0}\n");
    }
    if bless && let Err(error) = std::fs::write(path, lines) {
        eprintln!("cannot write the baseline: {error}");
        return ExitCode::FAILURE;
    }
    if check && grown {
        println!(
            "more than 3 % above bench/instructions.txt; make it faster, or accept it with bench/run instructions --bless"
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Says how much more many rules cost; true if that is too much.
fn above_ten(ratio: f64) -> bool {
    println!("with 10,000 rules {ratio:.2} times the instructions of ten (at most {MANY_RULES})");
    ratio > MANY_RULES
}

/// Instructions per turn of the loop: what twice as many turns cost more.
fn count(work: &str) -> Option<f64> {
    const TURNS: u64 = 20_000;
    // Reading ten thousand rules takes a few million instructions more or less from one process to the next, since maps are
    // seeded at random.
    let runs = if work.starts_with("10000") { 5 } else { 1 };
    let median = |turns| {
        let mut totals: Vec<u64> = (0..runs).map(|_| total(work, turns)).collect::<Option<_>>()?;
        totals.sort_unstable();
        totals.get(runs / 2).copied()
    };
    Some((median(2 * TURNS)? as f64 - median(TURNS)? as f64) / TURNS as f64)
}

fn total(work: &str, turns: u64) -> Option<u64> {
    let this = std::env::current_exe().ok()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this)
        .args(["--loop", work, &turns.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().find_map(|line| line.split("Collected : ").nth(1)?.trim().parse().ok())
}
