//! Connections: bytes in, commands decided in batches, one write per batch.

use super::command::{self, Session};
use super::decode::{Decoded, Malformed, decode, unquote};
use super::reply::Replies;
use crate::state::State;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tollgate::Time;

/// Connections at the same time; others wait to be accepted.
const MOST_CONNECTIONS: usize = 10_000;

/// How much a connection reads at once, and keeps while it is idle.
const READ: usize = 16 * 1024;

/// Replies beyond this are sent before more is decided: whoever does not read them is not served, either.
const MOST_UNSENT: usize = 64 * 1024;

/// How long a reply may take to be read.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// How long the last reply has to arrive.
const PARTING: Duration = Duration::from_secs(1);

/// How long after a failure to accept the next attempt is made, as when there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves connections until `stop`, then lets the ones that are open finish what they have sent.
pub async fn serve(listener: TcpListener, state: Arc<State>, stop: impl Future<Output = ()>) {
    let (stopping, stopped) = watch::channel(false);
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let Some((stream, place)) = accepted else { continue };
        let (state, stopped) = (Arc::clone(&state), stopped.clone());
        tokio::spawn(async move {
            // Whoever is gone needs no answer, and nobody else an error.
            let _ = connection(stream, &state, stopped).await;
            drop(place);
        });
    }
    drop(listener);
    let _ = stopping.send(true);
    // All places are free when the last connection has ended.
    let _ = places.acquire_many(u32::try_from(MOST_CONNECTIONS).unwrap_or(u32::MAX)).await;
}

/// The next connection. A failure is nobody's fault here and no reason to stop.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(_) => {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn connection(mut stream: TcpStream, state: &State, mut stopped: watch::Receiver<bool>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::with_capacity(READ);
    let (mut session, mut replies) = (Session::default(), Replies::default());
    loop {
        let read = tokio::select! {
            read = stream.read_buf(&mut received) => read?,
            _ = stopped.wait_for(|stopped| *stopped) => 0,
        };
        let outcome = decide(&mut received, state, &mut session, &mut replies, &mut stream).await;
        send(&mut stream, &mut replies).await?;
        if read == 0 || session.is_over || outcome? == Flow::Broken {
            return part(stream).await;
        }
    }
}

/// Ends a connection so that the last reply arrives: closed with something unread, it would be reset, and the reply be
/// lost on the way. Whoever goes on sending is not waited for.
async fn part(mut stream: TcpStream) -> io::Result<()> {
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

/// Decides all commands that have come as a whole, by one reading of the clock.
async fn decide(
    received: &mut Vec<u8>,
    state: &State,
    session: &mut Session,
    replies: &mut Replies,
    stream: &mut TcpStream,
) -> io::Result<Flow> {
    let now = state.now();
    let mut done = 0;
    let flow = loop {
        match step(received.get(done..).unwrap_or_default(), state, session, replies, now) {
            Ok(Some(taken)) => done += taken,
            Ok(None) => break Flow::On,
            Err(malformed) => {
                replies.error(&format!("ERR {malformed}"));
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
    received.drain(..done);
    if received.is_empty() {
        received.shrink_to(READ);
    }
    Ok(flow)
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

async fn send(stream: &mut TcpStream, replies: &mut Replies) -> io::Result<()> {
    if replies.bytes().is_empty() {
        return Ok(());
    }
    let sent = timeout(WRITE_PATIENCE, stream.write_all(replies.bytes())).await;
    replies.clear();
    sent.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
