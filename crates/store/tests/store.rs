//! Deciding through a store: what it keeps, what it must be allowed, and what hammering it costs.

mod common;

use common::{Kind, PATIENCE, Random, Server, now};
use std::time::Duration;
use tollgate::{Action, Clock, Engine, Limit, Quota, Reason, Request, RuleSet, Source, Time, Value, Verdict};
use tollgate_store::{Ask, Batch, Config, Fingerprint, Host, Reply, Says, Spent, Store, Told, Trouble};

fn engine(rules: &str) -> Engine {
    let text = format!("namespace: n\nrules:\n{rules}");
    Engine::new(
        RuleSet::parse(&[Source::new("rules", text)]).unwrap_or_else(|mistakes| panic!("{mistakes}")),
        Time::ZERO,
    )
}

/// Patient, since a test that measures no time need not fail on a busy machine.
fn config(server: &Server) -> Config {
    Config {
        budget: Duration::from_secs(5),
        connect_timeout: Duration::from_secs(5),
        ..Config::new(server.address.to_string())
    }
}

async fn open(config: Config) -> Store {
    let store = Store::open(config);
    tokio::time::timeout(PATIENCE, store.connected()).await.unwrap_or_else(|_| panic!("{:?}", store.trouble()));
    store
}

async fn check(store: &Store, engine: &Engine, op: &str, user: &str, now: Time) -> Verdict {
    let attributes = [("op", Value::Text(op)), ("user", Value::Text(user))];
    engine.check_with(store, &Request::new("n", &attributes), now).await
}

const RULES: &str = "
  - { name: near, match: { op: mixed }, key: [user], limits: [10 per hour] }
  - { name: far, match: { op: mixed }, key: [user], limits: [3 per hour, 100 per day using sliding-window], shared: store-exact }
  - { name: watched, match: { op: mixed }, key: [user], limits: [1 per hour], shared: store-exact, over: shadow }
  - { name: queued, match: { op: queued }, key: [user], limits: [2 per minute], shared: store-exact, over: queue up to 45s }
  - { name: cheap, match: { op: either }, key: [user], limits: [1 per hour], shared: store-exact, quota_mode: true }
  - { name: dear, match: { op: either }, key: [user], limits: [2 per hour], shared: store-exact, quota_mode: true }
";

#[tokio::test]
async fn c3_hosts_with_wrong_clocks_count_together() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let hosts = [engine(RULES), engine(RULES)];
        let stores = [open(config(&server)).await, open(config(&server)).await];
        // A host that is a year ahead of the other.
        let clocks = [Time::ZERO, Time::ZERO + Duration::from_secs(31_536_000)];
        let mut verdicts = Vec::new();
        for turn in 0..5 {
            let host = turn % 2;
            let verdict = check(&stores[host], &hosts[host], "mixed", "ann", clocks[host]).await;
            assert!(verdict.checks().iter().all(|check| !check.is_degraded), "{verdict:?}");
            verdicts.push((verdict.action(), verdict.rule().map(str::to_owned)));
        }
        let far = Some("far".to_owned());
        let (allowed, refused) = ((Action::Allow, far.clone()), (Action::Refuse(429), far));
        assert_eq!(verdicts, [&allowed, &allowed, &allowed, &refused, &refused].map(Clone::clone));
        // What is limited on each host has got back what it had taken.
        let attributes = [("op", Value::Text("mixed")), ("user", Value::Text("ann"))];
        let left = |host: usize| {
            hosts[host].peek(&Request::new("n", &attributes), clocks[host]).checks()[0].decision.remaining
        };
        assert_eq!([left(0), left(1)], [8, 9]);
    }
}

