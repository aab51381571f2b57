//! When to look at everybody, and when only at those who have done something.

use std::time::Duration;
use tokio::time::Instant;

/// Whom to look at. There may be tens of thousands who have done nothing, and somebody who has every millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Among {
    Used,
    All,
}

/// All of them every so often.
#[derive(Debug)]
pub(super) struct Rounds {
    every: Duration,
    last: Option<Instant>,
}

impl Rounds {
    pub(super) fn every(every: Duration) -> Rounds {
        Rounds { every, last: None }
    }

    /// Whose turn it is now.
    pub(super) fn among(&mut self) -> Among {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.duration_since(last) < self.every) {
            return Among::Used;
        }
        self.last = Some(now);
        Among::All
    }
}
