//! H1: a library inside the service process, asked by all of its threads.

use crate::{each_client, everybody, limits_of_ten, ms, started, started_keyed};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use tollgate::{KeyedRateLimiter, RateLimiter};

const THREADS: u64 = 4;

/// Runs the same on several threads, and adds up what they return.
fn together(work: impl Fn(u64) -> u64 + Sync) -> u64 {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn({
                    let work = &work;
                    move || work(number)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

#[test]
fn h1_a_limiter_in_a_static_is_shared_by_all_threads_of_the_process() {
    static LIMITER: LazyLock<RateLimiter> = LazyLock::new(|| everybody("1000 per hour").0);
    let admitted = together(|_| (0..1_000).map(|_| u64::from(LIMITER.allow())).sum());
    assert_eq!(admitted, 1_000);
}

#[test]
fn h1_a_limiter_in_an_arc_goes_wherever_the_service_takes_it() {
    let limiter = Arc::new(each_client("1000 per hour").0);
    let threads = [(); 4].map(|()| {
        let limiter = Arc::clone(&limiter);
        thread::spawn(move || (0..1_000).filter(|_| limiter.allow("alice")).count())
    });
    let admitted: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(admitted, 1_000);
}

#[test]
fn h1_however_many_threads_ask_each_algorithm_gives_out_its_tokens_once() {
    for limit in limits_of_ten() {
        for _ in 0..50 {
            let (limiter, _) = started(RateLimiter::with_limit(limit));
            assert_eq!(together(|_| (0..10).map(|_| u64::from(limiter.allow())).sum()), 10, "{limit:?}");
        }
    }
}

#[test]
fn h1_however_many_threads_ask_each_client_gets_its_tokens_once() {
    for limit in limits_of_ten() {
        let (limiter, _) = started_keyed(KeyedRateLimiter::with_limit(limit));
        let clients = 0..200_u64;
        let admitted = together(|thread| {
            // Each thread begins elsewhere, so that all of them meet new clients first.
            let ask = |request: u64| u64::from(limiter.allow(&((request + thread * 50) % clients.end)));
            (0..20 * clients.end).map(ask).sum()
        });
        assert_eq!(admitted, 10 * clients.end, "{limit:?}");
    }
}

#[test]
fn h1_while_the_clock_runs_threads_together_get_the_burst_and_the_rate() {
    let (limiter, hands) = everybody("1000 per second burst 50");
    let steps = AtomicU64::new(0);
    let admitted = together(|thread| {
        let mut admitted = 0;
        while steps.load(Ordering::Relaxed) < 1_000 {
            if thread == 0 {
                hands.advance(ms(1));
                steps.fetch_add(1, Ordering::Relaxed);
            }
            admitted += u64::from(limiter.allow());
        }
        admitted
    });
    // The thread that moves the clock takes what comes in itself, if nobody else does.
    assert!((1_000..=1_050).contains(&admitted), "{admitted}");
}