/// How many of those who ask all the time for so long are let through.
async fn hammer(store: &Store, engine: &Engine, op: &str, lasts: Duration) -> u32 {
    let (start, clock, mut admitted) = (now(), Clock::system(), 0);
    while start.elapsed() < lasts {
        admitted += u32::from(check(store, engine, op, "ann", clock.now()).await.is_allowed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    admitted
}

#[tokio::test]
async fn d9_a_rolling_limit_in_the_store_has_a_gap_a_namespace_and_counts_the_blocked_or_not() {
    let rules = "
  - { name: gap, match: { op: gap }, key: [user], limits: [100 per hour using sliding-log gap 300ms], shared: store-exact }
  - { name: open, match: { op: open }, key: [user], limits: [2 per second using sliding-log], shared: store-exact }
  - { name: shut, match: { op: shut }, key: [user], limits: [2 per second using sliding-log counting-refused], shared: store-exact }
";
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let (store, engine) = (open(config(&server)).await, engine(rules));
        // No two are closer than the gap.
        let (start, mut admitted) = (now(), 0);
        while admitted < 3 {
            admitted += hammer(&store, &engine, "gap", Duration::from_millis(1)).await;
            assert!(start.elapsed() < PATIENCE);
        }
        assert!(start.elapsed() >= Duration::from_millis(600), "{:?}", start.elapsed());
        // Whoever keeps asking is let in again, or not as long as blocked attempts count, too.
        let admitted = [
            hammer(&store, &engine, "open", Duration::from_millis(1_500)).await,
            hammer(&store, &engine, "shut", Duration::from_millis(1_500)).await,
        ];
        assert_eq!(admitted, [4, 2], "{kind:?}");
        // Who has the same name in another namespace is somebody else.
        let text = format!("namespace: other\nrules:\n{rules}");
        let other = Engine::new(RuleSet::parse(&[Source::new("rules", text)]).unwrap(), Time::ZERO);
        let attributes = [("op", Value::Text("shut")), ("user", Value::Text("ann"))];
        let clock = Clock::system();
        assert!(!check(&store, &engine, "shut", "ann", clock.now()).await.is_allowed());
        assert!(other.check_with(&store, &Request::new("other", &attributes), clock.now()).await.is_allowed());
        let kinds = server.client().text(&["EVAL", "return redis.call('TYPE', redis.call('KEYS', 'tg:*')[1])", "0"]);
        assert_eq!(kinds, "zset", "a sorted set");
    }
}

#[tokio::test]
async fn a_rule_that_queues_tells_how_long_to_wait() {
    let server = Server::start(Kind::Redis, &[]);
    let (store, engine) = (open(config(&server)).await, engine(RULES));
    let mut waits = Vec::new();
    for _ in 0..4 {
        match check(&store, &engine, "queued", "ann", Time::ZERO).await.action() {
            Action::Allow => waits.push(0),
            Action::Wait(wait) => waits.push(wait.as_secs() + 1),
            Action::Refuse(status) => waits.push(u64::from(status)),
            Action::Drop => panic!("it queues"),
        }
    }
    assert_eq!(waits, [0, 0, 30, 429]);
}

#[tokio::test]
async fn in_quota_mode_a_request_is_paid_for_by_those_that_have_room() {
    let server = Server::start(Kind::Redis, &[]);
    let (store, engine) = (open(config(&server)).await, engine(RULES));
    let mut actions = Vec::new();
    for _ in 0..3 {
        actions.push(check(&store, &engine, "either", "ann", Time::ZERO).await.action());
    }
    assert_eq!(actions, [Action::Allow, Action::Allow, Action::Refuse(429)]);
}

#[tokio::test]
async fn requests_that_go_ahead_together_pay_one_state_for_all_of_them() {
    let server = Server::start(Kind::Redis, &[]);
    let rules = "
  - { name: all, key: [], limits: [5 per hour], shared: store-exact }
  - { name: users, key: [user], limits: [3 per hour], shared: store-exact }
";
    let (store, engine) = (open(config(&server)).await, engine(rules));
    let [ann, bob] = ["ann", "bob"].map(|user| [("user", Value::Text(user))]);
    let both = [Request::new("n", &ann), Request::new("n", &bob)];
    for left in [3, 1] {
        let verdict = engine.check_all_with(&store, &both, Time::ZERO).await;
        assert!(verdict.is_allowed() && verdict.checks().len() == 4, "{verdict:?}");
        assert!(verdict.checks().iter().step_by(2).all(|check| check.decision.remaining == left), "{verdict:?}");
    }
    // One is left, and that is not enough for two. Either of them alone may have it.
    for _ in 0..3 {
        let verdict = engine.check_all_with(&store, &both, Time::ZERO).await;
        assert_eq!((verdict.action(), verdict.rule()), (Action::Refuse(429), Some("all")));
    }
    assert_eq!(store.stats().remembered, 2);
    assert!(check(&store, &engine, "x", "ann", Time::ZERO).await.is_allowed());
}

#[tokio::test]
async fn a_quota_of_this_host_that_has_room_pays_for_the_request_whatever_the_store_says() {
    let server = Server::start(Kind::Redis, &[]);
    let rules = "
  - { name: near, key: [user], limits: [3 per hour], quota_mode: true }
  - { name: far, key: [user], limits: [1 per hour], shared: store-exact, quota_mode: true }
  - { name: all, key: [], limits: [2 per hour], shared: store-exact }
";
    let (store, engine) = (open(config(&server)).await, engine(rules));
    let mut actions = Vec::new();
    for _ in 0..3 {
        actions.push(check(&store, &engine, "x", "ann", Time::ZERO).await.action());
    }
    // The third is refused by what everybody shares, which the second has paid although the quota there was used up.
    assert_eq!(actions, [Action::Allow, Action::Allow, Action::Refuse(429)]);
}

#[tokio::test]
async fn c3_hammering_a_key_that_is_refused_costs_no_round_trip() {
    let server = Server::start(Kind::Redis, &[]);
    let (store, engine, clock) = (open(config(&server)).await, engine(RULES), Clock::system());
    for _ in 0..3 {
        assert!(check(&store, &engine, "mixed", "ann", clock.now()).await.is_allowed());
    }
    for _ in 0..1_000 {
        let verdict = check(&store, &engine, "mixed", "ann", clock.now()).await;
        assert_eq!((verdict.action(), verdict.rule()), (Action::Refuse(429), Some("far")));
        assert_eq!((verdict.reason(), verdict.checks()[1].is_degraded), (Reason::OverLimit, false));
        let wait = verdict.retry_after().unwrap();
        assert!(wait > Duration::from_secs(1_100) && wait <= Duration::from_secs(1_200), "{wait:?}");
    }
    let stats = store.stats();
    assert_eq!((stats.answered, stats.remembered), (4, 999), "{stats:?}");
    // Somebody else is not refused.
    assert!(check(&store, &engine, "mixed", "bob", clock.now()).await.is_allowed());
}

#[tokio::test]
async fn c3_keys_are_small_expire_and_say_nothing_about_clients() {
    const LIMITS: [(&str, usize); 12] = [
        ("100 per second", 100),
        ("3 per second burst 20", 100),
        ("1000003 per hour", 100),
        ("5 per minute using leaky-queue", 100),
        ("5 per minute using smooth-bursty", 100),
        ("1000000 per second using fixed-window", 100),
        ("1000000 per hour using fixed-window", 100),
        ("1000000 per month using calendar-window", 100),
        ("100 per minute using cycles wait 1m", 100),
        ("100 per minute using sliding-window", 128),
        ("10 per minute using smooth-warming-up warm-up 10s", 160),
        ("10 per minute using sliding-log", 200),
    ];
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let (store, mut client) = (open(config(&server)).await, server.client());
        for (limit, most) in LIMITS {
            client.text(&["FLUSHALL"]);
            let engine = engine(&format!("  - {{ name: a, key: [user], limits: [\"{limit}\"], shared: store-exact }}"));
            let attributes = [("op", Value::Text("x")), ("user", Value::Text("{somebody} with\r\na name"))];
            // Nearly all of it, so that the number is as long as it gets.
            let cost = limit.split(' ').next().unwrap().parse::<u64>().unwrap() - 1;
            let verdict = engine.check_with(&store, &Request::new("n", &attributes).with_cost(cost), Time::ZERO).await;
            assert!(verdict.is_allowed(), "{limit}: {verdict:?}");
            let Reply::Array(keys) = client.ask(&["KEYS", "*"]) else { panic!("{limit}") };
            let [Reply::Text(key)] = keys.as_slice() else { panic!("{limit}: {keys:?}") };
            let key = std::str::from_utf8(key).unwrap();
            let (tag, hash) = key.strip_prefix("tg:{").and_then(|rest| rest.split_once('}')).unwrap();
            assert_eq!(tag.len(), 3, "{key}");
            assert!(hash.len() == 22 && hash.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)), "{key}");
            let bytes: usize = client.text(&["MEMORY", "USAGE", key]).parse().unwrap();
            assert!(bytes <= most, "{kind:?}: {limit}: {bytes} bytes");
            let life: i64 = client.text(&["PTTL", key]).parse().unwrap();
            let resets = i64::try_from(verdict.checks()[0].decision.reset_after.as_millis()).unwrap();
            // Some of its life has passed already. What warms up is kept for a warm-up longer than it has to be, and a bucket for
            // a step of up to a quarter of the time in which it fills, of which it is nearly empty now.
            let is_bucket =
                ["leaky-queue", "smooth-bursty"].iter().any(|kind| limit.contains(kind)) || !limit.contains("using");
            let longer =
                if limit.contains("warm-up") { 12_000 } else { 2_000 + resets / if is_bucket { 3 } else { 500 } };
            assert!(life > resets - 2_000 && life <= resets + longer, "{limit}: {life} for {resets}");
        }
    }
}

