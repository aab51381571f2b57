//! `POST /throttle`, as throttlecrab answers it.

use super::number::Signed;
use super::reply::{self, Reply};
use super::server::Visit;
use crate::fault::Fault;
use crate::state::State;
use crate::throttle::Throttle;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use tollgate::Time;

/// What throttlecrab's clients ask. Fields that it does not know it ignores, and so they are here.
#[derive(Debug, Deserialize)]
struct Ask<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    max_burst: Signed,
    count_per_period: Signed,
    period: Signed,
    quantity: Option<Signed>,
}

#[derive(Debug, Serialize)]
struct Told {
    allowed: bool,
    limit: i64,
    remaining: i64,
    reset_after: i64,
    retry_after: i64,
}

/// Decides by the bucket of a key.
pub(super) fn throttle(visit: &Visit, headers: HeaderMap, body: &[u8]) -> Result<Reply, Fault> {
    let mut answer = Vec::new();
    write(&visit.state, body, visit.state.now(), &mut answer)?;
    Ok(reply::json_text(headers, answer))
}

/// The same, written to `out`.
pub(super) fn write(state: &State, body: &[u8], now: Time, out: &mut Vec<u8>) -> Result<(), Fault> {
    let ask: Ask<'_> =
        serde_json::from_slice(body).map_err(|error| Fault::Malformed(format!("the body: {error}").into()))?;
    let throttle = Throttle {
        max_burst: ask.max_burst.0,
        count: ask.count_per_period.0,
        period: ask.period.0,
        quantity: ask.quantity.map_or(1, |quantity| quantity.0),
    };
    let limit = throttle.limit().map_err(|error| Fault::Malformed(error.to_string().into()))?;
    let throttled = throttle.decide(ask.key.as_bytes(), &limit, state.buckets(), now);
    let [allowed, limit, remaining, reset_after, retry_after] = throttled.as_crab();
    // Writing to memory cannot fail.
    _ = serde_json::to_writer(out, &Told { allowed: allowed == 1, limit, remaining, reset_after, retry_after });
    Ok(())
}
