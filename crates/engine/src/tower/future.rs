#[cfg(feature = "redis")]
use super::asking::Asking;
use super::{Gate, Headers, ResponseBody, refusal};
use crate::clock::Timer;
use crate::engine::Booking;
#[cfg(feature = "redis")]
use crate::engine::{Action, Verdict};
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tollgate_limit::Time;
use tower_service::Service;

pin_project! {
    /// The answer to come of a [`Gated`](super::Gated) service.
    #[must_use = "futures do nothing unless they are polled"]
    pub struct ResponseFuture<S, B, R>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, S::Future, B, R>,
    }
}

pin_project! {
    #[project = Projection]
    enum State<S, F, B, R> {
        /// The inner service is not asked.
        Refused { response: Option<Response<ResponseBody<R>>> },
        /// It will be, or may be, once something has happened.
        Waiting { waiting: Option<Waiting<S, B>> },
        /// It has been.
        Answering { gate: Arc<Gate>, headers: Headers, started: Time, #[pin] future: F },
    }
}

/// A request that waits.
enum Waiting<S, B> {
    Held(Held<S, B>),
    #[cfg(feature = "redis")]
    Asked(Asked<S, B>),
}

/// A request that only a store can decide about.
#[cfg(feature = "redis")]
struct Asked<S, B> {
    asking: Asking,
    verdict: Option<Box<Verdict>>,
    gate: Arc<Gate>,
    /// Not ready yet, as of those that wait for their turn.
    inner: S,
    request: Request<B>,
}

/// A request that waits for its turn.
struct Held<S, B> {
    timer: Timer,
    place: Place,
    /// Not ready yet: nobody else is kept from the inner service by those who wait.
    inner: S,
    request: Request<B>,
    headers: Headers,
}

impl<S, B, R> ResponseFuture<S, B, R>
where
    S: Service<Request<B>>,
{
    pub(super) fn refused(response: Response<ResponseBody<R>>) -> Self {
        ResponseFuture { state: State::Refused { response: Some(response) } }
    }

    pub(super) fn held(place: Place, until: Time, inner: S, request: Request<B>, headers: Headers) -> Self {
        let held = Held::new(place, until, inner, request, headers);
        ResponseFuture { state: State::Waiting { waiting: Some(Waiting::Held(held)) } }
    }

    #[cfg(feature = "redis")]
    pub(super) fn asking(gate: Arc<Gate>, asking: Asking, inner: S, request: Request<B>) -> Self {
        let asked = Asked { asking, verdict: None, gate, inner, request };
        ResponseFuture { state: State::Waiting { waiting: Some(Waiting::Asked(asked)) } }
    }

    pub(super) fn answering(gate: Arc<Gate>, started: Time, future: S::Future, headers: Headers) -> Self {
        ResponseFuture { state: State::Answering { gate, headers, started, future } }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    #[expect(clippy::expect_used, reason = "whoever polls a future that is done has made a mistake")]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                Projection::Refused { response } => return Poll::Ready(Ok(response.take().expect("polled once"))),
                Projection::Waiting { waiting } => {
                    ready!(waiting.as_mut().expect("polled until it is done").poll(context))?;
                    let next = waiting.take().expect("it was there").go_on();
                    state.set(next);
                }
                Projection::Answering { gate, headers, started, future } => {
                    let answer = ready!(future.poll(context));
                    gate.report(*started, answer.as_ref().map_or(true, refusal::is_failure));
                    return Poll::Ready(answer.map(|response| tell(response, std::mem::take(headers))));
                }
            }
        }
    }
}

impl<S, B> Waiting<S, B>
where
    S: Service<Request<B>>,
{
    /// Until what is waited for has happened.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        match self {
            Waiting::Held(held) => {
                ready!(Pin::new(&mut held.timer).poll(context));
                held.inner.poll_ready(context)
            }
            #[cfg(feature = "redis")]
            Waiting::Asked(asked) => {
                asked.verdict = Some(Box::new(ready!(asked.asking.as_mut().poll(context))));
                Poll::Ready(Ok(()))
            }
        }
    }

    /// What comes next.
    fn go_on<R>(self) -> State<S, S::Future, B, R> {
        match self {
            Waiting::Held(Held { place, mut inner, request, headers, .. }) => {
                let gate = place.leave();
                let started = gate.tollgate.clock().now();
                State::Answering { future: inner.call(request), gate, headers, started }
            }
            #[cfg(feature = "redis")]
            Waiting::Asked(asked) => asked.go_on(),
        }
    }
}

impl<S, B> Held<S, B> {
    fn new(place: Place, until: Time, inner: S, request: Request<B>, headers: Headers) -> Held<S, B> {
        Held { timer: Timer::new(place.gate.tollgate.clock().clone(), until), place, inner, request, headers }
    }
}

#[cfg(feature = "redis")]
impl<S, B> Asked<S, B> {
    /// Does what the verdict says. Even who need not wait for a turn waits until the inner service is ready.
    #[expect(clippy::expect_used, reason = "it is asked only once there is a verdict")]
    fn go_on<F, R>(self) -> State<S, F, B, R> {
        let Asked { gate, inner, request, verdict, .. } = self;
        let (verdict, now) = (verdict.expect("the store was heard"), gate.tollgate.clock().now());
        let response = match verdict.action() {
            Action::Refuse(status) => refusal::refuse(&request, status, &verdict, now),
            Action::Drop => refusal::drop(&request),
            Action::Allow | Action::Wait(_) => {
                let (headers, until) = (super::headers(&verdict, now), now + verdict.wait());
                let place = Place::new(gate, verdict.into_booking());
                let held = Held::new(place, until, inner, request, headers);
                return State::Waiting { waiting: Some(Waiting::Held(held)) };
            }
        };
        State::Refused { response: Some(response) }
    }
}

/// Adds what there is to say about limits, unless the inner service has said it.
fn tell<R>(response: Response<R>, headers: Headers) -> Response<ResponseBody<R>> {
    let mut response = response.map(ResponseBody::inner);
    for (name, value) in headers {
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

/// A place in a queue. Whoever drops it gets the tokens back that it was taken for.
pub(super) struct Place {
    gate: Arc<Gate>,
    booking: Option<Booking>,
}

impl Place {
    pub(super) fn new(gate: Arc<Gate>, booking: Booking) -> Place {
        Place { gate, booking: Some(booking) }
    }

    /// It is the request's turn: the tokens are used.
    fn leave(mut self) -> Arc<Gate> {
        self.booking = None;
        Arc::clone(&self.gate)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(unused) = self.booking.take() {
            self.gate.give_back(unused);
        }
    }
}

impl<S, B, R> fmt::Debug for ResponseFuture<S, B, R>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Refused { .. } => "Refused",
            State::Waiting { .. } => "Waiting",
            State::Answering { .. } => "Answering",
        };
        f.debug_tuple("ResponseFuture").field(&format_args!("{state}")).finish()
    }
}
