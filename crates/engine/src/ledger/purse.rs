//! Tokens of an account, and whose they are, in one word.

use std::sync::atomic::{AtomicU64, Ordering};

/// Tokens are counted in so many bits; in those above them the eras of an account are.
const BITS: u32 = 48;
const MOST: i64 = (1 << (BITS - 1)) - 1;

/// Which of those who have had an account one after the other. After 65,536 of them it begins anew.
pub(super) type Era = u16;

/// A number of tokens, which may be below zero. Nobody can add to it, or take out of it, who does not know the era:
/// so nothing is ever written down in an account that has become somebody else's.
#[derive(Debug, Default)]
pub(super) struct Purse(AtomicU64);

impl Purse {
    pub(super) fn era(&self) -> Era {
        unpack(self.0.load(Ordering::Acquire)).0
    }

    /// How many there are, if the era is still the same.
    pub(super) fn tokens(&self, era: Era) -> Option<i64> {
        let (now, tokens) = unpack(self.0.load(Ordering::Acquire));
        (now == era).then_some(tokens)
    }

    /// Changes the number, and says what it was before. `None` if the era is over, or if there is nothing to change.
    pub(super) fn change(&self, era: Era, change: impl Fn(i64) -> Option<i64>) -> Option<i64> {
        let step = |word: u64| {
            let (now, tokens) = unpack(word);
            Some(pack(era, change(tokens).filter(|_| now == era)?))
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, step).ok().map(|word| unpack(word).1)
    }

    pub(super) fn add(&self, era: Era, tokens: i64) -> Option<i64> {
        self.change(era, |before| Some(before.saturating_add(tokens)))
    }

    /// Takes everything out.
    pub(super) fn empty(&self, era: Era) -> i64 {
        // To look is cheaper than to write.
        match self.tokens(era) {
            None | Some(0) => 0,
            Some(_) => self.change(era, |_| Some(0)).unwrap_or(0),
        }
    }

    /// Ends the era, if nothing is in it.
    pub(super) fn end(&self, era: Era) -> bool {
        let next = pack(era.wrapping_add(1), 0);
        self.0.compare_exchange(pack(era, 0), next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes back that the era has ended, if it has and nothing is in the next one.
    pub(super) fn resume(&self, era: Era) {
        let next = pack(era.wrapping_add(1), 0);
        let _ = self.0.compare_exchange(next, pack(era, 0), Ordering::AcqRel, Ordering::Relaxed);
    }
}

fn pack(era: Era, tokens: i64) -> u64 {
    let tokens = tokens.clamp(-MOST, MOST) as u64;
    u64::from(era) << BITS | tokens & (u64::MAX >> (u64::BITS - BITS))
}

fn unpack(word: u64) -> (Era, i64) {
    // Shifted up and down again, so that what is below zero stays there.
    let tokens = (word << (u64::BITS - BITS)) as i64 >> (u64::BITS - BITS);
    ((word >> BITS) as Era, tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_as_many_as_were_put_in() {
        for tokens in [0, 1, -1, 12_345, -12_345, MOST, -MOST] {
            for era in [0, 1, Era::MAX] {
                assert_eq!(unpack(pack(era, tokens)), (era, tokens));
            }
        }
        assert_eq!(unpack(pack(7, i64::MIN)), (7, -MOST));
        assert_eq!(unpack(pack(7, i64::MAX)), (7, MOST));
    }

    #[test]
    fn an_era_ends_only_when_nothing_is_left_and_nobody_of_it_comes_back() {
        let purse = Purse::default();
        assert_eq!(purse.add(0, 5), Some(0));
        assert!(!purse.end(0));
        assert_eq!(purse.empty(0), 5);
        assert!(purse.end(0));
        assert_eq!((purse.add(0, 5), purse.tokens(0), purse.empty(0), purse.era()), (None, None, 0, 1));
    }
}
