//! One cache line of the table: five buckets of different keys.
//!
//! A bucket is a word and a tag. The tag is a fingerprint of the key, the word the key's state: a moment
//! until which it matters. A word that lies in the past stands for a client of whom nothing is known, so its
//! slot is free, whatever its tag says. Nothing is ever cleared.
//!
//! **Invariant.** A charge counts only if the slot bore the charged key's tag when the word was swapped *and*
//! bears it still: whoever swaps a word looks at the tag afterwards, and takes the charge back if the slot has
//! changed hands. Hands change by a swap of the tag alone, which leaves the new key with a full bucket since
//! the word lay in the past.

use crate::pace::Ticks;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::time::Time;

/// Slots per line: as many words and tags as fit into 64 bytes next to the overflow mark.
pub(crate) const SLOTS: usize = 5;

/// What tells the keys of a line apart: 31 bits of the hash, never all zero, and whether the word counts fine
/// ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u32);

impl Tag {
    pub(crate) fn new(hash: u64, fine: bool) -> Tag {
        Tag(((hash as u32) << 1).max(2) | u32::from(fine))
    }

    /// The tag of the second word of the same key.
    pub(crate) fn second(self) -> Tag {
        Tag((self.0 ^ 0x5555_5554).max(2))
    }

    fn ticks(self) -> Ticks {
        if self.0 & 1 == 0 { Ticks::COARSE } else { Ticks::FINE }
    }

    /// Nanoseconds that a word reaches beyond now.
    pub(crate) fn owed(self, word: u64, now: Time) -> u64 {
        self.ticks().nanos(word.saturating_sub(self.ticks().at(now)))
    }
}

#[repr(align(64))]
#[derive(Debug, Default)]
pub(crate) struct Line {
    words: [AtomicU64; SLOTS],
    tags: [AtomicU32; SLOTS],
    /// Until when a key of this line may be found in another one of its group, in [`coarse`] time.
    overflow: AtomicU32,
}

/// A slot of a line, as it was when it was looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    word: &'a AtomicU64,
    tag: &'a AtomicU32,
    seen_tag: Tag,
    seen_word: u64,
}

/// What came of an attempt that others may have interfered with.
pub(crate) enum Attempt<R> {
    Done(R),
    /// The slot changed hands. Nothing was charged.
    Moved,
}

impl Line {
    fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        self.words.iter().zip(&self.tags).map(|(word, tag)| Slot {
            word,
            tag,
            seen_tag: Tag(tag.load(Ordering::SeqCst)),
            seen_word: word.load(Ordering::Acquire),
        })
    }

    /// The slot that bears this tag.
    #[inline(always)]
    pub(crate) fn find(&self, tag: Tag) -> Option<(&AtomicU64, &AtomicU32)> {
        // All tags are compared before any branch: which one fits cannot be predicted.
        let mut found = 0_u32;
        for (index, slot_tag) in self.tags.iter().enumerate() {
            found |= u32::from(slot_tag.load(Ordering::SeqCst) == tag.0) << index;
        }
        let index = found.trailing_zeros() as usize;
        Some((self.words.get(index)?, self.tags.get(index)?))
    }

    /// Slots whose tag is this.
    pub(crate) fn count(&self, tag: Tag) -> usize {
        self.tags.iter().filter(|slot_tag| slot_tag.load(Ordering::SeqCst) == tag.0).count()
    }

    /// A slot that stands for nobody.
    pub(crate) fn free(&self, now: Time) -> Option<Slot<'_>> {
        self.slots().find(|slot| slot.owed(now) == 0)
    }

    /// The slot whose key owes least.
    pub(crate) fn least_owing(&self, now: Time) -> Option<Slot<'_>> {
        self.slots().min_by_key(|slot| slot.owed(now))
    }

    /// Slots that stand for somebody.
    pub(crate) fn occupied(&self, now: Time) -> usize {
        self.slots().filter(|slot| slot.owed(now) > 0).count()
    }

    /// Whether keys of this line may be found elsewhere in its group.
    #[inline(always)]
    pub(crate) fn overflows(&self, now: Time) -> bool {
        self.overflow.load(Ordering::SeqCst) > coarse(now.as_nanos())
    }

    /// Remembers that a key of this line is kept elsewhere for so many nanoseconds.
    pub(crate) fn mark_overflow(&self, owed: u64, now: Time) {
        let until = coarse(now.as_nanos().saturating_add(owed)).saturating_add(2);
        if self.overflow.load(Ordering::SeqCst) < until {
            self.overflow.fetch_max(until, Ordering::SeqCst);
        }
    }
}

impl Slot<'_> {
    /// Nanoseconds until the slot is free.
    pub(crate) fn owed(&self, now: Time) -> u64 {
        self.seen_tag.owed(self.seen_word, now)
    }

    /// Makes the slot another key's. Fails if it changed hands.
    pub(crate) fn hand_over(&self, to: Tag) -> bool {
        self.tag.compare_exchange(self.seen_tag.0, to.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Gives up a slot that was handed over to `tag` and not used yet.
    pub(crate) fn give_up(&self, tag: Tag) {
        // If this fails somebody else has it already.
        let _ = self.tag.compare_exchange(tag.0, 0, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Writes the first word of the key that the slot was handed over to.
    pub(crate) fn fill(&self, tag: Tag, word: u64) -> bool {
        matches!(swap((self.word, self.tag), tag, self.seen_word, word), Some(Attempt::Done(())))
    }
}

/// Changes the word of a slot that bears `tag`.
#[inline(always)]
pub(crate) fn update<R>(slot: (&AtomicU64, &AtomicU32), tag: Tag, step: &impl Fn(&mut u64) -> R) -> Attempt<(R, u64)> {
    loop {
        let before = slot.0.load(Ordering::Acquire);
        let mut after = before;
        let result = step(&mut after);
        if after == before {
            // What was read may already have been another key's.
            let still = slot.1.load(Ordering::SeqCst) == tag.0;
            return if still { Attempt::Done((result, after)) } else { Attempt::Moved };
        }
        match swap(slot, tag, before, after) {
            Some(Attempt::Done(())) => return Attempt::Done((result, after)),
            Some(Attempt::Moved) => return Attempt::Moved,
            None => {}
        }
    }
}

/// Swaps the word and makes sure of the tag; `None` if the word had changed.
#[inline(always)]
fn swap((word, tag): (&AtomicU64, &AtomicU32), owner: Tag, before: u64, after: u64) -> Option<Attempt<()>> {
    word.compare_exchange(before, after, Ordering::SeqCst, Ordering::Acquire).ok()?;
    if tag.load(Ordering::SeqCst) == owner.0 {
        return Some(Attempt::Done(()));
    }
    // If this fails the new key has charged on top, and pays for this one as well: strict, and rare.
    let _ = word.compare_exchange(after, before, Ordering::SeqCst, Ordering::Relaxed);
    Some(Attempt::Moved)
}

/// Time in steps of about two seconds, in 32 bits.
fn coarse(nanos: u64) -> u32 {
    u32::try_from(nanos >> 31).unwrap_or(u32::MAX)
}
