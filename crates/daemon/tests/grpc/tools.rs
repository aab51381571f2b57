//! What tools ask that know nothing of rate limits: health and reflection.

use crate::messages::health::{Request, Response};
use crate::server::Server;
use crate::venv;
use std::process::Command;
use tonic::Code;
use tonic::codegen::http::uri::PathAndQuery;
use tonic_prost::ProstCodec;

const RULES: &str = "
namespace: shop
rules: [{ name: logins, match: { op: login }, key: [ip], limits: [2 per minute] }]
";

const SERVICES: [&str; 4] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService", "tollgate.v1.Tollgate"];

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
const SERVICE_UNKNOWN: i32 = 3;

fn asks_for(service: &str) -> Request {
    Request { service: service.to_owned() }
}

#[tokio::test]
async fn health_is_told_of_each_service_and_of_no_other() {
    let server = Server::start(RULES).await;
    let mut client = server.client().await;
    let mut statuses = async || {
        let mut statuses = Vec::new();
        for service in SERVICES {
            let response: Response = client.call("/grpc.health.v1.Health/Check", asks_for(service)).await.unwrap();
            statuses.push(response.status);
        }
        statuses
    };
    assert_eq!(statuses().await, [SERVING; 4]);
    server.state.begin_to_stop();
    assert_eq!(statuses().await, [NOT_SERVING; 4]);
    let unknown = client.call::<_, Response>("/grpc.health.v1.Health/Check", asks_for("other")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn whoever_watches_is_told_when_the_daemon_is_about_to_end() {
    let server = Server::start(RULES).await;
    let mut client = server.client().await;
    client.0.ready().await.unwrap();
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Watch");
    let mut watch = async |service| {
        let request = tonic::Request::new(asks_for(service));
        let codec = ProstCodec::<Request, Response>::default();
        client.0.ready().await.unwrap();
        client.0.server_streaming(request, path.clone(), codec).await.unwrap().into_inner()
    };
    let (mut ours, mut unknown) = (watch("ratelimit").await, watch("other").await);
    assert_eq!(ours.message().await.unwrap(), Some(Response { status: SERVING }));
    assert_eq!(unknown.message().await.unwrap(), Some(Response { status: SERVICE_UNKNOWN }));
    server.state.begin_to_stop();
    assert_eq!(ours.message().await.unwrap(), Some(Response { status: NOT_SERVING }));
    server.stopper.stop();
    assert_eq!(ours.message().await.unwrap(), None, "the call ends in order");
    server.running.await.unwrap();
}

#[tokio::test]
async fn h2_stock_tools_find_the_services_healthy_and_as_reflection_says() {
    let server = Server::start(RULES).await;
    let port = server.address.port().to_string();
    let output = tokio::task::spawn_blocking(move || {
        let venv = venv::with(&["grpcio", "grpcio-health-checking", "grpcio-reflection"], "grpc-tools");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/grpc/tools.py");
        Command::new(venv.join("bin/python")).args([script, &port]).output().unwrap()
    });
    let output = output.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
