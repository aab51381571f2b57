//! The bodies of requests, no larger than makes sense and no slower.

use super::server::Visit;
use crate::fault::Fault;
use bytes::{Bytes, BytesMut};
use http::Version;
use hyper::body::{Body, Incoming};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use tokio::time::timeout;

/// As large as one question can be.
const ONE: usize = 64 * 1024;

/// As large as many can be.
pub(super) const MANY: usize = 1024 * 1024;

/// How much of a body makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// One question.
    One,
    /// One, or a list of them.
    OneOrMany,
}

impl Size {
    fn most(self, begin: &[u8]) -> usize {
        if self == Size::OneOrMany && is_list(begin) { MANY } else { ONE }
    }
}

/// Whether JSON is a list.
pub(super) fn is_list(json: &[u8]) -> bool {
    json.trim_ascii_start().first() == Some(&b'[')
}

/// Reads all of a body.
pub(super) async fn read(visit: &Visit, version: Version, body: Incoming, size: Size) -> Result<Bytes, Fault> {
    if body.size_hint().lower() > MANY as u64 {
        return Err(too_large(MANY));
    }
    // The requests of one connection of HTTP/2 cannot be told apart from outside, as those of HTTP/1 are.
    if version == Version::HTTP_2 {
        return timeout(visit.patience.rest, collect(visit, body, size)).await.unwrap_or(Err(Fault::TooSlow));
    }
    visit.activity.wait();
    let bytes = collect(visit, body, size).await;
    visit.activity.arrived();
    bytes
}

async fn collect(visit: &Visit, mut body: Incoming, size: Size) -> Result<Bytes, Fault> {
    let Some(first) = next(visit, &mut body).await? else { return Ok(Bytes::new()) };
    let most = size.most(&first);
    if first.len() > most || body.size_hint().lower() > (most - first.len()) as u64 {
        return Err(too_large(most));
    }
    // Nearly all come in one piece, which is not copied.
    if body.is_end_stream() {
        return Ok(first);
    }
    let mut all = BytesMut::from(first);
    while let Some(more) = next(visit, &mut body).await? {
        if more.len() > most - all.len() {
            return Err(too_large(most));
        }
        all.extend_from_slice(&more);
    }
    Ok(all.freeze())
}

/// What comes next of a body; nothing at its end.
async fn next(visit: &Visit, body: &mut Incoming) -> Result<Option<Bytes>, Fault> {
    loop {
        let frame = poll_fn(|context| match Pin::new(&mut *body).poll_frame(context) {
            Poll::Pending if visit.activity.is_too_slow() => Poll::Ready(Err(Fault::TooSlow)),
            polled => polled.map(Ok),
        });
        match frame.await? {
            None => return Ok(None),
            Some(Err(_)) => {
                return Err(Fault::Malformed("the body was cut short, or is not framed as HTTP has it".into()));
            }
            // There are trailers, too, which say nothing here.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

fn too_large(most: usize) -> Fault {
    Fault::TooLarge(format!("a body has at most {} KiB", most / 1024).into())
}
