//! Connections: which version of HTTP they speak, how they are served and how they end.

use super::page;
use super::quick::{self, End};
use super::reply::Text;
use super::watch::{Activity, Kind, Overdue, Patience, Watch, Watched};
use crate::fault::Fault;
use crate::listen::{FrontEnd, Peer, Stop, part};
use crate::meters::{Meter, Protocol};
use crate::state::{State, Turn};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// What connections of HTTP/2 begin with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How much is read to find out which version it is.
const FIRST_READ: usize = 4 * 1024;

/// Heads of requests are no longer than this, and have at most 100 headers.
const LONGEST_HEAD: usize = 32 * 1024;

/// What HTTP/1 keeps of a connection at most.
const BUFFER: usize = 64 * 1024;

/// Requests at the same time on one connection of HTTP/2.
const STREAMS: u32 = 256;

/// Requests that were taken back before they were looked at; more are an attack.
const RESET_STREAMS: usize = 32;

/// How often HTTP/2 asks whether the peer is still there, and how long that has time to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_PATIENCE: Duration = Duration::from_secs(10);

/// How long a request may take to arrive, or a reply to be read, once it has begun.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers over HTTP/1.1 and HTTP/2.
#[derive(Debug)]
pub struct HttpServer {
    state: Arc<State>,
    patience: Patience,
    serial: http1::Builder,
    streams: http2::Builder<TokioExecutor>,
}

/// One connection, as those who answer its requests see it.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) state: Arc<State>,
    pub(super) peer: Peer,
    pub(super) activity: Arc<Activity>,
    pub(super) patience: Patience,
}

impl Visit {
    /// The turn of a question that has come.
    pub(super) fn turn(&self) -> Turn<'_> {
        self.state.long_turn(self.state.now())
    }
}

impl HttpServer {
    /// Connections that ask nothing for `idle` are closed.
    pub fn new(state: Arc<State>, idle: Duration) -> HttpServer {
        HttpServer { state, patience: Patience { idle, rest: PATIENCE }, serial: serial(), streams: streams() }
    }

    /// Requests may take so long to arrive once they have begun, and replies to be read: ten seconds unless told
    /// otherwise.
    #[must_use]
    pub fn with_patience(mut self, rest: Duration) -> HttpServer {
        self.patience.rest = rest;
        self
    }

    async fn connection<S>(&self, mut stream: S, peer: Peer, mut stop: Stop) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Some(first) = self.greeting(&mut stream, &mut stop).await? else { return Ok(()) };
        let activity = Arc::new(Activity::default());
        let visit = Arc::new(Visit {
            state: Arc::clone(&self.state),
            peer,
            activity: Arc::clone(&activity),
            patience: self.patience,
        });
        if first.starts_with(PREFACE) {
            let watch = Watch::new(Arc::clone(&activity), self.patience, Kind::Streams);
            let stream = TokioIo::new(Watched::new(stream, first, activity));
            self.run(&mut self.streams.serve_connection(stream, service(visit)), watch, stop).await;
            return Ok(());
        }
        let unusual = match self.state.tracer() {
            // What is traced has headers to be looked at.
            Some(_) => first,
            None => match quick::serve(&mut stream, &visit, first, &mut stop).await? {
                End::Over => return part(stream).await,
                End::HandOver(unusual) => unusual,
            },
        };
        let watch = Watch::new(Arc::clone(&activity), self.patience, Kind::Serial);
        let stream = TokioIo::new(Watched::new(stream, unusual, activity));
        let mut connection = self.serial.serve_connection(stream, service(visit));
        if self.run(&mut connection, watch, stop).await == Parting::Fair {
            part(connection.into_parts().io.into_inner()).await?;
        }
        Ok(())
    }

    /// What the connection begins with, as far as it takes to know which version it speaks.
    async fn greeting<S: AsyncRead + Unpin>(&self, stream: &mut S, stop: &mut Stop) -> io::Result<Option<Vec<u8>>> {
        let mut first = Vec::with_capacity(FIRST_READ);
        loop {
            let patience = if first.is_empty() { self.patience.idle } else { self.patience.rest };
            let read = tokio::select! {
                read = stream.read_buf(&mut first) => read?,
                () = stop.come() => return Ok(None),
                () = tokio::time::sleep(patience) => return Ok(None),
            };
            if read == 0 && first.is_empty() {
                return Ok(None);
            }
            let is_undecided = first.len() < PREFACE.len() && PREFACE.starts_with(&first);
            if read == 0 || !is_undecided {
                return Ok(Some(first));
            }
        }
    }

    /// Serves a connection until it ends, takes too long, or has said goodbye.
    async fn run<C: Connection>(&self, connection: &mut C, mut watch: Watch, mut stop: Stop) -> Parting {
        let mut stop = pin!(stop.come());
        let mut is_stopping = false;
        let ended = poll_fn(|context| {
            loop {
                if let Poll::Ready(ended) = connection.poll(context) {
                    return Poll::Ready(ended);
                }
                if !is_stopping && stop.as_mut().poll(context).is_ready() {
                    is_stopping = true;
                    connection.begin_to_end();
                    continue;
                }
                match std::task::ready!(watch.poll(context)) {
                    Overdue::Idle => return Poll::Ready(Ok(())),
                    Overdue::Body => {}
                    Overdue::Slow => return Poll::Ready(Err(Some(Fault::TooSlow))),
                }
            }
        });
        let ended = ended.await;
        if let Err(Some(fault)) = &ended {
            self.meter().fault(fault);
        }
        if ended == Err(Some(Fault::TooSlow)) { Parting::Curt } else { Parting::Fair }
    }
}

