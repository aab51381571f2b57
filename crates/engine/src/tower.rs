//! A [`tower`](https://docs.rs/tower) layer, for axum, hyper, tonic and all others that speak the same types of HTTP.
//!
//! ```
//! use std::convert::Infallible;
//! use tollgate::Tollgate;
//! use tower_layer::Layer;
//! # use std::task::{Context, Poll};
//!
//! let tollgate = Tollgate::from_yaml("
//! namespace: shop
//! rules:
//!   - name: visitors
//!     key: [ip]
//!     limits: [10 per second burst 20]
//! ")?;
//! # #[derive(Clone)]
//! # struct Hello;
//! # impl tower_service::Service<http::Request<String>> for Hello {
//! #     type Response = http::Response<String>;
//! #     type Error = Infallible;
//! #     type Future = std::future::Ready<Result<http::Response<String>, Infallible>>;
//! #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> { Poll::Ready(Ok(())) }
//! #     fn call(&mut self, _: http::Request<String>) -> Self::Future { std::future::ready(Ok(http::Response::default())) }
//! # }
//! # let hello = Hello;
//! let limited = tollgate.layer("shop").layer(hello);
//! # Ok::<(), tollgate::Mistakes>(())
//! ```
//!
//! With axum it is `Router::layer`, with tonic `Server::layer`; the repository's `examples` show both. All that is
//! counted is in the [`Tollgate`]: however often layer and service are cloned, and a server clones its service for
//! every connection, they count together.
//!
//! # Who the client is
//!
//! The rules say what they want to know, and only that is looked at. An attribute is what the application said it is
//! by [`Attributes`], or else:
//!
//! | attribute | |
//! |---|---|
//! | `method` | the method |
//! | `path` | the path. Below axum's `nest` it is what the nested router sees |
//! | `host` | the authority of the target, or else the `host` header; in lower case and without the port |
//! | `ip` | the peer's address ([`TollgateLayer::peer`]), or that of whom trusted proxies speak for; absent if the peer is not known |
//! | `api_key` | the [fingerprint](crate::identity::fingerprint) of the key in the header that the namespace's `identity.api_key` names, `x-api-key` by default. Of `authorization` it is the bearer token |
//! | `login` | the header that `identity.login` names, and otherwise absent |
//! | `header.NAME` | the header of that name; the fingerprint of one that bears secrets: `authorization`, `proxy-authorization`, `cookie`, the one of the API key, and those marked as sensitive |
//!
//! *A header that was sent several times* counts as it was sent first. So does it for `HeaderMap::get` and thereby for
//! most services, and a text that is read here and not there could be varied at will. But whoever sends several API
//! keys or logins that are not the same has no identity: all who do so share one, named `several`. Of forwarded
//! addresses all lines are read, as one list.
//!
//! An API key or a login without any characters is absent. Bytes that are not UTF-8 are replaced by `�`.
//!
//! # What becomes of the request
//!
//! - *Allowed*: it goes to the inner service, and the answer gets the headers about limits. What the inner service
//!   has said about its own limits stays.
//! - *Queued*: it is held until its turn comes, without a place in the inner service, and then goes there. If the client
//!   leaves meanwhile, so that the server drops the future, its tokens are given back, unless somebody behind it has
//!   been told a time already: those keep it, and nobody is to come together with them. Headers tell the state at
//!   the time of the decision.
//! - *Asked about*: limits that hosts share in a store, with the feature `redis`, are waited for as long as the store's
//!   budget allows, and then one of the above or below happens.
//! - *Refused*: the answer has the rule's status, the headers and a body of [problem details](crate::problem). If the
//!   request was one of gRPC, the answer is one, too: `RESOURCE_EXHAUSTED`, or `UNAVAILABLE` in place of a 503.
//! - *Dropped*: the answer has a body that fails with [`Dropped`] before its first byte. Hyper, and so axum and tonic,
//!   then closes a connection of HTTP/1 without having sent anything, and resets a stream of HTTP/2. It does so for an
//!   error of the service as well; but axum does not allow for such, and a service that can only fail as the inner one
//!   does fits in everywhere. Where nobody looks at the body, as in answer to a `HEAD`, there is a status of 429 with
//!   `connection: close`.
//!
//! How long the inner service took until it answered, and whether it failed, is
//! [reported](crate::Event::Answered) to the engine.

mod body;
mod future;
mod identity;
mod refusal;

pub use body::{Dropped, ResponseBody};
pub use future::ResponseFuture;
pub use identity::{Attributes, PeerAddress};

use crate::engine::{Action, Answer, Booking, InForce, Pending, Step, Verdict};
use crate::gate::Tollgate;
use future::Place;
use http::{Extensions, HeaderName, HeaderValue, Request, Response};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use tollgate_limit::Time;
use tower_layer::Layer;
use tower_service::Service;

/// Finds the peer's address among the extensions of a request.
type FindPeer = dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync;

/// The headers that tell a client about its limits.
type Headers = Vec<(HeaderName, HeaderValue)>;

