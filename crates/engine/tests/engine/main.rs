//! What the engine promises, held against a slow model that is obviously right.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::indexing_slicing, reason = "so has one that finds less than it expects")]

mod model;

use model::{Asked, Model, Written};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tollgate::{Action, Capacity, Engine, Event, Reason, Request, RuleSet, Source, Time, Value};

fn parse(text: &str) -> RuleSet {
    RuleSet::parse(&[Source::new("rules", text)]).unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"))
}

fn engine(text: &str) -> Engine {
    Engine::new(parse(text), Time::ZERO)
}

fn seconds(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn d11_every_verdict_is_what_the_model_says(
        rules in prop::collection::vec(model::written(), 1..6),
        requests in prop::collection::vec(model::asked(), 1..60),
    ) {
        let (engine, mut model) = (engine(&model::text(&rules)), Model::new(&rules));
        let mut now = Time::ZERO;
        for (number, request) in requests.iter().enumerate() {
            now = now + request.later;
            let expected = model.check(request, now);
            let attributes = request.attributes();
            let asked = Request::new("n", &attributes).with_cost(request.cost);
            let looked = engine.peek(&asked, now);
            prop_assert_eq!(looked.action(), expected.action, "looking at request {}", number);
            let verdict = engine.check(&asked, now);
            let actual = model::Said {
                action: verdict.action(),
                reason: verdict.reason(),
                rule: verdict.rule().map(str::to_owned),
                remaining: verdict.remaining(),
                retry: verdict.retry_after(),
            };
            prop_assert_eq!(actual, expected, "request {} of\n{}", number, model::text(&rules));
        }
    }

    #[test]
    fn r7_an_explanation_says_of_every_rule_whether_it_applies(
        rules in prop::collection::vec(model::written(), 1..6),
        request in model::asked(),
    ) {
        let (engine, model) = (engine(&model::text(&rules)), Model::new(&rules));
        let attributes = request.attributes();
        let explanation = engine.explain(&Request::new("n", &attributes), Time::ZERO);
        prop_assert_eq!(explanation.rules.len(), rules.len());
        let applied = explanation.rules.iter().filter(|rule| rule.result.is_ok()).map(|rule| rule.rule.clone());
        prop_assert_eq!(applied.collect::<Vec<_>>(), model.applying(&request));
        for rule in explanation.rules {
            let Err(reason) = rule.result else { continue };
            let numbered = model::numbered(&rules);
            let written = numbered.iter().find(|written| written.name() == rule.rule).unwrap();
            let fits = ["replaces it", "`then: stop`", "op is "].iter().filter(|part| reason.contains(*part)).count();
            prop_assert_eq!(fits, 1, "{}", reason);
            prop_assert_eq!(reason.contains("op is "), !written.matches(&request), "{}", reason);
        }
    }
}

#[test]
fn looking_and_explaining_take_nothing_and_count_nothing() {
    let engine = engine("namespace: n\nrules: [{ name: a, key: [user], limits: [3 per hour, 5 per day] }]");
    let attributes = [("user", "ann".into())];
    let request = Request::new("n", &attributes);
    for _ in 0..10 {
        assert_eq!(engine.peek(&request, Time::ZERO).remaining(), Some(3));
        assert_eq!(engine.explain(&request, Time::ZERO).verdict.remaining(), Some(3));
    }
    assert_eq!(engine.snapshot()[0].2.counts.total(), 0);
    assert_eq!(engine.table().occupied(Time::ZERO), 0);
}

/// Three limits that overlap: each user's, each team's, and everybody's.
const OVERLAPPING: &str = "
namespace: n
rules:
  - { name: users, key: [user], limits: [500 per hour] }
  - { name: teams, key: [team], limits: [900 per hour using sliding-window] }
  - { name: all, key: [], limits: [1700 per hour using fixed-window, 2000 per day] }
  - { name: watched, key: [user], limits: [300 per hour], over: shadow }
";

