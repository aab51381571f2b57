//! Token bucket, which is also GCRA and the leaky bucket as a meter: three views of one number.

use super::bucket::{Bucket, BucketRule};
use crate::pace::Pace;
use crate::quota::Quota;
use std::time::Duration;

/// A bucket of `burst` tokens into which the quota's rate drips. A request passes when its tokens are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenBucket {
    /// Size and rate.
    pub(crate) quota: Quota,
}

impl BucketRule for TokenBucket {
    #[inline(always)]
    fn burst(&self) -> u64 {
        self.quota.burst()
    }

    #[inline(always)]
    fn pace(&self) -> Pace {
        *self.quota.pace()
    }

    /// Until the tokens are there.
    #[inline(always)]
    fn delay(&self, bucket: &Bucket, cost: u64) -> Option<Duration> {
        if cost > self.quota.burst() {
            return None;
        }
        let owed = bucket.owed + cost * bucket.pace.token;
        Some(bucket.time_for(owed.saturating_sub(bucket.pace.fill)))
    }

    #[inline(always)]
    fn fits(&self, bucket: &Bucket, cost: u64) -> bool {
        cost <= self.quota.burst() && bucket.owed <= bucket.pace.fill - cost * bucket.pace.token
    }

    /// None of its own. Nobody can book further ahead than a bucket's word reaches.
    #[inline(always)]
    fn patience(&self, _cost: u64, asked: Option<Duration>) -> Duration {
        let pace = self.quota.pace();
        asked.map_or(Duration::ZERO, |asked| asked.min(Duration::from_nanos(pace.nanos(pace.ceiling - pace.fill))))
    }
}

/// A token bucket whose units are nanoseconds, which the compiler then knows: by far the commonest limit, and
/// the only one that is compiled into every caller's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainBucket(TokenBucket);

impl PlainBucket {
    pub(crate) const fn new(quota: Quota) -> Option<PlainBucket> {
        if quota.pace().is_in_nanos() { Some(PlainBucket(TokenBucket { quota })) } else { None }
    }

    pub(crate) const fn bucket(&self) -> &TokenBucket {
        &self.0
    }
}

impl BucketRule for PlainBucket {
    #[inline(always)]
    fn burst(&self) -> u64 {
        self.0.burst()
    }

    #[inline(always)]
    fn pace(&self) -> Pace {
        self.0.quota.pace().in_nanos()
    }

    #[inline(always)]
    fn delay(&self, bucket: &Bucket, cost: u64) -> Option<Duration> {
        BucketRule::delay(&self.0, bucket, cost)
    }

    #[inline(always)]
    fn fits(&self, bucket: &Bucket, cost: u64) -> bool {
        BucketRule::fits(&self.0, bucket, cost)
    }

    #[inline(always)]
    fn patience(&self, cost: u64, asked: Option<Duration>) -> Duration {
        BucketRule::patience(&self.0, cost, asked)
    }
}
