//! Connections: calls are answered as they come, all that have come at once by one reading of the clock and one write.

use super::call::{self, Body, Interrupted};
use super::cork::{Cork, Corked};
use super::method::{LONGEST_BATCH, Method, Rejection, Unary};
use super::refusal::Refusal;
use super::streaming::{Lasting, count};
use super::wire::{PREFIX, Writer};
use crate::listen::{FrontEnd, Peer, Stop};
use crate::meters::{Meter, Protocol};
use crate::state::{State, at_once};
use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Ping, PingPong, RecvStream};
use http::{HeaderValue, Request};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep, timeout};
use tollgate::Time;

/// How long a client may take to say that it speaks HTTP/2.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How long calls have to finish once a connection is to end.
const PARTING: Duration = Duration::from_secs(10);

/// Calls of one connection at the same time.
const MOST_CALLS: u32 = 256;

/// The names and values of a call's headers together, as HTTP/2 counts them.
const LONGEST_HEADERS: u32 = 16 * 1024;

/// What clients may send of one call, and of all calls that are not answered yet: all that a connection can make the
/// daemon keep.
const CALL_WINDOW: u32 = (LONGEST_BATCH + PREFIX) as u32;
const CONNECTION_WINDOW: u32 = 2 * CALL_WINDOW;

/// Calls that a client has taken back before they were looked at; more end the connection.
const MOST_TAKEN_BACK: usize = 32;

/// Calls that went wrong by the client's fault; more end the connection.
const MOST_WRONG: usize = 256;

/// Answers Envoy, and everybody else who speaks gRPC.
#[derive(Debug)]
pub struct GrpcServer {
    state: Arc<State>,
    idle: Duration,
}

impl GrpcServer {
    /// Connections without a call for `idle` are closed.
    pub fn new(state: Arc<State>, idle: Duration) -> GrpcServer {
        GrpcServer { state, idle }
    }
}

impl FrontEnd for GrpcServer {
    async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(&self, stream: S, peer: Peer, stop: Stop) {
        let cork = Cork::default();
        let handshake = builder().handshake(Corked::new(stream, cork.clone()));
        // Whoever does not speak HTTP/2 would not understand an answer, either.
        let Ok(Ok(mut connection)) = timeout(HANDSHAKE, handshake).await else { return };
        let ping = connection.ping_pong();
        let served = Served {
            state: Arc::clone(&self.state),
            peer,
            connection,
            cork,
            reply: Writer::default(),
            calls: 0,
            lasting: Arc::new(()),
            stop: stop.clone(),
        };
        served.run(ping, self.idle, stop).await;
    }

