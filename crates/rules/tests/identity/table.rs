//! Tables of cases that a person can read.
//!
//! A case is `input -> result`, under a heading in brackets that says what it is run with. Lines that begin with
//! `#` are comments, and `<0A>` is the byte of that number.

/// A line of a table.
pub(crate) struct Case<'a> {
    pub(crate) heading: &'a str,
    pub(crate) line: usize,
    pub(crate) input: &'a str,
    pub(crate) result: &'a str,
}

pub(crate) fn cases(text: &str) -> impl Iterator<Item = Case<'_>> {
    let mut heading = "";
    text.lines().zip(1..).filter_map(move |(text, line)| {
        let text = text.trim();
        if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            heading = inner;
            return None;
        }
        if text.is_empty() || text.starts_with('#') {
            return None;
        }
        let (input, result) = text.rsplit_once("->").unwrap_or_else(|| panic!("line {line} has no arrow: {text}"));
        Some(Case { heading, line, input: input.trim(), result: result.trim() })
    })
}

/// The text with its numbered bytes in place.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        (bytes, rest) = match numbered(rest) {
            Some(byte) => ([bytes, vec![byte]].concat(), &rest[4..]),
            None => ([bytes, vec![*first]].concat(), after),
        };
    }
    bytes
}

fn numbered(text: &[u8]) -> Option<u8> {
    let [b'<', high, low, b'>', ..] = text else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}
