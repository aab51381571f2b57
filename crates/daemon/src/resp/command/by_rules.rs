//! What rules are asked.

use super::{Done, wrong_arity};
use crate::answer::{Answer, milliseconds};
use crate::fault::Fault;
use crate::resp::reply::Replies;
use crate::state::{Reserved, Turn};
use smallvec::SmallVec;
use std::time::Duration;
use tollgate::{Request, Time, Value, Verdict};

/// A command that is answered by rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByRules {
    Check,
    CheckHeaders,
    Peek,
    Explain,
    Reserve,
    Settle,
    Refund,
    ResetClient,
}

impl ByRules {
    pub(super) fn find(name: &[u8]) -> Option<ByRules> {
        Some(match name {
            b"CHECK" => ByRules::Check,
            b"CHECK.HEADERS" => ByRules::CheckHeaders,
            b"PEEK" => ByRules::Peek,
            b"EXPLAIN" => ByRules::Explain,
            b"RESERVE" => ByRules::Reserve,
            b"SETTLE" => ByRules::Settle,
            b"REFUND" => ByRules::Refund,
            b"RESET.CLIENT" => ByRules::ResetClient,
            _ => return None,
        })
    }

    /// Answers it. Nothing is written before it is decided.
    pub(super) async fn answer(self, turn: Turn<'_>, arguments: &[&[u8]], replies: &mut Replies) -> Done {
        match self {
            ByRules::Check => {
                let asked = request("CHECK", arguments)?;
                turn.decide(&asked.borrow(), |verdict| tell(&Answer::new(verdict), replies)).await;
            }
            ByRules::CheckHeaders => {
                let asked = request("CHECK.HEADERS", arguments)?;
                turn.decide(&asked.borrow(), |verdict| tell_with_headers(verdict, turn.now, replies)).await;
            }
            ByRules::Peek => {
                let verdict = turn.peek(&request("PEEK", arguments)?.borrow()).await;
                tell(&Answer::new(&verdict), replies);
            }
            ByRules::Explain => {
                let explanation = turn.explain(&request("EXPLAIN", arguments)?.borrow()).await;
                replies.bulk(explanation.to_string().as_bytes());
            }
            ByRules::Reserve => return reserve(turn, arguments, replies).await,
            ByRules::Settle => return settle(turn, arguments, replies).await,
            ByRules::Refund => return refund(turn, arguments, replies).await,
            ByRules::ResetClient => {
                replies.count(turn.reset(&request("RESET.CLIENT", arguments)?.borrow()).await?);
            }
        }
        Ok(())
    }
}

/// `namespace cost [attribute value ...]`
struct Asked<'a> {
    namespace: &'a str,
    cost: u64,
    attributes: SmallVec<[(&'a str, Value<'a>); 8]>,
}

impl Asked<'_> {
    fn borrow(&self) -> Request<'_> {
        Request::new(self.namespace, &self.attributes).with_cost(self.cost)
    }
}

fn request<'a>(command: &str, arguments: &[&'a [u8]]) -> Result<Asked<'a>, Fault> {
    let usage = || format!("{command} namespace cost [attribute value ...]");
    let [namespace, cost, rest @ ..] = arguments else { return Err(wrong_arity(command, &usage())) };
    asked(namespace, cost, rest, usage)
}

fn asked<'a>(
    namespace: &'a [u8],
    cost: &[u8],
    rest: &[&'a [u8]],
    usage: impl Fn() -> String,
) -> Result<Asked<'a>, Fault> {
    let (pairs, []) = rest.as_chunks::<2>() else {
        return Err(Fault::Malformed(format!("an attribute without a value; usage: {}", usage()).into()));
    };
    let pair = |[name, value]: &[&'a [u8]; 2]| Ok((text(name)?, Value::Text(text(value)?)));
    let attributes = pairs.iter().map(pair).collect::<Result<_, Fault>>()?;
    Ok(Asked { namespace: text(namespace)?, cost: whole(cost, "the cost")?, attributes })
}

