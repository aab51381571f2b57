//! Envoy's rate limit service, as envoyproxy/ratelimit answers it.
//!
//! The descriptors of a request are decided together: it pays for all of them or for none. What Envoy is told about
//! each is the limit that has the least left, or the one that refuses.

mod decode;
mod overrides;
mod status;
mod units;

pub use decode::{Descriptor, MOST_DESCRIPTORS, MOST_ENTRIES, Override, RateLimitRequest};

use super::wire::Writer;
use crate::fault::Fault;
use crate::state::{State, Turn};
use overrides::Overrides;
use smallvec::SmallVec;
use status::{Code, Status};
use tollgate::{Request, Time, Verdict};

/// Answers a `RateLimitRequest` by a `RateLimitResponse`.
///
/// # Errors
/// What is no request. Nothing was taken.
pub async fn should_rate_limit(turn: Turn<'_>, message: &[u8], reply: &mut Writer) -> Result<(), Fault> {
    let request = RateLimitRequest::decode(message)?;
    if request.domain.is_empty() {
        return Err(Fault::Malformed("the domain is empty; it is the namespace of the rules".into()));
    }
    if request.descriptors.is_empty() {
        return Err(Fault::Malformed("there are no descriptors; Envoy's route has to send at least one".into()));
    }
    let brings_limits = request.descriptors.iter().any(|descriptor| descriptor.limit.is_some());
    if brings_limits && turn.state.engine().in_force().namespace(request.domain).is_some() {
        decide_with_overrides(turn, &request, reply).await
    } else {
        decide(turn, &request, reply).await;
        Ok(())
    }
}

/// Decides by the rules alone.
async fn decide(turn: Turn<'_>, request: &RateLimitRequest<'_>, reply: &mut Writer) {
    let parts: Parts<'_> = request.descriptors.iter().map(|descriptor| request.part(descriptor)).collect();
    let (state, now) = (turn.state, turn.now);
    let tell = |verdict: &mut Verdict| {
        write(reply, goes_ahead(verdict), |reply| {
            for (part, asked) in parts.iter().enumerate() {
                Status::of_part(state, verdict, (part, asked), now).write(reply);
            }
        });
        cancel_wait(state, verdict, now);
    };
    turn.decide_all(&parts, tell).await;
}

type Parts<'a> = SmallVec<[Request<'a>; 4]>;

/// Decides by the rules, but for those descriptors that bring their own limit.
async fn decide_with_overrides(
    turn: Turn<'_>,
    request: &RateLimitRequest<'_>,
    reply: &mut Writer,
) -> Result<(), Fault> {
    let (state, now) = (turn.state, turn.now);
    let mut overrides = overrides::find(request)?;
    turn.lasts().await;
    let ruled = request.descriptors.iter().filter(|descriptor| descriptor.limit.is_none());
    let parts: Parts<'_> = ruled.map(|descriptor| request.part(descriptor)).collect();
    if !overrides::take(&mut overrides, state.buckets(), now) {
        // Nobody pays, so the rules are only asked what they would say.
        let mut verdicts: SmallVec<[Verdict; 1]> = SmallVec::new();
        for part in &parts {
            verdicts.push(turn.peek(part).await);
        }
        let statuses = verdicts.iter().zip(&parts);
        let statuses = statuses.map(|(verdict, part)| Status::of_part(state, verdict, (0, part), now));
        write_mixed(reply, false, request, &overrides, statuses, now);
        return Ok(());
    }
    let tell = |verdict: &mut Verdict| {
        let is_allowed = goes_ahead(verdict);
        if !is_allowed {
            overrides::give_back(&mut overrides, state.buckets(), now);
        }
        let statuses = parts.iter().enumerate().map(|part| Status::of_part(state, verdict, part, now));
        write_mixed(reply, is_allowed, request, &overrides, statuses, now);
        cancel_wait(state, verdict, now);
    };
    turn.decide_all(&parts, tell).await;
    Ok(())
}

/// Envoy cannot be told to wait, so who would have to is refused.
fn goes_ahead(verdict: &Verdict) -> bool {
    verdict.is_allowed() && verdict.wait().is_zero()
}

/// Who was refused for having to wait gets back what the wait was for.
fn cancel_wait(state: &State, verdict: &mut Verdict, now: Time) {
    if !verdict.wait().is_zero() {
        state.engine().cancel(verdict.take_booking(), now);
    }
}

/// Writes the statuses of descriptors by rules and of those with their own limit, in the order of the request.
fn write_mixed<'v>(
    reply: &mut Writer,
    is_allowed: bool,
    request: &RateLimitRequest<'_>,
    overrides: &Overrides<'_>,
    mut ruled: impl Iterator<Item = Status<'v>>,
    now: Time,
) {
    let mut overrides = overrides.iter().peekable();
    write(reply, is_allowed, |reply| {
        for index in 0..request.descriptors.len() {
            let own = overrides.next_if(|one| one.descriptor == index).map(|one| Status::of_override(one, now));
            if let Some(status) = own.or_else(|| ruled.next()) {
                status.write(reply);
            }
        }
    });
}

fn write(reply: &mut Writer, is_allowed: bool, statuses: impl FnOnce(&mut Writer)) {
    reply.frame(|reply| {
        reply.number(1, Code::new(is_allowed) as u64);
        statuses(reply);
    });
}
