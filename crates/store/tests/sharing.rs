//! Hosts that count together through a real store: what they promise while it cannot be reached and after that, and that
//! nothing is lost or counted twice however the network behaves.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{Kind, PATIENCE, Server, now};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;
use tollgate::{RuleSet, Source, Tollgate, Value, Verdict};
use tollgate_chaos::{Chaos, Proxy, Script, ms};
use tollgate_limit::Recovery;
use tollgate_store::{Ask, Batch, Config, Fingerprint, Host, Reply, Says, Spent, Store};
use tower_layer::Layer;
use tower_service::Service;

fn rules(limit: &str, shared: &str, on_failure: &str) -> RuleSet {
    let text = format!(
        "namespace: n\nrules: [{{ name: a, key: [user], limits: [{limit}], shared: {shared}, on_failure: {on_failure} }}]\n"
    );
    RuleSet::parse(&[Source::new("rules", &*text)]).unwrap()
}

/// A host, and what it lets through.
struct Member {
    tollgate: Tollgate,
}

impl Member {
    fn start(address: SocketAddr, rules: RuleSet) -> Member {
        let config = Config { budget: Duration::from_millis(50), ..Config::new(address.to_string()) };
        Member { tollgate: Tollgate::builder().store(config).build(rules) }
    }

    async fn ask(&self, user: &str) -> Verdict {
        self.tollgate.decide(&tollgate::Request::new("n", &[("user", Value::Text(user))])).await
    }

    async fn look(&self, user: &str) -> Verdict {
        self.tollgate.peek_shared(&tollgate::Request::new("n", &[("user", Value::Text(user))])).await
    }

    /// How many of so many requests are let through.
    async fn admit(&self, user: &str, requests: u64) -> u64 {
        let mut admitted = 0;
        for _ in 0..requests {
            admitted += u64::from(self.ask(user).await.is_allowed());
        }
        admitted
    }

    fn knows(&self, hosts: u64) -> bool {
        let ledger = self.tollgate.engine().ledger();
        !ledger.is_cut_off() && ledger.hosts() == hosts
    }

    fn is_cut_off(&self) -> bool {
        self.tollgate.engine().ledger().is_cut_off() && !self.tollgate.sharing().unwrap().store().is_connected()
    }
}

