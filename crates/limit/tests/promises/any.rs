//! Any quota, any limit, any request.

use proptest::prelude::*;
use std::time::Duration;
use tollgate_limit::{Blocked, Calendar, CalendarUnit, Limit, Op, Quota, Time};

/// Quotas as people write them, evenly dividing and not.
pub(crate) fn ordinary_quota() -> impl Strategy<Value = Quota> {
    let period = prop::sample::select(vec![1_u64, 7, 11, 1_000, 3_000, 60_000, 900_000, 3_600_000]);
    quota_with(period.prop_map(Duration::from_millis))
}

/// The same, and quotas as only machines would write them, of up to 28 tokens per nanosecond.
pub(crate) fn slow_or_fast_quota() -> impl Strategy<Value = Quota> {
    let period = prop::sample::select(vec![7_u64, 100, 1_000]);
    prop_oneof![1 => quota_with(period.prop_map(Duration::from_nanos)), 2 => ordinary_quota()]
}

fn quota_with(period: impl Strategy<Value = Duration>) -> impl Strategy<Value = Quota> {
    let burst = prop_oneof![1_u64..5, 1_u64..300];
    (1_u64..200, period, burst)
        .prop_map(|(count, period, burst)| Quota::new(count, period).unwrap().with_burst(burst).unwrap())
}

/// Any quota that can be made at all.
pub(crate) fn any_quota() -> impl Strategy<Value = Quota> {
    (any_magnitude(), any_magnitude(), any_magnitude())
        .prop_filter_map("not every number makes a quota", |(count, period, burst)| {
            Quota::new(count, Duration::from_nanos(period)).ok()?.with_burst(burst).ok()
        })
}

/// Any number, small ones as likely as large ones.
pub(crate) fn any_magnitude() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0_u32..64).prop_map(|(number, shift)| number >> shift)
}

/// Any number, those at which something might break most of all.
pub(crate) fn any_number() -> impl Strategy<Value = u64> {
    let edges = vec![0, 1, 2, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX - 1, u64::MAX];
    prop_oneof![2 => any_magnitude(), 1 => prop::sample::select(edges)]
}

pub(crate) fn any_op() -> impl Strategy<Value = Op> {
    let wait = any_number().prop_map(Duration::from_nanos);
    let reserve = (any_number(), wait).prop_map(|(cost, max_wait)| Op::Reserve { cost, max_wait });
    prop_oneof![
        4 => any_number().prop_map(Op::Take),
        2 => any_number().prop_map(Op::TakeUpTo),
        2 => any_number().prop_map(Op::Charge),
        2 => reserve,
        1 => any_number().prop_map(Op::Peek),
        1 => any_number().prop_map(Op::Refund),
        1 => Just(Op::Drain),
        1 => Just(Op::Reset),
    ]
}

/// Operations on about `tokens` tokens, drawn with a few bits each.
pub(crate) fn ordinary_op((kind, share, wait): (u8, u16, u16), tokens: u64, fill: u64) -> Op {
    let cost = 1 + part_of(tokens, share);
    match kind % 8 {
        0..3 => Op::Take(cost),
        3 => Op::Reserve { cost, max_wait: Duration::from_nanos(part_of(3 * fill, wait)) },
        4 => Op::TakeUpTo(cost),
        5 => Op::Charge(cost),
        6 => Op::Refund(cost),
        _ => Op::Drain,
    }
}

/// A part of a number, more often a small one.
pub(crate) fn part_of(whole: u64, share: u16) -> u64 {
    let square = u128::from(share) * u128::from(share);
    ((u128::from(whole) * square) >> 32) as u64
}

/// A pause: no time in one case of four, otherwise up to `most` nanoseconds, more often a short one.
pub(crate) fn pause(most: u64, share: u16) -> u64 {
    if share < 0x4000 { 0 } else { part_of(most, share - 0x4000) * 16 / 9 }
}

/// Nanoseconds that an empty bucket takes to fill.
pub(crate) fn fill_nanos(quota: &Quota) -> u64 {
    let nanos = quota.period().as_nanos() * u128::from(quota.burst()) / u128::from(quota.count());
    u64::try_from(nanos).unwrap()
}

pub(crate) fn period_nanos(quota: &Quota) -> u64 {
    u64::try_from(quota.period().as_nanos()).unwrap()
}

/// Nanoseconds by which a quota's own clock may be late: a unit of it, where tokens do not take whole ones.
/// Where they take less than one, every time that is told is besides rounded up to a nanosecond.
pub(crate) fn clock_slack(quota: &Quota) -> u64 {
    match period_nanos(quota) {
        period if quota.count() > period => 4,
        period if !period.is_multiple_of(quota.count()) => 2,
        _ => 0,
    }
}

pub(crate) fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

/// Limits that refuse what is not there, by every algorithm.
pub(crate) fn refusing_limits(quota: Quota) -> Vec<Limit> {
    let mut limits = vec![
        Limit::token_bucket(quota),
        Limit::leaky_queue(quota),
        Limit::fixed_window(quota),
        Limit::cycles(quota, quota.period() * 2),
        Limit::sliding_window(quota),
        Limit::sliding_log(quota),
        Limit::rolling_log(quota, quota.period() / 10, Blocked::Ignored),
    ];
    for unit in [CalendarUnit::Minute, CalendarUnit::Day, CalendarUnit::Month] {
        limits.extend(Limit::calendar_window(quota.count(), Calendar::utc(unit)));
    }
    limits
}

/// Guava's limits, which let a request of any size go first and make the next one pay.
pub(crate) fn lending_limits(quota: Quota) -> Vec<Limit> {
    let mut limits = vec![Limit::smooth_bursty(quota, Duration::ZERO), Limit::smooth_bursty(quota, Duration::MAX)];
    let warm_up = quota.period().saturating_mul(3).min(Duration::from_nanos(u64::MAX));
    limits.extend(Limit::smooth_warming_up(quota, warm_up, Duration::ZERO));
    limits.extend(Limit::smooth_warming_up(quota, warm_up, quota.period()));
    limits
}

/// Limits by every algorithm.
pub(crate) fn every_limit(quota: Quota) -> Vec<Limit> {
    let mut limits = refusing_limits(quota);
    limits.push(Limit::rolling_log(quota, Duration::ZERO, Blocked::Counted));
    limits.extend(lending_limits(quota));
    limits
}