fn text(bytes: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(bytes).map_err(|_| Fault::Malformed("arguments are UTF-8".into()))
}

fn whole(bytes: &[u8], what: &str) -> Result<u64, Fault> {
    text(bytes)?.parse().map_err(|_| Fault::Malformed(format!("{what} is a whole number from 0").into()))
}

const RESERVE_USAGE: &str = "RESERVE namespace cost milliseconds [attribute value ...]";

async fn reserve(turn: Turn<'_>, arguments: &[&[u8]], replies: &mut Replies) -> Done {
    let [namespace, cost, expires, rest @ ..] = arguments else { return Err(wrong_arity("RESERVE", RESERVE_USAGE)) };
    let asked = asked(namespace, cost, rest, || RESERVE_USAGE.to_owned())?;
    let expires = Duration::from_millis(whole(expires, "the time to settle it within")?);
    match turn.reserve(&asked.borrow(), Some(expires)).await? {
        Reserved::Refused(verdict) => tell(&Answer::new(&verdict), replies),
        Reserved::Open { id, wait, is_degraded } => {
            replies.map(4 + usize::from(is_degraded));
            replies.pair("allowed", 1);
            replies.pair("status", 200);
            replies.pair("wait_ms", number(milliseconds(wait)));
            replies.bulk(b"reservation");
            replies.bulk(id.to_string().as_bytes());
            tell_degraded(is_degraded, replies);
        }
    }
    Ok(())
}

async fn settle(turn: Turn<'_>, arguments: &[&[u8]], replies: &mut Replies) -> Done {
    let [id, actual] = arguments else { return Err(wrong_arity("SETTLE", "SETTLE reservation actual-cost")) };
    turn.settle(text(id)?.parse()?, whole(actual, "the actual cost")?).await?;
    replies.simple("OK");
    Ok(())
}

async fn refund(turn: Turn<'_>, arguments: &[&[u8]], replies: &mut Replies) -> Done {
    let [id] = arguments else { return Err(wrong_arity("REFUND", "REFUND reservation")) };
    turn.settle(text(id)?.parse()?, 0).await?;
    replies.simple("OK");
    Ok(())
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What a verdict says, as names and values; -1 for what there is not.
fn tell(answer: &Answer<'_>, replies: &mut Replies) {
    replies.map(9 + usize::from(answer.degraded));
    tell_fields(answer, replies);
    tell_degraded(answer.degraded, replies);
}

/// Last, and only where it is so: whoever goes by the order of the fields finds them where they always are.
fn tell_degraded(is_degraded: bool, replies: &mut Replies) {
    if is_degraded {
        replies.pair("degraded", 1);
    }
}

/// The same, and what to tell the client, as names and values of headers.
fn tell_with_headers(verdict: &Verdict, now: Time, replies: &mut Replies) {
    let answer = Answer::new(verdict);
    replies.map(10 + usize::from(answer.degraded));
    tell_fields(&answer, replies);
    replies.bulk(b"headers");
    let mut headers: SmallVec<[(&str, String); 8]> = SmallVec::new();
    verdict.headers(now, |name, value| headers.push((name, value.to_owned())));
    replies.map(headers.len());
    for (name, value) in headers {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
    tell_degraded(answer.degraded, replies);
}

fn tell_fields(answer: &Answer<'_>, replies: &mut Replies) {
    let time = |time: Option<Duration>| time.map_or(-1, |time| number(milliseconds(time)));
    replies.pair("allowed", i64::from(answer.allowed));
    replies.pair("status", answer.status.into());
    replies.pair("limit", answer.limit.map_or(-1, number));
    replies.pair("remaining", answer.remaining.map_or(-1, number));
    replies.pair("wait_ms", time(Some(answer.wait)));
    replies.pair("retry_after_ms", time(answer.retry_after));
    replies.pair("reset_after_ms", time(answer.reset_after));
    replies.bulk(b"rule");
    replies.bulk(answer.rule.unwrap_or_default().as_bytes());
    replies.bulk(b"reason");
    replies.bulk(answer.reason.as_bytes());
}
