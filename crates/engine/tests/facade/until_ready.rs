//! Waiting without blocking, on whatever polls the future.

mod executors;

use crate::waiting::real_clocks;
use crate::{each_client, everybody, ms, quota, secs};
use executors::{Tasks, Wakes, block_on, poll, poll_in_wake};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;
use tollgate::{Clock, Op, RateLimiter, Time};

#[test]
fn who_finds_tokens_is_ready_at_the_first_poll() {
    let (limiter, _) = everybody("10 per second");
    let Poll::Ready(Ok(decision)) = poll(pin!(limiter.until_ready(4, Duration::ZERO))) else { panic!("not ready") };
    assert_eq!(decision.remaining, 6);
}

#[test]
fn futures_become_ready_in_the_order_in_which_they_came_and_at_their_time() {
    let (limiter, hands) = everybody("10 per second burst 1");
    let mut tasks = Tasks::default();
    for number in 0..20_u32 {
        let (limiter, hands) = (&limiter, &hands);
        tasks.spawn(async move {
            assert!(limiter.until_ready(1, Duration::MAX).await.is_ok());
            (number, hands.now())
        });
    }
    let mut finished = tasks.run();
    for _ in 0..200 {
        hands.advance(ms(10));
        finished.extend(tasks.run());
    }
    let right: Vec<_> = (0..20).map(|number| (number, Time::ZERO + ms(100) * number)).collect();
    assert_eq!(finished, right);
}

#[test]
fn a_light_request_does_not_overtake_a_heavy_one_that_came_before() {
    let (limiter, hands) = everybody("10 per second");
    assert_eq!(limiter.decide(Op::Drain).granted, 10);
    let (mut heavy, mut light) = (pin!(limiter.until_ready(9, secs(2))), pin!(limiter.until_ready(1, secs(2))));
    assert!(poll(heavy.as_mut()).is_pending());
    assert!(poll(light.as_mut()).is_pending());
    hands.advance(ms(899));
    assert!(poll(light.as_mut()).is_pending() && poll(heavy.as_mut()).is_pending());
    hands.advance(ms(1));
    assert!(poll(light.as_mut()).is_pending() && poll(heavy.as_mut()).is_ready());
    hands.advance(ms(100));
    assert!(poll(light).is_ready());
}

#[test]
fn a_deadline_that_cannot_be_met_is_refused_at_once_and_takes_nothing() {
    let (limiter, _) = everybody("10 per second burst 1");
    assert!(limiter.allow());
    let mut first = pin!(limiter.until_ready(1, ms(100)));
    assert!(poll(first.as_mut()).is_pending());
    let Poll::Ready(Err(refused)) = poll(pin!(limiter.until_ready(1, ms(199)))) else { panic!("not refused") };
    assert_eq!((refused.retry_after(), refused.granted), (Some(ms(1)), 0));
    assert_eq!(limiter.peek(1).debt, 1, "the first one's and nobody else's");
    assert!(poll(pin!(limiter.until_ready(1, ms(200)))).is_pending());
}

#[test]
fn a_dropped_future_gives_its_place_back() {
    let (limiter, _) = everybody("10 per second burst 1");
    assert!(limiter.allow());
    let mut first = Box::pin(limiter.until_ready(1, secs(1)));
    let mut second = Box::pin(limiter.until_ready(1, secs(1)));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    assert_eq!(limiter.peek(1).retry_after(), Some(ms(300)));
    drop(second);
    assert_eq!(limiter.peek(1).retry_after(), Some(ms(200)), "the next caller's wait shrinks");
    drop(first);
    assert_eq!((limiter.peek(1).retry_after(), limiter.peek(1).debt), (Some(ms(100)), 0));
}

#[test]
fn a_future_dropped_in_front_of_another_leaves_that_one_its_time() {
    let (limiter, hands) = everybody("10 per second burst 1");
    assert!(limiter.allow());
    let mut first = Box::pin(limiter.until_ready(1, secs(1)));
    let mut second = pin!(limiter.until_ready(1, secs(1)));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    drop(first);
    hands.advance(ms(199));
    assert!(poll(second.as_mut()).is_pending());
    hands.advance(ms(1));
    assert!(poll(second).is_ready());
    assert!(!limiter.allow(), "nobody else goes at the same time");
}

#[test]
fn a_future_dropped_when_its_time_has_come_but_before_it_knew_loses_nothing() {
    let (limiter, hands) = everybody("10 per second burst 1");
    assert!(limiter.allow());
    let mut late = Box::pin(limiter.until_ready(1, secs(1)));
    assert!(poll(late.as_mut()).is_pending());
    hands.advance(ms(100));
    drop(late);
    assert!(limiter.allow());
}

