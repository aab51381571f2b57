//! One cache line of the table: five buckets of different keys.
//!
//! A bucket is a word and a tag. The tag is a fingerprint of the key, the word the key's state: a moment
//! until which it matters. A word that lies in the past stands for a client of whom nothing is known, so its
//! slot is free, whatever its tag says. Nothing is ever cleared.
//!
//! **Invariant.** A charge counts only if the slot was still its key's after the word was swapped, and a slot
//! changes hands only if nothing was charged to it in the meantime. Both sides write first and look at the
//! other's word afterwards, so that at least one of them sees the other:
//!
//! - Who charges swaps the word, then looks at the tag. If the slot has changed hands the charge is taken back;
//!   if it is about to (the tag is [`PENDING`]), that is called off.
//! - Who takes over marks the tag as pending, then looks at the word. If it was charged, the mark is taken
//!   back; if not, the tag is swapped, which fails if it was called off.
//!
//! While a change is pending, the old key still finds its slot. Newcomers to a line take turns by a bit of it,
//! for the few nanoseconds that settling takes: two of them could mistake each other's marks for their own, or
//! settle the same key twice. Clients that are known never wait for anybody.
//!
//! Whoever loses such a race may see the other's charge for a moment and be refused, never the contrary.

use crate::pace::Ticks;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::time::Time;

/// Slots per line: as many words and tags as fit into 64 bytes next to the overflow mark. The model checker,
/// which tries every order in which threads can see them, is content with two.
pub(crate) const SLOTS: usize = if cfg!(loom) { 2 } else { 5 };

/// The tag of a slot that is about to change hands has this bit set.
const PENDING: u32 = 1 << 31;

/// What tells the keys of a line apart: 30 bits of the hash, never all zero, and whether the word counts fine
/// ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u32);

impl Tag {
    pub(crate) fn new(hash: u64, fine: bool) -> Tag {
        Tag(((hash as u32) << 1 & !PENDING).max(2) | u32::from(fine))
    }

    /// The tag of the second word of the same key.
    pub(crate) fn second(self) -> Tag {
        Tag((self.0 ^ 0x5555_5554).max(2))
    }

    /// Whether a slot's tag, pending or not, is this one.
    #[inline(always)]
    fn is_of(self, tag: u32) -> bool {
        tag & !PENDING == self.0
    }

    fn ticks(self) -> Ticks {
        if self.0 & 1 == 0 { Ticks::COARSE } else { Ticks::FINE }
    }

    /// Nanoseconds that a word reaches beyond now.
    pub(crate) fn owed(self, word: u64, now: Time) -> u64 {
        let ticks = self.ticks();
        ticks.nanos(ticks.ahead(word, ticks.at(now)))
    }
}

/// The bit of a line in which a newcomer is settling.
const SETTLING: u32 = 1;

#[repr(align(64))]
#[derive(Debug, Default)]
pub(crate) struct Line {
    words: [AtomicU64; SLOTS],
    tags: [AtomicU32; SLOTS],
    /// Until when a key of this line may be found in another one of its group, in [`coarse`] time; and in the
    /// lowest bit whether somebody is settling here.
    overflow: AtomicU32,
}

/// The turn of one newcomer. It ends when this is dropped.
pub(crate) struct Turn<'a>(&'a Line);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.overflow.fetch_and(!SETTLING, Ordering::SeqCst);
    }
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
            found |= u32::from(tag.is_of(slot_tag.load(Ordering::SeqCst))) << index;
        }
        let index = found.trailing_zeros() as usize;
        Some((self.words.get(index)?, self.tags.get(index)?))
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
        self.overflow.load(Ordering::SeqCst) > coarse(now.as_nanos()) | SETTLING
    }

    /// The same for a key that was found, which if it was not here is elsewhere.
    pub(crate) fn prolong_overflow(&self, owed: u64, now: Time) {
        if self.overflows(now) {
            self.mark_overflow(owed, now);
        }
    }

    /// Remembers that a key of this line is kept elsewhere for so many nanoseconds.
    pub(crate) fn mark_overflow(&self, owed: u64, now: Time) {
        let until = coarse(now.as_nanos().saturating_add(owed)).saturating_add(4) & !SETTLING;
        let mut mark = self.overflow.load(Ordering::SeqCst);
        while mark & !SETTLING < until {
            let later = until | mark & SETTLING;
            match self.overflow.compare_exchange(mark, later, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(changed) => mark = changed,
            }
        }
    }

    /// The right to settle a key here, if nobody else is just doing so.
    pub(crate) fn turn(&self) -> Option<Turn<'_>> {
        let before = self.overflow.fetch_or(SETTLING, Ordering::SeqCst);
        if before & SETTLING == 0 { Some(Turn(self)) } else { None }
    }
}

