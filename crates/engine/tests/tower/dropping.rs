//! Connections that are closed without an answer.

use crate::http::{LOCALHOST, layer, serve, serve_hello, stream};
use crate::service::{Setting, ask, get};
use axum::Router;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tollgate::tower::Dropped;
use tower_layer::Layer;
use tower_service::Service;

const RULES: &str = "rules: [{ name: all, key: [], limits: [1 per hour], over: drop }]";

/// What comes back until the connection is closed.
async fn all_that_comes_back(address: SocketAddr, requests: &str) -> String {
    let mut stream = stream(LOCALHOST, address).await;
    stream.write_all(requests.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A server that had not read everything resets the connection.
    if let Err(error) = stream.read_to_end(&mut answer).await {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    String::from_utf8(answer).unwrap()
}

const GET: &str = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
const GET_AND_CLOSE: &str = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a1_a_dropped_request_closes_axums_connection_without_an_answer() {
    let setting = Setting::new(RULES);
    let address = serve_hello(&setting).await;
    assert!(all_that_comes_back(address, GET_AND_CLOSE).await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(all_that_comes_back(address, GET).await, "");
    assert_eq!(all_that_comes_back(address, "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nhi").await, "");
}

/// A service for hyper, without axum.
#[derive(Clone)]
struct Hello;

impl Service<Request<Incoming>> for Hello {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Incoming>) -> Self::Future {
        ready(Ok(Response::new("hello".to_owned())))
    }
}

#[tokio::test]
async fn a1_a_dropped_request_closes_hypers_connection_without_an_answer() {
    let setting = Setting::new(RULES);
    let listener = TcpListener::bind((LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let layer = setting.tollgate.layer("test");
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(layer.layer(Hello));
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    assert!(all_that_comes_back(address, GET_AND_CLOSE).await.ends_with("hello"));
    assert_eq!(all_that_comes_back(address, GET).await, "");
}

#[tokio::test]
async fn requests_before_the_dropped_one_on_the_same_connection_are_answered() {
    let setting = Setting::new(RULES);
    let address = serve_hello(&setting).await;
    let mut stream = stream(LOCALHOST, address).await;
    stream.write_all(GET.as_bytes()).await.unwrap();
    let mut first = [0; 15];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    stream.write_all(GET.as_bytes()).await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(rest.ends_with(b"hello"), "{}", String::from_utf8_lossy(&rest));
}

#[tokio::test]
async fn a_dropped_head_request_gets_a_bare_status_as_nobody_looks_at_its_body() {
    let setting = Setting::new(RULES);
    let address = serve(Router::new().fallback(async || "hello").layer(layer(&setting))).await;
    all_that_comes_back(address, GET_AND_CLOSE).await;
    let answer = all_that_comes_back(address, "HEAD / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.to_lowercase();
    assert!(answer.starts_with("http/1.1 429 "), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn the_body_of_a_dropped_request_fails_and_says_why() {
    let setting = Setting::new(RULES);
    let mut service = setting.service();
    ask(&mut service, get());
    let error = ask(&mut service, get()).into_body().collect().await.unwrap_err();
    assert_eq!(error.downcast_ref::<Dropped>(), Some(&Dropped));
}
