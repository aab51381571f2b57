//! The requests that nearly all are: whole, plain, and about a decision.
//!
//! Such a request is understood here and answered in one write with all others that came along. Everything else about
//! HTTP is hyper's business: the first request that is in any way unusual, be it wrong, is left as it came, and the
//! connection is handed over for good. So there is nothing here that could be answered differently.

use super::page::bearer_token;
use super::server::Visit;
use super::{auth, question, throttle};
use crate::fault::Fault;
use crate::listen::Stop;
use crate::meters::Protocol;
use crate::state::{Turn, at_once};
use std::io::{self, Write};
use std::pin::{Pin, pin};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tollgate::Time;

/// How much a connection reads at once, and keeps while it is idle.
const READ: usize = 8 * 1024;

/// What is larger is not plain.
const LARGEST: usize = 64 * 1024;

/// What has more headers is not plain, either.
const HEADERS: usize = 32;

/// Replies beyond this are sent before more is decided: whoever does not read them is not served, either.
const MOST_UNSENT: usize = 64 * 1024;

/// How long a connection that is to end waits for one more request, which may be on its way already.
const LAST_CALL: Duration = Duration::from_millis(500);

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// There is nothing more to say.
    Over,
    /// Somebody else has to go on, beginning with these bytes.
    HandOver(Vec<u8>),
}

/// Serves a connection as long as its requests are plain.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    visit: &Visit,
    first: Vec<u8>,
    stop: &mut Stop,
) -> io::Result<End> {
    let mut stop = pin!(stop.come());
    let mut waiting = Waiting { timer: pin!(sleep(visit.patience.idle)), was_asked: false };
    let mut connection = Connection { received: first, ..Connection::default() };
    let (mut is_stopping, mut is_partial) = (false, false);
    loop {
        let (was_partial, flow) = (is_partial, connection.answer(visit, is_stopping).await);
        let was_answered = !connection.replies.is_empty();
        waiting.was_asked |= was_answered;
        connection.send(stream, visit.patience.rest).await?;
        match flow {
            Flow::Again => continue,
            Flow::Close => return Ok(End::Over),
            Flow::HandOver => return Ok(End::HandOver(connection.received)),
            Flow::More => {}
        }
        is_partial = !connection.received.is_empty();
        if is_partial && (was_answered || !was_partial) {
            waiting.rewind(visit.patience.rest);
        }
        let read = loop {
            tokio::select! {
                biased;
                () = &mut stop, if !is_stopping => {
                    is_stopping = true;
                    waiting.rewind(LAST_CALL);
                }
                read = stream.read_buf(&mut connection.received) => break read?,
                () = &mut waiting.timer => {
                    let is_idle = connection.received.is_empty() && !is_stopping;
                    if is_idle && std::mem::take(&mut waiting.was_asked) {
                        waiting.rewind(visit.patience.idle);
                    } else {
                        break 0;
                    }
                }
            }
        };
        if read == 0 {
            // Half a request that took too long, or was left: it is not plain.
            let is_over = connection.received.is_empty();
            return Ok(if is_over { End::Over } else { End::HandOver(connection.received) });
        }
    }
}

/// How long the next bytes may take. A timer for every request would cost more than the decision, so it is touched only
/// where one comes in parts, and otherwise looks from time to time whether there were any.
struct Waiting<'t> {
    timer: Pin<&'t mut Sleep>,
    was_asked: bool,
}

impl Waiting<'_> {
    fn rewind(&mut self, patience: Duration) {
        self.timer.as_mut().reset(Instant::now() + patience);
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// Read on.
    More,
    /// There is more to answer, once what is written is sent.
    Again,
    HandOver,
    Close,
}

#[derive(Debug, Default)]
struct Connection {
    received: Vec<u8>,
    replies: Vec<u8>,
    /// The body that is being written.
    body: Vec<u8>,
    date: Date,
}

impl Connection {
    /// Answers all plain requests that have come as a whole, by one reading of the clock.
    async fn answer(&mut self, visit: &Visit, is_stopping: bool) -> Flow {
        let now = visit.state.now();
        self.date.update(now);
        let (mut done, mut count) = (0, 0);
        let flow = loop {
            match parse(self.received.get(done..).unwrap_or_default()) {
                Parsed::Incomplete => break Flow::More,
                Parsed::NotPlain => break Flow::HandOver,
                Parsed::Plain(request) => {
                    self.body.clear();
                    if !request.answer_in_time(visit, now, &mut self.body).await {
                        break Flow::HandOver;
                    }
                    (done, count) = (done + request.length, count + 1);
                    self.replies.extend_from_slice(HEAD);
                    write_head(&mut self.replies, self.body.len(), &self.date, is_stopping);
                    self.replies.extend_from_slice(&self.body);
                }
            }
            if is_stopping {
                break Flow::Close;
            }
            if self.replies.len() > MOST_UNSENT {
                break Flow::Again;
            }
        };
        visit.state.meters().of(Protocol::Http).asked(count);
        self.received.drain(..done);
        self.make_room();
        flow
    }

