//! Rules are replaced in the midst of traffic: nobody's bucket is lost, and no token is lost or doubled.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::indexing_slicing, reason = "so has one that finds less than it expects")]
#![expect(clippy::disallowed_methods, reason = "swaps are made at a pace, and measured")]

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tollgate::{Capacity, Checked, Engine, Event, Request, RuleSet, Source, Time, Value, Verdict};

fn parse(text: &str) -> RuleSet {
    RuleSet::parse(&[Source::new("rules", text)]).unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"))
}

fn engine(text: &str) -> Engine {
    Engine::new(parse(text), Time::ZERO)
}

/// One rule with this limit, for each user.
fn limited(limit: &str) -> String {
    format!("namespace: n\nrules: [{{ name: a, match: {{ op: a }}, key: [user], limits: [{limit}] }}]")
}

fn ask(engine: &Engine, op: &str, user: &str, cost: u64) -> Verdict {
    let attributes = [("op", Value::Text(op)), ("user", Value::Text(user))];
    engine.check(&Request::new("n", &attributes).with_cost(cost), Time::ZERO)
}

/// What a check says was spent.
fn spent(check: &Checked) -> u64 {
    check.decision.limit - check.decision.remaining + check.decision.debt
}

/// What ann has spent of her first limit.
fn spent_by_ann(engine: &Engine) -> u64 {
    spent(&ask(engine, "a", "ann", 0).checks()[0])
}

/// Every algorithm, with room for ten.
const EVERY: [&str; 9] = [
    "10 per hour",
    "20 per day burst 10",
    "10 per hour using fixed-window",
    "10 per month using calendar-window",
    "10 per hour using sliding-window",
    "10 per hour using sliding-log",
    "10 per hour using sliding-log gap 1ns counting-refused",
    "10 per hour using leaky-queue",
    "10 per hour using cycles wait 2h",
];

#[test]
fn r5_limits_that_stay_the_same_keep_their_buckets() {
    for limit in EVERY {
        let engine = engine(&limited(limit));
        assert!(ask(&engine, "a", "ann", 4).is_allowed(), "{limit}");
        engine.replace(parse(&limited(limit)), Time::ZERO);
        assert_eq!(spent_by_ann(&engine), 4, "{limit}");
    }
}

#[test]
fn r5_a_changed_limit_keeps_what_was_spent_from_any_algorithm_to_any_other() {
    for from in EVERY {
        for to in EVERY.iter().chain(&["7 per second", "9000 per day", "8 per minute burst 50"]) {
            let engine = engine(&limited(from));
            assert!(ask(&engine, "a", "ann", 4).is_allowed(), "{from}");
            engine.replace(parse(&limited(to)), Time::ZERO);
            assert_eq!(spent_by_ann(&engine), 4, "from {from} to {to}");
            assert_eq!(spent(&ask(&engine, "a", "bob", 0).checks()[0]), 0, "from {from} to {to}");
            // And takes it over once.
            assert_eq!(spent_by_ann(&engine), 4, "from {from} to {to}");
        }
    }
}

#[test]
fn r5_who_has_spent_more_than_there_is_now_waits_for_one_burst_and_no_longer() {
    let engine = engine(&limited("1000 per hour"));
    assert!(ask(&engine, "a", "ann", 900).is_allowed());
    engine.replace(parse(&limited("5 per hour")), Time::ZERO);
    let verdict = ask(&engine, "a", "ann", 1);
    assert_eq!(verdict.retry_after(), Some(Duration::from_secs(720)));
    assert_eq!(spent_by_ann(&engine), 5);
}

