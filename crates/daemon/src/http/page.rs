//! Which page was asked for, by whom and how.

use super::body::{self, Size};
use super::reply::{self, Reply, Text};
use super::server::Visit;
use super::{OPENAPI, auth, json, query, question, throttle};
use crate::fault::Fault;
use crate::meters::{Meter, Protocol};
use crate::metrics::{self, Format, Keys};
use http::header::{ACCEPT, AUTHORIZATION};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use hyper::body::Incoming;

/// What there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Question(Question),
    Auth,
    Metrics,
    Alive,
    Ready,
    OpenApi,
    Index,
}

/// Pages that read a body and answer in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Check,
    Peek,
    Explain,
    Reset,
    Reserve,
    Settle,
    Refund,
    Throttle,
    Json,
}

/// Where a caller says what it traces.
const TRACE_PARENT: &str = "traceparent";

const INDEX: &str = r#"{"name":"tollgate","documentation":"/openapi.json","pages":{"POST /v1/check":"decide about one request or a list of them","POST /v1/peek":"what a check would say","POST /v1/explain":"every rule, and why it applies or not","POST /v1/reset":"forget what a client has spent","POST /v1/reserve":"take an estimate","POST /v1/settle":"say what it really was","POST /v1/refund":"give it back","/v1/auth":"for nginx, Traefik and Caddy","POST /throttle":"as throttlecrab answers","POST /json":"as envoyproxy/ratelimit answers","GET /metrics":"for Prometheus","GET /healthz":"whether it is alive","GET /readyz":"whether it wants to be asked"}}
"#;

/// Where throttlecrab and envoyproxy/ratelimit have the same as here, their names are understood, too.
fn find(path: &str) -> Option<Page> {
    Some(match path {
        "/v1/check" => Page::Question(Question::Check),
        "/v1/peek" => Page::Question(Question::Peek),
        "/v1/explain" => Page::Question(Question::Explain),
        "/v1/reset" => Page::Question(Question::Reset),
        "/v1/reserve" => Page::Question(Question::Reserve),
        "/v1/settle" => Page::Question(Question::Settle),
        "/v1/refund" => Page::Question(Question::Refund),
        "/throttle" => Page::Question(Question::Throttle),
        "/json" => Page::Question(Question::Json),
        "/v1/auth" => Page::Auth,
        "/metrics" => Page::Metrics,
        "/healthz" | "/health" => Page::Alive,
        "/readyz" | "/healthcheck" => Page::Ready,
        "/openapi.json" => Page::OpenApi,
        "/" => Page::Index,
        _ => return None,
    })
}

/// Answers a request, whatever it is.
pub(super) async fn answer(visit: &Visit, request: Request<Incoming>) -> Response<Text> {
    visit.activity.begin();
    let meter = meter(visit);
    meter.asked(1);
    let reply = respond(visit, request).await.unwrap_or_else(|fault| {
        meter.fault(&fault);
        reply::fault(&fault)
    });
    visit.activity.end();
    reply
}

async fn respond(visit: &Visit, request: Request<Incoming>) -> Result<Reply, Fault> {
    let (parts, body) = request.into_parts();
    let page = find(parts.uri.path());
    if !matches!(page, Some(Page::Alive | Page::Ready)) {
        let_in(visit, &parts.headers)?;
    }
    match page {
        Some(Page::Question(question)) if parts.method == Method::POST => {
            let size = if question == Question::Check { Size::OneOrMany } else { Size::One };
            let body = body::read(visit, parts.version, body, size).await?;
            let trace = visit.state.trace(parts.headers.get(TRACE_PARENT).map(HeaderValue::as_bytes));
            let asked = (Protocol::Http, question.name());
            let answer = question.answer(visit, parts, &body);
            visit.state.traced(trace, asked, answer, Fault::name).await
        }
        Some(Page::Question(_)) => Ok(other_method(visit, &parts.method, "POST, OPTIONS")),
        Some(Page::Auth) => auth::auth(visit, parts).await,
        Some(page) if matches!(parts.method, Method::GET | Method::HEAD) => page.show(visit, &parts),
        Some(_) => Ok(other_method(visit, &parts.method, "GET, HEAD, OPTIONS")),
        None if parts.method == Method::OPTIONS && parts.uri.path() == "*" => {
            Ok(reply::options("GET, HEAD, POST, OPTIONS"))
        }
        None => Err(Fault::Unknown("there is no such page; / says what there is".into())),
    }
}

