//! Calls that last: those with many messages, and those whose message is still to come. Each has a task of its own.

use super::call::{self, Body, Interrupted, Replies};
use super::method::{Streaming, Unary};
use super::refusal::Refusal;
use super::wire::Writer;
use super::{health, native, reflection};
use crate::fault::Fault;
use crate::listen::Stop;
use crate::meters::Protocol;
use crate::otlp::Trace;
use crate::state::State;
use bytes::Bytes;
use h2::server::SendResponse;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long the only message of a call may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// A call of a method of any kind that is not answered yet.
#[derive(Debug)]
pub(super) struct Lasting {
    pub(super) state: Arc<State>,
    pub(super) body: Body,
    pub(super) respond: SendResponse<Bytes>,
    pub(super) stop: Stop,
}

impl Lasting {
    /// Answers a call once its message has come.
    pub(super) async fn unary(mut self, unary: Unary) {
        match whole(&mut self.body, unary.longest()).await {
            Ok(message) => self.answer(unary, &message, None).await,
            Err(interrupted) => self.conclude(Err(interrupted)),
        }
    }

    /// Answers a call whose message has come, however long that takes.
    pub(super) async fn answer(self, unary: Unary, message: &[u8], trace: Option<Trace>) {
        let (mut reply, asked) = (Writer::default(), (Protocol::Grpc, unary.name()));
        let answer = unary.answer(self.state.long_turn(self.state.now()), message, &mut reply);
        let answered = self.state.traced(trace, asked, answer, Refusal::name).await;
        let answered = answered.map(|questions| (reply.take(), questions));
        self.conclude(answered.map_err(Interrupted::Refused));
    }

    fn conclude(self, answered: Result<(Bytes, u64), Interrupted>) {
        match answered {
            Ok((message, questions)) => {
                self.state.meters().of(Protocol::Grpc).asked(questions);
                call::answer(self.respond, message);
            }
            Err(Interrupted::Refused(refusal)) => {
                count(&self.state, &refusal);
                call::refuse(self.respond, &refusal);
            }
            Err(Interrupted::Gone) => {}
        }
    }

    /// Answers a call until its end.
    pub(super) async fn streaming(self, method: Streaming) {
        let Lasting { state, mut body, respond, stop } = self;
        let Ok(mut replies) = Replies::begin(respond) else { return };
        let done = match method {
            Streaming::WatchHealth => watch(&state, &mut body, &mut replies, stop).await,
            Streaming::CheckStream | Streaming::Reflect => {
                converse(&state, method, &mut body, &mut replies, stop).await
            }
        };
        match done {
            Ok(()) => replies.finish(),
            Err(Interrupted::Refused(refusal)) => {
                count(&state, &refusal);
                replies.refuse(&refusal);
            }
            Err(Interrupted::Gone) => {}
        }
    }
}

/// Counts a call that was answered by a refusal.
pub(super) fn count(state: &State, refusal: &Refusal) {
    let meter = state.meters().of(Protocol::Grpc);
    meter.asked(1);
    if let Refusal::Fault(fault) = refusal {
        meter.fault(fault);
    }
}

/// The only message of a call.
async fn whole(body: &mut Body, longest: usize) -> Result<Bytes, Interrupted> {
    let whole = timeout(BODY_PATIENCE, poll_fn(|cx| body.poll_whole(cx, longest))).await;
    whole.unwrap_or_else(|_| Err(Fault::TooSlow.into()))
}

async fn watch(state: &State, body: &mut Body, replies: &mut Replies, stop: Stop) -> Result<(), Interrupted> {
    let message = whole(body, Streaming::WatchHealth.longest()).await?;
    state.meters().of(Protocol::Grpc).asked(1);
    health::watch(state, &message, replies, stop).await
}

/// Answers each message by one, in order, all that are there at once.
async fn converse(
    state: &State,
    method: Streaming,
    body: &mut Body,
    replies: &mut Replies,
    mut stop: Stop,
) -> Result<(), Interrupted> {
    let mut reply = Writer::default();
    loop {
        let answered = answer_all(state, method, body, &mut reply).await;
        // What was answered before something went wrong has been paid for.
        if !reply.is_empty() {
            replies.send(reply.take()).await?;
        }
        answered?;
        if body.is_over {
            let is_cut = body.has_rest();
            return if is_cut { Err(Fault::Malformed("the last message is cut short".into()).into()) } else { Ok(()) };
        }
        tokio::select! {
            more = poll_fn(|cx| body.poll_more(cx)) => more?,
            () = stop.come() => return Err(Fault::Stopping.into()),
        }
    }
}

async fn answer_all(state: &State, method: Streaming, body: &mut Body, reply: &mut Writer) -> Result<(), Interrupted> {
    let (turn, mut questions) = (state.long_turn(state.now()), 0);
    let done = loop {
        let message = match body.message(method.longest()) {
            Ok(Some(message)) => message,
            Ok(None) => break Ok(()),
            Err(fault) => break Err(fault.into()),
        };
        let answered = match method {
            Streaming::Reflect => reflection::answer(&message, reply),
            Streaming::CheckStream | Streaming::WatchHealth => {
                native::check(turn, &message, reply).await.map_err(Into::into)
            }
        };
        if let Err(refusal) = answered {
            break Err(refusal.into());
        }
        questions += 1;
    };
    state.meters().of(Protocol::Grpc).asked(questions);
    done
}
