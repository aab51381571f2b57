//! What is given back at once was never taken.

use crate::any::{at, ordinary_op, ordinary_quota, pause, period_nanos, refusing_limits};
use crate::cases;
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;
use tollgate_limit::{Cell, Decision, Limit, Op};

const START: u64 = 1_794_700_800_000_000_001;

/// What a limit has left, without the outcome of asking for it.
fn left(cell: &Cell, limit: &Limit, now: u64) -> (u64, u64) {
    let Decision { remaining, debt, .. } = cell.decide(limit, Op::Peek(0), at(now));
    (remaining, debt)
}

/// Takes and refunds after any history, and compares what is left.
fn take_and_refund(
    limit: &Limit,
    fill: u64,
    history: &[(u16, (u8, u16, u16))],
    cost: u64,
) -> Result<(), TestCaseError> {
    let cell = Cell::new(limit, at(START));
    let tokens = limit.most().max(1);
    let mut now = START;
    for (share, draw) in history {
        now += pause(fill / 3, *share);
        let _ = cell.decide(limit, ordinary_op(*draw, tokens, fill), at(now));
    }
    let before = left(&cell, limit, now);
    if cell.decide(limit, Op::Take(cost), at(now)).is_allowed() {
        let _ = cell.decide(limit, Op::Refund(cost), at(now));
        prop_assert_eq!(left(&cell, limit, now), before, "{:?}", limit);
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_refund_of_all_that_was_taken_leaves_what_there_was(
        quota in ordinary_quota(),
        history in vec(any::<(u16, (u8, u16, u16))>(), 0..20),
        cost in 0_u64..300,
    ) {
        for limit in refusing_limits(quota) {
            take_and_refund(&limit, period_nanos(&quota), &history, cost)?;
        }
        take_and_refund(&Limit::smooth_bursty(quota, Duration::MAX), period_nanos(&quota), &history, cost)?;
    }

    #[test]
    fn a_booking_cancelled_at_once_leaves_what_there_was(
        quota in ordinary_quota(),
        cost in 1_u64..300,
        wait in any::<u16>(),
    ) {
        for limit in refusing_limits(quota) {
            let cell = Cell::new(&limit, at(START));
            let _ = cell.decide(&limit, Op::Take(limit.most() / 2), at(START));
            let before = left(&cell, &limit, START);
            let max_wait = Duration::from_nanos(pause(period_nanos(&quota), wait));
            if let Ok(booking) = cell.reserve(&limit, cost, max_wait, at(START)) {
                prop_assert_eq!(cell.cancel(&limit, booking, at(START)), cost);
                prop_assert_eq!(left(&cell, &limit, START), before, "{:?}", limit);
            }
        }
    }

    #[test]
    fn a_refund_never_lifts_a_limit_above_its_most(quota in ordinary_quota(), tokens in any::<u64>()) {
        for limit in refusing_limits(quota) {
            let cell = Cell::new(&limit, at(START));
            let _ = cell.decide(&limit, Op::Take(1), at(START));
            let missing = u64::from(tokens == 0);
            let refunded = cell.decide(&limit, Op::Refund(tokens), at(START));
            prop_assert_eq!(refunded.remaining, limit.most() - missing);
        }
    }
}

/// Found by reading: the permits came back into store, but who came next still had to pay for them.
#[test]
fn a_refund_of_all_that_was_taken_leaves_a_warm_up_as_it_was() {
    let limit =
        Limit::smooth_warming_up("1 per second".parse().unwrap(), Duration::from_secs(8), Duration::ZERO).unwrap();
    let cell = Cell::new(&limit, at(START));
    let before = left(&cell, &limit, START);
    assert!(cell.decide(&limit, Op::Take(2), at(START)).is_allowed());
    let _ = cell.decide(&limit, Op::Refund(2), at(START));
    assert_eq!(left(&cell, &limit, START), before);
    assert!(cell.decide(&limit, Op::Take(1), at(START)).is_allowed());
}
