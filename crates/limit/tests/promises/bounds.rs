//! Never more than so much in any interval, however it is asked for: the column of [`Limit`]'s table.

use crate::any::{at, clock_slack, fill_nanos, ordinary_quota, part_of, pause, period_nanos, slow_or_fast_quota};
use crate::cases;
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;
use tollgate_limit::{Cell, Limit, Op, Quota, Reservation};

/// Far enough from the origin that nothing begins there.
const START: u64 = 1_794_700_800_000_000_000;

/// What a client does after a pause, each number a share of what would make sense.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Take { pause: u16, cost: u16 },
    TakeUpTo { pause: u16, cost: u16 },
    Book { pause: u16, cost: u16, patience: u16 },
    Cancel { pause: u16, which: u16 },
}

/// Requests that may be held back, and bookings.
fn acts() -> impl Strategy<Value = Vec<Act>> {
    vec(act(), 1..60)
}

/// The same with bookings that are given up, early or late.
fn acts_and_cancels() -> impl Strategy<Value = Vec<Act>> {
    let cancel = any::<(u16, u16)>().prop_map(|(pause, which)| Act::Cancel { pause, which });
    vec(prop_oneof![3 => act(), 1 => cancel], 1..60)
}

fn act() -> impl Strategy<Value = Act> {
    let take = any::<(u16, u16)>().prop_map(|(pause, cost)| Act::Take { pause, cost });
    let take_up_to = any::<(u16, u16)>().prop_map(|(pause, cost)| Act::TakeUpTo { pause, cost });
    let book = any::<(u16, u16, u16)>().prop_map(|(pause, cost, patience)| Act::Book { pause, cost, patience });
    prop_oneof![2 => take, 1 => take_up_to, 3 => book]
}

/// What was let through: when, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Admission {
    pub(crate) at: u64,
    pub(crate) tokens: u64,
}

/// A client that does what it is told to, uses every booking at the very moment it is for, and none that it
/// has cancelled.
pub(crate) struct Client<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) limit: &'a Limit,
    pub(crate) now: u64,
    /// What a pause, a cost and a patience are shares of.
    pub(crate) fill: u64,
    pub(crate) tokens: u64,
    pub(crate) patience: u64,
    admitted: Vec<Admission>,
    booked: Vec<Reservation>,
}

impl<'a> Client<'a> {
    pub(crate) fn new(cell: &'a Cell, limit: &'a Limit, tokens: u64, fill: u64) -> Client<'a> {
        let (admitted, booked) = (Vec::new(), Vec::new());
        Client { cell, limit, now: START, fill, tokens, patience: 0, admitted, booked }
    }

    pub(crate) fn act(&mut self, act: Act) {
        let (Act::Take { pause: share, .. }
        | Act::TakeUpTo { pause: share, .. }
        | Act::Book { pause: share, .. }
        | Act::Cancel { pause: share, .. }) = act;
        self.now += pause(self.fill, share);
        match act {
            Act::Take { cost, .. } => self.take(Op::Take(1 + part_of(self.tokens, cost))),
            Act::TakeUpTo { cost, .. } => self.take(Op::TakeUpTo(1 + part_of(self.tokens, cost))),
            Act::Book { cost, patience, .. } => {
                let max_wait = Duration::from_nanos(part_of(self.patience, patience));
                let cost = 1 + part_of(self.tokens, cost);
                self.booked.extend(self.cell.reserve(self.limit, cost, max_wait, at(self.now)));
            }
            Act::Cancel { which, .. } if !self.booked.is_empty() => {
                let booking = self.booked.swap_remove(usize::from(which) % self.booked.len());
                self.cell.cancel(self.limit, booking, at(self.now));
            }
            Act::Cancel { .. } => {}
        }
    }

    fn take(&mut self, op: Op) {
        let decision = self.cell.decide(self.limit, op, at(self.now));
        if decision.is_allowed() {
            let ready = (at(self.now) + decision.wait()).as_nanos();
            self.admitted.push(Admission { at: ready, tokens: decision.granted });
        }
    }

    /// Everything that was let through, in the order of time.
    pub(crate) fn admitted(mut self) -> Vec<Admission> {
        let used =
            self.booked.iter().map(|booking| Admission { at: booking.ready_at().as_nanos(), tokens: booking.cost() });
        self.admitted.extend(used);
        self.admitted.sort_unstable();
        self.admitted
    }
}

/// Checks all that was let through from any admission to any later one; `bound` says how much may be, from
/// how long that took and how much the last one was.
pub(crate) fn check(admitted: &[Admission], fits: impl Fn(u64, u64, u64) -> bool) -> Result<(), TestCaseError> {
    for (index, first) in admitted.iter().enumerate() {
        let mut tokens = 0;
        for last in admitted.iter().skip(index) {
            tokens += last.tokens;
            let took = last.at - first.at;
            prop_assert!(fits(tokens, took, last.tokens), "{tokens} tokens within {took} ns: {first:?} to {last:?}");
        }
    }
    Ok(())
}

