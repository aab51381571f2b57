//! Guava's `SmoothWarmingUp`: after a pause the rate comes back slowly, so that a cold service can warm up.
//!
//! Permits pile up while nobody asks. Up to the threshold they are handed out at the stable interval; above
//! it, the more there are (the colder it is), the longer each takes, up to the cold factor times as long.

use super::{Algorithm, Booking, Unserved};
use crate::pace::{BOOKING_NANOS, SKEW_NANOS};
use crate::quota::{Quota, QuotaError};
use crate::time::{Time, nanos};
use std::time::Duration;

/// The quota's rate, reached over a warm-up period after every pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SmoothWarmingUp {
    timeout: Duration,
    pub(crate) warm_up: u64,
    /// Nanoseconds per permit when warm, and how much longer each permit above the threshold makes it.
    pub(crate) interval: f64,
    pub(crate) slope: f64,
    /// Stored permits: from where on it is cold, and the most there can be.
    pub(crate) threshold: f64,
    pub(crate) most: f64,
}

/// What Guava keeps: permits in store, and when the next request may go ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Warmth {
    pub(crate) stored: f64,
    pub(crate) next_free: u64,
}

/// Idle for so long that every permit is in store: as cold as it gets.
impl Default for Warmth {
    fn default() -> Warmth {
        Warmth { stored: f64::INFINITY, next_free: 0 }
    }
}

impl SmoothWarmingUp {
    /// Guava's cold factor: when cold, a permit takes three times as long.
    pub(crate) const COLD_FACTOR: f64 = 3.0;

    /// `count` permits per `period`, reached after `warm_up`; a caller waits up to `timeout` for the request
    /// before it to be paid. The burst plays no part.
    ///
    /// # Errors
    /// A warm-up of no time at all.
    pub(crate) fn new(quota: Quota, warm_up: Duration, timeout: Duration) -> Result<SmoothWarmingUp, QuotaError> {
        SmoothWarmingUp::with_cold_factor(quota, warm_up, SmoothWarmingUp::COLD_FACTOR, timeout)
    }

    /// The same with another cold factor, above 1.
    ///
    /// # Errors
    /// A warm-up of no time at all, or a cold factor that is not above 1.
    pub(crate) fn with_cold_factor(
        quota: Quota,
        warm_up: Duration,
        cold_factor: f64,
        timeout: Duration,
    ) -> Result<SmoothWarmingUp, QuotaError> {
        if warm_up.is_zero() || !cold_factor.is_finite() || cold_factor <= 1.0 {
            return Err(QuotaError::ZeroPeriod);
        }
        let interval = nanos(quota.period()) as f64 / quota.count() as f64;
        let cold_interval = interval * cold_factor;
        let warm_up = nanos(warm_up);
        let threshold = 0.5 * warm_up as f64 / interval;
        let most = threshold + 2.0 * warm_up as f64 / (interval + cold_interval);
        let slope = (cold_interval - interval) / (most - threshold);
        Ok(SmoothWarmingUp { timeout, warm_up, interval, slope, threshold, most })
    }

    /// Nanoseconds that anything can bring it ahead of now: half for waits, half for what is borrowed.
    pub(crate) fn furthest(&self) -> u64 {
        self.warm_up.saturating_mul(10).clamp(BOOKING_NANOS, 1 << 62)
    }

    /// Permits in store now: all of them come back in one warm-up period.
    fn stored(&self, state: &Warmth, now: Time) -> f64 {
        let idle = now.as_nanos().saturating_sub(state.next_free) as f64;
        (state.stored + idle * self.most / self.warm_up as f64).min(self.most)
    }

    /// How long `taken` permits take when there are `stored`: the area under the line from there on.
    fn price(&self, stored: f64, taken: f64) -> f64 {
        let above = (stored - self.threshold).max(0.0);
        let cold = above.min(taken);
        let interval_at = |above: f64| self.interval + above * self.slope;
        cold * (interval_at(above) + interval_at(above - cold)) / 2.0 + (taken - cold) * self.interval
    }
}

impl Algorithm for SmoothWarmingUp {
    type State = Warmth;

    fn limit(&self) -> u64 {
        self.most as u64
    }

    fn available(&self, state: &Warmth, now: Time) -> i64 {
        let unpaid = state.next_free.saturating_sub(now.as_nanos());
        if unpaid > 0 { -((unpaid as f64 / self.interval).ceil() as i64) } else { self.stored(state, now) as i64 }
    }

    /// Until the request before is paid.
    fn delay(&self, state: &Warmth, cost: u64, now: Time) -> Option<Duration> {
        let dearest = self.price(self.most, cost as f64);
        (dearest <= self.furthest() as f64 / 2.0).then(|| Time::from_nanos(state.next_free).since(now))
    }

    fn patience(&self, _cost: u64, asked: Option<Duration>) -> Duration {
        asked.unwrap_or(self.timeout).min(Duration::from_nanos(self.furthest() / 2))
    }

    fn spend(&self, state: &mut Warmth, cost: u64, now: Time) {
        let stored = self.stored(state, now);
        let price = self.price(stored, cost as f64) as u64;
        let next_free = state.next_free.max(now.as_nanos()).saturating_add(price);
        *state = Warmth { stored: (stored - cost as f64).max(0.0), next_free };
    }

    fn charge(&self, state: &mut Warmth, cost: u64, now: Time) {
        let before = state.next_free;
        self.spend(state, cost, now);
        let furthest = now.as_nanos().saturating_add(self.furthest());
        state.next_free = state.next_free.min(furthest).max(before);
    }

    /// Also what the next one would have had to pay for them.
    fn refund(&self, state: &mut Warmth, tokens: u64, now: Time) {
        let stored = (self.stored(state, now) + tokens as f64).min(self.most);
        let price = self.price(stored, tokens as f64) as u64;
        let next_free = state.next_free.saturating_sub(price).max(now.as_nanos());
        *state = Warmth { stored, next_free };
    }

    fn repair(&self, state: &mut Warmth, now: Time) -> bool {
        let furthest = now.as_nanos().saturating_add(self.furthest()).saturating_add(SKEW_NANOS);
        let broken = state.next_free > furthest;
        if broken {
            *state = Warmth { stored: 0.0, next_free: now.as_nanos() };
        }
        broken
    }

    /// Permits missing in store are none owed.
    fn holding(&self, tokens: i64, now: Time) -> Warmth {
        let owed = tokens.min(0).unsigned_abs() as f64 * self.interval;
        let next_free = now.as_nanos().saturating_add((owed as u64).min(self.furthest()));
        Warmth { stored: (tokens.max(0) as f64).min(self.most), next_free }
    }

    fn reset_after(&self, state: &Warmth, now: Time) -> Duration {
        let missing = self.most - self.stored(state, now);
        let refill = missing.max(0.0) * self.warm_up as f64 / self.most;
        Time::from_nanos(state.next_free).since(now) + Duration::from_nanos(refill.ceil() as u64)
    }

    /// Nothing: what a permit cost depends on how cold it was, and the next in line already waits for it.
    fn unserved(&self, _state: &Warmth, _booking: &Booking, _now: Time) -> Unserved {
        Unserved::default()
    }
}
