//! Clocks that stand still, run backwards or go round.

use crate::any::{any_magnitude, at, fill_nanos, ordinary_quota, period_nanos};
use crate::cases;
use proptest::prelude::*;
use std::time::Duration;
use tollgate_limit::{Blocked, Calendar, CalendarUnit, Cell, Limit, Op, Quota};

const START: u64 = 1_794_700_800_000_000_001;
const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3_600_000_000_000;
const DAY: u64 = 24 * HOUR;

/// Limits, and how long each takes to give back all it can give. A window gives it back at its end, so that
/// may take another window.
fn limits_and_fills(quota: Quota) -> Vec<(Limit, u64)> {
    let (fill, period) = (fill_nanos(&quota), period_nanos(&quota));
    let mut limits = vec![
        (Limit::token_bucket(quota), fill),
        (Limit::leaky_queue(quota), fill),
        (Limit::smooth_bursty(quota, Duration::ZERO), fill),
        (Limit::fixed_window(quota), 2 * period),
        (Limit::cycles(quota, Duration::ZERO), 2 * period),
        (Limit::sliding_window(quota), 2 * period),
        (Limit::sliding_log(quota), period),
        (Limit::rolling_log(quota, quota.period() / 10, Blocked::Ignored), period),
    ];
    for (unit, longest) in [(CalendarUnit::Minute, DAY / 1_440), (CalendarUnit::Month, 31 * DAY)] {
        let window = Limit::calendar_window(quota.count(), Calendar::utc(unit)).unwrap();
        limits.push((window, 2 * longest));
    }
    limits
}

/// Eleven times as long as it takes to fill, or an hour, and then until it is full. By a second the clocks of
/// two callers may differ without any jump.
fn longest_lockout(fill: u64) -> u64 {
    (11 * fill).max(HOUR) + fill + SECOND
}

/// Spends all there is in the future, and then comes back.
fn is_let_in_after_a_jump(limit: &Limit, fill: u64, jump: u64, spend: &[Op]) -> Result<(), TestCaseError> {
    let cell = Cell::new(limit, at(START));
    for op in spend {
        let _ = cell.decide(limit, *op, at(START + jump));
    }
    // A sliding window finds out about its two counters one after the other.
    for asked in [START, START + fill / 2, START + fill] {
        let _ = cell.decide(limit, Op::Peek(1), at(asked));
    }
    let latest = at(START + fill + longest_lockout(fill));
    prop_assert!(cell.decide(limit, Op::Take(1), latest).is_allowed(), "{limit:?} after a jump of {jump} ns");
    Ok(())
}

fn jump() -> impl Strategy<Value = u64> {
    prop_oneof![any_magnitude().prop_map(|jump| jump >> 2), 0..3 * HOUR]
}

/// Ways to spend as much as one can.
fn spends() -> impl Strategy<Value = Vec<Op>> {
    let book = Op::Reserve { cost: 1, max_wait: Duration::MAX };
    prop_oneof![Just(vec![Op::Drain]), Just(vec![Op::Charge(u64::MAX)]), Just(vec![Op::Drain, book, book, book])]
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn nobody_is_locked_out_for_long_by_a_clock_that_jumped_back(
        quota in ordinary_quota(),
        jump in jump(),
        spend in spends(),
    ) {
        for (limit, fill) in limits_and_fills(quota) {
            is_let_in_after_a_jump(&limit, fill, jump, &spend)?;
        }
    }

    #[test]
    fn nobody_is_locked_out_of_a_warm_up_for_long_by_a_clock_that_jumped_back(
        quota in ordinary_quota(),
        jump in jump(),
        spend in spends(),
    ) {
        let warm_up = quota.period() * 3;
        let limit = Limit::smooth_warming_up(quota, warm_up, Duration::ZERO).unwrap();
        is_let_in_after_a_jump(&limit, 3 * period_nanos(&quota), jump, &spend)?;
    }

    #[test]
    fn a_clock_that_is_a_little_late_for_one_caller_forgives_nothing(
        quota in ordinary_quota(),
        late in 1_u64..1_000_000,
    ) {
        for (limit, _) in limits_and_fills(quota) {
            let cell = Cell::new(&limit, at(START));
            let charged = cell.decide(&limit, Op::Charge(u64::MAX), at(START));
            let late = late % period_nanos(&quota);
            let _ = cell.decide(&limit, Op::Peek(1), at(START - late));
            prop_assert_eq!(cell.decide(&limit, Op::Peek(1), at(START)).debt, charged.debt, "{:?}", limit);
        }
    }
}

/// Found by reading: a bucket as deep in debt as it can be looked, one nanosecond earlier, as if it had been
/// written before a jump, and was brought back to empty.
#[test]
fn the_deepest_debt_survives_a_caller_whose_clock_is_a_nanosecond_late() {
    let quota: Quota = "100 per hour".parse().unwrap();
    let period_starts = at(START / HOUR * HOUR);
    let just_before = at(START / HOUR * HOUR - 1);
    for limit in [Limit::token_bucket(quota), Limit::leaky_queue(quota), Limit::fixed_window(quota)] {
        let cell = Cell::new(&limit, period_starts);
        assert_eq!(cell.decide(&limit, Op::Charge(u64::MAX), period_starts).debt, 1_000);
        let _ = cell.decide(&limit, Op::Peek(1), just_before);
        assert_eq!(cell.decide(&limit, Op::Peek(1), period_starts).debt, 1_000, "{limit:?}");
    }
}