/// What was admitted to, by the rule and the client.
type Admitted = HashMap<(&'static str, u64), u64>;

/// Asks as one of six users of three teams, and notes what was paid where.
fn ask(engine: &Engine, user: u64, cost: u64, admitted: &mut Admitted) -> bool {
    let (name, team) = (format!("user {user}"), format!("team {}", user % 3));
    let attributes = [("user", Value::Text(&name)), ("team", Value::Text(&team))];
    let verdict = engine.check(&Request::new("n", &attributes).with_cost(cost), Time::ZERO);
    if verdict.is_allowed() {
        for key in [("users", user), ("teams", user % 3), ("all", 0)] {
            *admitted.entry(key).or_default() += cost;
        }
        if verdict.checks().iter().any(|check| check.is_shadow && check.decision.is_allowed()) {
            *admitted.entry(("watched", user)).or_default() += cost;
        }
    }
    verdict.is_allowed()
}

#[test]
fn d11_a_request_that_is_refused_has_paid_nothing_whatever_the_others_do_meanwhile() {
    for threads in [2, 4, 8] {
        let engine = engine(OVERLAPPING);
        let total = Mutex::new(Admitted::new());
        thread::scope(|scope| {
            for thread in 0..threads {
                let (engine, total) = (&engine, &total);
                scope.spawn(move || {
                    let mut admitted = Admitted::new();
                    for number in 0..4_000 / threads {
                        ask(engine, (thread + number * 7) % 6, 1 + number % 3, &mut admitted);
                    }
                    let mut total = total.lock().unwrap();
                    admitted.into_iter().for_each(|(key, cost)| *total.entry(key).or_default() += cost);
                });
            }
        });
        let mut total = total.into_inner().unwrap();
        assert_spent(&engine, &total);
        // What two refused each other in a race is still there, to the last token.
        for user in 0..6 {
            while ask(&engine, user, 1, &mut total) {}
        }
        assert_spent(&engine, &total);
        assert_eq!(total[&("all", 0)], 1_700, "{threads} threads");
    }
}

fn assert_spent(engine: &Engine, admitted: &Admitted) {
    for user in 0..6 {
        let (name, team) = (format!("user {user}"), format!("team {}", user % 3));
        let attributes = [("user", Value::Text(&name)), ("team", Value::Text(&team))];
        let verdict = engine.peek(&Request::new("n", &attributes).with_cost(0), Time::ZERO);
        for check in verdict.checks() {
            let rule = verdict.rule_of(check).unwrap();
            let spent = check.decision.limit - check.decision.remaining + check.decision.debt;
            let key = admitted.iter().find(|((name, client), _)| {
                *name == &*rule.name
                    && *client
                        == if rule.key.is_empty() {
                            0
                        } else if *name == "teams" {
                            user % 3
                        } else {
                            user
                        }
            });
            assert_eq!(spent, key.map_or(0, |(_, cost)| *cost), "{} for user {user}", rule.name);
        }
    }
}

#[test]
fn a_queued_request_that_is_given_up_gets_back_what_every_limit_took() {
    let engine = engine(
        "
namespace: n
rules:
  - { name: queue, key: [], limits: [1 per second], over: queue up to 10s }
  - { name: quota, key: [], limits: [100 per hour] }
  - { name: pace, match: { op: paced }, key: [], limits: [1 per second burst 9 using leaky-queue], then: stop, priority: 1 }
",
    );
    let request = Request::new("n", &[]);
    assert_eq!(engine.check(&request, Time::ZERO).action(), Action::Allow);
    let queued = engine.check(&request, Time::ZERO);
    assert_eq!(queued.wait(), Duration::from_secs(1));
    engine.cancel(queued, Time::ZERO);
    let left = engine.peek(&request, Time::ZERO);
    let remaining: Vec<_> = left.checks().iter().map(|check| check.decision.remaining).collect();
    assert_eq!((left.wait(), remaining), (Duration::from_secs(1), vec![0, 99]));

    // A limit that holds requests by itself gives back, too.
    let attributes = [("op", "paced".into())];
    let paced = Request::new("n", &attributes);
    assert_eq!(engine.check(&paced, Time::ZERO).action(), Action::Allow);
    let queued = engine.check(&paced, Time::ZERO);
    assert_eq!(queued.wait(), Duration::from_secs(1));
    engine.cancel(queued, Time::ZERO);
    assert_eq!(engine.check(&paced, Time::ZERO).wait(), Duration::from_secs(1));
}

#[test]
fn what_was_reserved_is_settled_once_and_by_what_it_really_was() {
    let engine = engine("namespace: n\nrules: [{ name: tokens, key: [user], limits: [1000 per hour] }]");
    let attributes = [("user", "ann".into())];
    let request = |cost| Request::new("n", &attributes).with_cost(cost);
    let left = |now| engine.peek(&request(0), now).checks()[0].decision;
    let minute = Duration::from_secs(60);

    let hold = engine.reserve(&request(600), minute, Time::ZERO).unwrap();
    assert_eq!((hold.estimate(), hold.wait(), hold.expires()), (600, Duration::ZERO, seconds(60)));
    assert_eq!(engine.reserve(&request(401), minute, Time::ZERO).unwrap_err().action(), Action::Refuse(429));
    assert_eq!(left(Time::ZERO).remaining, 400);
    engine.settle(hold, 600, Time::ZERO);
    assert_eq!(left(Time::ZERO).remaining, 400);
    let hold = engine.reserve(&request(100), minute, Time::ZERO).unwrap();
    engine.settle(hold, 100_000, Time::ZERO);
    assert_eq!((left(Time::ZERO).remaining, left(Time::ZERO).debt > 0), (0, true));
    assert_eq!(engine.reset(&request(1), Time::ZERO), 1);
    assert_eq!(left(Time::ZERO).remaining, 1_000);
    // Nothing estimated can still be found to have cost something.
    let hold = engine.reserve(&request(0), minute, Time::ZERO).unwrap();
    engine.settle(hold, 250, Time::ZERO);
    assert_eq!(left(Time::ZERO).remaining, 750);
    // Too late.
    let hold = engine.reserve(&request(700), minute, Time::ZERO).unwrap();
    engine.refund(hold, seconds(61));
    assert!(left(seconds(61)).remaining < 100);
    // A hold that is dropped is used.
    drop(engine.reserve(&request(10), minute, seconds(61)).unwrap());
    assert!(left(seconds(61)).remaining < 60);
}

#[test]
fn a_hold_is_settled_after_its_rule_was_replaced() {
    let text = |limit| format!("namespace: n\nrules: [{{ name: tokens, key: [user], limits: [{limit}] }}]");
    let engine = engine(&text("1000 per hour"));
    let attributes = [("user", "ann".into())];
    let request = Request::new("n", &attributes).with_cost(500);
    let hold = engine.reserve(&request, Duration::from_secs(60), Time::ZERO).unwrap();
    engine.replace(parse(&text("2000 per hour")), Time::ZERO);
    // More than was estimated is charged to whoever inherits.
    engine.settle(hold, 900, Time::ZERO);
    assert_eq!(engine.peek(&request, Time::ZERO).remaining(), Some(1_100));
}

#[test]
fn a_reset_lets_off_one_client_also_of_what_it_spent_before_a_change() {
    let text = |limit| format!("namespace: n\nrules: [{{ name: a, key: [user], limits: [{limit}] }}]");
    let engine = engine(&text("10 per hour"));
    let [ann, bob] = ["ann", "bob"].map(|user| [("user", Value::Text(user))]);
    let [ann, bob] = [&ann, &bob].map(|attributes| Request::new("n", attributes).with_cost(8));
    assert!(engine.check(&ann, Time::ZERO).is_allowed() && engine.check(&bob, Time::ZERO).is_allowed());
    engine.replace(parse(&text("12 per hour")), Time::ZERO);
    assert_eq!(engine.reset(&ann, Time::ZERO), 1);
    assert_eq!(engine.peek(&ann, Time::ZERO).remaining(), Some(12));
    assert_eq!(engine.peek(&bob, Time::ZERO).remaining(), Some(4));
}

#[test]
fn descriptors_count_numbers_by_their_digits() {
    let engine = engine(
        "
domain: d
descriptors: [{ key: id, rate_limit: { unit: hour, requests_per_unit: 5 } }]
",
    );
    let left = |value: Value<'_>| engine.check(&Request::new("d", &[("id", value)]), Time::ZERO).remaining();
    assert_eq!(
        (left(7.into()), left(8.into()), left(7.into()), left("7".into())),
        (Some(4), Some(4), Some(3), Some(2))
    );
}

#[test]
fn a_part_that_nobody_knows_refuses_all_without_any_rule_having_let_it_pass() {
    let engine = engine(
        "
namespace: n
no_match: refuse
rules: [{ name: a, match: { op: a }, key: [], limits: [5 per hour] }]
",
    );
    let attributes = [("op", "a".into())];
    let parts = [Request::new("n", &attributes), Request::new("n", &[])];
    let verdict = engine.check_all(&parts, Time::ZERO);
    assert_eq!((verdict.action(), verdict.reason()), (Action::Refuse(503), Reason::NoRule));
    assert_eq!(engine.snapshot()[0].2.counts.allowed, 0);
    assert_eq!(engine.peek(&parts[0], Time::ZERO).remaining(), Some(5));
}

const WATCHED: &str = "
namespace: n
rules:
  - { name: open, match: { op: open }, key: [user], limits: unlimited }
  - { name: strict, match: { op: strict }, key: [user], limits: [2 per hour] }
  - { name: tested, match: { op: tested }, key: [user], limits: [2 per hour], over: shadow }
  - { name: queue, match: { op: queue }, key: [user], limits: [1 per second], over: queue up to 1s }
  - { name: quota, match: { op: quota }, key: [user], limits: [1 per hour], quota_mode: true }
  - { name: spare, match: { op: quota }, key: [], limits: [9 per hour], quota_mode: true }
";

#[test]
fn n8_every_rule_counts_whom_it_let_pass_made_wait_refused_and_would_have_refused() {
    let engine = engine(WATCHED);
    for op in ["open", "strict", "tested", "queue", "quota"] {
        for user in ["ann", "ann", "ann", "bob"] {
            let attributes = [("op", Value::Text(op)), ("user", Value::Text(user))];
            let _ = engine.check(&Request::new("n", &attributes), Time::ZERO);
        }
    }
    let snapshot: HashMap<_, _> = engine.snapshot().into_iter().map(|(_, rule, stats)| (rule, stats)).collect();
    let counts = |rule: &str| {
        let counts = snapshot[rule].counts;
        (counts.allowed, counts.waited, counts.refused, counts.shadowed)
    };
    assert_eq!(counts("open"), (4, 0, 0, 0));
    assert_eq!(counts("strict"), (3, 0, 1, 0));
    assert_eq!(counts("tested"), (3, 0, 0, 1));
    assert_eq!(counts("queue"), (2, 1, 1, 0));
    // Nobody was refused: there was something left in the spare quota.
    assert_eq!(counts("quota"), (2, 0, 0, 2));
    assert_eq!(counts("spare"), (4, 0, 0, 0));
    // Two clients look like one to the sketch in one of 256 runs.
    assert!([1.0, 2.0].contains(&snapshot["strict"].clients.round()));
    assert_eq!(snapshot["strict"].refused_clients.round(), 1.0);
    assert_eq!(snapshot["strict"].top.iter().map(|key| &*key.name).collect::<Vec<_>>(), ["ann"]);
    let uses = snapshot["strict"].uses;
    assert_eq!((uses.tenths[5], uses.tenths[9], uses.over), (2, 1, 1));
}

#[test]
fn n8_statistics_stay_small_whatever_clients_send() {
    let rules = parse("namespace: n\nrules: [{ name: a, key: [user], limits: [1 per hour] }]");
    let engine = Engine::builder().capacity(Capacity::Keys(1_000)).build(rules, Time::ZERO);
    let memory = engine.table().memory();
    for number in 0..20_000 {
        let user = format!("{}\u{1b}[2J{number}", "x".repeat(number % 3_000));
        let attributes = [("user", Value::Text(&user))];
        let request = Request::new("n", &attributes).with_cost(1 + number as u64 % 2);
        let _ = engine.check(&request, Time::ZERO);
    }
    let (_, _, stats) = engine.snapshot().remove(0);
    assert_eq!(stats.counts.total(), 20_000);
    assert!(stats.top.len() <= 16, "{}", stats.top.len());
    assert!(
        stats.top.iter().all(|key| key.name.len() <= 256 && !key.name.contains(char::is_control)),
        "{:?}",
        stats.top
    );
    assert!((16_000.0..25_000.0).contains(&stats.clients), "{}", stats.clients);
    assert_eq!(engine.table().memory(), memory);
}

#[test]
fn n8_the_keys_that_are_refused_most_are_named() {
    let engine = engine("namespace: n\nrules: [{ name: a, key: [user, ip], limits: [1 per day] }]");
    for round in 0..100 {
        for (user, often) in [("worst", 5), ("bad", 2)] {
            for _ in 0..often {
                let attributes = [("user", Value::Text(user)), ("ip", "192.0.2.1".into())];
                let _ = engine.check(&Request::new("n", &attributes), Time::ZERO);
            }
        }
        let passing = format!("passing {round}");
        let attributes = [("user", Value::Text(&passing))];
        let _ = engine.check(&Request::new("n", &attributes).with_cost(2), Time::ZERO);
    }
    let (_, _, stats) = engine.snapshot().remove(0);
    let names: Vec<_> = stats.top.iter().take(2).map(|key| &*key.name).collect();
    assert_eq!(names, ["worst, 192.0.2.1", "bad, 192.0.2.1"]);
}

#[test]
fn an_event_arrives_for_every_decision_and_for_every_change() {
    let (decided, replaced) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counters = (Arc::clone(&decided), Arc::clone(&replaced));
    let observe = move |event: &Event<'_>| match event {
        Event::Decided { parts, verdict } => {
            assert!(!parts.is_empty() && verdict.version() > 0);
            counters.0.fetch_add(1, Ordering::Relaxed);
        }
        Event::RulesReplaced { version } => counters.1.store(*version, Ordering::Relaxed),
        _ => unreachable!(),
    };
    let engine = Engine::builder().observer(observe).build(parse(WATCHED), Time::ZERO);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..500 {
                    let op = ["open", "strict", "tested", "queue", "none"][number % 5];
                    let attributes = [("op", Value::Text(op))];
                    let _ = engine.check(&Request::new("n", &attributes), Time::ZERO);
                }
            });
        }
    });
    assert_eq!(decided.load(Ordering::Relaxed), 2_000);
    let request = Request::new("n", &[]);
    let _ = engine.reserve(&request, Duration::ZERO, Time::ZERO);
    let _ = engine.check_all(&[request, request], Time::ZERO);
    let _ = engine.begin(&request, Time::ZERO);
    assert_eq!(decided.load(Ordering::Relaxed), 2_003);
    let _ = (engine.peek(&request, Time::ZERO), engine.explain(&request, Time::ZERO));
    assert_eq!(engine.reset(&request, Time::ZERO), 0);
    assert_eq!(decided.load(Ordering::Relaxed), 2_003);
    engine.replace(parse(WATCHED), Time::ZERO);
    assert_eq!((replaced.load(Ordering::Relaxed), engine.version()), (2, 2));
}