#[tokio::test]
async fn c3_a_bucket_is_kept_until_it_is_full_and_not_much_longer() {
    const LIMITS: [&str; 6] = [
        "100 per second",
        "5 per minute",
        "1000 per second burst 3",
        "1 per hour",
        "10000 per day",
        "1000000 per second",
    ];
    let mut random = Random(7);
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let (store, mut client, clock) = (open(config(&server)).await, server.client(), Clock::system());
        let (mut moved, mut checked) = (0, 0);
        for round in 0..3_000 {
            let text = LIMITS[random.below(LIMITS.len() as u64) as usize];
            let quota: Quota = text.parse().unwrap();
            let says = [Says::Refuse, Says::Refuse, Says::Refuse, Says::Quota][random.below(4) as usize];
            let (limit, cost) = (Limit::token_bucket(quota), 1 + random.below(quota.burst().min(8)));
            let key = Fingerprint::new(1, format!("{text} {}", random.below(3)).as_bytes());
            let ask = Ask { key, limit, cost, max_wait: None, says };
            if random.below(8) == 0 {
                store.give_back(vec![ask]).await;
            } else {
                store.ask(vec![ask], clock.now()).await;
            }
            let name = key.name("tg:");
            let (value, expires_at) = (client.ask(&["GET", &name]), client.text(&["PEXPIRETIME", &name]));
            let Reply::Text(value) = value else { continue };
            let full_at: u64 = std::str::from_utf8(&value).unwrap().parse().unwrap();
            let Ok(expires_at) = expires_at.parse::<u64>() else { continue };
            let token = quota.period().as_micros() as u64 / quota.count();
            let step = (token * quota.burst() / 4).min((16 * token).max(10_000_000));
            assert!(expires_at * 1_000 >= full_at, "{kind:?}: {text}: {expires_at} for {full_at} in round {round}");
            assert!(expires_at * 1_000 <= full_at + step + 5_000, "{kind:?}: {text}: {expires_at} for {full_at}");
            checked += 1;
            moved += u64::from(expires_at * 1_000 > full_at + 3_000);
        }
        assert!(checked > 1_000 && moved > 300, "{checked} seen, {moved} of them with time to spare");
    }
}

