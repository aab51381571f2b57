//! Booking tokens ahead, and giving them back.

use crate::{each_client, everybody, limits_of_ten, ms, secs, started};
use std::time::Duration;
use tollgate::{Op, Outcome, RateLimiter, Reservation, Retry};

/// Books one token, however long that takes.
fn book(limiter: &RateLimiter) -> Reservation {
    limiter.reserve(1, Duration::MAX).unwrap()
}

#[test]
fn bookings_are_served_one_after_the_other() {
    let (limiter, hands) = everybody("10 per second burst 2");
    let waits: Vec<_> = (0..5).map(|_| book(&limiter).wait()).collect();
    assert_eq!(waits, [ms(0), ms(0), ms(100), ms(200), ms(300)]);

    hands.advance(ms(150));
    let booked = limiter.reserve(2, Duration::MAX).unwrap();
    assert_eq!((booked.cost(), booked.wait()), (2, ms(350)));
    assert_eq!(booked.ready_at(), hands.now() + ms(350));
    assert_eq!(booked.decision().outcome, Outcome::AllowedAfter(ms(350)));
}

#[test]
fn a_booking_that_would_come_too_late_takes_nothing() {
    let (limiter, _) = everybody("10 per second burst 2");
    assert_eq!(limiter.decide(Op::Drain).granted, 2);
    let refused = limiter.reserve(2, ms(199)).unwrap_err();
    assert_eq!(refused.outcome, Outcome::Refused(Retry::After(ms(1))), "a millisecond later it would do");
    assert_eq!((refused.granted, refused.debt), (0, 0));
    assert_eq!(limiter.reserve(2, ms(200)).unwrap().wait(), ms(200));
}

#[test]
fn more_than_there_can_ever_be_cannot_be_booked_either() {
    let (limiter, _) = everybody("10 per second burst 2");
    assert_eq!(limiter.reserve(3, Duration::MAX).unwrap_err().outcome, Outcome::Refused(Retry::Never));
}

#[test]
fn a_cancelled_booking_brings_the_next_caller_forward() {
    let (limiter, _) = everybody("10 per second burst 1");
    let [_, first, second] = [(); 3].map(|()| book(&limiter));
    assert_eq!((first.wait(), second.wait()), (ms(100), ms(200)));
    assert_eq!(limiter.peek(1).debt, 2);
    assert_eq!(limiter.cancel(second), 1);
    assert_eq!(limiter.peek(1).debt, 1);
    assert_eq!(book(&limiter).wait(), ms(200), "and not 300 ms");
}

#[test]
fn a_booking_cancelled_in_front_of_another_is_not_sold_for_the_others_time() {
    let (limiter, _) = everybody("10 per second burst 1");
    let [_, first, second] = [(); 3].map(|()| book(&limiter));
    limiter.cancel(first);
    assert!(book(&limiter).wait() > second.wait());
}

#[test]
fn what_needed_no_wait_can_be_given_back_as_well() {
    for limit in limits_of_ten() {
        let (limiter, _) = started(RateLimiter::with_limit(limit));
        let booked = limiter.reserve(4, Duration::ZERO).unwrap();
        assert_eq!((booked.wait(), limiter.peek(1).remaining), (ms(0), 6), "{limit:?}");
        assert_eq!(limiter.cancel(booked), 4, "{limit:?}");
        assert_eq!(limiter.peek(1).remaining, 10, "{limit:?}");
    }
}

#[test]
fn a_booking_that_has_long_been_served_cannot_be_given_back() {
    for limit in limits_of_ten() {
        let (limiter, hands) = started(RateLimiter::with_limit(limit));
        let booked = limiter.reserve(10, Duration::ZERO).unwrap();
        hands.advance(secs(400_000));
        assert!(limiter.check(3).is_allowed(), "{limit:?}");
        assert_eq!(limiter.cancel(booked), 0, "{limit:?}");
        assert_eq!(limiter.peek(1).remaining, 7, "{limit:?}");
    }
}

#[test]
fn giving_back_never_lets_more_through_than_the_limit_promises() {
    let (limiter, hands) = everybody("10 per second burst 5");
    let mut used = 0;
    for round in 0..1_000 {
        let booked = book(&limiter);
        hands.advance(ms(round * 37 % 150));
        // Every other booking is used; the rest are given back, many of them late.
        match round % 2 {
            0 => used += 1,
            _ => drop(limiter.cancel(booked)),
        }
        used += limiter.decide(Op::TakeUpTo(5)).granted;
    }
    let elapsed = hands.now().as_nanos() / 100_000_000;
    assert!(used <= 5 + elapsed, "{used} were used where {} are promised", 5 + elapsed);
}

#[test]
fn clients_book_and_cancel_without_being_in_each_others_way() {
    let (limiter, hands) = each_client("10 per second burst 1");
    let reserve = |key: &str| limiter.reserve(key, 1, ms(500)).unwrap();
    let [_, alices] = [(); 2].map(|()| reserve("alice"));
    assert_eq!((alices.wait(), reserve("bob").wait()), (ms(100), ms(0)));
    assert_eq!(limiter.cancel("alice", alices), 1);
    assert_eq!(reserve("alice").wait(), ms(100));
    assert_eq!(reserve("bob").wait(), ms(100));

    assert!(limiter.reserve("alice", 1, ms(99)).is_err());
    hands.advance(secs(1));
    assert_eq!(reserve("alice").wait(), ms(0), "a refused booking left nothing behind");
}
