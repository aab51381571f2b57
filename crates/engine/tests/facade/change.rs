//! Another limit while the service runs.

use crate::{everybody, limits_of_ten, ms, quota};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use tollgate::{Change, Limit, Op, RateLimiter};

const ASKING_THREADS: usize = 2;
const CHANGES: u64 = 10_000;

fn bucket(text: &str) -> Limit {
    Limit::token_bucket(quota(text))
}

#[test]
fn who_had_tokens_keeps_as_many_as_fit() {
    let (limiter, _) = everybody("10 per second");
    assert_eq!(limiter.check(4).remaining, 6);
    limiter.change(bucket("100 per hour"), Change::KeepTokens);
    assert_eq!((limiter.peek(1).remaining, limiter.limit()), (6, bucket("100 per hour")));
    limiter.change(bucket("5 per minute"), Change::KeepTokens);
    assert_eq!(limiter.peek(1).remaining, 5);
}

#[test]
fn who_had_half_has_half() {
    let (limiter, _) = everybody("10 per second");
    assert_eq!(limiter.check(5).remaining, 5);
    limiter.change(bucket("100 per hour"), Change::Proportional);
    assert_eq!(limiter.peek(1).remaining, 50);
}

#[test]
fn everybody_starts_afresh_if_so_wished() {
    let (limiter, _) = everybody("10 per second");
    assert_eq!(limiter.decide(Op::Charge(25)).debt, 15);
    limiter.change(bucket("7 per second"), Change::Reset);
    assert_eq!(limiter.peek(1).remaining, 7);
}

#[test]
fn a_debt_stays_a_debt() {
    let (limiter, _) = everybody("10 per second");
    assert_eq!(limiter.decide(Op::Charge(13)).debt, 3);
    limiter.change(bucket("20 per hour"), Change::KeepTokens);
    assert_eq!(limiter.peek(1).debt, 3);
}

#[test]
fn tokens_are_kept_from_one_algorithm_to_another() {
    let (limiter, hands) = everybody("10 per second");
    hands.advance(ms(60_000));
    assert_eq!(limiter.check(4).remaining, 6);
    let hour = quota("20 per hour");
    for limit in
        [Limit::fixed_window(hour), Limit::sliding_window(hour), Limit::sliding_log(hour), bucket("20 per hour")]
    {
        limiter.change(limit, Change::KeepTokens);
        assert_eq!(limiter.peek(1).remaining, 6, "{limit:?}");
    }
}

#[test]
fn the_new_rate_counts_from_the_change_on() {
    let (limiter, hands) = everybody("10 per second");
    assert_eq!(limiter.decide(Op::Drain).granted, 10);
    hands.advance(ms(500));
    limiter.change(bucket("100 per second"), Change::KeepTokens);
    assert_eq!(limiter.peek(1).remaining, 5, "from half a second of the old rate");
    hands.advance(ms(500));
    assert_eq!(limiter.peek(1).remaining, 55, "and half a second of the new one");
}

/// Threads that keep asking for one token while `meanwhile` runs; how many they got in all.
fn admitted_while(limiter: &RateLimiter, meanwhile: impl FnOnce()) -> u64 {
    let (admitted, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let ask = || {
        while !done.load(Ordering::Relaxed) {
            match limiter.allow() {
                true => drop(admitted.fetch_add(1, Ordering::Relaxed)),
                false => thread::yield_now(),
            }
        }
    };
    thread::scope(|scope| {
        (0..ASKING_THREADS).for_each(|_| drop(scope.spawn(ask)));
        meanwhile();
        done.store(true, Ordering::Relaxed);
    });
    admitted.into_inner()
}

/// Changes back and forth between limits of ten tokens, each time when all of them are used up.
fn change_when_used_up(limiter: &RateLimiter, limits: [Limit; 2], change: Change, times: u64) {
    let used_up = || {
        while limiter.peek(1).remaining > 0 {
            thread::yield_now();
        }
    };
    for to in limits.iter().cycle().take(times as usize) {
        used_up();
        limiter.change(*to, change);
    }
    used_up();
}

const FAST: &str = "1000 per second burst 10";
const SLOW: &str = "1 per second burst 10";

#[test]
fn threads_that_ask_during_a_change_get_what_the_limits_allow_and_no_more() {
    // The clock stands still: ten tokens at first, and ten more with each fresh start.
    let (limiter, _) = everybody(FAST);
    let limits = [bucket(SLOW), bucket(FAST)];
    let admitted = admitted_while(&limiter, || change_when_used_up(&limiter, limits, Change::Reset, CHANGES));
    let allowed = 10 * (CHANGES + 1);
    assert_eq!(admitted, allowed, "{CHANGES} changes");
}

#[test]
fn threads_that_ask_while_the_algorithm_changes_get_what_both_allow_and_no_more() {
    let times = CHANGES / 20;
    for limit in limits_of_ten() {
        for (change, allowed) in [(Change::Reset, 10 * (times + 1)), (Change::KeepTokens, 10)] {
            let (limiter, _) = everybody(FAST);
            let limits = [limit, bucket(FAST)];
            let admitted = admitted_while(&limiter, || change_when_used_up(&limiter, limits, change, times));
            assert_eq!(admitted, allowed, "{change:?} to and from {limit:?}");
        }
    }
}

#[test]
fn threads_that_ask_while_tokens_are_kept_gain_none_by_the_change() {
    let (limiter, _) = everybody(FAST);
    let limits = [bucket(SLOW), bucket(FAST)];
    let admitted = admitted_while(&limiter, || change_when_used_up(&limiter, limits, Change::KeepTokens, CHANGES));
    assert_eq!(admitted, 10, "{CHANGES} changes");
}

#[test]
fn a_change_while_others_ask_leaves_no_debt_behind_that_nobody_was_charged() {
    let (limiter, _) = everybody(FAST);
    let mut deepest = 0;
    admitted_while(&limiter, || {
        for to in [SLOW, FAST].iter().cycle().take(CHANGES as usize) {
            limiter.change(bucket(to), Change::KeepTokens);
            deepest = deepest.max(limiter.peek(1).debt);
            let _ = limiter.decide(Op::Reset);
        }
    });
    assert_eq!(deepest, 0, "{CHANGES} changes");
}
