//! Waiting for a reservation's time without keeping its tokens if the wait is given up.

use crate::clock::{Clock, Timer};
use tollgate_limit::{Decision, Reservation};

/// Returns what was decided once the reservation may be used. Dropped before that, hands it to `cancel`.
pub(crate) async fn ready(clock: &Clock, reservation: Reservation, cancel: impl FnMut(Reservation)) -> Decision {
    let (decision, ready_at) = (reservation.decision(), reservation.ready_at());
    if !reservation.wait().is_zero() {
        let mut booked = Booked { reservation: Some(reservation), cancel };
        Timer::new(clock.clone(), ready_at).await;
        booked.reservation = None;
    }
    decision
}

struct Booked<F: FnMut(Reservation)> {
    reservation: Option<Reservation>,
    cancel: F,
}

impl<F: FnMut(Reservation)> Drop for Booked<F> {
    fn drop(&mut self) {
        if let Some(unused) = self.reservation.take() {
            (self.cancel)(unused);
        }
    }
}