    fn make_room(&mut self) {
        if self.received.is_empty() {
            self.received.shrink_to(READ);
        }
        self.received.reserve(READ / 2);
    }

    async fn send<S: AsyncWrite + Unpin>(&mut self, stream: &mut S, patience: Duration) -> io::Result<()> {
        if self.replies.is_empty() {
            return Ok(());
        }
        // Most replies go at once, and need no timer.
        let sent = timeout(patience, stream.write_all(&self.replies)).await;
        self.replies.clear();
        self.replies.shrink_to(MOST_UNSENT);
        sent.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";

/// The rest of a reply's head.
fn write_head(out: &mut Vec<u8>, length: usize, date: &Date, is_last: bool) {
    // Writing to memory cannot fail.
    _ = write!(out, "{length}\r\ndate: ");
    out.extend_from_slice(&date.text);
    out.extend_from_slice(if is_last { b"\r\nconnection: close\r\n\r\n" } else { b"\r\n\r\n" });
}

/// The time as HTTP writes it, which changes once a second.
#[derive(Debug, Default)]
struct Date {
    second: u64,
    text: Vec<u8>,
}

impl Date {
    fn update(&mut self, now: Time) {
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second || self.text.is_empty() {
            self.second = second;
            self.text = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(second)).into_bytes();
        }
    }
}

/// What bytes are.
enum Parsed<'a> {
    Plain(Plain<'a>),
    Incomplete,
    NotPlain,
}

/// A request without anything unusual about it.
struct Plain<'a> {
    page: Page,
    body: &'a [u8],
    /// All of it.
    length: usize,
    /// What strangers have to show.
    token: Option<&'a [u8]>,
}

/// What is asked so often that it should be quick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Check,
    Throttle,
}

impl Plain<'_> {
    /// Answers at once, or else as soon as the store allows: only then there is something to keep while it is waited for.
    async fn answer_in_time(&self, visit: &Visit, now: Time, out: &mut Vec<u8>) -> bool {
        match at_once(self.answer(visit, visit.state.short_turn(now), out)) {
            Some(has_answer) => has_answer,
            None => Box::pin(self.answer(visit, visit.state.long_turn(now), out)).await,
        }
    }

    /// Whether there is an answer. A fault is none: nothing was decided then, and who is handed the request finds it, too.
    async fn answer(&self, visit: &Visit, turn: Turn<'_>, out: &mut Vec<u8>) -> bool {
        let may_ask = visit.peer.is_trusted || self.token.is_some_and(|token| turn.state.access().check(token).is_ok());
        let answered: Result<(), Fault> = match self.page {
            _ if !may_ask => Err(Fault::NoToken),
            Page::Check => question::write_check(turn, self.body, out).await,
            Page::Throttle => throttle::write(turn.state, self.body, turn.now, out),
        };
        answered.is_ok()
    }
}

fn parse(bytes: &[u8]) -> Parsed<'_> {
    if bytes.is_empty() {
        return Parsed::Incomplete;
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let head = match request.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) if bytes.len() < LARGEST => return Parsed::Incomplete,
        Ok(httparse::Status::Partial) | Err(_) => return Parsed::NotPlain,
    };
    let page = match (request.method, request.path, request.version) {
        (Some("POST"), Some("/v1/check"), Some(1)) => Page::Check,
        (Some("POST"), Some("/throttle"), Some(1)) => Page::Throttle,
        _ => return Parsed::NotPlain,
    };
    let Some(Known { length, token }) = known(request.headers) else { return Parsed::NotPlain };
    let all = head.saturating_add(length);
    match bytes.get(head..all) {
        Some(body) => Parsed::Plain(Plain { page, body, length: all, token }),
        None if all <= LARGEST => Parsed::Incomplete,
        None => Parsed::NotPlain,
    }
}

/// What headers say.
struct Known<'a> {
    length: usize,
    token: Option<&'a [u8]>,
}

/// Reads headers, if nothing in them calls for anything unusual.
fn known<'a>(headers: &[httparse::Header<'a>]) -> Option<Known<'a>> {
    let (mut length, mut bearer, mut own) = (None, None, None);
    for header in headers {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        // By its length most can be told to be none of these.
        match header.name.len() {
            14 if is("content-length") => {
                let digits = header.value;
                let is_number = (1..=6).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
                if length.is_some() || !is_number {
                    return None;
                }
                length = std::str::from_utf8(digits).ok()?.parse().ok();
            }
            10 if is("connection") && header.value.eq_ignore_ascii_case(b"keep-alive") => {}
            6 if is("expect") || is("prefer") => return None,
            7 if is("upgrade") => return None,
            10 if is("connection") => return None,
            17 if is("transfer-encoding") => return None,
            13 if is("authorization") => bearer = bearer.or(Some(header.value)),
            16 if is(auth::TOKEN.as_str()) => own = own.or(Some(header.value)),
            _ => {}
        }
    }
    Some(Known { length: length?, token: own.or_else(|| bearer.and_then(bearer_token)) })
}
