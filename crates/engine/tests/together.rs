//! What a host decides by itself about limits that hosts share, and what it writes down for the others.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::ledger::{AccountId, Loan};
use tollgate::{Action, Answer, Engine, Request, RuleSet, Source, Step, Time, Value, Verdict};

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(60_000 + millis)
}

/// An engine that is not cut off, with these rules.
fn engine(rules: &str) -> Engine {
    let text = format!("namespace: n\nrules: [{rules}]\n");
    let rules = RuleSet::parse(&[Source::new("rules", &*text)]).unwrap();
    let engine = Engine::builder().accounts(64).build(rules, at(0));
    engine.ledger().set_cut_off(false);
    engine
}

fn check(engine: &Engine, user: &str, cost: u64, now: Time) -> Verdict {
    engine.check(&Request::new("n", &[("user", Value::Text(user))]).with_cost(cost), now)
}

fn begin(engine: &Engine, user: &str, cost: u64, now: Time) -> Step {
    engine.begin(&Request::new("n", &[("user", Value::Text(user))]).with_cost(cost), now)
}

/// The only account that was used.
fn account(engine: &Engine) -> AccountId {
    match engine.ledger().take_touched().as_slice() {
        [id] => *id,
        other => panic!("{other:?}"),
    }
}

const TOLD: &str = "{ name: a, key: [user], limits: [10 per hour], shared: store, on_failure: refuse }";
const LENT: &str = "{ name: a, key: [user], limits: [10 per hour], shared: store-lease, on_failure: refuse }";

#[test]
fn what_was_let_through_is_written_down_and_nothing_else() {
    let engine = engine(TOLD);
    assert!(check(&engine, "alice", 7, at(0)).is_allowed());
    assert!(!check(&engine, "alice", 4, at(0)).is_allowed());
    assert!(check(&engine, "alice", 1, at(0)).is_allowed());
    let _ = engine.peek(&Request::new("n", &[("user", Value::Text("alice"))]), at(0));
    let id = account(&engine);
    assert_eq!((engine.ledger().take_untold(id), engine.ledger().take_untold(id)), (8, 0));
}

#[test]
fn what_others_have_spent_is_charged_and_what_was_not_told_yet_is_not_forgotten() {
    let engine = engine(TOLD);
    assert!(check(&engine, "alice", 2, at(0)).is_allowed());
    let id = account(&engine);
    let known = engine.ledger().account(id).unwrap();
    engine.bring_into_line(id, &known, 5.0, at(0));
    assert_eq!(check(&engine, "alice", 1, at(0)).remaining(), Some(2));
    // Three hosts with four tokens each that let twelve requests through stand at minus eight.
    engine.bring_into_line(id, &known, 15.0, at(0));
    let refused = check(&engine, "alice", 1, at(0));
    assert_eq!((refused.is_allowed(), refused.checks()[0].decision.debt), (false, 8));
}

#[test]
fn a_request_that_another_limit_refuses_is_not_written_down() {
    let engine = engine(&format!("{TOLD}, {{ name: b, key: [], limits: [1 per hour] }}"));
    assert!(check(&engine, "alice", 1, at(0)).is_allowed());
    assert!(!check(&engine, "alice", 1, at(0)).is_allowed());
    assert_eq!(engine.ledger().take_untold(account(&engine)), 1);
}

#[test]
fn what_an_estimate_turns_out_to_be_is_written_down() {
    let engine = engine(TOLD);
    let request = [("user", Value::Text("alice"))];
    let reserve = || engine.reserve(&Request::new("n", &request).with_cost(5), Duration::from_secs(60), at(0)).unwrap();
    let hold = reserve();
    engine.settle(hold, 2, at(0));
    let id = account(&engine);
    assert_eq!(engine.ledger().take_untold(id), 2);
    engine.settle(reserve(), 8, at(0));
    assert_eq!(engine.ledger().take_untold(id), 8);
}

