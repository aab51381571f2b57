//! Limits that change while they are in use.

use crate::any::{
    at, every_limit, lending_limits, ordinary_op, ordinary_quota, pause, period_nanos, refusing_limits,
    slow_or_fast_quota,
};
use crate::cases;
use proptest::collection::vec;
use proptest::prelude::*;
use std::hash::RandomState;
use std::time::Duration;
use tollgate_limit::{Capacity, Cell, Change, Limit, Op, Table};

const START: u64 = 1_794_700_800_000_000_001;

type Draw = (u16, (u8, u16, u16));

/// Asks whatever was drawn, and says what time it then is.
fn play(limit: &Limit, fill: u64, history: &[Draw], mut ask: impl FnMut(Op, u64)) -> u64 {
    let mut now = START;
    for (share, draw) in history {
        now += pause(fill / 3, *share);
        ask(ordinary_op(*draw, limit.most().max(1), fill), now);
    }
    now
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn who_keeps_his_tokens_has_as_many_as_before_or_the_new_limit(
        (old, new) in (ordinary_quota(), ordinary_quota()),
        history in vec(any::<Draw>(), 0..20),
    ) {
        for from in every_limit(old) {
            for to in refusing_limits(new) {
                let cell = Cell::new(&from, at(START));
                let now = play(&from, period_nanos(&old), &history, |op, now| {
                    let _ = cell.decide(&from, op, at(now));
                });
                let before = cell.decide(&from, Op::Peek(0), at(now));
                cell.change(&from, &to, Change::KeepTokens, at(now));
                let after = cell.decide(&to, Op::Peek(0), at(now));
                prop_assert_eq!(after.remaining, before.remaining.min(to.most()), "from {:?} to {:?}", from, to);
                // Debts are ten times as deep as the limit at most, and less than a unit of one is no debt.
                let deepest = 10 * to.most();
                let (debt, expected) = (after.debt.min(deepest), before.debt.min(deepest));
                prop_assert!((expected.saturating_sub(1)..=expected).contains(&debt), "from {from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn whoever_is_reset_has_all_of_the_new_limit(
        (old, new) in (ordinary_quota(), ordinary_quota()),
        history in vec(any::<Draw>(), 0..20),
    ) {
        for from in every_limit(old) {
            for to in every_limit(new) {
                let cell = Cell::new(&from, at(START));
                let now = play(&from, period_nanos(&old), &history, |op, now| {
                    let _ = cell.decide(&from, op, at(now));
                });
                cell.change(&from, &to, Change::Reset, at(now));
                let after = cell.decide(&to, Op::Peek(0), at(now));
                prop_assert_eq!((after.remaining, after.debt), (to.most(), 0), "from {:?} to {:?}", from, to);
            }
        }
    }

    #[test]
    fn whoever_is_changed_in_proportion_has_the_same_part_of_the_new_limit(
        (old, new) in (ordinary_quota(), ordinary_quota()),
        taken in any::<u64>(),
    ) {
        for from in refusing_limits(old) {
            for to in refusing_limits(new) {
                let cell = Cell::new(&from, at(START));
                let taken = taken % (from.most() + 1);
                prop_assert!(cell.decide(&from, Op::Take(taken), at(START)).is_allowed());
                cell.change(&from, &to, Change::Proportional, at(START));
                let left = u128::from(cell.decide(&to, Op::Peek(0), at(START)).remaining);
                // The same part of the new limit, to the token.
                let (old_most, new_most) = (u128::from(from.most()), u128::from(to.most()));
                let exact = u128::from(from.most() - taken) * new_most;
                prop_assert!((left * old_most).abs_diff(exact) <= old_most, "{left} from {from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn a_table_changes_as_a_cell_does(
        (old, new) in (ordinary_quota(), ordinary_quota()),
        history in vec(any::<Draw>(), 0..20),
        change in prop::sample::select(vec![Change::KeepTokens, Change::Proportional, Change::Reset]),
    ) {
        let table = Table::new(Capacity::Keys(1_000), &RandomState::new());
        let pairs = every_limit(old).into_iter().zip(every_limit(new).into_iter().rev());
        for (number, (from, to)) in pairs.enumerate() {
            let cell = Cell::default();
            let now = play(&from, period_nanos(&old), &history, |op, now| {
                let _ = cell.decide(&from, op, at(now));
                let _ = table.decide(&number, &from, op, at(now));
            });
            cell.change(&from, &to, change, at(now));
            table.change(&number, &from, &to, change, at(now));
            let (by_cell, by_table) =
                (cell.decide(&to, Op::Peek(1), at(now)), table.decide(&number, &to, Op::Peek(1), at(now)));
            prop_assert_eq!(by_table, by_cell, "from {:?} to {:?}", from, to);
        }
    }

    #[test]
    fn allow_says_the_same_as_take(quota in slow_or_fast_quota(), history in vec(any::<Draw>(), 1..40)) {
        let table = Table::new(Capacity::Keys(1_000), &RandomState::new());
        for (number, limit) in every_limit(quota).iter().enumerate() {
            let (decided, allowed) = (Cell::default(), Cell::default());
            let mut different = None;
            play(limit, period_nanos(&quota), &history, |op, now| {
                let decision = decided.decide(limit, op, at(now));
                let same = match op {
                    Op::Take(cost) => {
                        let by_cell = allowed.allow(limit, cost, at(now));
                        let by_table = table.allow(&number, limit, cost, at(now));
                        by_cell == decision.is_allowed() && by_table == decision.is_allowed()
                    }
                    _ => {
                        let by_cell = allowed.decide(limit, op, at(now));
                        let by_table = table.decide(&number, limit, op, at(now));
                        by_cell == decision && by_table == decision
                    }
                };
                if !same {
                    different.get_or_insert((op, now));
                }
            });
            prop_assert_eq!(different, None, "{:?}", limit);
        }
    }
}

/// Found by reading: what was missing in store was charged like a request, and had to be paid for before anyone
/// could go on: one and a half warm-up periods for a limit that was warm.
#[test]
fn a_warm_limit_goes_on_when_its_rate_changes() {
    let limit =
        |text: &str| Limit::smooth_warming_up(text.parse().unwrap(), Duration::from_secs(10), Duration::ZERO).unwrap();
    let (slow, fast) = (limit("10 per second"), limit("20 per second"));
    let cell = Cell::new(&slow, at(START));
    let mut now = at(START);
    // Until all that was stored is used up and the last one is paid.
    while cell.decide(&slow, Op::Peek(1), now).remaining > 0 {
        assert!(cell.decide(&slow, Op::Take(1), now).is_allowed());
        now = now + cell.decide(&slow, Op::Peek(1), now).retry_after().unwrap();
    }
    for change in [Change::KeepTokens, Change::Proportional] {
        cell.change(&slow, &fast, change, now);
        assert!(cell.decide(&fast, Op::Peek(1), now).is_allowed(), "nobody was to be paid for, with {change:?}");
        cell.change(&fast, &slow, change, now);
    }
}

/// Found by a property of [`bounds_across_changes`](crate::bounds_across_changes): what was used was rounded down,
/// to a whole token where the new limit is small.
#[test]
fn whoever_has_less_than_a_token_in_proportion_has_none() {
    let buckets = ["2 per 100 nanoseconds burst 121", "52 per 100 nanoseconds burst 2"];
    let windows = ["121 per second", "2 per second"];
    let changes = [
        buckets.map(|text| Limit::token_bucket(text.parse().unwrap())),
        windows.map(|text| Limit::fixed_window(text.parse().unwrap())),
    ];
    for [from, to] in changes {
        let cell = Cell::new(&from, at(START));
        assert_eq!(cell.decide(&from, Op::Take(120), at(START)).remaining, 1);
        cell.change(&from, &to, Change::Proportional, at(START));
        assert_eq!(cell.decide(&to, Op::Peek(0), at(START)).remaining, 0, "two 121sts of a token, by {to:?}");
    }
}

/// Found by reading: permits missing in a store are no permits owed.
#[test]
fn who_keeps_his_tokens_has_them_in_a_warm_up_too() {
    let quota = "10 per second".parse().unwrap();
    let bucket = Limit::token_bucket(quota);
    for to in lending_limits(quota) {
        let cell = Cell::new(&bucket, at(START));
        assert_eq!(cell.decide(&bucket, Op::Take(7), at(START)).remaining, 3);
        cell.change(&bucket, &to, Change::KeepTokens, at(START));
        let after = cell.decide(&to, Op::Peek(0), at(START));
        assert_eq!((after.remaining, after.debt), (3, 0), "{to:?}");
    }
}

/// Found by reading: what a booking may give back was worked out at the new rate, for the time at which the
/// bucket would have been full at the old one.
#[test]
fn a_booking_from_before_a_change_gives_back_no_more_than_is_unserved() {
    let slow = Limit::token_bucket("1 per second burst 10".parse().unwrap());
    let fast = Limit::token_bucket("100 per second burst 10".parse().unwrap());
    let cell = Cell::new(&slow, at(START));
    let booking = cell.reserve(&slow, 10, Duration::ZERO, at(START)).unwrap();
    cell.change(&slow, &fast, Change::KeepTokens, at(START));
    let later = at(START) + Duration::from_secs(1);
    assert!(cell.decide(&fast, Op::Take(10), later).is_allowed(), "all of it has come in again");
    cell.cancel(&fast, booking, later);
    assert!(!cell.decide(&fast, Op::Take(1), later).is_allowed(), "more than the burst would pass at once");
}

/// Found by reading: a reset gave back everything, and a booking from before it once more.
#[test]
fn a_booking_from_before_a_reset_gives_nothing_back() {
    for limit in refusing_limits("10 per second".parse().unwrap()) {
        let cell = Cell::new(&limit, at(START));
        let booking = cell.reserve(&limit, 1, Duration::ZERO, at(START)).unwrap();
        let _ = cell.decide(&limit, Op::Reset, at(START));
        let _ = cell.decide(&limit, Op::Drain, at(START));
        cell.cancel(&limit, booking, at(START));
        assert_eq!(cell.decide(&limit, Op::Peek(0), at(START)).remaining, 0, "{limit:?}");
    }
}