impl Tollgate {
    /// A layer for [`tower`](crate::tower) services, which decides by the rules of this namespace.
    pub fn layer(&self, namespace: &str) -> TollgateLayer {
        let peer = Arc::new(|extensions: &Extensions| extensions.get().map(|PeerAddress(address)| *address));
        TollgateLayer { gate: Arc::new(Gate { tollgate: self.clone(), namespace: namespace.into(), peer }) }
    }
}

/// Puts a [`Tollgate`] in front of services; see the [module](self). Made by [`Tollgate::layer`].
#[derive(Clone, Debug)]
pub struct TollgateLayer {
    gate: Arc<Gate>,
}

impl TollgateLayer {
    /// Looks for the peer's address here, and not in a [`PeerAddress`].
    ///
    /// axum knows it as `ConnectInfo<SocketAddr>`, if it serves by `into_make_service_with_connect_info`, and tonic as
    /// `TcpConnectInfo`. Where nothing is found, requests have no `ip`, not even by the word of a proxy.
    ///
    /// ```
    /// # #[derive(Clone)] struct ConnectInfo<A>(A);
    /// # use std::net::SocketAddr;
    /// # fn example(tollgate: tollgate::Tollgate) {
    /// let layer = tollgate.layer("shop").peer(|extensions| {
    ///     let ConnectInfo(address) = extensions.get::<ConnectInfo<SocketAddr>>()?;
    ///     Some(address.ip())
    /// });
    /// # }
    /// ```
    #[must_use]
    pub fn peer(self, find: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static) -> TollgateLayer {
        let Gate { tollgate, namespace, .. } = &*self.gate;
        let gate = Gate { tollgate: tollgate.clone(), namespace: namespace.clone(), peer: Arc::new(find) };
        TollgateLayer { gate: Arc::new(gate) }
    }
}

impl<S> Layer<S> for TollgateLayer {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated { gate: Arc::clone(&self.gate), inner }
    }
}

/// A service with a [`Tollgate`] in front of it. Made by [`TollgateLayer`].
#[derive(Clone, Debug)]
pub struct Gated<S> {
    gate: Arc<Gate>,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for Gated<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B, R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B, R> {
        let gate = &self.gate;
        let now = gate.tollgate.clock().now();
        let verdict = match gate.begin(&request, now) {
            Step::Done(verdict) => verdict,
            // As long as it is not known, the inner service that is ready stays here for somebody else.
            Step::Ask(pending) => {
                return ResponseFuture::asking(Arc::clone(gate), pending, self.inner.clone(), request, now);
            }
        };
        match verdict.action() {
            Action::Allow => {
                let headers = headers(&verdict, now);
                drop(verdict);
                ResponseFuture::answering(Arc::clone(gate), now, self.inner.call(request), headers)
            }
            // The inner service that is ready stays here for somebody who need not wait.
            Action::Wait(wait) => {
                let headers = headers(&verdict, now);
                let place = Place::new(Arc::clone(gate), verdict.into_booking());
                ResponseFuture::held(place, now + wait, self.inner.clone(), request, headers)
            }
            Action::Refuse(status) => ResponseFuture::refused(refusal::refuse(&request, status, &verdict, now)),
            Action::Drop => ResponseFuture::refused(refusal::drop(&request)),
        }
    }
}

/// What all services of a layer have in common.
struct Gate {
    tollgate: Tollgate,
    namespace: Box<str>,
    peer: Arc<FindPeer>,
}

impl Gate {
    fn begin<B>(&self, request: &Request<B>, now: Time) -> Step {
        self.asked(request, |rules, asked| match self.tollgate.can_ask() {
            true => rules.begin(asked, now),
            false => Step::Done(rules.check(asked, now)),
        })
    }

    fn finish<B>(&self, pending: Pending, request: &Request<B>, answer: &Answer, now: Time) -> Verdict {
        self.asked(request, |_, asked| self.tollgate.engine().finish(pending, asked, answer, now))
    }

    /// Asks by what the rules want to know about a request.
    fn asked<B, R>(&self, request: &Request<B>, ask: impl FnOnce(&InForce<'_>, &crate::Request<'_>) -> R) -> R {
        let rules = self.tollgate.engine().in_force();
        let given = request.extensions().get::<Attributes>();
        let found = rules.namespace(&self.namespace).map(|rules| identity::find(request, given, rules, &*self.peer));
        let found = found.unwrap_or_default();
        let attributes = identity::values(&found);
        let cost = given.map_or(1, Attributes::cost);
        ask(&rules, &crate::Request::new(&self.namespace, &attributes).with_cost(cost))
    }

    fn give_back(&self, booking: Booking) {
        self.tollgate.engine().cancel(booking, self.tollgate.clock().now());
    }

    fn report(&self, started: Time, failed: bool) {
        let took = self.tollgate.clock().now().since(started);
        self.tollgate.engine().answered(&self.namespace, took, failed);
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

fn headers(verdict: &Verdict, now: Time) -> Headers {
    let mut headers = Headers::new();
    verdict.headers(now, |name, value| {
        // They are ASCII throughout, whatever rules are called.
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.push((HeaderName::from_static(name), value));
        }
    });
    headers
}
