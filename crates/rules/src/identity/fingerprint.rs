//! What stands for a secret wherever it would be counted, stored, sent or printed.

use sha2::{Digest, Sha256};
use std::fmt;
use std::ops::Deref;

const PREFIX: &[u8; 7] = b"sha256:";
const DIGITS: usize = 32;
const LENGTH: usize = PREFIX.len() + DIGITS;

/// The fingerprint of an API key or another secret: the first half of its SHA-256.
///
/// A fingerprint does not tell the secret, and 128 bits do not collide. It does let somebody who sees it try guesses,
/// so it hides API keys, which are long and random, and does not hide passwords. An operator finds a client's by
/// `printf %s "$KEY" | sha256sum | cut -c -32`.
///
/// ```
/// use tollgate_rules::identity::{Fingerprint, fingerprint};
///
/// let printed = fingerprint(b"abc").to_string();
/// assert_eq!(printed, "sha256:ba7816bf8f01cfea414140de5dae2223");
/// assert!(Fingerprint::is_text(&printed));
/// ```
pub fn fingerprint(secret: &[u8]) -> Fingerprint {
    const DIGIT: [u8; 16] = *b"0123456789abcdef";
    let digits = Sha256::digest(secret).into_iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
    let digits = digits.filter_map(|value| DIGIT.get(usize::from(value)).copied());
    let mut text = [0; LENGTH];
    for (place, byte) in text.iter_mut().zip(PREFIX.iter().copied().chain(digits)) {
        *place = byte;
    }
    Fingerprint(text)
}

/// What stands for a secret: `sha256:` and 32 digits.
///
/// It is a text of its own, without any allocation, and can be made only from the secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; LENGTH]);

impl Fingerprint {
    /// The whole text.
    pub fn as_str(&self) -> &str {
        // It is ASCII, by construction.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Whether a text looks like a fingerprint, and so can be shown to people. Rules use this to tell a
    /// fingerprint from a secret that somebody wrote there.
    pub fn is_text(text: &str) -> bool {
        let digits = text.as_bytes().strip_prefix(PREFIX);
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        digits.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(is_digit))
    }
}

impl Deref for Fingerprint {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}
