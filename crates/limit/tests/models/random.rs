//! Requests drawn from a seed.

use std::time::Duration;
use tollgate_limit::Op;

/// `SplitMix64`: small, and good enough to choose requests with.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x746F_6C6C_6761_7465)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, or zero where there is none.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// When a run begins: anywhere in this century, but not within the last half of the 104 days after which
    /// the words of quotas above 10^9 per second go round.
    pub(crate) fn start(&mut self) -> u64 {
        (self.below(1 << 9) << 53) + self.below(1 << 52)
    }
}

/// What is asked, and how often.
pub(crate) struct Workload {
    /// About how many tokens there are.
    pub(crate) tokens: u64,
    /// About how long they take to come back, in nanoseconds.
    pub(crate) fill: u64,
    /// The least and the most that somebody asks for by mistake.
    pub(crate) least: u64,
    pub(crate) absurd: u64,
    /// Operations, each as often as it is wanted.
    pub(crate) kinds: Vec<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Take,
    TakeUpTo,
    Charge,
    Reserve,
    Peek,
    Refund,
    Drain,
    Reset,
}

impl Workload {
    /// Everything that can be asked, mostly takes.
    pub(crate) fn of_everything(tokens: u64, fill: u64) -> Workload {
        let often = [(Kind::Take, 40), (Kind::Reserve, 14), (Kind::Peek, 12), (Kind::TakeUpTo, 10)];
        let rarely = [(Kind::Refund, 10), (Kind::Charge, 8), (Kind::Drain, 3), (Kind::Reset, 1)];
        let kinds =
            often.into_iter().chain(rarely).flat_map(|(kind, times)| std::iter::repeat_n(kind, times)).collect();
        Workload { tokens, fill, least: 0, absurd: u64::MAX, kinds }
    }

    pub(crate) fn without(mut self, kinds: &[Kind]) -> Workload {
        self.kinds.retain(|kind| !kinds.contains(kind));
        self
    }

    /// How long until the next request: mostly a fraction of a fill, often no time at all, sometimes long.
    pub(crate) fn pause(&self, random: &mut Random) -> u64 {
        match random.below(128) {
            0 => random.below(self.fill.saturating_mul(30)),
            1..16 => 0,
            16..24 => random.below(3),
            24..32 => random.below(self.fill.saturating_mul(3)),
            32..64 => random.below(9) * (self.fill / self.tokens),
            _ => random.below(self.fill / 6 + 2),
        }
    }

    pub(crate) fn op(&self, random: &mut Random) -> Op {
        let drawn = random.below(self.kinds.len() as u64) as usize;
        let cost = self.cost(random);
        match self.kinds.get(drawn).copied().unwrap_or(Kind::Take) {
            Kind::Take => Op::Take(cost),
            Kind::TakeUpTo => Op::TakeUpTo(cost),
            Kind::Charge => Op::Charge(cost),
            Kind::Reserve => Op::Reserve { cost, max_wait: self.max_wait(random) },
            Kind::Peek => Op::Peek(cost),
            Kind::Refund => Op::Refund(cost),
            Kind::Drain => Op::Drain,
            Kind::Reset => Op::Reset,
        }
    }

    fn cost(&self, random: &mut Random) -> u64 {
        match random.below(64) {
            0 => self.absurd,
            1..4 => self.least,
            4..6 => self.tokens,
            6..8 => self.tokens + 1,
            8..12 => random.below(2 * self.tokens + 1).max(self.least),
            12..36 => 1,
            _ => 1 + random.below(self.tokens / 4 + 1),
        }
    }

    fn max_wait(&self, random: &mut Random) -> Duration {
        Duration::from_nanos(match random.below(4) {
            0 => 0,
            1 => random.below(4) * self.fill,
            _ => random.below(3 * self.fill + 1),
        })
    }
}
