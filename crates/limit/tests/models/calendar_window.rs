//! Windows of the calendar: a count per minute, day, week, month or year, found by walking through them.

use crate::random::{Kind, Workload};
use crate::{Model, compare, expect};
use std::time::Duration;
use tollgate_limit::{Calendar, CalendarUnit, Decision, Limit, Op, Outcome, Retry};

const DAY: u64 = 86_400_000_000_000;

struct CalendarWindow {
    limit: u64,
    unit: CalendarUnit,
    /// How many there were in the window that begins then, and when that ends.
    used: u64,
    start: u64,
    end: u64,
    /// The year and month that begin at `start`, for the units that need them.
    year: u64,
    month: u64,
}

impl CalendarWindow {
    fn new(limit: u64, unit: CalendarUnit) -> CalendarWindow {
        let mut first = CalendarWindow { limit, unit, used: 0, start: 0, end: 0, year: 1970, month: 1 };
        // The first week began on the Monday before the epoch, which was a Thursday.
        first.end = if unit == CalendarUnit::Week { 4 * DAY } else { first.length() };
        first
    }

    fn length(&self) -> u64 {
        let leap = self.year.is_multiple_of(4) && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        match self.unit {
            CalendarUnit::Minute => DAY / 24 / 60,
            CalendarUnit::Hour => DAY / 24,
            CalendarUnit::Day => DAY,
            CalendarUnit::Week => 7 * DAY,
            CalendarUnit::Month => match self.month {
                4 | 6 | 9 | 11 => 30 * DAY,
                2 => (28 + u64::from(leap)) * DAY,
                _ => 31 * DAY,
            },
            CalendarUnit::Year => DAY * (365 + u64::from(leap)),
        }
    }

    /// Walks to the window that `now` is in.
    fn walk(&mut self, now: u64) {
        while now >= self.end {
            self.used = 0;
            match self.unit {
                CalendarUnit::Year => self.year += 1,
                CalendarUnit::Month => (self.year, self.month) = (self.year + self.month / 12, self.month % 12 + 1),
                _ if now - self.end > 100 * DAY => self.end += (now - self.end) / (7 * DAY) * (7 * DAY),
                _ => {}
            }
            self.start = self.end;
            self.end += self.length();
        }
    }

    fn take(&mut self, cost: u64, now: u64) -> (Outcome, u64) {
        let outcome = self.outcome(cost, now);
        if outcome != Outcome::Allowed {
            return (outcome, 0);
        }
        self.used += cost;
        (outcome, cost)
    }

    fn outcome(&self, cost: u64, now: u64) -> Outcome {
        match cost {
            _ if cost > self.limit => Outcome::Refused(Retry::Never),
            _ if cost > self.limit - self.used => Outcome::Refused(Retry::After(Duration::from_nanos(self.end - now))),
            _ => Outcome::Allowed,
        }
    }

    fn answer(&mut self, op: Op, now: u64) -> (Outcome, u64) {
        let left = self.limit - self.used;
        match op {
            Op::Take(cost) | Op::Reserve { cost, .. } => self.take(cost, now),
            Op::Peek(cost) => (self.outcome(cost, now), 0),
            Op::TakeUpTo(most) => self.take(left.max(1).min(most), now),
            Op::Drain => self.take(left, now),
            Op::Charge(cost) => unreachable!("{cost} tokens charged to a window that keeps no debt here"),
            Op::Refund(tokens) => {
                self.used = self.used.saturating_sub(tokens);
                (Outcome::Allowed, tokens)
            }
            Op::Reset => {
                self.used = 0;
                (Outcome::Allowed, 0)
            }
        }
    }
}

impl Model for CalendarWindow {
    fn check(&mut self, op: Op, now: u64, said: &Decision) -> Result<(), String> {
        self.walk(now);
        let (outcome, granted) = self.answer(op, now);
        let reset_after = Duration::from_nanos(if self.used == 0 { 0 } else { self.end - now });
        let remaining = self.limit - self.used;
        expect("it", *said, Decision { outcome, granted, limit: self.limit, remaining, debt: 0, reset_after })
    }
}

#[test]
fn calendar_windows_answer_as_their_model() {
    use CalendarUnit::{Day, Hour, Minute, Month, Week, Year};
    for (unit, length) in
        [(Minute, DAY / 1_440), (Hour, DAY / 24), (Day, DAY), (Week, 7 * DAY), (Month, 30 * DAY), (Year, 365 * DAY)]
    {
        for limit in [1, 3, 1_000, 10_000_000_000] {
            // At most 40 years of them: a run begins in this century.
            let workload = Workload::of_everything(limit, length.min(10 * DAY)).without(&[Kind::Charge]);
            let calendar = Limit::calendar_window(limit, Calendar::utc(unit)).unwrap();
            compare(&calendar, &workload, |_| CalendarWindow::new(limit, unit));
        }
    }
}
