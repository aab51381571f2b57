//! What a request says about itself, as far as the rules want to know it.

use super::FindPeer;
use http::header::{AUTHORIZATION, COOKIE, HOST, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderValue, Request};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::net::IpAddr;
use tollgate_rules::identity::{Fingerprint, fingerprint};
use tollgate_rules::model::Identity;
use tollgate_rules::{CompiledNamespace, Value};

/// Who the clients are that send several credentials.
const SEVERAL: &str = "several";

/// The address that a request came from: an extension of requests, for servers that do not have one of their own.
///
/// Of a proxy it is the proxy's; what that says about the client is believed as far as the rules trust it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// What the application knows of a request: an extension of requests, set by a layer further out.
///
/// It is believed before anything that the request says, so that a login counts as it was checked and not as it was
/// claimed. An `api_key` is still replaced by its fingerprint.
///
/// ```
/// use tollgate::tower::Attributes;
///
/// let mut request = http::Request::new("a body");
/// let known = Attributes::default().with("login", "alice").with("plan", "gold").with_cost(5);
/// request.extensions_mut().insert(known);
/// ```
#[derive(Clone, Debug)]
pub struct Attributes {
    attributes: Vec<(Cow<'static, str>, Given)>,
    cost: u64,
}

#[derive(Clone, Debug)]
enum Given {
    Text(Box<str>),
    Address(IpAddr),
    Number(u64),
}

impl Attributes {
    /// The same, and this. Of several with the same name the first counts.
    #[must_use]
    pub fn with<'v>(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Value<'v>>) -> Attributes {
        let value = match value.into() {
            Value::Text(text) => Given::Text(text.into()),
            Value::Address(address) => Given::Address(address),
            Value::Number(number) => Given::Number(number),
        };
        self.attributes.push((name.into(), value));
        self
    }

    /// The same at another cost than 1; see [`Request::with_cost`](crate::Request::with_cost).
    #[must_use]
    pub fn with_cost(mut self, cost: u64) -> Attributes {
        self.cost = cost;
        self
    }

    pub(super) fn cost(&self) -> u64 {
        self.cost
    }

    fn get(&self, name: &str) -> Option<Found<'_>> {
        let (_, value) = self.attributes.iter().find(|(known, _)| known == name)?;
        Some(match value {
            Given::Text(text) if name == "api_key" => Found::Secret(fingerprint(text.as_bytes())),
            Given::Text(text) => Found::Text(Cow::Borrowed(text)),
            Given::Address(address) => Found::Address(*address),
            Given::Number(number) => Found::Number(*number),
        })
    }
}

/// Knows nothing, at a cost of 1.
impl Default for Attributes {
    fn default() -> Attributes {
        Attributes { attributes: Vec::new(), cost: 1 }
    }
}

/// The value of an attribute, before it is asked about.
pub(super) enum Found<'a> {
    Text(Cow<'a, str>),
    Address(IpAddr),
    Number(u64),
    /// What stands for a secret.
    Secret(Fingerprint),
}

/// All that the rules mention and the request has.
pub(super) type AllFound<'a> = SmallVec<[(&'a str, Found<'a>); 8]>;

/// Looks for what the rules mention.
pub(super) fn find<'a, B>(
    request: &'a Request<B>,
    given: Option<&'a Attributes>,
    rules: &'a CompiledNamespace,
    peer: &FindPeer,
) -> AllFound<'a> {
    let identity = &rules.model().identity;
    let look_for = |name: &'a str| {
        let found = given.and_then(|given| given.get(name));
        Some((name, found.or_else(|| look(name, request, identity, peer))?))
    };
    rules.mentioned().filter_map(look_for).collect()
}

/// The same, as the engine takes it.
pub(super) fn values<'a>(found: &'a AllFound<'_>) -> SmallVec<[(&'a str, Value<'a>); 8]> {
    found.iter().map(|(name, found)| (*name, found.value())).collect()
}

