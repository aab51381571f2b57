//! Windows that people mean: this hour, today, this month.

use crate::time::Time;

const SECOND: i128 = 1_000_000_000;
const MINUTE: i128 = 60 * SECOND;
const HOUR: i128 = 60 * MINUTE;
const DAY: i128 = 24 * HOUR;

/// The epoch was a Thursday, three days after a Monday.
const MONDAY: i128 = -3 * DAY;

/// Windows aligned to the calendar, in UTC or at a fixed distance from it.
///
/// ```
/// use tollgate_limit::{Calendar, CalendarUnit};
///
/// let utc = Calendar::utc(CalendarUnit::Month);
/// let tokyo = Calendar::at_offset(CalendarUnit::Day, 9 * 3600).expect("within a day of UTC");
/// assert_ne!(utc, tokyo);
/// assert_eq!(Calendar::at_offset(CalendarUnit::Day, 25 * 3600), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calendar {
    unit: CalendarUnit,
    /// Seconds east of UTC.
    offset: i32,
}

/// How long a calendar window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalendarUnit {
    /// From :00 to :59 seconds.
    Minute,
    /// From :00 to :59 minutes.
    Hour,
    /// From midnight to midnight.
    Day,
    /// From Monday to Sunday.
    Week,
    /// From the first to the last day, 28 to 31 days.
    Month,
    /// From 1 January to 31 December.
    Year,
}

/// One window in time: nanoseconds from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

impl Span {
    pub(crate) fn end(&self) -> Time {
        Time::from_nanos(self.start.saturating_add(self.length))
    }
}

impl Calendar {
    /// Windows of the UTC calendar.
    pub const fn utc(unit: CalendarUnit) -> Calendar {
        Calendar { unit, offset: 0 }
    }

    /// Windows of a calendar that is so many seconds ahead of UTC (negative: behind); `None` for a day or more.
    pub const fn at_offset(unit: CalendarUnit, seconds: i32) -> Option<Calendar> {
        if seconds.unsigned_abs() < 86_400 { Some(Calendar { unit, offset: seconds }) } else { None }
    }

    /// The window that `now` lies in.
    pub(crate) fn span(&self, now: Time) -> Span {
        let offset = i128::from(self.offset) * SECOND;
        let local = i128::from(now.as_nanos()) + offset;
        let (start, end) = match self.unit {
            CalendarUnit::Minute => every(local, MINUTE, 0),
            CalendarUnit::Hour => every(local, HOUR, 0),
            CalendarUnit::Day => every(local, DAY, 0),
            CalendarUnit::Week => every(local, 7 * DAY, MONDAY),
            CalendarUnit::Month => {
                let (year, month) = year_and_month(local.div_euclid(DAY));
                (first_day(year, month) * DAY, first_day(year, month + 1) * DAY)
            }
            CalendarUnit::Year => {
                let (year, _) = year_and_month(local.div_euclid(DAY));
                (first_day(year, 1) * DAY, first_day(year + 1, 1) * DAY)
            }
        };
        // The window in which the epoch falls may have begun before it; it then counts from the epoch.
        let start_nanos = u64::try_from(start - offset).unwrap_or(0);
        let end_nanos = u64::try_from(end - offset).unwrap_or(u64::MAX);
        Span { start: start_nanos, length: end_nanos - start_nanos }
    }

    /// How many nanoseconds its windows last and how far from the epoch they begin, or how many months they last.
    pub(crate) const fn frame(&self) -> Result<(u64, i64), i64> {
        let offset = self.offset as i128 * SECOND;
        let (period, phase) = match self.unit {
            CalendarUnit::Minute => (MINUTE, 0),
            CalendarUnit::Hour => (HOUR, 0),
            CalendarUnit::Day => (DAY, 0),
            CalendarUnit::Week => (7 * DAY, MONDAY),
            CalendarUnit::Month => return Err(1),
            CalendarUnit::Year => return Err(12),
        };
        Ok((period as u64, (phase - offset) as i64))
    }

    /// Seconds east of UTC.
    pub(crate) const fn offset(&self) -> i32 {
        self.offset
    }

    /// When a month begins, counted from January of the year 0.
    pub(crate) fn start_of_month(&self, month: i64) -> Time {
        let day = first_day(i128::from(month.div_euclid(12)), i128::from(month.rem_euclid(12)) + 1);
        Time::from_nanos(u64::try_from(day * DAY - i128::from(self.offset) * SECOND).unwrap_or(0))
    }

