//! What the engine is told about answers.

use crate::http::{Client, layer, serve};
use crate::service::{Setting, until};
use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use std::time::Duration;

#[tokio::test]
async fn how_long_each_answer_took_and_whether_it_failed_is_reported() {
    let setting = Setting::new("rules: [{ name: all, key: [], limits: [3 per hour] }]");
    let hands = setting.hands.clone();
    let handler = async move |headers: HeaderMap| {
        hands.advance(Duration::from_millis(headers["x-takes"].to_str().unwrap().parse().unwrap()));
        StatusCode::from_bytes(headers["x-status"].as_bytes()).unwrap()
    };
    let mut client = Client::connect(serve(Router::new().fallback(handler).layer(layer(&setting))).await).await;
    for (takes, status) in [("250", "200"), ("10", "404"), ("4000", "500"), ("1", "200")] {
        client.get(&[("x-takes", takes), ("x-status", status)]).await;
    }
    // The fourth was refused: nobody answered it.
    let test = |took, failed| ("test".to_owned(), Duration::from_millis(took), failed);
    assert_eq!(setting.seen.lock().unwrap().answered, [test(250, false), test(10, false), test(4000, true)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_in_the_queue_is_not_the_services() {
    let setting = Setting::new("rules: [{ name: all, key: [], limits: [1 per second], over: queue up to 10s }]");
    let hands = setting.hands.clone();
    let handler = async move || hands.advance(Duration::from_millis(20));
    let address = serve(Router::new().fallback(handler).layer(layer(&setting))).await;
    Client::connect(address).await.get(&[]).await;
    let queued = tokio::spawn(async move { Client::connect(address).await.status(&[]).await });
    setting.until_decided(2).await;
    setting.hands.advance(Duration::from_secs(5));
    assert_eq!(queued.await.unwrap(), 200);
    until(|| setting.seen.lock().unwrap().answered.len() == 2).await;
    let took: Vec<_> = setting.seen.lock().unwrap().answered.iter().map(|(_, took, _)| *took).collect();
    assert_eq!(took, [Duration::from_millis(20); 2]);
}
