//! What waits for the store, where limits are kept that hosts share.

use super::Tollgate;
use crate::engine::{Explanation, Hold, Verdict};
use crate::sharing::{Sharing, Unreached};
use std::time::Duration;
use tollgate_rules::Request;

impl Tollgate {
    /// Decides about a request as [`check`](Self::check) does, where limits may be kept in a
    /// [store](crate::TollgateBuilder::store), which is waited for no longer than its budget. Without such limits it is
    /// ready at once.
    ///
    /// If the future is dropped before it is ready, the request may have been paid for.
    pub async fn decide(&self, request: &Request<'_>) -> Verdict {
        self.decide_all(std::slice::from_ref(request)).await
    }

    /// The same for several requests that go ahead together or not at all.
    pub async fn decide_all(&self, parts: &[Request<'_>]) -> Verdict {
        match &self.sharing {
            Some(sharing) => self.engine.check_all_with(sharing.store(), parts, self.clock.now()).await,
            None => self.engine.check_by(parts, || self.clock.now()),
        }
    }

    /// What [`decide`](Self::decide) would say. Takes nothing.
    pub async fn peek_shared(&self, request: &Request<'_>) -> Verdict {
        match &self.sharing {
            Some(sharing) => self.engine.peek_with(sharing.store(), request, self.clock.now()).await,
            None => self.peek(request),
        }
    }

    /// Every rule of the request's namespace, and why it applies or not, as [`explain`](Self::explain) does, with what the
    /// [store](crate::TollgateBuilder::store) says of limits that are kept there.
    pub async fn explain_shared(&self, request: &Request<'_>) -> Explanation {
        match &self.sharing {
            Some(sharing) => self.engine.explain_with(sharing.store(), request, self.clock.now()).await,
            None => self.explain(request),
        }
    }

    /// Takes an estimate as [`reserve`](Self::reserve) does, also of limits that are kept in the
    /// [store](crate::TollgateBuilder::store). To be settled by [`settle_shared`](Self::settle_shared), with 0 if nothing came of it.
    ///
    /// # Errors
    /// The refusal. Nothing was taken.
    pub async fn reserve_shared(&self, request: &Request<'_>, expires_after: Duration) -> Result<Hold, Verdict> {
        match &self.sharing {
            Some(sharing) => {
                let (store, now) = (sharing.store(), self.clock.now());
                self.engine.reserve_with(store, request, expires_after, now).await
            }
            None => self.reserve(request, expires_after),
        }
    }

    /// Replaces an estimate by what it really was, also in the [store](crate::TollgateBuilder::store).
    pub async fn settle_shared(&self, hold: Hold, actual: u64) {
        match &self.sharing {
            Some(sharing) => self.engine.settle_with(sharing.store(), hold, actual, self.clock.now()).await,
            None => self.settle(hold, actual),
        }
    }

    /// Forgets what the client of a request has spent, also in the [store](crate::TollgateBuilder::store), and says in how many
    /// buckets.
    ///
    /// # Errors
    /// The store did not say that it has. What is counted here is forgotten, and to ask again does no harm.
    pub async fn reset_shared(&self, request: &Request<'_>) -> Result<usize, Unreached> {
        match &self.sharing {
            Some(sharing) => self.engine.reset_with(sharing.store(), request, self.clock.now()).await,
            None => Ok(self.reset(request)),
        }
    }

    /// Where hosts count together, if they do.
    pub fn sharing(&self) -> Option<&Sharing> {
        self.sharing.as_ref()
    }
}
