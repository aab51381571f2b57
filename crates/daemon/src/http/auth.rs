//! `/v1/auth`: for proxies that ask about each request before they pass it on.
//!
//! What the proxy says about the client's request is put together to that request, which then goes through the very layer
//! that services put in front of themselves, [`tollgate::tower`]: who the client is, what it is told and how long it is
//! held is the same whether a service asks or a proxy does.

use super::query::parameter;
use super::reply::{self, Reply};
use super::server::Visit;
use crate::fault::Fault;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use std::borrow::Cow;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::Cursor;
use std::net::{IpAddr, Ipv4Addr};
use std::task::{Context, Poll};
use tollgate::tower::{Attributes, PeerAddress};
use tower_layer::Layer;
use tower_service::Service;

/// Where a proxy shows its token.
pub(super) const TOKEN: HeaderName = HeaderName::from_static("x-tollgate-token");
const NAMESPACE: HeaderName = HeaderName::from_static("x-tollgate-namespace");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The headers that a proxy describes the client's request with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Family {
    name: &'static str,
    uri: &'static str,
    method: &'static str,
    host: &'static str,
}

/// As nginx is usually told to.
const ORIGINAL: Family =
    Family { name: "original", uri: "x-original-uri", method: "x-original-method", host: "x-original-host" };

/// As Traefik and Caddy do by themselves.
const FORWARDED: Family =
    Family { name: "forwarded", uri: "x-forwarded-uri", method: "x-forwarded-method", host: "x-forwarded-host" };

/// Answers whether the proxy may pass the request on.
pub(super) async fn auth(visit: &Visit, parts: Parts) -> Result<Reply, Fault> {
    let refusal = refusal_status(&parts)?;
    let namespace = namespace(&parts)?;
    let mut gate = visit.state.tollgate().layer(&namespace).layer(Pass);
    let request = original(visit, parts)?;
    let (answer, body) = gate.call(request).await.unwrap_or_else(|never| match never {}).into_parts();
    // A rule that says to drop has a body that fails: only the proxy could close that connection.
    let (status, body) = match body.collect().await {
        Ok(body) => (answer.status, body.to_bytes().into()),
        Err(_) => (StatusCode::TOO_MANY_REQUESTS, Vec::new()),
    };
    let mut reply = reply::empty(status);
    if !status.is_success() {
        *reply.status_mut() = refusal.unwrap_or(status);
    }
    *reply.headers_mut() = answer.headers;
    *reply.body_mut() = Full::new(Cursor::new(body));
    Ok(reply::not_to_be_stored(reply))
}

/// Which status refusals are to have; nginx knows only 401 and 403.
fn refusal_status(parts: &Parts) -> Result<Option<StatusCode>, Fault> {
    let Some(text) = parameter(parts.uri.query(), "refuse")? else { return Ok(None) };
    let status = text.parse().ok().filter(|status| (400..500).contains(status));
    match status.and_then(|status| StatusCode::from_u16(status).ok()) {
        Some(status) => Ok(Some(status)),
        None => Err(Fault::Malformed("`refuse` in the query is a status from 400 to 499".into())),
    }
}

fn namespace(parts: &Parts) -> Result<String, Fault> {
    if let Some(namespace) = parameter(parts.uri.query(), "namespace")? {
        return Ok(namespace.into_owned());
    }
    let header = one_value(&parts.headers, NAMESPACE.as_str())?;
    let text = header.and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    text.map(str::to_owned).ok_or(Fault::Malformed(
        "whose rules apply? Say `?namespace=NAME` in the query, or `X-Tollgate-Namespace: NAME`".into(),
    ))
}

/// The request that the proxy asks about.
fn original(visit: &Visit, parts: Parts) -> Result<Request<()>, Fault> {
    let family = family(&parts)?;
    let mut headers = parts.headers;
    let mut request = Request::new(());
    *request.uri_mut() = target(one_value(&headers, family.uri)?)?;
    *request.method_mut() = method(one_value(&headers, family.method)?, parts.method)?;
    if let Some(host) = one_value(&headers, family.host)?.cloned() {
        headers.insert(HOST, host);
    }
    if let Some(address) = headers.get(REAL_IP).filter(|_| !headers.contains_key(FORWARDED_FOR)).cloned() {
        headers.insert(FORWARDED_FOR, address);
    }
    // If it is what let the proxy in here, it says nothing about the client.
    let has_own_token = headers.remove(TOKEN).is_some();
    if !visit.peer.is_trusted && !has_own_token {
        headers.remove(AUTHORIZATION);
    }
    request.extensions_mut().insert(hide_content_type(&mut headers));
    // Whoever comes by a Unix socket is on this machine.
    let peer = visit.peer.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    request.extensions_mut().insert(PeerAddress(peer));
    *request.headers_mut() = headers;
    Ok(request)
}

