//! Promises of the table: it answers as one cell per client would, in memory that never grows.

use super::hash::HashKey;
use super::line::Line;
use super::*;
use crate::cell::Cell;
use crate::quota::Quota;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, DefaultHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn table(keys: usize) -> Table {
    Table::new(Capacity::Keys(keys), &BuildHasherDefault::<DefaultHasher>::default())
}

fn bucket(quota: &str) -> Limit {
    Limit::token_bucket(quota.parse().unwrap())
}

fn at(millis: u64) -> Time {
    Time::from_nanos(1_700_000_000_000_000_000 + millis * 1_000_000)
}

/// splitmix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn a_line_is_a_cache_line() {
    assert_eq!((size_of::<Line>(), align_of::<Line>()), (64, 64));
    assert_eq!(table(1_000_000).memory(), 25_600_000);
}

#[test]
fn every_limit_is_decided_as_by_a_cell_of_its_own() {
    let quota = |text: &str| text.parse().unwrap();
    let limits = [
        bucket("5 per second burst 8"),
        bucket("3 per 7 seconds burst 4"),
        bucket("2000000000000 per 2 seconds"),
        Limit::leaky_queue(quota("10 per second burst 4")),
        Limit::fixed_window(quota("4 per second")),
        Limit::cycles(quota("3 per second"), Duration::from_secs(2)),
        Limit::sliding_window(quota("6 per second")),
        Limit::sliding_log(quota("5 per second")),
        Limit::smooth_warming_up(quota("5 per second"), Duration::from_secs(2), Duration::from_secs(1)).unwrap(),
    ];
    let (table, mut cells, mut seed, mut now) = (table(2_000), HashMap::new(), 1, at(0));
    for step in 0..200_000_u32 {
        now = now + Duration::from_millis(random(&mut seed) % 3);
        let client = random(&mut seed) % 500;
        let limit = &limits[client as usize % limits.len()];
        let cost = random(&mut seed) % 4;
        let op = match random(&mut seed) % 12 {
            0 => Op::TakeUpTo(cost),
            1 => Op::Charge(cost),
            2 => Op::Peek(cost),
            3 => Op::Refund(cost),
            4 if cost == 0 => Op::Reset,
            5 => Op::Reserve { cost, max_wait: Duration::from_millis(800) },
            _ => Op::Take(cost),
        };
        let cell = cells.entry(client).or_insert_with(|| Cell::new(limit, now));
        let expected = cell.decide(limit, op, now);
        assert_eq!(table.decide(&client, limit, op, now), expected, "step {step}: {op:?} of client {client}");
    }
    assert_eq!(table.forgotten(), Forgotten::default());
}

#[test]
fn a_batch_is_decided_like_its_requests_one_by_one() {
    let (one_by_one, batched, mut seed) = (table(1_000), table(1_000), 5);
    let limits = [bucket("3 per second"), Limit::sliding_window("2 per second".parse().unwrap())];
    for round in 0..200 {
        let requests: Vec<_> = (0..random(&mut seed) % 50)
            .map(|_| random(&mut seed) % 40)
            .map(|client| (client, &limits[client as usize % 2], Op::Take(1)))
            .collect();
        let now = at(round * 100);
        let expected: Vec<_> =
            requests.iter().map(|(key, limit, op)| one_by_one.decide(key, limit, *op, now)).collect();
        let mut decided = Vec::new();
        batched.decide_many(requests, now, |index, decision| {
            assert_eq!(index, decided.len());
            decided.push(decision);
        });
        assert_eq!(decided, expected);
    }
}

#[test]
fn at_its_rated_capacity_a_table_forgets_nobody_to_speak_of() {
    let (table, limit) = (table(200_000), bucket("1 per hour"));
    for client in 0..200_000_u64 {
        assert!(table.allow(&client, &limit, 1, at(0)));
    }
    let forgotten = table.forgotten().clients;
    assert!(forgotten <= 2, "{forgotten} of 200,000");
    let remembered = (0..200_000_u64).filter(|client| !table.allow(client, &limit, 1, at(1))).count() as u64;
    assert!(remembered >= 200_000 - 2 * forgotten);
}

