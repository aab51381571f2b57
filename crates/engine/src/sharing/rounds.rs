//! When to look at everybody, and when only at those who have done something.

use std::time::Duration;
use tokio::time::Instant;

/// Whom to look at. There may be tens of thousands who have done nothing, and somebody who has every millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Among {
    Used,
    All,
}

/// Something that is done every so often.
#[derive(Debug)]
pub(super) struct Rounds {
    every: Duration,
    last: Option<Instant>,
}

impl Rounds {
    pub(super) fn every(every: Duration) -> Rounds {
        Rounds { every, last: None }
    }

    /// Whether it is time again, which it then is no longer.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.last.is_none_or(|last| now.duration_since(last) >= self.every);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}
