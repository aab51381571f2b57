//! Deciding, and waiting for those whom limits are shared with: the one path of all front ends.

use super::{LONGEST_RESERVATION, RESERVED_FOR, Reserved, State};
use crate::fault::Fault;
use crate::holds::HoldId;
use std::future::pending;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tollgate::{Explanation, Request, Sharing, Time, Verdict};

/// A question's turn: by which time it is decided, and whether it may take longer than that.
///
/// Nearly everything is decided at once. Where the store has to be asked, a long turn waits for it. A short one then never
/// ends, and nothing has happened: whoever gave it drops it, and gives a long one where nobody else is held up.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'s> {
    pub(crate) state: &'s State,
    pub(crate) now: Time,
    is_long: bool,
}

/// What comes of something if it need not be waited for.
pub fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

impl State {
    /// A turn of somebody who cannot wait, to be taken [`at_once`].
    pub fn short_turn(&self, now: Time) -> Turn<'_> {
        Turn { state: self, now, is_long: false }
    }

    /// A turn of somebody who can.
    pub fn long_turn(&self, now: Time) -> Turn<'_> {
        Turn { state: self, now, is_long: true }
    }

    /// Where daemons count together, if they do.
    pub fn sharing(&self) -> Option<&Sharing> {
        self.tollgate.sharing()
    }
}

impl Turn<'_> {
    /// Decides about a request, and shows the verdict to whoever tells it. It is large, so that to hand it on would take as
    /// long as a good part of deciding.
    pub async fn decide<T>(self, request: &Request<'_>, tell: impl FnOnce(&mut Verdict) -> T) -> T {
        self.decide_all(std::slice::from_ref(request), tell).await
    }

    /// The same for requests that go ahead together or not at all.
    pub async fn decide_all<T>(self, parts: &[Request<'_>], tell: impl FnOnce(&mut Verdict) -> T) -> T {
        let engine = self.state.engine();
        let Some(sharing) = self.state.sharing() else { return tell(&mut engine.check_all(parts, self.now)) };
        if let Some(verdict) = &mut engine.check_here(parts, self.now) {
            return tell(verdict);
        }
        self.lasts().await;
        // What a connection keeps while it waits for its next question should not have room for this.
        tell(&mut Box::pin(engine.check_all_with(sharing.store(), parts, self.now)).await)
    }

    /// Goes on only if it is certain that what follows is not begun again: to be waited for before anything is taken that
    /// is not decided with the rest.
    pub async fn lasts(self) {
        if !self.is_long && self.state.sharing().is_some() {
            pending::<()>().await;
        }
    }

    /// What a decision would be. Takes nothing.
    pub async fn peek(self, request: &Request<'_>) -> Verdict {
        self.lasts().await;
        let (engine, now) = (self.state.engine(), self.now);
        match self.state.sharing() {
            None => engine.peek(request, now),
            Some(sharing) => Box::pin(engine.peek_with(sharing.store(), request, now)).await,
        }
    }

    /// Every rule, and why it applies or not. Takes nothing.
    pub async fn explain(self, request: &Request<'_>) -> Explanation {
        self.lasts().await;
        let (engine, now) = (self.state.engine(), self.now);
        match self.state.sharing() {
            None => engine.explain(request, now),
            Some(sharing) => Box::pin(engine.explain_with(sharing.store(), request, now)).await,
        }
    }

    /// Takes an estimate, to be settled within `expires_after`: a minute, unless told otherwise.
    ///
    /// # Errors
    /// Too many are open.
    pub async fn reserve(self, request: &Request<'_>, expires_after: Option<Duration>) -> Result<Reserved, Fault> {
        self.lasts().await;
        let (state, now) = (self.state, self.now);
        if !state.holds.has_room(now) {
            return Err(Fault::TooManyReservations);
        }
        let expires_after = expires_after.unwrap_or(RESERVED_FOR).min(LONGEST_RESERVATION);
        let reserved = match state.sharing() {
            None => state.engine().reserve(request, expires_after, now),
            Some(sharing) => Box::pin(state.engine().reserve_with(sharing.store(), request, expires_after, now)).await,
        };
        Ok(match reserved {
            Ok(hold) => {
                let (wait, is_degraded) = (hold.wait(), hold.is_degraded());
                Reserved::Open { id: state.holds.keep(hold), wait, is_degraded }
            }
            Err(verdict) => Reserved::Refused(Box::new(verdict)),
        })
    }

    /// Says what a reservation really was; 0 gives everything back.
    ///
    /// # Errors
    /// There is no such reservation, or no longer.
    pub async fn settle(self, id: HoldId, actual: u64) -> Result<(), Fault> {
        self.lasts().await;
        let (state, now) = (self.state, self.now);
        let hold = state.holds.take(id, now)?;
        match state.sharing() {
            None => state.engine().settle(hold, actual, now),
            Some(sharing) => Box::pin(state.engine().settle_with(sharing.store(), hold, actual, now)).await,
        }
        Ok(())
    }

    /// Forgets what the client of a request has spent, and says in how many buckets.
    ///
    /// # Errors
    /// The store has not forgotten it.
    pub async fn reset(self, request: &Request<'_>) -> Result<usize, Fault> {
        self.lasts().await;
        let (engine, now) = (self.state.engine(), self.now);
        match self.state.sharing() {
            None => Ok(engine.reset(request, now)),
            Some(sharing) => {
                let reset = Box::pin(engine.reset_with(sharing.store(), request, now));
                reset.await.map_err(|_| Fault::NoStore)
            }
        }
    }
}
