//! A primary that dies, and sentinels that know who takes over.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{Kind, PATIENCE, Server, now};
use std::path::Path;
use std::time::Duration;
use tollgate::{Engine, Request, RuleSet, Source, Time, Value, Verdict};
use tollgate_store::{Address, Config, Reply, Store, Trouble};

const RULES: &str = "
namespace: n
rules: [{ name: a, key: [user], limits: [1000 per hour], shared: store-exact, on_failure: refuse }]
";

/// A sentinel that watches a server.
fn watch(kind: Kind, primary: &Server) -> Server {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sentinel-{}.conf", primary.address.port()));
    let port = primary.address.port();
    let text = format!(
        "sentinel monitor limits 127.0.0.1 {port} 1\nsentinel down-after-milliseconds limits 300\n\
         sentinel failover-timeout limits 2000\n"
    );
    std::fs::write(&file, text).unwrap();
    Server::start(kind, &[file.to_str().unwrap(), "--sentinel"])
}

async fn check(store: &Store, engine: &Engine) -> Verdict {
    let attributes = [("user", Value::Text("ann"))];
    engine.check_with(store, &Request::new("n", &attributes), Time::ZERO).await
}

async fn until(mut condition: impl AsyncFnMut() -> bool) -> bool {
    let start = now();
    while start.elapsed() < PATIENCE {
        if condition().await {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    false
}

#[tokio::test]
async fn n4_the_primary_that_takes_over_is_asked_as_soon_as_sentinels_say_so() {
    for kind in Kind::ALL {
        let mut primary = Server::start(kind, &[]);
        let port = primary.address.port().to_string();
        let replica =
            Server::start(kind, &["--replicaof", &format!("127.0.0.1 {port}"), "--repl-diskless-sync-delay", "0"]);
        let mut at_replica = replica.client();
        assert!(until(async || at_replica.text(&["INFO", "replication"]).contains("master_link_status:up")).await);
        let sentinel = watch(kind, &primary);
        let mut at_sentinel = sentinel.client();
        let knows_replica = |reply: &Reply| !matches!(reply, Reply::Array(none) if none.is_empty());
        assert!(until(async || knows_replica(&at_sentinel.ask(&["SENTINEL", "REPLICAS", "limits"]))).await);

        let engine = Engine::new(RuleSet::parse(&[Source::new("rules", RULES)]).unwrap(), Time::ZERO);
        // One that is not there is no harm.
        let sentinels = vec!["127.0.0.1:1".to_owned(), sentinel.address.to_string()];
        let address = Address::Sentinels { sentinels, name: "limits".to_owned() };
        let config =
            Config { budget: Duration::from_secs(1), connect_timeout: Duration::from_secs(1), ..Config::new(address) };
        let store = Store::open(config);
        tokio::time::timeout(PATIENCE, store.connected()).await.unwrap();
        for _ in 0..10 {
            assert!(check(&store, &engine).await.is_allowed());
        }
        // What was counted is counted there, too.
        let reaches_replica = async || at_replica.text(&["DBSIZE"]) != "0";
        assert!(until(reaches_replica).await);

        primary.kill();
        assert!(until(async || !check(&store, &engine).await.is_allowed()).await);
        let replica_port = replica.address.port().to_string();
        let says_replica = |reply: Reply| matches!(reply, Reply::Array(parts) if parts.last() == Some(&Reply::Text(replica_port.clone().into_bytes())));
        let is_known = async || says_replica(at_sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "limits"]));
        assert!(until(is_known).await, "no failover");
        let known = now();
        assert!(until(async || check(&store, &engine).await.is_allowed()).await, "{:?}", store.trouble());
        let recovery = known.elapsed();
        println!("{kind:?}: asked {recovery:?} after that was known");
        assert!(recovery < Duration::from_secs(2), "{recovery:?}");
        let left = check(&store, &engine).await.remaining().unwrap();
        assert!(left < 990, "{left}");
    }
}

/// The password is theirs as well as the store's.
#[tokio::test]
async fn sentinels_that_want_the_password_are_told_it() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let sentinel = watch(kind, &server);
        for each in [&server, &sentinel] {
            each.client().text(&["ACL", "SETUSER", "default", ">secret"]);
        }
        let sentinels = vec![sentinel.address.to_string()];
        let address = Address::Sentinels { sentinels, name: "limits".to_owned() };
        let open = |password: &str| {
            let patient = Duration::from_secs(5);
            let password = Some(password.to_owned());
            Store::open(Config { password, budget: patient, connect_timeout: patient, ..Config::new(address.clone()) })
        };
        let store = open("secret");
        tokio::time::timeout(PATIENCE, store.connected()).await.unwrap_or_else(|_| panic!("{:?}", store.trouble()));
        let store = open("another-secret");
        assert!(until(async || store.trouble().is_some()).await);
        let trouble = store.trouble().unwrap().to_string();
        assert!(trouble.contains("WRONGPASS") && !trouble.contains("another-secret"), "{trouble}");
    }
}

#[tokio::test]
async fn sentinels_that_know_no_such_primary_are_told_about() {
    let server = Server::start(Kind::Redis, &[]);
    let sentinel = watch(Kind::Redis, &server);
    let sentinels = vec![sentinel.address.to_string()];
    let store = Store::open(Config::new(Address::Sentinels { sentinels, name: "other".to_owned() }));
    assert!(until(async || store.trouble().is_some()).await);
    let trouble = store.trouble().unwrap();
    assert!(matches!(&*trouble, Trouble::Refused(why) if why.contains("other")), "{trouble}");
}
