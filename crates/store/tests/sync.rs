//! Telling what was spent: sums that are right however often a batch is sent, and that come back as limits do.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{Kind, PATIENCE, Server, now, pause};
use std::time::Duration;
use tollgate_limit::{Recovery, Time};
use tollgate_store::{Batch, Config, Fingerprint, Host, Spent, Store, Totals};

async fn open(server: &Server) -> Store {
    let patient = Duration::from_secs(5);
    let config = Config { budget: patient, connect_timeout: patient, ..Config::new(server.address.to_string()) };
    let store = Store::open(config);
    tokio::time::timeout(PATIENCE, store.connected()).await.unwrap();
    store
}

fn spent(client: &str, recovery: Recovery, tokens: i64) -> Spent {
    Spent { key: Fingerprint::new(1, client.as_bytes()), recovery, most: 1_000, tokens }
}

async fn tell(store: &Store, host: u64, number: u64, spent: &[Spent]) -> Totals {
    store.tell(Host(host), &Batch { number, spent: spent.to_vec() }).await.unwrap()
}

/// So slow that nothing comes back while a test runs.
const HARDLY: Recovery = Recovery::Steady(1e-6);

fn is_about(one: f64, other: f64) -> bool {
    (one - other).abs() < 0.01
}

#[tokio::test(flavor = "multi_thread")]
async fn c4_what_hosts_tell_adds_up_and_is_never_added_twice() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let store = open(&server).await;
        let totals = tell(&store, 1, 1, &[spent("a", HARDLY, 5), spent("b", HARDLY, 7)]).await;
        assert!(is_about(totals.missing[0], 5.0) && is_about(totals.missing[1], 7.0), "{totals:?}");
        // The reply was lost, and so it is sent again.
        let again = tell(&store, 1, 1, &[spent("a", HARDLY, 5), spent("b", HARDLY, 7)]).await;
        assert!(is_about(again.missing[0], 5.0), "{again:?}");
        let other = tell(&store, 2, 1, &[spent("a", HARDLY, 3)]).await;
        assert!(is_about(other.missing[0], 8.0), "{other:?}");
        let back = tell(&store, 2, 2, &[spent("a", HARDLY, -2), spent("c", HARDLY, -9)]).await;
        assert!(is_about(back.missing[0], 6.0) && is_about(back.missing[1], 0.0), "{back:?}");
        let asked = tell(&store, 1, 2, &[spent("a", HARDLY, 0)]).await;
        assert!(is_about(asked.missing[0], 6.0), "{asked:?}");
        let most = tell(&store, 1, 3, &[spent("a", HARDLY, i64::MAX)]).await;
        assert!(is_about(most.missing[0], 1_000.0), "{most:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c4_what_was_spent_comes_back_by_the_stores_clock_and_is_then_forgotten() {
    let server = Server::start(Kind::Redis, &[]);
    let (store, mut client) = (open(&server).await, server.client());
    let quick = Recovery::Steady(100.0);
    let start = now();
    let first = tell(&store, 1, 1, &[spent("a", quick, 20)]).await;
    let second = tell(&store, 1, 2, &[spent("a", quick, 0)]).await;
    let passed = second.time.since(first.time).as_secs_f64();
    assert!(is_about(second.missing[0], (20.0 - 100.0 * passed).max(0.0)), "{first:?} {second:?}");
    let name = Fingerprint::new(1, b"a").name("tg:") + "s";
    while client.text(&["EXISTS", &name]) == "1" {
        assert!(start.elapsed() < PATIENCE, "nothing expires");
        pause(Duration::from_millis(5));
    }
    assert!(start.elapsed() >= Duration::from_millis(190), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn c4_windows_end_for_all_hosts_and_late_news_is_of_no_use() {
    let server = Server::start(Kind::Redis, &[]);
    let store = open(&server).await;
    let (_, time) = store.count_hosts(Host(1)).await.unwrap();
    let window = |start: Time| Recovery::Window { start, length: Duration::from_secs(60) };
    let (old, new) = (window(Time::from_nanos(time.as_nanos() - 30_000_000_000)), window(time));
    assert_eq!(tell(&store, 1, 1, &[spent("a", old, 5)]).await.missing, [5.0]);
    assert_eq!(tell(&store, 2, 1, &[spent("a", old, 5)]).await.missing, [10.0]);
    assert_eq!(tell(&store, 2, 2, &[spent("a", new, 1)]).await.missing, [1.0]);
    assert_eq!(tell(&store, 1, 2, &[spent("a", old, 5)]).await.missing, [1.0]);
    assert_eq!(tell(&store, 1, 3, &[spent("a", new, 5)]).await.missing, [6.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c4_a_clock_that_is_set_back_forgets_nothing_and_locks_nobody_out() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let (store, mut client) = (open(&server).await, server.client());
        let (_, time) = store.count_hosts(Host(1)).await.unwrap();
        // As they were written when it was half an hour later.
        let then = time.as_nanos() / 1_000 + 1_800_000_000;
        for user in ["bucket", "window"] {
            let name = Fingerprint::new(1, user.as_bytes()).name("tg:") + "s";
            client.text(&["SET", &name, &format!("20:{then}"), "PX", "4000000"]);
        }
        let window = Recovery::Window { start: time, length: Duration::from_secs(60) };
        let quick = Recovery::Steady(100.0);
        let first = tell(&store, 1, 1, &[spent("bucket", quick, 0), spent("window", window, 3)]).await;
        assert_eq!(first.missing, [20.0, 23.0], "{kind:?}");
        let next = tell(&store, 2, 1, &[spent("bucket", quick, 0), spent("window", window, 4)]).await;
        let passed = next.time.since(first.time).as_secs_f64();
        assert!(is_about(next.missing[0], (20.0 - 100.0 * passed).max(0.0)), "{kind:?}: {next:?}");
        assert_eq!(next.missing[1], 27.0, "{kind:?}");
        // Who has not noticed yet tells of windows that are to come.
        let to_come = Recovery::Window { start: time + Duration::from_secs(1_800), length: Duration::from_secs(60) };
        assert_eq!(tell(&store, 3, 1, &[spent("window", to_come, 2)]).await.missing, [29.0], "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_are_counted_while_they_say_that_they_are_there() {
    let server = Server::start(Kind::Valkey, &[]);
    let store = open(&server).await;
    assert_eq!(store.count_hosts(Host(1)).await.unwrap().0, 1);
    assert_eq!(store.count_hosts(Host(2)).await.unwrap().0, 2);
    assert_eq!(store.count_hosts(Host(1)).await.unwrap().0, 2);
}
