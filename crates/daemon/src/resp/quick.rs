//! Plain TCP in a hurry: a loop on each core that reads, decides and writes, and does nothing else.
//!
//! With one command at a time most of what a command costs is to be told of it. A loop is told of all connections that
//! have something to say at once, answers them in turn, and sends the replies when it has heard everybody: so those who
//! wait for them do not take its core away while there is more to decide.
//!
//! Whatever takes waiting is not done here: replies that are not read, commands that do not end, goodbyes, the end of the
//! daemon. Such a conversation is handed back to the task that brought it, with its socket, all that was not decided and
//! all that was not sent, and goes on there for good. So nothing here could be done differently from there.

use super::conversation::{Conversation, Pause};
use crate::listen::Stop;
use crate::meters::Protocol;
use crate::state::State;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::time::Duration;
use tokio::sync::oneshot;
use tollgate::Time;

/// How much of one connection is read before others have their turn.
const READ: usize = 16 * 1024;

/// How many connections are heard at once: the first of them waits for its replies until the last is decided.
const EVENTS: usize = 64;

/// How often those are looked for that have said nothing for too long.
const SWEEP: Duration = Duration::from_secs(1);

/// The token of messages from tasks; those of connections count from zero.
const MESSAGES: Token = Token(usize::MAX);

/// The loops, as tasks see them. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Loops(Vec<Desk>);

impl Loops {
    /// Starts one on each core.
    pub(super) fn start(state: &Arc<State>, idle: Duration) -> Loops {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let desks: io::Result<Vec<Desk>> =
            (0..cores).map(|number| Desk::open(number, Arc::clone(state), idle)).collect();
        Loops(desks.unwrap_or_else(|error| {
            tracing::warn!(%error, "connections are served without loops of their own, which takes more of the processor");
            Vec::new()
        }))
    }

    /// Leaves a conversation to the one that has the fewest. Gives it back when it has to go on elsewhere, and nothing when
    /// it is over.
    pub(super) async fn serve(
        &self,
        stream: tokio::net::TcpStream,
        conversation: Box<Conversation>,
        stop: &mut Stop,
    ) -> Option<(tokio::net::TcpStream, Box<Conversation>)> {
        let Some(desk) = self.0.iter().min_by_key(|desk| desk.guests.load(Ordering::Relaxed)) else {
            return Some((stream, conversation));
        };
        let stream = TcpStream::from_std(stream.into_std().ok()?);
        desk.guests.fetch_add(1, Ordering::Relaxed);
        let back = desk.serve(stream, conversation, stop).await;
        desk.guests.fetch_sub(1, Ordering::Relaxed);
        let (stream, conversation) = back?;
        Some((tokio::net::TcpStream::from_std(stream.into()).ok()?, conversation))
    }
}

/// Where a loop is told things.
#[derive(Debug)]
struct Desk {
    messages: Sender<Message>,
    waker: Waker,
    guests: AtomicUsize,
}

/// What it is told.
#[derive(Debug)]
enum Message {
    /// Serve this one.
    Come(Guest),
    /// The daemon is to stop: all go on elsewhere, also those that come later.
    GiveBack,
    /// There is nobody any more who could come.
    End,
}

impl Desk {
    fn open(number: usize, state: Arc<State>, idle: Duration) -> io::Result<Desk> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), MESSAGES)?;
        let (messages, inbox) = channel();
        let swept = state.now();
        let mut quick = Loop {
            state,
            idle,
            poll,
            inbox,
            is_stopping: false,
            guests: Slab::new(),
            unread: Vec::new(),
            turn: Vec::new(),
            room: vec![0; READ],
            swept,
        };
        std::thread::Builder::new().name(format!("resp-{number}")).spawn(move || quick.run())?;
        Ok(Desk { messages, waker, guests: AtomicUsize::new(0) })
    }

    async fn serve(
        &self,
        stream: TcpStream,
        conversation: Box<Conversation>,
        stop: &mut Stop,
    ) -> Option<(TcpStream, Box<Conversation>)> {
        let (way_back, mut back) = oneshot::channel();
        let guest = Guest { stream, conversation, way_back };
        if let Err(SendError(Message::Come(guest))) = self.tell(Message::Come(guest)) {
            return Some((guest.stream, guest.conversation));
        }
        let back = tokio::select! {
            back = &mut back => back,
            () = stop.come() => {
                let _ = self.tell(Message::GiveBack);
                back.await
            }
        };
        back.ok()
    }

    /// A loop that has ended, which none should, gives the message back.
    fn tell(&self, message: Message) -> Result<(), SendError<Message>> {
        self.messages.send(message)?;
        // That cannot fail: what wakes it is a number in the kernel, which begins anew when it is full.
        let _ = self.waker.wake();
        Ok(())
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = self.tell(Message::End);
    }
}

