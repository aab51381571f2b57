//! What an OpenTelemetry collector is sent: the metrics that Prometheus would read, and traces of some questions. OTLP over
//! HTTP, as JSON.

mod metrics;
mod traces;

pub use traces::Tracer;
pub(crate) use traces::{Trace, note};

use crate::listen::Stop;
use crate::metrics::{Format, Keys, page};
use crate::state::State;
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;
use traces::Span;
use tracing::warn;

/// How long a collector may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// As many spans are sent at once.
const MOST_SPANS: usize = 500;

/// Where a collector listens: `http://127.0.0.1:4318`. It is asked without TLS, so it had better be on this machine or beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    authority: String,
    base: String,
}

impl FromStr for Collector {
    type Err = ();

    fn from_str(text: &str) -> Result<Collector, ()> {
        let uri = text.parse::<hyper::Uri>().map_err(|_| ())?;
        let (Some("http"), Some(authority), None) = (uri.scheme_str(), uri.authority(), uri.query()) else {
            return Err(());
        };
        let authority = match authority.port() {
            Some(_) => authority.to_string(),
            None => format!("{authority}:4318"),
        };
        Ok(Collector { authority, base: uri.path().trim_end_matches('/').to_owned() })
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.base)
    }
}

/// Sends metrics every `interval`, and spans as they come, until `stop`; then what is left.
pub(crate) async fn export(
    collector: Collector,
    interval: Duration,
    state: Arc<State>,
    mut spans: Receiver<Span>,
    mut stop: Stop,
) {
    let mut tick = tokio::time::interval(interval);
    let mut waiting = Vec::new();
    let mut was_reached = true;
    let mut is_over = false;
    while !is_over {
        tokio::select! {
            _ = tick.tick() => {}
            _ = spans.recv_many(&mut waiting, MOST_SPANS) => {
                // A few more come in the same moment, and are sent together.
                if waiting.len() < MOST_SPANS {
                    tokio::select! {
                        _ = tick.tick() => {}
                        () = tokio::time::sleep(Duration::from_millis(200)) => {}
                    }
                }
            }
            () = stop.come() => is_over = true,
        }
        while waiting.len() < MOST_SPANS
            && let Ok(span) = spans.try_recv()
        {
            waiting.push(span);
        }
        let sent = send_all(&collector, &state, std::mem::take(&mut waiting)).await;
        if let (Err(error), true) = (&sent, was_reached) {
            warn!(%collector, %error, "the collector cannot be reached; what it misses is lost");
        }
        was_reached = sent.is_ok();
    }
}

async fn send_all(collector: &Collector, state: &State, spans: Vec<Span>) -> Result<(), String> {
    let page = page(state, Format::Prometheus, Keys::Hidden);
    let metrics = metrics::translate(&page, state.started(), state.now());
    collector.post("/v1/metrics", &json!({ "resourceMetrics": [scope("scopeMetrics", "metrics", &metrics)] })).await?;
    if spans.is_empty() {
        return Ok(());
    }
    let spans: Vec<Value> = spans.iter().map(Span::to_json).collect();
    collector.post("/v1/traces", &json!({ "resourceSpans": [scope("scopeSpans", "spans", &spans)] })).await
}

/// Things of one kind, with who they are from.
fn scope(scopes: &str, kind: &str, things: &[Value]) -> Value {
    json!({
        "resource": { "attributes": [attribute("service.name", "tollgate"), attribute("service.version", env!("CARGO_PKG_VERSION"))] },
        scopes: [{ "scope": { "name": "tollgate", "version": env!("CARGO_PKG_VERSION") }, kind: things }],
    })
}

fn attribute(name: &str, value: &str) -> Value {
    json!({ "key": name, "value": { "stringValue": value } })
}

impl Collector {
    async fn post(&self, path: &str, body: &Value) -> Result<(), String> {
        match tokio::time::timeout(PATIENCE, self.try_post(path, body.to_string())).await {
            Ok(Ok(status)) if status.is_success() => Ok(()),
            Ok(Ok(status)) => Err(format!("it answers {status}")),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it does not answer".to_owned()),
        }
    }

    async fn try_post(
        &self,
        path: &str,
        body: String,
    ) -> Result<hyper::StatusCode, Box<dyn std::error::Error + Send + Sync>> {
        let stream = TcpStream::connect(&self.authority).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let request = Request::post(format!("{}{path}", self.base))
            .header("host", &self.authority)
            .header("content-type", "application/json")
            .body(Full::<Bytes>::from(body))?;
        let status = sender.send_request(request).await?.status();
        connection.abort();
        Ok(status)
    }
}
