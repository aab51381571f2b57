#![cfg(feature = "async")]

use super::{Clock, Source};
use futures_timer::Delay;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tollgate_limit::Time;

/// A future that is ready at a given time, on any runtime.
#[derive(Debug)]
pub(crate) struct Timer {
    clock: Clock,
    at: Time,
    delay: Option<Delay>,
}

impl Timer {
    pub(crate) fn new(clock: Clock, at: Time) -> Timer {
        Timer { clock, at, delay: None }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Source::Manual(hands) = &self.clock.0 {
            let due = hands.poll_until(self.at, context.waker());
            return if due { Poll::Ready(()) } else { Poll::Pending };
        }
        loop {
            let left = self.at.since(self.clock.now());
            if left.is_zero() {
                return Poll::Ready(());
            }
            // The timer and the clock may disagree by a little; then it is asked for the rest.
            ready!(Pin::new(self.delay.get_or_insert_with(|| Delay::new(left))).poll(context));
            self.delay = None;
        }
    }
}
