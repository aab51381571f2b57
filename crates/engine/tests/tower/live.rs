//! Rules that are replaced while they are used.

use crate::http::{Client, serve_hello};
use crate::service::{Hello, Setting, ask, parse};
use http::Request;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tollgate::{Event, Tollgate};
use tower_layer::Layer;

#[tokio::test]
async fn the_layer_follows_rules_that_are_replaced() {
    let setting = Setting::new("rules: [{ name: all, key: [], limits: [1 per hour] }]");
    let mut client = Client::connect(serve_hello(&setting).await).await;
    let (acme, other) = ([("x-tenant", "acme")], [("x-tenant", "other")]);
    assert_eq!([client.status(&acme).await, client.status(&other).await], [200, 429]);

    // Nobody has read this header so far.
    let tenants = "namespace: test\nrules: [{ name: tenants, key: [header.x-tenant], limits: [1 per hour] }]";
    setting.tollgate.replace(parse(tenants));
    assert_eq!([client.status(&acme).await, client.status(&other).await], [200, 200]);
    assert_eq!([client.status(&acme).await, client.status(&other).await], [429, 429]);

    setting
        .tollgate
        .replace(parse("namespace: test\nheaders: x-ratelimit\nrules: [{ name: free, key: [], limits: unlimited }]"));
    assert_eq!(client.status(&acme).await, 200);
}

#[test]
fn who_the_client_is_and_what_is_decided_come_from_the_same_version_of_the_rules() {
    static MIXED: AtomicU64 = AtomicU64::new(0);
    let rules = |header| {
        parse(&format!("namespace: test\nrules: [{{ name: all, key: [header.{header}], limits: [9 per day] }}]"))
    };
    let observer = |event: &Event<'_>| {
        if let Event::Decided { parts, verdict } = event {
            let wanted = if verdict.version() % 2 == 1 { "header.odd" } else { "header.even" };
            let is_right = matches!(parts, [part] if matches!(part.attributes, [(name, _)] if *name == wanted));
            MIXED.fetch_add(u64::from(!is_right), Ordering::SeqCst);
        }
    };
    let tollgate = Tollgate::builder().observer(observer).build(rules("odd"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..300 {
                tollgate.replace(rules(if number % 2 == 0 { "even" } else { "odd" }));
            }
            is_over.store(true, Ordering::SeqCst);
        });
        scope.spawn(|| {
            let mut service = tollgate.layer("test").layer(Hello::default());
            while !is_over.load(Ordering::SeqCst) {
                let request = Request::builder().header("odd", "1").header("even", "2").body(()).unwrap();
                ask(&mut service, request);
            }
        });
    });
    assert_eq!(MIXED.load(Ordering::SeqCst), 0);
}
