//! What holds for the encoding of any key, and for any bytes that somebody takes for one.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tollgate_rules::identity::{Key, Part};

/// Takes the bytes for an encoding, and their pieces for the parts of keys.
pub(crate) fn check(bytes: &[u8]) {
    if let Ok(parts) = Key::decode(bytes) {
        assert_eq!(encoded(&parts), bytes, "{parts:?} has two encodings");
        is_printed_safely(&parts);
    }
    let text = String::from_utf8_lossy(bytes);
    let pieces: Vec<&str> = text.split('|').take(8).collect();
    let parts: Vec<Part<'_>> = pieces.iter().map(|piece| part(piece)).collect();
    reads_back(&parts);
    is_printed_safely(&parts);
    // Borders further on are no different, and there may be thousands.
    for (at, _) in text.char_indices().take(64) {
        let (left, right) = text.split_at(at);
        are_told_apart(&parts, &[Part::Text(left), Part::Text(right)]);
    }
    are_told_apart(&parts, &[&parts[..], &[Part::Absent]].concat());
    are_told_apart(&parts, &[&parts[..], &[Part::Text("")]].concat());
}

/// `-` is absent, `4…` and `6…` are addresses made of the following bytes, all else is a text.
fn part(piece: &str) -> Part<'_> {
    let bits = piece.bytes().fold(0, |bits: u128, byte| bits << 8 | u128::from(byte));
    match piece.as_bytes().first() {
        Some(b'-') if piece.len() == 1 => Part::Absent,
        Some(b'4') => Part::Address(IpAddr::V4(Ipv4Addr::from_bits(bits as u32))),
        Some(b'6') => Part::Address(IpAddr::V6(Ipv6Addr::from_bits(bits))),
        _ => Part::Text(piece),
    }
}

fn encoded(parts: &[Part<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Key::new(parts).encode(&mut bytes);
    bytes
}

fn reads_back(parts: &[Part<'_>]) {
    let bytes = encoded(parts);
    if let Ok(read) = Key::decode(&bytes) {
        assert_eq!(read, parts);
    } else {
        assert!(bytes.len() > tollgate_rules::identity::LONGEST_KEY, "{parts:?} cannot be read");
    }
    // No part of an encoding is one.
    for end in 0..bytes.len().min(64) {
        assert!(Key::decode(&bytes[..end]).is_err(), "{parts:?}, {end}");
    }
}

/// Different keys differ in all that is made of them; and what is hashed of one does not begin like the other.
pub(crate) fn are_told_apart(one: &[Part<'_>], other: &[Part<'_>]) {
    let same = one == other;
    assert_eq!(encoded(one) == encoded(other), same, "{one:?} and {other:?}");
    assert_eq!(Key::new(one).to_string() == Key::new(other).to_string(), same, "{one:?} and {other:?}");
    let (one_hashed, other_hashed) = (hashed(one), hashed(other));
    assert_eq!(one_hashed == other_hashed, same, "{one:?} and {other:?}");
    let is_beginning = one_hashed.starts_with(&other_hashed) || other_hashed.starts_with(&one_hashed);
    assert_eq!(is_beginning, same, "{one:?} and {other:?}");
}

/// All that a hasher is told of a key.
fn hashed(parts: &[Part<'_>]) -> Vec<u8> {
    let mut record = Record(Vec::new());
    Key::new(parts).hash(&mut record);
    record.0
}

struct Record(Vec<u8>);

impl Hasher for Record {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// Nothing that a terminal would obey, and nothing that hides.
fn is_printed_safely(parts: &[Part<'_>]) {
    let printed = Key::new(parts).to_string();
    let is_harmful =
        |c: char| c.is_control() || ('\u{200b}'..='\u{200f}').contains(&c) || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!printed.contains(is_harmful), "{printed:?}");
}