/// Waits until something is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = now();
    while !is_so().await {
        assert!(start.elapsed() < PATIENCE, "{what} never came to be");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn both_know(one: &Member, other: &Member) {
    until("two hosts", async || one.knows(2) && other.knows(2)).await;
}

const MODES: [&str; 3] = ["store", "store-exact", "store-lease"];

#[tokio::test(flavor = "multi_thread")]
async fn n5_hosts_that_are_cut_off_keep_to_their_shares_and_owe_what_they_spent() {
    for mode in MODES {
        let mut server = Server::start(Kind::Redis, &[]);
        let start = |on_failure| Member::start(server.address, rules("100 per hour", mode, on_failure));
        let (one, other) = (start("local"), start("local"));
        both_know(&one, &other).await;
        server.kill();
        until("being cut off", async || one.is_cut_off() && other.is_cut_off()).await;
        let degraded = one.ask("alice").await;
        assert!(degraded.is_degraded() && degraded.is_allowed(), "{mode}");
        let admitted = (1 + one.admit("alice", 99).await, other.admit("alice", 100).await);
        assert_eq!(admitted, (50, 50), "{mode}: each has half of the limit");
        server.spawn_again();
        both_know(&one, &other).await;
        // Both have let half of the limit through meanwhile, and so there is nothing left. Hosts that decide by themselves hear
        // of that when they spend; what one has borrowed before the other has paid is not paid with, if it would take too
        // long to come back.
        let borrowed = if mode == "store-lease" { 100 / 4 } else { 0 };
        until(mode, async || {
            let verdict = if mode == "store" { one.ask("alice").await } else { one.look("alice").await };
            !verdict.is_degraded() && verdict.remaining().is_some_and(|left| left <= borrowed)
        })
        .await;
        let admitted = one.admit("alice", 100).await;
        assert!(admitted <= borrowed, "{mode}: {admitted}");
        assert!(one.ask("bob").await.is_allowed(), "{mode}");
        // Nothing is kept of those who owe nothing and do not come back.
        until("accounts that are closed", async || {
            [&one, &other].iter().all(|member| member.tollgate.engine().ledger().accounts() == 0)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n5_an_outage_brings_no_second_burst() {
    // How many may pass in all. Hosts that tell are over by no more than ever while each tells the other: half of half of the
    // twenty that were left before one has heard of the other, and the error budget of five.
    // What was lent and given back before is kept in mind as spent, so that a share of a lease may be less.
    for (mode, least, most) in [("store", 98, 100 + 5 + 5 + 1), ("store-exact", 98, 101), ("store-lease", 80, 101)] {
        let server = Server::start(Kind::Redis, &[]);
        let start = || Member::start(server.address, rules("100 per hour", mode, "local"));
        let (one, other) = (start(), start());
        both_know(&one, &other).await;
        // Whoever tells hears what the others have told before, and whoever asks what is left.
        assert_eq!(one.admit("alice", 60).await, 60, "{mode}");
        until("telling all", async || one.tollgate.engine().ledger().accounts() == 0).await;
        let mut admitted = 60 + other.admit("alice", 1).await;
        until("hearing of it", async || other.look("alice").await.remaining().is_some_and(|left| left < 50)).await;
        server.signal("STOP");
        until("being cut off", async || one.is_cut_off() && other.is_cut_off()).await;
        admitted += one.admit("alice", 100).await + other.admit("alice", 100).await;
        assert!((least..=101).contains(&admitted), "{mode}: {admitted} of 100");
        server.signal("CONT");
        both_know(&one, &other).await;
        until("a refusal of both", async || {
            // So slowly that hosts have told what they let through before more is asked for.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let said = [one.ask("alice").await, other.ask("alice").await];
            admitted += said.iter().filter(|verdict| verdict.is_allowed()).count() as u64;
            said.iter().all(|verdict| !verdict.is_allowed() && !verdict.is_degraded())
        })
        .await;
        println!("{mode}: {admitted} of 100");
        assert!(admitted <= most, "{mode}: {admitted} of 100");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n5_everybody_pays_also_when_there_are_more_hosts_by_then() {
    const CLIENTS: u64 = 1_500;
    for mode in ["store-exact", "store"] {
        let mut server = Server::start(Kind::Redis, &[]);
        let address = server.address;
        let start = || Member::start(address, rules("4 per hour", mode, "local"));
        let one = start();
        until("the store", async || one.knows(1)).await;
        server.kill();
        until("being cut off", async || one.is_cut_off()).await;
        for client in 0..CLIENTS {
            assert_eq!(one.admit(&client.to_string(), 3).await, 3, "{mode}");
        }
        let other = start();
        server.spawn_again();
        both_know(&one, &other).await;
        for client in 0..CLIENTS {
            let client = client.to_string();
            // One that nobody answered for is charged again.
            until("paying", async || one.look(&client).await.remaining().is_some_and(|left| left <= 1)).await;
        }
        drop(other);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n5_a_store_that_has_forgotten_the_hosts_does_not_make_them_fewer() {
    let mut server = Server::start(Kind::Redis, &[]);
    let members = [(); 4].map(|()| Member::start(server.address, rules("100 per hour", "store", "local")));
    let all_know = async || members.iter().all(|member| member.knows(4));
    until("four hosts", all_know).await;
    for _ in 0..3 {
        server.kill();
        until("being cut off", async || members.iter().all(Member::is_cut_off)).await;
        // What it keeps is in memory alone.
        server.spawn_again();
        until("four hosts", async || {
            let fewest = members.iter().map(|member| member.tollgate.engine().ledger().hosts()).min();
            assert_eq!(fewest, Some(4));
            all_know().await
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n4_what_was_let_through_without_limit_is_owed_but_nobody_is_locked_out_for_long() {
    for mode in MODES {
        let mut server = Server::start(Kind::Redis, &[]);
        let host = Member::start(server.address, rules("10 per second", mode, "allow"));
        until("the store", async || host.knows(1)).await;
        server.kill();
        until("being cut off", async || host.is_cut_off()).await;
        assert_eq!(host.admit("alice", 500).await, 500, "{mode}");
        server.spawn_again();
        until("the store", async || host.knows(1)).await;
        until(mode, async || !host.ask("alice").await.is_allowed()).await;
        let wait = host.ask("alice").await.retry_after().unwrap_or_default();
        // No more than the whole limit is owed, whatever was spent.
        assert!(wait <= Duration::from_millis(1_200), "{mode}: {wait:?}");
        until(mode, async || host.ask("alice").await.is_allowed()).await;
    }
}

/// The store decides, but does not let us count hosts.
#[tokio::test(flavor = "multi_thread")]
async fn n5_who_owes_pays_and_asks_again_also_where_hosts_cannot_be_counted() {
    let server = Server::start(Kind::Redis, &[]);
    let commands = "+eval +evalsha +time +mget +set +psetex +incrby +del +pexpire";
    let user = ["ACL", "SETUSER", "tollgate", "on", ">secret", "~tg:*"].into_iter().chain(commands.split(' '));
    server.client().text(&user.collect::<Vec<_>>());
    server.signal("STOP");
    let (user, password) = (Some("tollgate".to_owned()), Some("secret".to_owned()));
    let config = Config { user, password, budget: ms(50), ..Config::new(server.address.to_string()) };
    let rules = rules("100 per hour", "store-exact", "local");
    let member = Member { tollgate: Tollgate::builder().store(config).build(rules) };
    assert!(member.ask("alice").await.is_degraded());
    server.signal("CONT");
    // Those who owe nothing are asked about, and keep the connection from being given up.
    until("being asked about again", async || {
        let _ = member.ask("bob").await;
        !member.ask("alice").await.is_degraded()
    })
    .await;
    assert!(member.tollgate.engine().ledger().is_cut_off(), "hosts cannot be counted");
    let left = member.look("alice").await.remaining();
    assert!(left.is_some_and(|left| left < 99), "what was owed is paid: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n4_rules_that_say_so_refuse_while_the_store_cannot_be_reached() {
    for mode in MODES {
        let mut server = Server::start(Kind::Redis, &[]);
        let host = Member::start(server.address, rules("10 per second", mode, "refuse"));
        until("the store", async || host.knows(1)).await;
        assert!(host.ask("alice").await.is_allowed());
        server.kill();
        until("being cut off", async || host.is_cut_off()).await;
        let refused = host.ask("bob").await;
        assert_eq!((refused.action(), refused.is_degraded()), (tollgate::Action::Refuse(503), true), "{mode}");
        server.restart();
        until(mode, async || host.ask("bob").await.is_allowed()).await;
    }
}

/// How many tokens the store says are missing.
async fn missing(store: &Store, limit_id: u64, user: &[u8], number: u64) -> f64 {
    let key = Fingerprint::new(limit_id, user);
    let spent = vec![Spent { key, recovery: Recovery::Steady(1e-15), most: u64::MAX >> 12, tokens: 0 }];
    *store.tell(Host(number), &Batch { number, spent }).await.unwrap().missing.first().unwrap()
}

/// The limit's id and the client's key, as hosts know them.
async fn identity(rules: RuleSet) -> (u64, std::sync::Arc<[u8]>) {
    let engine = tollgate::Engine::new(rules, tollgate::Time::ZERO);
    let attributes = [("user", Value::Text("alice"))];
    match engine.begin(&tollgate::Request::new("n", &attributes), tollgate::Time::ZERO) {
        tollgate::Step::Ask(pending) => {
            let question = pending.questions().first().unwrap();
            let known = (question.limit_id, question.client.clone());
            let _ = engine.finish(
                pending,
                &tollgate::Request::new("n", &attributes),
                &tollgate::Answer::Failed,
                tollgate::Time::ZERO,
            );
            known
        }
        tollgate::Step::Done(verdict) => panic!("{verdict:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c4_a_host_that_flushes_before_it_ends_leaves_nothing_untold_and_keeps_nothing() {
    for mode in MODES {
        let mut server = Server::start(Kind::Redis, &[]);
        // Nothing comes back before the window ends.
        let address = server.address;
        let start = || Member::start(address, rules("1000 per 52 weeks using fixed-window", mode, "local"));
        let (one, other) = (start(), start());
        both_know(&one, &other).await;
        assert_eq!(one.admit("alice", 400).await, 400, "{mode}");
        assert!(one.tollgate.sharing().unwrap().flush().await, "{mode}");
        // It takes nothing ahead again, either.
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(one);
        let mut admitted = 400 + other.admit("alice", 1).await;
        until("hearing of it", async || other.look("alice").await.remaining() == Some(599)).await;
        until(mode, async || {
            admitted += other.admit("alice", 50).await;
            admitted >= 1_000
        })
        .await;
        assert_eq!(admitted + other.admit("alice", 50).await, 1_000, "{mode}");
        // What is spent while nobody can be told is told of when somebody can.
        let flush = async || other.tollgate.sharing().unwrap().flush().await;
        assert!(flush().await, "{mode}");
        server.kill();
        until("being cut off", async || other.is_cut_off()).await;
        assert!(flush().await, "{mode}: there is nothing to tell");
        assert!(other.ask("bob").await.is_allowed(), "{mode}");
        assert!(!flush().await, "{mode}: nobody can be told");
        server.spawn_again();
        until("the store", async || flush().await).await;
        let stranger = start();
        until("the store", async || !stranger.tollgate.engine().ledger().is_cut_off()).await;
        assert!(stranger.ask("bob").await.is_allowed(), "{mode}");
        until("hearing of it", async || stranger.look("bob").await.remaining() == Some(998)).await;
    }
}

/// Waits until a window of two seconds is so many milliseconds old, as the store sees it. Says which one it is.
async fn until_window_is(old: std::ops::Range<u64>, client: &mut common::Client) -> u64 {
    let number = |part: &Reply| match part {
        Reply::Text(text) => std::str::from_utf8(text).unwrap().parse::<u64>().unwrap(),
        other => panic!("{other:?}"),
    };
    loop {
        let millis = match client.ask(&["TIME"]) {
            Reply::Array(parts) => parts.iter().map(number).reduce(|seconds, micros| seconds * 1_000 + micros / 1_000),
            other => panic!("{other:?}"),
        };
        let millis = millis.unwrap();
        if old.contains(&(millis % 2_000)) {
            return millis / 2_000;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n2_what_was_borrowed_of_one_window_is_not_given_back_to_the_next() {
    const LIMIT: &str = "1000 per 2 seconds using fixed-window";
    let server = Server::start(Kind::Redis, &[]);
    let mut client = server.client();
    let host = Member::start(server.address, rules(LIMIT, "store-lease", "local"));
    let direct = Store::open(Config { budget: Duration::from_secs(5), ..Config::new(server.address.to_string()) });
    until("the store", async || host.knows(1) && direct.is_connected()).await;
    let (limit_id, key) = identity(rules(LIMIT, "store-exact", "local")).await;
    let ask = |cost| {
        let (key, limit) =
            (Fingerprint::new(limit_id, &key), tollgate::Limit::fixed_window("1000 per 2s".parse().unwrap()));
        vec![Ask { key, limit, cost, max_wait: None, says: Says::Refuse }]
    };
    let left = async || direct.look(ask(1)).await.unwrap().first().unwrap().remaining;
    // A busy machine may be late, and then it says nothing.
    until("a window that ends while something is lent", async || {
        let window = until_window_is(1_800..1_850, &mut client).await;
        assert_eq!(host.admit("alice", 200).await, 200);
        let in_hand = 800 - left().await;
        let next = until_window_is(0..100, &mut client).await;
        direct.ask(ask(300), tollgate::Time::ZERO).await;
        assert!(host.tollgate.sharing().unwrap().flush().await);
        let is_as_planned = next == window + 1 && until_window_is(0..2_000, &mut client).await == next;
        println!("{in_hand} in hand; {} left of the next window", left().await);
        if is_as_planned && in_hand > 0 {
            assert_eq!(left().await, 700, "{in_hand} were in hand");
        }
        is_as_planned && in_hand > 0
    })
    .await;
}

/// Connections are reset, cut in the midst of replies and lose replies, over and over again.
#[tokio::test(flavor = "multi_thread")]
async fn c4_what_was_told_is_never_lost_or_counted_twice() {
    // Nothing comes back before the window ends.
    const LIMIT: &str = "10000000 per 52 weeks using fixed-window";
    let server = Server::start(Kind::Redis, &[]);
    let patient = Duration::from_secs(5);
    let config = Config { budget: patient, connect_timeout: patient, ..Config::new(server.address.to_string()) };
    let direct = Store::open(config);
    tokio::time::timeout(PATIENCE, direct.connected()).await.unwrap();
    let (limit_id, client) = identity(rules(LIMIT, "store-exact", "local")).await;
    let (mut sum, mut cuts) = (0, 0);
    for seed in 1..=4 {
        let proxy = Proxy::tcp(server.address, Chaos::new(seed)).await.unwrap();
        let host = Member::start(proxy.address(), rules(LIMIT, "store", "refuse"));
        until("the store", async || host.knows(seed) || host.knows(1)).await;
        let broken = |number| Chaos::new(10 * seed + number).cut(0.5, 1..400).lose_replies(0.3);
        let phases = (0..6)
            .fold(Script::new(), |script, number| script.then(ms(150), broken(number)).then(ms(150), Chaos::new(seed)));
        proxy.play(phases.repeated());
        let (start, mut admitted) = (now(), 0);
        while start.elapsed() < Duration::from_secs(2) {
            admitted += host.admit("alice", 20).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        proxy.set(Chaos::new(seed));
        sum += admitted;
        until("all that was spent", async || {
            let told = missing(&direct, limit_id, &client, seed).await;
            assert!(told <= sum as f64 + 0.5, "{told} told of {sum} with seed {seed}");
            told >= sum as f64 - 0.5
        })
        .await;
        assert!(admitted > 0);
        cuts += proxy.counts().cut;
    }
    println!("{sum} told, {cuts} connections cut");
    assert!(cuts > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_by_one_limit_gives_nothing_back_to_another_that_others_are_told_of() {
    let text = "
namespace: n
rules:
  - { name: tenants, key: [tenant], limits: [1000 per day using fixed-window], shared: store, error_budget: 1% }
  - { name: users, key: [user], limits: [2 per hour], shared: store-exact }
";
    let server = Server::start(Kind::Redis, &[]);
    let start = || Member::start(server.address, RuleSet::parse(&[Source::new("rules", text)]).unwrap());
    let (one, other) = (start(), start());
    both_know(&one, &other).await;
    let ask = async |member: &Member, user: String| {
        let attributes = [("tenant", Value::Text("acme")), ("user", Value::Text(&user))];
        member.tollgate.decide(&tollgate::Request::new("n", &attributes)).await.is_allowed()
    };
    let mut admitted = 0;
    for turn in 0..400 {
        admitted += u64::from(ask(&one, format!("user {turn}")).await);
        // Most of these are refused.
        for _ in 0..5 {
            admitted += u64::from(ask(&one, "noisy".to_owned()).await);
        }
    }
    assert_eq!(admitted, 402);
    let mut refused = 0;
    for turn in 0..2_000 {
        let is_allowed = ask(&other, format!("other user {turn}")).await;
        admitted += u64::from(is_allowed);
        refused = if is_allowed { 0 } else { refused + 1 };
        if refused == 50 {
            break;
        }
        if turn % 10 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    // What both may hide, and what is spent while one tells the other.
    assert!((1_000..=1_150).contains(&admitted), "{admitted} of 1000");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_go_ahead_together_make_no_tokens_of_those_in_hand() {
    const LIMIT: u64 = 3_000;
    let server = Server::start(Kind::Redis, &[]);
    let host = std::sync::Arc::new(Member::start(server.address, rules("3000 per day", "store-lease", "refuse")));
    until("the store", async || host.knows(1)).await;
    let tasks = (0..8).map(|task| {
        let host = std::sync::Arc::clone(&host);
        tokio::spawn(async move {
            let (mut admitted, mut refused) = (0, 0);
            let attributes = [("user", Value::Text("alice"))];
            let parts = vec![tollgate::Request::new("n", &attributes); 1 + task % 3];
            while refused < 200 {
                let (engine, now) = (host.tollgate.engine(), host.tollgate.clock().now());
                let verdict = match engine.check_here(&parts, now) {
                    Some(verdict) => verdict,
                    None => host.tollgate.decide_all(&parts).await,
                };
                if verdict.is_allowed() {
                    admitted += parts.len() as u64;
                } else {
                    refused += 1;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            admitted
        })
    });
    let mut admitted = 0;
    for task in tasks.collect::<Vec<_>>() {
        admitted += task.await.unwrap();
    }
    assert!((LIMIT - 10..=LIMIT).contains(&admitted), "{admitted} of {LIMIT}");
}

/// A host that was cut off may have died as far as the others know: what it has in hand comes back to them, and it must not spend
/// that much later.
#[tokio::test(flavor = "multi_thread")]
async fn n2_tokens_in_hand_lapse_where_the_store_cannot_be_reached() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let proxy = Proxy::tcp(server.address, Chaos::new(0)).await.unwrap();
        let limit = "1000 per second burst 8000";
        let host = Member::start(proxy.address(), rules(limit, "store-lease", "refuse"));
        let other = Member::start(server.address, rules(limit, "store-exact", "refuse"));
        both_know(&host, &other).await;
        let in_hand = async || {
            host.admit("alice", 20).await;
            let verdict = host.ask("alice").await;
            verdict.is_allowed() && !verdict.is_degraded()
        };
        // Nothing waits for the store any more: it is spent from the hand.
        let calls = || host.tollgate.sharing().unwrap().store().stats().answered;
        until("tokens in hand", async || {
            let before = calls();
            in_hand().await && calls() == before
        })
        .await;
        proxy.set(Chaos::new(0).down());
        let gone = now();
        until("lapsed tokens", async || {
            tokio::time::sleep(Duration::from_millis(20)).await;
            !host.ask("alice").await.is_allowed()
        })
        .await;
        assert!(gone.elapsed() < Duration::from_millis(1_500), "{kind:?}: spent for {:?}", gone.elapsed());
        until("all tokens", async || other.look("alice").await.remaining() == Some(8_000)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n5_who_is_reset_while_the_store_is_away_begins_anew_here() {
    for shared in MODES {
        let mut server = Server::start(Kind::Redis, &[]);
        let host = Member::start(server.address, rules("10 per hour", shared, "local"));
        until("one host", async || host.knows(1)).await;
        assert_eq!(host.admit("alice", 3).await, 3);
        server.kill();
        until("being cut off", async || host.is_cut_off()).await;
        let left = host.admit("alice", 20).await;
        assert_eq!(left, 7, "{shared}");
        let alice = [("user", Value::Text("alice"))];
        assert!(host.tollgate.reset_shared(&tollgate::Request::new("n", &alice)).await.is_err());
        assert_eq!(host.admit("alice", 20).await, 10, "{shared}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n2_tokens_that_were_borrowed_and_not_used_go_back() {
    let server = Server::start(Kind::Redis, &[]);
    let host = Member::start(server.address, rules("100000 per hour", "store-lease", "refuse"));
    let exact = Member::start(server.address, rules("100000 per hour", "store-exact", "refuse"));
    both_know(&host, &exact).await;
    let mut admitted = 0;
    let start = now();
    let calls = || host.tollgate.sharing().unwrap().store().stats().answered;
    let before = calls();
    while start.elapsed() < Duration::from_secs(1) {
        admitted += host.admit("alice", 50).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let calls = (calls() - before) as f64 / admitted as f64;
    println!("{admitted} let through, {calls:.4} calls each");
    assert!(calls <= 0.05, "{calls}");
    let came_back = |seconds: u64| 100_000 * seconds / 3_600 + 1;
    until("all unused tokens", async || {
        let left = exact.ask("alice").await.remaining().unwrap();
        admitted += 1;
        left + admitted <= 100_000 + came_back(start.elapsed().as_secs() + 1) && left + admitted >= 100_000
    })
    .await;
}

/// Says hello to everybody.
#[derive(Clone)]
struct Hello;

impl tower_service::Service<http::Request<()>> for Hello {
    type Response = http::Response<String>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<()>) -> Self::Future {
        std::future::ready(Ok(http::Response::new("hello".to_owned())))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h4_services_behind_a_layer_share_their_limits() {
    let mut server = Server::start(Kind::Redis, &[]);
    let text = "namespace: n\nrules: [{ name: a, key: [header.x-user], limits: [10 per hour], shared: store-exact, on_failure: refuse }]\n";
    let hosts = [(); 2].map(|()| Member::start(server.address, RuleSet::parse(&[Source::new("rules", text)]).unwrap()));
    both_know(&hosts[0], &hosts[1]).await;
    let ask = async |host: usize, user: &str| {
        let request = http::Request::builder().header("x-user", user).body(()).unwrap();
        let mut service = hosts[host].tollgate.layer("n").layer(Hello);
        service.call(request).await.unwrap()
    };
    let mut statuses = Vec::new();
    for number in 0..15 {
        statuses.push(ask(number % 2, "alice").await.status().as_u16());
    }
    assert_eq!(statuses, [[200; 10].as_slice(), &[429; 5]].concat());
    assert!(ask(1, "alice").await.headers().contains_key("retry-after"));
    server.kill();
    until("being cut off", async || hosts[0].is_cut_off()).await;
    assert_eq!(ask(0, "alice").await.status(), 429, "that is remembered");
    assert_eq!(ask(0, "bob").await.status(), 503);
}
