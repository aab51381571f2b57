//! Clients of all three protocols, each of one daemon, who all ask the same.

use crate::common::{Daemon, command, connect};
use crate::messages::native::{Answer, Attribute, CheckRequest};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::LazyLock;
use tokio::runtime::Runtime;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// What an answer says that does not depend on the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) allowed: bool,
    pub(crate) status: u64,
    pub(crate) remaining: Option<u64>,
    pub(crate) reason: String,
    pub(crate) degraded: bool,
}

/// Somebody who asks whether a user may do something.
pub(crate) trait Client {
    fn check(&mut self, op: &str, user: &str) -> Said;
}

/// One of each protocol.
pub(crate) fn all(daemon: &Daemon) -> Vec<Box<dyn Client>> {
    vec![
        Box::new(Resp::connect(daemon.address)),
        Box::new(Http::connect(daemon.http)),
        Box::new(GrpcClient::connect(daemon.grpc)),
    ]
}

/// Over RESP2.
pub(crate) struct Resp(BufReader<TcpStream>);

impl Resp {
    pub(crate) fn connect(address: SocketAddr) -> Resp {
        Resp(BufReader::new(connect(address)))
    }

    pub(crate) fn send(&mut self, words: &[&str]) {
        self.0.get_mut().write_all(&command(words)).unwrap();
    }

    pub(crate) fn ask(&mut self, words: &[&str]) -> Value {
        self.send(words);
        self.reply()
    }

    /// A reply in the terms of JSON; an error is its text.
    pub(crate) fn reply(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            ":" => json!(rest.parse::<i64>().unwrap()),
            "*" => (0..rest.parse().unwrap()).map(|_| self.reply()).collect(),
            "$" => {
                let mut text = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut text).unwrap();
                json!(String::from_utf8(text).unwrap().trim_end_matches("\r\n"))
            }
            _ => json!(rest),
        }
    }

    /// A reply to `CHECK`.
    pub(crate) fn said(reply: &Value) -> Said {
        let fields = reply.as_array().unwrap().chunks(2);
        let field = |name: &str| fields.clone().find(|pair| pair[0] == name).map(|pair| pair[1].clone());
        let number = |name: &str| field(name).and_then(|value| value.as_u64());
        Said {
            allowed: number("allowed") == Some(1),
            status: number("status").unwrap(),
            remaining: number("remaining"),
            reason: field("reason").unwrap().as_str().unwrap().to_owned(),
            degraded: number("degraded") == Some(1),
        }
    }
}

impl Client for Resp {
    fn check(&mut self, op: &str, user: &str) -> Said {
        Resp::said(&self.ask(&["CHECK", "shop", "1", "op", op, "user", user]))
    }
}

/// Over HTTP/1.1, on one connection.
pub(crate) struct Http(BufReader<TcpStream>);

impl Http {
    pub(crate) fn connect(address: SocketAddr) -> Http {
        Http(BufReader::new(connect(address)))
    }

    /// The status and the body of what a `POST` is answered.
    pub(crate) fn post(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.ask("POST", path, "", &body.to_string());
        (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}")))
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let request = format!("{method} {path} HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            match line.trim_end().split_once(' ') {
                None => break,
                Some(("HTTP/1.1", rest)) => status = rest[..3].parse().unwrap(),
                Some(("content-length:", value)) => length = value.parse().unwrap(),
                Some(_) => {}
            }
        }
        let mut text = vec![0; length];
        self.0.read_exact(&mut text).unwrap();
        (status, String::from_utf8(text).unwrap())
    }

    pub(crate) fn question(op: &str, user: &str) -> Value {
        json!({ "namespace": "shop", "attributes": { "op": op, "user": user } })
    }

    pub(crate) fn said(answer: &Value) -> Said {
        Said {
            allowed: answer["allowed"].as_bool().unwrap(),
            status: answer["status"].as_u64().unwrap(),
            remaining: answer["remaining"].as_u64(),
            reason: answer["reason"].as_str().unwrap().to_owned(),
            degraded: answer["degraded"] == true,
        }
    }

    /// The value of a series.
    pub(crate) fn metric(&mut self, series: &str) -> Option<u64> {
        let (_, page) = self.ask("GET", "/metrics", "", "");
        page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }
}

impl Client for Http {
    fn check(&mut self, op: &str, user: &str) -> Said {
        Http::said(&self.post("/v1/check", &Http::question(op, user)).1)
    }
}

/// Over gRPC.
pub(crate) struct GrpcClient(Grpc<Channel>);

impl GrpcClient {
    pub(crate) fn connect(address: SocketAddr) -> GrpcClient {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        GrpcClient(Grpc::new(RUNTIME.block_on(endpoint.connect()).unwrap()))
    }

    pub(crate) fn ask<Q, A>(&mut self, method: &'static str, message: Q) -> A
    where
        Q: prost::Message + Send + 'static,
        A: prost::Message + Default + Send + 'static,
    {
        let path = PathAndQuery::from_static(method);
        RUNTIME.block_on(async {
            self.0.ready().await.unwrap();
            self.0.unary(tonic::Request::new(message), path, ProstCodec::default()).await.unwrap().into_inner()
        })
    }

    /// Many messages in one call.
    pub(crate) fn stream(&mut self, requests: Vec<CheckRequest>) -> Vec<Answer> {
        let path = PathAndQuery::from_static("/tollgate.v1.Tollgate/CheckStream");
        let requests = tonic::Request::new(Messages(requests.into_iter()));
        RUNTIME.block_on(async {
            self.0.ready().await.unwrap();
            let mut answers = self.0.streaming(requests, path, ProstCodec::default()).await.unwrap().into_inner();
            let mut all = Vec::new();
            while let Some(answer) = answers.message().await.unwrap() {
                all.push(answer);
            }
            all
        })
    }

    pub(crate) fn question(op: &str, user: &str) -> CheckRequest {
        let attribute = |name: &str, value: &str| Attribute { name: name.to_owned(), value: value.to_owned() };
        let attributes = vec![attribute("op", op), attribute("user", user)];
        CheckRequest { namespace: "shop".to_owned(), attributes, ..CheckRequest::default() }
    }

    pub(crate) fn said(answer: Answer) -> Said {
        let Answer { allowed, status, remaining, reason, degraded, .. } = answer;
        Said { allowed, status: status.into(), remaining, reason, degraded }
    }
}

impl Client for GrpcClient {
    fn check(&mut self, op: &str, user: &str) -> Said {
        GrpcClient::said(self.ask("/tollgate.v1.Tollgate/Check", GrpcClient::question(op, user)))
    }
}

/// Messages that are all there.
struct Messages(std::vec::IntoIter<CheckRequest>);

impl tonic::codegen::tokio_stream::Stream for Messages {
    type Item = CheckRequest;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<CheckRequest>> {
        std::task::Poll::Ready(self.0.next())
    }
}
