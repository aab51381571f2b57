//! Leaky bucket as a queue: requests leave one by one at an even pace, and are told how long that takes.
//!
//! The tokens missing in the bucket are the requests still in the queue. There is no drip process.

use super::bucket::{Bucket, BucketRule};
use crate::pace::Pace;
use crate::quota::Quota;
use std::time::Duration;

/// A queue that empties at the quota's rate and holds `burst` requests, the one being served included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeakyQueue {
    /// Outflow, and how many may be inside.
    pub(crate) quota: Quota,
}

impl BucketRule for LeakyQueue {
    fn burst(&self) -> u64 {
        self.quota.burst()
    }

    fn pace(&self) -> Pace {
        *self.quota.pace()
    }

    /// Until those in front have left. Where the queue is too full, as much longer as it takes to make room.
    fn delay(&self, bucket: &Bucket, cost: u64) -> Option<Duration> {
        let room = self.quota.burst().checked_sub(cost)? * bucket.pace.token;
        let patience = BucketRule::patience(self, cost, None);
        Some(match bucket.owed.checked_sub(room) {
            None | Some(0) => bucket.time_for(bucket.owed).min(patience),
            Some(too_full) => patience + bucket.time_for(too_full),
        })
    }

    fn fits(&self, bucket: &Bucket, cost: u64) -> bool {
        bucket.owed == 0 && cost <= self.quota.burst()
    }

    fn is_waited_for(&self, bucket: &Bucket) -> bool {
        bucket.owed > 0
    }

    /// Until a queue has emptied that just had room.
    fn patience(&self, cost: u64, asked: Option<Duration>) -> Duration {
        let pace = self.quota.pace();
        let room = self.quota.burst().saturating_sub(cost);
        let patience = Duration::from_nanos(pace.nanos(room * pace.token));
        asked.map_or(patience, |asked| asked.min(patience))
    }
}