/// Found by reading: an entry of the log was moved back to the earlier time of a caller that came late, and
/// left the window that much earlier.
#[test]
fn a_caller_whose_clock_is_late_does_not_shorten_the_log() {
    let limit = Limit::sliding_log("1 per second".parse().unwrap());
    let cell = Cell::new(&limit, at(START));
    let millis = |n: u64| at(START + n * 1_000_000);
    assert!(cell.decide(&limit, Op::Take(1), millis(500)).is_allowed());
    assert!(!cell.decide(&limit, Op::Take(1), millis(400)).is_allowed());
    assert!(!cell.decide(&limit, Op::Take(1), millis(1_450)).is_allowed(), "that is less than a second later");
}

/// Found by reading: whether a booking is too far ahead was told in nanoseconds, whether a bucket is beyond
/// that in units, and where one nanosecond lies between them the next caller found an empty bucket.
#[test]
fn what_is_booked_as_far_ahead_as_possible_is_not_forgiven() {
    for quota in ["999_999_937 per second", "700_000_001 per second", "3 per second"] {
        let limit = Limit::token_bucket(quota.parse().unwrap());
        for now in (START..START + 40).map(at) {
            let cell = Cell::new(&limit, now);
            let mut cost = limit.most();
            while cost > 0 {
                let before = cell.decide(&limit, Op::Peek(0), now);
                let booked = cell.decide(&limit, Op::Reserve { cost, max_wait: Duration::MAX }, now);
                let after = cell.decide(&limit, Op::Peek(0), now);
                let expected = before.debt + booked.granted.saturating_sub(before.remaining);
                assert_eq!(after.debt, expected, "after {booked:?} of {quota} at {now}");
                cost = if booked.is_allowed() { cost } else { cost / 2 };
            }
        }
    }
}

/// The clocks of quotas above 10^9 per second go round every 2^53 nanoseconds, which is 104 days.
const ROUND: u64 = 1 << 53;

#[test]
fn nothing_is_forgiven_when_a_fine_clock_goes_round() {
    for quota in ["1_000_000_000_000 per second", "2_000_000_000 per second burst 9_000_000_000"] {
        let quota: Quota = quota.parse().unwrap();
        let limit = Limit::token_bucket(quota);
        let cell = Cell::new(&limit, at(0));
        let round = 198 * ROUND;
        assert!(cell.decide(&limit, Op::Take(quota.burst()), at(round - 1_000)).is_allowed());
        let granted = cell.decide(&limit, Op::TakeUpTo(u64::MAX), at(round + 1_000)).granted;
        assert!(granted <= quota.count() / 500_000, "two microseconds bring less than {granted}");
        assert!(cell.decide(&limit, Op::Take(1), at(round + 2_000 + fill_nanos(&quota))).is_allowed());
    }
}

/// Found by reading: a word from before the clock went round looks as if it came from the future, and was taken
/// for that of a clock that jumped.
#[test]
fn an_idle_client_is_not_refused_when_a_fine_clock_goes_round() {
    let quota: Quota = "2_000_000_000 per second".parse().unwrap();
    for limit in [Limit::token_bucket(quota), Limit::fixed_window(quota), Limit::sliding_window(quota)] {
        let cell = Cell::new(&limit, at(0));
        let round = 198 * ROUND;
        assert!(cell.decide(&limit, Op::Take(1), at(round - HOUR)).is_allowed());
        assert!(cell.decide(&limit, Op::Take(1), at(round + 1_000)).is_allowed(), "an hour later, by {limit:?}");
    }
}

/// Found by reading: the hour that bookings reach ahead was counted in units, of up to two nanoseconds.
#[test]
fn a_clock_that_jumped_back_locks_out_for_an_hour_at_most_also_where_units_are_long() {
    let quota: Quota = "600_000_000 per second".parse().unwrap();
    let fill = fill_nanos(&quota);
    is_let_in_after_a_jump(&Limit::token_bucket(quota), fill, HOUR + HOUR / 2, &[Op::Drain]).unwrap();
}

/// Found by reading: only the counter whose turn it is was put right, and the other one taken for a full window
/// for as long as the clock had jumped.
#[test]
fn a_client_that_asks_in_every_other_window_is_let_in_after_a_clock_jumped_back() {
    let limit = Limit::sliding_window("1 per second".parse().unwrap());
    let window = |number: u64| at((1_000_000 + number) * SECOND);
    let cell = Cell::new(&limit, window(0));
    for jumped in [1_000_001, 1_000_002] {
        let _ = cell.decide(&limit, Op::Drain, window(jumped));
    }
    let let_in = (0..20).any(|turn| cell.decide(&limit, Op::Take(1), window(2 * turn)).is_allowed());
    assert!(let_in, "not within forty windows");
}
