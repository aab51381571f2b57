//! Token bucket, which is also GCRA and the leaky bucket as a meter: three views of one number.

use super::bucket::{Bucket, BucketRule};
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
    fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Until the tokens are there.
    #[inline(always)]
    fn delay(&self, bucket: &Bucket<'_>, cost: u64) -> Option<Duration> {
        if cost > self.quota.burst() {
            return None;
        }
        let owed = bucket.owed + cost * bucket.pace.token;
        Some(bucket.time_for(owed.saturating_sub(bucket.pace.fill)))
    }

    #[inline(always)]
    fn fits(&self, bucket: &Bucket<'_>, cost: u64) -> bool {
        cost <= self.quota.burst() && bucket.owed + cost * bucket.pace.token <= bucket.pace.fill
    }

    /// None of its own. Nobody can book further ahead than a bucket's word reaches.
    #[inline(always)]
    fn patience(&self, _cost: u64, asked: Option<Duration>) -> Duration {
        let pace = self.quota.pace();
        asked.map_or(Duration::ZERO, |asked| asked.min(Duration::from_nanos(pace.nanos(pace.ceiling - pace.fill))))
    }
}
