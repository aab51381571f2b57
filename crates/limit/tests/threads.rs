//! Many threads at once are let through exactly as one would be.
//!
//! Nothing here waits: threads begin together, at a time that all of them are told, and whoever is refused goes
//! on with the next request.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tollgate_limit::{Capacity, Cell, Limit, Op, Outcome, Quota, Table, Time};

const THREADS: [usize; 3] = [2, 4, 8];
const ROUNDS: u64 = 12;

/// Keys that are hashed in the same way in every run, so that a failure can be seen again.
fn table(keys: usize) -> Table {
    Table::new(Capacity::Keys(keys), &BuildHasherDefault::<DefaultHasher>::default())
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

/// Limits of about a hundred tokens and a second, by every algorithm that decides without a lock, and a log.
fn limits() -> Vec<Limit> {
    vec![
        Limit::token_bucket(quota("100 per second")),
        Limit::token_bucket(quota("70 per second burst 100")),
        Limit::token_bucket(quota("2_000_000_000 per second burst 100")),
        Limit::leaky_queue(quota("100 per second")),
        Limit::fixed_window(quota("100 per second")),
        Limit::cycles(quota("50 per second"), Duration::from_secs(2)),
        Limit::sliding_window(quota("100 per second")),
        Limit::sliding_log(quota("100 per second")),
    ]
}

/// Times at which all of the limit is there, some of it and none.
fn now_of(round: u64) -> Time {
    let pauses = [0, 370, 0, 10, 630, 1_003, 1, 251, 2_900, 420, 333, 0];
    let millis: u64 = pauses.iter().cycle().take(round as usize + 1).sum();
    Time::from_nanos(1_794_700_800_000_000_000) + Duration::from_millis(millis)
}

/// Runs `work` in so many threads that begin together, and adds up what they return.
fn together(threads: usize, work: impl Fn(usize) -> u64 + Sync) -> u64 {
    let begin = Barrier::new(threads);
    thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|thread| {
                let (begin, work) = (&begin, &work);
                scope.spawn(move || {
                    begin.wait();
                    work(thread)
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// What one thread alone is let through in every round that takes one token at a time until it is refused.
fn alone(limit: &Limit) -> Vec<u64> {
    let cell = Cell::default();
    let take = |now| cell.decide(limit, Op::Take(1), now).is_allowed();
    (0..ROUNDS).map(|round| (0..).take_while(|_| take(now_of(round))).count() as u64).collect()
}

#[test]
fn one_thread_alone_is_let_through_what_the_textbook_says() {
    // A hundred at first, then one every ten milliseconds, and never more than a hundred.
    let admitted = alone(&Limit::token_bucket(quota("100 per second")));
    assert_eq!(admitted, [100, 37, 0, 1, 63, 100, 0, 25, 100, 42, 33, 0]);
    let admitted = alone(&Limit::fixed_window(quota("100 per second")));
    assert_eq!(admitted, [100, 0, 0, 0, 100, 100, 0, 0, 100, 0, 0, 0]);
    let admitted = alone(&Limit::sliding_log(quota("100 per second")));
    assert_eq!(admitted, [100, 0, 0, 0, 100, 100, 0, 0, 100, 0, 0, 0]);
}

#[test]
fn threads_share_a_cell_to_the_token() {
    for (limit, threads) in limits().iter().flat_map(|limit| THREADS.map(|threads| (limit, threads))) {
        let cell = Cell::default();
        for (round, expected) in (0..).zip(alone(limit)) {
            let admitted = together(threads, |thread| {
                let take = |attempt: usize| match (thread + attempt) % 2 {
                    0 => cell.allow(limit, 1, now_of(round)),
                    _ => cell.decide(limit, Op::Take(1), now_of(round)).is_allowed(),
                };
                (0..200).filter(|attempt| take(*attempt)).count() as u64
            });
            assert_eq!(admitted, expected, "{threads} threads in round {round} by {limit:?}");
        }
    }
}

#[test]
fn threads_share_one_key_of_a_table_to_the_token() {
    for (limit, threads) in limits().iter().flat_map(|limit| THREADS.map(|threads| (limit, threads))) {
        let table = table(100);
        for (round, expected) in (0..).zip(alone(limit)) {
            let admitted = together(threads, |thread| {
                let take = |attempt: usize| match (thread + attempt) % 2 {
                    0 => table.allow("key", limit, 1, now_of(round)),
                    _ => table.decide("key", limit, Op::Take(1), now_of(round)).is_allowed(),
                };
                (0..200).filter(|attempt| take(*attempt)).count() as u64
            });
            assert_eq!(admitted, expected, "{threads} threads in round {round} by {limit:?}");
        }
    }
}

/// Few enough tokens that a thousand keys are soon exhausted.
fn small_limits() -> Vec<Limit> {
    vec![
        Limit::token_bucket(quota("5 per second")),
        Limit::fixed_window(quota("5 per second")),
        Limit::sliding_window(quota("5 per second")),
        Limit::sliding_log(quota("5 per second")),
    ]
}

#[test]
fn threads_share_a_thousand_keys_of_a_table_to_the_token() {
    const KEYS: usize = 1_000;
    for (limit, threads) in small_limits().iter().flat_map(|limit| THREADS.map(|threads| (limit, threads))) {
        let table = table(10 * KEYS);
        for (round, expected) in (0..).zip(alone(limit)) {
            let admitted = together(threads, |thread| {
                // Each begins elsewhere, so that they meet.
                let keys = (0..3 * KEYS).map(|attempt| (attempt + thread * KEYS / 7) % KEYS);
                keys.filter(|key| table.allow(key, limit, 1, now_of(round))).count() as u64
            });
            assert_eq!(admitted, expected * KEYS as u64, "{threads} threads in round {round} by {limit:?}");
        }
        assert_eq!(table.forgotten().clients, 0, "there is room for all");
    }
}

#[test]
fn a_full_table_lets_through_no_more_than_it_says_it_forgot() {
    const KEYS: usize = 2_000;
    const BURST: u64 = 5;
    let limit = Limit::token_bucket(quota("5 per second"));
    for threads in THREADS {
        let table = table(KEYS / 20);
        for round in 0..ROUNDS / 2 {
            let forgiven_before = table.forgotten().owed;
            let admitted = together(threads, |thread| {
                let keys = (0..2 * KEYS).map(|attempt| (attempt * 7 + thread * KEYS / 3) % KEYS);
                keys.filter(|key| table.allow(key, &limit, 1, now_of(round))).count() as u64
            });
            // A token takes a fifth of a second.
            let forgiven = table.forgotten().owed - forgiven_before;
            let forgiven = forgiven.as_nanos().div_ceil(Duration::from_millis(200).as_nanos());
            let bound = KEYS as u128 * u128::from(BURST) + forgiven;
            assert!(
                u128::from(admitted) <= bound,
                "{admitted} of {bound}, {forgiven} of them forgiven, by {threads} threads"
            );
        }
    }
}

/// Books and gives back; checks at every moment that no more is held than there is.
fn book_and_cancel(limit: &Limit, cell: &Cell, held: &AtomicU64, seed: usize, now: Time) -> u64 {
    let mut kept = 0;
    for step in 0..300_usize {
        let cost = 1 + (step * 7 + seed) as u64 % 9;
        let Ok(booking) = cell.reserve(limit, cost, Duration::ZERO, now) else { continue };
        assert_eq!(booking.decision().outcome, Outcome::Allowed);
        let holds = held.fetch_add(cost, Ordering::SeqCst) + cost;
        assert!(holds <= limit.most(), "{holds} are held by {limit:?}");
        if (step + seed).is_multiple_of(5) {
            kept += cost;
            continue;
        }
        // Let go before it is given back: in between somebody else may have it already.
        held.fetch_sub(cost, Ordering::SeqCst);
        cell.cancel(limit, booking, now);
    }
    kept
}

#[test]
fn threads_that_book_and_cancel_never_hold_more_than_there_is() {
    for (limit, threads) in limits().iter().flat_map(|limit| THREADS.map(|threads| (limit, threads))) {
        let (cell, held) = (Cell::default(), AtomicU64::new(0));
        let kept = together(threads, |seed| book_and_cancel(limit, &cell, &held, seed, now_of(0)));
        let left = cell.decide(limit, Op::Peek(0), now_of(0)).remaining;
        assert!(kept + left <= limit.most(), "{kept} kept and {left} left by {threads} threads and {limit:?}");
    }
}

#[test]
fn threads_that_book_ahead_and_cancel_keep_to_the_rate() {
    for threads in THREADS {
        let limit = Limit::token_bucket(quota("100 per second"));
        let cell = Cell::default();
        let latest = AtomicU64::new(0);
        let kept = together(threads, |seed| {
            let mut kept = 0;
            for step in 0..200_usize {
                let cost = 1 + (step * 5 + seed) as u64 % 7;
                let Ok(booking) = cell.reserve(&limit, cost, Duration::from_secs(3), now_of(0)) else { continue };
                if (step + seed).is_multiple_of(3) {
                    cell.cancel(&limit, booking, now_of(0));
                    continue;
                }
                kept += cost;
                latest.fetch_max(booking.ready_at().since(now_of(0)).as_nanos() as u64, Ordering::SeqCst);
            }
            kept
        });
        // A hundred at once, and one every ten milliseconds until the last one goes.
        let bound = 100 + latest.into_inner() / 10_000_000;
        assert!(kept <= bound, "{kept} of {bound} by {threads} threads");
    }
}

#[test]
fn keys_that_displace_others_are_limited_to_the_token_all_the_same() {
    const BURST: u64 = 20;
    let limit = Limit::token_bucket(quota("20 per second"));
    for (threads, round) in THREADS.iter().flat_map(|threads| (0..12).map(move |round| (*threads, round))) {
        let table = table(1);
        // Everyone in the table owes half a bucket, and each new key takes the place of one.
        (0..200).for_each(|filler| _ = table.allow(&("filler", round, filler), &limit, BURST / 2, now_of(0)));
        for key in 0..30 {
            let admitted = together(threads, |_| {
                let take = |_: &u64| table.allow(&("key", round, key), &limit, 1, now_of(0));
                (0..BURST + 5).filter(take).count() as u64
            });
            assert!(admitted <= BURST, "{admitted} of {BURST} by {threads} threads for key {key} of round {round}");
        }
        assert!(table.forgotten().clients > 100, "there is not room for all");
    }
}

#[test]
fn who_floods_a_table_with_keys_frees_nobody_who_is_limited() {
    let limit = Limit::token_bucket(quota("100 per second"));
    for threads in THREADS {
        let table = table(40);
        assert!(table.allow("limited", &limit, 100, now_of(0)));
        let freed = together(threads, |thread| {
            let flood = (0..5_000).map(|key| table.allow(&(thread, key), &limit, 1, now_of(0)));
            flood.filter(|_| table.allow("limited", &limit, 1, now_of(0))).count() as u64
        });
        assert_eq!(freed, 0, "by {threads} threads");
        assert!(table.forgotten().clients > 10_000 / 2, "there is not room for all");
    }
}