#[test]
fn r5_renaming_reordering_and_moving_reset_nobody() {
    let one = "namespace: n\nrules:\n  - { name: a, match: { op: a, x: { present: false } }, key: [user], limits: [10 per hour, 90 per day] }\n  - { name: b, match: { op: b }, key: [user], limits: [10 per hour] }\n";
    let other = "namespace: n\nrules:\n  - { name: bees, match: { op: b }, key: [user], limits: [10 per hour], over: drop }\n  - { name: new, match: { op: c }, key: [user], limits: [10 per hour] }\n  - { name: apes, priority: 9, match: { x: { present: false }, op: a }, key: [user], limits: [90 per day, 10 per hour] }\n";
    let engine = Engine::new(RuleSet::parse(&[Source::new("one.yaml", one)]).unwrap(), Time::ZERO);
    assert!(ask(&engine, "a", "ann", 3).is_allowed() && ask(&engine, "b", "ann", 2).is_allowed());
    let elsewhere = "namespace: m\nrules: []\n";
    let files = [Source::new("0.yaml", elsewhere), Source::new("dir/two.yaml", other)];
    engine.replace(RuleSet::parse(&files).unwrap(), Time::ZERO);
    assert_eq!(ask(&engine, "a", "ann", 0).checks().iter().map(spent).collect::<Vec<_>>(), [3, 3]);
    assert_eq!(ask(&engine, "b", "ann", 0).checks().iter().map(spent).collect::<Vec<_>>(), [2]);
    assert_eq!(ask(&engine, "c", "ann", 0).checks().iter().map(spent).collect::<Vec<_>>(), [0]);
}

#[test]
fn r5_rules_that_change_names_and_quotas_at_once_do_not_mix_up_their_clients() {
    let two = |a: &str, b: &str, count: u64| {
        format!(
            "namespace: n\nrules:\n  - {{ name: {a}, match: {{ op: a }}, key: [user], limits: [{count} per hour] }}\n  - {{ name: {b}, match: {{ op: b }}, key: [user], limits: [{count} per hour] }}\n"
        )
    };
    let engine = engine(&two("x", "y", 10));
    assert!(ask(&engine, "a", "ann", 3).is_allowed() && ask(&engine, "b", "ann", 7).is_allowed());
    engine.replace(parse(&two("y", "x", 20)), Time::ZERO);
    assert_eq!(ask(&engine, "a", "ann", 0).remaining(), Some(17));
    assert_eq!(ask(&engine, "b", "ann", 0).remaining(), Some(13));
}

#[test]
fn r5_limits_that_differ_only_in_what_they_count_may_change_places() {
    let [requests, bytes] = ["name: requests, cost: 1", "name: bytes, cost: bytes"]
        .map(|rule| format!("  - {{ {rule}, match: {{ op: a }}, key: [user], limits: [100 per hour] }}\n"));
    let engine = engine(&format!("namespace: n\nrules:\n{requests}{bytes}"));
    let attributes = [("op", "a".into()), ("user", "ann".into()), ("bytes", 30.into())];
    let request = Request::new("n", &attributes);
    assert_eq!(engine.check(&request, Time::ZERO).checks().iter().map(spent).collect::<Vec<_>>(), [1, 30]);
    engine.replace(parse(&format!("namespace: n\nrules:\n{bytes}{requests}")), Time::ZERO);
    assert_eq!(engine.check(&request, Time::ZERO).checks().iter().map(spent).collect::<Vec<_>>(), [60, 2]);
    // Another cost of one of them starts with what was spent.
    engine.replace(
        parse(&format!("namespace: n\nrules:\n{bytes}{}", requests.replace("cost: 1", "cost: 5"))),
        Time::ZERO,
    );
    assert_eq!(engine.check(&request, Time::ZERO).checks().iter().map(spent).collect::<Vec<_>>(), [90, 7]);
}

#[test]
fn other_clients_or_other_kinds_of_clients_start_afresh() {
    let engine = engine(&limited("10 per hour"));
    assert!(ask(&engine, "a", "ann", 4).is_allowed());
    engine.replace(parse(&limited("10 per hour").replace("[user]", "[user, op]")), Time::ZERO);
    assert_eq!(spent_by_ann(&engine), 0);
    engine.replace(parse(&limited("10 per hour").replace("[user]", "[op]")), Time::ZERO);
    assert_eq!(spent_by_ann(&engine), 0);
}