/// A connection that is served here.
#[derive(Debug)]
struct Guest {
    stream: TcpStream,
    conversation: Box<Conversation>,
    way_back: oneshot::Sender<(TcpStream, Box<Conversation>)>,
}

/// What becomes of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Waits for more to come.
    Wait,
    /// Has said more already than was read.
    ReadOn,
    /// Goes on elsewhere.
    Elsewhere,
    /// Is gone, and so is what was not sent.
    Over,
}

impl Guest {
    /// Reads once, and decides all that is whole. Says how many commands that were.
    fn hear(&mut self, room: &mut [u8], has_more: bool, state: &State) -> (u64, Next) {
        match self.stream.read(room) {
            // All that was asked is answered: replies are sent before anything is read again.
            Ok(0) => (0, Next::Over),
            Ok(read) => {
                let has_more = has_more || read == room.len();
                let (commands, next) = self.answer(room.get(..read).unwrap_or_default(), state);
                (commands, if next == Next::Wait && has_more { Next::ReadOn } else { next })
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => (0, Next::Wait),
            Err(error) if error.kind() == ErrorKind::Interrupted => (0, Next::ReadOn),
            Err(_) => (0, Next::Over),
        }
    }

    /// Decides what is whole of what was kept and what has come. Keeps the rest.
    fn answer(&mut self, fresh: &[u8], state: &State) -> (u64, Next) {
        let now = state.now();
        let mut kept = std::mem::take(&mut self.conversation.received);
        let was_waiting = !kept.is_empty();
        let (commands, next) = if was_waiting {
            kept.extend_from_slice(fresh);
            let (taken, commands, next) = self.answer_all(&kept, state, now);
            kept.drain(..taken);
            (commands, next)
        } else {
            let (taken, commands, next) = self.answer_all(fresh, state, now);
            kept.extend_from_slice(fresh.get(taken..).unwrap_or_default());
            (commands, next)
        };
        // Whoever waits for nothing needs no memory to keep it in.
        self.conversation.received = if kept.is_empty() { Vec::new() } else { kept };
        if commands > 0 || !was_waiting {
            self.conversation.waiting_since = now;
        }
        (commands, next)
    }

    fn answer_all(&mut self, bytes: &[u8], state: &State, now: Time) -> (usize, u64, Next) {
        let (mut taken, mut commands) = (0, 0);
        loop {
            let answered = self.conversation.answer(bytes.get(taken..).unwrap_or_default(), state, now);
            (taken, commands) = (taken + answered.taken, commands + answered.commands);
            let next = match answered.pause {
                Pause::Incomplete => Next::Wait,
                Pause::Unsent => match self.send() {
                    Next::Wait => continue,
                    next => next,
                },
                Pause::Long | Pause::Over | Pause::Broken(_) => Next::Elsewhere,
            };
            return (taken, commands, next);
        }
    }

    /// Sends the replies. What cannot be sent without waiting is sent elsewhere.
    fn send(&mut self) -> Next {
        let replies = &mut self.conversation.replies;
        if replies.bytes().is_empty() {
            return Next::Wait;
        }
        match self.stream.write(replies.bytes()) {
            Ok(written) => replies.sent(written),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return Next::Over,
        }
        if replies.bytes().is_empty() { Next::Wait } else { Next::Elsewhere }
    }
}

/// One core's connections.
struct Loop {
    state: Arc<State>,
    idle: Duration,
    poll: Poll,
    inbox: Receiver<Message>,
    is_stopping: bool,
    guests: Slab<Guest>,
    /// Those that have said more than was read in their last turn: nobody tells of them again.
    unread: Vec<usize>,
    /// Those that were heard in this turn, and what becomes of them when their replies are sent.
    turn: Vec<(usize, Next)>,
    /// Where everybody's bytes are read to. Only the beginnings of commands are kept.
    room: Vec<u8>,
    swept: Time,
}

impl Loop {
    fn run(&mut self) {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            if let Err(error) = self.poll.poll(&mut events, self.pause())
                && error.kind() != ErrorKind::Interrupted
            {
                tracing::error!(%error, "a loop of connections has ended");
                return;
            }
            self.hear_all(&events);
            self.send_all();
            if events.iter().any(|event| event.token() == MESSAGES) && self.read_messages().is_break() {
                return;
            }
            self.sweep();
        }
    }

