//! Many daemons, one limit: counted together in a Redis that is there, is gone, and comes back.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot be set up has failed")]

#[path = "store/clients.rs"]
mod clients;
mod common;
#[path = "grpc/messages.rs"]
mod messages;

use clients::{Client, GrpcClient, Http, Resp, Said, all};
use common::{Daemon, Folder, Redis, eventually, now, pause};
use messages::native::{CheckManyRequest, CheckManyResponse, SettleRequest};
use messages::rls;
use serde_json::json;
use std::process::Command;
use std::time::Duration;

const RULES: &str = "
namespace: shop
rules:
  - { name: exact, match: { op: exact }, key: [user], limits: [60 per day], shared: store-exact }
  - { name: lease, match: { op: lease }, key: [user], limits: [600 per day], shared: store-lease }
  - { name: told, match: { op: told }, key: [user], limits: [600 per day], shared: store, error_budget: 5% }
  - { name: local, match: { op: local }, key: [user], limits: [60 per day] }
  - { name: open, match: { op: open }, key: [user], limits: [2 per day], shared: store-exact, on_failure: allow }
  - { name: shut, match: { op: shut }, key: [user], limits: [2 per day], shared: store-exact, on_failure: refuse }
  - { name: alone, match: { op: alone }, key: [user], limits: [6 per day], shared: store-exact, on_failure: local }
";

/// Daemons that share a store.
struct Fleet {
    redis: Redis,
    daemons: Vec<Daemon>,
    _rules: Folder,
}

impl Fleet {
    fn start(count: usize) -> Fleet {
        Fleet::with_rules(RULES, count)
    }

    fn with_rules(rules: &str, count: usize) -> Fleet {
        let (redis, folder) = (Redis::start(), Folder::new());
        let path = folder.path().join("rules.yaml");
        std::fs::write(&path, rules).unwrap();
        let store = format!("redis://{}", redis.address);
        let arguments = ["--rules", path.to_str().unwrap(), "--store", &store];
        // A busy machine takes its time, and what is tested here is not how much.
        let patient = [&arguments[..], &["--store-budget", "1 second"]].concat();
        let daemons = (0..count).map(|_| Daemon::start_logging(&patient, &[])).collect();
        let fleet = Fleet { redis, daemons, _rules: folder };
        let knows = |daemon: &Daemon| {
            let mut http = Http::connect(daemon.http);
            http.metric("tollgate_store_hosts") == Some(count as u64)
                && http.metric("tollgate_store_cut_off") == Some(0)
        };
        assert!(eventually(|| fleet.daemons.iter().all(knows)), "{}", fleet.daemons[0].log());
        fleet
    }

    /// Clients of every protocol at every daemon.
    fn clients(&self) -> Vec<Box<dyn Client>> {
        self.daemons.iter().flat_map(all).collect()
    }
}

/// How many of so many questions are let through, asked by all in turn.
fn admitted(clients: &mut [Box<dyn Client>], op: &str, questions: usize) -> usize {
    let turns = (0..clients.len()).cycle().take(questions);
    turns
        .filter(|turn| {
            let said = clients[*turn].check(op, "ann");
            assert!(!said.degraded, "{op}: {said:?}");
            said.allowed
        })
        .count()
}

#[test]
fn daemons_admit_one_limit_together_whatever_protocol_they_are_asked_by() {
    let fleet = Fleet::start(2);
    let mut clients = fleet.clients();
    assert_eq!(admitted(&mut clients, "exact", 90), 60);
    let mut lent = admitted(&mut clients, "lease", 900);
    assert!(lent <= 600, "{lent} of 600");
    // Tokens that the other daemon has in hand come back when it does not need them.
    assert!(eventually(|| {
        lent += admitted(&mut clients, "lease", 60);
        lent >= 600
    }));
    assert_eq!(lent, 600);
    let told = admitted(&mut clients, "told", 1_200);
    // Both together may hide 30, and what is spent while that is being told.
    assert!((600..=690).contains(&told), "{told} of 600");
    assert_eq!(admitted(&mut clients, "local", 180), 120, "what is not shared is counted by each");
}

