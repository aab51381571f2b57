//! No number is too large, no time too early or too late: nothing panics, and nothing passes by overflow.

use crate::any::{any_number, any_op, any_quota, at, every_limit, refusing_limits};
use crate::cases;
use proptest::collection::vec;
use proptest::prelude::*;
use std::hash::RandomState;
use std::time::Duration;
use tollgate_limit::{Blocked, Capacity, Cell, Change, Limit, Op, Outcome, Quota, Table, Time};

fn history() -> impl Strategy<Value = Vec<(Op, u64)>> {
    vec((any_op(), any_number()), 0..25)
}

/// A cell after anything at all has been asked of it, at times in any order.
fn after(limit: &Limit, history: &[(Op, u64)]) -> Cell {
    let cell = Cell::new(limit, at(history.first().map_or(0, |(_, now)| *now)));
    for (op, now) in history {
        let _ = cell.decide(limit, *op, at(*now));
    }
    cell
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn nothing_that_is_asked_panics(quota in any_quota(), history in history()) {
        let table = Table::new(Capacity::Keys(20), &RandomState::new());
        for (number, limit) in every_limit(quota).iter().enumerate() {
            after(limit, &history);
            for (op, now) in &history {
                let _ = table.decide(&number, limit, *op, at(*now));
            }
        }
    }

    #[test]
    fn no_booking_and_no_change_panics(
        (from, to) in (any_quota(), any_quota()),
        history in history(),
        numbers in vec((any_number(), any_number(), any_number()), 1..8),
        kind in prop::sample::select(vec![Change::KeepTokens, Change::Proportional, Change::Reset]),
    ) {
        for from in every_limit(from) {
            for to in every_limit(to).into_iter().step_by(3) {
                let cell = after(&from, &history);
                for (cost, wait, now) in &numbers {
                    let booking = cell.reserve(&from, *cost, Duration::from_nanos(*wait), at(*now));
                    cell.change(&from, &to, kind, at(*wait));
                    if let Ok(booking) = booking {
                        cell.cancel(&to, booking, at(*cost));
                    }
                    cell.change(&to, &from, kind, at(*now));
                }
            }
        }
    }

    #[test]
    fn nothing_passes_at_once_where_everything_was_charged(
        quota in any_quota(),
        history in history(),
        now in any_number(),
        cost in 1_u64..,
    ) {
        for limit in every_limit(quota) {
            let cell = after(&limit, &history);
            let _ = cell.decide(&limit, Op::Charge(u64::MAX), at(now));
            let reserve = Op::Reserve { cost: 1, max_wait: Duration::ZERO };
            for op in [Op::Take(1), Op::Take(cost), Op::TakeUpTo(cost), reserve] {
                let outcome = cell.decide(&limit, op, at(now)).outcome;
                prop_assert_ne!(outcome, Outcome::Allowed, "{:?} at {} by {:?}", op, now, limit);
            }
        }
    }

    #[test]
    fn no_more_than_the_limit_passes_at_one_moment(quota in any_quota(), history in history(), now in any_number()) {
        for limit in refusing_limits(quota) {
            let cell = after(&limit, &history);
            let mut passed = 0_u128;
            for most in [1, u64::MAX, 3, u64::MAX] {
                let decision = cell.decide(&limit, Op::TakeUpTo(most), at(now));
                if decision.outcome == Outcome::Allowed {
                    passed += u128::from(decision.granted);
                }
            }
            prop_assert!(passed <= u128::from(limit.most()), "{passed} at {now} by {limit:?}");
        }
    }

    #[test]
    fn nothing_larger_than_the_limit_ever_passes(
        quota in any_quota(),
        history in history(),
        now in any_number(),
        more in 1_u64..,
    ) {
        for limit in refusing_limits(quota) {
            let cell = after(&limit, &history);
            let cost = limit.most().saturating_add(more);
            prop_assert!(!cell.decide(&limit, Op::Take(cost), at(now)).is_allowed(), "{cost} at {now} by {limit:?}");
            let reserve = Op::Reserve { cost, max_wait: Duration::MAX };
            prop_assert!(!cell.decide(&limit, reserve, at(now)).is_allowed(), "{cost} at {now} by {limit:?}");
        }
    }

    #[test]
    fn no_number_makes_a_quota_that_panics(count in any_number(), period in any_number(), burst in any_number()) {
        if let Ok(quota) = Quota::new(count, Duration::from_nanos(period)) {
            let _ = quota.with_burst(burst);
        }
    }
}

/// Found by reading: an entry counted while `now < taken + period`, which at the end of time is no time at all.
#[test]
fn a_log_limits_at_the_end_of_time_too() {
    let limit = Limit::sliding_log("2 per second".parse().unwrap());
    let cell = Cell::new(&limit, Time::MAX);
    let passed = (0..5).filter(|_| cell.decide(&limit, Op::Take(1), Time::MAX).is_allowed()).count();
    assert!(passed <= 2, "{passed} passed");
}

/// Found by reading: the window after the last one begins at once, since time ends there.
#[test]
fn windows_of_fast_quotas_limit_at_the_end_of_time_too() {
    let quota: Quota = "2_000_000_000 per second".parse().unwrap();
    for limit in [Limit::fixed_window(quota), Limit::sliding_window(quota)] {
        let cell = Cell::new(&limit, Time::MAX);
        let _ = cell.decide(&limit, Op::Take(quota.count()), Time::MAX);
        assert!(!cell.decide(&limit, Op::Take(1), Time::MAX).is_allowed(), "{limit:?}");
    }
}

/// Found by reading: the sum of a log's entries stopped at the largest number, but its parts did not, so that
/// less was left of it than of them.
#[test]
fn charges_that_add_up_to_more_than_any_number_are_not_forgotten() {
    let limit = Limit::rolling_log("10 per second".parse().unwrap(), Duration::ZERO, Blocked::Ignored);
    let cell = Cell::new(&limit, at(0));
    let _ = cell.decide(&limit, Op::Charge(u64::MAX - 5), at(0));
    let _ = cell.decide(&limit, Op::Charge(20), at(500_000_000));
    let first_has_left = at(1_000_000_000);
    assert!(!cell.decide(&limit, Op::Take(1), first_has_left).is_allowed(), "twenty are charged, of ten");
    let _ = cell.decide(&limit, Op::Charge(1), first_has_left);
}
