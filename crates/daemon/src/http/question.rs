//! Questions by rules, in JSON: what is asked, and what is answered.

mod ask;
mod told;

use super::body::is_list;
use super::number::Whole;
use super::query::parameter;
use super::reply::{self, Reply};
use super::server::Visit;
use crate::answer::{Answer, milliseconds};
use crate::fault::Fault;
use crate::meters::Protocol;
use crate::state::{Reserved, Turn};
use ask::{Ask, Asks, Refund, Reserve, Settle, parse};
use http::{HeaderMap, Uri};
use serde::Serialize;
use std::time::Duration;
use told::{Explained, Told};
use tollgate::{Action, Time, Verdict};

/// `POST /v1/check`: decides about one request, or about each of many by itself.
pub(super) async fn check(visit: &Visit, headers: HeaderMap, uri: &Uri, body: &[u8]) -> Result<Reply, Fault> {
    let turn = visit.turn();
    // The verdicts of a list have no status in common.
    if wants_status(&headers, uri)? && !is_list(body) {
        return check_by_status(turn, headers, body).await;
    }
    let mut answers = Vec::with_capacity(ROOM_FOR_ONE);
    write_check(turn, body, &mut answers).await?;
    Ok(reply::json_text(headers, answers))
}

/// Decides, and writes the answer or the answers.
pub(super) async fn write_check(turn: Turn<'_>, body: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    if !is_list(body) {
        write_one(turn, &parse(body)?, out).await;
        return Ok(());
    }
    let asks: Asks<'_> = parse(body)?;
    turn.lasts().await;
    // The request itself is counted as one.
    turn.state.meters().of(Protocol::Http).asked((asks.0.len() as u64).saturating_sub(1));
    out.reserve(asks.0.len() * ROOM_FOR_ONE);
    out.push(b'[');
    for (at, ask) in asks.0.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_one(turn, ask, out).await;
    }
    out.push(b']');
    Ok(())
}

async fn write_one(turn: Turn<'_>, ask: &Ask<'_>, out: &mut Vec<u8>) {
    let attributes = ask.attributes.borrow();
    // Writing to memory cannot fail.
    let tell = |verdict: &mut Verdict| _ = serde_json::to_writer(out, &Told::new(&Answer::new(verdict)));
    turn.decide(&ask.request(&attributes), tell).await;
}

/// The same with the status that the verdict has for the client.
async fn check_by_status(turn: Turn<'_>, headers: HeaderMap, body: &[u8]) -> Result<Reply, Fault> {
    let ask: Ask<'_> = parse(body)?;
    let attributes = ask.attributes.borrow();
    Ok(turn.decide(&ask.request(&attributes), |verdict| by_status(headers, verdict, turn.now)).await)
}

fn by_status(headers: HeaderMap, verdict: &Verdict, now: Time) -> Reply {
    match verdict.action() {
        Action::Refuse(status) => reply::refusal(verdict, status, now),
        // To close a connection is up to who has it.
        Action::Drop => reply::refusal(verdict, 429, now),
        Action::Allow | Action::Wait(_) => {
            let mut reply = reply::json(headers, &Told::new(&Answer::new(verdict)));
            reply::add_limits(&mut reply, verdict, now);
            reply
        }
    }
}

/// What fits most answers.
const ROOM_FOR_ONE: usize = 192;

/// Whether the answer is to have the status of the verdict.
fn wants_status(headers: &HeaderMap, uri: &Uri) -> Result<bool, Fault> {
    if uri.query().is_some() {
        match parameter(uri.query(), "status")?.as_deref() {
            None => {}
            Some("verdict") => return Ok(true),
            Some(_) => return Err(Fault::Malformed("`status` in the query is `verdict`, or left out".into())),
        }
    }
    let preferences = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    Ok(preferences.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case("status")))
}

/// `POST /v1/peek`: what a check would say.
pub(super) async fn peek(visit: &Visit, headers: HeaderMap, body: &[u8]) -> Result<Reply, Fault> {
    let ask: Ask<'_> = parse(body)?;
    let verdict = visit.turn().peek(&ask.request(&ask.attributes.borrow())).await;
    Ok(reply::json(headers, &Told::new(&Answer::new(&verdict))))
}

/// `POST /v1/explain`: every rule, and why it applies or not.
pub(super) async fn explain(visit: &Visit, headers: HeaderMap, body: &[u8]) -> Result<Reply, Fault> {
    let ask: Ask<'_> = parse(body)?;
    let explanation = visit.turn().explain(&ask.request(&ask.attributes.borrow())).await;
    Ok(reply::json(headers, &Explained::new(&explanation)))
}

/// `POST /v1/reset`: forgets what a client has spent.
pub(super) async fn reset(visit: &Visit, headers: HeaderMap, body: &[u8]) -> Result<Reply, Fault> {
    #[derive(Serialize)]
    struct Done {
        buckets: usize,
    }
    let ask: Ask<'_> = parse(body)?;
    let buckets = visit.turn().reset(&ask.request(&ask.attributes.borrow())).await?;
    Ok(reply::json(headers, &Done { buckets }))
}

/// `POST /v1/reserve`: takes an estimate.
pub(super) async fn reserve(visit: &Visit, headers: HeaderMap, body: &[u8]) -> Result<Reply, Fault> {
    #[derive(Serialize)]
    struct Open {
        allowed: bool,
        status: u16,
        wait_ms: u64,
        reservation: String,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        degraded: bool,
    }
    let ask: Reserve<'_> = parse(body)?;
    let expires_after = ask.expires_ms.map(|Whole(time)| Duration::from_millis(time));
    let pairs = ask.attributes.borrow();
    Ok(match visit.turn().reserve(&ask.request(&pairs), expires_after).await? {
        Reserved::Refused(verdict) => reply::json(headers, &Told::new(&Answer::new(&verdict))),
        Reserved::Open { id, wait, is_degraded: degraded } => {
            let (wait_ms, reservation) = (milliseconds(wait), id.to_string());
            reply::json(headers, &Open { allowed: true, status: 200, wait_ms, reservation, degraded })
        }
    })
}

/// `POST /v1/settle`: says what a reservation really was.
pub(super) async fn settle(visit: &Visit, headers: HeaderMap, body: &[u8]) -> Result<Reply, Fault> {
    let Settle { reservation, actual: Whole(actual) } = parse(body)?;
    visit.turn().settle(reservation.parse()?, actual).await?;
    Ok(reply::json(headers, &Settled { settled: true }))
}

/// `POST /v1/refund`: gives a reservation back.
pub(super) async fn refund(visit: &Visit, headers: HeaderMap, body: &[u8]) -> Result<Reply, Fault> {
    let Refund { reservation } = parse(body)?;
    visit.turn().settle(reservation.parse()?, 0).await?;
    Ok(reply::json(headers, &Settled { settled: true }))
}

#[derive(Serialize)]
struct Settled {
    settled: bool,
}
