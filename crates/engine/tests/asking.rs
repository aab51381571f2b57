//! Limits that are kept elsewhere, with a store that is not there.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::hash::RandomState;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use tollgate::{
    Action, Answer, Capacity, Decision, Engine, Op, Pending, Question, Reason, Request, RuleSet, Source, Step, Table,
    Time, Value, Verdict,
};

/// Answers questions as a store would: one at a time, all limits of a request or none.
struct Store {
    table: Mutex<Table>,
}

impl Store {
    fn new() -> Store {
        Store { table: Mutex::new(Table::new(Capacity::Keys(10_000), &RandomState::new())) }
    }

    fn answer(&self, questions: &[Question], now: Time) -> Vec<Decision> {
        let table = self.table.lock().unwrap();
        let ask =
            |question: &Question, op| table.decide(&(question.limit_id, &*question.client), &question.limit, op, now);
        let looked: Vec<_> = questions.iter().map(|question| ask(question, Op::Peek(question.cost))).collect();
        if questions.iter().zip(&looked).any(|(question, said)| !said.is_allowed() && !question.is_shadow) {
            return looked;
        }
        let take = |(question, said): (&Question, Decision)| {
            if said.is_allowed() { ask(question, Op::Take(question.cost)) } else { said }
        };
        questions.iter().zip(looked).map(take).collect()
    }
}

fn engine(rules: &str) -> Engine {
    let text = format!("namespace: n\nrules:\n{rules}");
    let rules = RuleSet::parse(&[Source::new("rules", text)]).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    Engine::new(rules, Time::ZERO)
}

fn attributes<'a>(op: &'a str, user: &'a str) -> [(&'static str, Value<'a>); 2] {
    [("op", Value::Text(op)), ("user", Value::Text(user))]
}

#[track_caller]
fn pending(step: Step) -> Pending {
    match step {
        Step::Ask(pending) => pending,
        Step::Done(verdict) => panic!("{verdict:?}"),
    }
}

#[track_caller]
fn done(step: Step) -> Verdict {
    match step {
        Step::Done(verdict) => verdict,
        Step::Ask(pending) => panic!("{pending:?}"),
    }
}

/// Asks the store whatever there is to ask.
fn check(engine: &Engine, store: &Store, request: &Request<'_>, now: Time) -> Verdict {
    match engine.begin(request, now) {
        Step::Done(verdict) => verdict,
        Step::Ask(pending) => {
            let answer = Answer::Decided(store.answer(pending.questions(), now));
            engine.finish(pending, request, &answer, now)
        }
    }
}

const MIXED: &str = "
  - { name: near, match: { op: mixed }, key: [user], limits: [10 per hour] }
  - { name: far, match: { op: mixed }, key: [user], limits: [3 per hour, 100 per day], shared: store-exact }
  - { name: watched, match: { op: mixed }, key: [user], limits: [1 per hour], shared: store-exact, over: shadow }
  - { name: local, match: { op: local }, key: [user], limits: [1 per hour] }
";

#[test]
fn only_what_is_kept_elsewhere_is_asked_there() {
    let engine = engine(MIXED);
    let local = attributes("local", "ann");
    let request = Request::new("n", &local);
    assert!(done(engine.begin(&request, Time::ZERO)).is_allowed());
    assert_eq!(done(engine.begin(&request, Time::ZERO)).action(), Action::Refuse(429));

    let mixed = attributes("mixed", "ann");
    let request = Request::new("n", &mixed).with_cost(2);
    let pending = pending(engine.begin(&request, Time::ZERO));
    let questions = pending.questions();
    assert_eq!(questions.iter().map(|question| question.limit.most()).collect::<Vec<_>>(), [3, 100, 1]);
    assert_eq!(questions.iter().map(|question| question.is_shadow).collect::<Vec<_>>(), [false, false, true]);
    assert!(questions.iter().all(|question| question.cost == 2 && question.client == questions[0].client));
    let other = attributes("mixed", "bob");
    let other = Request::new("n", &other);
    assert_ne!(questions[0].client, self::pending(engine.begin(&other, Time::ZERO)).questions()[0].client);
    let _ = engine.finish(pending, &request, &Answer::Failed, Time::ZERO);
}