#[test]
fn r5_going_back_and_forth_loses_nothing_seen_or_unseen_in_between() {
    let engine = engine(&limited("10 per hour"));
    assert!(ask(&engine, "a", "ann", 2).is_allowed());
    for round in 0..5 {
        // Unseen.
        engine.replace(parse(&limited("30 per hour using sliding-log")), Time::ZERO);
        engine.replace(parse(&limited("10 per hour")), Time::ZERO);
        assert_eq!(spent_by_ann(&engine), 2 + round);
        // Seen.
        engine.replace(parse(&limited("20 per hour")), Time::ZERO);
        assert!(ask(&engine, "a", "ann", 1).is_allowed());
        engine.replace(parse(&limited("10 per hour")), Time::ZERO);
    }
    assert_eq!(spent_by_ann(&engine), 7);
}

#[test]
fn r5_what_was_spent_outlives_eight_changes_that_its_client_does_not_see() {
    let engine = engine(&limited("100 per hour"));
    assert!(ask(&engine, "a", "ann", 4).is_allowed());
    for count in 101..109 {
        engine.replace(parse(&limited(&format!("{count} per hour"))), Time::ZERO);
    }
    assert_eq!(spent_by_ann(&engine), 4);
}

#[test]
fn a_ban_that_is_lifted_knows_what_was_spent_before() {
    let engine = engine(&limited("10 per hour"));
    assert!(ask(&engine, "a", "ann", 4).is_allowed());
    engine.replace(parse(&limited("0 per hour")), Time::ZERO);
    assert!(!ask(&engine, "a", "ann", 1).is_allowed());
    engine.replace(parse(&limited("12 per hour")), Time::ZERO);
    assert_eq!(spent_by_ann(&engine), 4);
}

#[test]
fn r4_every_decision_is_made_by_exactly_one_version() {
    // Whoever sees a rule of one version sees no rule of the other.
    let version = |name: &str| {
        let mut text = "namespace: n\nrules:\n".to_owned();
        for rule in 0..4 {
            writeln!(text, "  - {{ name: {name}-{rule}, key: [], limits: [1000000 per second, 1000000 per {name}] }}")
                .unwrap();
        }
        text
    };
    let sets = [parse(&version("minute")), parse(&version("hour"))];
    let engine = Engine::new(sets[0].clone(), Time::ZERO);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let verdict = ask(&engine, "a", "ann", 1);
                    let expected = ["hour", "minute"][verdict.version() as usize % 2];
                    let names = verdict.checks().iter().map(|check| &*verdict.rule_of(check).unwrap().name);
                    assert_eq!(names.filter(|name| name.starts_with(expected)).count(), 8);
                    let texts =
                        verdict.checks().iter().map(|check| verdict.limit_of(check).unwrap().amount.to_string());
                    assert_eq!(texts.filter(|text| text.ends_with(expected)).count(), 4);
                }
            });
        }
        for swap in 1..300 {
            engine.replace(sets[swap % 2].clone(), Time::ZERO);
            thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(engine.version(), 300);
}

fn is_long() -> bool {
    std::env::var_os("TOLLGATE_LONG").is_some()
}

fn long() -> Duration {
    Duration::from_secs(if is_long() { 30 } else { 2 })
}

const THREADS: u64 = 4;

/// Lets threads ask while rules are swapped a hundred times a second, and says how many requests were admitted and how
/// many swaps there were.
fn storm(engine: &Engine, sets: &[RuleSet], ask: impl Fn(u64) -> bool + Sync) -> (u64, u64) {
    let (admitted, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut swaps = 0;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (admitted, done, ask) = (&admitted, &done, &ask);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    admitted.fetch_add(u64::from(ask(thread)), Ordering::Relaxed);
                }
            });
        }
        let start = Instant::now();
        while start.elapsed() < long() {
            engine.replace(sets[swaps as usize % sets.len()].clone(), Time::ZERO);
            swaps += 1;
            thread::sleep(Duration::from_millis(10));
        }
        done.store(true, Ordering::Relaxed);
    });
    (admitted.into_inner(), swaps)
}

