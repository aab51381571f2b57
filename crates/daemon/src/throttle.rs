//! What redis-cell answers, from the same bucket that everything else here is decided by.

use std::fmt;
use std::time::Duration;
use tollgate::{Decision, Limit, Op, Outcome, Quota, QuotaError, Retry, Table, Time};

/// One call of `CL.THROTTLE`: a burst, a rate, and how much to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// How much above the first can be taken at once.
    pub max_burst: i64,
    /// How many come back in a period.
    pub count: i64,
    /// Seconds.
    pub period: i64,
    /// How many to take; 0 only looks, and a negative number gives back.
    pub quantity: i64,
}

/// Why a call cannot be answered. Nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThrottleError {
    /// A count or a period of nothing.
    ZeroRate,
    /// Something negative that cannot be.
    Negative(&'static str),
    /// A rate or burst out of all proportion.
    Impossible(QuotaError),
}

impl fmt::Display for ThrottleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThrottleError::ZeroRate => f.write_str("Zero rates are not supported"),
            ThrottleError::Negative(what) => write!(f, "{what} must not be negative"),
            ThrottleError::Impossible(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for ThrottleError {}

/// What is answered, in whole seconds where it is a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttled {
    /// Whether the request has to stay out.
    pub is_limited: bool,
    /// The most that can be taken at once.
    pub limit: i64,
    /// What is left.
    pub remaining: i64,
    /// When to try again; -1 where there is no need to, or no use.
    pub retry_after: i64,
    /// When everything is there again.
    pub reset_after: i64,
}

impl Throttle {
    /// The bucket that is meant.
    ///
    /// # Errors
    /// Rates that are none.
    pub fn limit(&self) -> Result<Limit, ThrottleError> {
        if self.count == 0 || self.period == 0 {
            return Err(ThrottleError::ZeroRate);
        }
        let positive = |number, what| u64::try_from(number).map_err(|_| ThrottleError::Negative(what));
        let count = positive(self.count, "count")?;
        let period = Duration::from_secs(positive(self.period, "period")?);
        let burst = positive(self.max_burst, "max_burst")?.saturating_add(1);
        let quota = Quota::new(count, period).and_then(|quota| quota.with_burst(burst));
        Ok(Limit::token_bucket(quota.map_err(ThrottleError::Impossible)?))
    }

    /// Decides, by the bucket of a key.
    pub fn decide(&self, key: &[u8], limit: &Limit, table: &Table, now: Time) -> Throttled {
        let op = match u64::try_from(self.quantity) {
            Ok(quantity) => Op::Take(quantity),
            Err(_) => Op::Refund(self.quantity.unsigned_abs()),
        };
        // A key has one bucket whatever rate it is asked at, as in redis-cell.
        Throttled::new(&table.decide(key, limit, op, now))
    }
}

impl Throttled {
    fn new(decision: &Decision) -> Throttled {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let (is_limited, retry_after) = match decision.outcome {
            Outcome::Allowed | Outcome::AllowedAfter(_) => (false, -1),
            Outcome::Refused(Retry::After(wait)) => (true, seconds(wait)),
            Outcome::Refused(Retry::Never) => (true, -1),
        };
        Throttled {
            is_limited,
            limit: number(decision.limit),
            remaining: number(decision.remaining),
            retry_after,
            reset_after: seconds(decision.reset_after),
        }
    }

    /// As redis-cell answers.
    pub fn as_cell(&self) -> [i64; 5] {
        [i64::from(self.is_limited), self.limit, self.remaining, self.retry_after, self.reset_after]
    }

    /// As throttlecrab answers: the first number the other way round, the last two swapped.
    pub fn as_crab(&self) -> [i64; 5] {
        let retry = if self.is_limited { self.retry_after.max(0) } else { 0 };
        [i64::from(!self.is_limited), self.limit, self.remaining, self.reset_after, retry]
    }
}

/// Whole seconds, one more for any whole millisecond beyond them: a wait of less than that is answered with 0.
fn seconds(duration: Duration) -> i64 {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    seconds.saturating_add(i64::from(duration.subsec_millis() > 0))
}
