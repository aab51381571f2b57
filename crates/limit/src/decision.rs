use std::time::Duration;

/// What a limit said, and what there is to tell about it. The same for every algorithm.
///
/// ```
/// use std::time::Duration;
/// use tollgate_limit::{Cell, Limit, Op, Time};
///
/// let limit = Limit::token_bucket("2 per second".parse()?);
/// let cell = Cell::new(&limit, Time::ZERO);
/// let decision = cell.decide(&limit, Op::Take(2), Time::ZERO);
/// assert!(decision.is_allowed());
/// assert_eq!((decision.limit, decision.remaining), (2, 0));
///
/// let refused = cell.decide(&limit, Op::Take(1), Time::ZERO);
/// assert_eq!(refused.retry_after(), Some(Duration::from_millis(500)));
/// assert_eq!(refused.reset_after, Duration::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a decision that nobody looks at limits nothing"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Go, go later, or not.
    pub outcome: Outcome,
    /// Tokens taken, or given back by a refund. With [`Op::TakeUpTo`](crate::Op::TakeUpTo) it may be fewer than
    /// asked for.
    pub granted: u64,
    /// The most that could ever be taken at once.
    pub limit: u64,
    /// What could be taken now, after this decision.
    pub remaining: u64,
    /// How far below zero the limit stands; only what is charged or reserved leads there.
    pub debt: u64,
    /// How long until everything is available again, if nobody asks any more.
    pub reset_after: Duration,
}

/// Go, go later, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Go ahead now.
    Allowed,
    /// Paid for; go ahead once this time has passed.
    AllowedAfter(Duration),
    /// Not now. Nothing was taken.
    Refused(Retry),
}

/// When asking the same again could succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After this long, unless others take what comes in.
    After(Duration),
    /// Never: it asks for more than the limit ever holds.
    Never,
}

impl Decision {
    /// A refusal about which there is nothing to tell.
    pub(crate) const fn nothing(retry: Retry) -> Decision {
        let outcome = Outcome::Refused(retry);
        Decision { outcome, granted: 0, limit: 0, remaining: 0, debt: 0, reset_after: Duration::ZERO }
    }

    /// Whether the request may go ahead, now or after [`wait`](Self::wait).
    #[inline]
    pub fn is_allowed(&self) -> bool {
        !matches!(self.outcome, Outcome::Refused(_))
    }

    /// Tokens that are missing to a full limit, after this decision; those that are owed are among them.
    #[inline]
    pub fn missing(&self) -> u64 {
        self.limit.saturating_sub(self.remaining).saturating_add(self.debt)
    }

    /// How long to wait before going ahead; zero for everyone who need not, and for whoever was refused.
    pub fn wait(&self) -> Duration {
        match self.outcome {
            Outcome::AllowedAfter(wait) => wait,
            Outcome::Allowed | Outcome::Refused(_) => Duration::ZERO,
        }
    }

    /// When to ask again: `None` where there is no need to, and where it could never succeed.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.outcome {
            Outcome::Refused(Retry::After(wait)) => Some(wait),
            Outcome::Refused(Retry::Never) | Outcome::Allowed | Outcome::AllowedAfter(_) => None,
        }
    }
}
