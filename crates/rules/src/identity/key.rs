//! What a limit counts by.
//!
//! Each part is hashed and encoded with its kind and its length before it, so no two keys are the same sequence of
//! bytes, and none is the beginning of another: ("a:b", "c") is not ("a", "b:c"), and no part is not an empty one.

use super::address::{canonical, parse_address};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longer encodings are refused before anything is read of them.
pub const LONGEST_KEY: usize = 64 * 1024;

/// Encodings of more parts are refused before anything is allocated for them.
pub const MOST_PARTS: usize = 64;

/// The kinds of parts, as they are encoded.
const ABSENT: u8 = 0;
const TEXT: u8 = 1;
const V4: u8 = 4;
const V6: u8 = 6;

/// One attribute's value.
///
/// Addresses are compared, hashed and encoded in their [`canonical`] form.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// The request does not have it. This is not the same as an empty text.
    Absent,
    /// As the request has it.
    Text(&'a str),
    /// The client's address, or the first one of its group.
    Address(IpAddr),
}

impl PartialEq for Part<'_> {
    fn eq(&self, other: &Part<'_>) -> bool {
        match (self, other) {
            (Part::Absent, Part::Absent) => true,
            (Part::Text(one), Part::Text(other)) => one == other,
            (Part::Address(one), Part::Address(other)) => canonical(*one) == canonical(*other),
            _ => false,
        }
    }
}

impl Eq for Part<'_> {}

impl Hash for Part<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The kind and the length in one word, which is what hashing costs by.
        let mut head = |kind: u8, length: usize| state.write_u64((length as u64) << 8 | u64::from(kind));
        match self {
            Part::Absent => head(ABSENT, 0),
            Part::Text(text) => {
                head(TEXT, text.len());
                state.write(text.as_bytes());
            }
            Part::Address(address) => match canonical(*address) {
                IpAddr::V4(address) => {
                    head(V4, 0);
                    state.write_u32(address.to_bits());
                }
                IpAddr::V6(address) => {
                    head(V6, 0);
                    state.write_u128(address.to_bits());
                }
            },
        }
    }
}

/// The values of a rule's key attributes, in the rule's order. A limit for everybody has none.
///
/// It prints for logs and for people: distinct keys look distinct, and nothing that a client sends gets to the
/// terminal as it is.
///
/// ```
/// use tollgate_rules::identity::{Key, Part};
///
/// let parts = [Part::Text("alice"), Part::Address([192, 0, 2, 1].into()), Part::Absent, Part::Text("\u{1b}[2J, x")];
/// let key = Key::new(&parts);
/// assert_eq!(key.to_string(), r#"alice, 192.0.2.1, -, "\u{1b}[2J, x""#);
///
/// let mut bytes = Vec::new();
/// key.encode(&mut bytes);
/// assert_eq!(Key::decode(&bytes)?, parts);
/// # Ok::<(), tollgate_rules::identity::DecodeKeyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a>(&'a [Part<'a>]);

impl<'a> Key<'a> {
    /// The key of these parts.
    pub fn new(parts: &'a [Part<'a>]) -> Key<'a> {
        Key(parts)
    }

    /// The values in their order.
    pub fn parts(&self) -> &'a [Part<'a>] {
        self.0
    }

    /// Appends the bytes that [`decode`](Self::decode) reads. Each key has only one encoding.
    ///
    /// Any key can be encoded, but only those of at most [`MOST_PARTS`] and [`LONGEST_KEY`] can be decoded.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode_number(self.0.len(), out);
        self.0.iter().for_each(|part| encode_part(part, out));
    }

    /// The parts of an encoded key. Anything that [`encode`](Self::encode) would not have written is an error.
    pub fn decode(bytes: &[u8]) -> Result<Vec<Part<'_>>, DecodeKeyError> {
        if bytes.len() > LONGEST_KEY {
            return Err(DecodeKeyError::TooLong);
        }
        let mut reader = Reader { rest: bytes };
        let count = reader.number()?;
        if count > MOST_PARTS {
            return Err(DecodeKeyError::TooManyParts);
        }
        let parts = (0..count).map(|_| reader.part()).collect::<Result<_, _>>()?;
        if reader.rest.is_empty() { Ok(parts) } else { Err(DecodeKeyError::Malformed) }
    }
}

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.0.len());
        self.0.iter().for_each(|part| part.hash(state));
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("*");
        }
        for (at, part) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{part}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Absent => f.write_str("-"),
            Part::Text(text) if is_clear(text) => f.write_str(text),
            Part::Text(text) => write!(f, "{text:?}"),
            Part::Address(address) => write!(f, "{}", canonical(*address)),
        }
    }
}