#[test]
fn whoever_has_tokens_in_hand_asks_nobody() {
    let engine = engine(LENT);
    let request = [("user", Value::Text("alice"))];
    let Step::Ask(pending) = begin(&engine, "alice", 1, at(0)) else { panic!("nothing is in hand") };
    assert_eq!(pending.questions().len(), 1);
    let verdict = engine.finish(pending, &Request::new("n", &request), &Answer::Failed, at(0));
    assert_eq!((verdict.action(), verdict.is_degraded()), (Action::Refuse(503), true));
    let id = account(&engine);
    let loan = Loan { tokens: 5, until: at(1_000), left: 3, full_at: at(9_000) };
    engine.ledger().lend(id, loan, at(0));
    let Step::Done(verdict) = begin(&engine, "alice", 2, at(0)) else { panic!("there are five in hand") };
    assert_eq!((verdict.is_allowed(), verdict.remaining(), verdict.is_degraded()), (true, Some(6), false));
    assert_eq!(verdict.checks()[0].decision.limit, 10);
    assert!(check(&engine, "alice", 3, at(0)).is_allowed(), "nobody has to wait for what is in hand");
    assert!(matches!(begin(&engine, "alice", 1, at(0)), Step::Ask(_)));
    engine.ledger().refuse(id, at(500), at(9_000));
    let Step::Done(verdict) = begin(&engine, "alice", 1, at(100)) else { panic!("there are known to be none") };
    assert_eq!((verdict.action(), verdict.retry_after()), (Action::Refuse(429), Some(Duration::from_millis(400))));
    engine.ledger().lend(id, loan, at(500));
    assert!(matches!(begin(&engine, "alice", 1, at(1_000)), Step::Ask(_)), "they have lapsed");
}

#[test]
fn tokens_in_hand_are_put_back_when_another_limit_refuses() {
    let engine = engine(&format!("{LENT}, {{ name: b, key: [user], limits: [1 per hour] }}"));
    drop(begin(&engine, "alice", 1, at(0)));
    let id = account(&engine);
    engine.ledger().lend(id, Loan { tokens: 5, until: at(1_000), left: 0, full_at: at(9_000) }, at(0));
    // The first request was dropped before it was decided, and has paid there.
    assert!(!check(&engine, "alice", 1, at(0)).is_allowed());
    assert_eq!(engine.ledger().tokens(id), 5);
}

#[test]
fn requests_that_go_ahead_together_and_find_too_little_in_hand_put_back_what_they_drew() {
    let engine = engine(LENT);
    drop(begin(&engine, "alice", 1, at(0)));
    let id = account(&engine);
    engine.ledger().lend(id, Loan { tokens: 1, until: at(1_000), left: 9, full_at: at(9_000) }, at(0));
    let attributes = [("user", "alice".into())];
    let both = [Request::new("n", &attributes), Request::new("n", &attributes)];
    assert!(engine.check_here(&both, at(0)).is_none());
    assert_eq!(engine.ledger().tokens(id), 1);
}

#[test]
fn n5_a_host_that_is_cut_off_has_its_share_and_owes_what_it_lets_through() {
    for shared in ["store", "store-exact", "store-lease"] {
        let engine = engine(&format!("{{ name: a, key: [user], limits: [100 per hour], shared: {shared} }}"));
        engine.ledger().set_hosts(4);
        engine.ledger().set_cut_off(true);
        let admitted = (0..100).filter(|_| check(&engine, "alice", 1, at(0)).is_allowed()).count();
        assert_eq!(admitted, 25, "{shared}");
        let id = account(&engine);
        assert_eq!(engine.ledger().tokens(id), 0, "{shared}: nobody is told before it is known what still counts");
        let (owed, known) = (engine.ledger().take_owed(id), engine.ledger().account(id).unwrap());
        assert_eq!((owed, engine.still_owed(&known, owed, &[4], at(0))), (25, 25), "{shared}");
        // Some of it may have been spent as one of more hosts, or of fewer.
        assert_eq!(engine.still_owed(&known, owed, &[4, 5], at(0)), 25, "{shared}");
        assert_eq!(engine.still_owed(&known, owed, &[1, 4], at(0)), 25, "{shared}");
        // A quarter of the rate, for twelve minutes: five have come back. It does not matter how many hosts there are by then.
        engine.ledger().set_hosts(1);
        assert_eq!(engine.still_owed(&known, owed, &[4], at(12 * 60_000)), 20, "{shared}");
    }
}

