//! Blocking until it is one's turn.

use crate::{each_client, everybody, ms, quota, secs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tollgate::{Clock, Op, Outcome, RateLimiter};

#[test]
fn who_finds_tokens_does_not_wait() {
    let (limiter, _) = everybody("10 per second");
    assert_eq!(limiter.wait(10, Duration::ZERO).unwrap().remaining, 0);
}

#[test]
fn who_would_wait_too_long_is_refused_at_once_and_takes_nothing() {
    let (limiter, _) = everybody("10 per second");
    assert_eq!(limiter.decide(Op::Drain).granted, 10);
    // Nobody moves this clock: had it waited, it would wait still.
    let refused = limiter.wait(3, ms(299)).unwrap_err();
    assert_eq!((refused.retry_after(), refused.debt), (Some(ms(1)), 0));

    let (keyed, _) = each_client("10 per second");
    assert!(keyed.wait("alice", 10, Duration::ZERO).is_ok());
    assert_eq!(keyed.wait("alice", 3, ms(299)).unwrap_err().retry_after(), Some(ms(1)));
    assert!(keyed.wait("bob", 3, ms(299)).is_ok());
}

#[test]
fn who_waits_goes_on_when_the_clock_says_so_and_not_before() {
    let (limiter, hands) = everybody("10 per second burst 1");
    assert!(limiter.allow());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let decision = limiter.wait(1, secs(1)).unwrap();
            (decision.outcome, hands.now())
        });
        until(|| limiter.peek(1).debt == 1);
        let start = hands.now();
        for _ in 0..10 {
            assert!(!waiter.is_finished(), "its time has not come");
            hands.advance(ms(10));
        }
        let (outcome, went_on) = waiter.join().unwrap();
        assert_eq!((outcome, went_on), (Outcome::AllowedAfter(ms(100)), start + ms(100)));
    });
}

#[test]
fn threads_that_wait_go_on_in_the_order_in_which_they_came() {
    let (limiter, hands) = each_client("10 per second burst 1");
    assert!(limiter.allow("alice"));
    let (done, order) = mpsc::channel();
    thread::scope(|scope| {
        for number in 1..=5 {
            let (limiter, done) = (&limiter, done.clone());
            scope.spawn(move || {
                assert!(limiter.wait("alice", 1, secs(1)).is_ok());
                done.send(number).unwrap();
            });
            until(|| limiter.peek("alice", 1).debt == number);
        }
        for number in 1..=5 {
            assert!(order.try_recv().is_err(), "one per step of the clock");
            hands.advance(ms(100));
            assert_eq!(order.recv().unwrap(), number);
        }
    });
}

#[test]
fn on_the_clocks_of_the_machine_waiting_takes_real_time() {
    for clock in real_clocks() {
        let stopwatch = Clock::system();
        let limiter = RateLimiter::builder(quota("1000 per second burst 1")).clock(clock).build();
        let start = stopwatch.now();
        (0..4).for_each(|_| assert!(limiter.wait(1, secs(60)).is_ok()));
        let took = stopwatch.now().since(start);
        assert!(took >= ms(2), "three tokens of a millisecond each took {took:?} on {limiter:?}");
    }
}

/// The clocks that run by themselves. The fast one may be off by a few parts in a million, the cached one by
/// the interval at which it is read.
pub(crate) fn real_clocks() -> Vec<Clock> {
    vec![Clock::system(), Clock::default(), Clock::cached(Duration::from_micros(200))]
}

/// Lets other threads run until they have brought something about.
fn until(happened: impl Fn() -> bool) {
    while !happened() {
        thread::yield_now();
    }
}
