//! Reservations of limits that are kept in the store, and clients that may begin anew.

use super::charge;
use crate::engine::{Elsewhere, Engine, Hold, Step, Verdict};
use std::fmt;
use std::time::Duration;
use tollgate_limit::Time;
use tollgate_rules::Request;
use tollgate_store::{Ask, Fingerprint, Says, Store};

/// The store did not say that it has done what it was told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreached;

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store cannot be reached")
    }
}

impl std::error::Error for Unreached {}

impl Engine {
    /// Takes an estimate as [`reserve`](Engine::reserve) does, also of limits that are kept in the store. To be settled by
    /// [`settle_with`](Engine::settle_with).
    ///
    /// # Errors
    /// The refusal. Nothing was taken.
    pub async fn reserve_with(
        &self,
        store: &Store,
        request: &Request<'_>,
        expires_after: Duration,
        now: Time,
    ) -> Result<Hold, Verdict> {
        let verdict = match self.begin_to_reserve(request, now) {
            Step::Done(verdict) => verdict,
            Step::Ask(pending) => self.finish_with(store, pending, std::slice::from_ref(request), now).await,
        };
        Hold::of(verdict, request, (now, expires_after))
    }

    /// Replaces an estimate by what it really was, also in the store. Whatever that does not hear of within its budget
    /// stays as it was estimated.
    pub async fn settle_with(&self, store: &Store, mut hold: Hold, actual: u64, now: Time) {
        let (taken_at, taken) = hold.take_elsewhere();
        let (estimate, is_in_time) = (hold.estimate(), now <= hold.expires());
        self.settle(hold, actual, now);
        let more = actual.saturating_sub(estimate);
        let dearer = taken.iter().filter(|one| one.is_estimate && more > 0).map(|one| asked(one, more));
        charge(|asks| store.ask(asks, now), &dearer.collect::<Vec<_>>()).await;
        let unused = taken.iter().map(|one| asked(one, one.unused(estimate, actual)));
        let unused: Vec<Ask> = unused.filter(|ask| ask.cost > 0 && is_in_time).collect();
        if !unused.is_empty() {
            store.give_back_after(now.since(taken_at), unused).await;
        }
    }

    /// Forgets what the client of a request has spent as [`reset`](Engine::reset) does, also in the store.
    ///
    /// # Errors
    /// The store did not say that it has. What is counted here is forgotten, and to ask again does no harm.
    pub async fn reset_with(&self, store: &Store, request: &Request<'_>, now: Time) -> Result<usize, Unreached> {
        let kept = self.kept_elsewhere(request);
        let asks: Vec<Ask> = kept.iter().map(|one| asked(one, one.cost)).collect();
        // What has not been told yet must not be told afterwards, and what is in hand was taken from what is forgotten.
        kept.iter().for_each(|one| self.ledger().forget(one.entry));
        let is_forgotten = store.forget(&asks).await;
        kept.iter().for_each(|one| self.ledger().forget(one.entry));
        let buckets = self.reset(request, now);
        if is_forgotten { Ok(buckets) } else { Err(Unreached) }
    }
}

fn asked(kept: &Elsewhere, cost: u64) -> Ask {
    let key = Fingerprint::new(kept.limit_id, &kept.client);
    Ask { key, limit: kept.limit, cost, max_wait: None, says: Says::Refuse }
}
