//! What the mission asks of the algorithms, one test per line of it, each named after its line.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::hash::RandomState;
use std::time::Duration;
use tollgate_limit::{
    Blocked, Calendar, CalendarUnit, Capacity, Cell, Change, Decision, Limit, Op, Outcome, Quota, Retry, Table, Time,
};

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

fn at(millis: u64) -> Time {
    Time::ZERO + ms(millis)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn refused(after: Duration) -> Outcome {
    Outcome::Refused(Retry::After(after))
}

/// The outcomes of so many requests of cost 1 that come at the same time.
fn take_one_by_one(cell: &Cell, limit: &Limit, requests: usize, now: Time) -> Vec<Outcome> {
    (0..requests).map(|_| cell.decide(limit, Op::Take(1), now).outcome).collect()
}

/// The waits that a caller is told who waits as told and then asks again, one permit at a time.
fn acquire_one_by_one(cell: &Cell, limit: &Limit, requests: usize, now: &mut Time) -> Vec<Duration> {
    let mut acquire = || {
        let decision = cell.decide(limit, Op::Take(1), *now);
        assert!(decision.is_allowed(), "{decision:?}");
        *now = *now + decision.wait();
        decision.wait()
    };
    (0..requests).map(|_| acquire()).collect()
}

#[test]
fn d1_a_decision_tells_cost_limit_remaining_reset_and_retry() {
    let limit = Limit::token_bucket(quota("10 per second"));
    let cell = Cell::new(&limit, at(0));
    let light =
        Decision { outcome: Outcome::Allowed, granted: 1, limit: 10, remaining: 9, debt: 0, reset_after: ms(100) };
    assert_eq!(cell.decide(&limit, Op::Take(1), at(0)), light);
    let heavy = Decision { granted: 7, remaining: 2, reset_after: ms(800), ..light };
    assert_eq!(cell.decide(&limit, Op::Take(7), at(0)), heavy);

    let throttled = Decision { outcome: refused(ms(300)), granted: 0, ..heavy };
    assert_eq!(cell.decide(&limit, Op::Take(5), at(0)), throttled);
    assert_eq!(cell.decide(&limit, Op::Take(11), at(0)).outcome, Outcome::Refused(Retry::Never));
    assert_eq!(cell.decide(&limit, Op::Take(5), at(299)).outcome, refused(ms(1)));
    assert!(cell.decide(&limit, Op::Take(5), at(300)).is_allowed());
}

#[test]
fn d2_token_bucket_worked_example() {
    let limit = Limit::token_bucket(quota("10 per second"));
    let cell = Cell::new(&limit, at(0));
    let six = cell.decide(&limit, Op::Take(6), at(300));
    assert_eq!((six.is_allowed(), six.remaining), (true, 4));
    assert_eq!(cell.decide(&limit, Op::Peek(1), at(500)).remaining, 6);
    let five = cell.decide(&limit, Op::Take(5), at(500));
    assert_eq!((five.is_allowed(), five.remaining), (true, 1));
    assert_eq!(cell.decide(&limit, Op::Peek(1), at(1_400)).remaining, 10);
    assert_eq!(cell.decide(&limit, Op::Peek(1), at(1_500)).remaining, 10);
    assert!(cell.decide(&limit, Op::Take(10), at(1_500)).is_allowed(), "tokens >= cost is enough");
}

#[test]
fn d3_leaky_bucket_as_a_meter_refuses_what_overflows() {
    let limit = Limit::token_bucket(quota("10 per second burst 3"));
    let cell = Cell::new(&limit, at(0));
    let outcomes = take_one_by_one(&cell, &limit, 4, at(0));
    assert_eq!(outcomes, [Outcome::Allowed, Outcome::Allowed, Outcome::Allowed, refused(ms(100))]);
    assert_eq!(take_one_by_one(&cell, &limit, 2, at(100)), [Outcome::Allowed, refused(ms(100))]);
    assert_eq!(take_one_by_one(&cell, &limit, 1, at(150)), [refused(ms(50))]);
}

#[test]
fn d3_leaky_bucket_as_a_queue_tells_how_long_to_wait() {
    let limit = Limit::leaky_queue(quota("10 per second burst 5"));
    let cell = Cell::new(&limit, at(0));
    let after = |millis| Outcome::AllowedAfter(ms(millis));
    let outcomes = take_one_by_one(&cell, &limit, 6, at(0));
    assert_eq!(outcomes, [Outcome::Allowed, after(100), after(200), after(300), after(400), refused(ms(100))]);

    // Half an interval later there is still no room, and then there is for one.
    assert_eq!(take_one_by_one(&cell, &limit, 1, at(50)), [refused(ms(50))]);
    assert_eq!(take_one_by_one(&cell, &limit, 2, at(100)), [after(400), refused(ms(100))]);

    // A heavy request waits for those in front of it, and leaves as much work behind it.
    assert_eq!(cell.decide(&limit, Op::Take(2), at(400)).outcome, after(200));
    assert_eq!(cell.decide(&limit, Op::Take(1), at(400)).outcome, after(400));
    assert_eq!(cell.decide(&limit, Op::Take(6), at(400)).outcome, Outcome::Refused(Retry::Never));
}

#[test]
fn d4_fixed_window_lets_twice_the_limit_through_around_a_boundary_and_says_when_the_next_begins() {
    let limit = Limit::fixed_window(quota("10 per second"));
    let cell = Cell::new(&limit, at(0));
    assert!(cell.decide(&limit, Op::Take(10), at(999)).is_allowed());
    assert_eq!(cell.decide(&limit, Op::Take(1), at(999)).outcome, refused(ms(1)));
    let next = cell.decide(&limit, Op::Take(10), at(1_000));
    assert_eq!((next.is_allowed(), next.remaining, next.reset_after), (true, 0, secs(1)));
    assert_eq!(cell.decide(&limit, Op::Take(1), at(1_250)).outcome, refused(ms(750)));
}

#[test]
fn d4_calendar_month_begins_on_the_first() {
    let limit = Limit::calendar_window(100, Calendar::utc(CalendarUnit::Month)).unwrap();
    let march_2026 = Time::ZERO + secs(1_772_323_200);
    let last_second_of_february = Time::ZERO + secs(1_772_323_199);
    let cell = Cell::new(&limit, last_second_of_february);
    assert!(cell.decide(&limit, Op::Take(100), last_second_of_february).is_allowed());
    assert_eq!(cell.decide(&limit, Op::Take(1), last_second_of_february).outcome, refused(secs(1)));
    let first = cell.decide(&limit, Op::Take(100), march_2026);
    assert_eq!((first.is_allowed(), first.remaining), (true, 0));
    assert_eq!(first.reset_after, secs(31 * 86_400));
    assert_eq!(cell.decide(&limit, Op::Take(1), march_2026 + secs(86_400)).outcome, refused(secs(30 * 86_400)));

    let tokyo = Calendar::at_offset(CalendarUnit::Month, 9 * 3_600).unwrap();
    let in_tokyo = Limit::calendar_window(100, tokyo).unwrap();
    let nine_hours_earlier = Time::ZERO + secs(1_772_323_200 - 9 * 3_600);
    assert_eq!(
        Cell::new(&in_tokyo, march_2026).decide(&in_tokyo, Op::Take(1), nine_hours_earlier).reset_after,
        secs(31 * 86_400)
    );
}

#[test]
fn d5_sliding_log_is_exact() {
    let limit = Limit::sliding_log(quota("3 per 10 seconds"));
    let cell = Cell::new(&limit, at(0));
    for taken_at in [0, 4_000, 9_000] {
        assert!(cell.decide(&limit, Op::Take(1), at(taken_at)).is_allowed());
    }
    assert_eq!(cell.decide(&limit, Op::Take(1), at(9_999)).outcome, refused(ms(1)));
    assert!(cell.decide(&limit, Op::Take(1), at(10_000)).is_allowed());
    // The tokens of 4 s and 9 s come back 10 s later each, whatever a window of the clock says.
    assert_eq!(cell.decide(&limit, Op::Take(1), at(13_900)).outcome, refused(ms(100)));
    assert_eq!(cell.decide(&limit, Op::Take(2), at(13_900)).outcome, refused(ms(5_100)));
    assert_eq!(cell.decide(&limit, Op::Peek(1), at(19_000)).remaining, 2);
    assert_eq!(cell.decide(&limit, Op::Peek(1), at(19_000)).reset_after, secs(1));
}

#[test]
fn d6_sliding_window_weights_the_previous_window_by_its_overlap() {
    let limit = Limit::sliding_window(quota("100 per minute"));
    let cell = Cell::new(&limit, at(0));
    assert!(cell.decide(&limit, Op::Take(80), at(30_000)).is_allowed());
    // A quarter into the next window three quarters of the 80 still count.
    assert_eq!(cell.decide(&limit, Op::Peek(1), at(75_000)).remaining, 40);
    assert!(cell.decide(&limit, Op::Take(40), at(75_000)).is_allowed());
    // One more fits when 80 × (1 − f) has fallen to 59: 15.75 s into the window.
    assert_eq!(cell.decide(&limit, Op::Take(1), at(75_000)).outcome, refused(ms(750)));
    assert!(cell.decide(&limit, Op::Take(1), at(75_750)).is_allowed());
    assert_eq!(cell.decide(&limit, Op::Peek(1), at(180_000)).remaining, 100);
}

#[test]
fn d7_smooth_bursty_starts_empty_and_pays_for_the_request_before() {
    let limit = Limit::smooth_bursty(quota("5 per second"), Duration::MAX);
    let mut now = at(7_000);
    let cell = Cell::new(&limit, now);
    assert_eq!(cell.decide(&limit, Op::Peek(1), now).remaining, 0);
    assert_eq!(acquire_one_by_one(&cell, &limit, 3, &mut now), [ms(0), ms(200), ms(200)]);

    // Guava's testSimpleWeights: whatever a request costs is what the next one waits.
    let limit = Limit::smooth_bursty(quota("1 per second"), Duration::MAX);
    let cell = Cell::new(&limit, now);
    for (cost, wait) in [(1, 0), (1, 1), (2, 1), (4, 2), (8, 4), (1, 8)] {
        let decision = cell.decide(&limit, Op::Take(cost), now);
        assert_eq!((decision.is_allowed(), decision.wait()), (true, secs(wait)));
        now = now + decision.wait();
    }
}

#[test]
fn d7_smooth_bursty_stores_an_unused_second() {
    let limit = Limit::smooth_bursty(quota("5 per second"), Duration::MAX);
    let cell = Cell::new(&limit, at(0));
    assert_eq!(cell.decide(&limit, Op::Peek(1), at(400)).remaining, 2);
    assert_eq!(cell.decide(&limit, Op::Peek(1), at(1_000)).remaining, 5);
    // Guava's testOneSecondBurst: a second second makes no difference.
    for cost in [1, 1, 3, 1] {
        assert_eq!(cell.decide(&limit, Op::Take(cost), at(2_000)).outcome, Outcome::Allowed);
    }
    assert_eq!(cell.decide(&limit, Op::Take(1), at(2_000)).outcome, Outcome::AllowedAfter(ms(200)));
}

#[test]
fn d7_smooth_bursty_try_acquire_waits_no_longer_than_its_timeout() {
    let limit = Limit::smooth_bursty(quota("5 per second"), Duration::ZERO);
    let cell = Cell::new(&limit, at(0));
    // Guava's testTryAcquire_noWaitAllowed and testTryAcquire_someWaitAllowed.
    assert_eq!(take_one_by_one(&cell, &limit, 2, at(0)), [Outcome::Allowed, refused(ms(200))]);
    assert_eq!(take_one_by_one(&cell, &limit, 1, at(100)), [refused(ms(100))]);
    let try_for = |millis, now| cell.decide(&limit, Op::Reserve { cost: 1, max_wait: ms(millis) }, now).outcome;
    assert_eq!(try_for(99, at(100)), refused(ms(1)));
    assert_eq!(try_for(100, at(100)), Outcome::AllowedAfter(ms(100)));
    assert_eq!(try_for(100, at(200)), refused(ms(100)));
    assert_eq!(try_for(100, at(300)), Outcome::AllowedAfter(ms(100)));
}

#[test]
fn d7_smooth_warming_up_comes_from_cold_to_stable_as_in_guava() {
    // Guava's testWarmUp: 2 per second, 4 s of warm-up, cold factor 3. The stable interval s is 0.5 s, so the
    // threshold is P / 2s = 4 permits, the most 4 + 2P / (s + 3s) = 8, and the slope (1.5 − 0.5) / 4 = 0.25 s.
    let limit = Limit::smooth_warming_up(quota("2 per second"), secs(4), Duration::MAX).unwrap();
    let mut now = at(0);
    let cell = Cell::new(&limit, now);
    assert_eq!(cell.decide(&limit, Op::Peek(1), now).remaining, 8);
    let cold = [0, 1_375, 1_125, 875, 625, 500, 500, 500].map(ms);
    assert_eq!(acquire_one_by_one(&cell, &limit, 8, &mut now), cold);
    now = now + ms(500) + ms(4_000);
    assert_eq!(acquire_one_by_one(&cell, &limit, 8, &mut now), cold);
    // Half the warm-up period brings back the permits below the threshold only: still warm.
    now = now + ms(500) + ms(2_000);
    assert_eq!(acquire_one_by_one(&cell, &limit, 8, &mut now), [0, 500, 500, 500, 500, 500, 500, 500].map(ms));
}

#[test]
fn d7_smooth_warming_up_takes_the_warm_up_period_from_cold_to_warm_and_half_of_it_for_the_rest() {
    let limit = Limit::smooth_warming_up(quota("1 per second"), secs(8), Duration::MAX).unwrap();
    // Threshold 4, most 8: the four cold permits take the whole period, the four others a second each.
    let price_of = |permits| {
        let cell = Cell::new(&limit, at(0));
        assert_eq!(cell.decide(&limit, Op::Take(permits), at(0)).outcome, Outcome::Allowed);
        cell.decide(&limit, Op::Take(1), at(0)).wait()
    };
    assert_eq!(price_of(1), ms(2_750), "from three intervals a permit, falling by half an interval each");
    assert_eq!([price_of(4), price_of(8), price_of(10)], [secs(8), secs(12), secs(14)]);

    let impatient = Limit::smooth_warming_up(quota("1 per second"), secs(8), secs(1)).unwrap();
    let cell = Cell::new(&impatient, at(0));
    assert_eq!(take_one_by_one(&cell, &impatient, 2, at(0)), [Outcome::Allowed, refused(ms(1_750))]);
    assert_eq!(cell.decide(&impatient, Op::Take(1), at(1_750)).outcome, Outcome::AllowedAfter(secs(1)));
}

/// What redis-cell replies: limited, limit, remaining, retry after, reset after.
fn redis_cell_reply(decision: &Decision) -> [i64; 5] {
    let seconds = |wait: Duration| (wait.as_secs() + u64::from(wait.subsec_millis() > 0)).cast_signed();
    [
        i64::from(!decision.is_allowed()),
        decision.limit.cast_signed(),
        decision.remaining.cast_signed(),
        decision.retry_after().map_or(-1, seconds),
        seconds(decision.reset_after),
    ]
}

#[test]
fn d8_gcra_gives_the_five_numbers_of_redis_cell() {
    let throttle = |max_burst: u64, count: u64, period: u64, quantities: &[u64]| {
        let quota = Quota::new(count, secs(period)).unwrap().with_burst(max_burst + 1).unwrap();
        let limit = Limit::token_bucket(quota);
        let cell = Cell::new(&limit, at(1_794_700_800_123));
        let reply = |quantity: &u64| cell.decide(&limit, Op::Take(*quantity), at(1_794_700_800_123));
        quantities.iter().map(reply).map(|decision| redis_cell_reply(&decision)).collect::<Vec<_>>()
    };
    assert_eq!(throttle(15, 30, 60, &[1]), [[0, 16, 15, -1, 2]]);
    assert_eq!(throttle(0, 1, 2, &[1, 1]), [[0, 1, 0, -1, 2], [1, 1, 0, 2, 2]]);
    assert_eq!(throttle(4, 5, 60, &[10]), [[1, 5, 5, -1, 0]]);
    assert_eq!(throttle(4, 5, 60, &[5, 1]), [[0, 5, 0, -1, 60], [1, 5, 0, 12, 60]]);
    assert_eq!(throttle(4, 5, 60, &[0]), [[0, 5, 5, -1, 0]]);
}

#[test]
fn d9_rolling_log_keeps_a_gap_between_two_actions() {
    let limit = Limit::rolling_log(quota("3 per second"), ms(100), Blocked::Ignored);
    let cell = Cell::new(&limit, at(0));
    assert_eq!(take_one_by_one(&cell, &limit, 2, at(0)), [Outcome::Allowed, refused(ms(100))]);
    assert_eq!(take_one_by_one(&cell, &limit, 1, at(60)), [refused(ms(40))]);
    assert_eq!(take_one_by_one(&cell, &limit, 1, at(100)), [Outcome::Allowed]);
    assert_eq!(take_one_by_one(&cell, &limit, 1, at(200)), [Outcome::Allowed]);
    assert_eq!(take_one_by_one(&cell, &limit, 1, at(900)), [refused(ms(100))], "three are the most in a second");
    assert_eq!(take_one_by_one(&cell, &limit, 1, at(1_000)), [Outcome::Allowed]);
}

#[test]
fn d9_rolling_log_lets_blocked_attempts_count_or_not() {
    let hammer = |blocked| {
        let limit = Limit::rolling_log(quota("2 per second"), Duration::ZERO, blocked);
        let cell = Cell::new(&limit, at(0));
        (0..40).filter(|tenth| cell.decide(&limit, Op::Take(1), at(tenth * 100)).is_allowed()).count()
    };
    assert_eq!(hammer(Blocked::Ignored), 8, "two a second for four seconds");
    assert_eq!(hammer(Blocked::Counted), 2, "who keeps hammering stays locked out");
}

#[test]
fn d9_namespaces_do_not_share_a_log() {
    let table = Table::new(Capacity::Keys(100), &RandomState::new());
    let limit = Limit::rolling_log(quota("1 per second"), Duration::ZERO, Blocked::Ignored);
    let take = |namespace: &str| table.decide(&(namespace, "user 7"), &limit, Op::Take(1), at(0)).is_allowed();
    assert_eq!([take("mail"), take("mail"), take("search"), take("search")], [true, false, true, false]);
}

#[test]
fn d10_resilience4j_renews_permits_each_period_and_lets_callers_wait_up_to_a_timeout() {
    let limit = Limit::cycles(quota("2 per second"), secs(2));
    let cell = Cell::new(&limit, at(0));
    let after = |millis| Outcome::AllowedAfter(ms(millis));
    let outcomes = take_one_by_one(&cell, &limit, 7, at(200));
    let expected =
        [Outcome::Allowed, Outcome::Allowed, after(800), after(800), after(1_800), after(1_800), refused(ms(800))];
    assert_eq!(outcomes, expected);

    // Permits are reserved ahead of their cycle, and so negative until it comes.
    let reserved = cell.decide(&limit, Op::Peek(1), at(200));
    assert_eq!((reserved.remaining, reserved.debt), (0, 4));
    assert_eq!(cell.decide(&limit, Op::Peek(1), at(1_000)).debt, 2);
    let renewed = cell.decide(&limit, Op::Peek(1), at(3_000));
    assert_eq!((renewed.remaining, renewed.debt), (2, 0));
    assert_eq!(cell.decide(&limit, Op::Peek(1), at(9_500)).remaining, 2, "unused permits are not saved up");
}

#[test]
fn d10_resilience4j_permits_are_drained() {
    let limit = Limit::cycles(quota("5 per second"), secs(1));
    let cell = Cell::new(&limit, at(0));
    assert_eq!(cell.decide(&limit, Op::Take(2), at(100)).remaining, 3);
    let drained = cell.decide(&limit, Op::Drain, at(100));
    assert_eq!((drained.granted, drained.remaining, drained.debt), (3, 0, 0));
    assert_eq!(cell.decide(&limit, Op::Take(1), at(100)).outcome, Outcome::AllowedAfter(ms(900)));
    assert_eq!(cell.decide(&limit, Op::Drain, at(200)).granted, 0);
    assert_eq!(cell.decide(&limit, Op::Peek(1), at(1_000)).remaining, 4, "what was booked ahead stays booked");
}

#[test]
fn d10_resilience4j_limit_is_changed_while_live() {
    let slow = Limit::cycles(quota("5 per second"), secs(1));
    let fast = Limit::cycles(quota("10 per second"), secs(1));
    let cell = Cell::new(&slow, at(0));
    assert_eq!(cell.decide(&slow, Op::Take(2), at(100)).remaining, 3);
    cell.change(&slow, &fast, Change::KeepTokens, at(100));
    assert_eq!(cell.decide(&fast, Op::Peek(1), at(100)).remaining, 3, "the new limit begins with the next cycle");
    assert_eq!(cell.decide(&fast, Op::Peek(1), at(1_000)).remaining, 10);

    // Who had reserved ahead still has: three permits below zero stay three.
    assert_eq!(cell.decide(&fast, Op::Charge(13), at(1_000)).debt, 3);
    cell.change(&fast, &slow, Change::KeepTokens, at(1_000));
    assert_eq!(cell.decide(&slow, Op::Peek(1), at(1_000)).debt, 3);
    assert_eq!(cell.decide(&slow, Op::Peek(1), at(2_000)).remaining, 2);
}

#[test]
fn c7_three_hosts_that_let_twelve_through_at_once_all_stand_at_minus_eight_and_refuse_for_two_seconds() {
    let limit = Limit::token_bucket(quota("4 per second"));
    let hosts = [(); 3].map(|()| Cell::new(&limit, at(0)));
    for host in &hosts {
        assert!(take_one_by_one(host, &limit, 4, at(0)).iter().all(|outcome| *outcome == Outcome::Allowed));
    }
    for host in &hosts {
        let shared = host.decide(&limit, Op::Charge(8), at(0));
        assert_eq!((shared.remaining, shared.debt), (0, 8));
        assert_eq!(host.decide(&limit, Op::Peek(0), at(1_999)).outcome, refused(ms(1)), "still below zero");
        assert_eq!(host.decide(&limit, Op::Take(1), at(2_000)).outcome, refused(ms(250)), "at zero");
        assert!(host.decide(&limit, Op::Take(1), at(2_250)).is_allowed());
    }
}