#[test]
fn a_flood_of_fresh_keys_frees_nobody_who_is_being_limited() {
    let (table, limit) = (table(1_000), bucket("10 per minute"));
    let limited: Vec<_> = (0..100).map(|client| ("limited", client)).collect();
    for client in &limited {
        assert!(table.allow(client, &limit, 10, at(0)));
    }
    for stranger in 0..100_000_u64 {
        assert!(table.allow(&("stranger", stranger), &limit, 1, at(1)));
    }
    assert!(limited.iter().all(|client| !table.allow(client, &limit, 1, at(2))));
    let forgotten = table.forgotten();
    assert!(forgotten.clients > 90_000, "a table of a thousand cannot hold a hundred thousand: {forgotten:?}");
    assert!(forgotten.owed <= Duration::from_secs(6) * 100_000, "each owed at most the six seconds of a token");
}

#[test]
fn expired_means_empty() {
    let (table, limit) = (table(1_000), bucket("1 per second"));
    for round in 0..100 {
        for client in 0..1_000_u64 {
            assert!(table.allow(&(round, client), &limit, 1, at(round * 2_000)));
        }
    }
    assert_eq!(table.forgotten(), Forgotten::default());
    assert_eq!(table.occupied(at(200_500 - 2_000)), 1_000);
    assert_eq!(table.occupied(at(300_000)), 0);
}

#[test]
fn a_change_of_limit_keeps_what_was_spent() {
    let (small, large) = (bucket("10 per second"), bucket("100 per second"));
    let window = Limit::fixed_window("50 per hour".parse().unwrap());
    let fine = bucket("4000000000000 per 10 seconds");
    let table = table(100);
    let left = |limit: &Limit| table.decide("client", limit, Op::Peek(0), at(0)).remaining;
    assert!(table.allow("client", &small, 6, at(0)));
    table.change("client", &small, &large, Change::KeepTokens, at(0));
    assert_eq!(left(&large), 4);
    table.change("client", &large, &small, Change::Proportional, at(0));
    assert_eq!(left(&small), 0, "4 of 100 is less than one of ten");
    table.change("client", &small, &large, Change::Reset, at(0));
    assert_eq!(left(&large), 100);
    assert!(table.allow("client", &large, 50, at(0)));
    table.change("client", &large, &window, Change::Proportional, at(0));
    assert_eq!(left(&window), 25);
    table.change("client", &window, &fine, Change::KeepTokens, at(0));
    assert_eq!(left(&fine), 25);
}

#[test]
fn the_last_reservation_can_be_given_back_and_one_that_others_wait_behind_cannot() {
    let (table, limit) = (table(100), bucket("1 per second"));
    let book = |millis| table.reserve("client", &limit, (1, Duration::from_secs(5)), at(millis)).unwrap();
    assert!(table.allow("client", &limit, 1, at(0)));
    let (first, second) = (book(0), book(0));
    assert_eq!((first.wait(), second.wait()), (Duration::from_secs(1), Duration::from_secs(2)));
    assert_eq!(table.cancel("client", &limit, first, at(500)), 0, "it would be sold for the second one's time");
    assert_eq!(table.cancel("client", &limit, second, at(500)), 1);
    let third = book(500);
    assert_eq!(third.ready_at(), at(2_000));
    assert_eq!(table.cancel("client", &limit, third, at(9_000)), 0, "its time has passed");
}

#[test]
fn keys_that_look_alike_are_different_clients() {
    let key = HashKey::new(&RandomState::new());
    let hash = |value: &dyn Fn(&mut hash::KeyHasher<'_>)| {
        use std::hash::Hasher;
        let mut hasher = (&key).build_hasher();
        value(&mut hasher);
        hasher.finish()
    };
    macro_rules! hashes { ($($value:expr),* $(,)?) => { [$(hash(&|hasher| $value.hash(hasher))),*] } }
    let long = "x".repeat(1_000);
    let different = hashes![
        "",
        "a",
        "a\0",
        "\0",
        "ab",
        "b",
        "abc",
        "1234567",
        "12345678",
        "123456789",
        "1234567890123456",
        "12345678901234567",
        "aaaaaaaaa",
        "aaaaaaaaaa",
        "aaaaaaaaaaaaaaaaaa",
        "aaaaaaaaaaaaaaaaaaa",
        "x".repeat(31),
        "x".repeat(32),
        "x".repeat(33),
        "x".repeat(40),
        "x".repeat(41),
        "x".repeat(247),
        "x".repeat(248),
        "x".repeat(249),
        long,
        &long[1..],
        ("a", "bc"),
        ("ab", "c"),
        ("abc", ""),
        ("", "abc"),
        1_u64,
        256_u64,
        (1_u32, 2_u32),
        (2_u32, 1_u32),
        [1_u8, 2, 3],
        [1_u8, 2].as_slice(),
        [1_u8, 2, 0].as_slice(),
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped()),
    ];
    assert_eq!(different.iter().collect::<HashSet<_>>().len(), different.len());
    let same = hashes!["client", String::from("client"), &"client", std::borrow::Cow::Borrowed("client")];
    assert!(same.iter().all(|hash| *hash == same[0]));
}