impl Question {
    /// What traces call it.
    fn name(self) -> &'static str {
        match self {
            Question::Check => "check",
            Question::Peek => "peek",
            Question::Explain => "explain",
            Question::Reset => "reset",
            Question::Reserve => "reserve",
            Question::Settle => "settle",
            Question::Refund => "refund",
            Question::Throttle => "throttle",
            Question::Json => "json",
        }
    }

    async fn answer(self, visit: &Visit, parts: Parts, body: &[u8]) -> Result<Reply, Fault> {
        let headers = parts.headers;
        match self {
            Question::Check => question::check(visit, headers, &parts.uri, body).await,
            Question::Peek => question::peek(visit, headers, body).await,
            Question::Explain => question::explain(visit, headers, body).await,
            Question::Reset => question::reset(visit, headers, body).await,
            Question::Reserve => question::reserve(visit, headers, body).await,
            Question::Settle => question::settle(visit, headers, body).await,
            Question::Refund => question::refund(visit, headers, body).await,
            Question::Throttle => throttle::throttle(visit, headers, body),
            Question::Json => json::json(visit, headers, body).await,
        }
    }
}

impl Page {
    /// A page that is only looked at.
    fn show(self, visit: &Visit, parts: &Parts) -> Result<Reply, Fault> {
        Ok(match self {
            Page::Alive => reply::not_to_be_stored(reply::of_type("text/plain", "alive\n")),
            Page::Ready if visit.state.is_stopping() => return Err(Fault::Stopping),
            Page::Ready => reply::not_to_be_stored(reply::of_type("text/plain", "ready\n")),
            Page::Metrics => show_metrics(visit, parts)?,
            Page::OpenApi => reply::of_type("application/json", OPENAPI),
            Page::Index | Page::Question(_) | Page::Auth => reply::of_type("application/json", INDEX),
        })
    }
}

fn show_metrics(visit: &Visit, parts: &Parts) -> Result<Reply, Fault> {
    let keys = match query::parameter(parts.uri.query(), "keys")?.as_deref() {
        None => Keys::Hidden,
        Some("top") => Keys::Top,
        Some(_) => return Err(Fault::Malformed("`keys` in the query is `top`, or left out".into())),
    };
    let accepted = parts.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::of(accepted);
    let text = metrics::page(&visit.state, format, keys);
    Ok(reply::not_to_be_stored(reply::of_type(format.content_type(), text)))
}

fn other_method(visit: &Visit, method: &Method, methods: &'static str) -> Reply {
    if *method == Method::OPTIONS {
        return reply::options(methods);
    }
    meter(visit).fault(&Fault::WrongMethod);
    reply::wrong_method(methods)
}

/// Strangers need a token. The header of its own is for proxies, whose requests have the client's `authorization`.
fn let_in(visit: &Visit, headers: &HeaderMap) -> Result<(), Fault> {
    if visit.peer.is_trusted {
        return Ok(());
    }
    let own = headers.get(auth::TOKEN).map(http::HeaderValue::as_bytes);
    let bearer = || headers.get(AUTHORIZATION).and_then(|value| bearer_token(value.as_bytes()));
    visit.state.access().check(own.or_else(bearer).ok_or(Fault::NoToken)?)
}

/// `Bearer` in any case, and what follows it.
pub(super) fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn meter(visit: &Visit) -> &Meter {
    visit.state.meters().of(Protocol::Http)
}
