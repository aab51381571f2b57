//! H2: whichever protocol somebody speaks, the same things happen, and the same is counted.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot be set up has failed")]

mod common;
#[path = "grpc/messages.rs"]
mod messages;

use common::{command, exchange};
use messages::native::{Answer, Attribute, CheckRequest, ResetResponse, SettleRequest};
use serde_json::{Value, json};
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tollgate::{Clock, ManualClock, RuleSet, Source, Tollgate};
use tollgate_daemon::State;
use tollgate_daemon::access::Access;
use tollgate_daemon::fault::Fault;
use tollgate_daemon::grpc::GrpcServer;
use tollgate_daemon::http::HttpServer;
use tollgate_daemon::listen::{Door, FrontEnd, Listener, Stop, Stopper, listen};
use tollgate_daemon::metrics::{Format, Keys, page};
use tollgate_daemon::resp::RespServer;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

const RULES: &str = include_str!("parity/rules.yaml");
const SCENARIO: &str = include_str!("parity/scenario.txt");
const IDLE: Duration = Duration::from_secs(60);

/// A step of the scenario.
#[derive(Clone, Debug, Default)]
struct Step<'a> {
    verb: &'a str,
    /// The namespace, or what else comes first.
    first: &'a str,
    cost: u64,
    attributes: Vec<(&'a str, &'a str)>,
}

impl<'a> Step<'a> {
    fn read(line: &'a str) -> Step<'a> {
        let mut words = line.split_whitespace();
        let mut step = Step { verb: words.next().unwrap(), cost: 1, ..Step::default() };
        for word in words {
            match word.split_once('=') {
                Some(("cost", cost)) => step.cost = cost.parse().unwrap(),
                Some(attribute) => step.attributes.push(attribute),
                None => step.first = word,
            }
        }
        step
    }
}

/// What came of a step, in words that no protocol has a say in. A reservation's id is kept, and not shown.
type Outcome = Result<String, Fault>;

/// Everything that an answer says.
#[derive(Default)]
struct Said {
    allowed: bool,
    status: u64,
    limit: Option<u64>,
    remaining: Option<u64>,
    wait_ms: u64,
    retry_after_ms: Option<u64>,
    reset_after_ms: Option<u64>,
    rule: Option<String>,
    reason: Option<String>,
    has_reservation: bool,
}

impl Said {
    fn show(&self) -> String {
        let mut text = format!("{} {}", if self.allowed { "allowed" } else { "refused" }, self.status);
        let numbers = [
            ("limit", self.limit),
            ("remaining", self.remaining),
            ("retry", self.retry_after_ms),
            ("reset", self.reset_after_ms),
        ];
        for (name, number) in numbers {
            number.into_iter().for_each(|number| _ = write!(text, " {name} {number}"));
        }
        if self.wait_ms > 0 {
            text += &format!(" wait {}", self.wait_ms);
        }
        for word in [&self.rule, &self.reason].into_iter().flatten() {
            text += &format!(" {word}");
        }
        text + if self.has_reservation { " reserved" } else { "" }
    }
}

/// Which of the faults there can be here it is, by what everybody is told.
fn fault(text: &str) -> Fault {
    match text {
        text if text.contains("no such reservation") => Fault::NoReservation,
        text => Fault::Malformed(text.to_owned().into()),
    }
}

/// Somebody who speaks a protocol.
trait Speaker {
    fn step(&mut self, step: &Step<'_>) -> Outcome;
}

/// A daemon with one front end, whose clock stands still.
struct Server {
    state: Arc<State>,
    hands: ManualClock,
    address: SocketAddr,
    _stopper: Stopper,
}

impl Server {
    fn start<F: FrontEnd>(runtime: &Runtime, front_end: impl FnOnce(Arc<State>) -> F) -> Server {
        let (clock, hands) = Clock::manual();
        hands.advance(Duration::from_secs(1_800_000_000));
        let rules = RuleSet::parse(&[Source::new("rules.yaml", RULES)]).unwrap();
        let state = Arc::new(State::new(Tollgate::builder().clock(clock).build(rules), 1000, Access::default()));
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let (stopper, stop) = Stop::new();
        let front_end = Arc::new(front_end(Arc::clone(&state)));
        runtime.spawn(listen(Listener::Tcp(listener), Door::default(), front_end, stop));
        Server { state, hands, address, _stopper: stopper }
    }

