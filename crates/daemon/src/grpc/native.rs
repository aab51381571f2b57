//! Our own service: what RESP and HTTP offer, too. One function a method.

use super::wire::{Field, Malformed, Reader, Writer};
use crate::answer::{Answer, milliseconds};
use crate::fault::Fault;
use crate::holds::HoldId;
use crate::state::{Reserved, Turn};
use smallvec::SmallVec;
use std::time::Duration;
use tollgate::{Request, Time, Value, Verdict};

/// As many requests as a batch can have.
const MOST_REQUESTS: usize = 1000;

/// As many attributes as a request can have.
const MOST_ATTRIBUTES: usize = 64;

/// What came of a call: its answer is written, or there is a fault.
type Done = Result<(), Fault>;

/// `CheckRequest`, and `ReserveRequest`, which has one field more.
struct Asked<'a> {
    namespace: &'a str,
    attributes: SmallVec<[(&'a str, Value<'a>); 8]>,
    cost: u64,
    expires: Option<Duration>,
    /// Whether the answer says what to tell the client.
    wants_headers: bool,
}

impl<'a> Asked<'a> {
    fn decode(message: &'a [u8]) -> Result<Asked<'a>, Fault> {
        let mut asked =
            Asked { namespace: "", attributes: SmallVec::new(), cost: 1, expires: None, wants_headers: false };
        let mut reader = Reader::new(message);
        while let Some((number, field)) = reader.field()? {
            match number {
                1 => asked.namespace = field.text()?,
                2 if asked.attributes.len() == MOST_ATTRIBUTES => {
                    return Err(Fault::TooLarge(format!("a request has at most {MOST_ATTRIBUTES} attributes").into()));
                }
                2 => asked.attributes.push(attribute(field)?),
                3 => asked.cost = field.number()?,
                4 => asked.expires = Some(Duration::from_millis(field.number()?)),
                5 => asked.wants_headers = field.number()? != 0,
                _ => {}
            }
        }
        Ok(asked)
    }

    fn borrow(&self) -> Request<'_> {
        Request::new(self.namespace, &self.attributes).with_cost(self.cost)
    }
}

fn attribute<'a>(field: Field<'a>) -> Result<(&'a str, Value<'a>), Malformed> {
    let (mut reader, mut name, mut value) = (field.message()?, "", "");
    while let Some((number, field)) = reader.field()? {
        match number {
            1 => name = field.text()?,
            2 => value = field.text()?,
            _ => {}
        }
    }
    Ok((name, Value::Text(value)))
}

/// `SettleRequest`, and `RefundRequest`, which has one field less.
fn settlement(message: &[u8]) -> Result<(HoldId, u64), Fault> {
    let (mut reader, mut id, mut actual) = (Reader::new(message), "", 0);
    while let Some((number, field)) = reader.field()? {
        match number {
            1 => id = field.text()?,
            2 => actual = field.number()?,
            _ => {}
        }
    }
    Ok((id.parse()?, actual))
}

pub(super) async fn check(turn: Turn<'_>, message: &[u8], reply: &mut Writer) -> Done {
    let asked = Asked::decode(message)?;
    let answer = |verdict: &mut Verdict| reply.frame(|reply| tell(reply, &asked, verdict, turn.now));
    turn.decide(&asked.borrow(), answer).await;
    Ok(())
}

fn tell(reply: &mut Writer, asked: &Asked<'_>, verdict: &Verdict, now: Time) {
    write(reply, &Answer::new(verdict));
    if asked.wants_headers {
        verdict.headers(now, |name, value| {
            reply.message(11, |reply| {
                reply.bytes(1, name.as_bytes());
                reply.bytes(2, value.as_bytes());
            });
        });
    }
}

/// Decides each by itself, and says how many there were. If one of them makes no sense, none is decided.
pub(super) async fn check_many(turn: Turn<'_>, message: &[u8], reply: &mut Writer) -> Result<u64, Fault> {
    let (mut reader, mut requests) = (Reader::new(message), Vec::new());
    while let Some((number, field)) = reader.field()? {
        if number == 1 {
            if requests.len() == MOST_REQUESTS {
                return Err(Fault::TooLarge(format!("a batch has at most {MOST_REQUESTS} requests").into()));
            }
            requests.push(Asked::decode(field.bytes()?)?);
        }
    }
    turn.lasts().await;
    let start = reply.begin();
    for asked in &requests {
        let answer = |verdict: &mut Verdict| reply.message(1, |reply| tell(reply, asked, verdict, turn.now));
        turn.decide(&asked.borrow(), answer).await;
    }
    reply.end(start);
    Ok(requests.len() as u64)
}

pub(super) async fn peek(turn: Turn<'_>, message: &[u8], reply: &mut Writer) -> Done {
    let verdict = turn.peek(&Asked::decode(message)?.borrow()).await;
    reply.frame(|reply| write(reply, &Answer::new(&verdict)));
    Ok(())
}

pub(super) async fn explain(turn: Turn<'_>, message: &[u8], reply: &mut Writer) -> Done {
    let explanation = turn.explain(&Asked::decode(message)?.borrow()).await;
    reply.frame(|reply| {
        reply.bytes(1, explanation.to_string().as_bytes());
        reply.message(2, |reply| write(reply, &Answer::new(&explanation.verdict)));
    });
    Ok(())
}

pub(super) async fn reset(turn: Turn<'_>, message: &[u8], reply: &mut Writer) -> Done {
    let buckets = turn.reset(&Asked::decode(message)?.borrow()).await?;
    reply.frame(|reply| reply.plain_number(1, buckets as u64));
    Ok(())
}

pub(super) async fn reserve(turn: Turn<'_>, message: &[u8], reply: &mut Writer) -> Done {
    let asked = Asked::decode(message)?;
    match turn.reserve(&asked.borrow(), asked.expires).await? {
        Reserved::Refused(verdict) => reply.frame(|reply| write(reply, &Answer::new(&verdict))),
        Reserved::Open { id, wait, is_degraded } => reply.frame(|reply| {
            reply.number(1, 1);
            reply.number(2, 200);
            reply.plain_number(5, milliseconds(wait));
            reply.bytes(10, id.to_string().as_bytes());
            reply.plain_number(12, is_degraded.into());
        }),
    }
    Ok(())
}

pub(super) async fn settle(turn: Turn<'_>, message: &[u8], reply: &mut Writer) -> Done {
    let (id, actual) = settlement(message)?;
    turn.settle(id, actual).await?;
    reply.frame(|_| {});
    Ok(())
}

pub(super) async fn refund(turn: Turn<'_>, message: &[u8], reply: &mut Writer) -> Done {
    let (id, _) = settlement(message)?;
    turn.settle(id, 0).await?;
    reply.frame(|_| {});
    Ok(())
}

/// `Answer`
fn write(reply: &mut Writer, answer: &Answer<'_>) {
    reply.plain_number(1, answer.allowed.into());
    reply.plain_number(2, answer.status.into());
    let optional = [
        (3, answer.limit),
        (4, answer.remaining),
        (5, Some(milliseconds(answer.wait)).filter(|wait| *wait > 0)),
        (6, answer.retry_after.map(milliseconds)),
        (7, answer.reset_after.map(milliseconds)),
    ];
    for (field, number) in optional {
        number.into_iter().for_each(|number| reply.number(field, number));
    }
    if let Some(rule) = answer.rule {
        reply.bytes(8, rule.as_bytes());
    }
    reply.bytes(9, answer.reason.as_bytes());
    reply.plain_number(12, answer.degraded.into());
}
