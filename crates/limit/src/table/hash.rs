//! A keyed hash that is fast on short keys and whose collisions nobody can aim for.
//!
//! A key is read as 64-bit words `m_i`, in a way that no two keys share, and summed up to `k + Σ k_i × m_i mod
//! 2^128` with secret, random `k_i`. For any two different keys, whatever they are, at most one value of each
//! `k_i` makes the sums equal, so whoever does not know the secret finds a pair that does with probability
//! 2^-64 (universal hashing, after Carter and Wegman). Short keys make do with one product for two words, `(m_i +
//! k_i) × (m_j + k_j)`, of which the same holds (the NH of UMAC); only their length is multiplied by itself.
//! Keys longer than a block of 31 words are summed block by block, each block beginning with the sum of the one
//! before. The products do not depend on each other, so that the latency is hardly more than that of one. Lastly
//! the two halves of the sum, each hidden by another secret, are multiplied and folded to 64 bits, which leaves
//! nothing of the sum's linearity to an attacker who does get to know of a collision.

use std::hash::{BuildHasher, Hasher};

/// Words per block.
const BLOCK: usize = 32;

/// The secret of a table.
#[derive(Clone, Debug)]
pub(crate) struct HashKey {
    factors: [u64; BLOCK],
    start: u128,
    fold: [u64; 2],
}

impl HashKey {
    /// Draws the secret from what `random` makes of small numbers.
    pub(crate) fn new(random: &impl BuildHasher) -> HashKey {
        let mut drawn = 0_u64;
        let mut draw = || {
            drawn += 1;
            random.hash_one(drawn)
        };
        HashKey {
            factors: std::array::from_fn(|_| draw()),
            start: u128::from(draw()) << 64 | u128::from(draw()),
            fold: [draw(), draw()],
        }
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
        self.sum = self.sum.wrapping_add(u128::from(factor) * u128::from(word));
        self.at += 1;
    }

    #[inline(never)]
    fn write_long(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        self.add(bytes.len() as u64);
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        self.add(up_to_seven(rest));
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
        let [upper, lower] = self.key.fold;
        let folded = u128::from((self.sum >> 64) as u64 ^ upper) * u128::from(self.sum as u64 ^ lower);
        (folded >> 64) as u64 ^ folded as u64
    }

    /// The length, then as many words as it takes. Those of a short key may overlap: it saves the branches that
    /// would tell them apart.
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        if bytes.len() > 32 {
            return self.write_long(bytes);
        }
        let [a, b, c, d] = match (bytes.first_chunk::<16>(), bytes.last_chunk::<16>()) {
            (Some(first), Some(last)) => {
                let ([a, b], [c, d]) = (halves(first), halves(last));
                [a, b, c, d]
            }
            _ => match (bytes.first_chunk(), bytes.last_chunk()) {
                (Some(first), Some(last)) => [u64::from_le_bytes(*first), u64::from_le_bytes(*last), 0, 0],
                _ => [up_to_seven(bytes), 0, 0, 0],
            },
        };
        let length = bytes.len() as u64;
        match self.key.factors.get(self.at..).and_then(|factors| factors.first_chunk::<5>()) {
            Some(factors) => {
                let [f, g, h, i, j] = *factors;
                let product = |x, y| u128::from(x) * u128::from(y);
                let first = product(a.wrapping_add(g), b.wrapping_add(h));
                let last = product(c.wrapping_add(i), d.wrapping_add(j));
                self.sum = self.sum.wrapping_add(product(f, length)).wrapping_add(first.wrapping_add(last));
                self.at += factors.len();
            }
            None => [length, a, b, c, d].into_iter().for_each(|word| self.add(word)),
        }
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

#[inline(always)]
fn halves(bytes: &[u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(*bytes);
    [both as u64, (both >> 64) as u64]
}

/// Up to seven bytes as a number.
#[inline]
fn up_to_seven(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk(), bytes.last_chunk()) {
        // Two halves, which may overlap.
        (Some(first), Some(last)) => {
            let shift = 8 * (bytes.len() - 4);
            u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << shift
        }
        _ => bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}
