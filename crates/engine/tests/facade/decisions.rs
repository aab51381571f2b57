//! One question, one answer.

use crate::{each_client, everybody, hammered_log, limits_of_ten, ms, quota, secs, started, started_keyed};
use std::time::Duration;
use tollgate::{Decision, KeyedRateLimiter, Limit, Op, Outcome, RateLimiter, Retry, Time};

/// What is asked of a full bucket of ten, refilled by ten a second, and what it answers.
struct Step {
    op: Op,
    outcome: Outcome,
    granted: u64,
    remaining: u64,
    debt: u64,
}

const GO: Outcome = Outcome::Allowed;

const fn refused(millis: u64) -> Outcome {
    Outcome::Refused(Retry::After(Duration::from_millis(millis)))
}

const fn reserve(cost: u64) -> Op {
    Op::Reserve { cost, max_wait: Duration::from_secs(1) }
}

const EVERY_OPERATION: [Step; 15] = [
    Step { op: Op::Take(3), outcome: GO, granted: 3, remaining: 7, debt: 0 },
    Step { op: Op::Peek(7), outcome: GO, granted: 0, remaining: 7, debt: 0 },
    Step { op: Op::Peek(8), outcome: refused(100), granted: 0, remaining: 7, debt: 0 },
    Step { op: Op::TakeUpTo(4), outcome: GO, granted: 4, remaining: 3, debt: 0 },
    Step { op: Op::Take(5), outcome: refused(200), granted: 0, remaining: 3, debt: 0 },
    Step { op: Op::TakeUpTo(9), outcome: GO, granted: 3, remaining: 0, debt: 0 },
    Step { op: Op::TakeUpTo(9), outcome: refused(100), granted: 0, remaining: 0, debt: 0 },
    Step { op: Op::Charge(5), outcome: GO, granted: 5, remaining: 0, debt: 5 },
    Step { op: Op::Refund(7), outcome: GO, granted: 7, remaining: 2, debt: 0 },
    Step { op: Op::Drain, outcome: GO, granted: 2, remaining: 0, debt: 0 },
    Step {
        op: reserve(2),
        outcome: Outcome::AllowedAfter(Duration::from_millis(200)),
        granted: 2,
        remaining: 0,
        debt: 2,
    },
    Step { op: reserve(9), outcome: refused(100), granted: 0, remaining: 0, debt: 2 },
    Step { op: reserve(11), outcome: Outcome::Refused(Retry::Never), granted: 0, remaining: 0, debt: 2 },
    Step { op: Op::Reset, outcome: GO, granted: 0, remaining: 10, debt: 0 },
    Step { op: Op::Refund(1), outcome: GO, granted: 1, remaining: 10, debt: 0 },
];

fn answers_every_operation(decide: impl Fn(Op) -> Decision) {
    for Step { op, outcome, granted, remaining, debt } in EVERY_OPERATION {
        let missing = 10 - remaining + debt;
        let right = Decision { outcome, granted, limit: 10, remaining, debt, reset_after: ms(100 * missing) };
        assert_eq!(decide(op), right, "{op:?}");
    }
}

#[test]
fn one_limit_answers_every_operation() {
    let (limiter, _) = everybody("10 per second");
    answers_every_operation(|op| limiter.decide(op));
}

#[test]
fn a_client_is_answered_every_operation_as_if_it_were_alone() {
    let (limiter, _) = each_client("10 per second");
    assert!(limiter.check("somebody else", 9).is_allowed());
    answers_every_operation(|op| limiter.decide("alice", op));
    assert_eq!(limiter.peek("somebody else", 1).remaining, 1);
}

#[test]
fn allow_is_check_of_one_without_the_details() {
    for limit in limits_of_ten() {
        let (short, _) = started(RateLimiter::with_limit(limit));
        let (long, _) = started(RateLimiter::with_limit(limit));
        for request in 0..12 {
            assert_eq!(short.allow(), long.check(1).is_allowed(), "request {request} of {limit:?}");
        }
        assert_eq!(short.peek(1), long.peek(1), "{limit:?}");
    }
}

#[test]
fn a_client_of_a_keyed_limit_is_told_what_a_limit_of_its_own_would_tell() {
    for limit in limits_of_ten() {
        let (alone, hands) = started(RateLimiter::with_limit(limit));
        let (keyed, keyed_hands) = started_keyed(KeyedRateLimiter::with_limit(limit));
        for (cost, pause) in [(4, 0), (7, 0), (5, 1), (1, 600), (2, 1_800), (10, 7_200), (1, 0), (11, 0)] {
            hands.advance(secs(pause));
            keyed_hands.advance(secs(pause));
            assert_eq!(keyed.check("alice", cost), alone.check(cost), "{cost} after {pause} s of {limit:?}");
        }
    }
}