/// `tokens <= at_once + count × nanos / period`, exactly.
pub(crate) fn is_within(tokens: u64, at_once: u64, quota: &Quota, nanos: u64) -> bool {
    let period = u128::from(period_nanos(quota));
    u128::from(tokens) * period <= u128::from(at_once) * period + u128::from(quota.count()) * u128::from(nanos)
}

fn admitted(limit: &Limit, (tokens, fill, patience): (u64, u64, u64), acts: &[Act]) -> Vec<Admission> {
    let cell = Cell::new(limit, at(START));
    let mut client = Client { patience, ..Client::new(&cell, limit, tokens, fill) };
    acts.iter().for_each(|act| client.act(*act));
    client.admitted()
}

fn check_token_bucket(quota: &Quota, patience: u64, acts: &[Act]) -> Result<(), TestCaseError> {
    let limit = Limit::token_bucket(*quota);
    let admitted = admitted(&limit, (quota.burst(), fill_nanos(quota), patience), acts);
    check(&admitted, |tokens, took, _| is_within(tokens, quota.burst(), quota, took + clock_slack(quota)))
}

/// Twice the count, or once, within less than a period.
fn check_period(quota: &Quota, limit: &Limit, most: u64, patience: u64, acts: &[Act]) -> Result<(), TestCaseError> {
    let period = period_nanos(quota);
    let admitted = admitted(limit, (quota.count(), period, patience), acts);
    check(&admitted, |tokens, took, _| took >= period || tokens <= most)
}

fn check_sliding_window(quota: &Quota, acts: &[Act]) -> Result<(), TestCaseError> {
    let admitted = admitted(&Limit::sliding_window(*quota), (quota.count(), period_nanos(quota), 0), acts);
    check(&admitted, |tokens, took, _| is_within(tokens, quota.count(), quota, took))
}

