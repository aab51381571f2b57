//! A request's attributes, as the rules of its namespace know them.

use crate::identity::{Part, canonical, parse_address};
use crate::model::Identity;
use crate::request::{Request, Value};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

/// The names that the rules of a namespace mention, numbered.
#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: HashMap<Box<str>, u32, foldhash::fast::RandomState>,
}

impl Names {
    /// The number of a name, which it gets if it has none yet.
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        self.numbers.insert(name.into(), number);
        number
    }

    pub(crate) fn get(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }
}

/// The attributes of one request that some rule mentions.
#[derive(Debug)]
pub struct Attributes<'a> {
    known: SmallVec<[(u32, Attribute<'a>); 12]>,
    /// All of them, in the order in which they came.
    pub(crate) entries: &'a [(&'a str, Value<'a>)],
}

/// One value, in the one form that it is compared in.
#[derive(Clone, Debug)]
pub(crate) enum Attribute<'a> {
    Text(Cow<'a, str>),
    /// In full, and the first one of its group.
    Address(IpAddr, IpAddr),
    Number(u64, Digits),
}

impl<'a> Attributes<'a> {
    pub(crate) fn resolve(request: &Request<'a>, names: &Names, identity: &'a Identity) -> Attributes<'a> {
        let mut known: SmallVec<[(u32, Attribute<'a>); 12]> = SmallVec::new();
        for (name, value) in request.attributes {
            if let Some(number) = names.get(name)
                && !known.iter().any(|(before, _)| *before == number)
            {
                known.push((number, Attribute::new(name, *value, identity)));
            }
        }
        Attributes { known, entries: request.attributes }
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
    pub(crate) fn new(name: &str, value: Value<'a>, identity: &'a Identity) -> Attribute<'a> {
        match (name, value) {
            ("path", Value::Text(text)) => Attribute::Text(identity.path.normalise(text)),
            // What is no address is compared as the text that it is: it is nobody else's bucket.
            ("ip", Value::Text(text)) => match parse_address(text) {
                Some(address) => Attribute::address(address, identity),
                None => Attribute::Text(text.into()),
            },
            (_, Value::Text(text)) => Attribute::Text(text.into()),
            (_, Value::Address(address)) => Attribute::address(address, identity),
            (_, Value::Number(number)) => Attribute::Number(number, Digits::new(number)),
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
            Attribute::Address(..) => None,
        }
    }

    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match self {
            Attribute::Address(address, _) => Some(*address),
            Attribute::Text(text) => parse_address(text),
            Attribute::Number(..) => None,
        }
    }

    /// What it says as a number.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Attribute::Number(number, _) => Some(*number),
            Attribute::Text(text) => text.parse().ok(),
            Attribute::Address(..) => None,
        }
    }

    /// What it adds to a key.
    pub(crate) fn part(&self) -> Part<'_> {
        match self {
            Attribute::Text(text) => Part::Text(text),
            Attribute::Number(_, digits) => Part::Text(digits.as_str()),
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
