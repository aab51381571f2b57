use super::*;
use std::sync::atomic::AtomicUsize;
use std::thread;

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

fn open(ledger: &Ledger, fingerprint: u64) -> AccountId {
    ledger.open((1, fingerprint), || Some(account(fingerprint))).unwrap()
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
    ledger.spend_of((1, 5), 2, || Some(account(5)));
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
    let four = drawn(&ledger, id, 4, now).unwrap();
    assert_eq!((four.granted, four.remaining, four.reset_after), (4, 13, Duration::from_nanos(40)));
    assert_eq!(drawn(&ledger, id, 7, now), None);
    ledger.put_back((1, 5), 1);
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
    ledger.owe((1, 5), 7, || Some(account(5)));
    let id = ledger.find((1, 5)).unwrap();
    assert!(!ledger.close(id));
    assert_eq!((ledger.take_touched(), ledger.take_owed(id), ledger.take_owed(id)), (vec![id], 7, 0));
    assert!(ledger.close(id));
    assert_eq!(ledger.find((1, 5)), None);
}

#[test]
fn whoever_finds_no_room_is_told_so() {
    let ledger = Ledger::new(64);
    let opened =
        (0..200).filter(|number| ledger.open((1, number * 77_777), || Some(account(*number))).is_some()).count();
    assert!((32..=64).contains(&opened), "{opened}");
    (0..200).for_each(|number| ledger.spend_of((1, number * 77_777), 1, || Some(account(number))));
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
                (0..100_000).for_each(|number| ledger.spend_of((1, number % 3), 1, || Some(account(number % 3))));
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