#[tokio::test]
async fn c3_looking_says_what_asking_would_and_takes_nothing() {
    const LIMITS: [&str; 9] = [
        "10 per 100 days",
        "7 per 100 days burst 10",
        "10 per 100 days using leaky-queue",
        "10 per 100 days using fixed-window",
        "10 per year using calendar-window",
        "10 per 100 days using sliding-window",
        "10 per 100 days using sliding-log",
        "10 per 100 days using sliding-log counting-refused",
        "10 per 100 days using smooth-warming-up warm-up 10s wait 1h",
    ];
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let store = open(config(&server)).await;
        for limit in LIMITS {
            let text = format!(
                "  - {{ name: a, key: [user], limits: [\"{limit}\"], shared: store-exact, on_failure: refuse }}"
            );
            let engine = engine(&text);
            let attributes = [("user", Value::Text("ann"))];
            for turn in 0..14 {
                let request = Request::new("n", &attributes).with_cost(1 + turn % 3);
                // With a clock that has forgotten refusals.
                let now = Time::ZERO + Duration::from_secs(86_400 * turn);
                let [one, other] =
                    [engine.peek_with(&store, &request, now).await, engine.peek_with(&store, &request, now).await];
                let asked = engine.check_with(&store, &request, now).await;
                assert!(!one.is_degraded() && !asked.is_degraded(), "{limit}");
                assert_eq!(one.is_allowed(), other.is_allowed(), "{kind:?}: {limit}, turn {turn}");
                assert_eq!(one.remaining(), other.remaining(), "{kind:?}: {limit}, turn {turn}");
                assert_eq!(one.is_allowed(), asked.is_allowed(), "{kind:?}: {limit}, turn {turn}");
                if asked.is_allowed() {
                    let left = one.remaining().unwrap().checked_sub(request.cost);
                    assert!(left == asked.remaining() || limit.contains("warm"), "{kind:?}: {limit}, turn {turn}");
                }
            }
        }
        assert_eq!((store.stats().failed, store.stats().lost), (0, 0));
    }
    // Without a store it is said what the rule would do then.
    let nowhere = Store::open(Config::new("127.0.0.1:1"));
    let engine = engine("  - { name: a, key: [user], limits: [2 per hour], shared: store-exact, on_failure: refuse }");
    let verdict = engine.peek_with(&nowhere, &Request::new("n", &[("user", Value::Text("ann"))]), Time::ZERO).await;
    assert_eq!((verdict.is_degraded(), verdict.action()), (true, Action::Refuse(503)));
}

