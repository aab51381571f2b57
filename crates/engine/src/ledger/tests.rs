use super::*;
use std::sync::atomic::{AtomicI64, AtomicUsize};
use std::thread;
use std::time::Duration;
use tollgate_limit::Limit;
use tollgate_rules::model::{ErrorBudget, Shared};

fn account(fingerprint: u64) -> Account {
    Account {
        limit_id: 1,
        client: Box::from(fingerprint.to_be_bytes()),
        limit: Limit::token_bucket("10 per second".parse().unwrap()),
        shared: Shared::Store,
        error_budget: ErrorBudget::default(),
        counts_here: true,
        fingerprint,
    }
}

fn entry(fingerprint: u64) -> Entry {
    account(fingerprint).entry()
}

fn open(ledger: &Ledger, fingerprint: u64) -> AccountId {
    ledger.open(entry(fingerprint), || Some(account(fingerprint))).unwrap()
}

fn loan(tokens: u64, until: u64) -> Loan {
    Loan { tokens, until: Time::from_nanos(until), left: 7, full_at: Time::from_nanos(90) }
}

#[test]
fn a_bucket_has_one_account_until_it_is_closed() {
    let ledger = Ledger::new(100);
    let id = open(&ledger, 5);
    assert_eq!(open(&ledger, 5), id);
    assert_ne!(open(&ledger, 6), id);
    assert_eq!(*ledger.account(id).unwrap(), account(5));
    assert!(ledger.spend(id, 3));
    assert!(!ledger.close(id), "there is something in it");
    assert_eq!(ledger.take_untold(id), 3);
    assert!(ledger.close(id));
    assert!(ledger.account(id).is_none());
    assert!(!ledger.spend(id, 1), "it is nobody's any more");
    ledger.spend_of(entry(5), 2, || Some(account(5)));
    assert_eq!(ledger.tokens(open(&ledger, 5)), 2);
}

