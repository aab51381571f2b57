//! In the long run exactly the quota passes, whatever it is and whatever the requests cost.

use crate::any::{at, fill_nanos, period_nanos};
use std::time::Duration;
use tollgate_limit::{Cell, Limit, Op, Quota};

const START: u64 = 1_794_700_800_000_000_001;

/// From one token in 30 days to a thousand in a nanosecond, evenly dividing and not.
const QUOTAS: [&str; 14] = [
    "1 per 30 days",
    "1000 per 30 days",
    "31 per 7 days",
    "5 per 15 minutes",
    "3 per second",
    "10 per second burst 100",
    "7 per 11 milliseconds burst 100",
    "12_345 per second",
    "1_000_000 per second",
    "700_000_001 per second",
    "999_999_937 per second",
    "2_000_000_000 per second",
    "999_999_999_989 per second",
    "1_000_000_000_000 per second",
];

/// Whether so many tokens in so long are the quota's rate, to a millionth.
fn assert_is_the_rate(tokens: u64, nanos: u64, quota: &Quota, limit: &Limit) {
    let got = i128::from(tokens) * i128::from(period_nanos(quota));
    let expected = i128::from(quota.count()) * i128::from(nanos);
    let error = (got - expected).abs();
    assert!(error * 1_000_000 <= expected, "{tokens} tokens in {nanos} ns, by {limit:?}");
}

/// Asks for `cost` as soon as it can be had, over and over, and checks the rate from the first to the last.
fn saturate(limit: &Limit, quota: &Quota, cost: u64) {
    let cell = Cell::new(limit, at(START));
    let _ = cell.decide(limit, Op::Drain, at(START));
    let mut now = START;
    let mut taken_at = Vec::new();
    for _ in 0..2_000 {
        match cell.decide(limit, Op::Take(cost), at(now)).retry_after() {
            Some(wait) => now = (at(now) + wait).as_nanos(),
            None => taken_at.push(now),
        }
    }
    let took = taken_at.last().unwrap() - taken_at.first().unwrap();
    let tokens = cost * (taken_at.len() as u64 - 1);
    // The clock has nanoseconds only, of which three are lost at most: one is rounding, two are a unit.
    if took > 3_000_000 {
        assert_is_the_rate(tokens, took, quota, limit);
    }
}

#[test]
fn the_long_run_rate_is_the_quota_whatever_requests_cost() {
    for quota in QUOTAS.map(|text| text.parse::<Quota>().unwrap()) {
        let burst = quota.burst();
        for cost in [1, 2, 3, 7, 97, burst / 101, burst / 2, burst] {
            if (1..=burst).contains(&cost) {
                saturate(&Limit::token_bucket(quota), &quota, cost);
                saturate(&Limit::smooth_bursty(quota, Duration::ZERO), &quota, cost);
            }
        }
    }
}

#[test]
fn the_long_run_rate_is_the_quota_for_whoever_takes_all_there_is() {
    for quota in QUOTAS.map(|text| text.parse::<Quota>().unwrap()) {
        let limit = Limit::token_bucket(quota);
        let cell = Cell::new(&limit, at(START));
        let _ = cell.decide(&limit, Op::Drain, at(START));
        let (mut now, mut tokens) = (START, 0);
        for step in 0..5_000_u64 {
            let pause = fill_nanos(&quota) / 7 + step % 13;
            now += pause.min(fill_nanos(&quota) / 2);
            tokens += cell.decide(&limit, Op::TakeUpTo(u64::MAX), at(now)).granted;
        }
        // What is less than a token or a request has not passed yet.
        let wait = cell.decide(&limit, Op::Peek(1), at(now)).retry_after().unwrap_or_default();
        let whole = (at(now) + wait).as_nanos();
        tokens += cell.decide(&limit, Op::TakeUpTo(u64::MAX), at(whole)).granted;
        assert_is_the_rate(tokens, whole - START, &quota, &limit);
    }
}

#[test]
fn the_long_run_rate_of_a_queue_is_the_quota() {
    for quota in QUOTAS.map(|text| text.parse::<Quota>().unwrap()) {
        let limit = Limit::leaky_queue(quota);
        let cell = Cell::new(&limit, at(START));
        let (mut now, mut tokens) = (START, 0);
        // Fill it, and then always put in a third as soon as that has left.
        let third = quota.burst().div_ceil(3);
        let _ = cell.decide(&limit, Op::Drain, at(now));
        for _ in 0..2_000 {
            let decision = cell.decide(&limit, Op::Take(third), at(now));
            tokens += decision.granted;
            now = (at(now) + decision.retry_after().unwrap_or_default()).as_nanos();
        }
        assert!(now - START > 3_000_000, "long enough to measure");
        assert_is_the_rate(tokens, now - START, &quota, &limit);
    }
}