#[test]
fn n5_what_all_have_spent_before_counts_for_the_share_of_a_host_that_is_cut_off() {
    let engine = engine("{ name: a, key: [user], limits: [100 per hour], shared: store }");
    engine.ledger().set_hosts(4);
    assert!(check(&engine, "alice", 40, at(0)).is_allowed());
    let id = account(&engine);
    let known = engine.ledger().account(id).unwrap();
    assert_eq!(engine.ledger().take_untold(id), 40);
    // The others have spent as much.
    engine.bring_into_line(id, &known, 80.0, at(0));
    engine.ledger().set_cut_off(true);
    let admitted = (0..100).filter(|_| check(&engine, "alice", 1, at(0)).is_allowed()).count();
    assert_eq!(admitted, 5, "a quarter of what was left");
    let owed = engine.ledger().take_owed(id);
    assert_eq!((owed, engine.still_owed(&known, owed, &[4], at(0))), (5, 5));
    // What comes back of the whole comes back of the share: after twelve minutes the others know of 60, and 20 are missing here.
    assert_eq!(engine.still_owed(&known, owed, &[4], at(12 * 60_000)), 5);
}

#[test]
fn n5_clients_that_there_is_no_account_for_have_their_share_and_no_more() {
    let rules = "namespace: n\nrules: [{ name: a, key: [user], limits: [10 per hour], shared: store }]";
    // Nobody ever closes accounts where there is no store.
    let engine = Engine::new(RuleSet::parse(&[Source::new("rules", rules)]).unwrap(), at(0));
    assert!(engine.ledger().is_cut_off());
    for user in 0..1_000_u64 {
        let admitted = (0..20).filter(|_| check(&engine, &user.to_string(), 1, at(user)).is_allowed()).count();
        assert_eq!(admitted, 10, "user {user}");
    }
    assert!(engine.ledger().unrecorded() > 5_000, "{}", engine.ledger().unrecorded());
}

#[test]
fn whoever_asks_why_is_told_that_the_others_cannot_be_reached() {
    let engine = engine("{ name: a, key: [user], limits: [100 per hour], shared: store }");
    let explain = || engine.explain(&Request::new("n", &[("user", Value::Text("alice"))]), at(0)).to_string();
    assert!(!explain().contains("could not be asked"));
    engine.ledger().set_cut_off(true);
    assert!(explain().contains("could not be asked; its rule's `on_failure` has decided"), "{}", explain());
}

#[test]
fn n5_a_second_outage_begins_where_the_first_has_ended() {
    let engine = engine("{ name: a, key: [user], limits: [100 per hour], shared: store }");
    engine.ledger().set_hosts(4);
    let take_all = || (0..100).filter(|_| check(&engine, "alice", 1, at(0)).is_allowed()).count();
    engine.ledger().set_cut_off(true);
    assert_eq!(take_all(), 25);
    // Each of the four has spent its share and tells it.
    engine.ledger().set_cut_off(false);
    let id = account(&engine);
    let (owed, known) = (engine.ledger().take_owed(id), engine.ledger().account(id).unwrap());
    assert_eq!(engine.still_owed(&known, owed, &[4], at(0)), 25);
    engine.bring_into_line(id, &known, 100.0, at(0));
    assert_eq!(take_all(), 0);
    engine.ledger().set_cut_off(true);
    assert_eq!(take_all(), 0);
    // Somebody has given back, or the limit has been reset: what this host has spent of its share counts all the same.
    engine.bring_into_line(id, &known, 40.0, at(0));
    assert_eq!(take_all(), 0);
}

