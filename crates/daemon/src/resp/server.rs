//! Connections: bytes in, commands decided in batches, one write for all that came together.

use super::command::{self, Session};
use super::decode::{Batch, Decoded, Malformed, Then, decode_batch, unquote};
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
use tokio::time::{Sleep, sleep, timeout};
use tollgate::Time;

/// How much a connection reads at once, and keeps while it is idle.
const READ: usize = 16 * 1024;

/// Replies beyond this are sent before more is decided: whoever does not read them is not served, either.
const MOST_UNSENT: usize = 64 * 1024;

/// How long a reply may take to be read.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// How long a command may take to arrive once it has begun.
const COMMAND_PATIENCE: Duration = Duration::from_secs(30);

/// Answers Redis clients.
#[derive(Debug)]
pub struct RespServer {
    state: Arc<State>,
    idle: Duration,
}

impl RespServer {
    /// Connections that say nothing for `idle` are closed.
    pub fn new(state: Arc<State>, idle: Duration) -> RespServer {
        RespServer { state, idle }
    }
}

impl FrontEnd for RespServer {
    async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(&self, stream: S, peer: Peer, stop: Stop) {
        // Whoever is gone needs no answer, and nobody else an error.
        let _ = self.connection(stream, peer, stop).await;
    }

    fn meter(&self) -> &Meter {
        self.state.meters().of(Protocol::Resp)
    }
}

impl RespServer {
    async fn connection<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
        peer: Peer,
        mut stop: Stop,
    ) -> io::Result<()> {
        let mut received = Vec::with_capacity(READ);
        let (mut session, mut replies) = (Session::new(peer.is_trusted), Replies::default());
        let mut patience = Patience::new(self.idle, self.state.now());
        let mut stopped = pin!(stop.come_to_an_end());
        loop {
            let was_waiting = !received.is_empty();
            // What has come is answered, however late it is, and also when the daemon is to end.
            let read = tokio::select! {
                biased;
                read = stream.read_buf(&mut received) => read?,
                () = &mut stopped => 0,
                () = patience.run_out(&self.state) => {
                    if was_waiting {
                        self.complain(&Fault::TooSlow, &mut replies);
                        received.clear();
                    }
                    0
                }
            };
            let now = self.state.now();
            let answered = self.answer(&mut received, &mut session, &mut replies, &mut stream, now).await;
            send(&mut stream, &mut replies).await?;
            let Answered { commands, is_broken } = answered?;
            if read == 0 || session.is_over || is_broken {
                return part(stream).await;
            }
            if commands > 0 || !was_waiting {
                patience.restart(if received.is_empty() { self.idle } else { COMMAND_PATIENCE }, now);
            }
        }
    }

    /// Answers all commands that have come as a whole, by one reading of the clock.
    async fn answer<S: AsyncWrite + Unpin>(
        &self,
        received: &mut Vec<u8>,
        session: &mut Session,
        replies: &mut Replies,
        stream: &mut S,
        now: Time,
    ) -> io::Result<Answered> {
        let (mut done, mut commands) = (0, 0);
        let is_broken = loop {
            let decided = self.decide(received.get(done..).unwrap_or_default(), session, replies, now);
            (done, commands) = (done + decided.taken, commands + decided.commands);
            match decided.then {
                _ if session.is_over => break false,
                Then::Another => {}
                Then::Incomplete => break false,
                Then::Broken(malformed) => {
                    self.complain(&Fault::Malformed(malformed.to_string().into()), replies);
                    break true;
                }
            }
            if replies.bytes().len() > MOST_UNSENT {
                send(stream, replies).await?;
            }
        };
        self.meter().asked(commands);
        received.drain(..done);
        if received.is_empty() {
            received.shrink_to(READ);
        }
        Ok(Answered { commands, is_broken })
    }

    /// Decides one batch, or as much of it as there is room for replies.
    fn decide(&self, bytes: &[u8], session: &mut Session, replies: &mut Replies, now: Time) -> Decided {
        let mut batch = Batch::new();
        let then = decode_batch(bytes, &mut batch);
        if batch.len() > 1 {
            batch.iter().for_each(|command| prefetch(command, &self.state));
        }
        let (mut taken, mut commands) = (0, 0);
        for command in &batch {
            if session.is_over || replies.bytes().len() > MOST_UNSENT {
                return Decided { taken, commands, then: Then::Another };
            }
            if let Err(malformed) = run(command, &self.state, session, replies, now) {
                return Decided { taken, commands, then: Then::Broken(malformed) };
            }
            (taken, commands) = (taken + command.taken(), commands + 1);
        }
        Decided { taken, commands, then }
    }

    fn complain(&self, fault: &Fault, replies: &mut Replies) {
        self.meter().fault(fault);
        replies.error(&format!("ERR {fault}"));
    }
}

/// What came of the commands that were there.
struct Answered {
    commands: u64,
    /// What follows cannot be understood.
    is_broken: bool,
}

/// What came of a batch: how many commands of how many bytes were decided, and what comes after them.
struct Decided {
    taken: usize,
    commands: u64,
    then: Then,
}

/// Runs out when nothing was heard for a while. There is one timer for a connection, which is only set when it has rung:
/// to set it at every read would cost more than to decide.
struct Patience {
    timer: Pin<Box<Sleep>>,
    allowed: Duration,
    since: Time,
}

impl Patience {
    fn new(allowed: Duration, now: Time) -> Patience {
        Patience { timer: Box::pin(sleep(allowed)), allowed, since: now }
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

/// Begins to fetch the bucket that a command is about.
fn prefetch(command: &Decoded<'_>, state: &State) {
    if let Decoded::Command(arguments, _) = command
        && let [name, key, _, ..] = arguments.as_slice()
        && (name.eq_ignore_ascii_case(b"CL.THROTTLE") || name.eq_ignore_ascii_case(b"THROTTLE"))
    {
        state.buckets().prefetch(*key);
    }
}

/// Answers one command.
fn run(
    command: &Decoded<'_>,
    state: &State,
    session: &mut Session,
    replies: &mut Replies,
    now: Time,
) -> Result<(), Malformed> {
    match command {
        Decoded::Command(arguments, _) => command::run(state, session, arguments, now, replies),
        Decoded::Typed(line, _) => {
            let words = unquote(line)?;
            let arguments = words.iter().map(Vec::as_slice).collect();
            command::run(state, session, &arguments, now, replies);
        }
        Decoded::Incomplete => {}
    }
    Ok(())
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, replies: &mut Replies) -> io::Result<()> {
    if replies.bytes().is_empty() {
        return Ok(());
    }
    let sent = write(stream, replies.bytes()).await;
    replies.clear();
    sent
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
