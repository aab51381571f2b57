//! Which accounts somebody should look at.

use std::sync::atomic::{AtomicU64, Ordering};

/// Marks are kept so many together.
pub(super) const WORD: usize = u64::BITS as usize;

/// A bit for every account.
pub(super) struct Marks(Box<[AtomicU64]>);

impl Marks {
    pub(super) fn new(count: usize) -> Marks {
        Marks((0..count / WORD).map(|_| AtomicU64::new(0)).collect())
    }

    /// Says whether it was not set before.
    pub(super) fn set(&self, index: u32) -> bool {
        let Some(word) = self.0.get(index as usize / WORD) else { return false };
        let bit = 1 << (index as usize % WORD);
        word.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// Those that were set, which then are no longer.
    pub(super) fn take(&self) -> impl Iterator<Item = u32> {
        self.0.iter().zip(0_u32..).flat_map(|(word, number)| {
            // To look is cheaper than to write.
            let bits = if word.load(Ordering::Relaxed) == 0 { 0 } else { word.swap(0, Ordering::AcqRel) };
            let length = if bits == 0 { 0 } else { u64::BITS };
            (0..length).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| number * u64::BITS + bit)
        })
    }
}
