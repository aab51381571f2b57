//! "N per DURATION burst B", read and printed.

use super::{Quota, QuotaError};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

/// Longer texts are refused before anything is read of them.
const LONGEST_TEXT: usize = 128;

/// Units from large to small; the first name is the one printed.
const UNITS: [(&[&str], u64); 8] = [
    (&["week", "weeks", "w"], 604_800_000_000_000),
    (&["day", "days", "d"], 86_400_000_000_000),
    (&["hour", "hours", "h"], 3_600_000_000_000),
    (&["minute", "minutes", "min", "m"], 60_000_000_000),
    (&["second", "seconds", "sec", "s"], 1_000_000_000),
    (&["millisecond", "milliseconds", "ms"], 1_000_000),
    (&["microsecond", "microseconds", "us"], 1_000),
    (&["nanosecond", "nanoseconds", "ns"], 1),
];

/// A text that is no quota: what is wrong, where, and what would be right.
///
/// ```
/// use tollgate_limit::Quota;
///
/// let error = "5 per fortnight".parse::<Quota>().unwrap_err();
/// assert_eq!(error.to_string(), "unknown unit
///   | 5 per fortnight
///   |       ^^^^^^^^^ write second, minute, hour, day or week");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseQuotaError {
    problem: &'static str,
    text: String,
    place: Range<usize>,
    help: String,
}

impl ParseQuotaError {
    /// Which bytes of the text are wrong.
    pub fn place(&self) -> Range<usize> {
        self.place.clone()
    }

    /// What is wrong with them, without the text around it.
    pub fn problem(&self) -> &str {
        self.problem
    }

    /// What would be right.
    pub fn help(&self) -> &str {
        &self.help
    }
}

impl fmt::Display for ParseQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As wide as they are printed: what would garble a terminal is escaped.
        let width = |end: usize| self.text.get(..end).unwrap_or_default().escape_debug().count();
        let before = width(self.place.start);
        let wrong = width(self.place.end).saturating_sub(before).max(1);
        writeln!(f, "{}", self.problem)?;
        writeln!(f, "  | {}", self.text.escape_debug())?;
        write!(f, "  | {:before$}{:^<wrong$} {}", "", "", self.help)
    }
}

impl std::error::Error for ParseQuotaError {}

impl FromStr for Quota {
    type Err = ParseQuotaError;

    fn from_str(text: &str) -> Result<Quota, ParseQuotaError> {
        if text.len() > LONGEST_TEXT {
            return Err(too_long(text, "a quota", "100 per second burst 200"));
        }
        let mut words = Words { text, at: 0 };
        let (count, count_at) = words.number("how many, as in \"100 per second\"")?;
        words.keyword("per", "\"per\", as in \"100 per second\"")?;
        let (period, period_at) = words.duration()?;
        let quota = Quota::new(count, period).map_err(|error| match error {
            QuotaError::ZeroCount | QuotaError::TooFast => words.refuse(error, &count_at),
            _ => words.refuse(error, &period_at),
        })?;
        if words.rest_is_blank() {
            return Ok(quota);
        }
        words.keyword("burst", "nothing more, or a burst as in \"100 per second burst 200\"")?;
        let (burst, burst_at) = words.number("how many at once, as in \"100 per second burst 200\"")?;
        let quota = quota.with_burst(burst).map_err(|error| words.refuse(error, &burst_at))?;
        match words.next() {
            "" => Ok(quota),
            extra => Err(words.wrong("unexpected text after the quota", extra, "leave this out")),
        }
    }
}

/// Reads a duration as quotas are written with: `second`, `15 minutes`, `500ms`.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(tollgate_limit::parse_duration("500ms")?, Duration::from_millis(500));
/// assert_eq!(tollgate_limit::parse_duration("2 weeks")?, Duration::from_secs(14 * 86_400));
/// # Ok::<(), tollgate_limit::ParseQuotaError>(())
/// ```
///
/// # Errors
/// What is wrong, where, and what would be right.
pub fn parse_duration(text: &str) -> Result<Duration, ParseQuotaError> {
    if text.len() > LONGEST_TEXT {
        return Err(too_long(text, "a duration", "15 minutes"));
    }
    let mut words = Words { text, at: 0 };
    let (duration, _) = words.duration()?;
    match words.next() {
        "" => Ok(duration),
        extra => Err(words.wrong("unexpected text after the duration", extra, "leave this out")),
    }
}

