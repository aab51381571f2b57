//! The examples do what they say.

#[path = "../../examples/axum.rs"]
#[expect(dead_code, reason = "nobody starts it on its own port")]
mod axum;
#[path = "../../examples/rules.rs"]
#[expect(dead_code, reason = "nobody starts it")]
mod rules;
#[path = "../../examples/tonic.rs"]
#[expect(dead_code, reason = "nobody starts it")]
pub(crate) mod tonic;

use crate::http::{Client, serve};
use crate::many::admitted;
use crate::service::Setting;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn h1_the_axum_example_admits_what_its_rule_says_over_many_connections() {
    let setting = Setting::of(axum::RULES);
    let address = serve(axum::app(&setting.tollgate)).await;
    assert_eq!(admitted(address).await.iter().sum::<usize>(), 20);
    setting.hands.advance(Duration::from_millis(700));
    assert_eq!(admitted(address).await.iter().sum::<usize>(), 7);
    setting.hands.advance(Duration::from_secs(60));
    assert_eq!(admitted(address).await.iter().sum::<usize>(), 20);
}

#[tokio::test]
async fn the_axum_example_says_hello_to_every_visitor() {
    let setting = Setting::of(axum::RULES);
    let address = serve(axum::app(&setting.tollgate)).await;
    for last in 1..=30 {
        let answer = Client::connect_from([127, 0, 0, last], address).await.get(&[]).await;
        assert_eq!((answer.status, &*answer.body), (200, "hello"));
        assert_eq!(answer.header("ratelimit"), Some("\"visitors\";r=19;t=1"));
    }
}

#[test]
fn the_axum_example_has_less_than_thirty_lines() {
    let lines = include_str!("../../examples/axum.rs").lines();
    let code = lines.filter(|line| !line.trim().is_empty() && !line.starts_with("//"));
    assert!(code.count() + axum::RULES.lines().count() < 30);
}

#[test]
fn the_example_of_plain_calls_shows_what_becomes_of_each() {
    let mut out = Vec::new();
    rules::run(&mut out).unwrap();
    let expected = "\
Four attempts to log in from one address:
  go ahead, 2 left
  go ahead, 1 left
  go ahead, 0 left
  429: The limit \"login-attempts\" has been reached. Try again in 20 seconds.
And one twenty seconds later:
  go ahead, 0 left
Three reports at once, which are made one a second:
  go ahead, 0 left
  go ahead in 1s
  go ahead in 2s
A prompt that was estimated at 800 tokens and took 300:
  200 left meanwhile
  700 left in the end
";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}
