//! Millions of clients in memory that was asked for once.

use crate::{each_client, ms, quota, secs, started_keyed};
use std::ops::Range;
use std::thread;
use std::time::Duration;
use tollgate::{Capacity, KeyedRateLimiter, Limit, ManualClock, RateLimiter, Time};

/// Tables grow by this many bytes.
const GROUP: usize = 512;

/// A million keys, or a tenth of that where the compiler leaves everything as slow as it was written.
const FLOOD: u64 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };

fn with_capacity(limit: Limit, capacity: Capacity) -> (KeyedRateLimiter, ManualClock) {
    started_keyed(KeyedRateLimiter::with_limit(limit).capacity(capacity))
}

fn ten_per_second() -> Limit {
    Limit::token_bucket(quota("10 per second"))
}

#[test]
fn a_capacity_in_clients_is_met_in_the_memory_that_the_documentation_names() {
    for clients in [1, 20, 21, 1_000, 99_999, 1_000_000] {
        let (limiter, _) = with_capacity(ten_per_second(), Capacity::Keys(clients));
        let table = limiter.table();
        assert!(table.capacity() >= clients, "{clients} clients: {table:?}");
        let promised = (clients as f64 * 25.6) as usize;
        assert!(table.memory() <= promised + GROUP, "{clients} clients in {} bytes", table.memory());
    }
}

#[test]
fn a_capacity_in_memory_is_used_and_never_exceeded() {
    for bytes in [GROUP, 4_096, 65_536, 1_000_000, 10_000_000, 64 << 20] {
        let (limiter, _) = with_capacity(ten_per_second(), Capacity::Memory(bytes));
        let memory = limiter.table().memory();
        assert!(memory <= bytes, "{memory} bytes were taken where {bytes} were allowed");
        assert!(memory + GROUP > bytes, "only {memory} bytes of {bytes} are used");
    }
}

#[test]
fn by_default_there_is_room_for_a_hundred_thousand_clients() {
    let limiter = RateLimiter::keyed(quota("10 per second"));
    assert!((100_000..101_000).contains(&limiter.table().capacity()));
    assert!((2_500_000..2_600_000).contains(&limiter.table().memory()));
}

#[test]
fn n6_a_client_that_is_idle_for_long_enough_takes_no_room() {
    let (limiter, hands) = each_client("10 per second");
    for client in 0..1_000 {
        assert!(limiter.check(&client, 5).is_allowed());
    }
    assert_eq!(limiter.table().occupied(hands.now()), 1_000);
    hands.advance(ms(499));
    assert_eq!(limiter.table().occupied(hands.now()), 1_000, "who still lacks a token is still known");
    hands.advance(ms(1));
    assert_eq!(limiter.table().occupied(hands.now()), 0, "who lacks nothing takes nothing");
    assert_eq!(limiter.check(&7, 1).remaining, 9, "and comes back as if it had never been away");
}

#[test]
fn n6_idle_clients_of_every_algorithm_make_room_by_themselves() {
    for limit in crate::limits_of_ten() {
        let (limiter, hands) = with_capacity(limit, Capacity::Keys(10_000));
        hands.advance(secs(1));
        (0..100).for_each(|client| assert!(limiter.allow(&client)));
        assert!(limiter.table().occupied(hands.now()) >= 100, "{limit:?}");
        hands.advance(secs(3 * 86_400));
        assert_eq!(limiter.table().occupied(hands.now()), 0, "{limit:?}");
    }
}

#[test]
fn n6_idle_clients_of_an_enormous_limit_make_room_also_when_its_ticks_go_round() {
    let (limiter, hands) = with_capacity(Limit::token_bucket(quota("10 per nanosecond")), Capacity::Keys(10_000));
    // Times of more than one token per nanosecond are kept in 2^63 parts of 2^53 nanoseconds.
    hands.set(Time::from_nanos((1 << 53) - 1_000_000_000));
    (0..100).for_each(|client| assert!(limiter.allow(&client)));
    hands.advance(secs(2));
    assert_eq!(limiter.table().occupied(hands.now()), 0);
    assert_eq!(limiter.check(&7, 1).remaining, 9);
}

#[test]
fn n6_the_room_of_idle_clients_is_given_to_new_ones_again_and_again() {
    let (limiter, hands) = with_capacity(ten_per_second(), Capacity::Keys(2_000));
    let memory = limiter.table().memory();
    for generation in 0..100 {
        for client in 0..1_000 {
            assert!(limiter.allow(&(generation, client)));
        }
        hands.advance(ms(100));
    }
    assert_eq!(limiter.table().forgotten().clients, 0, "nobody had to go who was still owing");
    assert_eq!(limiter.table().memory(), memory);
}

#[test]
fn n6_a_flood_of_fresh_keys_never_frees_a_client_at_its_limit() {
    let (limiter, hands) = with_capacity(ten_per_second(), Capacity::Keys(1_000));
    let memory = limiter.table().memory();
    let limited: [String; 16] = std::array::from_fn(|number| format!("limited {number}"));
    limited.iter().for_each(|key| assert!(limiter.check(key, 10).is_allowed()));
    let flood = |fresh_keys: Range<u64>| {
        for fresh in fresh_keys {
            assert!(limiter.allow(&fresh), "who asks for the first time is let in");
            if fresh % 1_000 == 0 {
                limited.iter().for_each(|key| assert!(!limiter.allow(key), "{key} was freed after {fresh} keys"));
            }
        }
    };
    thread::scope(|scope| [0..FLOOD / 2, FLOOD / 2..FLOOD].map(|half| drop(scope.spawn(|| flood(half)))));

    let table = limiter.table();
    assert_eq!(table.memory(), memory);
    assert!(table.occupied(hands.now()) <= 2 * table.capacity());
    assert!(table.forgotten().clients > FLOOD * 9 / 10, "{:?}", table.forgotten());
}

#[test]
fn n6_who_hammers_through_a_flood_gets_its_rate_and_no_more() {
    let (limiter, hands) = with_capacity(Limit::token_bucket(quota("100 per second burst 10")), Capacity::Keys(200));
    let mut admitted = 0;
    for fresh in 0..100_000_u64 {
        hands.advance(Duration::from_micros(10));
        limiter.allow(&fresh);
        admitted += u64::from(limiter.allow("hammer"));
    }
    assert!(limiter.table().forgotten().clients > 10_000, "it was a flood");
    // Ten at first, and a hundred in the second that it took.
    assert!((109..=110).contains(&admitted), "{admitted}");
}

#[test]
fn what_was_forgotten_is_counted() {
    let (limiter, _) = with_capacity(ten_per_second(), Capacity::Memory(GROUP));
    let (clients, slots) = (1_000_u64, 40);
    (0..clients).for_each(|client| assert!(limiter.allow(&client)));
    let forgotten = limiter.table().forgotten();
    assert_eq!(forgotten.clients, clients - slots);
    assert_eq!(forgotten.owed, ms(100 * (clients - slots)), "each of them one token, a tenth of a second");
}