#[test]
fn r5_a_hundred_swaps_a_second_lose_and_double_no_token() {
    let limits = [
        "1000000000 per hour",
        "2000000000 per day",
        "1500000000 per hour using fixed-window",
        "3000000000 per day using sliding-window",
    ];
    let sets = limits.map(|limit| parse(&limited(limit)));
    let engine = Engine::new(sets[0].clone(), Time::ZERO);
    let users = ["ann", "bob", "ann", "ann"];
    let (admitted, swaps) = storm(&engine, &sets, |thread| ask(&engine, "a", users[thread as usize], 1).is_allowed());
    let spent: u64 = ["ann", "bob"].iter().map(|user| spent(&ask(&engine, "a", user, 0).checks()[0])).sum();
    assert_eq!(spent, admitted, "after {swaps} swaps");
}

#[test]
fn r5_a_swap_admits_no_more_than_the_requests_that_were_in_flight() {
    let limits = ["500 per hour", "500 per day", "500 per hour using fixed-window"];
    let sets = limits.map(|limit| parse(&limited(limit)));
    let engine = Engine::new(sets[0].clone(), Time::ZERO);
    let (admitted, swaps) = storm(&engine, &sets, |_| ask(&engine, "a", "ann", 1).is_allowed());
    // A request in flight at the swap may be decided by the old bucket just after the first request of the new version
    // has emptied it. It is then charged to the new one as debt, by whoever asks next: one request a thread and swap.
    assert!(admitted >= 500, "{admitted}");
    assert!(admitted <= 500 + THREADS * swaps, "{admitted} after {swaps} swaps");
    // What exceeds the limit is forgiven at the next swap, so no more than one burst and the last swap's is known.
    let spent = spent_by_ann(&engine);
    assert!(spent >= 500 && spent <= admitted, "{spent} of {admitted}");
}

#[test]
fn r5_what_is_given_back_in_a_race_is_not_lost_when_its_limit_changes_meanwhile() {
    // Each of the users has one token, for which all threads race; who loses gets back what the other limit took.
    let set = |limit: &str| {
        parse(&format!(
            "namespace: n\nrules:\n  - {{ name: all, key: [], limits: [{limit}] }}\n  - {{ name: one, key: [user], limits: [1 per day] }}\n"
        ))
    };
    let sets = ["1000000000 per hour", "2000000000 per day"].map(set);
    let engine = Engine::builder().capacity(Capacity::Keys(10_000_000)).build(sets[0].clone(), Time::ZERO);
    let next = AtomicU64::new(0);
    let (admitted, swaps) = storm(&engine, &sets, |_| {
        let user = (next.fetch_add(1, Ordering::Relaxed) / THREADS).to_string();
        ask(&engine, "a", &user, 1).is_allowed()
    });
    let verdict = ask(&engine, "a", "nobody yet", 0);
    let spent = spent(&verdict.checks()[0]);
    let asked = next.load(Ordering::Relaxed) / THREADS;
    assert!(admitted <= asked + 1, "{admitted} of {asked} users");
    assert_eq!(spent, admitted, "after {swaps} swaps");
}

/// So many rules of all kinds, a tenth of which differ from version to version.
fn many(rules: usize, version: usize) -> RuleSet {
    let mut text = "namespace: n\nrules:\n".to_owned();
    for rule in 0..rules {
        let matches = match rule % 4 {
            0 => format!("path: \"/v{rule}/**\""),
            1 => format!("op: op-{rule}, method: [GET, POST]"),
            2 => format!("ip: 10.{}.{}.0/24", rule / 256 % 256, rule % 256),
            _ => format!("op: [a-{rule}, b-{rule}], region: {{ not: eu }}"),
        };
        let count = if rule % 10 == 0 { 100 + version % 7 } else { 100 };
        writeln!(text, "  - {{ name: rule-{rule}, match: {{ {matches} }}, key: [user], limits: [{count} per minute, 1000 per day using sliding-window] }}").unwrap();
    }
    parse(&text)
}