#[test]
fn all_limits_here_and_there_are_paid_or_none() {
    let (engine, store) = (engine(MIXED), Store::new());
    let mixed = attributes("mixed", "ann");
    let request = Request::new("n", &mixed);
    let left = || {
        let verdict = engine.peek(&request, Time::ZERO);
        verdict.checks()[0].decision.remaining
    };
    let verdict = check(&engine, &store, &request, Time::ZERO);
    assert_eq!((verdict.action(), verdict.rule(), verdict.remaining()), (Action::Allow, Some("far"), Some(2)));
    assert!(verdict.checks().iter().all(|check| !check.is_degraded));
    // The shadowed limit is used up, which is reported and does no more.
    let verdict = check(&engine, &store, &request, Time::ZERO);
    assert!(verdict.is_allowed() && !verdict.checks()[3].decision.is_allowed());
    assert!(check(&engine, &store, &request, Time::ZERO).is_allowed());
    assert_eq!(left(), 7);
    for _ in 0..5 {
        let verdict = check(&engine, &store, &request, Time::ZERO);
        assert_eq!((verdict.action(), verdict.rule()), (Action::Refuse(429), Some("far")));
        assert_eq!((verdict.reason(), verdict.retry_after()), (Reason::OverLimit, Some(Duration::from_secs(1_200))));
        // The limit here has got back what it had taken.
        assert_eq!(left(), 7);
    }
}

#[test]
fn who_is_refused_here_is_not_asked_about_there() {
    let (engine, store) = (engine(MIXED), Store::new());
    let mixed = attributes("mixed", "ann");
    let verdict = done(engine.begin(&Request::new("n", &mixed).with_cost(11), Time::ZERO));
    assert_eq!((verdict.action(), verdict.rule()), (Action::Refuse(429), Some("near")));
    // Nothing is told of limits that were not asked.
    let mut headers = Vec::new();
    verdict.headers(Time::ZERO, |name, value| headers.push(format!("{name}: {value}")));
    assert_eq!(headers, ["ratelimit-policy: \"near\";q=10;w=3600", "ratelimit: \"near\";r=10;t=0"]);
    assert_eq!(store.table.lock().unwrap().occupied(Time::ZERO), 0);
}

#[test]
fn what_is_given_back_late_is_not_given_back_twice() {
    // The answer takes so long that the token has come back by itself, and was spent by somebody else.
    let engine = engine(
        "
  - { name: near, match: { op: both }, key: [], limits: [1 per second] }
  - { name: far, match: { op: both }, key: [], limits: [1 per hour], shared: store-exact }
  - { name: other, match: { op: none }, key: [], limits: [1 per hour] }
",
    );
    let store = Store::new();
    let both = attributes("both", "ann");
    let request = Request::new("n", &both);
    assert!(check(&engine, &store, &request, Time::ZERO).is_allowed());
    let (first, second) = (Time::ZERO + Duration::from_secs(1), Time::ZERO + Duration::from_secs(2));
    let slow = pending(engine.begin(&request, first));
    let quick = pending(engine.begin(&request, second));
    let refused = |pending: &Pending| Answer::Decided(store.answer(pending.questions(), second));
    let answer = refused(&slow);
    assert_eq!(engine.finish(slow, &request, &answer, second).action(), Action::Refuse(429));
    // The second one still holds the only token.
    assert_eq!(engine.peek(&request, second).checks()[0].decision.remaining, 0);
    let answer = refused(&quick);
    assert_eq!(engine.finish(quick, &request, &answer, second).action(), Action::Refuse(429));
    assert_eq!(engine.peek(&request, second).checks()[0].decision.remaining, 1);
}

const FAILING: &str = "
  - { name: near, key: [user], limits: [10 per hour] }
  - { name: let, match: { op: let }, key: [user], limits: [2 per hour], shared: store-exact, on_failure: allow }
  - { name: here, match: { op: here }, key: [user], limits: [2 per hour], shared: store-exact, on_failure: local }
  - { name: shut, match: { op: shut }, key: [user], limits: [2 per hour], shared: store-exact, on_failure: refuse }
  - { name: tested, match: { op: tested }, key: [user], limits: [2 per hour], shared: store-exact, on_failure: refuse, over: shadow }
";

#[test]
fn d11_a_store_that_cannot_be_reached_makes_every_rule_do_what_it_says_for_that() {
    let engine = engine(FAILING);
    let ask = |op: &str, user: &str| {
        let attributes = attributes(op, user);
        let request = Request::new("n", &attributes);
        let verdict = engine.finish(pending(engine.begin(&request, Time::ZERO)), &request, &Answer::Failed, Time::ZERO);
        assert!(verdict.checks()[1].is_degraded && !verdict.checks()[0].is_degraded);
        (verdict.action(), verdict.reason(), engine.peek(&request, Time::ZERO).checks()[0].decision.remaining)
    };
    for left in (5..10).rev() {
        assert_eq!(ask("let", "ann"), (Action::Allow, Reason::WithinLimits, left));
    }
    assert_eq!(ask("here", "bob"), (Action::Allow, Reason::WithinLimits, 9));
    assert_eq!(ask("here", "bob"), (Action::Allow, Reason::WithinLimits, 8));
    assert_eq!(ask("here", "bob"), (Action::Refuse(429), Reason::OverLimit, 8));
    assert_eq!(ask("shut", "eve"), (Action::Refuse(503), Reason::Unavailable, 10));
    assert_eq!(ask("tested", "fay"), (Action::Allow, Reason::WithinLimits, 9));
}

