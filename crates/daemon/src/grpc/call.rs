//! A call: messages in, messages out, and how it went.

use super::method::compressed;
use super::refusal::Refusal;
use super::wire::PREFIX;
use crate::fault::Fault;
use bytes::{Buf, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::timeout;

static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
static GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
static GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// How long a message may take to be read by the client.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// Why a call ends before its time.
#[derive(Debug)]
pub(super) enum Interrupted {
    /// The client has left, so there is nobody to be told.
    Gone,
    /// The client is told this.
    Refused(Refusal),
}

impl<E: Into<Refusal>> From<E> for Interrupted {
    fn from(refusal: E) -> Interrupted {
        Interrupted::Refused(refusal.into())
    }
}

/// What the client sends.
#[derive(Debug)]
pub(super) struct Body {
    stream: RecvStream,
    /// What came first. Mostly it is everything, and need not be copied.
    first: Bytes,
    /// What came first and what followed, if something has.
    rest: BytesMut,
    /// How much of the client's window is taken up.
    taken: usize,
    /// Whether nothing follows.
    pub(super) is_over: bool,
}

impl Body {
    pub(super) fn new(stream: RecvStream) -> Body {
        Body { stream, first: Bytes::new(), rest: BytesMut::new(), taken: 0, is_over: false }
    }

    /// The only message, once the client has said that nothing follows.
    pub(super) fn poll_whole(&mut self, cx: &mut Context<'_>, longest: usize) -> Poll<Result<Bytes, Interrupted>> {
        while !self.is_over {
            ready!(self.poll_more(cx))?;
            let length = frame_length(self.received(), longest)?;
            if length.is_some_and(|length| self.received().len() > PREFIX + length) {
                return Poll::Ready(Err(Fault::Malformed("this method takes one message".into()).into()));
            }
        }
        let whole = self.message(longest)?;
        Poll::Ready(whole.ok_or_else(|| Fault::Malformed("the message is cut short".into()).into()))
    }

    /// The next message, if it is there as a whole.
    pub(super) fn message(&mut self, longest: usize) -> Result<Option<Bytes>, Fault> {
        let Some(length) = frame_length(self.received(), longest)? else { return Ok(None) };
        if self.received().len() < PREFIX + length {
            return Ok(None);
        }
        let in_first = self.rest.is_empty();
        let mut message =
            if in_first { self.first.split_to(PREFIX + length) } else { self.rest.split_to(PREFIX + length).freeze() };
        message.advance(PREFIX);
        Ok(Some(message))
    }

    /// Whether something is left that is no message.
    pub(super) fn has_rest(&self) -> bool {
        !self.received().is_empty()
    }

    /// Waits for more, or to know that there is none.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Interrupted>> {
        self.make_room();
        match ready!(self.stream.poll_data(cx)) {
            Some(Ok(bytes)) => {
                self.is_over = self.stream.is_end_stream();
                self.taken += bytes.len();
                self.receive(bytes);
                Poll::Ready(Ok(()))
            }
            Some(Err(_)) => Poll::Ready(Err(Interrupted::Gone)),
            None => {
                self.is_over = true;
                Poll::Ready(Ok(()))
            }
        }
    }

    fn received(&self) -> &[u8] {
        if self.rest.is_empty() { &self.first } else { &self.rest }
    }

    /// Lets the client send as much more as has been understood: what is kept takes up its window.
    fn make_room(&mut self) {
        let kept = self.received().len();
        if self.taken > kept {
            // A stream that has ended needs no window any more.
            let _ = self.stream.flow_control().release_capacity(self.taken - kept);
            self.taken = kept;
        }
    }

    fn receive(&mut self, bytes: Bytes) {
        if !self.has_rest() {
            self.first = bytes;
            return;
        }
        if self.rest.is_empty() {
            self.rest.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.rest.extend_from_slice(&bytes);
    }
}

/// How long the first message is, if that much is known.
fn frame_length(bytes: &[u8], longest: usize) -> Result<Option<usize>, Fault> {
    let Some(([flag, length @ ..], _)) = bytes.split_first_chunk::<PREFIX>() else { return Ok(None) };
    if *flag != 0 {
        return Err(compressed());
    }
    let length = u32::from_be_bytes(*length) as usize;
    if length > longest {
        return Err(Fault::TooLarge(format!("a message has at most {longest} bytes here").into()));
    }
    Ok(Some(length))
}

/// Sends the only message. Whoever is gone needs no answer.
pub(super) fn answer(respond: SendResponse<Bytes>, message: Bytes) {
    if let Ok(mut replies) = Replies::begin(respond) {
        let _ = replies.0.send_data(message, false);
        replies.finish();
    }
}

/// Says why there is no message.
pub(super) fn refuse(mut respond: SendResponse<Bytes>, refusal: &Refusal) {
    let mut response = head();
    response.headers_mut().extend(refused(refusal));
    let _ = respond.send_response(response, true);
}

/// Says that this was no call.
pub(super) fn reject(mut respond: SendResponse<Bytes>, status: StatusCode) {
    let mut response = Response::new(());
    *response.status_mut() = status;
    let _ = respond.send_response(response, true);
}

/// The messages of an answer that has begun.
#[derive(Debug)]
pub(super) struct Replies(SendStream<Bytes>);

impl Replies {
    pub(super) fn begin(mut respond: SendResponse<Bytes>) -> Result<Replies, Interrupted> {
        respond.send_response(head(), false).map(Replies).map_err(|_| Interrupted::Gone)
    }

    /// Sends as much at a time as the client is ready for.
    pub(super) async fn send(&mut self, mut messages: Bytes) -> Result<(), Interrupted> {
        while messages.has_remaining() {
            self.0.reserve_capacity(messages.len());
            let ready = timeout(WRITE_PATIENCE, poll_fn(|cx| self.0.poll_capacity(cx))).await;
            let Ok(Some(Ok(room))) = ready else { return Err(Interrupted::Gone) };
            let piece = messages.split_to(room.min(messages.len()));
            self.0.send_data(piece, false).map_err(|_| Interrupted::Gone)?;
        }
        Ok(())
    }

    /// Returns when the client has lost interest.
    pub(super) async fn lost(&mut self) {
        let _ = poll_fn(|cx| self.0.poll_reset(cx)).await;
    }

    /// Says that this is all.
    pub(super) fn finish(mut self) {
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert(&GRPC_STATUS, HeaderValue::from_static("0"));
        let _ = self.0.send_trailers(trailers);
    }

    /// Says why this is all.
    pub(super) fn refuse(mut self, refusal: &Refusal) {
        let _ = self.0.send_trailers(refused(refusal));
    }
}

fn head() -> Response<()> {
    let mut response = Response::new(());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

fn refused(refusal: &Refusal) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(3);
    headers.insert(&GRPC_STATUS, (refusal.code() as u16).into());
    headers.insert(&GRPC_MESSAGE, refusal.message());
    headers.insert(&GRPC_ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers
}