#[test]
fn what_turns_out_to_cost_more_or_less_while_cut_off_is_owed_as_it_was() {
    for shared in ["store", "store-exact", "store-lease"] {
        let engine = engine(&format!("{{ name: a, key: [user], limits: [100 per hour], shared: {shared} }}"));
        engine.ledger().set_cut_off(true);
        for (actual, owed) in [(30, 30), (1, 31), (0, 31)] {
            let attributes = [("user", Value::Text("alice"))];
            let request = Request::new("n", &attributes).with_cost(10);
            let hold = engine.reserve(&request, Duration::from_secs(9), at(0)).unwrap();
            assert!(hold.is_degraded(), "{shared}");
            engine.settle(hold, actual, at(0));
            let id = account(&engine);
            let (said, known) = (engine.ledger().take_owed(id), engine.ledger().account(id).unwrap());
            engine.ledger().owe_again(id, said);
            assert_eq!(engine.still_owed(&known, said, &[1], at(0)), owed, "{shared}: {actual}");
            assert_eq!(engine.ledger().tokens(id), 0, "{shared}: nobody is told yet");
        }
    }
}

#[test]
fn what_turns_out_to_cost_more_when_the_others_are_there_again_is_told() {
    let engine = engine("{ name: a, key: [user], limits: [100 per hour], shared: store }");
    engine.ledger().set_hosts(4);
    engine.ledger().set_cut_off(true);
    let attributes = [("user", Value::Text("alice"))];
    let hold = engine.reserve(&Request::new("n", &attributes).with_cost(10), Duration::from_secs(9), at(0)).unwrap();
    let id = account(&engine);
    assert_eq!(engine.ledger().take_owed(id), 10);
    // They have spent nearly all of it, which says nothing about this.
    engine.ledger().set_cut_off(false);
    engine.bring_into_line(id, &engine.ledger().account(id).unwrap(), 70.0, at(0));
    engine.settle(hold, 30, at(0));
    assert_eq!((engine.ledger().take_untold(id), engine.ledger().is_owing(id)), (20, false));
    assert_eq!(check(&engine, "alice", 1, at(0)).remaining(), Some(9));
}

#[test]
fn what_was_let_through_without_a_limit_is_owed_up_to_the_limit() {
    let engine = engine("{ name: a, key: [], limits: [100 per hour], shared: store-exact, on_failure: allow }");
    assert!((0..500).all(|_| check(&engine, "alice", 1, at(0)).is_allowed()));
    let id = account(&engine);
    let (owed, known) = (engine.ledger().take_owed(id), engine.ledger().account(id).unwrap());
    assert_eq!((owed, engine.still_owed(&known, owed, &[1], at(0))), (500, 100));
}

#[test]
fn n7_every_token_of_every_thread_is_written_down_once() {
    let engine = engine("{ name: a, key: [user], limits: [100000 per hour], shared: store }");
    let (admitted, told) = (AtomicU64::new(0), AtomicU64::new(0));
    let tell = || {
        for id in engine.ledger().take_touched() {
            told.fetch_add(u64::try_from(engine.ledger().take_untold(id)).unwrap(), Ordering::Relaxed);
            engine.ledger().close(id);
        }
    };
    std::thread::scope(|scope| {
        let deciding: Vec<_> = (0..3)
            .map(|thread| {
                let (engine, admitted) = (&engine, &admitted);
                scope.spawn(move || {
                    for number in 0..20_000_u64 {
                        let user = ((number * 7 + thread) % 5).to_string();
                        admitted.fetch_add(u64::from(check(engine, &user, 1, at(0)).is_allowed()), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        while deciding.iter().any(|thread| !thread.is_finished()) {
            tell();
        }
    });
    tell();
    assert_eq!(told.into_inner() + engine.ledger().unrecorded(), admitted.into_inner());
    assert_eq!(engine.ledger().unrecorded(), 0);
}