    fn meter(&self) -> &Meter {
        self.state.meters().of(Protocol::Grpc)
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(MOST_CALLS)
        .max_header_list_size(LONGEST_HEADERS)
        .initial_window_size(CALL_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_pending_accept_reset_streams(MOST_TAKEN_BACK)
        .max_local_error_reset_streams(Some(MOST_WRONG));
    builder
}

/// A connection that is being served.
struct Served<S> {
    state: Arc<State>,
    peer: Peer,
    connection: Connection<Corked<S>, Bytes>,
    cork: Cork,
    reply: Writer,
    /// How many there were.
    calls: u64,
    /// Held once more by each call that has a task of its own.
    lasting: Arc<()>,
    /// For those tasks.
    stop: Stop,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Served<S> {
    async fn run(mut self, mut ping: Option<PingPong>, idle: Duration, mut stop: Stop) {
        let timer = sleep(idle);
        tokio::pin!(timer);
        let mut seen = self.calls;
        let (mut is_parting, mut is_pinged) = (false, false);
        loop {
            let parts = tokio::select! {
                biased;
                () = poll_fn(|cx| self.poll_turn(cx)) => return,
                () = poll_fn(|cx| poll_pong(ping.as_mut(), cx)), if is_pinged => {
                    is_pinged = false;
                    false
                }
                () = stop.come(), if !is_parting => true,
                () = &mut timer => {
                    if is_parting || is_pinged {
                        return;
                    }
                    let is_idle = std::mem::replace(&mut seen, self.calls) == self.calls;
                    let is_lasting = Arc::strong_count(&self.lasting) > 1;
                    // Somebody who only listens may have left without a word.
                    is_pinged = is_idle && is_lasting && send_ping(ping.as_mut());
                    timer.as_mut().reset(Instant::now() + idle);
                    is_idle && !is_lasting
                }
            };
            if parts {
                is_parting = true;
                self.connection.graceful_shutdown();
                timer.as_mut().reset(Instant::now() + PARTING);
            }
        }
    }

    /// Answers what has come. Ready when the connection is over.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let batch = self.poll_batch(cx);
            if batch.is_ready() || !self.cork.is_held() {
                return batch;
            }
            // Polled once more, it writes what was held back.
            self.cork.release();
        }
    }

    /// Answers what has come, by one reading of the clock, and holds the answers back.
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (now, mut questions) = (self.state.now(), 0);
        let batch = loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.cork.hold();
                    questions += self.receive(request, respond, now, cx);
                }
                Poll::Ready(Some(Err(_)) | None) => break Poll::Ready(()),
                Poll::Pending => break Poll::Pending,
            }
        };
        // Nobody hears an answer before it is counted.
        if questions > 0 {
            self.state.meters().of(Protocol::Grpc).asked(questions);
        }
        batch
    }

    /// Answers a call at once if it can be, and says how many questions it was.
    fn receive(
        &mut self,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        now: Time,
        cx: &mut Context<'_>,
    ) -> u64 {
        self.calls += 1;
        let (head, body) = request.into_parts();
        let body = Body::new(body);
        match Method::of_call(&head, self.peer.is_trusted, &self.state) {
            Ok(Method::Unary(unary)) => {
                let parent = head.headers.get("traceparent");
                return self.answer((unary, parent), body, respond, now, cx);
            }
            Ok(Method::Streaming(method)) => self.spawn(body, respond, |lasting| lasting.streaming(method)),
            Err(Rejection::Http(status)) => call::reject(respond, status),
            Err(Rejection::Refused(refusal)) => {
                count(&self.state, &refusal);
                call::refuse(respond, &refusal);
            }
        }
        0
    }

    fn answer(
        &mut self,
        (unary, parent): (Unary, Option<&HeaderValue>),
        mut body: Body,
        respond: SendResponse<Bytes>,
        now: Time,
        cx: &mut Context<'_>,
    ) -> u64 {
        let answered = match body.poll_whole(cx, unary.longest()) {
            Poll::Pending => {
                self.spawn(body, respond, |lasting| lasting.unary(unary));
                return 0;
            }
            Poll::Ready(Ok(message)) => {
                let trace = self.state.trace(parent.map(HeaderValue::as_bytes));
                let answer = unary.answer(self.state.short_turn(now), &message, &mut self.reply);
                let asked = (Protocol::Grpc, unary.name());
                let Some(answered) = at_once(self.state.traced(trace, asked, answer, Refusal::name)) else {
                    self.spawn(body, respond, |lasting| async move { lasting.answer(unary, &message, trace).await });
                    return 0;
                };
                answered.map_err(Interrupted::Refused)
            }
            Poll::Ready(Err(interrupted)) => Err(interrupted),
        };
        match answered {
            Ok(questions) => {
                call::answer(respond, self.reply.take());
                return questions;
            }
            Err(Interrupted::Refused(refusal)) => {
                count(&self.state, &refusal);
                call::refuse(respond, &refusal);
            }
            Err(Interrupted::Gone) => {}
        }
        0
    }

    /// Gives a call a task of its own.
    fn spawn<F>(&self, body: Body, respond: SendResponse<Bytes>, run: impl FnOnce(Lasting) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let lasting = Arc::clone(&self.lasting);
        let call = run(Lasting { state: Arc::clone(&self.state), body, respond, stop: self.stop.clone() });
        tokio::spawn(async move {
            call.await;
            drop(lasting);
        });
    }
}

fn send_ping(ping: Option<&mut PingPong>) -> bool {
    ping.is_some_and(|ping| ping.send_ping(Ping::opaque()).is_ok())
}

/// Ready when the client has shown that it is still there. Without a ping there is nothing to wait for.
fn poll_pong(ping: Option<&mut PingPong>, cx: &mut Context<'_>) -> Poll<()> {
    ping.map_or(Poll::Pending, |ping| ping.poll_pong(cx).map(|_| ()))
}
