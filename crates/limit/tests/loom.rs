//! Every order in which two threads can run, tried one by one:
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p tollgate-limit --test loom
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;
use tollgate_limit::{Capacity, Cell, Limit, Op, Table, Time};

const NOW: Time = Time::from_nanos(1_000_000_000_000);

fn explore(test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(test);
}

fn limit(quota: &str) -> Limit {
    Limit::token_bucket(quota.parse().unwrap())
}

fn table() -> Table {
    Table::new(Capacity::Keys(1), &BuildHasherDefault::<DefaultHasher>::default())
}

#[test]
fn two_takers_of_a_cell_get_no_more_than_it_holds() {
    explore(|| {
        let limit = limit("3 per hour");
        let cell = Arc::new(Cell::new(&limit, NOW));
        let other = Arc::clone(&cell);
        let taker = thread::spawn(move || (0..2).filter(|_| other.allow(&limit, 1, NOW)).count());
        let taken = (0..2).filter(|_| cell.allow(&limit, 1, NOW)).count();
        assert_eq!(taken + taker.join().unwrap(), 3);
    });
}

#[test]
fn a_refund_races_with_a_take_and_neither_is_lost() {
    explore(|| {
        let limit = limit("2 per hour");
        let cell = Arc::new(Cell::new(&limit, NOW));
        let booked = cell.reserve(&limit, 1, Duration::ZERO, NOW).unwrap();
        let other = Arc::clone(&cell);
        let taker = thread::spawn(move || other.decide(&limit, Op::TakeUpTo(2), NOW).granted);
        assert_eq!(cell.cancel(&limit, booked, NOW), 1);
        let taken = taker.join().unwrap();
        assert_eq!(cell.decide(&limit, Op::Peek(0), NOW).remaining, 2 - taken);
    });
}

#[test]
fn two_cancellations_give_back_no_more_than_was_booked() {
    explore(|| {
        let limit = limit("4 per second burst 2");
        let cell = Arc::new(Cell::new(&limit, NOW));
        let first = cell.reserve(&limit, 2, Duration::ZERO, NOW).unwrap();
        let second = cell.reserve(&limit, 1, Duration::from_secs(1), NOW).unwrap();
        // A quarter of a second later a token has dripped in: the first token of the first booking is served.
        let later = NOW + Duration::from_millis(250);
        let other = Arc::clone(&cell);
        let canceller = thread::spawn(move || other.cancel(&limit, first, later));
        let back = cell.cancel(&limit, second, later) + canceller.join().unwrap();
        assert!(back <= 2, "one of three tokens was served, {back} came back");
    });
}

#[test]
fn two_threads_that_settle_the_same_key_share_one_bucket() {
    explore(|| {
        let limit = limit("1 per hour");
        let table = Arc::new(table());
        let other = Arc::clone(&table);
        let taker = thread::spawn(move || other.allow("new", &limit, 1, NOW));
        let both = [table.allow("new", &limit, 1, NOW), taker.join().unwrap()];
        assert_eq!(both.iter().filter(|allowed| **allowed).count(), 1);
    });
}

#[test]
fn a_key_whose_slot_changes_hands_loses_no_charge() {
    // Which slot a newcomer takes over is up to the hash; among so many pairs some meet in one.
    for old in OLD_KEYS {
        for new in ["e", "f", "g", "h", "i", "j"] {
            explore(move || an_old_key_meets_a_new_one(old, new));
        }
    }
}

#[test]
fn two_threads_that_displace_a_key_for_the_same_new_one_share_its_bucket() {
    explore(|| {
        // Every slot owes half a bucket, so that there is room to charge it before it is written anew.
        let (limit, table) = (limit("2 per second"), Arc::new(table()));
        for key in OLD_KEYS {
            assert!(table.allow(key, &limit, 1, NOW));
        }
        let other = Arc::clone(&table);
        let taker = thread::spawn(move || (0..2).filter(|_| other.allow("e", &limit, 1, NOW)).count());
        let taken = usize::from(table.allow("e", &limit, 1, NOW)) + taker.join().unwrap();
        assert!(taken <= 2, "{taken} of 2");
    });
}

#[test]
fn two_newcomers_meet_an_old_key_and_all_charges_are_kept() {
    for old in OLD_KEYS {
        explore(move || {
            let (limit, table) = (limit("1 per second"), Arc::new(full_table()));
            let newcomers = ["e", "f"].map(|new| {
                let table = Arc::clone(&table);
                thread::spawn(move || (new, table.allow(new, &limit, 1, LATER)))
            });
            let mut allowed = vec![(old, table.allow(old, &limit, 1, LATER))];
            allowed.extend(newcomers.map(|newcomer| newcomer.join().unwrap()));
            for (key, allowed) in allowed {
                assert!(!allowed || !table.allow(key, &limit, 1, LATER), "the charge of {key} is kept");
            }
        });
    }
}

const OLD_KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// Two seconds later a limit of one per second has forgotten what was taken now.
const LATER: Time = Time::from_nanos(1_002_000_000_000);

/// As many buckets as there are slots; all are full again later, and so free to be taken over.
fn full_table() -> Table {
    let (limit, table) = (limit("1 per second"), table());
    for key in OLD_KEYS {
        assert!(table.allow(key, &limit, 1, NOW));
    }
    table
}

fn an_old_key_meets_a_new_one(old: &'static str, new: &'static str) {
    let (limit, table) = (limit("1 per second"), Arc::new(full_table()));
    let other = Arc::clone(&table);
    let newcomer = thread::spawn(move || other.allow(new, &limit, 1, LATER));
    let old_allowed = table.allow(old, &limit, 1, LATER);
    let new_allowed = newcomer.join().unwrap();
    // Where both go for one slot, one of them may see the other's charge and be refused, never the contrary.
    assert!(old_allowed || new_allowed);
    assert!(!old_allowed || !table.allow(old, &limit, 1, LATER), "the charge of the old key is kept");
    assert!(!new_allowed || !table.allow(new, &limit, 1, LATER), "the charge of the new key is kept");
    assert_eq!(table.forgotten().clients, 0);
}
