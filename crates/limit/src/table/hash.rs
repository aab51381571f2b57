//! A keyed hash that is fast on short keys and whose collisions nobody can aim for.
//!
//! A key is read as 64-bit words `m_i`, in a way that no two keys share, and hashed to the upper half of
//! `k + Σ k_i × m_i mod 2^128` with secret, random 128-bit `k_i`. For any two different keys of up to 256
//! bytes, both hashes together are uniformly distributed (strong universality: Carter and Wegman; this form
//! is Dietzfelbinger's), so whoever does not know the secret finds two keys that collide with probability
//! 2^-64 per pair, whatever the keys. Longer keys are hashed block by block, each block beginning with the
//! sum of the one before. The products do not depend on each other, so the latency is that of one. A last,
//! invertible step hides that the sum is linear, in case an attacker does learn about collisions.

use std::hash::{BuildHasher, Hasher};

/// Words per block.
const BLOCK: usize = 32;

/// The secret of a table.
#[derive(Clone, Debug)]
pub(crate) struct HashKey {
    factors: [u128; BLOCK],
    start: u128,
    last: u64,
}

impl HashKey {
    /// Draws the secret from what `random` makes of small numbers.
    pub(crate) fn new(random: &impl BuildHasher) -> HashKey {
        let mut drawn = 0_u64;
        let mut draw = || {
            drawn += 1;
            random.hash_one(drawn)
        };
        let mut draw_wide = || u128::from(draw()) << 64 | u128::from(draw());
        HashKey { factors: std::array::from_fn(|_| draw_wide()), start: draw_wide(), last: draw() | 1 }
    }
}

impl<'a> BuildHasher for &'a HashKey {
    type Hasher = KeyHasher<'a>;

    #[inline(always)]
    fn build_hasher(&self) -> KeyHasher<'a> {
        KeyHasher { key: self, sum: self.start, at: 0 }
    }
}

pub(crate) struct KeyHasher<'a> {
    key: &'a HashKey,
    sum: u128,
    /// Words of this block so far.
    at: usize,
}

impl KeyHasher<'_> {
    #[inline(always)]
    fn add(&mut self, word: u64) {
        if self.at == BLOCK {
            self.next_block();
        }
        #[expect(clippy::indexing_slicing, reason = "reduced to below the length")]
        let factor = self.key.factors[self.at % BLOCK];
        self.sum = self.sum.wrapping_add(factor.wrapping_mul(u128::from(word)));
        self.at += 1;
    }

    #[cold]
    fn next_block(&mut self) {
        let sum = std::mem::replace(&mut self.sum, self.key.start);
        self.at = 0;
        self.add((sum >> 64) as u64);
        self.add(sum as u64);
    }
}

impl Hasher for KeyHasher<'_> {
    #[inline(always)]
    fn finish(&self) -> u64 {
        let upper = (self.sum >> 64) as u64;
        let mixed = (upper ^ (upper >> 32)).wrapping_mul(self.key.last);
        mixed ^ (mixed >> 32)
    }

    /// Whole words, then a last one that says how many bytes it holds.
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        let tail = match (words.is_empty(), rest.len()) {
            (_, 0) => 0,
            // The last eight bytes of the key, without those that have been read already.
            (false, left) => bytes.last_chunk().map_or(0, |last| u64::from_le_bytes(*last) >> (64 - 8 * left)),
            (true, _) => short_tail(rest),
        };
        self.add(tail | (rest.len() as u64 + 1) << 56);
    }

    #[inline(always)]
    fn write_u8(&mut self, n: u8) {
        self.add(u64::from(n));
    }

    #[inline(always)]
    fn write_u16(&mut self, n: u16) {
        self.add(u64::from(n));
    }

    #[inline(always)]
    fn write_u32(&mut self, n: u32) {
        self.add(u64::from(n));
    }

    #[inline(always)]
    fn write_u64(&mut self, n: u64) {
        self.add(n);
    }

    #[inline(always)]
    fn write_u128(&mut self, n: u128) {
        self.add(n as u64);
        self.add((n >> 64) as u64);
    }

    #[inline(always)]
    fn write_usize(&mut self, n: usize) {
        self.add(n as u64);
    }
}

/// Up to seven bytes as a number, read as two halves that may overlap.
#[inline]
fn short_tail(bytes: &[u8]) -> u64 {
    let shift = |width: usize| 8 * bytes.len().saturating_sub(width);
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => {
            u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << shift(4)
        }
        _ => match bytes {
            [a] => u64::from(*a),
            [a, b] => u64::from(u16::from_le_bytes([*a, *b])),
            [a, b, c] => u64::from(u32::from_le_bytes([*a, *b, *c, 0])),
            _ => 0,
        },
    }
}
