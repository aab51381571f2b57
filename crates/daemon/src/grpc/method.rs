//! What can be called, and whether this call may be.

use super::health;
use super::refusal::Refusal;
use super::wire::Writer;
use super::{envoy, native};
use crate::fault::Fault;
use crate::state::{State, Turn};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

/// As large as most messages can be.
const LONGEST: usize = 64 * 1024;

/// As large as a batch can be.
pub(super) const LONGEST_BATCH: usize = 1024 * 1024;

/// What can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// One message in, one message out.
    Unary(Unary),
    /// Whatever lasts longer.
    Streaming(Streaming),
}

/// Methods with one message in and one message out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unary {
    ShouldRateLimit,
    Check,
    CheckMany,
    Peek,
    Explain,
    Reset,
    Reserve,
    Settle,
    Refund,
    Health,
}

/// Methods with any number of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Streaming {
    CheckStream,
    WatchHealth,
    Reflect,
}

/// Why a call is not even looked at.
#[derive(Debug)]
pub(super) enum Rejection {
    /// It is no call at all.
    Http(StatusCode),
    /// It is one that is refused.
    Refused(Refusal),
}

impl From<Fault> for Rejection {
    fn from(fault: Fault) -> Rejection {
        Rejection::Refused(fault.into())
    }
}

impl Method {
    /// The method that is called, if it may be by whoever calls.
    pub(super) fn of_call(head: &Parts, is_trusted: bool, state: &State) -> Result<Method, Rejection> {
        if head.method != http::Method::POST {
            return Err(Rejection::Http(StatusCode::METHOD_NOT_ALLOWED));
        }
        if !head.headers.get(CONTENT_TYPE).is_some_and(|kind| is_grpc(kind.as_bytes())) {
            return Err(Rejection::Http(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let method = Method::find(head.uri.path()).ok_or_else(unknown)?;
        if !is_trusted && method.needs_token() {
            state.access().check(token(&head.headers).ok_or(Fault::NoToken)?)?;
        }
        match head.headers.get("grpc-encoding") {
            Some(encoding) if encoding != "identity" => Err(compressed().into()),
            _ => Ok(method),
        }
    }

    fn find(path: &str) -> Option<Method> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        Some(match (service, method) {
            ("envoy.service.ratelimit.v3.RateLimitService", "ShouldRateLimit") => Method::Unary(Unary::ShouldRateLimit),
            ("tollgate.v1.Tollgate", method) => Method::of_ours(method)?,
            ("grpc.health.v1.Health", "Check") => Method::Unary(Unary::Health),
            ("grpc.health.v1.Health", "Watch") => Method::Streaming(Streaming::WatchHealth),
            (
                "grpc.reflection.v1.ServerReflection" | "grpc.reflection.v1alpha.ServerReflection",
                "ServerReflectionInfo",
            ) => Method::Streaming(Streaming::Reflect),
            _ => return None,
        })
    }

    fn of_ours(method: &str) -> Option<Method> {
        Some(Method::Unary(match method {
            "Check" => Unary::Check,
            "CheckMany" => Unary::CheckMany,
            "CheckStream" => return Some(Method::Streaming(Streaming::CheckStream)),
            "Peek" => Unary::Peek,
            "Explain" => Unary::Explain,
            "Reset" => Unary::Reset,
            "Reserve" => Unary::Reserve,
            "Settle" => Unary::Settle,
            "Refund" => Unary::Refund,
            _ => return None,
        }))
    }

    /// Whoever only asks whether anybody is there need not say who asks.
    fn needs_token(self) -> bool {
        !matches!(self, Method::Unary(Unary::Health) | Method::Streaming(Streaming::WatchHealth))
    }
}

impl Unary {
    /// As the service calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Unary::ShouldRateLimit => "ShouldRateLimit",
            Unary::Check => "Check",
            Unary::CheckMany => "CheckMany",
            Unary::Peek => "Peek",
            Unary::Explain => "Explain",
            Unary::Reset => "Reset",
            Unary::Reserve => "Reserve",
            Unary::Settle => "Settle",
            Unary::Refund => "Refund",
            Unary::Health => "Health",
        }
    }

    /// As large as its message can be.
    pub(super) fn longest(self) -> usize {
        if self == Unary::CheckMany { LONGEST_BATCH } else { LONGEST }
    }

    /// Answers a message, and says how many questions it was.
    pub(super) async fn answer(self, turn: Turn<'_>, message: &[u8], reply: &mut Writer) -> Result<u64, Refusal> {
        match self {
            Unary::ShouldRateLimit => envoy::should_rate_limit(turn, message, reply).await?,
            Unary::Check => native::check(turn, message, reply).await?,
            Unary::CheckMany => return Ok(native::check_many(turn, message, reply).await?),
            Unary::Peek => native::peek(turn, message, reply).await?,
            Unary::Explain => native::explain(turn, message, reply).await?,
            Unary::Reset => native::reset(turn, message, reply).await?,
            Unary::Reserve => native::reserve(turn, message, reply).await?,
            Unary::Settle => native::settle(turn, message, reply).await?,
            Unary::Refund => native::refund(turn, message, reply).await?,
            Unary::Health => health::check(turn.state, message, reply)?,
        }
        Ok(1)
    }
}

impl Streaming {
    /// As large as each of its messages can be.
    pub(super) fn longest(self) -> usize {
        LONGEST
    }
}

/// `application/grpc`, with or without saying that messages are protobuf.
fn is_grpc(kind: &[u8]) -> bool {
    let rest = kind.strip_prefix(b"application/grpc");
    let rest = rest.map(|rest| rest.strip_prefix(b"+proto").unwrap_or(rest));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b";"))
}

fn token(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

fn unknown() -> Fault {
    Fault::Unknown("there is no such method; ask for the services by reflection".into())
}

/// A message that somebody has made smaller, and nobody here makes larger again.
pub(super) fn compressed() -> Fault {
    Fault::Unknown("messages must not be compressed".into())
}