#[tokio::test]
async fn what_is_settled_late_lets_nobody_through_twice() {
    let server = Server::start(Kind::Redis, &[]);
    let store = open(config(&server)).await;
    let rules = "
  - { name: bucket, match: { op: bucket }, key: [user], limits: [50 per second], shared: store-exact, on_failure: refuse }
  - { name: window, match: { op: window }, key: [user], limits: [50 per second using fixed-window], shared: store-exact, on_failure: refuse }
";
    let (engine, clock) = (engine(rules), Clock::system());
    for op in ["bucket", "window"] {
        let attributes = [("op", Value::Text(op)), ("user", Value::Text("ann"))];
        let all = Request::new("n", &attributes).with_cost(50);
        let reserved = engine.reserve_with(&store, &all, PATIENCE, clock.now()).await;
        let hold = reserved.unwrap_or_else(|verdict| panic!("{op}: {verdict:?}"));
        // By and by everything has come back.
        while !engine.check_with(&store, &all, clock.now()).await.is_allowed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        engine.settle_with(&store, hold, 0, clock.now()).await;
        let left = engine.peek_with(&store, &all.with_cost(1), clock.now()).await.remaining().unwrap();
        assert!(left < 25, "{op}: {left} of what others have taken were given back");
    }
}

#[tokio::test]
async fn what_turns_out_to_cost_more_is_taken_of_every_limit_as_far_as_it_goes() {
    let server = Server::start(Kind::Redis, &[]);
    let store = open(config(&server)).await;
    let rules = "
  - name: a
    key: [user]
    limits: [100 per day, 200 per day using sliding-window, 40 per day using fixed-window]
    shared: store-exact
    on_failure: refuse
";
    let (engine, clock) = (engine(rules), Clock::system());
    let attributes = [("user", Value::Text("ann"))];
    let request = Request::new("n", &attributes).with_cost(10);
    let reserved = engine.reserve_with(&store, &request, PATIENCE, clock.now()).await;
    let (hold, before) = (reserved.unwrap_or_else(|verdict| panic!("{verdict:?}")), store.stats().answered);
    engine.settle_with(&store, hold, 60, clock.now()).await;
    // A window that is nearly used up gives what it has.
    let left = engine.peek_with(&store, &request.with_cost(0), clock.now()).await;
    let left: Vec<u64> = left.checks().iter().map(|check| check.decision.remaining).collect();
    assert_eq!(left, [40, 140, 0]);
    assert_eq!(store.stats().answered - before, 3, "all of them, the rest, and to look");
}