    /// How long nothing may happen.
    fn pause(&self) -> Option<Duration> {
        match () {
            () if !self.unread.is_empty() => Some(Duration::ZERO),
            () if !self.guests.is_empty() => Some(SWEEP),
            () => None,
        }
    }

    fn hear_all(&mut self, events: &Events) {
        let mut commands = 0;
        for token in std::mem::take(&mut self.unread) {
            commands += self.hear(token, true);
        }
        for event in events {
            commands += self.hear(event.token().0, event.is_read_closed());
        }
        // Counted before anybody is answered, so that nobody sees less than was asked.
        self.state.meters().of(Protocol::Resp).asked(commands);
    }

    fn hear(&mut self, token: usize, has_more: bool) -> u64 {
        let Some(guest) = self.guests.get_mut(token) else { return 0 };
        // As with tasks, a mistake of ours ends the conversation that it is made in, and no other.
        let heard = AssertUnwindSafe(|| guest.hear(&mut self.room, has_more, &self.state));
        let (commands, next) = catch_unwind(heard).unwrap_or((0, Next::Over));
        self.turn.push((token, next));
        commands
    }

    fn send_all(&mut self) {
        let mut turn = std::mem::take(&mut self.turn);
        for (token, next) in turn.drain(..) {
            let Some(guest) = self.guests.get_mut(token) else { continue };
            let next = match (next, guest.send()) {
                (Next::Over, _) | (_, Next::Over) => Next::Over,
                (_, Next::Elsewhere) => Next::Elsewhere,
                (next, _) => next,
            };
            match next {
                Next::Wait => {}
                Next::ReadOn => self.unread.push(token),
                Next::Elsewhere => self.give_back(token),
                Next::Over => drop(self.guests.try_remove(token)),
            }
        }
        self.turn = turn;
    }

    fn read_messages(&mut self) -> ControlFlow<()> {
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Come(guest) => self.welcome(guest),
                Message::GiveBack => {
                    self.is_stopping = true;
                    let all: Vec<usize> = self.guests.iter().map(|(token, _)| token).collect();
                    all.into_iter().for_each(|token| self.give_back(token));
                }
                Message::End => return ControlFlow::Break(()),
            }
        }
        ControlFlow::Continue(())
    }

    fn welcome(&mut self, mut guest: Guest) {
        let entry = self.guests.vacant_entry();
        let token = entry.key();
        // A socket that cannot be waited for is as good as closed.
        if self.poll.registry().register(&mut guest.stream, Token(token), Interest::READABLE).is_ok() {
            entry.insert(guest);
            if self.is_stopping {
                self.give_back(token);
            }
        }
    }

    /// Hands a guest back to its task.
    fn give_back(&mut self, token: usize) {
        let Some(mut guest) = self.guests.try_remove(token) else { return };
        if self.poll.registry().deregister(&mut guest.stream).is_ok() {
            // A task that is gone needs nothing back.
            let _ = guest.way_back.send((guest.stream, guest.conversation));
        }
    }

    /// Hands back those that have said nothing for too long, and frees memory of those that rest.
    fn sweep(&mut self) {
        let now = self.state.now();
        if now.since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let mut late = Vec::new();
        for (token, guest) in &mut self.guests {
            let waited = now.since(guest.conversation.waiting_since);
            if waited >= guest.conversation.patience(self.idle) {
                late.push(token);
            } else if waited >= SWEEP {
                guest.conversation.replies.rest();
            }
        }
        late.into_iter().for_each(|token| self.give_back(token));
    }
}
