//! One connection, shared by all requests that are in flight: commands go out in the order in which they come, and
//! replies come back in the same.

use crate::resp::{Reply, take_reply};
use crate::stream::Stream;
use bytes::{Buf, BytesMut};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt, WriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

/// Commands that wait to be written; more are refused.
const MOST_QUEUED: usize = 1_024;

/// So many bytes are written at once. While more wait, no more commands are taken.
const MOST_UNWRITTEN: usize = 64 * 1_024;

/// So many questions in a row that got no answer mean that the connection is of no use.
const MOST_FAILURES: u32 = 3;

/// A connection that works, as far as is known. Everybody who waits for a reply learns at once when it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    commands: mpsc::Sender<Exchange>,
    /// Questions in a row that got no answer.
    failures: AtomicU32,
    /// Questions whose answer is waited for.
    waiting: AtomicUsize,
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    is_closed: AtomicBool,
    /// Told when it is closed.
    lost: Arc<Notify>,
}

/// Commands and who waits for the reply.
#[derive(Debug)]
struct Exchange {
    commands: Commands,
    reply: oneshot::Sender<Reply>,
}

/// What is sent in one piece, so that nothing of anybody else comes between.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) bytes: Vec<u8>,
    /// How many replies come before the one that is waited for.
    pub(crate) unwanted: usize,
}

/// Somebody who waits for a reply after so many others.
#[derive(Debug)]
struct Awaited {
    unwanted: usize,
    reply: oneshot::Sender<Reply>,
}

impl Connection {
    /// Goes on with a stream that somebody has introduced us on; tells `lost` when it is over.
    pub(crate) fn new(stream: Stream, lost: Arc<Notify>) -> Connection {
        let (commands, received) = mpsc::channel(MOST_QUEUED);
        let state = Arc::new(State { is_closed: AtomicBool::new(false), lost });
        let task = tokio::spawn(run(stream, received, Closing(Arc::clone(&state))));
        Connection { commands, failures: AtomicU32::new(0), waiting: AtomicUsize::new(0), state, task }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.is_closed.load(Ordering::Acquire)
    }

    /// How many wait for a reply.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Sends commands, and waits for the reply to the last. `None` if there never will be one.
    pub(crate) async fn ask(&self, commands: Commands) -> Option<Reply> {
        let _waiting = Waiting::new(&self.waiting);
        let (reply, answered) = oneshot::channel();
        self.commands.try_send(Exchange { commands, reply }).ok()?;
        answered.await.ok()
    }

    pub(crate) fn succeeded(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Gives it up after the third failure in a row.
    pub(crate) fn failed(&self) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_FAILURES {
            self.task.abort();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Somebody who waits, also if it gives up.
struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    fn new(waiting: &AtomicUsize) -> Waiting<'_> {
        waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Says that the connection is closed, however it ends.
struct Closing(Arc<State>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Release);
        self.0.lost.notify_one();
    }
}

/// Moves bytes until the connection ends or nobody can ask any more.
async fn run(stream: Stream, mut commands: mpsc::Receiver<Exchange>, _closing: Closing) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (mut unwritten, mut unread) = (BytesMut::new(), BytesMut::new());
    // What was written may still be on this side, where it is encrypted.
    let mut is_unsent = false;
    let mut waiting = VecDeque::new();
    loop {
        // Each of these can be left off at any time without losing anything.
        tokio::select! {
            command = commands.recv(), if unwritten.len() < MOST_UNWRITTEN => match command {
                Some(exchange) => queue(exchange, &mut unwritten, &mut waiting, &mut commands),
                None => return,
            },
            sent = send(&mut writer, &unwritten), if is_unsent || !unwritten.is_empty() => match sent {
                Ok(count) => {
                    is_unsent = count > 0;
                    unwritten.advance(count);
                }
                Err(_) => return,
            },
            read = reader.read_buf(&mut unread) => match read {
                Ok(count) if count > 0 => match answer(&mut unread, &mut waiting) {
                    Ok(()) => {}
                    Err(Unasked) => return,
                },
                _ => return,
            },
        }
    }
}

/// Writes some bytes and says how many; if there are none, sends off what was written.
async fn send(writer: &mut WriteHalf<Stream>, bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        writer.flush().await?;
        return Ok(0);
    }
    match writer.write(bytes).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        count => Ok(count),
    }
}

/// Takes a command and those that have come meanwhile, to be written together.
fn queue(
    first: Exchange,
    unwritten: &mut BytesMut,
    waiting: &mut VecDeque<Awaited>,
    commands: &mut mpsc::Receiver<Exchange>,
) {
    let mut next = Some(first);
    while let Some(Exchange { commands: Commands { bytes, unwanted }, reply }) = next {
        unwritten.extend_from_slice(&bytes);
        waiting.push_back(Awaited { unwanted, reply });
        next = if unwritten.len() < MOST_UNWRITTEN { commands.try_recv().ok() } else { None };
    }
}

/// The other side says what nobody asked.
struct Unasked;

fn answer(unread: &mut BytesMut, waiting: &mut VecDeque<Awaited>) -> Result<(), Unasked> {
    while let Some(reply) = take_reply(unread).map_err(|_| Unasked)? {
        let first = waiting.front_mut().ok_or(Unasked)?;
        if first.unwanted > 0 {
            first.unwanted -= 1;
        } else if let Some(first) = waiting.pop_front() {
            // Who has stopped waiting does not want it any more.
            let _ = first.reply.send(reply);
        }
    }
    Ok(())
}