#[test]
fn a_daemon_that_ends_tells_what_was_spent_there_and_gives_back_what_it_took_ahead() {
    let mut fleet = Fleet::start(2);
    let mut ending = Resp::connect(fleet.daemons[0].address);
    assert!((0..100).all(|_| ending.check("lease", "ann").allowed));
    assert!((0..10).all(|_| ending.check("told", "ann").allowed));
    drop(ending);
    fleet.daemons[0].terminate();
    assert!(fleet.daemons[0].wait().0.success());
    let mut staying = Resp::connect(fleet.daemons[1].address);
    // Whoever counts by itself hears of others when it spends.
    assert!(staying.check("told", "ann").allowed);
    let left = |staying: &mut Resp, op| staying.ask(&["PEEK", "shop", "1", "op", op, "user", "ann"]);
    assert!(eventually(|| Resp::said(&left(&mut staying, "told")).remaining == Some(589)));
    assert_eq!(Resp::said(&left(&mut staying, "lease")).remaining, Some(500));
    assert!(!fleet.daemons[0].log().contains("could not be told"), "{}", fleet.daemons[0].log());
}

#[test]
fn what_the_page_about_sharing_says_to_try_works() {
    let page = include_str!("../../../docs/sharing.md").split("## Two daemons, one limit").nth(1).unwrap();
    let block = |kind: &str, number| page.split(kind).nth(number).and_then(|rest| rest.split("```").next()).unwrap();
    let fleet = Fleet::with_rules(block("```yaml\n", 1), 2);
    let [one, other] = [0, 1].map(|number: usize| fleet.daemons[number].address.port().to_string());
    let (command, answer) = block("```sh\n", 2).trim_end().split_once("\n# ").unwrap();
    let command = command.replace("6380", &one).replace("6381", &other);
    let printed = Command::new("bash").args(["-c", &command]).output().unwrap().stdout;
    assert_eq!(String::from_utf8(printed).unwrap().trim_end(), answer);
}

#[test]
fn commands_in_a_pipeline_are_answered_in_order_and_decided_once() {
    let fleet = Fleet::start(1);
    let mut resp = Resp::connect(fleet.daemons[0].address);
    for number in 0..30 {
        resp.send(&["PING", &number.to_string()]);
        resp.send(&["CHECK", "shop", "1", "op", "exact", "user", "bob"]);
        resp.send(&["CL.THROTTLE", "bob", "99", "100", "86400"]);
        resp.send(&["CHECK.HEADERS", "shop", "1", "op", "exact", "user", "bob"]);
        resp.send(&["CHECK", "shop", "1", "op", "local", "user", "bob"]);
    }
    for number in 0..30_u64 {
        assert_eq!(resp.reply(), number.to_string());
        assert_eq!(Resp::said(&resp.reply()).remaining, Some(59 - 2 * number));
        assert_eq!(resp.reply()[2], 99 - number);
        assert_eq!(Resp::said(&resp.reply()).remaining, Some(58 - 2 * number));
        assert_eq!(Resp::said(&resp.reply()).remaining, Some(59 - number));
    }
    assert!(!Resp::said(&resp.ask(&["CHECK", "shop", "1", "op", "exact", "user", "bob"])).allowed);
    let asked = Http::connect(fleet.daemons[0].http).metric("tollgate_questions_total{protocol=\"resp\"}");
    assert_eq!(asked, Some(151));
}

#[test]
fn batches_streams_and_proxies_are_decided_by_the_store_too() {
    let fleet = Fleet::start(1);
    let (mut http, mut grpc) = (Http::connect(fleet.daemons[0].http), GrpcClient::connect(fleet.daemons[0].grpc));
    let left = |left: std::ops::Range<u64>| left.rev().map(Some).collect::<Vec<_>>();
    let (_, listed) = http.post("/v1/check", &vec![Http::question("exact", "eve"); 10].into());
    let listed: Vec<_> = listed.as_array().unwrap().iter().map(|answer| Http::said(answer).remaining).collect();
    assert_eq!(listed, left(50..60));
    let requests = vec![GrpcClient::question("exact", "eve"); 10];
    let many: CheckManyResponse =
        grpc.ask("/tollgate.v1.Tollgate/CheckMany", CheckManyRequest { requests: requests.clone() });
    assert_eq!(many.answers.iter().map(|answer| answer.remaining).collect::<Vec<_>>(), left(40..50));
    assert_eq!(grpc.stream(requests).iter().map(|answer| answer.remaining).collect::<Vec<_>>(), left(30..40));

    let entry = |key: &str, value: &str| rls::Entry { key: key.to_owned(), value: value.to_owned() };
    let entries = vec![entry("op", "exact"), entry("user", "eve")];
    let descriptors = vec![rls::Descriptor { entries, ..rls::Descriptor::default() }];
    let request = rls::RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 5 };
    let response: rls::RateLimitResponse =
        grpc.ask("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", request);
    assert_eq!((response.overall_code, response.statuses[0].limit_remaining), (1, 25));
    let entries = json!([{ "key": "op", "value": "exact" }, { "key": "user", "value": "eve" }]);
    let asked = json!({ "domain": "shop", "descriptors": [{ "entries": entries }], "hitsAddend": 26 });
    let (status, told) = http.post("/json", &asked);
    assert_eq!((status, &told["overallCode"]), (429, &json!("OVER_LIMIT")));
    let by_status = "prefer: status\r\n";
    let question = json!({ "namespace": "shop", "attributes": { "op": "exact", "user": "eve" }, "cost": 26 });
    assert_eq!(http.ask("POST", "/v1/check", by_status, &question.to_string()).0, 429);
}

