//! Keys and the order in which they come.

/// A small, seeded generator of random numbers (splitmix64), so that every run sees the same keys.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly distributed between zero and one.
    pub fn fraction(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The name of a client: 20 bytes, as an API key or an address with a prefix would be.
pub fn key(client: u64) -> String {
    format!("client-{client:013}")
}

/// The name of one client at a time, in a buffer that is written anew for each, as a server reads it from a socket:
/// it is in the cache when it is asked about, and a million of them push nothing else out of it.
#[derive(Clone, Debug)]
pub struct KeyBuffer([u8; 20]);

impl Default for KeyBuffer {
    fn default() -> KeyBuffer {
        KeyBuffer(*b"client-0000000000000")
    }
}

impl KeyBuffer {
    /// The same text as [`key`]'s, of a client below ten millions.
    pub fn write(&mut self, client: u64) -> &str {
        // Only the last seven digits differ, and writing them must not be what is measured.
        let (high, low) = ((client / 10_000) as u32, (client % 10_000) as u32);
        let digits = [high / 100 % 10, high / 10 % 10, high % 10, low / 1000, low / 100 % 10, low / 10 % 10, low % 10];
        for (place, digit) in self.0[13..].iter_mut().zip(digits) {
            *place = b'0' + digit as u8;
        }
        std::str::from_utf8(&self.0).expect("it is ASCII")
    }
}

/// So many requests by `clients` clients, every one as likely as the others. The keys lie in memory in the
/// order in which they come, so that reading them costs next to nothing.
pub fn uniform(requests: usize, clients: usize) -> Vec<String> {
    let mut random = Random(7);
    (0..requests).map(|_| key(random.draw() % clients as u64)).collect()
}

/// The same with a few clients that ask most: the `n`th one in proportion to `1 / n^0.99`.
pub fn zipf(requests: usize, clients: usize) -> Vec<String> {
    let weights = (1..=clients).map(|rank| (rank as f64).powf(-0.99));
    let sums: Vec<f64> = weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let total = sums.last().copied().unwrap_or(1.0);
    let mut random = Random(11);
    let mut draw = || {
        let drawn = random.fraction() * total;
        sums.partition_point(|sum| *sum < drawn) as u64
    };
    // Ranks are spread over the names, as they are in life.
    (0..requests).map(|_| key(draw().wrapping_mul(0x9e37_79b9) % clients as u64)).collect()
}
