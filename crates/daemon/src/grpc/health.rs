//! `grpc.health.v1`: whether anybody is there, for tools that ask all services the same.

use super::call::{Interrupted, Replies};
use super::refusal::Refusal;
use super::wire::{Malformed, Reader, Writer};
use crate::fault::Fault;
use crate::listen::Stop;
use crate::state::State;
use std::time::Duration;

/// How often whoever watches is told whether something has changed.
const LOOK: Duration = Duration::from_millis(200);

/// What can be asked after: everything, and each service; envoyproxy/ratelimit calls its own `ratelimit`.
const SERVICES: [&str; 4] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService", "tollgate.v1.Tollgate"];

/// `HealthCheckResponse.ServingStatus`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serving {
    Yes = 1,
    No = 2,
    Unknown = 3,
}

/// Answers a `HealthCheckRequest`.
pub(super) fn check(state: &State, message: &[u8], reply: &mut Writer) -> Result<(), Refusal> {
    match status(state, is_known(message)?) {
        Serving::Unknown => Err(Refusal::NoService),
        status => {
            write(reply, status);
            Ok(())
        }
    }
}

/// Answers a `HealthCheckRequest`, and once more when the answer changes, until the client leaves or the daemon ends.
pub(super) async fn watch(
    state: &State,
    message: &[u8],
    replies: &mut Replies,
    mut stop: Stop,
) -> Result<(), Interrupted> {
    let is_known = is_known(message)?;
    let mut reply = Writer::default();
    let mut told = None;
    loop {
        let status = status(state, is_known);
        if told != Some(status) {
            told = Some(status);
            write(&mut reply, status);
            replies.send(reply.take()).await?;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = replies.lost() => return Err(Interrupted::Gone),
            () = stop.come() => {
                if told != Some(Serving::No) && is_known {
                    write(&mut reply, Serving::No);
                    replies.send(reply.take()).await?;
                }
                return Ok(());
            }
        }
    }
}

fn is_known(message: &[u8]) -> Result<bool, Fault> {
    Ok(SERVICES.contains(&service(message)?))
}

fn service(message: &[u8]) -> Result<&str, Malformed> {
    let (mut reader, mut service) = (Reader::new(message), "");
    while let Some((number, field)) = reader.field()? {
        if number == 1 {
            service = field.text()?;
        }
    }
    Ok(service)
}

fn status(state: &State, is_known: bool) -> Serving {
    match is_known {
        false => Serving::Unknown,
        true if state.is_stopping() => Serving::No,
        true => Serving::Yes,
    }
}

fn write(reply: &mut Writer, status: Serving) {
    reply.frame(|reply| reply.number(1, status as u64));
}
