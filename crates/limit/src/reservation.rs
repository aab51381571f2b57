use crate::algorithm::{Booking, Cancel, Unserved};
use crate::decision::Decision;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use crate::time::Time;
use std::time::Duration;

/// Tokens that are paid for, to be used after a wait, and that can be given back.
///
/// Only what has not been served yet comes back: once the time of a booking has passed, its tokens have
/// dripped into the bucket and may have been spent again, and giving them back, too, would let through more
/// than the limit promises.
///
/// It can be given back once: a reservation can neither be copied nor cancelled twice.
///
/// ```compile_fail
/// # use std::time::Duration;
/// # use tollgate_limit::{Cell, Limit, Time};
/// # let limit = Limit::token_bucket("1 per second".parse().unwrap());
/// # let cell = Cell::new(&limit, Time::ZERO);
/// let booked = cell.reserve(&limit, 1, Duration::ZERO, Time::ZERO).unwrap();
/// cell.cancel(&limit, booked, Time::ZERO);
/// cell.cancel(&limit, booked, Time::ZERO);
/// ```
#[must_use = "a reservation that is not used should be cancelled"]
#[derive(Debug, PartialEq, Eq)]
pub struct Reservation {
    decision: Decision,
    made_at: Time,
    /// What [`Refunds`] stood at before the booking.
    refunds: u64,
    era: u64,
}

impl Reservation {
    /// What the limit said.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Tokens booked.
    pub fn cost(&self) -> u64 {
        self.decision.granted
    }

    /// When to go ahead.
    pub fn ready_at(&self) -> Time {
        self.made_at + self.wait()
    }

    /// How long after it was made that is.
    pub fn wait(&self) -> Duration {
        self.decision.wait()
    }
}

/// How much was given back so far, in nanoseconds' worth of tokens.
///
/// One counter may stand for several clients: each then sees more given back than really was, and gets back
/// less of its own, never more.
#[derive(Debug, Default)]
pub(crate) struct Refunds {
    given_back: AtomicU64,
    /// Grows with every reset and every change of limit, after which what was booked before is void.
    era: AtomicU64,
    /// Held while something is given back.
    giving_back: Mutex<()>,
}

impl Clone for Refunds {
    fn clone(&self) -> Refunds {
        let copy = |number: &AtomicU64| AtomicU64::new(number.load(Ordering::Acquire));
        Refunds { given_back: copy(&self.given_back), era: copy(&self.era), giving_back: Mutex::default() }
    }
}

impl Refunds {
    /// Books by `decide`. What others give back from now on moves this booking ahead.
    pub(crate) fn book(&self, now: Time, decide: impl FnOnce() -> Decision) -> Result<Reservation, Decision> {
        let (refunds, era) = (self.given_back.load(Ordering::Acquire), self.era.load(Ordering::Acquire));
        let decision = decide();
        if decision.is_allowed() { Ok(Reservation { decision, made_at: now, refunds, era }) } else { Err(decision) }
    }

    /// Gives back by `cancel` what has not been served of a reservation, at most so many tokens, and says how much
    /// that was.
    pub(crate) fn give_back(
        &self,
        reservation: &Reservation,
        tokens: u64,
        cancel: impl FnOnce(Cancel) -> Unserved,
    ) -> u64 {
        let _one_at_a_time = lock(&self.giving_back);
        if self.era.load(Ordering::Acquire) != reservation.era {
            return 0;
        }
        let decision = &reservation.decision;
        let given_back = self.given_back.load(Ordering::Acquire);
        let unserved = cancel(Cancel(Booking {
            cost: tokens.min(reservation.cost()),
            made_at: reservation.made_at,
            used: decision.missing(),
            full_at: reservation.made_at + decision.reset_after,
            moved_ahead: given_back.wrapping_sub(reservation.refunds),
        }));
        self.given_back.store(given_back.wrapping_add(unserved.moves), Ordering::Release);
        unserved.tokens
    }

    /// Runs `change` while nobody gives anything back or carries it over.
    pub(crate) fn alone<R>(&self, change: impl FnOnce() -> R) -> R {
        let _nothing_else_is_given_back = lock(&self.giving_back);
        change()
    }

    /// Runs `reset`, after which nothing that was booked before can be given back.
    pub(crate) fn end_era<R>(&self, reset: impl FnOnce() -> R) -> R {
        let _nothing_is_given_back = lock(&self.giving_back);
        self.era.fetch_add(1, Ordering::AcqRel);
        reset()
    }
}
