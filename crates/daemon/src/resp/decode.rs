//! Commands as Redis clients send them, taken from a buffer without copying.

use smallvec::SmallVec;
use std::fmt;

/// The most arguments of one command.
pub const MOST_ARGUMENTS: usize = 1024;

/// The longest argument.
pub const LONGEST_ARGUMENT: usize = 64 * 1024;

/// The longest command that is typed into a plain connection.
pub const LONGEST_LINE: usize = 64 * 1024;

/// The longest command: its sender is refused before more of it is read.
pub const LONGEST_COMMAND: usize = 256 * 1024;

/// The most digits of a length. Every number of so many fits into 64 bits, and none that is allowed has more.
const LONGEST_NUMBER: usize = 18;

/// Commands that are looked at together, so that the memory that one needs is fetched while others are decided.
pub const BATCH: usize = 16;

/// The arguments of a command, its name first.
pub type Arguments<'a> = SmallVec<[&'a [u8]; 12]>;

/// What is not RESP. The connection is of no further use: nobody knows where the next command begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The number of arguments is no number, or too large.
    ArrayLength,
    /// The length of an argument is no number, or too large.
    ArgumentLength,
    /// Something else stands where an argument should be.
    NotAnArgument(u8),
    /// A line that never ends.
    LongLine,
    /// A quote that is never closed, or not followed by a space.
    Quotes,
    /// All arguments together are too long.
    LongCommand,
}

/// In the words of Redis, so that those who know it know what is wrong.
impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Malformed::ArrayLength => f.write_str("invalid multibulk length"),
            Malformed::ArgumentLength => f.write_str("invalid bulk length"),
            Malformed::NotAnArgument(byte) => write!(f, "expected '$', got '{}'", byte.escape_ascii()),
            Malformed::LongLine => f.write_str("too big inline request"),
            Malformed::Quotes => f.write_str("unbalanced quotes in request"),
            Malformed::LongCommand => f.write_str("too big request"),
        }
    }
}

/// A command at the beginning of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// It is whole. It takes so many bytes, and has no arguments if somebody only pressed return.
    Command(Arguments<'a>, usize),
    /// It was typed with quotes or escapes, which have to be undone first.
    Typed(&'a [u8], usize),
    /// There is more to come.
    Incomplete,
}

impl Decoded<'_> {
    /// How many bytes it takes.
    pub fn taken(&self) -> usize {
        match self {
            Decoded::Command(_, taken) | Decoded::Typed(_, taken) => *taken,
            Decoded::Incomplete => 0,
        }
    }
}

/// Commands that came together. None of them is [`Incomplete`](Decoded::Incomplete).
pub type Batch<'a> = SmallVec<[Decoded<'a>; BATCH]>;

/// What comes after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Perhaps another one.
    Another,
    /// Nothing whole.
    Incomplete,
    /// Nothing that can be understood.
    Broken(Malformed),
}

/// Looks for as many commands as the batch has room for, at the beginning of what was received. They are put where they
/// stay: to hand them back would mean to copy some kilobytes.
pub fn decode_batch<'a>(buffer: &'a [u8], batch: &mut Batch<'a>) -> Then {
    let mut rest = buffer;
    while batch.len() < BATCH {
        match decode(rest) {
            Ok(Decoded::Incomplete) => return Then::Incomplete,
            Ok(decoded) => {
                rest = rest.get(decoded.taken()..).unwrap_or_default();
                batch.push(decoded);
            }
            Err(malformed) => return Then::Broken(malformed),
        }
    }
    Then::Another
}

/// Looks for a command at the beginning of what was received.
///
/// # Errors
/// What is not RESP.
pub fn decode(buffer: &[u8]) -> Result<Decoded<'_>, Malformed> {
    match buffer.first() {
        None => Ok(Decoded::Incomplete),
        Some(b'*') => array(buffer),
        Some(_) => line(buffer),
    }
}

fn array(buffer: &[u8]) -> Result<Decoded<'_>, Malformed> {
    let mut reader = Reader { buffer, at: 1 };
    let Some(count) = reader.number().map_err(|()| Malformed::ArrayLength)? else { return Ok(Decoded::Incomplete) };
    let count = usize::try_from(count).unwrap_or(0);
    if count > MOST_ARGUMENTS {
        return Err(Malformed::ArrayLength);
    }
    let mut arguments = Arguments::new();
    for _ in 0..count {
        match reader.argument()? {
            Some(argument) => arguments.push(argument),
            None if buffer.len() > LONGEST_COMMAND => return Err(Malformed::LongCommand),
            None => return Ok(Decoded::Incomplete),
        }
    }
    // However it came, in pieces or at once.
    if reader.at > LONGEST_COMMAND {
        return Err(Malformed::LongCommand);
    }
    Ok(Decoded::Command(arguments, reader.at))
}

