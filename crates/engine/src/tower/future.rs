use super::{Gate, Headers, ResponseBody, refusal};
use crate::clock::Timer;
use crate::engine::{Action, Answer, Booking, Pending};
use crate::gate::Asking;
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
        /// Whether it will be is not known yet.
        Asking { asked: Option<Asked<S, B>> },
        /// It will be, once it is the request's turn.
        Held { held: Option<Held<S, B>> },
        /// It has been.
        Answering { gate: Arc<Gate>, headers: Headers, started: Time, #[pin] future: F },
    }
}

/// A request that others are asked about.
struct Asked<S, B> {
    answer: Asking,
    pending: Pending,
    gate: Arc<Gate>,
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
        ResponseFuture { state: refused(response) }
    }

    pub(super) fn asking(gate: Arc<Gate>, pending: Pending, inner: S, request: Request<B>, now: Time) -> Self {
        let answer = gate.tollgate.ask(pending.questions(), now);
        ResponseFuture { state: State::Asking { asked: Some(Asked { answer, pending, gate, inner, request }) } }
    }

    pub(super) fn held(place: Place, until: Time, inner: S, request: Request<B>, headers: Headers) -> Self {
        let timer = Timer::new(place.gate.tollgate.clock().clone(), until);
        ResponseFuture { state: State::Held { held: Some(Held { timer, place, inner, request, headers }) } }
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
                Projection::Asking { asked } => {
                    let answer = ready!(asked.as_mut().expect("polled until it is done").answer.as_mut().poll(context));
                    let asked = asked.take().expect("it was there");
                    state.set(asked.act(&answer));
                }
                Projection::Held { held } => {
                    ready!(held.as_mut().expect("polled until it is done").poll(context))?;
                    let Held { place, mut inner, request, headers, .. } = held.take().expect("it was there");
                    let gate = place.leave();
                    let started = gate.tollgate.clock().now();
                    state.set(State::Answering { future: inner.call(request), gate, headers, started });
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

impl<S, B> Asked<S, B> {
    /// Goes on as the answer says.
    fn act<F, R>(self, answer: &Answer) -> State<S, F, B, R> {
        let Asked { pending, gate, inner, request, .. } = self;
        let now = gate.tollgate.clock().now();
        let verdict = gate.finish(pending, &request, answer, now);
        match verdict.action() {
            Action::Allow | Action::Wait(_) => {
                let (headers, until) = (super::headers(&verdict, now), now + verdict.wait());
                let timer = Timer::new(gate.tollgate.clock().clone(), until);
                let place = Place::new(gate, verdict.into_booking());
                State::Held { held: Some(Held { timer, place, inner, request, headers }) }
            }
            Action::Refuse(status) => refused(refusal::refuse(&request, status, &verdict, now)),
            Action::Drop => refused(refusal::drop(&request)),
        }
    }
}

fn refused<S, F, B, R>(response: Response<ResponseBody<R>>) -> State<S, F, B, R> {
    State::Refused { response: Some(response) }
}

impl<S, B> Held<S, B>
where
    S: Service<Request<B>>,
{
    /// Until the request may go to the inner service.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(Pin::new(&mut self.timer).poll(context));
        self.inner.poll_ready(context)
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
            State::Asking { .. } => "Asking",
            State::Held { .. } => "Held",
            State::Answering { .. } => "Answering",
        };
        f.debug_tuple("ResponseFuture").field(&format_args!("{state}")).finish()
    }
}