#[tokio::test]
async fn c3_a_user_of_the_access_list_needs_no_more_than_is_written() {
    // As in the documentation of the crate.
    let user = "on >secret ~tg:* +eval +evalsha +time +mget +set +psetex +incrby +del +pexpire +zadd +zcard +zrange +zrangebyscore +zrem \
                +zremrangebyscore";
    let rules = "
  - name: all
    key: [user]
    limits:
      - 3 per hour
      - 3 per second
      - 3 per hour using fixed-window
      - 3 per month using calendar-window
      - 3 per hour using sliding-window
      - 3 per hour using sliding-log counting-refused
      - 10 per second using smooth-warming-up warm-up 10s wait 1h
    shared: store-exact
    on_failure: refuse
";
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let mut client = server.client();
        let mut words = vec!["ACL", "SETUSER", "tollgate"];
        words.extend(user.split_whitespace());
        client.text(&words);
        client.text(&["ACL", "SETUSER", "default", "-@all", "+acl|setuser", "+ping"]);
        let (name, password) = (Some("tollgate".to_owned()), Some("secret".to_owned()));
        let store = open(Config { user: name.clone(), password, ..config(&server) }).await;
        let engine = engine(rules);
        for left in (0..3).rev() {
            let verdict = check(&store, &engine, "x", "ann", Time::ZERO).await;
            assert!(verdict.is_allowed() && verdict.checks()[0].decision.remaining == left, "{verdict:?}");
        }
        for _ in 0..30 {
            assert_eq!(check(&store, &engine, "x", "ann", Time::ZERO).await.action(), Action::Refuse(429));
        }
        // Nor do the other scripts need more.
        let limit = Limit::token_bucket("3 per hour".parse().unwrap());
        let ask = Ask { key: Fingerprint::new(1, b"ann"), limit, cost: 1, max_wait: None, says: Says::Refuse };
        let spent = Spent { key: ask.key, recovery: limit.recovery(Time::ZERO).unwrap(), most: 3, tokens: 1 };
        assert!(matches!(store.ask(vec![ask.clone()], Time::ZERO).await, Told::Decided(_)));
        assert!(store.look(vec![ask.clone()]).await.is_some());
        assert_eq!(store.give_back(vec![ask.clone()]).await, [Some(1)]);
        assert!(store.count_hosts(Host(1)).await.is_some());
        assert!(store.tell(Host(1), &Batch { number: 1, spent: vec![spent] }).await.is_some());
        assert!(store.forget(&[ask]).await);
        assert_eq!((store.stats().failed, store.stats().lost), (0, 0));
        // Another prefix is not allowed, and a wrong password not at all; either is said, and the password is not.
        for (wrong, expected) in [
            (Config { prefix: "other:".to_owned(), password: Some("secret".to_owned()), ..config(&server) }, "NOPERM"),
            (Config { password: Some("guess".to_owned()), ..config(&server) }, "WRONGPASS"),
            (Config { user: None, ..config(&server) }, "NOPERM"),
        ] {
            let wrong = if wrong.password.is_some() { Config { user: name.clone(), ..wrong } } else { wrong };
            let store = Store::open(wrong);
            let start = now();
            while store.trouble().is_none() && start.elapsed() < PATIENCE {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let trouble = store.trouble().unwrap();
            assert!(matches!(&*trouble, Trouble::Refused(why) if why.contains(expected)), "{trouble}");
            assert!(!format!("{store:?} {trouble:?}").contains("guess"));
            assert_eq!(check(&store, &engine, "x", "bob", Time::ZERO).await.action(), Action::Refuse(503));
        }
    }
}

