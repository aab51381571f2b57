//! Where the time comes from.

use crate::waiting::real_clocks;
use crate::{ms, quota, secs};
use std::time::Duration;
use tollgate::{Clock, RateLimiter, Time};

/// How far apart two readings may be that were taken one right after the other on a busy machine.
const A_MOMENT: Duration = Duration::from_millis(500);

fn is_close(one: Time, other: Time) -> bool {
    one.since(other).max(other.since(one)) < A_MOMENT
}

#[test]
fn every_clock_goes_forward_only() {
    for clock in real_clocks() {
        let mut last = clock.now();
        for _ in 0..100_000 {
            let now = clock.now();
            assert!(now >= last, "{now} after {last} on {clock:?}");
            last = now;
        }
    }
}

#[test]
fn every_clock_moves() {
    for clock in real_clocks() {
        let start = clock.now();
        while clock.now() == start {
            std::thread::yield_now();
        }
    }
}

#[test]
fn all_clocks_show_the_same_time() {
    let clocks = real_clocks();
    for one in &clocks {
        for other in &clocks {
            let (now, then) = (one.now(), other.now());
            assert!(is_close(now, then), "{now} on {one:?}, {then} on {other:?}");
        }
    }
}

#[test]
fn clocks_count_from_1970() {
    // The first of January 2020, before which none of this existed, and a hundred years later.
    let written = Time::ZERO + secs(1_577_836_800);
    for clock in real_clocks() {
        assert!(clock.now() > written && clock.now() < written + secs(100 * 365 * 86_400), "{clock:?}");
    }
}

#[test]
fn a_second_of_the_fast_clock_is_a_second() {
    let (system, fast) = (Clock::system(), Clock::default());
    // Two readings of one clock between two of the other, and the other way round.
    let outer = system.now();
    let first = fast.now();
    let inner = system.now();
    while system.now().since(inner) < ms(20) {}
    let within = system.now().since(inner);
    let measured = fast.now().since(first);
    let around = system.now().since(outer);
    let parts_in_a_thousand = |duration: Duration, parts: u32| duration * parts / 1_000;
    assert!(measured >= parts_in_a_thousand(within, 999), "{measured:?} around {within:?}");
    assert!(measured <= parts_in_a_thousand(around, 1_001), "{measured:?} within {around:?}");
}

#[test]
fn clones_of_a_clock_show_the_same_time() {
    let (clock, hands) = Clock::manual();
    let clone = clock.clone();
    hands.clone().advance(ms(5));
    assert_eq!([clock.now(), clone.now(), hands.now()], [Time::ZERO + ms(5); 3]);
    for clock in real_clocks() {
        assert!(is_close(clock.now(), clock.clone().now()), "{clock:?}");
    }
}

#[test]
fn a_manual_clock_stands_still_until_it_is_moved_and_goes_where_it_is_set() {
    let (clock, hands) = Clock::manual();
    assert_eq!([clock.now(), clock.now()], [Time::ZERO; 2]);
    hands.advance(Duration::from_nanos(1));
    assert_eq!(clock.now(), Time::from_nanos(1));
    hands.set(Time::ZERO + secs(7));
    hands.set(Time::ZERO + secs(3));
    assert_eq!(clock.now(), Time::ZERO + secs(3));
    hands.advance(Duration::MAX);
    assert_eq!(clock.now(), Time::MAX, "and no further");
}

#[test]
fn limiters_on_one_clock_see_it_move_together() {
    let (clock, hands) = Clock::manual();
    let limiters = [1, 2].map(|_| RateLimiter::builder(quota("1 per minute")).clock(clock.clone()).build());
    assert!(limiters.iter().all(RateLimiter::allow));
    assert!(!limiters.iter().any(RateLimiter::allow));
    hands.advance(secs(60));
    assert!(limiters.iter().all(RateLimiter::allow));
}
