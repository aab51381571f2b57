//! Holds back what is written while a connection answers, so that all answers of one turn leave in one write.
//!
//! `h2` writes whenever it is polled, which it is once for each call that it hands out. Whoever holds the cork lets it
//! believe that everything was written, and has to poll it once more after releasing the cork.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Beyond this, writes are no longer held back.
const MOST_HELD: usize = 64 * 1024;

/// What a connection keeps for this while it is idle.
const KEPT: usize = 16 * 1024;

/// Says whether writes are held back. Only the task of the connection says so, and only it asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Cork(Arc<AtomicBool>);

impl Cork {
    pub(super) fn hold(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn release(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A stream whose writes can be held back.
#[derive(Debug)]
pub(super) struct Corked<S> {
    stream: S,
    cork: Cork,
    held: Vec<u8>,
    /// How much of it is written already.
    written: usize,
}

impl<S> Corked<S> {
    pub(super) fn new(stream: S, cork: Cork) -> Corked<S> {
        Corked { stream, cork, held: Vec::new(), written: 0 }
    }
}

impl<S: AsyncWrite + Unpin> Corked<S> {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.held.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        self.held.clear();
        self.held.shrink_to(KEPT);
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Corked<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.cork.is_held() && self.held.len() < MOST_HELD {
            self.held.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.cork.is_held() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Corked<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::{Cork, Corked, MOST_HELD};
    use std::future::poll_fn;
    use std::pin::Pin;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn what_is_held_back_leaves_in_order_and_at_once() {
        let (here, mut there) = duplex(8 * MOST_HELD);
        let cork = Cork::default();
        let mut corked = Corked::new(here, cork.clone());
        cork.hold();
        corked.write_all(b"one ").await.unwrap();
        corked.flush().await.unwrap();
        corked.write_all(b"two ").await.unwrap();
        cork.release();
        corked.write_all(b"three").await.unwrap();
        corked.flush().await.unwrap();
        let mut received = vec![0; 13];
        there.read_exact(&mut received).await.unwrap();
        assert_eq!(received, b"one two three");
    }

    #[tokio::test]
    async fn no_more_is_held_back_than_there_is_room_for() {
        let (here, _there) = duplex(1024);
        let cork = Cork::default();
        let mut corked = Corked::new(here, cork.clone());
        cork.hold();
        corked.write_all(&vec![b'x'; MOST_HELD]).await.unwrap();
        let is_blocked = poll_fn(|cx| {
            std::task::Poll::Ready(tokio::io::AsyncWrite::poll_write(Pin::new(&mut corked), cx, b"y").is_pending())
        });
        assert!(is_blocked.await, "nobody reads, so nothing more is taken");
    }

    #[tokio::test]
    async fn what_is_held_back_leaves_before_the_end() {
        let (here, mut there) = duplex(1024);
        let cork = Cork::default();
        let mut corked = Corked::new(here, cork.clone());
        cork.hold();
        corked.write_all(b"goodbye").await.unwrap();
        corked.shutdown().await.unwrap();
        let mut received = Vec::new();
        there.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"goodbye");
    }
}