#[test]
fn a_future_that_was_never_polled_takes_nothing() {
    let (limiter, _) = everybody("10 per second burst 1");
    drop(limiter.until_ready(1, secs(1)));
    assert!(limiter.allow());
}

#[test]
fn a_future_that_was_ready_keeps_what_it_got() {
    let (limiter, hands) = everybody("10 per second burst 1");
    assert!(limiter.allow());
    {
        let mut ready = pin!(limiter.until_ready(1, secs(1)));
        assert!(poll(ready.as_mut()).is_pending());
        hands.advance(ms(100));
        assert!(poll(ready.as_mut()).is_ready());
    }
    assert_eq!(limiter.peek(1).remaining, 0);
}

#[test]
fn clients_queue_up_each_for_itself() {
    let (limiter, hands) = each_client("10 per second burst 1");
    let key = String::from("alice");
    assert!(limiter.allow(&key));
    let mut alice = Box::pin(limiter.until_ready(&key, 1, secs(1)));
    assert!(poll(alice.as_mut()).is_pending());
    assert!(poll(pin!(limiter.until_ready("bob", 1, Duration::ZERO))).is_ready());
    assert!(poll(pin!(limiter.until_ready("alice", 1, ms(199)))).is_ready(), "refused");

    drop(alice);
    let mut next = pin!(limiter.until_ready("alice", 1, ms(100)));
    assert!(poll(next.as_mut()).is_pending());
    hands.advance(ms(100));
    assert!(poll(next).is_ready());
}

#[test]
fn a_task_is_woken_when_the_clock_is_moved_and_only_then() {
    let (limiter, hands) = everybody("10 per second burst 1");
    assert!(limiter.allow());
    let wakes = Arc::new(Wakes::default());
    let mut waiting = pin!(limiter.until_ready(1, secs(1)));
    assert!(wakes.poll(waiting.as_mut()).is_pending());
    assert!(wakes.poll(waiting.as_mut()).is_pending());
    assert_eq!(wakes.count(), 0);
    hands.advance(ms(100));
    assert_eq!(wakes.count(), 1, "once, however often it was polled");
    assert!(wakes.poll(waiting).is_ready());
}

#[test]
fn a_future_may_move_to_another_task_between_two_polls() {
    let (limiter, hands) = everybody("10 per second burst 1");
    assert!(limiter.allow());
    let (before, after) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
    let mut waiting = pin!(limiter.until_ready(1, secs(1)));
    assert!(before.poll(waiting.as_mut()).is_pending());
    assert!(after.poll(waiting.as_mut()).is_pending());
    hands.advance(ms(100));
    assert_eq!(after.count(), 1, "the task that polled last is the one to wake");
}

#[test]
fn a_thread_that_parks_is_woken_by_another_that_moves_the_clock() {
    let (limiter, hands) = everybody("10 per second burst 1");
    assert!(limiter.allow());
    thread::scope(|scope| {
        let parked = scope.spawn(|| block_on(limiter.until_ready(1, secs(1))));
        while limiter.peek(1).debt == 0 {
            thread::yield_now();
        }
        hands.advance(ms(100));
        assert!(parked.join().unwrap().is_ok());
    });
}

#[test]
fn an_executor_that_polls_as_soon_as_it_is_woken_does_not_block_the_clock() {
    let (limiter, hands) = everybody("10 per second burst 1");
    let limiter = Arc::new(limiter);
    assert!(limiter.allow());
    let (done, finished) = mpsc::channel();
    poll_in_wake(async move { done.send(limiter.until_ready(1, secs(1)).await.is_ok()).unwrap() });
    // On a thread of its own, so that the test ends even if the clock never comes back.
    thread::spawn(move || hands.advance(ms(100)));
    assert_eq!(finished.recv_timeout(secs(10)), Ok(true));
}

#[test]
fn the_futures_can_be_spawned_on_other_threads() {
    fn is_send<F: Send>(future: F) -> F {
        future
    }
    let (limiter, _) = everybody("10 per second");
    let (keyed, _) = each_client("10 per second");
    assert!(block_on(is_send(limiter.until_ready(1, secs(1)))).is_ok());
    assert!(block_on(is_send(keyed.until_ready("alice", 1, secs(1)))).is_ok());
}

#[test]
fn on_the_clocks_of_the_machine_waiting_takes_real_time() {
    for clock in real_clocks() {
        let stopwatch = Clock::system();
        let limiter = RateLimiter::builder(quota("1000 per second burst 1")).clock(clock).build();
        let start = stopwatch.now();
        block_on(async {
            for _ in 0..4 {
                assert!(limiter.until_ready(1, secs(60)).await.is_ok());
            }
        });
        let took = stopwatch.now().since(start);
        assert!(took >= ms(2), "three tokens of a millisecond each took {took:?} on {limiter:?}");
    }
}