    /// The shortest and the longest that such a window can be.
    pub(crate) const fn lengths(&self) -> (u64, u64) {
        let (shortest, longest) = match self.unit {
            CalendarUnit::Minute => (MINUTE, MINUTE),
            CalendarUnit::Hour => (HOUR, HOUR),
            CalendarUnit::Day => (DAY, DAY),
            CalendarUnit::Week => (7 * DAY, 7 * DAY),
            CalendarUnit::Month => (28 * DAY, 31 * DAY),
            CalendarUnit::Year => (365 * DAY, 366 * DAY),
        };
        (shortest as u64, longest as u64)
    }
}

/// The multiple of `period` (moved by `phase`) at or before `local`, and the next one.
fn every(local: i128, period: i128, phase: i128) -> (i128, i128) {
    let start = (local - phase).div_euclid(period) * period + phase;
    (start, start + period)
}

/// Year and month (1 to 12) of a day counted from the epoch, in the Gregorian calendar.
///
/// Counts in years that begin in March, so that the leap day is the last of its year, and in eras of 400
/// years, after which the calendar repeats.
fn year_and_month(day: i128) -> (i128, i128) {
    let from_march_0000 = day + 719_468;
    let era = from_march_0000.div_euclid(146_097);
    let of_era = from_march_0000.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let year = era * 400 + year_of_era + i128::from(month_from_march >= 10);
    (year, (month_from_march + 2) % 12 + 1)
}

/// The first day of a month, counted from the epoch. Month 13 is the next January.
fn first_day(year: i128, month: i128) -> i128 {
    let (year, month) = (year + (month - 1).div_euclid(12), (month - 1).rem_euclid(12) + 1);
    let year_from_march = year - i128::from(month <= 2);
    let month_from_march = (month + 9) % 12;
    let era = year_from_march.div_euclid(400);
    let year_of_era = year_from_march.rem_euclid(400);
    let of_year = (153 * month_from_march + 2) / 5;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    era * 146_097 + of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(calendar: Calendar, now: u64) -> (u64, u64) {
        let span = calendar.span(Time::from_nanos(now * 1_000_000_000));
        (span.start / 1_000_000_000, span.length / 1_000_000_000)
    }

    #[test]
    fn months_have_the_length_that_the_calendar_gives_them() {
        // 2024-02-29 12:00, 2023-02-01, 2026-12-31 23:59:59, 2000-03-01 (all UTC).
        let month = Calendar::utc(CalendarUnit::Month);
        assert_eq!(seconds(month, 1_709_208_000), (1_706_745_600, 29 * 86_400));
        assert_eq!(seconds(month, 1_675_209_600), (1_675_209_600, 28 * 86_400));
        assert_eq!(seconds(month, 1_798_761_599), (1_796_083_200, 31 * 86_400));
        assert_eq!(seconds(month, 951_868_800), (951_868_800, 31 * 86_400));
    }

    #[test]
    fn every_day_of_three_centuries_lies_in_the_month_that_holds_it() {
        let month = Calendar::utc(CalendarUnit::Month);
        let mut next = 0;
        for day in 0..110_000_u64 {
            let (start, length) = seconds(month, day * 86_400);
            assert!(start <= day * 86_400 && day * 86_400 < start + length);
            assert!(start == next || start + length == next, "months follow each other without a gap");
            next = start + length;
        }
    }

    #[test]
    fn an_offset_moves_midnight() {
        // 2026-01-01 20:00 UTC is already the second of January in Tokyo.
        let now = 1_767_297_600;
        let tokyo = Calendar::at_offset(CalendarUnit::Day, 9 * 3600).unwrap();
        assert_eq!(seconds(tokyo, now), (1_767_279_600, 86_400));
        let new_york = Calendar::at_offset(CalendarUnit::Day, -5 * 3600).unwrap();
        assert_eq!(seconds(new_york, now), (1_767_243_600, 86_400));
    }

    #[test]
    fn weeks_begin_on_monday() {
        // 2026-11-15 is a Sunday.
        assert_eq!(seconds(Calendar::utc(CalendarUnit::Week), 1_794_700_800), (1_794_182_400, 7 * 86_400));
    }

    #[test]
    fn the_ends_of_time_are_in_a_window_too() {
        for unit in [CalendarUnit::Minute, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year] {
            for offset in [-80_000, 0, 80_000] {
                let calendar = Calendar::at_offset(unit, offset).unwrap();
                assert!(calendar.span(Time::ZERO).end() > Time::ZERO);
                assert!(calendar.span(Time::MAX).start > 0);
            }
        }
    }
}
