//! The units in which Envoy counts.

use std::time::Duration;
use tollgate::Time;

const DAY: u64 = 86_400;

/// A unit by the number that Envoy knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Unit {
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

impl Unit {
    /// Those that a descriptor can bring along: weeks are not among them.
    pub(super) fn from_number(number: u32) -> Option<Unit> {
        use Unit::{Day, Hour, Minute, Month, Second, Year};
        [Second, Minute, Hour, Day, Month, Year].into_iter().find(|unit| *unit as u32 == number)
    }

    /// The unit of a limit, if its period is one. Months and years of the calendar are told by their nominal length.
    pub(super) fn from_period(period: Duration) -> Option<Unit> {
        if period.subsec_nanos() != 0 {
            return None;
        }
        Some(match period.as_secs() {
            1 => Unit::Second,
            60 => Unit::Minute,
            3_600 => Unit::Hour,
            DAY => Unit::Day,
            seconds if seconds == 7 * DAY => Unit::Week,
            seconds if (28 * DAY..=31 * DAY).contains(&seconds) => Unit::Month,
            seconds if (365 * DAY..=366 * DAY).contains(&seconds) => Unit::Year,
            _ => return None,
        })
    }

    /// As long as envoyproxy/ratelimit takes it to be.
    pub(super) fn period(self) -> Duration {
        Duration::from_secs(match self {
            Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 3_600,
            Unit::Day => DAY,
            Unit::Week => 7 * DAY,
            Unit::Month => 30 * DAY,
            Unit::Year => 365 * DAY,
        })
    }
}

/// How long until the window ends in which now is.
pub(super) fn until_window_ends(period: Duration, now: Time) -> Duration {
    let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(period - now.as_nanos() % period)
}

#[cfg(test)]
mod tests {
    use super::{Unit, until_window_ends};
    use std::time::Duration;
    use tollgate::Time;

    #[test]
    fn each_unit_is_known_by_its_number_and_its_period() {
        for number in 1..=6 {
            let unit = Unit::from_number(number).unwrap();
            assert_eq!((unit as u32, Unit::from_period(unit.period())), (number, Some(unit)));
        }
        assert_eq!((Unit::from_number(0), Unit::from_number(7), Unit::from_number(u32::MAX)), (None, None, None));
        assert_eq!(Unit::from_period(Unit::Week.period()), Some(Unit::Week));
        assert_eq!(Unit::from_period(Duration::from_secs(300)), None);
        assert_eq!(Unit::from_period(Duration::from_millis(1_500)), None);
    }

    #[test]
    fn windows_end_at_multiples_of_their_length() {
        let minute = Duration::from_secs(60);
        let at = |seconds: u64| until_window_ends(minute, Time::from_nanos(seconds * 1_000_000_000)).as_secs();
        assert_eq!([at(0), at(1), at(59), at(60)], [60, 59, 1, 60]);
    }
}
