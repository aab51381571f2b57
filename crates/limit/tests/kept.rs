//! Somebody who keeps states by the terms of limits, and knows no algorithm, decides as the library does.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot be set up has failed")]

use std::time::Duration;
use tollgate_limit::kept::{Asked, BucketTerms, Kept, SlidingTerms, Terms, UnitClock, WindowFrame, WindowTerms};
use tollgate_limit::{Cell, Decision, Limit, Op, Quota, Time};

/// Microseconds since the epoch.
type Micros = u64;

/// The state of one client, kept as the terms say.
struct Keeper(Kept);

impl Keeper {
    fn decide(&mut self, limit: &Limit, cost: u64, max_wait: Option<Duration>, now: Micros) -> Decision {
        let before = self.0;
        let after = match limit.terms(cost, max_wait).expect("whole microseconds") {
            Terms::Bucket(terms) => pour(before, &terms, now),
            Terms::Window(terms) => count(before, &terms, now),
            Terms::SlidingWindow(terms) => slide(before, &terms, now),
            Terms::Log(_) | Terms::WarmUp(_) => unreachable!("not among the limits below"),
        };
        let fits = after.is_some();
        self.0 = after.unwrap_or(before);
        limit.decide_kept(before, Asked { cost, max_wait, fits, is_taken: fits }, Time::from_nanos(now * 1_000))
    }
}

fn pour(kept: Kept, terms: &BucketTerms, now: Micros) -> Option<Kept> {
    let clock = |wait: u64| match terms.clock {
        UnitClock::Micros => now + wait,
        UnitClock::Scaled { shift, factor } => {
            let ticks = ((now * 1_000 + wait) << shift) & (u64::MAX >> 1);
            ((u128::from(ticks) * u128::from(factor)) >> 63) as u64
        }
    };
    let full_at = if let Kept::Bucket(full_at) = kept { full_at.max(clock(0)) } else { clock(0) };
    let fits = full_at <= clock(terms.wait) + terms.room?;
    fits.then(|| Kept::Bucket(full_at + terms.price))
}

fn count(kept: Kept, terms: &WindowTerms, now: Micros) -> Option<Kept> {
    let WindowFrame::Every { period, phase } = terms.frame else { unreachable!("no months below") };
    let since = now.checked_add_signed(-phase)?;
    let number = (since / period) as i64;
    let used = match kept {
        Kept::Window(then, used) => used.saturating_sub((number - then) as u64 * terms.limit),
        _ => 0,
    };
    let later = (used + terms.cost).div_ceil(terms.limit).saturating_sub(1);
    let begins = if later == 0 { 0 } else { period - since % period + (later - 1) * period };
    (begins <= terms.wait?).then_some(Kept::Window(number, used + terms.cost))
}

fn slide(kept: Kept, terms: &SlidingTerms, now: Micros) -> Option<Kept> {
    let (number, left) = (now / terms.period, terms.period - now % terms.period);
    let (current, previous) = match kept {
        Kept::SlidingWindow(then, current, previous) if then == number => (current, previous),
        Kept::SlidingWindow(then, current, _) if then + 1 == number => (0, current),
        _ => (0, 0),
    };
    let faded = (u128::from(previous) * u128::from(left)).div_ceil(u128::from(terms.period)) as u64;
    let fits = current + faded + terms.cost <= terms.limit;
    fits.then_some(Kept::SlidingWindow(number, current + terms.cost, previous))
}

/// Numbers that look random and are the same in every run.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 20
}

fn assert_agrees(limit: &Limit, quota: &Quota, seed: u64) {
    let (mut seed, mut now) = (seed, 1_800_000_000_000_000);
    let (cell, mut keeper) = (Cell::default(), Keeper(Kept::Nothing));
    let period = quota.period().as_micros() as u64;
    for _ in 0..2_000 {
        let longest = [1, period / quota.count() * 3 + 2, period / 4, period * 3][random(&mut seed) as usize % 4];
        now += random(&mut seed) % longest.max(1);
        let cost = random(&mut seed) % (quota.burst() / 3 + 2);
        let max_wait = random(&mut seed).is_multiple_of(3).then(|| quota.period() / (1 + random(&mut seed) as u32 % 9));
        let op = max_wait.map_or(Op::Take(cost), |max_wait| Op::Reserve { cost, max_wait });
        let expected = cell.decide(limit, op, Time::from_nanos(now * 1_000));
        assert_eq!(keeper.decide(limit, cost, max_wait, now), expected, "{limit:?}: {cost} at {now}, {max_wait:?}");
    }
}

#[test]
fn buckets_and_windows_can_be_kept_by_whoever_compares_and_adds() {
    for (seed, text) in (1..).zip(["10 per second", "3 per second burst 20", "1000003 per hour", "512 per second"]) {
        let quota: Quota = text.parse().expect("a quota");
        for limit in [
            Limit::token_bucket(quota),
            Limit::leaky_queue(quota),
            Limit::smooth_bursty(quota, quota.period() / 7),
            Limit::fixed_window(quota),
            Limit::cycles(quota, quota.period()),
            Limit::sliding_window(quota),
        ] {
            assert_agrees(&limit, &quota, seed);
        }
    }
}
