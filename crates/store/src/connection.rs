//! One connection, shared by all requests that are in flight: commands go out in the order in which they come, and
//! replies come back in the same.

use crate::resp::{Reply, take_reply};
use crate::stream::Stream;
use bytes::{Buf, BytesMut};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, WriteHalf};
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Commands that wait to be written; more are refused.
const MOST_QUEUED: usize = 1_024;

/// So many bytes are written at once. What is more waits in a backlog.
const MOST_UNWRITTEN: usize = 64 * 1_024;

/// There is always room to read so many bytes at once.
const READ_AT_ONCE: usize = 4 * 1_024;

/// Where so many are answered at once, many ask at the same time.
const MANY: usize = 4;

/// So many questions in a row without an answer, or none in time, mean that the connection is of no use for now.
const MOST_FAILURES: u32 = 3;

/// How often it is looked whose time is up.
const TICK: Duration = Duration::from_millis(1);

/// A connection that works, as far as is known. It is closed when the last one who has it is gone.
#[derive(Debug)]
pub(crate) struct Connection {
    commands: mpsc::Sender<Exchange>,
    /// Questions in a row that got no answer, or none in time.
    failures: AtomicU32,
    /// Whether nobody is to ask for now.
    rests: AtomicBool,
    /// What it is tried by.
    probe: Commands,
    /// Where it lives. Whoever asks may live somewhere else, and not for as long.
    home: Handle,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    is_closed: AtomicBool,
    /// Told when it is closed.
    lost: Arc<Notify>,
    /// Told when it is of no use any more.
    given_up: Notify,
}

/// Commands and who waits for the reply.
#[derive(Debug)]
struct Exchange {
    commands: Commands,
    deadline: Instant,
    reply: oneshot::Sender<Result<Reply, NoAnswer>>,
}

/// Why there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// It did not come in time.
    Late,
    /// It never will: the connection is gone.
    Never,
    /// Nothing was sent, since too much waits already.
    Full,
}

/// What is sent in one piece, so that nothing of anybody else comes between.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    pub(crate) bytes: Vec<u8>,
    /// How many replies come before the one that is waited for.
    pub(crate) unwanted: usize,
}

/// Somebody who waits for a reply after so many others, until it comes or takes too long.
#[derive(Debug)]
struct Awaited {
    unwanted: usize,
    deadline: Instant,
    reply: Option<oneshot::Sender<Result<Reply, NoAnswer>>>,
}