#[tokio::test]
async fn n4_scripts_that_the_store_has_forgotten_are_sent_again_and_nobody_notices() {
    let rules = "
  - { name: a, match: { op: bucket }, key: [], limits: [1000 per hour], shared: store-exact, on_failure: refuse }
  - { name: b, match: { op: window }, key: [], limits: [1000 per hour using fixed-window], shared: store-exact, on_failure: refuse }
";
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        // A second connection would try the scripts, too, when it is made.
        let store = open(Config { connections: 1, ..config(&server) }).await;
        let (engine, mut client) = (engine(rules), server.client());
        for round in 1..=50 {
            client.text(&["SCRIPT", "FLUSH"]);
            for op in ["bucket", "window", "bucket", "window"] {
                assert!(check(&store, &engine, op, "ann", Time::ZERO).await.is_allowed());
            }
            let stats = store.stats();
            assert_eq!(
                (stats.reloaded, stats.answered, stats.failed + stats.lost + stats.late),
                (2 * round, 4 * round, 0)
            );
        }
    }
}

#[tokio::test]
async fn a_limit_that_no_store_can_keep_is_handled_as_a_failure() {
    let server = Server::start(Kind::Redis, &[]);
    let store = open(config(&server)).await;
    let limit = Limit::fixed_window("7 per 1001ns".parse().unwrap());
    let ask = Ask { key: Fingerprint::new(1, b"ann"), limit, cost: 1, max_wait: None, says: Says::Refuse };
    assert_eq!(store.ask(vec![ask], Time::ZERO).await, Told::Failed);
    assert_eq!(store.stats().impossible, 1);
}

#[tokio::test]
async fn n2_a_cost_beyond_what_a_store_can_count_is_refused_and_no_failure_that_lets_it_in() {
    let limits = [
        "7 per minute",
        "7 per minute using fixed-window",
        "7 per minute using calendar-window",
        "7 per minute using sliding-window",
        "7 per minute using sliding-log",
    ];
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let store = open(config(&server)).await;
        for limit in limits {
            let rule =
                format!("  - {{ name: a, key: [user], limits: [{limit}], shared: store-exact, on_failure: allow }}");
            let engine = engine(&rule);
            for cost in [8, 1 << 52, (1 << 52) + 1, (1 << 53) + 1, u64::MAX] {
                let attributes = [("user", Value::Text("ann"))];
                let request = Request { cost, ..Request::new("n", &attributes) };
                let verdict = engine.check_with(&store, &request, Time::ZERO).await;
                assert_eq!(verdict.action(), Action::Refuse(429), "{cost} of {limit}");
                assert!(!verdict.checks()[0].is_degraded, "{cost} of {limit}");
            }
            assert!(check(&store, &engine, "x", "ann", Time::ZERO).await.is_allowed(), "{limit}");
        }
        assert_eq!(store.stats().impossible, 0);
    }
}

#[tokio::test]
async fn what_was_not_used_is_given_back_and_never_more_than_is_missing() {
    let ask = |text: &str, cost: u64| {
        let limit = Limit::token_bucket(text.parse().unwrap());
        Ask { key: Fingerprint::new(1, text.as_bytes()), limit, cost, max_wait: None, says: Says::Refuse }
    };
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let (store, mut client, clock) = (open(config(&server)).await, server.client(), Clock::system());
        for limit in ["10 per hour", "7 per hour burst 10"] {
            let name = ask(limit, 0).key.name("tg:");
            let is_allowed = async |cost| {
                let told = store.ask(vec![ask(limit, cost)], clock.now()).await;
                matches!(told, Told::Decided(decisions) if decisions[0].is_allowed())
            };
            assert_eq!(store.give_back(vec![ask(limit, 3)]).await, [Some(0)]);
            assert_eq!(client.text(&["EXISTS", &name]), "0");
            assert!(is_allowed(8).await && !is_allowed(3).await && !is_allowed(3).await);
            // Both are about one state, and what it got back is theirs in turn. The refusal is forgotten with it.
            assert_eq!(store.give_back(vec![ask(limit, 2), ask(limit, 3)]).await, [Some(2), Some(3)]);
            assert!(is_allowed(3).await);
            let life: u64 = client.text(&["PTTL", &name]).parse().unwrap();
            let quota: Quota = limit.parse().unwrap();
            let full = quota.period().as_millis() as u64 * 6 / quota.count();
            let quarter = full * 10 / 6 / 4;
            assert!(life > full - 5_000 && life < full + quarter + 10_000, "{limit}: {life} of {full}");
            // A key that says nothing any more is gone.
            assert_eq!(store.give_back(vec![ask(limit, 4), ask(limit, 4)]).await, [Some(4), Some(2)]);
            assert_eq!(client.text(&["EXISTS", &name]), "0");
        }
    }
    let nowhere = Store::open(Config::new("127.0.0.1:1"));
    assert_eq!(nowhere.give_back(vec![ask("10 per hour", 1), ask("20 per hour", 1)]).await, [None, None]);
}