    /// What was counted, but for what is about the protocol or the process.
    fn metrics(&self) -> String {
        let page = page(&self.state, Format::Prometheus, Keys::Top);
        let lines = page
            .lines()
            .filter(|line| !line.starts_with('#') && !line.contains("protocol=") && !line.contains("process_"));
        lines.fold(String::new(), |text, line| text + line + "\n")
    }
}

/// A reply over RESP2.
enum Reply {
    Text(String),
    Number(i64),
    List(Vec<Reply>),
    Error(String),
}

impl Reply {
    /// Reads one, and leaves the rest.
    fn read(rest: &mut &str) -> Reply {
        let (line, after) = rest.split_once("\r\n").unwrap();
        *rest = after;
        let (kind, text) = line.split_at(1);
        match kind {
            "+" => Reply::Text(text.to_owned()),
            "-" => Reply::Error(text.to_owned()),
            ":" => Reply::Number(text.parse().unwrap()),
            "$" => {
                let (text, after) = rest.split_at(text.parse().unwrap());
                *rest = after.strip_prefix("\r\n").unwrap();
                Reply::Text(text.to_owned())
            }
            _ => Reply::List((0..text.parse().unwrap()).map(|_| Reply::read(rest)).collect()),
        }
    }

    fn into_pairs(self) -> Vec<(String, Reply)> {
        let Reply::List(items) = self else { panic!("no list") };
        let mut items = items.into_iter();
        std::iter::from_fn(|| Some((items.next()?.text(), items.next()?))).collect()
    }

    fn text(&self) -> String {
        match self {
            Reply::Text(text) => text.clone(),
            Reply::Number(number) => number.to_string(),
            Reply::List(_) | Reply::Error(_) => panic!("no text"),
        }
    }

    /// Nothing for -1, which stands for it.
    fn number(&self) -> Option<u64> {
        let Reply::Number(number) = self else { panic!("no number") };
        u64::try_from(*number).ok()
    }
}

struct Resp {
    address: SocketAddr,
    reservation: String,
}

impl Resp {
    fn ask(&self, words: &[&str]) -> Result<Reply, Fault> {
        let reply = String::from_utf8(exchange(self.address, &command(words))).unwrap();
        match Reply::read(&mut reply.as_str()) {
            Reply::Error(error) => {
                let (code, text) = error.split_once(' ').unwrap();
                let fault = fault(text);
                assert_eq!(code, fault.resp());
                Err(fault)
            }
            reply => Ok(reply),
        }
    }

