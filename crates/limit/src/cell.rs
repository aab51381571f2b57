use crate::algorithm::sliding_window::SlidingWindow;
use crate::algorithm::{Allow, Ask, Change, Hold, Op};
use crate::decision::Decision;
use crate::limit::{Limit, OneWord, Shape, Transition, WideState, Wider};
use crate::pace::is_too_late;
use crate::reservation::{Refunds, Reservation};
use crate::sync::{AtomicU64, Mutex, Ordering, lock, update};
use crate::time::Time;
use std::time::Duration;

/// The state of one client of one limit, shared between threads.
///
/// Every limit but the logs and the warm-up is decided without a lock: a refusal only reads, and an admission
/// is one compare-and-swap.
///
/// ```
/// use std::time::Duration;
/// use tollgate_limit::{Cell, Limit, Op, Time};
///
/// let limit = Limit::token_bucket("10 per second".parse()?);
/// let cell = Cell::new(&limit, Time::ZERO);
/// assert!(cell.decide(&limit, Op::Take(6), Time::ZERO).is_allowed());
/// assert_eq!(cell.decide(&limit, Op::Peek(1), Time::ZERO + Duration::from_millis(200)).remaining, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Cell {
    words: [AtomicU64; 2],
    wide: Mutex<Option<WideState>>,
    refunds: Refunds,
}

/// The words of a cell whose state was [handed over](Cell::hand_over): later than any time.
const MOVED: u64 = u64::MAX;

impl Cell {
    /// The state of a client that nobody knows yet, at a limit that is created `now`.
    ///
    /// As in Guava, a [`smooth_bursty`](Limit::smooth_bursty) limit starts with nothing in store. All others
    /// start with all they can have.
    pub fn new(limit: &Limit, now: Time) -> Cell {
        let cell = Cell::default();
        if let Shape::Word(OneWord::SmoothBursty(_)) = limit.0 {
            let _ = cell.decide(limit, Op::Drain, now);
        }
        cell
    }

    /// Asks the limit, and keeps what follows from the answer.
    #[inline]
    pub fn decide(&self, limit: &Limit, op: Op, now: Time) -> Decision {
        if op == Op::Reset {
            return self.refunds.end_era(|| self.ask(limit, op, now));
        }
        self.ask(limit, op, now)
    }

    /// Takes `cost` tokens or none: [`Op::Take`] for those who need no more than the yes or no, and faster.
    #[inline(always)]
    pub fn allow(&self, limit: &Limit, cost: u64, now: Time) -> bool {
        self.ask(limit, Allow(cost), now)
    }

    #[inline(always)]
    fn ask<A: Ask>(&self, limit: &Limit, ask: A, now: Time) -> A::Answer {
        let [word, _] = &self.words;
        match &limit.0 {
            Shape::Plain(bucket) => update(word, |word| unless_moved(word, ask, |word| ask.ask(bucket, word, now))),
            _ => self.ask_other(limit, ask, now),
        }
    }

    #[inline(never)]
    fn ask_other<A: Ask>(&self, limit: &Limit, ask: A, now: Time) -> A::Answer {
        let [word, _] = &self.words;
        match &limit.0 {
            Shape::Plain(bucket) => update(word, |word| unless_moved(word, ask, |word| ask.ask(bucket, word, now))),
            Shape::Word(limit) => update(word, |word| unless_moved(word, ask, |word| limit.ask(word, ask, now))),
            Shape::Pair(limit) => self.ask_pair(limit, ask, now),
            Shape::Wide(limit) => self.ask_wide(limit, ask, now),
        }
    }

    fn ask_wide<A: Ask>(&self, limit: &Wider, ask: A, now: Time) -> A::Answer {
        let mut state = lock(&self.wide);
        if self.has_moved() {
            return ask.moved();
        }
        limit.ask(state.get_or_insert_with(|| limit.fresh()), ask, now)
    }

    fn ask_pair<A: Ask>(&self, limit: &SlidingWindow, ask: A, now: Time) -> A::Answer {
        let [even, odd] = &self.words;
        let (current, previous) = if limit.turn(now) == 0 { (even, odd) } else { (odd, even) };
        if ask.is_reset() {
            update(previous, |previous| *previous = if *previous == MOVED { MOVED } else { 0 });
        }
        let previous = previous.load(Ordering::Acquire);
        if previous == MOVED {
            return ask.moved();
        }
        update(current, |current| unless_moved(current, ask, |current| limit.ask_current(current, previous, ask, now)))
    }

    /// Books tokens, now or ahead, if the wait is no longer than `max_wait`.
    ///
    /// # Errors
    /// The refusal. Nothing was taken.
    pub fn reserve(&self, limit: &Limit, cost: u64, max_wait: Duration, now: Time) -> Result<Reservation, Decision> {
        self.refunds.book(now, || self.decide(limit, Op::Reserve { cost, max_wait }, now))
    }

    /// Gives back what has not been served of a reservation, and says how much that was.
    #[expect(clippy::needless_pass_by_value, reason = "nobody can give it back twice")]
    pub fn cancel(&self, limit: &Limit, reservation: Reservation, now: Time) -> u64 {
        self.refunds.give_back(&reservation, reservation.cost(), |cancel| self.ask(limit, cancel, now))
    }

    /// Goes over from one limit to another, in place. Somebody who asks at the same time may meet the new state
    /// with the old limit; see [`hand_over`](Self::hand_over) for a change in the midst of requests.
    pub fn change(&self, from: &Limit, to: &Limit, change: Change, now: Time) {
        if is_too_late(now) {
            return;
        }
        let [word, _] = &self.words;
        self.refunds.end_era(|| match Transition::new(from, to, change, now) {
            Transition::Rewrite { carry, .. } => update(word, |word| *word = carry(*word)),
            Transition::Replace => {
                let before = self.ask(from, Op::Peek(0), now);
                let _ = self.ask(from, Op::Reset, now);
                self.ask(to, Hold(to.carried_over(&before, change)), now);
            }
        });
    }

    /// Takes the state out of this cell and into a new one, for another limit. From that moment on this cell
    /// [has moved](Self::has_moved) and refuses everything, so that not one request is decided by the wrong limit.
    #[must_use = "the state is in the new cell"]
    pub fn hand_over(&self, from: &Limit, to: &Limit, change: Change, now: Time) -> Cell {
        let mut wide = lock(&self.wide);
        let words = self.words.each_ref().map(|word| word.swap(MOVED, Ordering::AcqRel));
        let cell =
            Cell { words: words.map(AtomicU64::new), wide: Mutex::new(wide.take()), refunds: self.refunds.clone() };
        cell.change(from, to, change, now);
        cell
    }

    /// Whether its state was handed over to another cell.
    #[inline]
    pub fn has_moved(&self) -> bool {
        let [word, _] = &self.words;
        word.load(Ordering::Acquire) == MOVED
    }
}

#[inline(always)]
fn unless_moved<A: Ask>(word: &mut u64, ask: A, answer: impl FnOnce(&mut u64) -> A::Answer) -> A::Answer {
    if *word == MOVED { ask.moved() } else { answer(word) }
}