/// All but the last request have to have left before it goes.
fn check_leaky_queue(quota: &Quota, acts: &[Act]) -> Result<(), TestCaseError> {
    let fill = fill_nanos(quota);
    let admitted = admitted(&Limit::leaky_queue(*quota), (quota.burst(), fill, fill), acts);
    check(&admitted, |tokens, took, last| is_within(tokens, last, quota, took + clock_slack(quota)))
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn token_bucket_never_admits_more_than_burst_plus_rate_times_time(quota in slow_or_fast_quota(), acts in acts()) {
        check_token_bucket(&quota, 2 * fill_nanos(&quota), &acts)?;
    }

    #[test]
    fn token_bucket_keeps_its_bound_when_what_was_taken_is_given_back(
        quota in slow_or_fast_quota(),
        acts in acts_and_cancels(),
    ) {
        check_token_bucket(&quota, 0, &acts)?;
    }

    #[test]
    fn token_bucket_keeps_its_bound_when_what_was_booked_ahead_is_given_back(
        quota in ordinary_quota(),
        acts in acts_and_cancels(),
    ) {
        check_token_bucket(&quota, 2 * fill_nanos(&quota), &acts)?;
    }

    #[test]
    fn leaky_queue_lets_requests_out_at_an_even_pace(quota in slow_or_fast_quota(), acts in acts()) {
        check_leaky_queue(&quota, &acts)?;
    }

    #[test]
    fn leaky_queue_keeps_its_pace_when_some_leave_it_before_their_turn(
        quota in ordinary_quota(),
        acts in acts_and_cancels(),
    ) {
        check_leaky_queue(&quota, &acts)?;
    }

    #[test]
    fn sliding_window_never_admits_more_than_count_plus_rate_times_time(
        quota in slow_or_fast_quota(),
        acts in acts_and_cancels(),
    ) {
        check_sliding_window(&quota, &acts)?;
    }

    #[test]
    fn sliding_log_never_admits_more_than_count_in_any_period(
        quota in slow_or_fast_quota(),
        acts in acts_and_cancels(),
    ) {
        check_period(&quota, &Limit::sliding_log(quota), quota.count(), 0, &acts)?;
    }

    #[test]
    fn fixed_window_never_admits_more_than_twice_the_count_within_a_period(
        quota in slow_or_fast_quota(),
        acts in acts(),
    ) {
        let two_periods = 2 * period_nanos(&quota);
        check_period(&quota, &Limit::fixed_window(quota), 2 * quota.count(), two_periods, &acts)?;
        check_period(&quota, &Limit::cycles(quota, quota.period()), 2 * quota.count(), two_periods, &acts)?;
    }

    #[test]
    fn fixed_window_keeps_its_bound_when_what_was_taken_is_given_back(
        quota in slow_or_fast_quota(),
        acts in acts_and_cancels(),
    ) {
        check_period(&quota, &Limit::fixed_window(quota), 2 * quota.count(), 0, &acts)?;
    }

    #[test]
    fn fixed_window_keeps_its_bound_when_what_was_booked_ahead_is_given_back(
        quota in ordinary_quota(),
        acts in acts_and_cancels(),
    ) {
        check_period(&quota, &Limit::fixed_window(quota), 2 * quota.count(), 2 * period_nanos(&quota), &acts)?;
    }

    #[test]
    fn smooth_bursty_never_admits_more_than_burst_plus_the_last_request_plus_rate_times_time(
        quota in slow_or_fast_quota(),
        acts in acts(),
    ) {
        let fill = fill_nanos(&quota);
        for timeout in [Duration::ZERO, Duration::from_nanos(fill)] {
            let admitted = admitted(&Limit::smooth_bursty(quota, timeout), (quota.burst(), fill, fill), &acts);
            let slack = clock_slack(&quota);
            check(&admitted, |tokens, took, last| is_within(tokens, quota.burst() + last, &quota, took + slack))?;
        }
    }

    #[test]
    fn smooth_warming_up_never_admits_more_than_the_last_request_plus_rate_times_time(
        quota in ordinary_quota(),
        acts in acts(),
    ) {
        let (period, warm_up) = (period_nanos(&quota), quota.period() * 3);
        let limit = Limit::smooth_warming_up(quota, warm_up, Duration::ZERO).unwrap();
        let admitted = admitted(&limit, (quota.count(), period, period), &acts);
        // Each price is rounded down to a nanosecond.
        let slack = admitted.len() as u64;
        check(&admitted, |tokens, took, last| is_within(tokens, last, &quota, took + slack))?;
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Found by reading: the tokens of a booking in the middle of the queue were sold again at its end, at the
/// time for which the last one was booked already.
#[test]
fn a_token_given_back_from_the_middle_of_a_queue_is_not_sold_for_the_time_of_its_last() {
    let bucket = Limit::token_bucket("1 per second".parse().unwrap());
    let queue = Limit::leaky_queue("1 per second burst 4".parse().unwrap());
    let window = Limit::fixed_window("1 per second".parse().unwrap());
    for limit in [bucket, queue, window] {
        let cell = Cell::new(&limit, at(START));
        let book = || cell.reserve(&limit, 1, seconds(9), at(START)).unwrap();
        let [now, first, last] = [(); 3].map(|()| book());
        assert_eq!([now.wait(), first.wait(), last.wait()], [0, 1, 2].map(seconds));
        cell.cancel(&limit, first, at(START));
        assert!(book().wait() > last.wait(), "two would go at the same time, by {limit:?}");
    }
}

/// Without this bursts would be a fifth too large: see MATHS 3.1.
#[test]
fn a_booking_is_served_the_sooner_the_more_was_given_back_before_it() {
    let limit = Limit::token_bucket("1 per second burst 10".parse().unwrap());
    let cell = Cell::new(&limit, at(START));
    let book = |cost| cell.reserve(&limit, cost, Duration::ZERO, at(START)).unwrap();
    let (four, one) = (book(4), book(1));
    assert_eq!(cell.cancel(&limit, four, at(START)), 4);
    // Its token would have come back after five seconds, and now does after one.
    let later = at(START) + Duration::from_millis(900);
    assert!(cell.decide(&limit, Op::Take(1), later).is_allowed());
    assert_eq!(cell.cancel(&limit, one, later), 0);
}

/// Found by reading: a booking that used the rest of one window and a part of the next gave all of it back to
/// the next one.
#[test]
fn a_booking_over_two_windows_gives_back_to_the_second_only_what_it_took_from_it() {
    let limit = Limit::fixed_window("10 per second".parse().unwrap());
    let cell = Cell::new(&limit, at(START));
    assert!(cell.decide(&limit, Op::Take(1), at(START)).is_allowed());
    let over_two_windows = cell.reserve(&limit, 10, seconds(1), at(START)).unwrap();
    let next = at(START) + seconds(1);
    assert!(cell.decide(&limit, Op::Take(9), next).is_allowed());
    cell.cancel(&limit, over_two_windows, next);
    assert_eq!(cell.decide(&limit, Op::Peek(1), next).remaining, 1, "nine of the second window's ten are used");
}

/// Found by reading: what one booking gave back moved the later ones into earlier windows, and they gave it
/// back a second time to the window that they were for.
#[test]
fn bookings_of_later_windows_do_not_give_back_what_an_earlier_one_gave_back_already() {
    let limit = Limit::fixed_window("10 per second".parse().unwrap());
    let cell = Cell::new(&limit, at(START));
    assert!(cell.decide(&limit, Op::Take(10), at(START)).is_allowed());
    let book = || cell.reserve(&limit, 10, seconds(2), at(START)).unwrap();
    let (first, second) = (book(), book());
    assert_eq!((first.wait(), second.wait()), (seconds(1), seconds(2)));
    cell.cancel(&limit, first, at(START));
    let third_window = at(START) + seconds(2);
    let take_all = || cell.decide(&limit, Op::TakeUpTo(10), third_window).granted;
    let before = take_all();
    cell.cancel(&limit, second, third_window);
    assert!(before + take_all() <= 10, "a window has ten");
}
