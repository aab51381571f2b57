//! A bucket: tokens, topped up with what time brings whenever somebody looks.

use crate::exact::{Flow, Shares};
use crate::random::Workload;
use crate::{compare, fill_nanos, quotas};
use std::time::Duration;
use tollgate_limit::{Limit, Quota};

struct TokenBucket {
    shares: Shares,
    tokens: i128,
    seen: u64,
}

impl TokenBucket {
    fn full(quota: &Quota, now: u64) -> TokenBucket {
        let shares = Shares::new(quota);
        TokenBucket { shares, tokens: shares.fill, seen: now }
    }
}

impl Flow for TokenBucket {
    fn shares(&self) -> &Shares {
        &self.shares
    }

    fn pass(&mut self, now: u64) {
        let passed = self.shares.of_nanos(now - self.seen);
        self.tokens = (self.tokens + passed).min(self.shares.fill);
        self.seen = now;
    }

    fn level(&self) -> i128 {
        self.tokens
    }

    fn delay(&self, cost: u64, asked: Option<Duration>) -> Option<(i128, i128)> {
        let missing = (self.shares.of_tokens(cost) - self.tokens).max(0);
        let patience = asked.map_or(0, |asked| self.shares.of(asked));
        (cost <= self.shares.burst).then_some((missing, patience))
    }

    fn spend(&mut self, shares: i128) {
        self.tokens -= shares;
    }

    fn refund(&mut self, shares: i128) {
        self.tokens = self.tokens.saturating_add(shares).min(self.shares.fill);
    }

    fn reset(&mut self) {
        self.tokens = self.shares.fill;
    }
}

#[test]
fn token_bucket_answers_as_its_model() {
    for quota in quotas() {
        let workload = Workload::of_everything(quota.burst(), fill_nanos(&quota));
        compare(&Limit::token_bucket(quota), &workload, |now| TokenBucket::full(&quota, now));
    }
}
