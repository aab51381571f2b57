//! What operators may rely on: counts lose nothing, sketches are as good as they say, and nothing grows.

use super::*;
use std::collections::HashMap;
use std::fmt::Write;
use std::thread;

/// splitmix64's last step: an even hash of any number.
fn hash(number: u64) -> u64 {
    let z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn estimate(hashes: impl Iterator<Item = u64>) -> f64 {
    let distinct = Distinct::default();
    hashes.for_each(|hash| distinct.insert(hash));
    distinct.estimate()
}

#[test]
fn the_sketch_of_nobody_is_zero_and_of_one_is_one() {
    assert_eq!(estimate([].into_iter()), 0.0);
    assert_eq!(estimate([hash(7); 1_000].into_iter()).round(), 1.0);
}

#[test]
fn the_sketch_is_off_by_as_much_as_it_says() {
    for size in [10, 30, 100, 300, 600, 1_000, 3_000, 10_000, 100_000] {
        let rounds = if size < 10_000 { 200 } else { 20 };
        let errors: Vec<f64> = (0..rounds)
            .map(|round: u64| estimate((0..size).map(|i| hash(round << 32 | i))) / size as f64 - 1.0)
            .collect();
        let mean = errors.iter().sum::<f64>() / rounds as f64;
        let deviation = (errors.iter().map(|error| error * error).sum::<f64>() / rounds as f64).sqrt();
        let tolerance = if rounds == 200 { 1.15 } else { 1.6 };
        assert!(deviation < 0.065 * tolerance, "{size}: {deviation}");
        assert!(mean.abs() < 4.0 * 0.065 / (rounds as f64).sqrt(), "{size}: {mean}");
    }
    let million = estimate((0..1_000_000).map(hash)) / 1e6 - 1.0;
    assert!(million.abs() < 3.0 * 0.065, "{million}");
}

#[test]
fn the_sketch_survives_any_hash() {
    let ends = estimate([0, u64::MAX, 1, 1 << 56].into_iter());
    assert!(ends.is_finite() && ends > 0.0);
    let full = estimate((0..256).map(|index| index << 56));
    assert!(full.is_finite() && full > 1e18, "{full}");
}

#[test]
fn use_falls_into_the_tenth_that_a_division_would_say() {
    let check = |used: u64, limit: u64| {
        let tally = Tally::default();
        tally.add(Ending::Allowed(Use { used, limit }));
        let (_, uses) = tally.snapshot();
        if limit == 0 || used > limit {
            return assert_eq!(uses, UseHistogram { over: 1, ..UseHistogram::default() }, "{used}/{limit}");
        }
        let tenth = (u128::from(used) * 10 / u128::from(limit)).min(9) as usize;
        assert_eq!((uses.tenths[tenth], uses.over), (1, 0), "{used}/{limit}");
    };
    for limit in 0..=40 {
        (0..=limit + 1).for_each(|used| check(used, limit));
    }
    for limit in [1 << 59, (1 << 60) - 1] {
        [0, limit / 10, limit / 2, limit - 1, limit].into_iter().for_each(|used| check(used, limit));
    }
    [0, u64::MAX / 4, u64::MAX / 4 * 3, u64::MAX].into_iter().for_each(|used| check(used, u64::MAX));
}

#[test]
fn use_is_read_off_a_decision() {
    use tollgate_limit::{Cell, Limit, Op, Time};
    let limit = Limit::token_bucket("10 per second".parse().unwrap());
    let cell = Cell::new(&limit, Time::ZERO);
    let after = |op| Use::after(&cell.decide(&limit, op, Time::ZERO));
    assert_eq!(after(Op::Take(4)), Use { used: 4, limit: 10 });
    assert_eq!(after(Op::Charge(8)), Use { used: 12, limit: 10 });
}

#[test]
fn each_decision_is_counted_once() {
    let stats = RuleStats::default();
    stats.allowed(1, Some(Use { used: 1, limit: 10 }));
    stats.allowed(2, Some(Use { used: 12, limit: 10 }));
    stats.allowed(3, None);
    stats.waited(4);
    stats.refused(5, |_| ());
    stats.shadowed(6, |_| ());
    let snapshot = stats.snapshot();
    assert_eq!(snapshot.counts, Counts { allowed: 3, waited: 1, refused: 1, shadowed: 1, degraded: 0 });
    assert_eq!(snapshot.counts.total(), 6);
    assert_eq!((snapshot.uses.tenths.iter().sum::<u64>(), snapshot.uses.over), (1, 4));
}

#[test]
fn a_rule_that_never_applied_costs_nothing_and_a_busy_one_little() {
    assert!(size_of::<RuleStats>() <= 32);
    assert_eq!(size_of::<Tally>(), 1024);
    let all = size_of::<RuleStats>() + size_of::<Traffic>() + size_of::<Refusals>();
    assert!(all <= 3 * 1024 + 128, "{all}");
    let stats = RuleStats::default();
    assert_eq!(stats.snapshot(), RuleSnapshot::default());
    stats.ready();
    assert_eq!(stats.snapshot(), RuleSnapshot::default());
}

/// Adds each key under its number as a name.
fn add(top: &TopKeys, key: u64) {
    top.add(hash(key), |name| _ = write!(name, "{key}"));
}

/// Keys as they come in life: the k-th most frequent one is about 1/k^s as likely as the first.
fn zipf(exponent: f64, keys: u64) -> impl FnMut(u64) -> u64 {
    let weights: Vec<f64> = (1..=keys)
        .scan(0.0, |sum, key| {
            *sum += (key as f64).powf(-exponent);
            Some(*sum)
        })
        .collect();
    move |draw| {
        let at = hash(draw) as f64 / 2_f64.powi(64) * weights[weights.len() - 1];
        weights.partition_point(|&weight| weight < at) as u64
    }
}

#[test]
fn the_top_keys_are_the_top_keys() {
    for exponent in [0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0] {
        let (top, mut exact, mut draw) = (TopKeys::default(), HashMap::new(), zipf(exponent, 10_000));
        let total = 100_000;
        for i in 0..total {
            let key = draw(i);
            add(&top, key);
            *exact.entry(key.to_string()).or_insert(0) += 1;
        }
        let found = top.snapshot();
        assert_eq!((found.len(), top.missed()), (16, 0));
        assert_eq!(found.iter().map(|key| key.count).sum::<u64>(), total);
        assert!(found.is_sorted_by(|a, b| a.count >= b.count));
        for TopKey { name, count, error } in &found {
            let truth = exact[name];
            assert!((count - error..=*count).contains(&truth) && *error <= total / 16, "{exponent}: {name}");
        }
        for (name, _) in exact.iter().filter(|&(_, &count)| count > total / 16) {
            assert!(found.iter().any(|key| key.name == *name), "{exponent}: {name} is missing");
        }
    }
}

#[test]
fn a_key_is_asked_for_its_name_only_once() {
    let top = TopKeys::default();
    let mut asked = 0;
    for _ in 0..10 {
        top.add(0, |_| asked += 1);
    }
    assert_eq!((asked, top.snapshot().len(), top.snapshot()[0].count), (1, 1, 10));
}

#[test]
fn a_name_that_panics_does_not_stop_the_counting() {
    let top = TopKeys::default();
    let panics = thread::scope(|scope| scope.spawn(|| top.add(1, |_| panic!("on purpose"))).join());
    assert!(panics.is_err());
    add(&top, 2);
    assert_eq!(top.snapshot(), [TopKey { name: "2".into(), count: 1, error: 0 }]);
}

#[test]
fn names_are_cut_between_characters_and_nowhere_else() {
    let render = |text: &str| {
        let mut name = KeyName::default();
        _ = write!(name, "{text}");
        _ = name.write_str("!");
        name.to_string()
    };
    assert_eq!(render("alice"), "alice!");
    assert_eq!(render(&"a".repeat(61)), format!("{}!", "a".repeat(61)));
    assert_eq!(render(&"a".repeat(62)), format!("{}…", "a".repeat(62)));
    assert_eq!(render(&"é".repeat(99)), format!("{}…", "é".repeat(31)));
    assert_eq!(render(&format!("{}é", "a".repeat(61))), format!("{}…", "a".repeat(61)));
    assert_eq!(render("a\x1b[2J\u{85}"), "a?[2J?!");
    assert_eq!(size_of::<KeyName>(), 64);
}

#[test]
fn threads_lose_no_counts() {
    const THREADS: u64 = 8;
    const EACH: u64 = 20_000;
    let stats = RuleStats::default();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (stats, mut draw) = (&stats, zipf(1.0, 200));
            scope.spawn(move || {
                for i in 0..EACH {
                    let key = draw(thread * EACH + i);
                    stats.allowed(hash(key), Some(Use { used: i % 10, limit: 10 }));
                    stats.refused(hash(key), |name| _ = write!(name, "{key}"));
                }
            });
        }
        scope.spawn(|| (0..100).for_each(|_| _ = stats.snapshot()));
    });
    let snapshot = stats.snapshot();
    let (all, refused) = (THREADS * EACH, snapshot.top.iter().map(|key| key.count).sum::<u64>());
    assert_eq!(snapshot.counts, Counts { allowed: all, refused: all, ..Counts::default() });
    assert_eq!(snapshot.uses, UseHistogram { tenths: [all / 10; 10], over: all });
    assert_eq!(refused + snapshot.top_missed, all);
    assert_eq!(snapshot.top[0].name, "0");
    assert!((snapshot.clients / 200.0 - 1.0).abs() < 0.2, "{}", snapshot.clients);
    assert_eq!(snapshot.clients, snapshot.refused_clients);
}

#[test]
fn a_flood_of_clients_leaves_sixteen_names() {
    let stats = RuleStats::default();
    for client in 0..100_000 {
        stats.refused(hash(client), |name| _ = write!(name, "{client:>100}"));
    }
    let snapshot = stats.snapshot();
    assert_eq!(snapshot.top.len(), 16);
    assert!(snapshot.top.iter().all(|key| key.name.len() <= 65 && key.error < key.count));
}