#[test]
fn check_asks_nobody_and_so_does_the_same() {
    let engine = engine(FAILING);
    let ask = |op: &str| {
        let attributes = attributes(op, op);
        let verdict = engine.check(&Request::new("n", &attributes), Time::ZERO);
        assert!(verdict.checks()[1].is_degraded);
        (verdict.action(), verdict.reason())
    };
    for _ in 0..5 {
        assert_eq!(ask("let"), (Action::Allow, Reason::WithinLimits));
        assert_eq!(ask("shut"), (Action::Refuse(503), Reason::Unavailable));
        assert_eq!(ask("tested"), (Action::Allow, Reason::WithinLimits));
    }
    let stranger = attributes("shut", "gil");
    let body = engine.check(&Request::new("n", &stranger), Time::ZERO).problem();
    assert!(body.contains(r#""detail":"The service cannot tell at present what you have used."#), "{body}");
    assert!(body.contains(r#""violated-policies":[]"#), "{body}");
    assert_eq!([0, 1, 2].map(|_| ask("here").0), [Action::Allow, Action::Allow, Action::Refuse(429)]);
    // Who was shut out has paid nothing here.
    let attributes = attributes("shut", "shut");
    assert_eq!(engine.peek(&Request::new("n", &attributes), Time::ZERO).checks()[0].decision.remaining, 10);
}

#[test]
fn answers_that_are_missing_count_as_failed() {
    let engine = engine(
        "
  - { name: first, key: [], limits: [5 per hour], shared: store-exact, on_failure: refuse }
  - { name: second, key: [], limits: [5 per hour], shared: store-exact, on_failure: local }
  - { name: third, match: { op: strict }, key: [], limits: [5 per hour], shared: store-exact, on_failure: refuse }
",
    );
    let store = Store::new();
    let ask = |op: &str| {
        let attributes = attributes(op, "ann");
        let request = Request::new("n", &attributes);
        let pending = pending(engine.begin(&request, Time::ZERO));
        let mut decisions = store.answer(pending.questions(), Time::ZERO);
        decisions.truncate(1);
        let verdict = engine.finish(pending, &request, &Answer::Decided(decisions), Time::ZERO);
        let degraded: Vec<_> = verdict.checks().iter().map(|check| check.is_degraded).collect();
        (verdict.action(), verdict.reason(), degraded)
    };
    assert_eq!(ask("lax"), (Action::Allow, Reason::WithinLimits, vec![false, true]));
    assert_eq!(ask("strict"), (Action::Refuse(503), Reason::Unavailable, vec![false, true, true]));
    // More answers than questions are nobody's.
    let attributes = attributes("lax", "ann");
    let request = Request::new("n", &attributes);
    let pending = pending(engine.begin(&request, Time::ZERO));
    let mut decisions = store.answer(pending.questions(), Time::ZERO);
    decisions.extend(decisions.clone());
    assert!(engine.finish(pending, &request, &Answer::Decided(decisions), Time::ZERO).is_allowed());
}

#[test]
fn a_ban_holds_whether_or_not_anybody_is_asked() {
    let engine = engine(
        "
  - { name: first, key: [user], limits: [5 per hour], shared: store-exact, on_failure: allow }
  - name: second
    key: [user]
    limits: [5 per hour]
    shared: store-exact
    on_failure: allow
    overrides: [{ client: { user: evil }, limits: [0 per hour] }]
",
    );
    let evil = attributes("x", "evil");
    let request = Request::new("n", &evil);
    let verdict = done(engine.begin(&request, Time::ZERO));
    assert_eq!(
        (verdict.action(), verdict.reason(), verdict.rule()),
        (Action::Refuse(429), Reason::Banned, Some("second"))
    );
    assert_eq!(engine.check(&request, Time::ZERO).reason(), Reason::Banned);
}

#[test]
fn d11_two_hosts_that_share_a_store_admit_exactly_the_limit() {
    let rules = "
  - { name: all, key: [], limits: [500 per hour], shared: store-exact }
  - { name: users, key: [user], limits: [200 per hour], shared: store-exact }
  - { name: host, key: [], limits: [400 per hour] }
";
    let (hosts, store) = ([engine(rules), engine(rules)], Store::new());
    let ask = |thread: usize, number: usize| {
        let user = ["ann", "bob", "eve"][number % 3];
        let attributes = attributes("x", user);
        check(&hosts[thread % 2], &store, &Request::new("n", &attributes), Time::ZERO).is_allowed()
    };
    let count = &|thread| (0..1_000).filter(|number| ask(thread, *number)).count();
    let admitted: Vec<usize> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || count(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(admitted.iter().sum::<usize>(), 500);
    // What each host has counted of its own is what it has let through.
    for (number, host) in hosts.iter().enumerate() {
        let attributes = attributes("x", "ann");
        let left = host.peek(&Request::new("n", &attributes).with_cost(0), Time::ZERO).checks()[2].decision.remaining;
        let own = admitted[number] + admitted[number + 2];
        assert_eq!(400 - left, own as u64);
    }
}

#[test]
fn a_decision_is_finished_by_the_rules_that_it_was_begun_by() {
    let engine = engine(MIXED);
    let mixed = attributes("mixed", "ann");
    let request = Request::new("n", &mixed);
    let pending = pending(engine.begin(&request, Time::ZERO));
    engine.replace(RuleSet::default(), Time::ZERO);
    let verdict = engine.finish(pending, &request, &Answer::Failed, Time::ZERO);
    assert_eq!((verdict.version(), verdict.rule().is_some(), verdict.is_allowed()), (1, true, true));
}

#[test]
fn a_refusal_that_is_known_leaves_the_other_limits_unasked() {
    let (engine, store) = (engine(MIXED), Store::new());
    let mixed = attributes("mixed", "ann");
    let request = Request::new("n", &mixed);
    let begun = pending(engine.begin(&request, Time::ZERO));
    let question = &begun.questions()[0];
    let table = store.table.lock().unwrap();
    let key = (question.limit_id, &*question.client);
    let _ = table.decide(&key, &question.limit, Op::Drain, Time::ZERO);
    let decision = table.decide(&key, &question.limit, Op::Take(1), Time::ZERO);
    let verdict = engine.finish(begun, &request, &Answer::Refused { question: 0, decision }, Time::ZERO);
    assert_eq!((verdict.action(), verdict.rule()), (Action::Refuse(429), Some("far")));
    assert_eq!(verdict.retry_after(), Some(Duration::from_secs(1_200)));
    assert!(verdict.checks().iter().all(|check| !check.is_degraded));
    // Nothing is told of limits that were not asked, and what was taken here was given back.
    let mut headers = Vec::new();
    verdict.headers(Time::ZERO, |name, value| headers.push(format!("{name}: {value}")));
    assert!(headers.iter().all(|header| !header.contains("86400")), "{headers:?}");
    assert_eq!(engine.peek(&request, Time::ZERO).checks()[0].decision.remaining, 10);
}

#[test]
fn a_question_says_how_long_the_request_can_wait_and_whether_others_may_pay() {
    let engine = engine(
        "
  - { name: plain, key: [], limits: [5 per hour], shared: store-exact }
  - { name: queued, key: [], limits: [5 per hour], shared: store-exact, over: queue up to 2s }
  - { name: either, key: [], limits: [5 per hour], shared: store-exact, quota_mode: true }
",
    );
    let attributes = attributes("x", "ann");
    let request = Request::new("n", &attributes);
    let pending = pending(engine.begin(&request, Time::ZERO));
    let said: Vec<_> = pending.questions().iter().map(|asked| (asked.max_wait, asked.is_quota_mode)).collect();
    assert_eq!(said, [(None, false), (Some(Duration::from_secs(2)), false), (None, true)]);
    let _ = engine.finish(pending, &request, &Answer::Failed, Time::ZERO);
}

#[test]
fn who_cannot_wait_decides_what_nobody_else_has_a_say_in_and_takes_nothing_otherwise() {
    let engine = engine(MIXED);
    let (mixed, local) = (attributes("mixed", "ann"), attributes("local", "ann"));
    let (mixed, local) = ([Request::new("n", &mixed)], [Request::new("n", &local)]);
    assert!(engine.check_here(&mixed, Time::ZERO).is_none());
    assert_eq!(engine.peek(&mixed[0], Time::ZERO).checks()[0].decision.remaining, 10);
    assert!(engine.check_here(&local, Time::ZERO).unwrap().is_allowed());
    assert_eq!(engine.check_here(&local, Time::ZERO).unwrap().action(), Action::Refuse(429));
    let counted: u64 = engine.snapshot().iter().map(|(_, _, rule)| rule.counts.total()).sum();
    assert_eq!(counted, 2);
}

#[test]
fn decisions_without_the_others_are_counted_as_such_once_a_rule() {
    let engine = engine(MIXED);
    let mixed = attributes("mixed", "ann");
    let request = Request::new("n", &mixed);
    let pending = pending(engine.begin(&request, Time::ZERO));
    assert!(engine.finish(pending, &request, &Answer::Failed, Time::ZERO).is_degraded());
    let degraded: Vec<_> = engine.snapshot().into_iter().map(|(_, rule, said)| (rule, said.counts.degraded)).collect();
    let expected = [("near", 0), ("far", 1), ("watched", 1), ("local", 0)];
    assert_eq!(degraded, expected.map(|(rule, count)| (rule.to_owned(), count)));
}
