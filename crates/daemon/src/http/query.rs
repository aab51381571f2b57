//! What stands after the question mark of a target.

use crate::fault::Fault;
use std::borrow::Cow;

/// The value of a parameter. None of those that there are needs an encoding, but what is encoded is understood.
///
/// # Errors
/// It stands there twice, or is no UTF-8.
pub(super) fn parameter<'a>(query: Option<&'a str>, name: &str) -> Result<Option<Cow<'a, str>>, Fault> {
    let pairs = query.into_iter().flat_map(|query| query.split('&'));
    let mut values = pairs.filter_map(|pair| {
        let (known, value) = pair.split_once('=').unwrap_or((pair, ""));
        (known == name).then_some(value)
    });
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Fault::Malformed(format!("there are several `{name}` in the query").into()));
    }
    decode(value).map(Some).ok_or_else(|| Fault::Malformed(format!("`{name}` in the query is not UTF-8").into()))
}

/// `%XX` and `+` as what they stand for.
fn decode(value: &str) -> Option<Cow<'_, str>> {
    if !value.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Some(Cow::Borrowed(value));
    }
    let mut decoded = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        match (byte, after) {
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                decoded.push(digit(*high) << 4 | digit(*low));
                rest = after;
            }
            (b'+', _) => decoded.push(b' '),
            (byte, _) => decoded.push(*byte),
        }
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

/// What a hexadecimal digit is worth.
fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 0x20) - b'a' + 10,
    }
}
