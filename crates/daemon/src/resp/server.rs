//! Connections of every kind: bytes in, commands decided in batches, one write for all that came together.

use super::conversation::{Answered, Conversation, Pause};
use super::quick::Loops;
use super::reply::Replies;
use crate::fault::Fault;
use crate::listen::{FrontEnd, Peer, Stop, part};
use crate::meters::{Meter, Protocol};
use crate::state::State;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep, timeout};
use tollgate::Time;

/// How much a connection reads at once, and keeps while it is idle.
const READ: usize = 16 * 1024;

/// How long a reply may take to be read.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// Answers Redis clients.
#[derive(Debug)]
pub struct RespServer {
    state: Arc<State>,
    idle: Duration,
    loops: Loops,
}

impl RespServer {
    /// Connections that say nothing for `idle` are closed.
    pub fn new(state: Arc<State>, idle: Duration) -> RespServer {
        RespServer { loops: Loops::start(&state, idle), state, idle }
    }
}

impl FrontEnd for RespServer {
    async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(&self, stream: S, peer: Peer, stop: Stop) {
        self.go_on(stream, Box::new(Conversation::new(peer, self.state.now())), stop).await;
    }

    /// Those without TLS are served by the loops as long as there is nothing to wait for but the next command.
    async fn serve_tcp(&self, stream: TcpStream, peer: Peer, mut stop: Stop) {
        let conversation = Box::new(Conversation::new(peer, self.state.now()));
        if let Some((stream, conversation)) = self.loops.serve(stream, conversation, &mut stop).await {
            // As long as it is served there it does not need the memory for this.
            Box::pin(self.go_on(stream, conversation, stop)).await;
        }
    }

    fn meter(&self) -> &Meter {
        self.state.meters().of(Protocol::Resp)
    }
}

impl RespServer {
    /// Goes on with a conversation to its end.
    async fn go_on<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, conversation: Box<Conversation>, stop: Stop) {
        // Whoever is gone needs no answer, and nobody else an error.
        let _ = self.connection(stream, conversation, stop).await;
    }

    async fn connection<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
        mut conversation: Box<Conversation>,
        mut stop: Stop,
    ) -> io::Result<()> {
        let mut patience = Patience::new(&conversation, self.idle, self.state.now());
        let mut stopped = pin!(stop.come_to_an_end());
        conversation.received.reserve(READ);
        // What it brings along is answered before anything is read.
        let (mut was_waiting, mut is_ending) = (true, false);
        loop {
            let now = self.state.now();
            let answered = self.answer(&mut conversation, &mut stream, now).await?;
            if is_ending || answered.pause != Pause::Incomplete {
                return part(stream).await;
            }
            if answered.commands > 0 || !was_waiting {
                conversation.waiting_since = now;
                patience.restart(conversation.patience(self.idle), now);
            }
            was_waiting = !conversation.received.is_empty();
            // What has come is answered, however late it is, and also when the daemon is to end.
            is_ending = tokio::select! {
                biased;
                read = stream.read_buf(&mut conversation.received) => read? == 0,
                () = &mut stopped => true,
                () = patience.run_out(&self.state) => {
                    if was_waiting {
                        self.complain(&Fault::TooSlow, &mut conversation.replies);
                        conversation.received.clear();
                    }
                    true
                }
            };
        }
    }

    /// Answers all commands that have come as a whole, by one reading of the clock.
    async fn answer<S: AsyncWrite + Unpin>(
        &self,
        conversation: &mut Conversation,
        stream: &mut S,
        now: Time,
    ) -> io::Result<Answered> {
        let mut received = std::mem::take(&mut conversation.received);
        let mut all = Answered { taken: 0, commands: 0, pause: Pause::Unsent };
        while matches!(all.pause, Pause::Unsent | Pause::Long) {
            let rest = received.get(all.taken..).unwrap_or_default();
            let answered = if all.pause == Pause::Long {
                // Whoever has many of those does not keep others waiting.
                yield_now().await;
                conversation.answer_long(rest, &self.state, now).await
            } else {
                conversation.answer(rest, &self.state, now)
            };
            self.meter().asked(answered.commands);
            if let Pause::Broken(malformed) = answered.pause {
                self.complain(&Fault::Malformed(malformed.to_string().into()), &mut conversation.replies);
            }
            send(stream, &mut conversation.replies).await?;
            let (taken, commands) = (all.taken + answered.taken, all.commands + answered.commands);
            all = Answered { taken, commands, ..answered };
        }
        received.drain(..all.taken);
        if received.is_empty() {
            received.shrink_to(READ);
        }
        conversation.received = received;
        Ok(all)
    }

    fn complain(&self, fault: &Fault, replies: &mut Replies) {
        self.meter().fault(fault);
        replies.error(&format!("ERR {fault}"));
    }
}

/// Runs out when nothing was heard for a while. There is one timer for a connection, which is only set when it has rung:
/// to set it at every read would cost more than to decide.
struct Patience {
    timer: Pin<Box<Sleep>>,
    allowed: Duration,
    since: Time,
}

impl Patience {
    /// With a conversation that may have been waited for already.
    fn new(conversation: &Conversation, idle: Duration, now: Time) -> Patience {
        let (allowed, since) = (conversation.patience(idle), conversation.waiting_since);
        Patience { timer: Box::pin(sleep(allowed.saturating_sub(now.since(since)))), allowed, since }
    }

    fn restart(&mut self, allowed: Duration, now: Time) {
        if allowed < self.allowed {
            self.timer.set(sleep(allowed));
        }
        (self.allowed, self.since) = (allowed, now);
    }

    async fn run_out(&mut self, state: &State) {
        loop {
            self.timer.as_mut().await;
            let waited = state.now().since(self.since);
            if waited >= self.allowed {
                return;
            }
            self.timer.set(sleep(self.allowed - waited));
        }
    }
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, replies: &mut Replies) -> io::Result<()> {
    if replies.bytes().is_empty() {
        return Ok(());
    }
    write(stream, replies.bytes()).await?;
    replies.sent(replies.bytes().len());
    Ok(())
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> io::Result<()> {
    let written = write_at_once(stream, bytes).await?;
    match bytes.get(written..) {
        None | Some([]) => Ok(()),
        Some(rest) => timeout(WRITE_PATIENCE, stream.write_all(rest)).await?,
    }
}

/// Writes what can be written without waiting, which is nearly always everything: so there is no timer to be set.
async fn write_at_once<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> io::Result<usize> {
    poll_fn(|context| match Pin::new(&mut *stream).poll_write(context, bytes) {
        Poll::Pending => Poll::Ready(Ok(0)),
        written => written,
    })
    .await
}
