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
    #[inline]
    fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Until the tokens are there.
    #[inline]
    fn delay(&self, bucket: &Bucket<'_>, cost: u64) -> Option<Duration> {
        if cost > self.quota.burst() {
            return None;
        }
        let owed = bucket.owed + cost * bucket.pace.token;
        let missing = owed.saturating_sub(bucket.pace.fill);
        Some(if missing == 0 { Duration::ZERO } else { bucket.time_for(missing) })
    }

    /// None of its own. Nobody can book further ahead than a bucket's word reaches.
    #[inline]
    fn patience(&self, _cost: u64, asked: Option<Duration>) -> Duration {
        let pace = self.quota.pace();
        asked.map_or(Duration::ZERO, |asked| asked.min(Duration::from_nanos(pace.nanos(pace.ceiling - pace.fill))))
    }
}