impl Found<'_> {
    fn value(&self) -> Value<'_> {
        match self {
            Found::Text(text) => Value::Text(text),
            Found::Address(address) => Value::Address(*address),
            Found::Number(number) => Value::Number(*number),
            Found::Secret(fingerprint) => Value::Text(fingerprint),
        }
    }
}

/// Finds one attribute.
fn look<'a, B>(name: &str, request: &'a Request<B>, identity: &Identity, peer: &FindPeer) -> Option<Found<'a>> {
    let headers = request.headers();
    let key_header = identity.api_key.as_deref().unwrap_or("x-api-key");
    match name {
        "method" => Some(Found::Text(request.method().as_str().into())),
        "path" => Some(Found::Text(request.uri().path().into())),
        "host" => host(request).map(Found::Text),
        "ip" => peer(request.extensions()).map(|peer| Found::Address(client(peer, headers, identity))),
        "api_key" => api_key(headers, key_header),
        "login" => login(headers, identity.login.as_deref()?),
        _ => header(headers, name.strip_prefix("header.")?, key_header),
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str, key_header: &str) -> Option<Found<'a>> {
    let value = headers.get(name)?;
    let secret = [AUTHORIZATION.as_str(), PROXY_AUTHORIZATION.as_str(), COOKIE.as_str(), key_header];
    let is_secret = value.is_sensitive() || secret.iter().any(|secret| secret.eq_ignore_ascii_case(name));
    Some(if is_secret { Found::Secret(fingerprint(value.as_bytes())) } else { Found::Text(text(value)) })
}

/// Who sent the request, as far as proxies are trusted.
fn client(peer: IpAddr, headers: &HeaderMap, identity: &Identity) -> IpAddr {
    let lines = headers.get_all(identity.trust.header().name()).iter().map(HeaderValue::as_bytes);
    identity.trust.client(peer, lines)
}

/// The host that the request is for, in lower case, without the port and the dot of the root.
fn host<B>(request: &Request<B>) -> Option<Cow<'_, str>> {
    let of_target = request.uri().host().map(Cow::Borrowed);
    let mut host = of_target.or_else(|| request.headers().get(HOST).map(|value| without_port(text(value))))?;
    if host.ends_with('.') {
        host.to_mut().pop();
    }
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        host.to_mut().make_ascii_lowercase();
    }
    Some(host)
}

/// `[2001:db8::1]:80` has colons before the last one, too.
fn without_port(host: Cow<'_, str>) -> Cow<'_, str> {
    let end = match host.rfind(':') {
        Some(colon) if !host.get(colon..).is_some_and(|port| port.contains(']')) => colon,
        _ => return host,
    };
    match host {
        Cow::Borrowed(text) => Cow::Borrowed(text.get(..end).unwrap_or(text)),
        Cow::Owned(mut text) => {
            text.truncate(end);
            Cow::Owned(text)
        }
    }
}

fn api_key<'a>(headers: &'a HeaderMap, name: &str) -> Option<Found<'a>> {
    let keys = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let is_token = name == AUTHORIZATION.as_str();
    let keys = keys.filter_map(|key| if is_token { bearer_token(key) } else { Some(key) });
    credential(keys, |key| Found::Secret(fingerprint(key)))
}

/// `Bearer` in any case, and what follows it.
fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn login<'a>(headers: &'a HeaderMap, name: &str) -> Option<Found<'a>> {
    let logins = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    credential(logins, |login| Found::Text(String::from_utf8_lossy(login)))
}

/// The one that all lines agree on.
fn credential<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    found: impl FnOnce(&'a [u8]) -> Found<'a>,
) -> Option<Found<'a>> {
    let mut lines = lines.filter(|line| !line.is_empty());
    let first = lines.next()?;
    Some(if lines.all(|line| line == first) { found(first) } else { Found::Text(SEVERAL.into()) })
}

fn text(value: &HeaderValue) -> Cow<'_, str> {
    String::from_utf8_lossy(value.as_bytes())
}
