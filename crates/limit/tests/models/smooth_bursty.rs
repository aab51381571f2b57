//! Guava's `SmoothBursty`, as its sources tell it: permits in store, and the time of the next free ticket.

use crate::exact::{Flow, Shares};
use crate::random::Workload;
use crate::{compare, fill_nanos, quotas};
use std::time::Duration;
use tollgate_limit::Limit;

struct SmoothBursty {
    shares: Shares,
    timeout: Duration,
    stored: i128,
    next_free: i128,
    now: i128,
}

impl Flow for SmoothBursty {
    fn shares(&self) -> &Shares {
        &self.shares
    }

    /// `resync`: idle time fills the store.
    fn pass(&mut self, now: u64) {
        self.now = self.shares.of_nanos(now);
        if self.now > self.next_free {
            self.stored = (self.stored + self.now - self.next_free).min(self.shares.fill);
            self.next_free = self.now;
        }
    }

    fn level(&self) -> i128 {
        self.stored - (self.next_free - self.now)
    }

    /// Until the next free ticket, however much is asked for, within reason.
    fn delay(&self, cost: u64, asked: Option<Duration>) -> Option<(i128, i128)> {
        let patience = self.shares.of(asked.unwrap_or(self.timeout));
        (cost < u64::MAX).then_some((self.next_free - self.now, patience))
    }

    /// `reserveEarliestAvailable`: from the store as far as it goes, the rest at the expense of the next one.
    fn spend(&mut self, shares: i128) {
        let from_store = shares.min(self.stored);
        self.stored -= from_store;
        self.next_free += shares - from_store;
    }

    /// Pays what is still to be paid, and puts the rest into the store.
    fn refund(&mut self, shares: i128) {
        let unpaid = (self.next_free - self.now).min(shares);
        self.next_free -= unpaid;
        self.stored = (self.stored.saturating_add(shares - unpaid)).min(self.shares.fill);
    }

    fn reset(&mut self) {
        self.stored = self.shares.fill;
        self.next_free = self.now;
    }
}

#[test]
fn smooth_bursty_answers_as_its_model() {
    for (index, quota) in quotas().enumerate() {
        let fill = fill_nanos(&quota);
        let timeout = Duration::from_nanos([0, fill / 3, 3 * fill][index % 3]);
        let model = |now| {
            let shares = Shares::new(&quota);
            let now = shares.of_nanos(now);
            SmoothBursty { shares, timeout, stored: 0, next_free: now, now }
        };
        compare(&Limit::smooth_bursty(quota, timeout), &Workload::of_everything(quota.burst(), fill), model);
    }
}
