//! The word that token bucket, leaky queue and Guava's limiter share: when the bucket will be full again.
//!
//! Being `t` away from full means that `t` times the rate tokens are missing. Nothing ever refills a bucket;
//! time passes. The three differ in [`BucketRule`] alone: how long a request is held back, and how long it
//! lets itself be held back.

use super::{Algorithm, Booking, Change, Unserved};
use crate::pace::Pace;
use crate::quota::Quota;
use crate::time::Time;
use std::time::Duration;

/// What differs between the limits that keep a bucket.
pub(crate) trait BucketRule {
    fn burst(&self) -> u64;
    fn pace(&self) -> Pace;
    /// See [`Algorithm::delay`].
    fn delay(&self, bucket: &Bucket, cost: u64) -> Option<Duration>;
    /// Whether that is no time at all.
    fn fits(&self, bucket: &Bucket, cost: u64) -> bool;
    /// Whether somebody may still be waiting for the time that was told.
    fn is_waited_for(&self, bucket: &Bucket) -> bool {
        bucket.owed > bucket.pace.fill
    }
    /// See [`Algorithm::patience`]; cut to what can be booked ahead.
    fn patience(&self, cost: u64, asked: Option<Duration>) -> Duration;
}

/// A bucket's word at one moment.
pub(crate) struct Bucket {
    pub(crate) pace: Pace,
    now: Time,
    /// Now, in units.
    clock: u64,
    /// Units missing to full.
    pub(crate) owed: u64,
}

impl Bucket {
    #[inline(always)]
    fn at(pace: Pace, word: u64, now: Time) -> Bucket {
        let clock = pace.clock(now);
        Bucket { pace, now, clock, owed: pace.owed(word, now) }
    }

    /// How long until `units` of what is missing have come in.
    #[inline(always)]
    pub(crate) fn time_for(&self, units: u64) -> Duration {
        Duration::from_nanos(self.pace.until(self.clock.saturating_add(units), self.now))
    }

    /// The word that says so many units are missing.
    #[inline(always)]
    fn word(&self, owed: u64) -> u64 {
        // Neither is above 2^63.
        self.pace.ticks().word(self.pace.store(self.clock + owed))
    }
}

/// The word that under the quota `to` stands for what `word` is under `from`.
pub(crate) fn carry(from: &Quota, to: &Quota, word: u64, change: Change, now: Time) -> u64 {
    let (old, new) = (from.pace(), to.pace());
    let owed = u128::from(Bucket::at(*old, word, now).owed);
    let owed = match change {
        Change::Reset => return 0,
        Change::Proportional => (owed * u128::from(new.fill)).div_ceil(u128::from(old.fill)),
        Change::KeepTokens => {
            let (new_token, old_token) = (u128::from(new.token), u128::from(old.token));
            match u128::from(old.fill).checked_sub(owed) {
                Some(left) => u128::from(new.fill).saturating_sub(left * new_token / old_token),
                None => u128::from(new.fill) + ((owed - u128::from(old.fill)) * new_token).div_ceil(old_token),
            }
        }
    };
    let owed = u64::try_from(owed).unwrap_or(u64::MAX).min(new.ceiling);
    Bucket::at(*new, 0, now).word(owed)
}

impl<R: BucketRule> Algorithm for R {
    type State = u64;

    #[inline(always)]
    fn limit(&self) -> u64 {
        self.burst()
    }

    #[inline(always)]
    fn available(&self, word: &u64, now: Time) -> i64 {
        let bucket = Bucket::at(self.pace(), *word, now);
        let Pace { fill, token, .. } = bucket.pace;
        // Neither is above 2^62, so the casts keep their value.
        match fill.checked_sub(bucket.owed) {
            Some(left) => (left / token) as i64,
            None => -((bucket.owed - fill).div_ceil(token).min(1 << 62) as i64),
        }
    }

    #[inline(always)]
    fn delay(&self, word: &u64, cost: u64, now: Time) -> Option<Duration> {
        BucketRule::delay(self, &Bucket::at(self.pace(), *word, now), cost)
    }

    #[inline(always)]
    fn fits(&self, word: &u64, cost: u64, now: Time) -> bool {
        BucketRule::fits(self, &Bucket::at(self.pace(), *word, now), cost)
    }

    #[inline(always)]
    fn patience(&self, cost: u64, asked: Option<Duration>) -> Duration {
        BucketRule::patience(self, cost, asked)
    }

    #[inline(always)]
    fn spend(&self, word: &mut u64, cost: u64, now: Time) {
        let bucket = Bucket::at(self.pace(), *word, now);
        // What was let in lies below the ceiling.
        *word = bucket.word(bucket.owed + cost * bucket.pace.token);
    }

    fn charge(&self, word: &mut u64, cost: u64, now: Time) {
        let bucket = Bucket::at(self.pace(), *word, now);
        let charged = bucket.owed.saturating_add(cost.saturating_mul(bucket.pace.token));
        *word = bucket.word(charged.min(bucket.pace.deepest).max(bucket.owed));
    }

    fn refund(&self, word: &mut u64, tokens: u64, now: Time) {
        let bucket = Bucket::at(self.pace(), *word, now);
        if bucket.owed > 0 {
            *word = bucket.word(bucket.owed.saturating_sub(tokens.saturating_mul(bucket.pace.token)));
        }
    }

    /// Also parts of tokens, since to whoever waits for the next one it matters how much of it is there.
    fn lacking(&self, tokens: f64, now: Time) -> u64 {
        let bucket = Bucket::at(self.pace(), 0, now);
        let owed = (tokens * bucket.pace.token as f64).ceil() as u64;
        bucket.word(owed.min(bucket.pace.deepest))
    }

    #[inline(always)]
    fn reset_after(&self, word: &u64, now: Time) -> Duration {
        let bucket = Bucket::at(self.pace(), *word, now);
        bucket.time_for(bucket.owed)
    }

    #[inline(always)]
    fn repair(&self, word: &mut u64, now: Time) -> bool {
        let bucket = Bucket::at(self.pace(), *word, now);
        let broken = bucket.owed > bucket.pace.jumped;
        if broken {
            *word = bucket.word(bucket.pace.fill);
        }
        broken
    }

    /// Its tokens are the last before `full_at`, moved ahead by what others gave back. What lies before now
    /// has been served: the bucket has refilled by it and may have been spent again.
    ///
    /// While others wait behind it nothing can be given back: it would be sold again for the time at which the
    /// last of them was told to go.
    fn unserved(&self, word: &u64, booking: &Booking, now: Time) -> Unserved {
        let bucket = Bucket::at(self.pace(), *word, now);
        let pace = bucket.pace;
        let ahead = pace.owed(pace.ticks().at(booking.full_at), now);
        let is_last = bucket.owed <= ahead;
        if !is_last && self.is_waited_for(&bucket) {
            return Unserved::default();
        }
        let left = ahead.saturating_sub(pace.units_in(booking.moved_ahead));
        let tokens = (left / pace.token).min(booking.cost);
        let moves = if is_last { 0 } else { pace.nanos(tokens.saturating_mul(pace.token)) };
        Unserved { tokens, moves }
    }
}
