//! The names of keys. Nothing that a client sends is in them, only its fingerprint.

use sha2::{Digest, Sha256};

/// Letters that need no escape anywhere.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Letters of a tag: sixteen tags for each slot of a cluster. With more the names would take more memory.
const TAG_LETTERS: u32 = 3;

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

impl Fingerprint {
    /// That of a client, by its encoded key, at a limit.
    pub fn new(limit_id: u64, client: &[u8]) -> Fingerprint {
        let whole = half(&Sha256::new().chain_update(limit_id.to_be_bytes()).chain_update(client));
        Fingerprint { client: half(&Sha256::new_with_prefix(client)), state: whole }
    }

    /// The name of the key. What is in braces says where in a cluster it is kept: the states of a client together, and
    /// no client chooses where.
    pub fn name(&self, prefix: &str) -> String {
        let mut name = String::with_capacity(prefix.len() + 27);
        name.push_str(prefix);
        name.push('{');
        name.extend(letters(self.client, TAG_LETTERS));
        name.push('}');
        name.extend(letters(self.state, 22));
        name
    }

    /// Evenly distributed bits.
    pub(crate) fn bits(&self) -> u64 {
        self.state as u64
    }
}

/// The first half of a digest.
fn half(hash: &Sha256) -> u128 {
    hash.clone().finalize().iter().take(16).fold(0, |bits, byte| bits << 8 | u128::from(*byte))
}

fn letters(bits: u128, count: u32) -> impl Iterator<Item = char> {
    (0..count)
        .filter_map(move |place| LETTERS.get((bits >> (6 * place)) as usize & 63))
        .map(|letter| char::from(*letter))
}
