//! A limit as it is written: `N per DURATION burst B using ALGORITHM …`.

use crate::mistake::did_you_mean;
use crate::model::Amount;
use std::ops::Range;
use std::time::Duration;
use tollgate_limit::{
    Blocked, Calendar, CalendarUnit, Limit, ParseQuotaError, Quota, QuotaError, format_duration, parse_duration,
};

/// The algorithms by the names that rules know them by, with the options that each takes.
pub(crate) const ALGORITHMS: [(&str, &[&str]); 10] = [
    ("token-bucket", &[]),
    ("leaky-bucket", &[]),
    ("leaky-queue", &[]),
    ("fixed-window", &[]),
    ("calendar-window", &["at"]),
    ("sliding-window", &[]),
    ("sliding-log", &["gap", "counting-refused"]),
    ("cycles", &["wait"]),
    ("smooth-bursty", &["wait"]),
    ("smooth-warming-up", &["warm-up", "wait"]),
];

const CALENDAR: [(&str, CalendarUnit, u64); 6] = [
    ("minute", CalendarUnit::Minute, 60),
    ("hour", CalendarUnit::Hour, 3_600),
    ("day", CalendarUnit::Day, 86_400),
    ("week", CalendarUnit::Week, 604_800),
    ("month", CalendarUnit::Month, 30 * 86_400),
    ("year", CalendarUnit::Year, 365 * 86_400),
];

/// What is wrong with a limit, at which characters, and what would be right.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) place: Range<usize>,
    pub(crate) problem: String,
    pub(crate) help: String,
}

fn wrong(place: Range<usize>, problem: impl Into<String>, help: impl Into<String>) -> Wrong {
    Wrong { place, problem: problem.into(), help: help.into() }
}

fn at(offset: usize) -> impl Fn(ParseQuotaError) -> Wrong {
    move |error| {
        let place = error.place();
        wrong(place.start + offset..place.end + offset, error.problem(), error.help())
    }
}

/// Reads a limit.
pub(crate) fn parse(text: &str) -> Result<Amount, Wrong> {
    let (quota, rest) = match find_word(text, "using") {
        Some(using) => text.split_at(using),
        None => (text, ""),
    };
    let start = quota.len() + rest.len().min("using".len());
    let mut options = Options { text, words: words(text, start), algorithm: "token-bucket" };
    whole(quota)?;
    if is_ban(quota) {
        return ban(quota, rest);
    }
    if !rest.is_empty() {
        options.take_algorithm()?;
    }
    let amount = if options.algorithm == "calendar-window" {
        calendar(quota, &mut options)
    } else {
        rolling(quota, &mut options)
    };
    options.finish()?;
    amount
}

/// A rate of less than one is written with a longer period.
fn whole(quota: &str) -> Result<(), Wrong> {
    let Some(number) = words(quota, 0).into_iter().next() else { return Ok(()) };
    let text = part(quota, &number);
    if text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('.') {
        return Err(wrong(number, "expected a whole number", "write it per longer time, as in \"1 per 2 seconds\""));
    }
    Ok(())
}

/// Whether the number is a zero, and nothing but a number.
fn is_ban(quota: &str) -> bool {
    let number = quota.split_whitespace().next().unwrap_or_default();
    number.contains('0') && number.chars().all(|c| c == '0' || c == '_')
}

/// `0 per minute`: the unit matters only to those who are told.
fn ban(quota: &str, algorithm: &str) -> Result<Amount, Wrong> {
    if !algorithm.is_empty() {
        let place = quota.len()..quota.len() + algorithm.trim_end().len();
        return Err(wrong(place, "a ban has no algorithm", "leave this out"));
    }
    let Some(per) = find_word(quota, "per") else {
        return Err(wrong(0..quota.trim_end().len(), "a ban has a unit, too", "write \"0 per second\""));
    };
    let duration = quota.get(per + 3..).unwrap_or_default();
    Ok(Amount::Banned { period: parse_duration(duration).map_err(at(per + 3))? })
}

pub(crate) fn ban_text(period: Duration) -> String {
    format!("0 per {}", format_duration(period))
}

fn rolling(quota_text: &str, options: &mut Options<'_>) -> Result<Amount, Wrong> {
    let quota: Quota = quota_text.trim_end().parse().map_err(at(0))?;
    let has_burst = ["token-bucket", "leaky-bucket", "leaky-queue", "smooth-bursty"].contains(&options.algorithm);
    if let Some(burst) = find_word(quota_text, "burst").filter(|_| !has_burst) {
        let help = format!("leave the burst out: {} lets the count through at once", options.algorithm);
        return Err(wrong(burst..quota_text.trim_end().len(), "this algorithm has no burst", help));
    }
    let mut suffix = String::new();
    let limit = match options.algorithm {
        "fixed-window" => Limit::fixed_window(quota),
        "sliding-window" => Limit::sliding_window(quota),
        "sliding-log" => sliding_log(quota, options, &mut suffix)?,
        "leaky-queue" => Limit::leaky_queue(quota),
        "cycles" => Limit::cycles(quota, options.wait(&mut suffix)?),
        "smooth-bursty" => Limit::smooth_bursty(quota, options.wait(&mut suffix)?),
        "smooth-warming-up" => warming_up(quota, options, &mut suffix)?,
        // As a meter, the leaky bucket is the same thing.
        _ => return Ok(Amount::Limit { text: quota.to_string().into(), quota, limit: Limit::token_bucket(quota) }),
    };
    let text = format!("{quota} using {}{suffix}", options.algorithm);
    Ok(Amount::Limit { text: text.into(), quota, limit })
}