#[test]
fn keys_that_follow_each_other_are_spread_evenly() {
    let key = HashKey::new(&RandomState::new());
    let mut lines = vec![0_u32; 1_024];
    for client in 0..102_400_u64 {
        let hash = (&key).hash_one(format!("client-{client:013}"));
        lines[(hash >> 54) as usize] += 1;
    }
    let deviation: f64 = lines.iter().map(|count| (f64::from(*count) - 100.0).powi(2) / 100.0).sum();
    // Chi-square with 1023 degrees of freedom: 1023 ± 45; six deviations once in 10^9 runs.
    assert!((1023.0 - 6.0 * 45.3..1023.0 + 6.0 * 45.3).contains(&deviation), "{deviation}");
}

#[test]
fn tables_do_not_share_their_secret() {
    let [one, other] = [(); 2].map(|()| HashKey::new(&RandomState::new()));
    assert_ne!((&one).hash_one("client"), (&other).hash_one("client"));
}

#[test]
fn what_was_spent_goes_over_to_another_limit_once() {
    let per_hour = |count: u64| Quota::new(count, Duration::from_secs(3600)).unwrap();
    let limits = [
        Limit::token_bucket(per_hour(100)),
        Limit::fixed_window(per_hour(80)),
        Limit::sliding_window(per_hour(90)),
        Limit::sliding_log(per_hour(70)),
        Limit::leaky_queue(per_hour(60)),
    ];
    let now = Time::from_nanos(1_700_000_000_000_000_000);
    for (from, to) in limits.iter().flat_map(|from| limits.iter().map(move |to| (from, to))) {
        let table = Table::new(Capacity::Keys(100), &RandomState::new());
        assert_eq!(table.decide(&1, from, Op::Charge(30), now).remaining, from.most() - 30);
        for _ in 0..3 {
            table.carry_over((&1, from), (&2, to), now);
        }
        assert_eq!(table.decide(&1, from, Op::Peek(0), now).remaining, from.most(), "{from:?} to {to:?}");
        assert_eq!(table.decide(&2, to, Op::Peek(0), now).remaining, to.most() - 30, "{from:?} to {to:?}");
        // Far more than the new limit holds locks nobody out.
        let _ = table.decide(&1, from, Op::Charge(1000), now);
        table.carry_over((&1, from), (&3, to), now);
        let decision = table.decide(&3, to, Op::Peek(0), now);
        assert_eq!((decision.remaining, decision.debt), (0, 0), "{from:?} to {to:?}");
    }
}

#[test]
fn a_part_of_a_reservation_can_be_given_back() {
    let table = Table::new(Capacity::Keys(100), &RandomState::new());
    let limit = Limit::token_bucket("100 per hour".parse().unwrap());
    let now = Time::from_nanos(1_700_000_000_000_000_000);
    let held = table.reserve(&1, &limit, (50, Duration::ZERO), now).unwrap();
    assert_eq!(table.give_back(&1, &limit, (held, 40), now), 40);
    assert_eq!(table.decide(&1, &limit, Op::Peek(0), now).remaining, 90);
    // Half an hour later half of what was booked has come back by itself.
    let held = table.reserve(&1, &limit, (90, Duration::ZERO), now).unwrap();
    let later = now + Duration::from_secs(1800);
    assert_eq!(table.give_back(&1, &limit, (held, 80), later), 50);
    assert_eq!(table.decide(&1, &limit, Op::Peek(0), later).remaining, 100);
}
