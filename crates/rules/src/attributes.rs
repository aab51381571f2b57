//! A request's attributes, as the rules of its namespace know them.

use crate::identity::{Fingerprint, Part, canonical, fingerprint, parse_address};
use crate::model::Identity;
use crate::request::{Request, Value};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

/// Names beyond these are found by their hash. Up to there, comparing lengths is quicker than hashing.
const FEW: usize = 12;

/// Names, numbered in the order in which they were first mentioned.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: Vec<Name>,
    /// The numbers of those that are understood.
    path: Option<u32>,
    ip: Option<u32>,
    api_key: Option<u32>,
    numbers: HashMap<Box<str>, u32, foldhash::fast::RandomState>,
}

/// A name, with its length and its first bytes in a word, by which most can be told apart.
#[derive(Debug)]
struct Name {
    head: u64,
    text: Box<str>,
}

impl Name {
    /// Whether this is the name, of which the head is known to be the same.
    #[inline]
    fn is(&self, name: &str) -> bool {
        name.len() < 8 || *self.text == *name
    }
}

/// The length and the first seven bytes: all there is of a short name.
#[inline]
fn head(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let first = match (bytes.first_chunk(), bytes.first_chunk(), bytes.last_chunk()) {
        (Some(eight), ..) => u64::from_le_bytes(*eight) & ((1 << 56) - 1),
        // Two halves, which may overlap.
        (_, Some(first), Some(last)) => {
            let shift = 8 * (bytes.len() - 4);
            u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << shift
        }
        _ => bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    };
    first | (bytes.len() as u64) << 56
}

impl Names {
    /// The number of a name, which it gets if it has none yet.
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        match name {
            "path" => self.path = Some(number),
            "ip" => self.ip = Some(number),
            "api_key" => self.api_key = Some(number),
            _ => {}
        }
        self.names.push(Name { head: head(name), text: name.into() });
        self.numbers.insert(name.into(), number);
        number
    }

    #[inline]
    pub(crate) fn get(&self, name: &str) -> Option<u32> {
        if self.names.len() > FEW {
            return self.numbers.get(name).copied();
        }
        let head = head(name);
        (0..).zip(&self.names).find(|(_, known)| known.head == head && known.is(name)).map(|(number, _)| number)
    }

    #[inline]
    fn meaning(&self, number: u32) -> Meaning {
        match Some(number) {
            path if path == self.path => Meaning::Path,
            ip if ip == self.ip => Meaning::Address,
            secret if secret == self.api_key => Meaning::Secret,
            _ => Meaning::Text,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &*name.text)
    }
}

/// How the text of an attribute is understood.
#[derive(Clone, Copy)]
enum Meaning {
    Text,
    Path,
    Address,
    Secret,
}

