//! What passes from before a change of quota to after it.
//!
//! Who keeps his tokens gains none by a change: from any admission on, no more passes than the burst of that
//! time, and what every rate brings while it lasts.
//!
//! In proportion, a bucket that grows from `b` to `b′` grows by at most `b′ − b` tokens (a full one by all of
//! them), so that each growth in between adds as much to the bound. A bucket that shrinks loses tokens, and
//! adds nothing.

use crate::any::{at, clock_slack, fill_nanos, period_nanos, slow_or_fast_quota};
use crate::bounds::{Act, Admission, Client};
use crate::cases;
use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_limit::{Cell, Change, Limit, Quota};

/// A quota, from a moment on.
struct Phase {
    quota: Quota,
    begins: u64,
}

/// Takes only: a booking from before a change is kept at its old time, whatever the new rate would say.
fn acts() -> impl Strategy<Value = Vec<Act>> {
    let take = any::<(u16, u16)>().prop_map(|(pause, cost)| Act::Take { pause, cost });
    let take_up_to = any::<(u16, u16)>().prop_map(|(pause, cost)| Act::TakeUpTo { pause, cost });
    vec(prop_oneof![3 => take, 1 => take_up_to], 1..25)
}

/// Plays each list of acts by its own quota.
fn play(plan: &[(Quota, Vec<Act>)], change: Change) -> (Vec<Phase>, Vec<Admission>) {
    let cell = Cell::default();
    let (mut phases, mut admitted): (Vec<Phase>, Vec<Admission>) = (Vec::new(), Vec::new());
    let mut now = None;
    for (quota, acts) in plan {
        let limit = Limit::token_bucket(*quota);
        let mut client = Client::new(&cell, &limit, quota.burst(), fill_nanos(quota));
        client.now = now.unwrap_or(client.now);
        if let Some(last) = phases.last() {
            cell.change(&Limit::token_bucket(last.quota), &limit, change, at(client.now));
        }
        phases.push(Phase { quota: *quota, begins: client.now });
        acts.iter().for_each(|act| client.act(*act));
        now = Some(client.now);
        admitted.extend(client.admitted());
    }
    (phases, admitted)
}

/// Tokens, as a fraction over this many, in which all periods divide.
const WHOLE: u128 = 11 * 7 * 9 * 3_600_000_000_000_000;

/// What the phases bring from one moment to another, and by how much buckets grow in between.
fn brought(phases: &[Phase], first: &Admission, last: &Admission) -> (u128, u128) {
    let ends = phases.iter().skip(1).map(|phase| phase.begins).chain([u64::MAX]);
    let brought = phases.iter().zip(ends).map(|(phase, ends)| {
        let lasted = last.at.min(ends).saturating_sub(first.at.max(phase.begins));
        let slack = clock_slack(&phase.quota);
        u128::from(phase.quota.count()) * u128::from(lasted + slack) * (WHOLE / u128::from(period_nanos(&phase.quota)))
    });
    let changes = phases.iter().zip(phases.iter().skip(1));
    let between = changes.filter(|(_, new)| (first.at..=last.at).contains(&new.begins));
    let grown = between.map(|(old, new)| new.quota.burst().saturating_sub(old.quota.burst()));
    (brought.sum(), u128::from(grown.sum::<u64>()) * WHOLE)
}

fn check(plan: &[(Quota, Vec<Act>)], change: Change) -> Result<(), TestCaseError> {
    let (phases, admitted) = play(plan, change);
    for (index, first) in admitted.iter().enumerate() {
        // At the moment of a change it may have been either side of it.
        let bursts = phases.iter().zip(phases.iter().skip(1).map(|next| next.begins).chain([u64::MAX]));
        let of_then = bursts.filter(|(phase, ends)| (phase.begins..=*ends).contains(&first.at));
        let burst = of_then.map(|(phase, _)| u128::from(phase.quota.burst()) * WHOLE).max().unwrap_or(0);
        let mut tokens = 0;
        for last in admitted.iter().skip(index) {
            tokens += u128::from(last.tokens) * WHOLE;
            let (brought, grown) = brought(&phases, first, last);
            let bound = burst + brought + if change == Change::Proportional { grown } else { 0 };
            prop_assert!(tokens <= bound, "{} tokens from {first:?} to {last:?}", tokens / WHOLE);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn who_keeps_his_tokens_gains_nothing_by_a_change(plan in vec((slow_or_fast_quota(), acts()), 2..5)) {
        check(&plan, Change::KeepTokens)?;
    }

    #[test]
    fn whoever_is_changed_in_proportion_gains_no_more_than_the_bucket_grows(
        plan in vec((slow_or_fast_quota(), acts()), 2..5),
    ) {
        check(&plan, Change::Proportional)?;
    }
}