impl Connection {
    /// Goes on with a stream that somebody has introduced us on; tells `lost` when it is over. Whether it is of use is tried by
    /// `probe`.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn new(stream: Stream, probe: Commands, lost: Arc<Notify>) -> Connection {
        let (commands, received) = mpsc::channel(MOST_QUEUED);
        let state = Arc::new(State { is_closed: AtomicBool::new(false), lost, given_up: Notify::new() });
        tokio::spawn(run(stream, received, Closing(Arc::clone(&state))));
        let (failures, rests) = (AtomicU32::new(0), AtomicBool::new(false));
        Connection { commands, failures, rests, probe, home: Handle::current(), state }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.is_closed.load(Ordering::Acquire)
    }

    /// Whether it is worth asking.
    pub(crate) fn is_ready(&self) -> bool {
        !self.is_closed() && !self.rests.load(Ordering::Acquire)
    }

    /// Sends commands, and waits for the reply to the last until the deadline. It may be given up a tick before that, but not in
    /// the first two thirds of the time.
    pub(crate) async fn ask(&self, commands: Commands, deadline: Instant) -> Result<Reply, NoAnswer> {
        let (reply, answered) = oneshot::channel();
        // When it is looked next it may be too late.
        let deadline = deadline - TICK.min(deadline.saturating_duration_since(Instant::now()) / 3);
        self.commands.try_send(Exchange { commands, deadline, reply }).map_err(|unsent| match unsent {
            TrySendError::Full(_) => NoAnswer::Full,
            TrySendError::Closed(_) => NoAnswer::Never,
        })?;
        answered.await.unwrap_or(Err(NoAnswer::Never))
    }

    pub(crate) fn succeeded(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Gives it up after the third answer in a row that is none.
    pub(crate) fn failed(&self) {
        if self.fails() {
            self.give_up();
        }
    }

    /// Whether that was the third time in a row.
    pub(crate) fn fails(&self) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_FAILURES
    }

    /// Closes it. Everybody who waits learns at once that there will be no reply.
    pub(crate) fn give_up(&self) {
        self.rest();
        self.state.given_up.notify_one();
    }

    /// Says that nobody is to ask for now, and whether that is news.
    pub(crate) fn rest(&self) -> bool {
        !self.rests.swap(true, Ordering::AcqRel)
    }

    /// Whoever sees this sees what was found out about the server before.
    pub(crate) fn go_on(&self) {
        self.rests.store(false, Ordering::Release);
    }

    pub(crate) fn probe(&self) -> Commands {
        self.probe.clone()
    }

    pub(crate) fn home(&self) -> &Handle {
        &self.home
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

/// Goes on until the connection ends, is given up, or nobody can ask any more.
async fn run(stream: Stream, mut commands: mpsc::Receiver<Exchange>, closing: Closing) {
    move_bytes(stream, &mut commands, &closing.0.given_up).await;
    drop(closing);
    // Somebody may be about to ask. To drop the receiver would leave what comes in that moment where nobody ever looks at it, and
    // who has sent it would wait for ever.
    commands.close();
    while commands.recv().await.is_some() {}
}

async fn move_bytes(stream: Stream, commands: &mut mpsc::Receiver<Exchange>, given_up: &Notify) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut given_up = pin!(given_up.notified());
    let (mut talk, mut unread) = (Talk::default(), BytesMut::new());
    // What was written may still be on this side, where it is encrypted.
    let mut is_unsent = false;
    // One timer for all who wait: a timer for each would cost as much as to read its reply.
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        unread.reserve(READ_AT_ONCE);
        // Each of these can be left off at any time without losing anything. What has come is read before anybody is told that
        // it did not.
        tokio::select! {
            biased;
            read = reader.read_buf(&mut unread) => match read {
                Ok(count) if count > 0 => match talk.answer(&mut unread) {
                    Ok(()) => {}
                    Err(Unasked) => return,
                },
                _ => return,
            },
            _ = ticks.tick(), if talk.is_waited_for() => talk.give_up(Instant::now()),
            sent = send(&mut writer, &talk.unwritten), if is_unsent || !talk.unwritten.is_empty() => match sent {
                Ok(count) => {
                    is_unsent = count > 0;
                    talk.unwritten.advance(count);
                    talk.write_on();
                }
                Err(_) => return,
            },
            command = commands.recv() => match command {
                Some(exchange) => {
                    // Those who have just been answered may be about to ask, too. Then all of it is written at once.
                    if talk.answered >= MANY {
                        step_back().await;
                    }
                    talk.add(exchange, commands);
                }
                None => return,
            },
            () = &mut given_up => return,
        }
    }
}

