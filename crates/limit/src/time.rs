use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A point in time: nanoseconds since the Unix epoch.
///
/// The library never reads a clock; every function that depends on time is given one of these.
/// Any origin will do for limits that only look at differences. Calendar windows assume the epoch.
///
/// ```
/// use std::time::Duration;
/// use tollgate_limit::Time;
///
/// let start = Time::from_nanos(1_000);
/// let later = start + Duration::from_nanos(500);
/// assert_eq!(later.since(start), Duration::from_nanos(500));
/// assert_eq!(start.since(later), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);

    /// The last instant that can be named, in the year 2554.
    pub const MAX: Time = Time(u64::MAX);

    /// This many nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero where it is not after it at all.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Stops at [`Time::MAX`] instead of wrapping round.
impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(nanos(duration)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// A duration in whole nanoseconds, at most `u64::MAX` of them (584 years).
pub(crate) const fn nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}