fn sliding_log(quota: Quota, options: &mut Options<'_>, suffix: &mut String) -> Result<Limit, Wrong> {
    let gap = options.duration("gap", suffix)?;
    let counting = options.flag("counting-refused", suffix);
    if gap.is_none() && !counting {
        return Ok(Limit::sliding_log(quota));
    }
    let blocked = if counting { Blocked::Counted } else { Blocked::Ignored };
    Ok(Limit::rolling_log(quota, gap.unwrap_or_default(), blocked))
}

fn warming_up(quota: Quota, options: &mut Options<'_>, suffix: &mut String) -> Result<Limit, Wrong> {
    let place = options.text.len()..options.text.len();
    let Some(warm_up) = options.duration("warm-up", suffix)? else {
        return Err(wrong(
            place,
            "how long does it take to warm up?",
            "write \"… using smooth-warming-up warm-up 10s\"",
        ));
    };
    let wait = options.wait(suffix)?;
    Limit::smooth_warming_up(quota, warm_up, wait)
        .map_err(|error| wrong(place, "this is not possible", error.to_string()))
}

fn calendar(quota: &str, options: &mut Options<'_>) -> Result<Amount, Wrong> {
    const HELP: &str = "write \"1000 per month using calendar-window\", with minute, hour, day, week, month or year";
    let mut parts = words(quota, 0).into_iter();
    let (Some(count), Some(per), Some(unit), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(wrong(0..quota.trim_end().len(), "this is no calendar window", HELP));
    };
    let Ok(number) = part(quota, &count).replace('_', "").parse::<u64>() else {
        return Err(wrong(count, "expected a whole number", HELP));
    };
    if !part(quota, &per).eq_ignore_ascii_case("per") {
        return Err(wrong(per, "expected another word", HELP));
    }
    let known = CALENDAR.iter().find(|(name, ..)| part(quota, &unit).eq_ignore_ascii_case(name));
    let Some((name, calendar_unit, seconds)) = known else {
        return Err(wrong(unit, "the calendar has no such unit", HELP));
    };
    let impossible = |error: QuotaError| wrong(count.clone(), "this quota is not possible", error.to_string());
    let mut suffix = String::new();
    let calendar = options.calendar(*calendar_unit, &mut suffix)?;
    Ok(Amount::Limit {
        text: format!("{number} per {name} using calendar-window{suffix}").into(),
        quota: Quota::new(number, Duration::from_secs(*seconds)).map_err(impossible)?,
        limit: Limit::calendar_window(number, calendar).map_err(impossible)?,
    })
}

/// What is said about an algorithm.
struct Options<'a> {
    text: &'a str,
    /// The words that have not been understood yet.
    words: Vec<Range<usize>>,
    algorithm: &'static str,
}

