//! The names of keys. Nothing that a client sends is in them, only its fingerprint.

use crate::slots::{slot_of, slot_of_tag};
use sha2::{Digest, Sha256};

/// Letters that need no escape anywhere.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Letters of a tag: sixteen tags for each slot of a cluster. With more the names would take more memory.
const TAG_LETTERS: u32 = 3;

/// Letters of each half of a state: all of its 64 bits.
const HALF_LETTERS: u32 = 11;

/// How many tags there are.
pub(crate) const TAGS: u32 = 64_u32.pow(TAG_LETTERS);

/// Which state of which limit: a hash of 128 bits, the same on every host.
///
/// ```
/// use tollgate_store::Fingerprint;
///
/// let (second, day) = (Fingerprint::new(1, b"alice"), Fingerprint::new(2, b"alice"));
/// assert_ne!(second.name("tg:"), day.name("tg:"));
/// // Both are kept on the same node of a cluster.
/// assert_eq!(second.name("tg:")[..8], day.name("tg:")[..8]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    client: u128,
    state: u128,
}

/// A client, by a hash of its encoded key. Nobody finds two with the same one.
///
/// ```
/// use tollgate_store::{Client, Fingerprint};
///
/// assert_eq!(Client::new(b"alice").at(7), Fingerprint::new(7, b"alice"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    tag: u128,
    rest: u128,
}

impl Client {
    /// That of a client, by its encoded key.
    pub fn new(client: &[u8]) -> Client {
        let digest = Sha256::digest(client);
        let (tag, rest) = digest.split_at(16);
        Client { tag: bits(tag), rest: bits(rest) }
    }

    /// Its state at a limit. What nobody can choose is in the client's hash, so that the limit need only be mixed in.
    pub fn at(&self, limit_id: u64) -> Fingerprint {
        let limit = u128::from(mix(limit_id)) << 64 | u128::from(mix(!limit_id));
        Fingerprint { client: self.tag, state: self.rest ^ limit }
    }
}

/// The step of `SplitMix64`, by which small differences become large ones.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Fingerprint {
    /// That of a client, by its encoded key, at a limit.
    pub fn new(limit_id: u64, client: &[u8]) -> Fingerprint {
        Client::new(client).at(limit_id)
    }

    /// The name of the key. What is in braces says where in a cluster it is kept: the states of a client together, and
    /// no client chooses where.
    pub fn name(&self, prefix: &str) -> String {
        let mut name = String::with_capacity(Fingerprint::name_length(prefix));
        name.push_str(prefix);
        name.extend(self.letters().map(char::from));
        name
    }

    /// Writes the same.
    pub(crate) fn write_name(&self, prefix: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(prefix.as_bytes());
        out.extend(self.letters());
    }

    pub(crate) fn name_length(prefix: &str) -> usize {
        prefix.len() + 2 + (TAG_LETTERS + 2 * HALF_LETTERS) as usize
    }

    fn letters(&self) -> impl Iterator<Item = u8> {
        let [low, high] = [self.state, self.state >> 64].map(|half| letters(half as u64, HALF_LETTERS));
        let tag = letters(self.client as u64, TAG_LETTERS);
        std::iter::once(b'{').chain(tag).chain(std::iter::once(b'}')).chain(low).chain(high)
    }

    /// One that no client has, by the number of its tag.
    pub(crate) fn of_nobody(tag: u32, state: u32) -> Fingerprint {
        Fingerprint { client: tag.into(), state: state.into() }
    }

    /// The slot of a cluster that the key is in.
    pub fn slot(&self, prefix: &str) -> u16 {
        // Braces of the prefix come first.
        if prefix.contains('{') {
            return slot_of(self.name(prefix).as_bytes());
        }
        slot_of_tag(letters(self.client as u64, TAG_LETTERS))
    }

    /// The number of the key's tag.
    pub(crate) fn tag(&self) -> u32 {
        (self.client % u128::from(TAGS)) as u32
    }

    /// Evenly distributed bits.
    pub(crate) fn bits(&self) -> u64 {
        self.state as u64
    }
}

fn bits(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte))
}

/// What is in the braces of keys whose tag has this number.
pub(crate) fn tag_name(tag: u32) -> String {
    letters(tag.into(), TAG_LETTERS).map(char::from).collect()
}

fn letters(bits: u64, count: u32) -> impl Iterator<Item = u8> {
    (0..count).filter_map(move |place| LETTERS.get((bits >> (6 * place)) as usize & 63)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_in_the_slot_that_its_name_says() {
        for number in 0_u64..1_000 {
            let key = Fingerprint::new(number, &number.to_be_bytes());
            for prefix in ["tg:", "", "{a}:", "a{b:", "}{"] {
                assert_eq!(key.slot(prefix), slot_of(key.name(prefix).as_bytes()), "{}", key.name(prefix));
            }
        }
    }

    #[test]
    fn tags_are_known_by_their_numbers() {
        let key = Fingerprint::new(7, b"alice");
        assert!(key.name("tg:").starts_with(&format!("tg:{{{}}}", tag_name(key.tag()))));
    }

    #[test]
    fn there_are_tags_for_every_slot() {
        let mut found = vec![false; usize::from(crate::slots::SLOTS)];
        for tag in 0..TAGS {
            found[usize::from(Fingerprint::of_nobody(tag, 0).slot("tg:"))] = true;
        }
        assert!(found.iter().all(|found| *found));
    }
}
