//! The body of a refusal over HTTP: Problem Details (RFC 9457) with the types of the IETF's draft on rate limits.

#[cfg(test)]
mod tests;

use crate::headers::Told;
use std::fmt::{self, Write};

/// What the body is sent as.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// Why a request was refused, and all that the client is told about it.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// Whose fault it is.
    pub kind: Kind,
    /// What the headers say, too.
    pub told: &'a Told<'a>,
}

/// Whose fault a refusal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The client's: it asked for more than its quota.
    QuotaExceeded,
    /// The service's: it can do less than usual.
    ReducedCapacity,
    /// The service's: it cannot tell at present what the client has used.
    Unavailable,
    /// The client's: it behaves in no way that makes sense.
    AbnormalUsage,
}

impl Kind {
    /// What the type of the problem is identified by.
    pub const fn uri(self) -> &'static str {
        match self {
            Kind::QuotaExceeded => "https://iana.org/assignments/http-problem-types#quota-exceeded",
            Kind::ReducedCapacity | Kind::Unavailable => {
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
            }
            Kind::AbnormalUsage => "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
        }
    }

    /// The title it is registered with.
    pub const fn title(self) -> &'static str {
        match self {
            Kind::QuotaExceeded => "Quota Exceeded",
            Kind::ReducedCapacity | Kind::Unavailable => "Temporary Reduced Capacity",
            Kind::AbnormalUsage => "Abnormal Usage Detected",
        }
    }

    /// The HTTP status that goes with it.
    pub const fn status(self) -> u16 {
        match self {
            Kind::QuotaExceeded | Kind::AbnormalUsage => 429,
            Kind::ReducedCapacity | Kind::Unavailable => 503,
        }
    }
}

/// Appends the problem as one line of JSON.
///
/// ```
/// use std::time::Duration;
/// use tollgate::headers::Told;
/// use tollgate::problem::{self, Kind, Problem};
///
/// let told = Told { policies: &[], retry_after: Some(Duration::from_secs(5)), refused: true };
/// let mut body = String::new();
/// problem::write(&Problem { kind: Kind::ReducedCapacity, told: &told }, &mut body);
/// assert!(body.contains(r#""detail":"The service is at its capacity. Try again in 5 seconds.""#));
/// assert!(body.ends_with(r#""retry-after":5}"#));
/// ```
pub fn write(problem: &Problem<'_>, out: &mut String) {
    // Writing to a string cannot fail.
    _ = try_write(problem, out);
}

/// Appends only what is said to people.
pub fn write_detail(problem: &Problem<'_>, out: &mut String) {
    // Writing to a string cannot fail.
    _ = detail(problem.kind, problem.told, out);
}

fn try_write(Problem { kind, told }: &Problem<'_>, out: &mut String) -> fmt::Result {
    write!(out, r#"{{"type":"{}","title":"{}","status":{},"detail":""#, kind.uri(), kind.title(), kind.status())?;
    detail(*kind, told, &mut Escaped(out))?;
    out.push_str(r#"","violated-policies":["#);
    for (at, policy) in told.violated().enumerate() {
        out.push_str(if at == 0 { "\"" } else { ",\"" });
        Escaped(out).write_str(policy.name)?;
        out.push('"');
    }
    out.push(']');
    if let Some(seconds) = told.retry_seconds() {
        write!(out, r#","retry-after":{seconds}"#)?;
    }
    out.push('}');
    Ok(())
}

/// A sentence on what happened and one on what to do about it, for people.
fn detail(kind: Kind, told: &Told<'_>, out: &mut impl Write) -> fmt::Result {
    match kind {
        Kind::QuotaExceeded => violations(told, out)?,
        Kind::ReducedCapacity => out.write_str("The service is at its capacity.")?,
        Kind::Unavailable => out.write_str("The service cannot tell at present what you have used.")?,
        Kind::AbnormalUsage => out.write_str("Unusual use was detected.")?,
    }
    match told.retry_seconds() {
        Some(seconds) => write!(out, " Try again in {}.", Spoken(seconds)),
        None if kind == Kind::QuotaExceeded => out.write_str(" Asking for the same again will not help."),
        None => Ok(()),
    }
}

/// `The limits "a", "b" have been reached.`
fn violations(told: &Told<'_>, out: &mut impl Write) -> fmt::Result {
    let (noun, verb) = match told.violated().count() {
        0 => return out.write_str("The request is not within any quota."),
        1 => ("The limit", "has"),
        _ => ("The limits", "have"),
    };
    out.write_str(noun)?;
    for (at, policy) in told.violated().enumerate() {
        write!(out, "{} \"{}\"", if at == 0 { "" } else { "," }, policy.name)?;
    }
    write!(out, " {verb} been reached.")
}

/// Seconds in the unit that a person would choose; rounded up, so that it is not too soon.
struct Spoken(u64);

impl fmt::Display for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..120 => (1, "second"),
            120..7_200 => (60, "minute"),
            7_200..172_800 => (3_600, "hour"),
            172_800.. => (86_400, "day"),
        };
        let count = self.0.div_ceil(unit);
        write!(f, "{count} {name}{}", if count == 1 { "" } else { "s" })
    }
}

/// Writes into a JSON string, whose quotes are the caller's.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| self.write_char(character))
    }

    fn write_char(&mut self, character: char) -> fmt::Result {
        match character {
            '"' => self.0.push_str("\\\""),
            '\\' => self.0.push_str("\\\\"),
            '\n' => self.0.push_str("\\n"),
            '\r' => self.0.push_str("\\r"),
            '\t' => self.0.push_str("\\t"),
            '\0'..='\x1f' => return write!(self.0, "\\u{:04x}", u32::from(character)),
            _ => self.0.push(character),
        }
        Ok(())
    }
}