#[test]
fn proxies_ask_about_limits_in_the_store() {
    let (redis, folder) = (Redis::start(), Folder::new());
    let rules = folder.path().join("rules.yaml");
    let text = "namespace: web\nrules: [{ name: all, key: [header.x-user], limits: [2 per day], shared: store-exact }]";
    std::fs::write(&rules, text).unwrap();
    let store = format!("redis://{}", redis.address);
    let arguments = ["--rules", rules.to_str().unwrap(), "--store", &store, "--store-budget", "1 second"];
    let daemons = [Daemon::start(&arguments), Daemon::start(&arguments)];
    let mut clients = daemons.each_ref().map(|daemon| Http::connect(daemon.http));
    assert!(eventually(|| clients.iter_mut().all(|client| client.metric("tollgate_store_connected") == Some(1))));
    let mut pass = |client: usize| {
        let headers = "x-original-uri: /\r\nx-user: ann\r\n";
        clients[client].ask("GET", "/v1/auth?namespace=web", headers, "").0
    };
    assert_eq!([pass(0), pass(1), pass(0), pass(1)], [200, 200, 429, 429]);
}

#[test]
fn whoever_only_looks_is_told_what_the_store_keeps() {
    let fleet = Fleet::start(2);
    let mut http = Http::connect(fleet.daemons[0].http);
    for _ in 0..10 {
        assert!(http.check("exact", "joe").allowed);
    }
    let (mut resp, mut grpc) = (Resp::connect(fleet.daemons[1].address), GrpcClient::connect(fleet.daemons[1].grpc));
    for _ in 0..3 {
        let answer: messages::native::Answer =
            grpc.ask("/tollgate.v1.Tollgate/Peek", GrpcClient::question("exact", "joe"));
        let said = [
            Resp::said(&resp.ask(&["PEEK", "shop", "1", "op", "exact", "user", "joe"])),
            Http::said(&http.post("/v1/peek", &Http::question("exact", "joe")).1),
            GrpcClient::said(answer),
        ];
        for said in said {
            assert_eq!((said.allowed, said.remaining, said.degraded), (true, Some(50), false));
        }
    }
    assert!(!Resp::said(&resp.ask(&["PEEK", "shop", "51", "op", "exact", "user", "joe"])).allowed);
    let explained = resp.ask(&["EXPLAIN", "shop", "1", "op", "exact", "user", "joe"]);
    assert!(explained.as_str().unwrap().contains("has room, 50 of 60 left"), "{explained}");
    let (_, explained) = http.post("/v1/explain", &Http::question("exact", "joe"));
    assert!(explained.to_string().contains("\"remaining\":50"), "{explained}");
}