#[test]
fn a_peek_says_what_a_check_would_and_takes_nothing() {
    // Where refused attempts count, a check that is refused makes the wait longer, and a peek does not.
    for limit in limits_of_ten().into_iter().filter(|limit| *limit != hammered_log()) {
        let (limiter, _) = started(RateLimiter::with_limit(limit));
        for cost in [3, 8, 7, 1, 11] {
            let said = limiter.peek(cost);
            assert_eq!(said, limiter.peek(cost), "a peek at {limit:?} changed something");
            assert_eq!(said.outcome, limiter.check(cost).outcome, "{cost} of {limit:?}");
        }
    }
}

#[test]
fn a_refused_request_takes_nothing_and_may_come_back_when_told() {
    let (limiter, hands) = everybody("10 per second");
    assert!(limiter.check(8).is_allowed());
    let told = limiter.check(5);
    assert_eq!((told.is_allowed(), told.granted, told.remaining), (false, 0, 2));
    assert_eq!(told.retry_after(), Some(ms(300)));

    hands.advance(ms(299));
    assert!(!limiter.check(5).is_allowed());
    hands.advance(ms(1));
    assert!(limiter.check(5).is_allowed());
}

#[test]
fn who_asks_for_more_than_there_can_ever_be_is_not_told_to_come_back() {
    let (limiter, _) = everybody("10 per second");
    let told = limiter.check(11);
    assert_eq!((told.outcome, told.retry_after()), (Outcome::Refused(Retry::Never), None));
    assert_eq!(limiter.peek(1).remaining, 10);
}

#[test]
fn a_limit_for_everybody_is_used_up_by_anybody_and_one_per_client_by_nobody_else() {
    let (shared, _) = everybody("2 per minute");
    assert_eq!([shared.allow(), shared.allow(), shared.allow()], [true, true, false]);

    let (keyed, _) = each_client("2 per minute");
    assert_eq!(["noisy", "noisy", "noisy"].map(|key| keyed.allow(key)), [true, true, false]);
    assert_eq!(["polite", "polite", "polite"].map(|key| keyed.allow(key)), [true, true, false]);
}

#[test]
fn tokens_come_back_at_the_quotas_rate_whatever_the_steps_of_the_clock() {
    for step in [1, 7, 50, 333, 1_000] {
        let (limiter, hands) = everybody("3 per second burst 5");
        assert_eq!(limiter.decide(Op::Drain).granted, 5);
        let steps = 10_000 / step;
        let mut admitted = 0;
        for _ in 0..steps {
            hands.advance(ms(step));
            admitted += limiter.decide(Op::TakeUpTo(5)).granted;
        }
        // A third of a second is no whole number of nanoseconds; the last token may be one of them late.
        hands.advance(Duration::from_nanos(1));
        admitted += limiter.decide(Op::TakeUpTo(5)).granted;
        assert_eq!(admitted, step * steps * 3 / 1_000, "in steps of {step} ms");
    }
}

#[test]
fn a_clock_set_back_by_a_day_neither_fills_the_bucket_nor_locks_it_for_a_day() {
    let (limiter, hands) = everybody("10 per second");
    hands.advance(secs(86_400));
    assert_eq!(limiter.decide(Op::Drain).granted, 10);
    hands.set(Time::ZERO);
    assert!(!limiter.allow());
    hands.advance(ms(100));
    assert!(limiter.allow());
}

#[test]
fn the_builder_keeps_what_it_was_told() {
    let limit = Limit::sliding_window(quota("7 per minute"));
    let (limiter, hands) = started(RateLimiter::with_limit(limit));
    assert_eq!(limiter.limit(), limit);
    assert_eq!((0..10).filter(|_| limiter.allow()).count(), 7);
    hands.advance(secs(120));
    assert!(limiter.allow(), "the limiter is on the clock that the test holds the hands of");

    let (keyed, _) = started_keyed(KeyedRateLimiter::with_limit(limit));
    assert_eq!(keyed.limit(), limit);
    let (bucket, _) = each_client("7 per minute");
    assert_eq!(bucket.limit(), Limit::token_bucket(quota("7 per minute")));
}

#[test]
fn without_a_builder_there_is_a_token_bucket_on_a_running_clock() {
    let bucket = Limit::token_bucket(quota("5 per hour burst 2"));
    let (limiter, keyed) =
        (RateLimiter::new(quota("5 per hour burst 2")), RateLimiter::keyed(quota("5 per hour burst 2")));
    assert_eq!((limiter.limit(), keyed.limit()), (bucket, bucket));
    assert_eq!([limiter.allow(), limiter.allow(), limiter.allow()], [true, true, false]);
    assert_eq!([keyed.allow(&1), keyed.allow(&1), keyed.allow(&1)], [true, true, false]);
}
