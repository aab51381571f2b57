//! Who may ask: everybody on this machine, and elsewhere whoever has a token or a certificate.

use crate::fault::Fault;
use sha2::{Digest, Sha256};
use std::fmt;

/// The tokens that let somebody in. Only their digests are kept.
#[derive(Clone, Default)]
pub struct Access {
    digests: Vec<[u8; 32]>,
}

impl Access {
    /// Whoever has one of these may ask.
    pub fn new(tokens: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Access {
        Access { digests: tokens.into_iter().map(|token| Sha256::digest(token).into()).collect() }
    }

    /// Whether there are tokens at all.
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// # Errors
    /// The token is none of ours.
    pub fn check(&self, token: &[u8]) -> Result<(), Fault> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        // All of them are compared, and all bytes of each: how long it takes tells nothing.
        let differs = |known: &[u8; 32]| known.iter().zip(&digest).fold(0, |seen, (one, other)| seen | (one ^ other));
        let found = self.digests.iter().fold(false, |found, known| found | (differs(known) == 0));
        if found { Ok(()) } else { Err(Fault::WrongToken) }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access({} tokens)", self.digests.len())
    }
}
