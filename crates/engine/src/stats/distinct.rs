use std::sync::atomic::{AtomicU8, Ordering};

/// The first bits of a hash choose the register.
const INDEX_BITS: u32 = 8;
const REGISTERS: usize = 1 << INDEX_BITS;

/// About how many different hashes it has seen, in 256 bytes: a `HyperLogLog`.
///
/// Off by 6.5 % (one standard deviation; 1.04/√256), and by less below a few hundred. A register keeps the longest
/// run of zeros that a hash of its 256th of all of them began with; `n` of them make about `log2 n` likely. Hashes
/// must be evenly distributed.
///
/// ```
/// use std::hash::{BuildHasher, RandomState};
/// use tollgate::stats::Distinct;
///
/// let (seen, random) = (Distinct::default(), RandomState::new());
/// for name in ["alice", "bob", "alice"] {
///     seen.insert(random.hash_one(name));
/// }
/// assert!(seen.estimate() < 3.0);
/// ```
#[derive(Debug)]
pub struct Distinct {
    registers: [AtomicU8; REGISTERS],
}

impl Default for Distinct {
    fn default() -> Distinct {
        Distinct { registers: std::array::from_fn(|_| AtomicU8::new(0)) }
    }
}

impl Distinct {
    /// Sees a hash. Hardly ever writes, so that threads do not get into each other's way.
    #[inline]
    pub fn insert(&self, hash: u64) {
        let rank = (hash << INDEX_BITS).leading_zeros().min(u64::BITS - INDEX_BITS) as u8 + 1;
        let index = (hash >> (u64::BITS - INDEX_BITS)) as usize;
        if let Some(register) = self.registers.get(index)
            && register.load(Ordering::Relaxed) < rank
        {
            register.fetch_max(rank, Ordering::Relaxed);
        }
    }

    /// How many there were, by the estimator of Ertl ("New cardinality estimation algorithms for `HyperLogLog`
    /// sketches", 2017), which needs neither tables nor a threshold below which to count empty registers instead.
    pub fn estimate(&self) -> f64 {
        let ranks = self.registers.iter().map(|register| register.load(Ordering::Relaxed));
        let (mut empty, mut sum) = (0.0, 0.0);
        for rank in ranks {
            match rank {
                0 => empty += 1.0,
                _ => sum += f64::exp2(-f64::from(rank)),
            }
        }
        let registers = REGISTERS as f64;
        let alpha = 0.5 / std::f64::consts::LN_2;
        alpha * registers * registers / (sum + registers * sigma(empty / registers))
    }
}

/// `x + Σ x^(2^k) × 2^(k-1)`: what the empty registers add, given their share of all of them.
fn sigma(share: f64) -> f64 {
    if share >= 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut factor, mut sum) = (share, 1.0, share);
    loop {
        power *= power;
        let before = sum;
        sum += power * factor;
        factor += factor;
        if sum == before {
            return sum;
        }
    }
}
