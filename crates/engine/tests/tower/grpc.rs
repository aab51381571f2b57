//! gRPC, by the example's service.

use crate::examples::tonic::{say, serve};
use crate::service::{Setting, ask};
use http::Request;
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::net::TcpListener;
use tollgate::Tollgate;
use tonic::Code;
use tonic::transport::Channel;

async fn connect(tollgate: Tollgate) -> Channel {
    let listener = TcpListener::bind((crate::http::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(tollgate, listener));
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

#[tokio::test]
async fn a2_a_refused_call_is_resource_exhausted_and_says_when_to_come_back() {
    let setting = Setting::of(crate::examples::tonic::RULES);
    let channel = connect(setting.tollgate.clone()).await;
    for _ in 0..5 {
        assert_eq!(say(channel.clone(), "hello", "alice").await.unwrap(), "hello");
    }
    let status = say(channel.clone(), "hello", "alice").await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "The limit \"callers\" has been reached. Try again in 1 second.");
    assert_eq!(status.metadata().get("retry-after").unwrap(), "1");
    assert_eq!(status.metadata().get("ratelimit").unwrap(), "\"callers\";r=0;t=1");
    assert_eq!(say(channel.clone(), "hello", "bob").await.unwrap(), "hello");
    setting.hands.advance(Duration::from_millis(200));
    assert_eq!(say(channel, "hello", "alice").await.unwrap(), "hello");
}

#[tokio::test]
async fn a1_a_call_refused_with_503_is_unavailable() {
    let setting =
        Setting::of("namespace: echo\nrules: [{ name: all, key: [], limits: [0 per day], over: reject with 503 }]");
    let status = say(connect(setting.tollgate.clone()).await, "hello", "alice").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
}

#[tokio::test]
async fn a1_a_dropped_call_is_reset_and_its_connection_goes_on() {
    let rules = "namespace: echo\nrules: [{ name: all, key: [api_key], limits: [1 per hour], over: drop }]";
    let setting = Setting::of(rules);
    let channel = connect(setting.tollgate.clone()).await;
    assert_eq!(say(channel.clone(), "hello", "alice").await.unwrap(), "hello");
    let status = say(channel.clone(), "hello", "alice").await.unwrap_err();
    assert_eq!((status.code(), status.metadata().len()), (Code::Internal, 0), "{status:?}");
    assert_eq!(say(channel, "hello", "bob").await.unwrap(), "hello");
}

#[tokio::test]
async fn a_refusal_has_the_status_200_the_requests_own_type_and_no_body() {
    let setting = Setting::new("rules: [{ name: \"ü 100%\", key: [], limits: [1 per minute] }]");
    let call = |kind: &str| Request::post("/a.B/C").header("content-type", kind).body(()).unwrap();
    let mut service = setting.service();
    ask(&mut service, call("application/grpc"));
    for kind in ["application/grpc", "application/grpc+proto", "application/grpc-web+proto"] {
        let answer = ask(&mut service, call(kind));
        let header = |name| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!((answer.status().as_u16(), header("content-type").as_deref()), (200, Some(kind)));
        assert_eq!((header("grpc-status").as_deref(), header("retry-after").as_deref()), (Some("8"), Some("60")));
        let message = "The limit \"%C3%BC 100%25\" has been reached. Try again in 60 seconds.";
        assert_eq!(header("grpc-message").as_deref(), Some(message));
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "");
    }
}

#[tokio::test]
async fn a_call_that_the_service_itself_fails_is_reported_as_failed() {
    let setting = Setting::of("namespace: echo\nrules: []");
    let channel = connect(setting.tollgate.clone()).await;
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let codec: tonic_prost::ProstCodec<crate::examples::tonic::Text, crate::examples::tonic::Text> = Default::default();
    let path = http::uri::PathAndQuery::from_static("/example.Echo/Sing");
    let status = grpc.unary(tonic::Request::new(Default::default()), path, codec).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert_eq!(setting.seen.lock().unwrap().answered, [("echo".to_owned(), Duration::ZERO, true)]);
}

#[tokio::test]
async fn i1_the_peer_of_a_call_is_the_one_that_tonic_knows() {
    let setting = Setting::of("namespace: echo\nrules: [{ name: all, key: [ip, path], limits: [9 per day] }]");
    say(connect(setting.tollgate.clone()).await, "hello", "alice").await.unwrap();
    let expected = [("ip", "127.0.0.1"), ("path", "/example.Echo/Say")];
    assert_eq!(
        setting.seen.lock().unwrap().attributes,
        expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
}