/// Goes to the end of the queue once. `yield_now` of tokio would wait until there is none, where nobody can help out.
async fn step_back() {
    let mut is_back = false;
    poll_fn(|context| {
        if is_back {
            return Poll::Ready(());
        }
        is_back = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// What is said on a connection.
#[derive(Debug, Default)]
struct Talk {
    /// What there is no room for yet among what is to be written.
    backlog: VecDeque<Exchange>,
    unwritten: BytesMut,
    waiting: VecDeque<Awaited>,
    /// How many were answered when something was last read.
    answered: usize,
}

impl Talk {
    fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty() || !self.backlog.is_empty()
    }

    /// Takes a command and those that have come meanwhile, to be written together.
    fn add(&mut self, first: Exchange, commands: &mut mpsc::Receiver<Exchange>) {
        let mut next = Some(first);
        while let Some(exchange) = next {
            if self.backlog.len() < MOST_QUEUED {
                self.backlog.push_back(exchange);
            } else {
                let _ = exchange.reply.send(Err(NoAnswer::Full));
            }
            next = commands.try_recv().ok();
        }
        self.write_on();
    }

    /// Writes as much as there is room for.
    fn write_on(&mut self) {
        while self.unwritten.len() < MOST_UNWRITTEN
            && let Some(Exchange { commands: Commands { bytes, unwanted }, deadline, reply }) = self.backlog.pop_front()
        {
            self.unwritten.extend_from_slice(&bytes);
            self.waiting.push_back(Awaited { unwanted, deadline, reply: Some(reply) });
        }
    }

    /// Tells those whose time is up. Replies to what was written may still come, and are then nobody's.
    fn give_up(&mut self, now: Instant) {
        let is_over = |deadline: Instant| deadline <= now;
        for awaited in self.waiting.iter_mut().filter(|awaited| is_over(awaited.deadline)) {
            if let Some(reply) = awaited.reply.take() {
                let _ = reply.send(Err(NoAnswer::Late));
            }
        }
        let backlog = std::mem::take(&mut self.backlog).into_iter();
        let (over, rest): (VecDeque<_>, VecDeque<_>) = backlog.partition(|exchange| is_over(exchange.deadline));
        self.backlog = rest;
        for exchange in over {
            let _ = exchange.reply.send(Err(NoAnswer::Late));
        }
    }

    fn answer(&mut self, unread: &mut BytesMut) -> Result<(), Unasked> {
        self.answered = 0;
        while let Some(reply) = take_reply(unread).map_err(|_| Unasked)? {
            self.answered += 1;
            let first = self.waiting.front_mut().ok_or(Unasked)?;
            if first.unwanted > 0 {
                first.unwanted -= 1;
            } else if let Some(waiting) = self.waiting.pop_front().and_then(|first| first.reply) {
                // Who has stopped waiting does not want it any more.
                let _ = waiting.send(Ok(reply));
            }
        }
        Ok(())
    }
}

/// The other side says what nobody asked.
struct Unasked;

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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::yield_now;
    use tokio::time::{sleep, timeout};

    /// Asks until there is no use in it, and waits for what becomes of all of that.
    async fn ask_until_lost(connection: Arc<Connection>) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let ask = |connection: Arc<Connection>| async move {
            connection.ask(Commands { bytes: b"PING\r\n".to_vec(), unwanted: 0 }, deadline).await
        };
        let mut asked = Vec::new();
        while !connection.is_closed() {
            let mut asking = Box::pin(ask(Arc::clone(&connection)));
            if poll_fn(|context| Poll::Ready(asking.as_mut().poll(context).is_pending())).await {
                asked.push(asking);
            }
            yield_now().await;
        }
        for asking in asked {
            assert!(matches!(asking.await, Err(NoAnswer::Never | NoAnswer::Full)));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn whoever_asks_in_the_moment_in_which_it_is_lost_learns_of_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for round in 0..1_000 {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let _silent = listener.accept().await.unwrap();
            let probe = Commands { bytes: Vec::new(), unwanted: 0 };
            let connection = Arc::new(Connection::new(Box::new(stream), probe, Arc::default()));
            let asking = [(); 2].map(|()| tokio::spawn(ask_until_lost(Arc::clone(&connection))));
            sleep(Duration::from_micros(round % 50)).await;
            connection.give_up();
            for asked in asking {
                let learnt = timeout(Duration::from_secs(10), asked).await;
                assert!(matches!(learnt, Ok(Ok(()))), "somebody waits for ever in round {round}: {learnt:?}");
            }
        }
    }
}
