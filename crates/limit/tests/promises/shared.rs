//! What hosts are promised that limit together.

use crate::any::{any_number, any_quota, every_limit, ordinary_quota};
use proptest::prelude::*;
use std::hash::RandomState;
use std::time::Duration;
use tollgate_limit::{Capacity, Cell, Limit, Op, Recovery, Table, Time};

proptest! {
    /// As many hosts as there are, each with its share and all of them hammered, let through no more than the limit
    /// allows in the long run; and at once no more than the limit or a token each.
    #[test]
    fn shares_add_up_to_no_more_than_the_limit(quota in ordinary_quota(), hosts in 1_u64..40) {
        let share = Limit::token_bucket(quota).share(hosts);
        let (cell, start) = (Cell::default(), Time::ZERO + Duration::from_secs(1));
        let mut admitted = 0;
        let lasts = quota.period() * 20;
        for step in 0..=400 {
            admitted += cell.decide(&share, Op::TakeUpTo(u64::MAX), start + lasts * step / 400).granted;
        }
        let at_once = (quota.burst() / hosts).max(1);
        prop_assert!(admitted <= at_once + quota.count() * 20 / hosts + 1, "{admitted}");
    }

    /// Whatever it is told, a limit stays one: nothing panics, and what is missing is missing.
    #[test]
    fn a_state_is_brought_into_line_with_any_number(
        quota in any_quota(),
        missing in prop_oneof![any::<f64>(), 0.0..1e6],
        now in any_number(),
    ) {
        let now = Time::from_nanos(now);
        for limit in every_limit(quota) {
            let table = Table::new(Capacity::Keys(100), &RandomState::new());
            let before = table.decide(&1, &limit, Op::Peek(0), now);
            let told = table.bring_into_line(&1, &limit, missing, now);
            prop_assert!(told.remaining <= before.remaining, "{limit:?}");
            if missing >= limit.most() as f64 && limit.adds_up() {
                prop_assert_eq!(told.remaining, 0, "{:?}", limit);
            }
        }
    }

    /// Whoever is held to less than is missing notices nothing; whoever is held to more lacks as much as if it had been told.
    #[test]
    fn a_state_is_held_to_the_larger_of_two(quota in any_quota(), spent in 0_u64..400, missing in 0.0..400.0, now in any_number()) {
        let now = Time::from_nanos(now);
        for limit in every_limit(quota).into_iter().filter(Limit::adds_up) {
            let table = Table::new(Capacity::Keys(100), &RandomState::new());
            let before = table.decide(&1, &limit, Op::Charge(spent), now);
            let told = table.bring_into_line(&2, &limit, missing, now);
            let held = table.hold_to(&1, &limit, missing, now);
            prop_assert_eq!(held.missing(), before.missing().max(told.missing()), "{:?}", limit);
            prop_assert_eq!(held.reset_after, before.reset_after.max(told.reset_after), "{:?}", limit);
            prop_assert_eq!(table.hold_to(&1, &limit, missing, now), held, "{:?}", limit);
        }
    }

    /// Whoever is told what is missing decides as one who has spent it.
    #[test]
    fn being_told_is_as_good_as_having_spent(quota in ordinary_quota(), spent in 0_u64..400, after in 0_u64..5_000) {
        let table = Table::new(Capacity::Keys(100), &RandomState::new());
        let (limit, now) = (Limit::token_bucket(quota), Time::ZERO + Duration::from_secs(1));
        prop_assert!(matches!(limit.recovery(now), Some(Recovery::Steady(_))));
        let _ = table.decide(&1, &limit, Op::Charge(spent), now);
        let _ = table.bring_into_line(&2, &limit, spent as f64, now);
        let later = now + Duration::from_millis(after);
        let (one, other) = (table.decide(&1, &limit, Op::Peek(1), later), table.decide(&2, &limit, Op::Peek(1), later));
        prop_assert_eq!(one.remaining, other.remaining);
    }
}
