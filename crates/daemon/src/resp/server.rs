//! Connections: bytes in, commands decided in batches, one write per batch.

use super::command::{self, Session};
use super::decode::{Decoded, Malformed, decode, unquote};
use super::reply::Replies;
use crate::fault::Fault;
use crate::listen::{FrontEnd, Peer, Stop};
use crate::meters::{Meter, Protocol};
use crate::state::State;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tollgate::Time;

/// How much a connection reads at once, and keeps while it is idle.
const READ: usize = 16 * 1024;

/// Replies beyond this are sent before more is decided: whoever does not read them is not served, either.
const MOST_UNSENT: usize = 64 * 1024;

/// How long a reply may take to be read.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// How long a command may take to arrive once it has begun.
const COMMAND_PATIENCE: Duration = Duration::from_secs(30);

/// How long the last reply has to arrive.
const PARTING: Duration = Duration::from_secs(1);

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
        loop {
            let patience = if received.is_empty() { self.idle } else { COMMAND_PATIENCE };
            let read = tokio::select! {
                read = stream.read_buf(&mut received) => read?,
                () = stop.come() => 0,
                () = tokio::time::sleep(patience) => {
                    if !received.is_empty() {
                        self.meter().fault(&Fault::TooSlow);
                        replies.error(&format!("ERR {}", Fault::TooSlow));
                        received.clear();
                    }
                    0
                }
            };
            let outcome = self.decide(&mut received, &mut session, &mut replies, &mut stream).await;
            send(&mut stream, &mut replies).await?;
            if read == 0 || session.is_over || outcome? == Flow::Broken {
                return part(stream).await;
            }
        }
    }

    /// Decides all commands that have come as a whole, by one reading of the clock.
    async fn decide<S: AsyncWrite + Unpin>(
        &self,
        received: &mut Vec<u8>,
        session: &mut Session,
        replies: &mut Replies,
        stream: &mut S,
    ) -> io::Result<Flow> {
        let now = self.state.now();
        let (mut done, mut commands) = (0, 0);
        let flow = loop {
            match step(received.get(done..).unwrap_or_default(), &self.state, session, replies, now) {
                Ok(Some(taken)) => (done, commands) = (done + taken, commands + 1),
                Ok(None) => break Flow::On,
                Err(malformed) => {
                    let fault = Fault::Malformed(malformed.to_string().into());
                    self.meter().fault(&fault);
                    replies.error(&format!("ERR {fault}"));
                    break Flow::Broken;
                }
            }
            if session.is_over {
                break Flow::On;
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
        Ok(flow)
    }
}

/// Ends a connection so that the last reply arrives: closed with something unread, it would be reset, and the reply be
/// lost on the way. Whoever goes on sending is not waited for.
async fn part<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> io::Result<()> {
    stream.shutdown().await?;
    let mut unread = [0; 4096];
    let drain = async { while stream.read(&mut unread).await.is_ok_and(|read| read > 0) {} };
    let _ = timeout(PARTING, drain).await;
    Ok(())
}

#[derive(PartialEq, Eq)]
enum Flow {
    On,
    /// What follows cannot be understood.
    Broken,
}

/// Decides one command, and says how many bytes it took.
fn step(
    bytes: &[u8],
    state: &State,
    session: &mut Session,
    replies: &mut Replies,
    now: Time,
) -> Result<Option<usize>, Malformed> {
    match decode(bytes)? {
        Decoded::Command(arguments, taken) => {
            command::run(state, session, &arguments, now, replies);
            Ok(Some(taken))
        }
        Decoded::Typed(line, taken) => {
            let words = unquote(line)?;
            let arguments = words.iter().map(Vec::as_slice).collect();
            command::run(state, session, &arguments, now, replies);
            Ok(Some(taken))
        }
        Decoded::Incomplete => Ok(None),
    }
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, replies: &mut Replies) -> io::Result<()> {
    if replies.bytes().is_empty() {
        return Ok(());
    }
    let sent = timeout(WRITE_PATIENCE, stream.write_all(replies.bytes())).await;
    replies.clear();
    sent.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