/// A command that somebody typed.
fn line(buffer: &[u8]) -> Result<Decoded<'_>, Malformed> {
    let Some(end) = buffer.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
        return if buffer.len() < LONGEST_LINE { Ok(Decoded::Incomplete) } else { Err(Malformed::LongLine) };
    };
    let line = buffer.get(..end).unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        return Ok(Decoded::Typed(line, end + 1));
    }
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    Ok(Decoded::Command(words.take(MOST_ARGUMENTS).collect(), end + 1))
}

/// Undoes the quotes and escapes of a line that somebody typed.
///
/// # Errors
/// A quote that is never closed, or not followed by a space.
pub fn unquote(line: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut rest = line.trim_ascii_start();
    let mut words = Vec::new();
    while !rest.is_empty() {
        let is_special = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'');
        let (plain, after) = rest.split_at(rest.iter().position(is_special).unwrap_or(rest.len()));
        let (quoted, after) = match after {
            [b'"', text @ ..] => double_quoted(text)?,
            [b'\'', text @ ..] => single_quoted(text)?,
            _ => (Vec::new(), after),
        };
        if after.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return Err(Malformed::Quotes);
        }
        words.push([plain, &quoted].concat());
        rest = after.trim_ascii_start();
    }
    Ok(words)
}

fn single_quoted(text: &[u8]) -> Result<(Vec<u8>, &[u8]), Malformed> {
    let mut word = Vec::new();
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                after
            }
            [b'\'', after @ ..] => return Ok((word, after)),
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
            [] => return Err(Malformed::Quotes),
        };
    }
}

fn double_quoted(text: &[u8]) -> Result<(Vec<u8>, &[u8]), Malformed> {
    let mut word = Vec::new();
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hexadecimal(*high) << 4 | hexadecimal(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                after
            }
            [b'"', after @ ..] => return Ok((word, after)),
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
            [] => return Err(Malformed::Quotes),
        };
    }
}

fn hexadecimal(digit: u8) -> u8 {
    (digit as char).to_digit(16).and_then(|number| u8::try_from(number).ok()).unwrap_or(0)
}

struct Reader<'a> {
    buffer: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A number up to the end of the line; `None` if that has not come yet.
    fn number(&mut self) -> Result<Option<i64>, ()> {
        let rest = self.buffer.get(self.at..).unwrap_or_default();
        // Nearly all have one digit or two.
        match rest {
            [ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
                self.at += 3;
                return Ok(Some(i64::from(ones - b'0')));
            }
            [tens @ b'0'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
                self.at += 4;
                return Ok(Some(i64::from((tens - b'0') * 10 + (ones - b'0'))));
            }
            _ => {}
        }
        let (is_negative, digits) = match rest {
            [b'-', digits @ ..] => (true, digits),
            digits => (false, digits),
        };
        let mut number = 0;
        for (index, byte) in digits.iter().enumerate().take(LONGEST_NUMBER + 1) {
            match byte {
                b'0'..=b'9' => number = 10_i64.saturating_mul(number).saturating_add(i64::from(byte - b'0')),
                b'\r' if index > 0 => {
                    self.at += usize::from(is_negative) + index + 2;
                    return match digits.get(index + 1) {
                        None => Ok(None),
                        Some(b'\n') => Ok(Some(if is_negative { -number } else { number })),
                        Some(_) => Err(()),
                    };
                }
                _ => return Err(()),
            }
        }
        if digits.len() > LONGEST_NUMBER { Err(()) } else { Ok(None) }
    }

    /// `$5\r\nhello\r\n`; `None` if it has not come as a whole yet.
    fn argument(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.buffer.get(self.at) {
            None => return Ok(None),
            Some(b'$') => self.at += 1,
            Some(other) => return Err(Malformed::NotAnArgument(*other)),
        }
        let Some(length) = self.number().map_err(|()| Malformed::ArgumentLength)? else { return Ok(None) };
        let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST_ARGUMENT);
        let length = length.ok_or(Malformed::ArgumentLength)?;
        let Some(bytes) = self.buffer.get(self.at..self.at + length + 2) else { return Ok(None) };
        let (argument, end) = bytes.split_at(length);
        if end != b"\r\n" {
            return Err(Malformed::ArgumentLength);
        }
        self.at += length + 2;
        Ok(Some(argument))
    }
}