/// The layer would answer a request of gRPC as gRPC does, with a status of 200 whatever it says. The proxy wants to be
/// answered, and rules shall know the header nevertheless.
fn hide_content_type(headers: &mut HeaderMap) -> Attributes {
    let content_type = headers.remove(CONTENT_TYPE);
    content_type.iter().fold(Attributes::default(), |attributes, value| {
        attributes.with("header.content-type", &*String::from_utf8_lossy(value.as_bytes()))
    })
}

/// Which headers describe the request. Proxies pass on what clients send, so those of the other kind may be the client's:
/// where both are there and disagree, one of them lies, and nobody can know which unless told so.
fn family(parts: &Parts) -> Result<Family, Fault> {
    match parameter(parts.uri.query(), "headers")?.as_deref() {
        Some(name) if name == ORIGINAL.name => return Ok(ORIGINAL),
        Some(name) if name == FORWARDED.name => return Ok(FORWARDED),
        Some(_) => return Err(Fault::Malformed("`headers` in the query is `original` or `forwarded`".into())),
        None => {}
    }
    let uri_of = |family: Family| one_value(&parts.headers, family.uri);
    match (uri_of(ORIGINAL)?, uri_of(FORWARDED)?) {
        (Some(one), Some(other)) if one != other => Err(Fault::Malformed(
            "X-Original-URI and X-Forwarded-Uri disagree; say `?headers=original` or `?headers=forwarded`, whichever \
             the proxy sets"
                .into(),
        )),
        (Some(_), _) => Ok(ORIGINAL),
        (None, _) => Ok(FORWARDED),
    }
}

/// The value of a header that can only have one.
fn one_value<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, Fault> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.any(|other| Some(other) != first) {
        return Err(Fault::Malformed(format!("there are several {name}, which disagree").into()));
    }
    Ok(first)
}

fn method(told: Option<&HeaderValue>, own: Method) -> Result<Method, Fault> {
    let Some(told) = told else { return Ok(own) };
    Method::from_bytes(told.as_bytes()).map_err(|_| Fault::Malformed("what is told as the method is none".into()))
}

/// The path of what was asked for; the rest plays no part.
fn target(told: Option<&HeaderValue>) -> Result<Uri, Fault> {
    let told = told.ok_or(Fault::Malformed(
        "which request is meant? The proxy has to set X-Original-URI or X-Forwarded-Uri".into(),
    ))?;
    let path = told.as_bytes().split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
    let path = path_of(path);
    Uri::try_from(&*encoded(path)).map_err(|_| Fault::Malformed("what is told as the URI is none".into()))
}

/// Without scheme and host, which some proxies tell as well.
fn path_of(target: &[u8]) -> &[u8] {
    let after_scheme = [&b"http://"[..], b"https://"].iter().find_map(|scheme| target.strip_prefix(*scheme));
    let Some(rest) = after_scheme else { return target };
    let path = rest.iter().position(|byte| *byte == b'/').and_then(|slash| rest.get(slash..));
    path.unwrap_or(b"/")
}

/// Browsers send more than a URI may have. It is brought to its normal form by the rules, so it may be encoded here.
fn encoded(path: &[u8]) -> Cow<'_, str> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@%".contains(byte);
    match std::str::from_utf8(path) {
        Ok(text) if path.iter().all(is_plain) && path.starts_with(b"/") => Cow::Borrowed(text),
        _ => {
            let mut text = String::from(if path.starts_with(b"/") { "" } else { "/" });
            for byte in path {
                match is_plain(byte) {
                    true => text.push(char::from(*byte)),
                    false => text.push_str(&format!("%{byte:02X}")),
                }
            }
            Cow::Owned(text)
        }
    }
}

/// What stands behind the layer: it says yes.
#[derive(Clone, Copy, Debug)]
struct Pass;

impl Service<Request<()>> for Pass {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::default()))
    }
}