    fn answer(&mut self, reply: Reply) -> Said {
        let mut said = Said::default();
        for (name, value) in reply.into_pairs() {
            match name.as_str() {
                "allowed" => said.allowed = value.number() == Some(1),
                "status" => said.status = value.number().unwrap(),
                "limit" => said.limit = value.number(),
                "remaining" => said.remaining = value.number(),
                "wait_ms" => said.wait_ms = value.number().unwrap(),
                "retry_after_ms" => said.retry_after_ms = value.number(),
                "reset_after_ms" => said.reset_after_ms = value.number(),
                "rule" => said.rule = Some(value.text()).filter(|rule| !rule.is_empty()),
                "reason" => said.reason = Some(value.text()),
                _ => {
                    self.reservation = value.text();
                    said.has_reservation = true;
                }
            }
        }
        said
    }
}

impl Speaker for Resp {
    fn step(&mut self, step: &Step<'_>) -> Outcome {
        let cost = step.cost.to_string();
        let attributes = || step.attributes.iter().flat_map(|(name, value)| [*name, *value]);
        let request = |verb| [verb, step.first, &cost].into_iter().chain(attributes()).collect::<Vec<_>>();
        Ok(match step.verb {
            "check" => self.ask(&request("CHECK")).map(|reply| self.answer(reply).show())?,
            "peek" => self.ask(&request("PEEK")).map(|reply| self.answer(reply).show())?,
            "headers" => {
                let headers = self.ask(&request("CHECK.HEADERS"))?.into_pairs().pop().unwrap().1;
                headers.into_pairs().iter().map(|(name, value)| format!("{name}: {}\n", value.text())).collect()
            }
            "reset" => format!("reset {}", self.ask(&request("RESET.CLIENT"))?.text()),
            "reserve" => {
                let words = ["RESERVE", step.first, &cost, "60000"].into_iter().chain(attributes()).collect::<Vec<_>>();
                self.ask(&words).map(|reply| self.answer(reply).show())?
            }
            "settle" => self.ask(&["SETTLE", &self.reservation, step.first]).map(|_| "settled".to_owned())?,
            "settle-wrong" => self.ask(&["SETTLE", step.first, "1"]).map(|_| "settled".to_owned())?,
            _ => self.ask(&["REFUND", &self.reservation]).map(|_| "settled".to_owned())?,
        })
    }
}

struct Http {
    address: SocketAddr,
    reservation: String,
}

impl Http {
    /// Headers about limits, and the body.
    fn ask(&self, target: &str, body: &Value) -> Result<(String, Value), Fault> {
        let body = body.to_string();
        let request = format!("POST {target} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let reply = String::from_utf8(exchange(self.address, request.as_bytes())).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        let (status, headers) = head.split_once("\r\n").unwrap();
        if body["title"].is_string() && body["violated-policies"].is_null() {
            let fault = fault(body["detail"].as_str().unwrap());
            assert!(status.contains(&format!(" {} ", fault.http())), "{status}");
            return Err(fault);
        }
        let limits = headers.lines().filter(|line| line.contains("ratelimit") || line.starts_with("retry-after"));
        Ok((limits.map(|line| format!("{line}\n")).collect(), body))
    }

    fn answer(&mut self, body: &Value) -> Said {
        let number = |name: &str| body[name].as_u64();
        let text = |name: &str| body[name].as_str().map(str::to_owned);
        if let Some(reservation) = text("reservation") {
            self.reservation = reservation;
        }
        Said {
            allowed: body["allowed"].as_bool().unwrap(),
            status: number("status").unwrap(),
            limit: number("limit"),
            remaining: number("remaining"),
            wait_ms: number("wait_ms").unwrap(),
            retry_after_ms: number("retry_after_ms"),
            reset_after_ms: number("reset_after_ms"),
            rule: text("rule"),
            reason: text("reason"),
            has_reservation: body["reservation"].is_string(),
        }
    }
}

impl Speaker for Http {
    fn step(&mut self, step: &Step<'_>) -> Outcome {
        let attributes: serde_json::Map<String, Value> =
            step.attributes.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let request = json!({ "namespace": step.first, "cost": step.cost, "attributes": attributes });
        let settlement =
            |id: &str, actual: &str| json!({ "reservation": id, "actual": actual.parse::<u64>().unwrap_or(1) });
        Ok(match step.verb {
            "check" | "peek" | "reserve" => {
                let (_, body) = self.ask(&format!("/v1/{}", step.verb), &request)?;
                self.answer(&body).show()
            }
            "headers" => self.ask("/v1/check?status=verdict", &request)?.0,
            "reset" => format!("reset {}", self.ask("/v1/reset", &request)?.1["buckets"]),
            "settle" => {
                self.ask("/v1/settle", &settlement(&self.reservation, step.first)).map(|_| "settled".to_owned())?
            }
            "settle-wrong" => self.ask("/v1/settle", &settlement(step.first, "1")).map(|_| "settled".to_owned())?,
            _ => self.ask("/v1/refund", &json!({ "reservation": self.reservation })).map(|_| "settled".to_owned())?,
        })
    }
}

struct GrpcClient<'a> {
    runtime: &'a Runtime,
    client: Grpc<Channel>,
    reservation: String,
}

impl GrpcClient<'_> {
    fn ask<Q, A>(&mut self, method: &'static str, message: Q) -> Result<A, Fault>
    where
        Q: prost::Message + Send + 'static,
        A: prost::Message + Default + Send + 'static,
    {
        let path = PathAndQuery::from_static(method);
        let called = self.runtime.block_on(async {
            self.client.ready().await.unwrap();
            self.client.unary(tonic::Request::new(message), path, ProstCodec::default()).await
        });
        called.map(tonic::Response::into_inner).map_err(|status| {
            let fault = fault(status.message());
            assert_eq!(status.code() as u8, fault.grpc() as u8);
            fault
        })
    }

    fn answer(&mut self, answer: Answer) -> Said {
        let has_reservation = answer.reservation.is_some();
        self.reservation = answer.reservation.unwrap_or_else(|| self.reservation.clone());
        Said {
            allowed: answer.allowed,
            status: answer.status.into(),
            limit: answer.limit,
            remaining: answer.remaining,
            wait_ms: answer.wait_ms,
            retry_after_ms: answer.retry_after_ms,
            reset_after_ms: answer.reset_after_ms,
            rule: answer.rule,
            reason: Some(answer.reason).filter(|reason| !reason.is_empty()),
            has_reservation,
        }
    }
}

impl Speaker for GrpcClient<'_> {
    fn step(&mut self, step: &Step<'_>) -> Outcome {
        let attribute =
            |(name, value): &(&str, &str)| Attribute { name: (*name).to_owned(), value: (*value).to_owned() };
        let request = CheckRequest {
            namespace: step.first.to_owned(),
            attributes: step.attributes.iter().map(attribute).collect(),
            cost: Some(step.cost),
            headers: step.verb == "headers",
            ..CheckRequest::default()
        };
        let settlement =
            |id: &str, actual: &str| SettleRequest { reservation: id.to_owned(), actual: actual.parse().unwrap_or(1) };
        let settle = "/tollgate.v1.Tollgate/Settle";
        Ok(match step.verb {
            "check" => self.ask("/tollgate.v1.Tollgate/Check", request).map(|answer| self.answer(answer).show())?,
            "peek" => self.ask("/tollgate.v1.Tollgate/Peek", request).map(|answer| self.answer(answer).show())?,
            "reserve" => self.ask("/tollgate.v1.Tollgate/Reserve", request).map(|answer| self.answer(answer).show())?,
            "headers" => {
                let answer: Answer = self.ask("/tollgate.v1.Tollgate/Check", request)?;
                answer.headers.iter().map(|header| format!("{}: {}\n", header.name, header.value)).collect()
            }
            "reset" => {
                let reset: ResetResponse = self.ask("/tollgate.v1.Tollgate/Reset", request)?;
                format!("reset {}", reset.buckets)
            }
            "settle" => self
                .ask::<_, ()>(settle, settlement(&self.reservation.clone(), step.first))
                .map(|()| "settled".to_owned())?,
            "settle-wrong" => self.ask::<_, ()>(settle, settlement(step.first, "1")).map(|()| "settled".to_owned())?,
            _ => {
                let refund = SettleRequest { reservation: self.reservation.clone(), actual: 0 };
                self.ask::<_, ()>("/tollgate.v1.Tollgate/Refund", refund).map(|()| "settled".to_owned())?
            }
        })
    }
}

/// What came of every step, a line each.
fn run(speaker: &mut dyn Speaker, server: &Server) -> String {
    let mut told = String::new();
    for line in SCENARIO.lines().filter(|line| !line.starts_with(['#', '>'])) {
        let step = Step::read(line);
        told += &format!("{line}\n");
        if step.verb == "advance" {
            server.hands.advance(Duration::from_secs(step.first.parse().unwrap()));
            continue;
        }
        match speaker.step(&step) {
            Ok(outcome) => outcome.lines().for_each(|line| told += &format!("> {line}\n")),
            Err(fault) => told += &format!("> {}: {fault}\n", fault.name()),
        }
    }
    told
}

#[test]
fn h2_one_scenario_ends_the_same_over_every_protocol() {
    let runtime = Runtime::new().unwrap();
    let servers = [
        Server::start(&runtime, |state| RespServer::new(state, IDLE)),
        Server::start(&runtime, |state| HttpServer::new(state, IDLE)),
        Server::start(&runtime, |state| GrpcServer::new(state, IDLE)),
    ];
    let [resp, http, grpc] = &servers;
    let endpoint = Endpoint::from_shared(format!("http://{}", grpc.address)).unwrap();
    let client = Grpc::new(runtime.block_on(endpoint.connect()).unwrap());
    let told = [
        run(&mut Resp { address: resp.address, reservation: String::new() }, resp),
        run(&mut Http { address: http.address, reservation: String::new() }, http),
        run(&mut GrpcClient { runtime: &runtime, client, reservation: String::new() }, grpc),
    ];
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let comments =
            SCENARIO.lines().filter(|line| line.starts_with('#')).fold(String::new(), |text, line| text + line + "\n");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity/scenario.txt");
        std::fs::write(path, comments + &told[0]).unwrap();
    }
    let expected =
        SCENARIO.lines().filter(|line| !line.starts_with('#')).fold(String::new(), |text, line| text + line + "\n");
    for (name, told) in ["RESP", "HTTP", "gRPC"].iter().zip(&told) {
        assert_eq!(*told, expected, "over {name}");
    }
    let [one, other, third] = servers.each_ref().map(Server::metrics);
    assert_eq!(one, other);
    assert_eq!(one, third);
    assert!(one.contains("ending=\"refused\"} 3"), "{one}");
}
