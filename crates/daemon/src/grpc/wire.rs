//! Protobuf, as far as it is spoken here: fields one after the other, borrowed from the message.
//!
//! Messages are read by the hand of whoever knows their fields, so nothing is nested deeper than that knows, and nothing
//! is allocated for what a length only promises.

#[cfg(test)]
mod tests;

use crate::fault::Fault;
use bytes::{BufMut, Bytes, BytesMut};
use std::fmt;

/// What stands before each message of a call: whether it is compressed, and how long it is.
pub(crate) const PREFIX: usize = 5;

/// Why bytes are no message. What has been read of them is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It ends in the midst of a field.
    Truncated,
    /// A number of more than 64 bits.
    Number,
    /// A field with a number or a type that there is not.
    Tag,
    /// A group, which this version of the format does not have.
    Group,
    /// A field of another type than it has.
    Type,
    /// A text that is no UTF-8.
    Text,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::Truncated => "the message ends in the midst of a field",
            Malformed::Number => "the message has a number of more than 64 bits",
            Malformed::Tag => "the message has a field that cannot be",
            Malformed::Group => "the message has a group; proto3 has none",
            Malformed::Type => "the message has a field of another type than the service's proto file says",
            Malformed::Text => "the message has a text that is no UTF-8",
        })
    }
}

impl std::error::Error for Malformed {}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Fault {
        Fault::Malformed(malformed.to_string().into())
    }
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// A number, a truth value or one of several names.
    Number(u64),
    /// A text, bytes or a message.
    Bytes(&'a [u8]),
    /// Four or eight bytes, which no field here is made of.
    Fixed,
}

impl<'a> Field<'a> {
    /// # Errors
    /// It is something else.
    pub fn number(self) -> Result<u64, Malformed> {
        if let Field::Number(number) = self { Ok(number) } else { Err(Malformed::Type) }
    }

    /// The lower half of a number, which is what the format makes of a larger one.
    ///
    /// # Errors
    /// It is something else.
    pub fn small_number(self) -> Result<u32, Malformed> {
        Ok(self.number()? as u32)
    }

    /// # Errors
    /// It is something else.
    pub fn bytes(self) -> Result<&'a [u8], Malformed> {
        if let Field::Bytes(bytes) = self { Ok(bytes) } else { Err(Malformed::Type) }
    }

    /// # Errors
    /// It is something else, or no UTF-8.
    pub fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed::Text)
    }

    /// Reads a message within the message.
    ///
    /// # Errors
    /// It is something else.
    pub fn message(self) -> Result<Reader<'a>, Malformed> {
        Ok(Reader::new(self.bytes()?))
    }
}

/// Reads a message field by field.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads this.
    pub fn new(message: &'a [u8]) -> Reader<'a> {
        Reader { rest: message }
    }

    /// The next field and its number, or nothing at the end.
    ///
    /// # Errors
    /// What follows is no field.
    #[inline]
    pub fn field(&mut self) -> Result<Option<(u32, Field<'a>)>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = u32::try_from(self.varint()?).map_err(|_| Malformed::Tag)?;
        let number = key >> 3;
        if number == 0 {
            return Err(Malformed::Tag);
        }
        let field = match key & 7 {
            0 => Field::Number(self.varint()?),
            1 => self.skip(8)?,
            2 => {
                let length = self.varint()?;
                Field::Bytes(self.take(length)?)
            }
            3 | 4 => return Err(Malformed::Group),
            5 => self.skip(4)?,
            _ => return Err(Malformed::Tag),
        };
        Ok(Some((number, field)))
    }

    fn skip(&mut self, length: u64) -> Result<Field<'a>, Malformed> {
        self.take(length).map(|_| Field::Fixed)
    }

    #[inline]
    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed::Truncated)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(Malformed::Truncated)?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit only.
            if shift == 63 && bits > 1 {
                return Err(Malformed::Number);
            }
            number |= bits << shift;
            if *byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed::Number)
    }
}

/// Writes messages with their prefix, one after the other.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: BytesMut,
}

impl Writer {
    /// Appends a message that is sent as such.
    pub fn frame(&mut self, write: impl FnOnce(&mut Writer)) {
        let start = self.begin();
        write(self);
        self.end(start);
    }

    /// Begins a message that is sent as such, to be [ended](Self::end) by what this answers.
    pub fn begin(&mut self) -> usize {
        let start = self.bytes.len();
        self.bytes.put_bytes(0, PREFIX);
        start
    }

    /// Ends a message that has begun.
    pub fn end(&mut self, start: usize) {
        let length = u32::try_from(self.bytes.len() - start - PREFIX).unwrap_or(u32::MAX);
        if let Some(prefix) = self.bytes.get_mut(start + 1..start + PREFIX) {
            prefix.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// What has been written since the last time.
    pub fn take(&mut self) -> Bytes {
        self.bytes.split().freeze()
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// A number, also where it is 0.
    #[inline]
    pub fn number(&mut self, field: u32, number: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(number);
    }

    /// A number, unless it is 0: so fields are written that are always there.
    #[inline]
    pub fn plain_number(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.number(field, number);
        }
    }

    /// A text or bytes.
    #[inline]
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.bytes.put_slice(bytes);
    }

    /// A message within the message.
    #[inline]
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Writer)) {
        self.varint(u64::from(field) << 3 | 2);
        // Most lengths fit into one byte. Where they do not, what was written makes room.
        let start = self.bytes.len();
        self.bytes.put_u8(0);
        write(self);
        let length = self.bytes.len() - start - 1;
        let digits = Digits::new(length as u64);
        let more = digits.as_slice().len() - 1;
        if more > 0 {
            self.bytes.put_bytes(0, more);
            self.bytes.copy_within(start + 1..start + 1 + length, start + 1 + more);
        }
        if let Some(place) = self.bytes.get_mut(start..=start + more) {
            place.copy_from_slice(digits.as_slice());
        }
    }

    #[inline]
    fn varint(&mut self, number: u64) {
        self.bytes.put_slice(Digits::new(number).as_slice());
    }
}

/// A number in groups of seven bits.
struct Digits {
    bytes: [u8; 10],
    length: usize,
}

impl Digits {
    #[inline]
    fn new(mut number: u64) -> Digits {
        let mut digits = Digits { bytes: [0; 10], length: 0 };
        for byte in &mut digits.bytes {
            digits.length += 1;
            *byte = number as u8 & 0x7f;
            number >>= 7;
            if number == 0 {
                break;
            }
            *byte |= 0x80;
        }
        digits
    }

    #[inline]
    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}