/// Lets one thread decide without a pause while something is done several times, and says how long the slowest decision
/// took each time: in the middle of all times, and at worst.
fn slowest_decisions(engine: &Engine, times: usize, meanwhile: impl Fn(usize)) -> (Duration, Duration) {
    let (slowest, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut all: Vec<u64> = thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0_u64.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let (path, user) = (format!("/v{}/x", number * 4 % 10_000), (number % 1_000).to_string());
                let attributes = [("path", Value::Text(&path)), ("user", Value::Text(&user))];
                let request = Request::new("n", &attributes);
                let start = Instant::now();
                drop(engine.check(&request, Time::ZERO));
                slowest.fetch_max(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            }
        });
        let each = |time| {
            slowest.store(0, Ordering::Relaxed);
            meanwhile(time);
            slowest.load(Ordering::Relaxed)
        };
        let all = (0..times).map(each).collect();
        done.store(true, Ordering::Relaxed);
        all
    });
    all.sort_unstable();
    (Duration::from_nanos(all[times / 2]), Duration::from_nanos(all[times - 1]))
}

/// What this thread has worked so far, to a few milliseconds: other programs on the same machine are not counted.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Held to its figures by `TOLLGATE_LONG=1 cargo test --release -p tollgate --test swap -- ten_thousand --nocapture`.
#[test]
fn r4_ten_thousand_rules_are_swapped_within_fifty_milliseconds_and_hold_up_nobody() {
    let (rules, swaps) = if cfg!(debug_assertions) { (1_000, 5) } else { (10_000, 30) };
    let applied = Arc::new(Mutex::new((Instant::now(), Duration::ZERO)));
    let told = Arc::clone(&applied);
    let observe = move |event: &Event<'_>| {
        if let Event::RulesReplaced { .. } = event {
            *told.lock().unwrap() = (Instant::now(), on_cpu());
        }
    };
    let engine = Engine::builder().observer(observe).build(many(rules, 0), Time::ZERO);
    let sets: Vec<_> = (1..=swaps).map(|version| Mutex::new(Some(many(rules, version)))).collect();
    let took = Mutex::new(Vec::new());
    let (with, worst_with) = slowest_decisions(&engine, swaps, |swap| {
        let set = sets[swap].lock().unwrap().take().unwrap();
        let (start, worked) = (Instant::now(), on_cpu());
        engine.replace(set, Time::ZERO);
        let (applied, worked_till_then) = *applied.lock().unwrap();
        took.lock().unwrap().push((worked_till_then - worked, applied - start, start.elapsed()));
    });
    let mut took = took.into_inner().unwrap();
    took.sort_unstable();
    let (work, applied, freed) = took[swaps / 2];
    // The same with as much work beside it that has nothing to do with the engine.
    let (without, worst_without) = slowest_decisions(&engine, swaps, |_| {
        let start = Instant::now();
        while start.elapsed() < freed {
            std::hint::black_box(vec![0_u8; 1 << 12]);
        }
    });
    println!(
        "{rules} rules: in force after {applied:?}, {work:?} of which were work; {freed:?} with the old ones freed"
    );
    println!(
        "the slowest decision per swap took {with:?} (at worst {worst_with:?}); without swaps {without:?} ({worst_without:?})"
    );
    // Beside other tests there is nothing to be measured.
    if !cfg!(debug_assertions) && is_long() {
        assert!(with <= without + Duration::from_millis(1), "{with:?} with swaps, {without:?} without");
        assert!(work <= Duration::from_millis(50), "{work:?}");
    }
}