impl Options<'_> {
    fn take_algorithm(&mut self) -> Result<(), Wrong> {
        let names = || ALGORITHMS.iter().map(|(name, _)| *name);
        let list = || format!("write one of {}", names().collect::<Vec<_>>().join(", "));
        if self.words.is_empty() {
            return Err(wrong(self.text.len()..self.text.len(), "by which algorithm?", list()));
        }
        let place = self.words.remove(0);
        let name = part(self.text, &place).to_ascii_lowercase().replace('_', "-");
        match names().find(|known| *known == name) {
            Some(known) => self.algorithm = known,
            None => {
                let help = did_you_mean(&name, names()).map_or_else(list, |close| format!("did you mean `{close}`?"));
                return Err(wrong(place, "unknown algorithm", help));
            }
        }
        Ok(())
    }

    /// Takes a word out, if it is there, and says where it stood in the list.
    fn flag(&mut self, name: &str, suffix: &mut String) -> bool {
        let found = self.position(name);
        if let Some(position) = found {
            self.words.remove(position);
            suffix.push_str(&format!(" {name}"));
        }
        found.is_some()
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.words.iter().position(|place| part(self.text, place).eq_ignore_ascii_case(name))
    }

    /// The word after a name, both taken out.
    fn value(&mut self, name: &str) -> Result<Option<Range<usize>>, Wrong> {
        let Some(position) = self.position(name) else { return Ok(None) };
        let place = self.words.remove(position);
        if position >= self.words.len() {
            return Err(wrong(place, format!("`{name}` of what?"), format!("write a value after `{name}`")));
        }
        Ok(Some(self.words.remove(position)))
    }

    fn duration(&mut self, name: &str, suffix: &mut String) -> Result<Option<Duration>, Wrong> {
        let Some(place) = self.value(name)? else { return Ok(None) };
        let duration = parse_duration(part(self.text, &place)).map_err(at(place.start))?;
        suffix.push_str(&format!(" {name} {}", compact(duration)));
        Ok(Some(duration))
    }

    fn wait(&mut self, suffix: &mut String) -> Result<Duration, Wrong> {
        Ok(self.duration("wait", suffix)?.unwrap_or_default())
    }

    /// `at +09:00`
    fn calendar(&mut self, unit: CalendarUnit, suffix: &mut String) -> Result<Calendar, Wrong> {
        let Some(place) = self.value("at")? else { return Ok(Calendar::utc(unit)) };
        let text = part(self.text, &place);
        let help = "write the distance to UTC, as in \"at +09:00\"";
        let calendar = offset(text).and_then(|seconds| Calendar::at_offset(unit, seconds));
        suffix.push_str(&format!(" at {text}"));
        calendar.ok_or_else(|| wrong(place, "this is no distance to UTC", help))
    }

    /// Nothing may be left over.
    fn finish(&self) -> Result<(), Wrong> {
        let Some(extra) = self.words.first() else { return Ok(()) };
        let known = ALGORITHMS.iter().find(|(name, _)| *name == self.algorithm).map_or(&[][..], |(_, options)| options);
        let help = match known {
            [] => format!("leave this out: {} takes no options", self.algorithm),
            known => format!("{} takes {}, each once", self.algorithm, known.join(" and ")),
        };
        Err(wrong(extra.clone(), "unexpected text after the algorithm", help))
    }
}

/// Seconds east of UTC.
fn offset(text: &str) -> Option<i32> {
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = digits.split_once(':')?;
    let number = |text: &str, most: i32| -> Option<i32> {
        let valid = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number| valid && *number <= most)
    };
    Some(sign * (number(hours, 23)? * 3600 + number(minutes, 59)? * 60))
}

/// A duration as one word, such as `10s`.
pub(crate) fn compact(duration: Duration) -> String {
    const UNITS: [(&str, u128); 5] =
        [("h", 3_600_000_000_000), ("min", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let nanos = duration.as_nanos();
    let (name, unit) = UNITS.into_iter().find(|(_, unit)| nanos.is_multiple_of(*unit)).unwrap_or(("ns", 1));
    format!("{}{name}", nanos / unit)
}

fn part<'a>(text: &'a str, place: &Range<usize>) -> &'a str {
    text.get(place.clone()).unwrap_or_default()
}

/// Where the words of a text are, from some byte on.
fn words(text: &str, start: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = start;
    while let Some(rest) = text.get(at..) {
        let word_start = at + (rest.len() - rest.trim_start().len());
        let word = text.get(word_start..).unwrap_or_default();
        if word.is_empty() {
            break;
        }
        at = word_start + word.find(char::is_whitespace).unwrap_or(word.len());
        found.push(word_start..at);
    }
    found
}

fn find_word(text: &str, word: &str) -> Option<usize> {
    words(text, 0).into_iter().find(|place| part(text, place).eq_ignore_ascii_case(word)).map(|place| place.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_printed_as_they_are_read() {
        for (text, printed) in [
            ("5 per minute", "5 per minute"),
            ("5 per 60s burst 9 using token-bucket", "5 per minute burst 9"),
            ("100 per day using sliding-window", "100 per day using sliding-window"),
            (
                "3 per hour using sliding_log gap 1s counting-refused",
                "3 per hour using sliding-log gap 1s counting-refused",
            ),
            ("7 per month using calendar-window at +09:00", "7 per month using calendar-window at +09:00"),
            (
                "9 per second using smooth-warming-up warm-up 10s wait 500ms",
                "9 per second using smooth-warming-up warm-up 10s wait 500ms",
            ),
            ("0 per minute", "0 per minute"),
        ] {
            let amount = parse(text).unwrap();
            assert_eq!(amount.to_string(), printed);
            assert_eq!(parse(printed).unwrap(), amount);
        }
    }

    #[test]
    fn mistakes_are_pointed_at() {
        for (text, place, help) in [
            ("5 per minute using slidingwindow", 19..32, "did you mean `sliding-window`?"),
            ("5 per fortnight", 6..15, "write second, minute, hour, day or week"),
            ("5 per second using fixed-window wait 1s", 32..36, "leave this out: fixed-window takes no options"),
            ("5 per second using cycles wait", 26..30, "write a value after `wait`"),
            ("0.5 per second", 0..3, "write it per longer time, as in \"1 per 2 seconds\""),
            ("0 per second using cycles", 13..25, "leave this out"),
            ("5 per month using calendar-window at noon", 37..41, "write the distance to UTC, as in \"at +09:00\""),
        ] {
            let wrong = parse(text).unwrap_err();
            assert_eq!((wrong.place, &*wrong.help), (place, help), "{text}");
        }
    }
}