/// A library may ask from a runtime of its own, which stands still or ends while connections that it found late are tried.
#[test]
fn n4_a_store_is_asked_again_also_if_the_runtime_is_gone_that_found_it_late() {
    let server = Server::start(Kind::Redis, &[]);
    let home = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let config =
        Config { budget: Duration::from_millis(50), connections: 1, ..Config::new(server.address.to_string()) };
    let store = home.block_on(open(config));
    let limit = Limit::token_bucket("1000 per hour".parse().unwrap());
    let key = Fingerprint::new(1, b"ann");
    let ask =
        async || store.ask(vec![Ask { key, limit, cost: 1, max_wait: None, says: Says::Refuse }], Time::ZERO).await;
    let mut guests = Vec::new();
    for stays in [true, false] {
        let (start, before) = (now(), store.stats().unreachable);
        let guest = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        server.signal("STOP");
        while store.stats().unreachable == before {
            assert!(start.elapsed() < PATIENCE, "{:?}", store.stats());
            assert_eq!(guest.block_on(ask()), Told::Failed);
        }
        if stays {
            guests.push(guest);
        }
        server.signal("CONT");
        home.block_on(async {
            while ask().await == Told::Failed {
                assert!(start.elapsed() < PATIENCE, "{:?}", store.stats());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
}

/// Once a millisecond for half a second, with less time than the budget. Says how many waited, and how many of them were answered.
async fn ask_in_a_hurry(store: &Store, limit: Limit) -> (usize, usize) {
    let ask = || Ask { key: Fingerprint::new(1, b"a"), limit, cost: 1, max_wait: None, says: Says::Refuse };
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..500 {
        let (store, ask) = (store.clone(), ask());
        asking.spawn(
            async move { tokio::time::timeout(Duration::from_millis(20), store.ask(vec![ask], Time::ZERO)).await },
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let told = asking.join_all().await;
    let count = |is_meant: fn(&Result<Told, _>) -> bool| told.iter().filter(|told| is_meant(told)).count();
    (count(|told| !matches!(told, Ok(Told::Failed))), count(|told| matches!(told, Ok(Told::Decided(_)))))
}

#[tokio::test(flavor = "multi_thread")]
async fn n4_who_has_less_time_than_the_budget_does_not_wait_for_a_silent_store_for_ever_either() {
    let limit = Limit::token_bucket("1000000 per second".parse().unwrap());
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let store = open(Config { budget: Duration::from_millis(50), ..Config::new(server.address.to_string()) }).await;
        server.signal("STOP");
        let (waited, answered) = ask_in_a_hurry(&store, limit).await;
        println!("{kind:?}: {waited} waited; {:?}", store.stats());
        assert_eq!(answered, 0);
        assert!((1..=20).contains(&waited), "{kind:?}: {waited} waited: {:?}", store.stats());
        server.signal("CONT");
        tokio::time::timeout(PATIENCE, store.connected()).await.unwrap();
        let (_, answered) = ask_in_a_hurry(&store, limit).await;
        assert!(answered > 400, "{kind:?}: {answered} answered: {:?}", store.stats());
    }
}