#[test]
fn secrets_do_not_leak_when_verdicts_and_events_are_printed() {
    let printed = Arc::new(Mutex::new(String::new()));
    let book = Arc::clone(&printed);
    let observe = move |event: &Event<'_>| book.lock().unwrap().push_str(&format!("{event:?}"));
    let rules = parse("namespace: n\nrules: [{ name: a, key: [token], limits: [1 per hour], over: queue up to 1h }]");
    let engine = Engine::builder().observer(observe).build(rules, Time::ZERO);
    let attributes = [("token", "hunter2".into()), ("password", "hunter2".into())];
    let request = Request::new("n", &attributes);
    for _ in 0..3 {
        let verdict = engine.check(&request, Time::ZERO);
        printed.lock().unwrap().push_str(&format!("{verdict:?} {}", verdict.problem()));
        verdict.headers(Time::ZERO, |_, value| printed.lock().unwrap().push_str(value));
    }
    printed.lock().unwrap().push_str(&format!("{engine:?}"));
    assert!(!printed.lock().unwrap().contains("hunter2"), "{}", printed.lock().unwrap());
}

/// The kinds of rules are told apart by the model; this shows that it is not all the same to it.
#[test]
fn the_model_tells_shadowed_rules_from_others() {
    let plain = Written { limits: vec![(1, 0)], ..Written::default() };
    let asked = Asked { cost: 1, ..Asked::default() };
    let second = |rule: &Written| {
        let mut model = Model::new(std::slice::from_ref(rule));
        let _ = model.check(&asked, Time::ZERO);
        model.check(&asked, Time::ZERO).action
    };
    assert_eq!(second(&plain), Action::Refuse(429));
    assert_eq!(second(&Written { is_shadow: true, ..plain }), Action::Allow);
}

