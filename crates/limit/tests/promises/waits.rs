//! Who is told to wait so long, need not wait longer.

use crate::any::{
    at, every_limit, fill_nanos, lending_limits, ordinary_op, pause, period_nanos, refusing_limits, slow_or_fast_quota,
};
use crate::cases;
use proptest::collection::vec;
use proptest::prelude::*;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;
use tollgate_limit::{Blocked, Calendar, CalendarUnit, Capacity, Cell, Limit, Op, Outcome, Quota, Table};

const START: u64 = 1_794_700_800_000_000_001;

type Draw = (u16, (u8, u16, u16));

fn draws() -> impl Strategy<Value = Vec<Draw>> {
    vec(any::<Draw>(), 1..40)
}

/// How long tokens take to come back, about.
fn scale(quota: &Quota) -> u64 {
    fill_nanos(quota).max(period_nanos(quota))
}

/// Asks whatever was drawn; whoever is refused waits as told and asks the same again.
fn ask_again_when_told(limit: &Limit, quota: &Quota, draws: &[Draw]) -> Result<(), TestCaseError> {
    let cell = Cell::new(limit, at(START));
    let (tokens, fill) = (limit.most().max(1), scale(quota));
    let mut now = START;
    for (share, draw) in draws {
        now += pause(fill / 3, *share);
        let op = ordinary_op(*draw, tokens, fill);
        let Some(wait) = cell.decide(limit, op, at(now)).retry_after() else { continue };
        prop_assert!(wait > Duration::ZERO);
        now = (at(now) + wait).as_nanos();
        let again = cell.decide(limit, op, at(now));
        prop_assert!(again.is_allowed(), "{limit:?} told {op:?} to wait {wait:?}, and then {:?}", again.outcome);
    }
    Ok(())
}

/// Whether nobody is told to wait longer than until the first moment at which there is enough.
fn is_told_no_longer_than_needed(limit: &Limit, quota: &Quota, draws: &[Draw]) -> Result<(), TestCaseError> {
    let cell = Cell::new(limit, at(START));
    let (tokens, fill) = (limit.most().max(1), scale(quota));
    let mut now = START;
    for (share, draw) in draws {
        now += pause(fill / 3, *share);
        let _ = cell.decide(limit, ordinary_op(*draw, tokens, fill), at(now));
        let cost = 1 + u64::from(draw.1) % tokens;
        if let Some(wait) = cell.decide(limit, Op::Peek(cost), at(now)).retry_after() {
            let shorter = at(now) + wait.saturating_sub(Duration::from_nanos(1));
            prop_assert!(
                !cell.decide(limit, Op::Peek(cost), shorter).is_allowed(),
                "{limit:?} made {cost} wait {wait:?}"
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn who_waits_as_long_as_told_is_then_allowed(quota in slow_or_fast_quota(), draws in draws()) {
        for limit in refusing_limits(quota).into_iter().chain(lending_limits(quota)) {
            ask_again_when_told(&limit, &quota, &draws)?;
        }
    }

    #[test]
    fn who_waits_where_blocked_attempts_count_is_then_allowed(quota in slow_or_fast_quota(), draws in draws()) {
        for gap in [Duration::ZERO, quota.period() / 10] {
            ask_again_when_told(&Limit::rolling_log(quota, gap, Blocked::Counted), &quota, &draws)?;
        }
    }

    #[test]
    fn nobody_is_told_to_wait_longer_than_needed(quota in slow_or_fast_quota(), draws in draws()) {
        for limit in every_limit(quota) {
            is_told_no_longer_than_needed(&limit, &quota, &draws)?;
        }
    }

    #[test]
    fn nobody_who_is_let_in_waits_longer_than_he_said(
        quota in slow_or_fast_quota(),
        draws in draws(),
        max_wait: u16,
    ) {
        for limit in every_limit(quota) {
            let cell = Cell::new(&limit, at(START));
            let max_wait = Duration::from_nanos(pause(4 * scale(&quota), max_wait));
            let mut now = START;
            for (share, (_, cost, _)) in &draws {
                now += pause(scale(&quota) / 3, *share);
                let cost = 1 + u64::from(*cost) % limit.most().max(1);
                if let Ok(booking) = cell.reserve(&limit, cost, max_wait, at(now)) {
                    prop_assert!(booking.wait() <= max_wait, "{limit:?}");
                    prop_assert_eq!(booking.ready_at(), at(now) + booking.wait());
                    prop_assert_eq!(booking.cost(), cost);
                }
            }
        }
    }
}

/// Found by reading: a month's debt was measured in the length of that month, and did not fit into as many
/// shorter ones.
#[test]
fn who_owes_since_march_is_let_in_when_he_was_told() {
    let limit = Limit::calendar_window(100, Calendar::utc(CalendarUnit::Month)).unwrap();
    let march_2026 = at(1_772_323_200_000_000_000);
    let cell = Cell::new(&limit, march_2026);
    let _ = cell.decide(&limit, Op::Charge(200), march_2026);
    let wait = cell.decide(&limit, Op::Take(100), march_2026).retry_after().unwrap();
    assert_eq!(cell.decide(&limit, Op::Take(100), march_2026 + wait).outcome, Outcome::Allowed);
}

/// Found by reading: the wait was worked out before the refused attempt was itself counted.
#[test]
fn a_counted_attempt_is_told_when_it_will_have_left_the_log_itself() {
    let limit = Limit::rolling_log("1 per 10 seconds".parse().unwrap(), Duration::ZERO, Blocked::Counted);
    let cell = Cell::new(&limit, at(START));
    assert!(cell.decide(&limit, Op::Take(1), at(START)).is_allowed());
    let later = at(START) + Duration::from_secs(4);
    assert_eq!(cell.decide(&limit, Op::Take(1), later).retry_after(), Some(Duration::from_secs(10)));
}

/// Found by reading: a table forgot a log once its period had passed, and with it the last action, however long
/// the gap after that was to be.
#[test]
fn a_gap_that_is_longer_than_the_period_holds_in_a_table_too() {
    let limit = Limit::rolling_log("5 per second".parse().unwrap(), Duration::from_secs(3), Blocked::Ignored);
    let table = Table::new(Capacity::Keys(1), &BuildHasherDefault::<DefaultHasher>::default());
    let take = |key: &str, millis| table.decide(key, &limit, Op::Take(1), at(START) + Duration::from_millis(millis));
    assert!(take("alice", 0).is_allowed());
    // Others make the table look through what it has, without filling it.
    (0..20).for_each(|other| _ = take(&other.to_string(), 1_500));
    assert_eq!(take("alice", 2_000).retry_after(), Some(Duration::from_secs(1)));
}