/// Writes a duration so that [`parse_duration`] reads it, in the largest unit that divides it: `15 minutes`.
pub fn format_duration(duration: Duration) -> String {
    let nanos = crate::time::nanos(duration);
    let (names, unit) =
        UNITS.iter().find(|(_, unit)| nanos.is_multiple_of(*unit)).copied().unwrap_or((&["nanosecond"], 1));
    let name = names.first().copied().unwrap_or_default();
    match nanos / unit {
        1 => name.to_owned(),
        several => format!("{several} {name}s"),
    }
}

/// Prints the largest unit that divides the period, and the burst where it is not the count.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {}", self.count, format_duration(self.period()))?;
        if self.burst == self.count { Ok(()) } else { write!(f, " burst {}", self.burst) }
    }
}

fn too_long(text: &str, what: &str, example: &str) -> ParseQuotaError {
    ParseQuotaError {
        problem: "this text is too long",
        text: text.chars().take(16).chain("…".chars()).collect(),
        place: 0..text.chars().next().map_or(0, char::len_utf8),
        help: format!("write {what} of at most {LONGEST_TEXT} bytes, as in \"{example}\""),
    }
}

/// The words of a text. Digits and letters that touch (`15min`) are two words.
struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn rest_is_blank(&self) -> bool {
        self.rest().trim_start().is_empty()
    }

    /// The next word, or an empty one at the end.
    fn next(&mut self) -> &'a str {
        self.at = self.text.len() - self.rest().trim_start().len();
        let rest = self.rest();
        let is_digit = |c: char| c.is_ascii_digit() || c == '_';
        let number = rest.starts_with(is_digit);
        let end = rest.find(|c: char| c.is_whitespace() || is_digit(c) != number).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn number(&mut self, wanted: &str) -> Result<(u64, Range<usize>), ParseQuotaError> {
        let word = self.next();
        let digits: String = word.chars().filter(|c| *c != '_').collect();
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(self.wrong("expected a whole number", word, &format!("write {wanted}")));
        }
        match digits.parse() {
            Ok(number) => Ok((number, self.place(word))),
            Err(_) => Err(self.wrong("this number is too large", word, &format!("write at most {}", u64::MAX))),
        }
    }

    fn keyword(&mut self, keyword: &str, wanted: &str) -> Result<(), ParseQuotaError> {
        let word = self.next();
        if word.eq_ignore_ascii_case(keyword) {
            return Ok(());
        }
        Err(self.wrong("expected another word", word, &format!("write {wanted}")))
    }

    /// `second`, `15 minutes`, `15min`.
    fn duration(&mut self) -> Result<(Duration, Range<usize>), ParseQuotaError> {
        const WANTED: &str = "write second, minute, hour, day or week";
        let start = self.at + (self.rest().len() - self.rest().trim_start().len());
        let how_many = match self.rest().trim_start().starts_with(|c: char| c.is_ascii_digit()) {
            true => self.number("a duration, as in \"15 minutes\"")?.0,
            false => 1,
        };
        let name = self.next();
        let known = UNITS.iter().find(|(names, _)| names.iter().any(|known| name.eq_ignore_ascii_case(known)));
        let Some((_, unit)) = known else {
            return Err(self.wrong("unknown unit", name, WANTED));
        };
        let place = start..self.at;
        match how_many.checked_mul(*unit) {
            Some(nanos) => Ok((Duration::from_nanos(nanos), place)),
            None => Err(self.refuse(QuotaError::TooLong, &place)),
        }
    }

    fn place(&self, word: &str) -> Range<usize> {
        self.at - word.len()..self.at
    }

    fn wrong(&self, problem: &'static str, word: &str, help: &str) -> ParseQuotaError {
        ParseQuotaError { problem, text: self.text.to_owned(), place: self.place(word), help: help.to_owned() }
    }

    fn refuse(&self, error: QuotaError, place: &Range<usize>) -> ParseQuotaError {
        let problem = "this quota is not possible";
        ParseQuotaError { problem, text: self.text.to_owned(), place: place.clone(), help: error.to_string() }
    }
}
