//! Requests that are held.

use crate::http::{Client, layer, serve, serve_hello};
use crate::service::{Setting, until};
use axum::Router;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;
use tollgate::{Action, Time};

const RULES: &str = "rules: [{ name: all, key: [], limits: [1 per second], over: queue up to 10s }]";

fn ask(address: SocketAddr, name: &'static str) -> tokio::task::JoinHandle<u16> {
    tokio::spawn(async move { Client::connect(address).await.status(&[("x-name", name)]).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a1_queued_requests_are_served_in_order_each_at_its_time() {
    let setting = Setting::new(RULES);
    let (served, mut log) = mpsc::unbounded_channel();
    let hands = setting.hands.clone();
    let handler = async move |headers: axum::http::HeaderMap| {
        let name = headers["x-name"].to_str().unwrap().to_owned();
        served.send((name, hands.now())).unwrap();
    };
    let address = serve(Router::new().fallback(handler).layer(layer(&setting))).await;

    let mut asked = Vec::new();
    for (number, name) in ["first", "second", "third", "fourth"].into_iter().enumerate() {
        asked.push(ask(address, name));
        setting.until_decided(number + 1).await;
    }
    // Whoever came too early would have noted too early a time.
    for (second, name) in ["first", "second", "third", "fourth"].into_iter().enumerate() {
        let time = Time::ZERO + Duration::from_secs(second as u64);
        assert_eq!(log.recv().await.unwrap(), (name.to_owned(), time));
        setting.hands.advance(Duration::from_secs(1));
    }
    for answer in asked {
        assert_eq!(answer.await.unwrap(), 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a1_who_would_wait_for_too_long_is_refused_at_once() {
    let setting = Setting::new("rules: [{ name: all, key: [], limits: [1 per second], over: queue up to 1s }]");
    let address = serve_hello(&setting).await;
    ask(address, "first").await.unwrap();
    let second = ask(address, "second");
    setting.until_decided(2).await;
    assert_eq!(ask(address, "third").await.unwrap(), 429);
    setting.hands.advance(Duration::from_secs(1));
    assert_eq!(second.await.unwrap(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_while_it_is_queued_gives_its_token_back() {
    let setting = Setting::new(RULES);
    let address = serve_hello(&setting).await;
    ask(address, "first").await.unwrap();
    let second = ask(address, "second");
    setting.until_decided(2).await;
    let wait = || setting.tollgate.peek(&tollgate::Request::new("test", &[])).wait();
    assert_eq!(wait(), Duration::from_secs(2));
    second.abort();
    until(|| wait() == Duration::from_secs(1)).await;

    let third = ask(address, "third");
    setting.until_decided(3).await;
    assert_eq!(setting.seen.lock().unwrap().actions[2], Action::Wait(Duration::from_secs(1)));
    setting.hands.advance(Duration::from_secs(1));
    assert_eq!(third.await.unwrap(), 200);
}