#[test]
fn somebody_is_called_once_from_the_threshold_on() {
    let ledger = Ledger::new(100);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    ledger.on_urgent(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let id = open(&ledger, 5);
    ledger.spend(id, 1);
    assert_eq!((calls.load(Ordering::Relaxed), ledger.take_urgent()), (1, vec![id]), "nothing is known of it yet");
    assert_eq!(ledger.take_touched(), [id]);
    assert_eq!(ledger.take_untold(id), 1);
    ledger.call_when_spent(id, 10);
    for _ in 0..9 {
        ledger.spend(id, 1);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    ledger.spend(id, 5);
    ledger.spend(id, 5);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert_eq!((ledger.take_touched(), ledger.take_touched()), (vec![id], vec![]));
    ledger.take_urgent();
    ledger.call_when_spent(id, 30);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    ledger.call_when_spent(id, 19);
    assert_eq!((calls.load(Ordering::Relaxed), ledger.take_urgent()), (3, vec![id]), "they were spent before");
}

fn drawn(ledger: &Ledger, id: AccountId, cost: u64, now: Time) -> Option<Decision> {
    match ledger.draw(id, cost, now) {
        Hand::Enough(decision) => Some(decision),
        Hand::Refused(_) | Hand::Empty => None,
    }
}

#[test]
fn tokens_in_hand_are_drawn_until_their_time_runs_out() {
    let (ledger, now) = (Ledger::new(100), Time::from_nanos(50));
    let id = open(&ledger, 5);
    assert_eq!(ledger.draw(id, 1, now), Hand::Empty);
    ledger.want(id, 1);
    ledger.lend(id, loan(10, 60), now);
    assert!(matches!(ledger.look(id, 10, now), Hand::Enough(_)));
    let Hand::Enough(seen) = ledger.look(id, 10, now) else { panic!("there are ten") };
    assert_eq!(seen.granted, 0, "nothing was taken that could be given back");
    let four = drawn(&ledger, id, 4, now).unwrap();
    assert_eq!((four.granted, four.remaining, four.reset_after), (4, 13, Duration::from_nanos(40)));
    assert_eq!(drawn(&ledger, id, 7, now), None);
    ledger.put_back(entry(5), 1);
    assert!(drawn(&ledger, id, 7, now).is_some());
    assert_eq!(ledger.take_wanted(id), 1 + 4 + 7);
    ledger.lend(id, loan(10, 60), now);
    assert_eq!(drawn(&ledger, id, 1, Time::from_nanos(60)), None);
    assert_eq!(ledger.take_back(id, Time::from_nanos(60)), 0);
    ledger.lend(id, loan(10, 90), Time::from_nanos(60));
    assert_eq!(ledger.tokens(id), 10, "what was there before has lapsed");
    assert_eq!(ledger.take_back(id, Time::from_nanos(61)), 10);
}

#[test]
fn nobody_asks_again_before_there_can_be_tokens() {
    let (ledger, now) = (Ledger::new(100), Time::from_nanos(50));
    let id = open(&ledger, 5);
    ledger.refuse(id, Time::from_nanos(80), Time::from_nanos(90));
    let Hand::Refused(decision) = ledger.draw(id, 1, now) else { panic!("it is known to refuse") };
    assert_eq!(decision.retry_after(), Some(Duration::from_nanos(30)));
    assert_eq!(decision.reset_after, Duration::from_nanos(40));
    assert_eq!(ledger.draw(id, 1, Time::from_nanos(80)), Hand::Empty);
}

#[test]
fn what_is_owed_keeps_an_account_open() {
    let ledger = Ledger::new(100);
    ledger.owe(entry(5), 7, || Some(account(5)));
    let id = ledger.find(entry(5)).unwrap();
    assert!(!ledger.close(id));
    assert_eq!((ledger.take_touched(), ledger.take_owed(id), ledger.take_owed(id)), (vec![id], 7, 0));
    assert!(ledger.close(id));
    assert_eq!(ledger.find(entry(5)), None);
}

#[test]
fn what_is_being_paid_counts_as_owed_until_it_is_known_to_be_paid() {
    let ledger = Ledger::new(100);
    ledger.on_urgent(|| {});
    ledger.owe(entry(5), 7, || Some(account(5)));
    let id = ledger.find(entry(5)).unwrap();
    for (unpaid, is_owing) in [(7, true), (0, false)] {
        assert_eq!(ledger.take_to_pay(id), 7);
        assert!(ledger.owes(entry(5)) && !ledger.is_owing(id));
        ledger.paid(id, unpaid);
        assert_eq!((ledger.owes(entry(5)), ledger.is_owing(id)), (is_owing, is_owing));
    }
    assert!(ledger.close(id));
}

#[test]
fn a_bucket_that_is_shared_in_another_way_has_another_account() {
    let ledger = Ledger::new(100);
    let lease = Account { shared: Shared::StoreLease, ..account(5) };
    let (told, lent) = (open(&ledger, 5), ledger.open(lease.entry(), || Some(lease.clone())).unwrap());
    assert_ne!(told, lent);
    ledger.lend(lent, loan(10, 60), Time::ZERO);
    ledger.spend_of(entry(5), 3, || Some(account(5)));
    assert_eq!((ledger.take_untold(told), ledger.tokens(lent)), (3, 10));
}

#[test]
fn what_is_given_back_after_an_account_was_closed_is_told() {
    let ledger = Ledger::new(100);
    let id = open(&ledger, 5);
    assert!(ledger.close(id));
    ledger.give_back(&account(5), 4);
    ledger.charge(&account(5), 1);
    let id = ledger.find(entry(5)).unwrap();
    assert_eq!((ledger.take_touched(), ledger.take_untold(id)), (vec![id], -3));
}

/// Whatever happens at the same time, every debt is paid exactly once.
#[test]
fn no_debt_is_lost_where_accounts_are_closed() {
    let ledger = Ledger::new(64);
    let (paid, done) = (AtomicU64::new(0), AtomicUsize::new(0));
    let pay = || {
        for id in ledger.take_touched() {
            paid.fetch_add(ledger.take_owed(id), Ordering::Relaxed);
            ledger.close(id);
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                (0..100_000).for_each(|number| ledger.owe(entry(number % 3), 1, || Some(account(number % 3))));
                done.fetch_add(1, Ordering::Release);
            });
        }
        scope.spawn(|| {
            while done.load(Ordering::Acquire) < 2 {
                pay();
            }
        });
    });
    pay();
    assert_eq!(paid.into_inner() + ledger.unrecorded(), 200_000);
    assert_eq!(ledger.unrecorded(), 0);
}

#[test]
fn whoever_finds_no_room_is_told_so() {
    let ledger = Ledger::new(64);
    let opened = (0..200)
        .filter(|number| {
            ledger.open(Entry::new((1, number * 77_777), Shared::Store), || Some(account(*number))).is_some()
        })
        .count();
    assert!((32..=64).contains(&opened), "{opened}");
    (0..200).for_each(|number| {
        ledger.spend_of(Entry::new((1, number * 77_777), Shared::Store), 1, || Some(account(number)));
    });
    assert_eq!(ledger.unrecorded(), 200 - opened as u64);
}

/// Whatever happens at the same time, every token is told exactly once.
#[test]
fn nothing_is_lost_and_nothing_is_told_twice() {
    let ledger = Ledger::new(64);
    let (told, done) = (AtomicI64::new(0), AtomicUsize::new(0));
    let tell = || {
        for id in ledger.take_touched() {
            told.fetch_add(ledger.take_untold(id), Ordering::Relaxed);
            ledger.close(id);
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                (0..100_000).for_each(|number| ledger.spend_of(entry(number % 3), 1, || Some(account(number % 3))));
                done.fetch_add(1, Ordering::Release);
            });
        }
        scope.spawn(|| {
            while done.load(Ordering::Acquire) < 2 {
                tell();
            }
        });
    });
    tell();
    assert_eq!(told.into_inner() + ledger.unrecorded() as i64, 200_000);
    assert_eq!(ledger.unrecorded(), 0);
}
