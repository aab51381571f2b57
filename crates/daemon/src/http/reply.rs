//! Replies: what is sent back, and as what.

use crate::fault::Fault;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use std::io::Cursor;
use tollgate::{Time, Verdict};

/// The body of a reply.
pub(super) type Text = Full<Cursor<Vec<u8>>>;

/// What is sent back.
pub(super) type Reply = Response<Text>;

/// A body of this type.
pub(super) fn of_type(content_type: &'static str, body: impl Into<Vec<u8>>) -> Reply {
    of_type_in(HeaderMap::new(), content_type, body.into())
}

/// The same in place of the request's headers: what memory they have is used again, by this reply and, as hyper keeps it,
/// by the next request.
fn of_type_in(mut headers: HeaderMap, content_type: &'static str, body: Vec<u8>) -> Reply {
    headers.clear();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let mut reply = Response::new(Full::new(Cursor::new(body)));
    *reply.headers_mut() = headers;
    reply
}

/// Nothing but a status.
pub(super) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(Full::default());
    *reply.status_mut() = status;
    reply
}

/// What fits most answers.
const ROOM: usize = 256;

/// A value as JSON, in place of the request's headers.
pub(super) fn json(headers: HeaderMap, value: &impl Serialize) -> Reply {
    let mut body = Vec::with_capacity(ROOM);
    // Only maps whose keys are no texts cannot be written, and there are none.
    let _ = serde_json::to_writer(&mut body, value);
    json_text(headers, body)
}

/// JSON that is written already, in place of the request's headers.
pub(super) fn json_text(headers: HeaderMap, body: Vec<u8>) -> Reply {
    of_type_in(headers, "application/json", body)
}

/// Why there is no answer, as Problem Details (RFC 9457).
pub(super) fn fault(fault: &Fault) -> Reply {
    #[derive(Serialize)]
    struct Problem<'a> {
        r#type: &'static str,
        title: &'a str,
        status: u16,
        detail: String,
        fault: &'static str,
    }
    let status = StatusCode::from_u16(fault.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let title = status.canonical_reason().unwrap_or_default();
    let problem =
        Problem { r#type: "about:blank", title, status: fault.http(), detail: fault.to_string(), fault: fault.name() };
    let mut body = Vec::with_capacity(ROOM);
    let _ = serde_json::to_writer(&mut body, &problem);
    let mut reply = of_type(tollgate::problem::CONTENT_TYPE, body);
    *reply.status_mut() = status;
    if status == StatusCode::UNAUTHORIZED {
        reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    reply
}

/// A page that is there, but not for this method.
pub(super) fn wrong_method(methods: &'static str) -> Reply {
    let mut reply = fault(&Fault::WrongMethod);
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    reply
}

/// Which methods a page is for.
pub(super) fn options(methods: &'static str) -> Reply {
    let mut reply = empty(StatusCode::NO_CONTENT);
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    reply
}

/// The refusal itself, as the client is to get it.
pub(super) fn refusal(verdict: &Verdict, status: u16, now: Time) -> Reply {
    let mut reply = of_type(tollgate::problem::CONTENT_TYPE, verdict.problem());
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    add_limits(&mut reply, verdict, now);
    reply
}

/// The headers about limits.
pub(super) fn add_limits(reply: &mut Reply, verdict: &Verdict, now: Time) {
    verdict.headers(now, |name, value| {
        // They are ASCII throughout, whatever rules are called.
        if let Ok(value) = HeaderValue::from_str(value) {
            reply.headers_mut().insert(HeaderName::from_static(name), value);
        }
    });
}

/// What is so now need not be so in a moment.
pub(super) fn not_to_be_stored(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}
