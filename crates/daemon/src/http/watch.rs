//! How long a connection may take over what it does.
//!
//! A timer for every request would cost more than the decision, so there is one for the connection, and it is touched
//! only where a request does not come, or a reply does not go, at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long is waited for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For the next request to begin.
    pub(super) idle: Duration,
    /// For the rest of a request that has begun, head or body each, and for a reply to be read.
    pub(super) rest: Duration,
}

/// What a connection has done so far.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Reads that brought something.
    received: AtomicU64,
    /// As many as there were when a request began or was answered: what came since is part of another one.
    accounted: AtomicU64,
    /// Requests whose head has come.
    begun: AtomicU64,
    /// Those of them without an answer yet.
    open: AtomicU64,
    /// Those of them whose body is still to come.
    awaited: AtomicU64,
    /// Whether the peer does not read what it is sent.
    is_stuck: AtomicBool,
    /// Whether the body took too long to come.
    is_too_slow: AtomicBool,
}

impl Activity {
    /// A request's head has come.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        self.account();
    }

    /// It was answered.
    pub(super) fn end(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.account();
    }

    /// Its body is waited for until [`arrived`](Self::arrived).
    pub(super) fn wait(&self) {
        self.awaited.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn arrived(&self) {
        self.awaited.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn is_too_slow(&self) -> bool {
        self.is_too_slow.load(Ordering::Relaxed)
    }

    fn account(&self) {
        self.accounted.store(self.received.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// What a connection of HTTP/1 waits for.
    fn waits(&self) -> Waits {
        let begun = self.begun.load(Ordering::Relaxed);
        if self.is_stuck.load(Ordering::Relaxed) {
            Waits::ToBeRead(begun)
        } else if self.awaited.load(Ordering::Relaxed) > 0 {
            Waits::ForBody(begun)
        } else if self.open.load(Ordering::Relaxed) > 0 {
            Waits::ForUs
        } else if self.received.load(Ordering::Relaxed) != self.accounted.load(Ordering::Relaxed) {
            Waits::ForHead(begun)
        } else {
            Waits::ForRequest
        }
    }

    /// What a connection of HTTP/2 waits for. Its frames are not all about requests, and bodies have timers of their own.
    fn waits_in_streams(&self) -> Waits {
        if self.is_stuck.load(Ordering::Relaxed) {
            Waits::ToBeRead(self.begun.load(Ordering::Relaxed))
        } else if self.open.load(Ordering::Relaxed) > 0 {
            Waits::ForUs
        } else {
            Waits::ForRequest
        }
    }
}

/// What a connection waits for, each with the number of the request: waiting for the next one is not the same wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    ForRequest,
    ForHead(u64),
    ForBody(u64),
    /// For an answer that is being held, however long.
    ForUs,
    ToBeRead(u64),
}

/// How a connection tells requests apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One after the other.
    Serial,
    /// Many at the same time.
    Streams,
}

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// Nothing was asked for a long time. Nobody's fault.
    Idle,
    /// A request's body: whoever reads it has been told to give up, and can still say so.
    Body,
    /// A request's head, or the reading of a reply.
    Slow,
}

/// Says when a connection has taken too long.
#[derive(Debug)]
pub(super) struct Watch {
    activity: Arc<Activity>,
    patience: Patience,
    kind: Kind,
    waits: Waits,
    /// The requests there had been when it was last looked whether there are any.
    seen: u64,
    timer: Pin<Box<Sleep>>,
}

impl Watch {
    pub(super) fn new(activity: Arc<Activity>, patience: Patience, kind: Kind) -> Watch {
        let timer = Box::pin(sleep(patience.idle));
        Watch { activity, patience, kind, waits: Waits::ForRequest, seen: 0, timer }
    }

    /// To be called whenever the connection has done what it could: registers for the moment at which it is overdue.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Overdue> {
        let waits = match self.kind {
            Kind::Serial => self.activity.waits(),
            Kind::Streams => self.activity.waits_in_streams(),
        };
        if waits != self.waits {
            self.waits = waits;
            self.rewind();
        }
        while self.timer.as_mut().poll(context).is_ready() {
            if let Some(overdue) = self.overdue() {
                return Poll::Ready(overdue);
            }
            self.rewind();
        }
        Poll::Pending
    }

    /// What is overdue now that the time is up.
    fn overdue(&mut self) -> Option<Overdue> {
        let begun = self.activity.begun.load(Ordering::Relaxed);
        let was_busy = std::mem::replace(&mut self.seen, begun) != begun;
        match self.waits {
            Waits::ForUs => None,
            Waits::ForRequest if was_busy => None,
            Waits::ForRequest => Some(Overdue::Idle),
            Waits::ForBody(_) if !self.activity.is_too_slow.swap(true, Ordering::Relaxed) => Some(Overdue::Body),
            Waits::ForHead(_) | Waits::ForBody(_) | Waits::ToBeRead(_) => Some(Overdue::Slow),
        }
    }

    fn rewind(&mut self) {
        let patience = match self.waits {
            Waits::ForRequest | Waits::ForUs => self.patience.idle,
            Waits::ForHead(_) | Waits::ForBody(_) | Waits::ToBeRead(_) => self.patience.rest,
        };
        self.timer.as_mut().reset(Instant::now() + patience);
    }
}

/// A stream that tells what it does, and begins with what was read from it already.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    first: Vec<u8>,
    taken: usize,
    activity: Arc<Activity>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, first: Vec<u8>, activity: Arc<Activity>) -> Watched<S> {
        Watched { stream, first, taken: 0, activity }
    }

    /// Hands out what was read before.
    fn take_first(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let rest = self.first.get(self.taken..).unwrap_or_default();
        let (now, later) = rest.split_at(rest.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.taken += now.len();
        let any = !now.is_empty();
        if later.is_empty() {
            self.first = Vec::new();
        }
        any
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if this.first.is_empty() || !this.take_first(buffer) {
            std::task::ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        }
        if buffer.filled().len() > before {
            this.activity.received.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Watched<S> {
    fn note<T>(&self, written: Poll<T>) -> Poll<T> {
        let is_stuck = &self.activity.is_stuck;
        if is_stuck.load(Ordering::Relaxed) != written.is_pending() {
            is_stuck.store(written.is_pending(), Ordering::Relaxed);
        }
        written
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.note(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
