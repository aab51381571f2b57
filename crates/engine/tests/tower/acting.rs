//! Refusals.

use crate::http::{Client, serve_hello};
use crate::service::Setting;

#[tokio::test]
async fn a2_a_refused_client_is_told_by_status_headers_and_body() {
    let setting = Setting::new("rules: [{ name: visitors, key: [ip], limits: [2 per minute] }]");
    let mut client = Client::connect(serve_hello(&setting).await).await;

    let allowed = client.get(&[]).await;
    assert_eq!((allowed.status, &*allowed.body), (200, "hello"));
    assert_eq!(allowed.header("ratelimit-policy"), Some("\"visitors\";q=2;w=60"));
    assert_eq!(allowed.header("ratelimit"), Some("\"visitors\";r=1;t=30"));
    assert_eq!(allowed.header("retry-after"), None);

    client.get(&[]).await;
    let refused = client.get(&[]).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), Some("30"));
    assert_eq!(refused.header("ratelimit"), Some("\"visitors\";r=0;t=30"));
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(refused.header("content-length"), Some(&*refused.body.len().to_string()));
    let detail = r#""detail":"The limit \"visitors\" has been reached. Try again in 30 seconds.""#;
    assert!(refused.body.contains(detail), "{}", refused.body);
}

#[tokio::test]
async fn a1_a_rule_can_refuse_with_503() {
    let setting = Setting::new("rules: [{ name: all, key: [], limits: [1 per minute], over: reject with 503 }]");
    let mut client = Client::connect(serve_hello(&setting).await).await;
    client.get(&[]).await;
    let refused = client.get(&[]).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("60")));
    assert!(refused.body.contains("#temporary-reduced-capacity"), "{}", refused.body);
}

#[tokio::test]
async fn a_shadowed_rule_lets_through_and_says_nothing() {
    let setting = Setting::new("rules: [{ name: all, key: [], limits: [1 per minute], over: shadow }]");
    let mut client = Client::connect(serve_hello(&setting).await).await;
    client.get(&[]).await;
    let answer = client.get(&[]).await;
    assert_eq!((answer.status, answer.header("ratelimit")), (200, None));
}

#[tokio::test]
async fn a_refused_connection_goes_on_and_passes_when_it_was_told_to_come_back() {
    let setting = Setting::new("rules: [{ name: all, key: [], limits: [1 per minute] }]");
    let mut client = Client::connect(serve_hello(&setting).await).await;
    client.get(&[]).await;
    let wait = client.get(&[]).await.header("retry-after").unwrap().parse().unwrap();
    setting.hands.advance(std::time::Duration::from_secs(wait));
    assert_eq!(client.status(&[]).await, 200);
}
