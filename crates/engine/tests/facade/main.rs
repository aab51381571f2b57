//! What the facade promises to the service that embeds it, on clocks that the tests move.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod capacity;
mod change;
mod clocks;
mod decisions;
mod keys;
mod many;
mod reservations;
mod threads;
#[cfg(feature = "async")]
mod until_ready;
mod waiting;

use std::time::Duration;
use tollgate::{
    Blocked, Calendar, CalendarUnit, Clock, KeyedRateLimiter, KeyedRateLimiterBuilder, Limit, ManualClock, Quota,
    RateLimiter, RateLimiterBuilder,
};

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A token bucket for everybody, and the hands of its clock.
fn everybody(text: &str) -> (RateLimiter, ManualClock) {
    started(RateLimiter::builder(quota(text)))
}

/// A token bucket for every client, and the hands of their clock.
fn each_client(text: &str) -> (KeyedRateLimiter, ManualClock) {
    started_keyed(KeyedRateLimiter::builder(quota(text)))
}

fn started(builder: RateLimiterBuilder) -> (RateLimiter, ManualClock) {
    let (clock, hands) = Clock::manual();
    (builder.clock(clock).build(), hands)
}

fn started_keyed(builder: KeyedRateLimiterBuilder) -> (KeyedRateLimiter, ManualClock) {
    let (clock, hands) = Clock::manual();
    (builder.clock(clock).build(), hands)
}

/// Each algorithm with 10 tokens, all of which a client of whom nothing is known can take at once.
fn limits_of_ten() -> Vec<Limit> {
    let ten = quota("10 per hour");
    let today = Calendar::utc(CalendarUnit::Day);
    vec![
        Limit::token_bucket(ten),
        Limit::token_bucket(quota("3 per hour burst 10")),
        Limit::token_bucket(quota("3_000_000_000 per second burst 10")),
        Limit::leaky_queue(ten),
        Limit::fixed_window(ten),
        Limit::calendar_window(10, today).unwrap(),
        Limit::cycles(ten, Duration::ZERO),
        Limit::sliding_window(ten),
        Limit::sliding_log(ten),
        hammered_log(),
    ]
}

/// Ten an hour, refused attempts included.
fn hammered_log() -> Limit {
    Limit::rolling_log(quota("10 per hour"), Duration::ZERO, Blocked::Counted)
}
