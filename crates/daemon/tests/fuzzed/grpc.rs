//! What holds for any bytes that arrive as a question of Envoy's.

use super::messages::rls;
use prost::Message;
use std::sync::LazyLock;
use tollgate::{Time, Tollgate, Value};
use tollgate_daemon::access::Access;
use tollgate_daemon::fault::Fault;
use tollgate_daemon::grpc::envoy::{RateLimitRequest, should_rate_limit};
use tollgate_daemon::grpc::wire::{Malformed, Writer};
use tollgate_daemon::{State, at_once};

const RULES: &str = "
namespace: a
rules:
  - { name: some, match: { k: v }, key: [u], limits: [3 per hour using fixed-window] }
  - { name: all, key: [], limits: [1000 per second] }
";

static STATE: LazyLock<State> = LazyLock::new(|| {
    let rules = Tollgate::from_yaml(RULES).unwrap();
    State::new(rules, 1000, Access::default())
});

/// Reads a message as a library does that others have written, and decides about it.
pub(crate) fn check(bytes: &[u8]) {
    let theirs = rls::RateLimitRequest::decode(bytes);
    match RateLimitRequest::decode(bytes) {
        Ok(ours) => assert_eq!(Ok(copy(&ours)), theirs),
        Err(Fault::Malformed(text)) => assert!(theirs.is_err() || text == Malformed::Group.to_string(), "{text}"),
        Err(fault) => assert!(matches!(fault, Fault::TooLarge(_)), "{fault}"),
    }
    decide(bytes);
}

fn copy(request: &RateLimitRequest<'_>) -> rls::RateLimitRequest {
    let entry = |(key, value): &(&str, Value<'_>)| {
        let Value::Text(value) = value else { panic!("entries are texts") };
        rls::Entry { key: (*key).to_owned(), value: (*value).to_owned() }
    };
    let descriptors = request.descriptors.iter().map(|descriptor| rls::Descriptor {
        entries: request.entries(descriptor).iter().map(entry).collect(),
        limit: descriptor
            .limit
            .map(|limit| rls::Override { requests_per_unit: limit.requests_per_unit, unit: limit.unit as i32 }),
        hits_addend: descriptor.hits_addend,
    });
    rls::RateLimitRequest {
        domain: request.domain.to_owned(),
        descriptors: descriptors.collect(),
        hits_addend: request.hits_addend,
    }
}

/// There is one status for each descriptor, and the request is refused where one of them is.
fn decide(bytes: &[u8]) {
    let mut reply = Writer::default();
    let now = Time::from_nanos(1_800_000_000_000_000_000);
    if at_once(should_rate_limit(STATE.short_turn(now), bytes, &mut reply)).unwrap().is_err() {
        assert!(reply.is_empty());
        return;
    }
    let framed = reply.take();
    let ([0, length @ ..], message) = framed.split_first_chunk::<5>().unwrap() else { panic!("nothing is compressed") };
    assert_eq!(u32::from_be_bytes(*length) as usize, message.len());
    let response = rls::RateLimitResponse::decode(message).unwrap();
    let request = RateLimitRequest::decode(bytes).unwrap();
    assert_eq!(response.statuses.len(), request.descriptors.len());
    let is_over = response.statuses.iter().any(|status| status.code == 2);
    assert_eq!(response.overall_code, if is_over { 2 } else { 1 });
}