/// The attributes of one request that some rule mentions.
#[derive(Debug)]
pub struct Attributes<'a> {
    known: SmallVec<[(u32, Attribute<'a>); 8]>,
    /// All of them, in the order in which they came.
    pub(crate) entries: &'a [(&'a str, Value<'a>)],
    /// The numbers among these, by their positions, where descriptors count by them.
    digits: SmallVec<[(usize, Digits); 1]>,
}

/// One value, in the one form that it is compared in.
#[derive(Clone, Debug)]
pub(crate) enum Attribute<'a> {
    Text(Cow<'a, str>),
    /// In full, and the first one of its group.
    Address(IpAddr, IpAddr),
    Number(u64, Digits),
    /// A secret, which is known by its fingerprint alone from here on.
    Secret(Fingerprint),
}

impl<'a> Attributes<'a> {
    /// None that a rule knows of yet. They are large, so they are filled in where they stay.
    #[inline(always)]
    pub fn new(request: &Request<'a>) -> Attributes<'a> {
        Attributes { known: SmallVec::new(), entries: request.attributes, digits: SmallVec::new() }
    }

    #[inline]
    pub(crate) fn resolve(&mut self, names: &Names, identity: &'a Identity) {
        for (name, value) in self.entries {
            if let Some(number) = names.get(name)
                && self.get(number).is_none()
            {
                let meaning = names.meaning(number);
                self.known.push((number, Attribute::new(meaning, *value, identity)));
            }
        }
    }

    /// Writes out the numbers among the entries, for rules that count by these.
    pub(crate) fn write_digits(&mut self) {
        for (position, (_, value)) in self.entries.iter().enumerate() {
            if let Value::Number(number) = value {
                self.digits.push((position, Digits::new(*number)));
            }
        }
    }

    /// The number at a position, in decimal.
    pub(crate) fn digits(&self, position: usize) -> Option<&str> {
        self.digits.iter().find(|(known, _)| *known == position).map(|(_, digits)| digits.as_str())
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Attribute<'a>> {
        self.known.iter().find(|(known, _)| *known == number).map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Attribute<'a>)> {
        self.known.iter().map(|(number, value)| (*number, value))
    }
}

impl<'a> Attribute<'a> {
    #[inline]
    fn new(meaning: Meaning, value: Value<'a>, identity: &'a Identity) -> Attribute<'a> {
        match (value, meaning) {
            (Value::Text(text), Meaning::Path) => Attribute::Text(identity.path.normalise(text)),
            // What is no address is compared as the text that it is: it is nobody else's bucket.
            (Value::Text(text), Meaning::Address) => match parse_address(text) {
                Some(address) => Attribute::address(address, identity),
                None => Attribute::Text(text.into()),
            },
            (Value::Text(text), Meaning::Secret) if !Fingerprint::is_text(text) => {
                Attribute::Secret(fingerprint(text.as_bytes()))
            }
            (Value::Text(text), Meaning::Text | Meaning::Secret) => Attribute::Text(text.into()),
            (Value::Address(address), _) => Attribute::address(address, identity),
            (Value::Number(number), _) => Attribute::Number(number, Digits::new(number)),
        }
    }

    fn address(address: IpAddr, identity: &Identity) -> Attribute<'a> {
        Attribute::Address(canonical(address), identity.grouping.group(address))
    }

    /// The text that it is compared by; addresses have none.
    #[inline]
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Attribute::Text(text) => Some(text),
            Attribute::Number(_, digits) => Some(digits.as_str()),
            Attribute::Secret(fingerprint) => Some(fingerprint.as_str()),
            Attribute::Address(..) => None,
        }
    }

    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match self {
            Attribute::Address(address, _) => Some(*address),
            Attribute::Text(text) => parse_address(text),
            Attribute::Number(..) | Attribute::Secret(_) => None,
        }
    }

    /// What it says as a number.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Attribute::Number(number, _) => Some(*number),
            Attribute::Text(text) => text.parse().ok(),
            Attribute::Address(..) | Attribute::Secret(_) => None,
        }
    }

    /// What it adds to a key.
    pub(crate) fn part(&self) -> Part<'_> {
        match self {
            Attribute::Text(text) => Part::Text(text),
            Attribute::Number(_, digits) => Part::Text(digits.as_str()),
            Attribute::Secret(fingerprint) => Part::Text(fingerprint.as_str()),
            Attribute::Address(_, group) => Part::Address(*group),
        }
    }
}

/// A number in decimal, without an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digits {
    bytes: [u8; 20],
    start: u8,
}

impl Digits {
    pub(crate) fn new(mut number: u64) -> Digits {
        let mut digits = Digits { bytes: [b'0'; 20], start: 20 };
        for (index, byte) in digits.bytes.iter_mut().enumerate().rev() {
            *byte = b'0' + (number % 10) as u8;
            digits.start = index as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        digits
    }

    pub(crate) fn as_str(&self) -> &str {
        let digits = self.bytes.get(usize::from(self.start)..).unwrap_or_default();
        std::str::from_utf8(digits).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Digits;

    #[test]
    fn numbers_are_their_digits() {
        for number in [0, 7, 10, 1_234_567_890, u64::MAX] {
            assert_eq!(Digits::new(number).as_str(), number.to_string());
        }
    }
}