impl Slot<'_> {
    /// Nanoseconds until the slot is free.
    pub(crate) fn owed(&self, now: Time) -> u64 {
        self.seen_tag.owed(self.seen_word, now)
    }

    /// Makes the slot another key's, if nothing was charged to it since it was looked at.
    pub(crate) fn hand_over(&self, _turn: &Turn<'_>, to: Tag) -> bool {
        let (seen, pending) = (self.seen_tag.0, self.seen_tag.0 | PENDING);
        let swap = |from, to| self.tag.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if !swap(seen, pending) {
            return false;
        }
        if self.word.load(Ordering::SeqCst) == self.seen_word {
            return swap(pending, to.0);
        }
        // If this fails the old key has called it off itself.
        swap(pending, seen);
        false
    }

    /// Writes the first word of the key that the slot was handed over to, over what the key before may still
    /// owe. Fails if it has been charged already; that charge then comes on top of what was owed.
    pub(crate) fn fill(&self, tag: Tag, word: u64) -> bool {
        matches!(swap((self.word, self.tag), tag, self.seen_word, word), Ok(Attempt::Done(())))
    }
}

/// Changes the word of a slot that bears `tag`.
#[inline(always)]
pub(crate) fn update<R>(slot: (&AtomicU64, &AtomicU32), tag: Tag, step: &impl Fn(&mut u64) -> R) -> Attempt<(R, u64)> {
    let mut before = slot.0.load(Ordering::Acquire);
    loop {
        let mut after = before;
        let result = step(&mut after);
        if after == before {
            // What was read may already have been another key's.
            let still = tag.is_of(slot.1.load(Ordering::SeqCst));
            return if still { Attempt::Done((result, after)) } else { Attempt::Moved };
        }
        match swap(slot, tag, before, after) {
            Ok(Attempt::Done(())) => return Attempt::Done((result, after)),
            Ok(Attempt::Moved) => return Attempt::Moved,
            Err(changed) => before = changed,
        }
    }
}

/// Swaps the word and makes sure of the tag; fails with what the word had changed to.
#[inline(always)]
fn swap((word, tag): (&AtomicU64, &AtomicU32), owner: Tag, before: u64, after: u64) -> Result<Attempt<()>, u64> {
    word.compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst)?;
    let found = tag.load(Ordering::SeqCst);
    if found == owner.0 || found == owner.0 | PENDING && call_off(tag, owner) {
        return Ok(Attempt::Done(()));
    }
    // If this fails the new key has charged on top, and pays for this one as well: strict, and rare.
    let _ = word.compare_exchange(after, before, Ordering::SeqCst, Ordering::SeqCst);
    Ok(Attempt::Moved)
}

/// Keeps a slot that was about to change hands.
#[cold]
fn call_off(tag: &AtomicU32, owner: Tag) -> bool {
    let called_off = tag.compare_exchange(owner.0 | PENDING, owner.0, Ordering::SeqCst, Ordering::SeqCst);
    // Or else it was taken back in the same moment.
    called_off.is_ok() || called_off == Err(owner.0)
}

/// Time in steps of about four seconds, in the upper 31 of 32 bits.
fn coarse(nanos: u64) -> u32 {
    u32::try_from(nanos >> 31).unwrap_or(u32::MAX) & !SETTLING
}