#[test]
fn reservations_are_taken_and_settled_in_the_store() {
    let fleet = Fleet::start(2);
    let (mut one, mut other) = (Http::connect(fleet.daemons[0].http), GrpcClient::connect(fleet.daemons[1].grpc));
    let mut third = Resp::connect(fleet.daemons[1].address);
    let ask = |cost: u64| json!({ "namespace": "shop", "attributes": { "op": "exact", "user": "kim" }, "cost": cost });
    let (_, reserved) = one.post("/v1/reserve", &ask(50));
    let words = |command: &'static str, cost: &'static str| [command, "shop", cost, "op", "exact", "user", "kim"];
    assert!(!Resp::said(&third.ask(&words("CHECK", "11"))).allowed);
    let (status, _) = one.post("/v1/settle", &json!({ "reservation": reserved["reservation"], "actual": 10 }));
    assert_eq!(status, 200);
    // Who was refused is remembered only for as long as it would have taken without the other's giving back.
    let answer: messages::native::Answer = other.ask("/tollgate.v1.Tollgate/Reserve", {
        let question = GrpcClient::question("exact", "kim");
        messages::native::CheckRequest { cost: Some(10), ..question }
    });
    assert!(answer.allowed && !answer.degraded);
    let settle = SettleRequest { reservation: answer.reservation.unwrap(), actual: 30 };
    let () = other.ask("/tollgate.v1.Tollgate/Settle", settle);
    assert_eq!(Http::said(&one.post("/v1/check", &ask(20)).1).remaining, Some(0));
}

#[test]
fn whoever_is_reset_begins_anew_at_every_daemon() {
    let fleet = Fleet::start(2);
    let mut clients = fleet.clients();
    let mut http = Http::connect(fleet.daemons[1].http);
    for (op, most) in [("exact", 60), ("lease", 600), ("told", 600)] {
        let mut refused = 0;
        while refused < 30 {
            refused = if admitted(&mut clients, op, 6) == 0 { refused + 6 } else { 0 };
        }
        let (status, reset) = http.post("/v1/reset", &Http::question(op, "ann"));
        assert_eq!((status, &reset["buckets"]), (200, &json!(1)), "{op}: {reset}");
        // Asked where it was reset.
        assert!(http.check(op, "ann").allowed, "{op}");
        // The other daemon hears of it.
        let mut other = Http::connect(fleet.daemons[0].http);
        assert!(eventually(|| other.check(op, "ann").allowed), "{op}");
        let left = other.check(op, "ann").remaining.unwrap();
        assert!(left > most / 2 && left < most, "{op}: {left} of {most}");
    }
}

#[test]
fn without_the_store_rules_do_what_they_say_and_say_so() {
    let mut fleet = Fleet::start(2);
    let mut clients = fleet.clients();
    for client in &mut clients {
        for op in ["open", "shut", "alone"] {
            assert!(!client.check(op, "before").degraded);
        }
    }
    fleet.redis.kill();
    let mut http = Http::connect(fleet.daemons[0].http);
    assert!(eventually(|| http.metric("tollgate_store_connected") == Some(0)));
    for (number, client) in clients.iter_mut().enumerate() {
        let user = format!("user {number}");
        let open: Vec<Said> = (0..4).map(|_| client.check("open", &user)).collect();
        assert!(open.iter().all(|said| said.allowed && said.degraded), "{open:?}");
        let shut = client.check("shut", &user);
        let refused = Said { status: 503, reason: "unavailable".to_owned(), degraded: true, ..Said::default() };
        assert_eq!(Said { remaining: None, ..shut }, refused);
        // Its share of what two daemons have: three of six.
        let alone: Vec<Said> = (0..4).map(|_| client.check("alone", &user)).collect();
        assert!(alone.iter().all(|said| said.degraded), "{alone:?}");
        assert_eq!(alone.iter().filter(|said| said.allowed).count(), 3, "{alone:?}");
        assert!(!client.check("local", &user).degraded);
    }
    let degraded = |http: &mut Http, rule: &str| {
        http.metric(&format!("tollgate_degraded_total{{namespace=\"shop\",rule=\"{rule}\"}}")).unwrap()
    };
    assert_eq!([degraded(&mut http, "open"), degraded(&mut http, "shut")], [12, 3]);
    assert_eq!([degraded(&mut http, "alone"), degraded(&mut http, "local")], [12, 0]);
    // Who owes something is not asked about again before it is paid: of each client the first of "open" and "alone" was, and "shut".
    assert!(http.metric("tollgate_store_questions_total{ending=\"unreachable\"}").unwrap() >= 9);
    assert_eq!(http.ask("GET", "/readyz", "", "").0, 200, "a daemon that is cut off goes on");
    assert!(eventually(|| fleet.daemons[0].log().contains("rules that are shared do what their `on_failure` says")));
    let top = top(&fleet.daemons[0]);
    assert!(top.contains("store: LOST"), "{top}");

    fleet.redis.restart();
    let back = now();
    assert!(eventually(|| clients.iter_mut().all(|client| !client.check("open", "after").degraded)));
    let took = back.elapsed();
    assert!(took < Duration::from_secs(if cfg!(debug_assertions) { 3 } else { 1 }), "{took:?}");
    assert!(eventually(|| fleet.daemons[0].log().contains("the store is back")));
    let log = fleet.daemons[0].log();
    assert_eq!(log.matches("`on_failure`").count(), 1, "{log}");
    assert_eq!(log.matches("the store is back").count(), 1, "{log}");
    // Which of these a killed server leaves behind depends on what was on its way.
    let causes = ["Connection reset by peer", "Broken pipe", "Connection refused", "it hangs up"];
    assert!(causes.iter().any(|cause| log.contains(&format!("the store cannot be reached: {cause}"))), "{log}");
    assert!(log.contains("after=") && log.contains(&format!("store={}", fleet.redis.address)), "{log}");
}

