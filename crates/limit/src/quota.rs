//! How much is allowed: so many per so long, and how much at once.

mod text;

use crate::pace::Pace;
use crate::time::nanos;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

pub use text::{ParseQuotaError, format_duration, parse_duration};

/// So many tokens per so long, and how many at once: "N per DURATION burst B".
///
/// Whoever has spent nothing for a while may take `burst` tokens at once, and from then on as many as the
/// rate brings. Where no burst is given it is the count: `100 per second` lets 100 through at once.
///
/// ```
/// use std::time::Duration;
/// use tollgate_limit::Quota;
///
/// let quota: Quota = "5 per 15 minutes burst 10".parse()?;
/// assert_eq!((quota.count(), quota.period(), quota.burst()), (5, Duration::from_secs(900), 10));
/// assert_eq!(quota.to_string(), "5 per 15 minutes burst 10");
///
/// let same = Quota::new(5, Duration::from_secs(900))?.with_burst(10)?;
/// assert_eq!(quota, same);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Quota {
    count: NonZeroU64,
    period: NonZeroU64,
    burst: NonZeroU64,
    pace: Pace,
}

/// Why a quota cannot be made. Nothing else was changed; the numbers have to be chosen differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuotaError {
    /// Zero tokens per period: a rule that lets nothing through is a ban, not a quota.
    ZeroCount,
    /// A period of no time at all.
    ZeroPeriod,
    /// A burst of zero would never let anything through.
    ZeroBurst,
    /// More than 1024 tokens per nanosecond (about 10^12 per second).
    TooFast,
    /// An empty bucket would take longer than 73 years to fill (three days for rates above 10^9 per second).
    TooLong,
}

impl Quota {
    /// `count` tokens every `period`, all of them at once if unused.
    ///
    /// # Errors
    /// Zeroes, more than 10^12 per second, and what would take decades to refill.
    pub const fn new(count: u64, period: Duration) -> Result<Quota, QuotaError> {
        let Some(count) = NonZeroU64::new(count) else { return Err(QuotaError::ZeroCount) };
        let Some(period) = NonZeroU64::new(nanos(period)) else { return Err(QuotaError::ZeroPeriod) };
        Quota::checked(count, period, count)
    }

    /// The same rate with another number of tokens that can be taken at once.
    ///
    /// # Errors
    /// A burst of zero, or one that would take decades to refill.
    pub const fn with_burst(self, burst: u64) -> Result<Quota, QuotaError> {
        let Some(burst) = NonZeroU64::new(burst) else { return Err(QuotaError::ZeroBurst) };
        Quota::checked(self.count, self.period, burst)
    }

    const fn checked(count: NonZeroU64, period: NonZeroU64, burst: NonZeroU64) -> Result<Quota, QuotaError> {
        match Pace::new(count, period, burst) {
            Ok(pace) => Ok(Quota { count, period, burst, pace }),
            Err(error) => Err(error),
        }
    }

    /// `count` tokens every second.
    pub const fn per_second(count: NonZeroU32) -> Quota {
        Quota::per(count, 1)
    }

    /// `count` tokens every minute.
    pub const fn per_minute(count: NonZeroU32) -> Quota {
        Quota::per(count, 60)
    }

    /// `count` tokens every hour.
    pub const fn per_hour(count: NonZeroU32) -> Quota {
        Quota::per(count, 3_600)
    }

    /// `count` tokens every day of 24 hours.
    pub const fn per_day(count: NonZeroU32) -> Quota {
        Quota::per(count, 86_400)
    }

    const fn per(count: NonZeroU32, seconds: u64) -> Quota {
        match Quota::new(count.get() as u64, Duration::from_secs(seconds)) {
            Ok(quota) => quota,
            // At most 2^32 tokens a second and at least one a day: both far inside the bounds.
            Err(_) => unreachable!(),
        }
    }

    /// Tokens that come in every [`period`](Self::period).
    pub const fn count(&self) -> u64 {
        self.count.get()
    }

    /// How long [`count`](Self::count) tokens take to come in.
    pub const fn period(&self) -> Duration {
        Duration::from_nanos(self.period.get())
    }

    /// The most that can be taken at once.
    #[inline(always)]
    pub const fn burst(&self) -> u64 {
        self.burst.get()
    }

    #[inline(always)]
    pub(crate) const fn pace(&self) -> &Pace {
        &self.pace
    }
}

impl PartialEq for Quota {
    fn eq(&self, other: &Quota) -> bool {
        (self.count, self.period, self.burst) == (other.count, other.period, other.burst)
    }
}

impl Eq for Quota {}

impl Hash for Quota {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.count, self.period, self.burst).hash(state);
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({self})")
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuotaError::ZeroCount => "a quota needs at least 1 token per period",
            QuotaError::ZeroPeriod => "a quota needs a period longer than zero",
            QuotaError::ZeroBurst => "a burst needs at least 1 token",
            QuotaError::TooFast => "at most 10^12 tokens per second are possible",
            QuotaError::TooLong => {
                "the burst would take more than 73 years to refill (3 days above 10^9 per second); choose a smaller burst or a shorter period"
            }
        })
    }
}

impl std::error::Error for QuotaError {}
