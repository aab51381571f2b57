use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// The body of an answer: the inner service's, or that of a refusal.
    #[derive(Debug)]
    pub struct ResponseBody<R> {
        #[pin]
        kind: Kind<R>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = Projection]
    enum Kind<R> {
        Inner { #[pin] body: R },
        Text { text: Bytes },
        Dropped,
    }
}

impl<R> ResponseBody<R> {
    pub(super) fn inner(body: R) -> ResponseBody<R> {
        ResponseBody { kind: Kind::Inner { body } }
    }

    pub(super) fn text(text: String) -> ResponseBody<R> {
        ResponseBody { kind: Kind::Text { text: text.into() } }
    }

    pub(super) fn dropped() -> ResponseBody<R> {
        ResponseBody { kind: Kind::Dropped }
    }
}

impl<R> Body for ResponseBody<R>
where
    R: Body,
    R::Data: From<Bytes>,
    R::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = R::Data;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<R::Data>, Self::Error>>> {
        match self.project().kind.project() {
            Projection::Inner { body } => body.poll_frame(context).map_err(Into::into),
            Projection::Text { text } if text.is_empty() => Poll::Ready(None),
            Projection::Text { text } => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text).into())))),
            Projection::Dropped => Poll::Ready(Some(Err(Dropped.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Text { text } => text.is_empty(),
            Kind::Dropped => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Text { text } => SizeHint::with_exact(text.len() as u64),
            // An empty one would not be asked for what is in it.
            Kind::Dropped => SizeHint::default(),
        }
    }
}

/// A rule said to close the connection without an answer. Servers report it as the reason; it is nobody's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped;

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("over the limit, where the rule says to drop the connection")
    }
}

impl Error for Dropped {}
