//! The answers to requests that do not reach the inner service.

use super::ResponseBody;
use crate::engine::Verdict;
use crate::problem;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use tollgate_limit::Time;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// What the client is told in place of an answer.
pub(super) fn refuse<B, R>(
    request: &Request<B>,
    status: u16,
    verdict: &Verdict,
    now: Time,
) -> Response<ResponseBody<R>> {
    let mut response = match grpc_type(request.headers()) {
        Some(content_type) => grpc(content_type, status, &verdict.detail()),
        None => problem(status, verdict),
    };
    response.headers_mut().extend(super::headers(verdict, now));
    response
}

/// An answer that closes the connection.
pub(super) fn drop<B, R>(request: &Request<B>) -> Response<ResponseBody<R>> {
    let mut response = Response::new(ResponseBody::dropped());
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    if request.version() < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn problem<R>(status: u16, verdict: &Verdict) -> Response<ResponseBody<R>> {
    let mut response = Response::new(ResponseBody::text(verdict.problem()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(problem::CONTENT_TYPE));
    response
}

/// The type of the request's content, if that is gRPC of any kind. The answer is of the same.
fn grpc_type(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(CONTENT_TYPE).filter(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// An answer without a message, whose trailers stand in its header.
fn grpc<R>(content_type: &HeaderValue, status: u16, message: &str) -> Response<ResponseBody<R>> {
    let mut response = Response::new(ResponseBody::text(String::new()));
    let code = match status {
        503 => "14", // UNAVAILABLE
        _ => "8",    // RESOURCE_EXHAUSTED
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type.clone());
    headers.insert(GRPC_STATUS, HeaderValue::from_static(code));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    response
}

/// All but printable ASCII as `%XX`, and the percent sign itself.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Whether the service itself has failed. gRPC says so in a header, unless it began to answer.
pub(super) fn is_failure<R>(response: &Response<R>) -> bool {
    // UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and DATA_LOSS.
    const CODES: [&[u8]; 6] = [b"2", b"4", b"12", b"13", b"14", b"15"];
    let code = response.headers().get(GRPC_STATUS).map(HeaderValue::as_bytes);
    response.status().is_server_error() || code.is_some_and(|code| CODES.contains(&code))
}