#[test]
fn r6_unknown_namespaces_pass_unless_told_otherwise() {
    let rules = || RuleSet::parse(&[Source::new("rules.yaml", "namespace: known\nrules: []\n")]).unwrap();
    let request = Request::new("unknown", &[]);
    let verdict = Engine::new(rules(), Time::ZERO).check(&request, Time::ZERO);
    assert_eq!((verdict.action(), verdict.reason()), (Action::Allow, Reason::UnknownNamespace));
    let strict = Engine::builder().unknown_namespaces(tollgate::model::NoMatch::Refuse).build(rules(), Time::ZERO);
    let parts = [Request::new("known", &[]), request];
    let verdict = strict.check_all(&parts, Time::ZERO);
    assert_eq!((verdict.action(), verdict.reason()), (Action::Refuse(503), Reason::UnknownNamespace));
    assert_eq!(verdict.retry_after(), None);
    strict.replace(rules(), Time::ZERO);
    assert!(!strict.check(&request, Time::ZERO).is_allowed(), "also after a change");
}

#[test]
fn i1_an_api_key_is_known_by_its_fingerprint_wherever_it_comes_from() {
    let print = tollgate::identity::fingerprint(b"hunter2");
    let rules = format!(
        "namespace: n\nrules: [{{ name: r, key: [api_key], limits: [1 per hour], \
         overrides: [{{ client: {{ api_key: \"{print}\" }}, limits: [2 per hour] }}] }}]\n"
    );
    let engine = Engine::new(RuleSet::parse(&[Source::new("rules.yaml", rules)]).unwrap(), Time::ZERO);
    let (raw, fingerprint) = ([("api_key", "hunter2".into())], [("api_key", (&*print).into())]);
    assert!(engine.check(&Request::new("n", &raw), Time::ZERO).is_allowed());
    assert!(engine.check(&Request::new("n", &fingerprint), Time::ZERO).is_allowed());
    assert!(!engine.check(&Request::new("n", &raw), Time::ZERO).is_allowed());
    let told = format!("{:?} {:?}", engine.snapshot(), engine.explain(&Request::new("n", &raw), Time::ZERO));
    assert!(told.contains(&*print) && !told.contains("hunter2"), "{told}");
}
