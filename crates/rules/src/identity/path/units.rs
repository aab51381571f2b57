//! A path, read unit by unit: what each spelling stands for.

use super::EncodedSlash;

/// What one spelling stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// The end of a segment.
    Slash,
    /// A character of a segment, encoded or not. Slashes are encoded ones that are kept.
    Char(char),
    /// An encoded byte that is no part of any character.
    Byte(u8),
}

/// Whether a character of a segment would be misread if it were not encoded.
pub(super) fn stays_encoded(c: char) -> bool {
    matches!(c, ' ' | '%' | '?' | '#' | '/' | '\\') || c.is_control()
}

/// The units of a path.
pub(super) struct Units<'a> {
    rest: &'a str,
    encoded_slash: EncodedSlash,
}

impl<'a> Units<'a> {
    pub(super) fn new(path: &'a str, encoded_slash: EncodedSlash) -> Units<'a> {
        Units { rest: path, encoded_slash }
    }

    /// What has not been read.
    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }

    /// Reads a percent sign's worth of escapes, or takes it for itself.
    fn encoded(&mut self) -> Unit {
        let Some(first) = escaped_byte(self.rest) else {
            self.skip('%'.len_utf8());
            return Unit::Char('%');
        };
        match escaped_char(self.rest, first) {
            Some('/' | '\\') if self.encoded_slash == EncodedSlash::Separator => self.take(Unit::Slash, 1),
            Some(c) => self.take(Unit::Char(c), c.len_utf8()),
            None => self.take(Unit::Byte(first), 1),
        }
    }

    fn take(&mut self, unit: Unit, escapes: usize) -> Unit {
        self.skip(escapes * "%XX".len());
        unit
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }
}

impl Iterator for Units<'_> {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        let c = self.rest.chars().next()?;
        if c == '%' {
            return Some(self.encoded());
        }
        self.skip(c.len_utf8());
        Some(if matches!(c, '/' | '\\') { Unit::Slash } else { Unit::Char(c) })
    }
}

/// The byte of `%XX`, if the text begins with that.
fn escaped_byte(text: &str) -> Option<u8> {
    let [b'%', high, low, ..] = text.as_bytes() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
}

/// The character that the escapes at the beginning of the text make up, the first of which is known.
fn escaped_char(text: &str, first: u8) -> Option<char> {
    let length = match first {
        0..0x80 => return Some(char::from(first)),
        0xC2..0xE0 => 2,
        0xE0..0xF0 => 3,
        0xF0..0xF5 => 4,
        _ => return None,
    };
    let mut bytes = [0; 4];
    let bytes = bytes.get_mut(..length)?;
    for (byte, at) in bytes.iter_mut().zip((0..).step_by("%XX".len())) {
        *byte = escaped_byte(text.get(at..)?)?;
    }
    std::str::from_utf8(bytes).ok()?.chars().next()
}