#[test]
fn the_log_says_why_the_store_is_lost_and_again_when_it_is_for_another_reason() {
    let (mut redis, folder) = (Redis::start(), Folder::new());
    let rules = folder.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let port = redis.address.port().to_string();
    let set = Command::new("redis-cli").args(["-p", &port, "CONFIG", "SET", "requirepass", "secret"]).output().unwrap();
    assert_eq!(set.stdout, b"OK\n");
    let store = format!("redis://{}", redis.address);
    let daemon = Daemon::start_logging(&["--rules", rules.to_str().unwrap(), "--store", &store], &[]);
    assert!(
        eventually(|| daemon.log().contains("the store wants a password and has got none: NOAUTH")),
        "{}",
        daemon.log()
    );
    redis.kill();
    assert!(eventually(|| daemon.log().contains("the store cannot be reached")), "{}", daemon.log());
}

/// What `tollgate top` shows.
fn top(daemon: &Daemon) -> String {
    let address = daemon.address.to_string();
    let shown = Command::new(env!("CARGO_BIN_EXE_tollgate")).args(["top", "--once", "--server", &address]).output();
    String::from_utf8(shown.unwrap().stdout).unwrap()
}

#[test]
fn a_store_that_nobody_named_is_warned_of_at_the_start_and_with_new_rules() {
    let folder = Folder::new();
    let rules = folder.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let daemon = Daemon::start_logging(&["--rules", rules.to_str().unwrap()], &[]);
    let warned = || daemon.log().matches("rules are shared through a store, and there is none").count();
    assert!(eventually(|| warned() == 1));
    assert!(daemon.log().contains("shop/exact, shop/lease, shop/told, shop/open, shop/shut, shop/alone"));
    let said = Http::connect(daemon.http).check("exact", "ann");
    assert!(said.allowed && said.degraded);
    pause(Duration::from_millis(20));
    std::fs::write(&rules, RULES.replace("60 per day", "70 per day")).unwrap();
    assert!(eventually(|| warned() == 2));
}

#[test]
fn the_password_of_the_store_is_nowhere_to_be_seen() {
    const SECRET: &str = "correct-horse-battery";
    let redis = Redis::start();
    let mut server = Resp::connect(redis.address);
    assert_eq!(server.ask(&["CONFIG", "SET", "requirepass", SECRET]), "OK");
    let (right, wrong) = (format!("redis://{}", redis.address), format!("redis://:{SECRET}x@{}", redis.address));
    let daemon = Daemon::start_logging(&["--store", &right, "--log", "debug"], &[("TOLLGATE_STORE_PASSWORD", SECRET)]);
    let lost = Daemon::start_logging(&["--store", &wrong, "--log", "debug"], &[]);
    assert!(eventually(|| daemon.log().contains("limits are shared through the store")), "{}", daemon.log());
    assert!(eventually(|| lost.log().contains("the store refuses: WRONGPASS")), "{}", lost.log());
    let config = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["config", "--store", &wrong])
        .env("TOLLGATE_STORE_PASSWORD", SECRET)
        .output()
        .unwrap();
    let printed = String::from_utf8([config.stdout, config.stderr].concat()).unwrap();
    assert!(printed.contains("given twice") && printed.contains("redis://***@"), "{printed}");
    for text in [daemon.log(), lost.log(), printed] {
        assert!(!text.contains(SECRET), "{text}");
    }
}
