use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tollgate_limit::Decision;

/// Copies of the counters, so that threads on different cores seldom write to the same cache line.
const STRIPES: usize = 8;

/// Counters per stripe: two cache lines.
const SLOTS: usize = 16;

/// The first ten slots are for the tenths of a limit that [`Ending::Allowed`] left used.
const TENTHS: usize = 10;
const BEYOND: usize = TENTHS;
const UNLIMITED: usize = TENTHS + 1;
const WAITED: usize = TENTHS + 2;
const REFUSED: usize = TENTHS + 3;
const SHADOWED: usize = TENTHS + 4;
const DEGRADED: usize = TENTHS + 5;

/// How a decision ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It went ahead, and left so much of the limit used.
    Allowed(Use),
    /// It went ahead, as there was no limit for this client.
    Unlimited,
    /// It went ahead after a wait.
    Waited,
    /// It did not go ahead.
    Refused,
    /// It went ahead, and would have been refused if the rule were not shadowed.
    Shadowed,
}

/// How much of a limit is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Tokens taken; more than the limit where it is in debt.
    pub used: u64,
    /// Tokens that could be taken at most.
    pub limit: u64,
}

impl Use {
    /// How much is used after a decision.
    #[inline]
    pub fn after(decision: &Decision) -> Use {
        Use { used: decision.missing(), limit: decision.limit }
    }

    /// Which tenth of the limit it has come to, by a division of four bits: one of 64 would cost more than the
    /// counting.
    #[inline]
    fn slot(self) -> usize {
        if self.used > self.limit || self.limit == 0 {
            return BEYOND;
        }
        // Ten times the limit must fit a word.
        let shift = if self.limit >> 60 == 0 { 0 } else { 4 };
        let (mut rest, limit) = ((self.used >> shift) * 10, self.limit >> shift);
        let mut tenth = 0;
        for bit in [8, 4, 2, 1] {
            if rest >= limit * bit {
                rest -= limit * bit;
                tenth += bit as usize;
            }
        }
        tenth.min(TENTHS - 1)
    }
}

/// Counts how decisions end, and how close to their limits clients run, in one addition for both.
///
/// Each thread adds to one of eight copies; reading sums them up. 1 KiB.
#[derive(Debug, Default)]
pub struct Tally {
    stripes: [Stripe; STRIPES],
}

/// Aligned to two cache lines, as processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe([AtomicU64; SLOTS]);

/// How decisions ended. Each is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Went ahead at once.
    pub allowed: u64,
    /// Went ahead after a wait.
    pub waited: u64,
    /// Did not go ahead.
    pub refused: u64,
    /// Went ahead, and would have been refused if the rule were not shadowed.
    pub shadowed: u64,
    /// Of all of these, those that were decided without the hosts that the limit is shared with.
    pub degraded: u64,
}

impl Counts {
    /// All decisions.
    pub fn total(&self) -> u64 {
        self.allowed + self.waited + self.refused + self.shadowed
    }
}

/// How much of their limits clients had used after each decision. A rule whose clients are all in the first tenths
/// could be stricter without anybody noticing; one with many in the last tenth and beyond is felt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UseHistogram {
    /// From 0 to under 10 %, from 10 to under 20 %, and so on; the last one from 90 to 100 %.
    pub tenths: [u64; TENTHS],
    /// More than there was: waited, refused, shadowed, and what went into debt.
    pub over: u64,
}

impl Tally {
    /// Counts a decision.
    #[inline]
    pub fn add(&self, ending: Ending) {
        let slot = match ending {
            Ending::Allowed(after) => after.slot(),
            Ending::Unlimited => UNLIMITED,
            Ending::Waited => WAITED,
            Ending::Refused => REFUSED,
            Ending::Shadowed => SHADOWED,
        };
        self.add_to(slot);
    }

    /// Counts that a decision was made without those whom the limit is shared with. How it ended is counted, too.
    pub fn add_degraded(&self) {
        self.add_to(DEGRADED);
    }

    #[inline]
    fn add_to(&self, slot: usize) {
        if let Some(counter) = self.stripes.get(thread_number() % STRIPES).and_then(|stripe| stripe.0.get(slot)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts of all threads.
    pub fn snapshot(&self) -> (Counts, UseHistogram) {
        let sum = |slot| self.stripes.iter().filter_map(|stripe| stripe.0.get(slot)).map(load).sum::<u64>();
        let tenths = std::array::from_fn(sum);
        let [beyond, waited, refused, shadowed, degraded] = [BEYOND, WAITED, REFUSED, SHADOWED, DEGRADED].map(sum);
        let allowed = tenths.iter().sum::<u64>() + beyond + sum(UNLIMITED);
        let uses = UseHistogram { tenths, over: beyond + waited + refused + shadowed };
        (Counts { allowed, waited, refused, shadowed, degraded }, uses)
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Threads are numbered as they come, so that any eight in a row have a stripe each.
#[inline]
fn thread_number() -> usize {
    const NONE: usize = usize::MAX;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(NONE) };
    }
    if MINE.get() == NONE {
        MINE.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    MINE.get()
}
