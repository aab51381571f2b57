use crate::algorithm::Booking;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::sync::{AtomicU64, Ordering};
use crate::time::Time;
use std::time::Duration;

/// Tokens that are paid for, to be used after a wait, and that can be given back.
///
/// Only what has not been served yet comes back: once the time of a booking has passed, its tokens have
/// dripped into the bucket and may have been spent again, and giving them back, too, would let through more
/// than the limit promises.
#[must_use = "a reservation that is not used should be cancelled"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    decision: Decision,
    made_at: Time,
    /// What [`Refunds`] stood at before the booking.
    refunds: u64,
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
pub(crate) struct Refunds(AtomicU64);

impl Clone for Refunds {
    fn clone(&self) -> Refunds {
        Refunds(AtomicU64::new(self.0.load(Ordering::Acquire)))
    }
}

impl Refunds {
    /// Books by `decide`. What others give back from now on moves this booking ahead.
    pub(crate) fn book(&self, now: Time, decide: impl FnOnce() -> Decision) -> Result<Reservation, Decision> {
        let refunds = self.0.load(Ordering::Acquire);
        let decision = decide();
        if decision.is_allowed() { Ok(Reservation { decision, made_at: now, refunds }) } else { Err(decision) }
    }

    /// The tokens of a reservation that can be given back now. Counts them as given back.
    pub(crate) fn claim(&self, limit: &Limit, reservation: &Reservation, now: Time) -> u64 {
        let mut before = self.0.load(Ordering::Acquire);
        loop {
            let booking = Booking {
                cost: reservation.cost(),
                full_at: reservation.made_at + reservation.decision.reset_after,
                moved_ahead: before.wrapping_sub(reservation.refunds),
            };
            let tokens = limit.unserved(&booking, now);
            let after = before.wrapping_add(limit.worth(tokens));
            match self.0.compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return tokens,
                Err(changed) => before = changed,
            }
        }
    }
}