/// Whether a text needs no quotes to be taken for what it is.
fn is_clear(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/._~@:+=-".contains(&byte);
    !text.is_empty() && text != "-" && text.bytes().all(is_allowed) && parse_address(text).is_none()
}

fn encode_part(part: &Part<'_>, out: &mut Vec<u8>) {
    match part {
        Part::Absent => out.push(ABSENT),
        Part::Text(text) => {
            out.push(TEXT);
            encode_number(text.len(), out);
            out.extend_from_slice(text.as_bytes());
        }
        Part::Address(address) => match canonical(*address) {
            IpAddr::V4(address) => {
                out.push(V4);
                out.extend_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                out.push(V6);
                out.extend_from_slice(&address.octets());
            }
        },
    }
}

/// Seven bits a byte, low ones first; the high bit says that more follow.
fn encode_number(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes an encoding apart.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn part(&mut self) -> Result<Part<'a>, DecodeKeyError> {
        let [kind] = self.array()?;
        match kind {
            ABSENT => Ok(Part::Absent),
            TEXT => {
                let length = self.number()?;
                let text = std::str::from_utf8(self.bytes(length)?).map_err(|_| DecodeKeyError::Malformed)?;
                Ok(Part::Text(text))
            }
            V4 => Ok(Part::Address(Ipv4Addr::from(self.array()?).into())),
            V6 => {
                let address = Ipv6Addr::from(self.array::<16>()?);
                // It would have been written as IPv4.
                if address.to_ipv4_mapped().is_some() {
                    return Err(DecodeKeyError::Malformed);
                }
                Ok(Part::Address(address.into()))
            }
            _ => Err(DecodeKeyError::Malformed),
        }
    }

    /// Up to three bytes, which is more than enough for any length that is allowed.
    fn number(&mut self) -> Result<usize, DecodeKeyError> {
        let mut number = 0;
        for shift in [0, 7, 14] {
            let [byte] = self.array()?;
            number |= usize::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                // A zero at the end adds nothing: there is a shorter encoding.
                let is_shortest = byte != 0 || shift == 0;
                return if is_shortest { Ok(number) } else { Err(DecodeKeyError::Malformed) };
            }
        }
        Err(DecodeKeyError::TooLong)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], DecodeKeyError> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(DecodeKeyError::Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeKeyError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(DecodeKeyError::Malformed)?;
        self.rest = rest;
        Ok(*bytes)
    }
}

/// Bytes that are no key. They come from a peer or a file that is broken or of another version; a key that was
/// encoded within the limits never gives this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeKeyError {
    /// They end too early, or too late, or have another meaning than any that is known.
    Malformed,
    /// There are more than [`LONGEST_KEY`], or a length says so.
    TooLong,
    /// There are more than [`MOST_PARTS`].
    TooManyParts,
}

impl fmt::Display for DecodeKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeKeyError::Malformed => f.write_str("these bytes are no key"),
            DecodeKeyError::TooLong => write!(f, "the key has more than {LONGEST_KEY} bytes"),
            DecodeKeyError::TooManyParts => write!(f, "the key has more than {MOST_PARTS} parts"),
        }
    }
}

impl std::error::Error for DecodeKeyError {}
