//! Guava's `SmoothBursty`: whoever comes pays for the request before.
//!
//! A request of any size goes ahead at once if the one before has been paid for; its own price is paid by
//! the next one's wait. Guava keeps stored permits and the time of the next free ticket. Stored permits only
//! exist once that time has passed, so `next_free - stored × interval` holds both, and is, moved by the size
//! of the store, the word of a bucket.

use super::bucket::{Bucket, BucketRule};
use crate::pace::Pace;
use crate::quota::Quota;
use std::time::Duration;

/// Stores up to `burst` permits, lets every request borrow from the next one, and keeps the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SmoothBursty {
    /// Rate, and how many permits can be stored. Guava stores one second's worth.
    pub(crate) quota: Quota,
    /// How long a request waits for the one before it to be paid. `Duration::MAX` is Guava's `acquire`, any
    /// other value its `tryAcquire` with a timeout.
    pub(crate) timeout: Duration,
}

impl SmoothBursty {
    /// Half of what can be booked ahead is for waits, the other half for what is borrowed.
    pub(crate) fn half(&self) -> u64 {
        (self.quota.pace().ceiling - self.quota.pace().fill) / 2
    }
}

impl BucketRule for SmoothBursty {
    fn burst(&self) -> u64 {
        self.quota.burst()
    }

    fn pace(&self) -> Pace {
        *self.quota.pace()
    }

    /// Until what was borrowed is paid back.
    fn delay(&self, bucket: &Bucket, cost: u64) -> Option<Duration> {
        if cost > self.half() / bucket.pace.token {
            return None;
        }
        Some(bucket.time_for(bucket.owed.saturating_sub(bucket.pace.fill)))
    }

    fn fits(&self, bucket: &Bucket, cost: u64) -> bool {
        cost <= self.half() / bucket.pace.token && bucket.owed <= bucket.pace.fill
    }

    fn patience(&self, _cost: u64, asked: Option<Duration>) -> Duration {
        let longest = Duration::from_nanos(self.quota.pace().nanos(self.half()));
        asked.unwrap_or(self.timeout).min(longest)
    }
}
