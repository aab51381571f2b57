//! A queue: the work in it, of which a token's worth is done every interval.

use crate::exact::{Flow, Shares};
use crate::random::Workload;
use crate::{compare, fill_nanos, quotas};
use std::time::Duration;
use tollgate_limit::Limit;

struct LeakyQueue {
    shares: Shares,
    backlog: i128,
    seen: u64,
}

impl Flow for LeakyQueue {
    fn shares(&self) -> &Shares {
        &self.shares
    }

    fn pass(&mut self, now: u64) {
        let done = self.shares.of_nanos(now - self.seen);
        self.backlog = (self.backlog - done).max(0);
        self.seen = now;
    }

    fn level(&self) -> i128 {
        self.shares.fill - self.backlog
    }

    /// Everything in front has to leave first; nobody stays who would find no room behind it.
    fn delay(&self, cost: u64, asked: Option<Duration>) -> Option<(i128, i128)> {
        let room = self.shares.fill - self.shares.of_tokens(cost);
        let patience = asked.map_or(room, |asked| self.shares.of(asked).min(room));
        (cost <= self.shares.burst).then_some((self.backlog, patience))
    }

    fn spend(&mut self, shares: i128) {
        self.backlog += shares;
    }

    fn refund(&mut self, shares: i128) {
        self.backlog = (self.backlog - shares).max(0);
    }

    fn reset(&mut self) {
        self.backlog = 0;
    }
}

#[test]
fn leaky_queue_answers_as_its_model() {
    for quota in quotas() {
        let workload = Workload::of_everything(quota.burst(), fill_nanos(&quota));
        let model = |now| LeakyQueue { shares: Shares::new(&quota), backlog: 0, seen: now };
        compare(&Limit::leaky_queue(quota), &workload, model);
    }
}