/// How a connection is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parting {
    /// So that the last reply arrives.
    Fair,
    /// At once, as nobody reads it.
    Curt,
}

/// Answers the requests of one connection.
fn service(
    visit: Arc<Visit>,
) -> impl HttpService<Incoming, ResBody = Text, Error = Infallible, Future: Send + 'static> + Unpin {
    service_fn(move |request: Request<Incoming>| {
        let visit = Arc::clone(&visit);
        async move { Ok::<Response<Text>, Infallible>(page::answer(&visit, request).await) }
    })
}

impl FrontEnd for HttpServer {
    async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(&self, stream: S, peer: Peer, stop: Stop) {
        // Whoever is gone needs no answer, and nobody else an error.
        let _ = self.connection(stream, peer, stop).await;
    }

    fn meter(&self) -> &Meter {
        self.state.meters().of(Protocol::Http)
    }
}

fn serial() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // Timers are the watch's business; see there. `pipeline_flush` would keep replies as long as requests come, however
    // many that are.
    builder.header_read_timeout(None).half_close(true).writev(false);
    builder.max_header_size(LONGEST_HEAD).max_buf_size(BUFFER);
    builder
}

fn streams() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).keep_alive_interval(KEEP_ALIVE).keep_alive_timeout(KEEP_ALIVE_PATIENCE);
    builder.max_concurrent_streams(STREAMS).max_pending_accept_reset_streams(RESET_STREAMS);
    builder.max_header_list_size(LONGEST_HEAD as u32).max_send_buf_size(BUFFER);
    builder
}

/// A connection of either version.
trait Connection {
    /// Goes on until it ends: well, or with what to count, if anything.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Option<Fault>>>;

    /// Answers what was asked, and takes nothing more.
    fn begin_to_end(&mut self);
}

impl<I, S> Connection for http1::Connection<I, S>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: HttpService<Incoming, ResBody = Text, Error = Infallible> + Unpin,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Option<Fault>>> {
        Future::poll(Pin::new(self), context).map_err(|error| fault(&error))
    }

    fn begin_to_end(&mut self) {
        Pin::new(self).graceful_shutdown();
    }
}

impl<I, S> Connection for http2::Connection<I, S, TokioExecutor>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: HttpService<Incoming, ResBody = Text, Error = Infallible> + Unpin,
    S::Future: Send + 'static,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Option<Fault>>> {
        Future::poll(Pin::new(self), context).map_err(|error| fault(&error))
    }

    fn begin_to_end(&mut self) {
        Pin::new(self).graceful_shutdown();
    }
}

/// What is to be counted: what was sent is no HTTP. Whoever just left has made no mistake.
fn fault(error: &hyper::Error) -> Option<Fault> {
    if error.is_parse_too_large() {
        Some(Fault::TooLarge("the head of the request is too large".into()))
    } else if error.is_parse() {
        Some(Fault::Malformed("this is no HTTP".into()))
    } else {
        None
    }
}
