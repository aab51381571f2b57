//! The names of keys. Nothing that a client sends is in them, only its fingerprint.

use sha2::{Digest, Sha256};

/// Letters that need no escape anywhere.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Which state of which limit: a hash of 128 bits, the same on every host.
///
/// ```
/// use tollgate_store::Fingerprint;
///
/// let alice = Fingerprint::new(7, b"alice");
/// assert_eq!(alice.name("tg:").len(), "tg:{}".len() + 22);
/// assert_ne!(alice, Fingerprint::new(8, b"alice"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// That of a client, by its encoded key, at a limit.
    pub fn new(limit_id: u64, client: &[u8]) -> Fingerprint {
        let digest = Sha256::new().chain_update(limit_id.to_be_bytes()).chain_update(client).finalize();
        let (half, _) = digest.split_at(16);
        Fingerprint(half.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte)))
    }

    /// In 22 letters.
    pub fn text(&self) -> String {
        (0..22)
            .map(|place| LETTERS.get((self.0 >> (6 * place)) as usize & 63).map_or('A', |l| char::from(*l)))
            .collect()
    }

    /// The name of the key. The braces are ours, so that no client chooses where in a cluster it is kept.
    pub fn name(&self, prefix: &str) -> String {
        format!("{prefix}{{{}}}", self.text())
    }

    /// Evenly distributed bits.
    pub(crate) fn bits(&self) -> u64 {
        self.0 as u64
    }
}
