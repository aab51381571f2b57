use crate::algorithm::sliding_window::SlidingWindow;
use crate::algorithm::{Allow, Ask, Change, Op};
use crate::decision::Decision;
use crate::limit::{Limit, OneWord, Shape, WideState, change_limit};
use crate::reservation::{Refunds, Reservation};
use crate::sync::{AtomicU64, Ordering, lock, update};
use crate::time::Time;
use std::sync::Mutex;
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
            Shape::Plain(bucket) => update(word, |word| ask.ask(bucket, word, now)),
            _ => self.ask_other(limit, ask, now),
        }
    }

    #[inline(never)]
    fn ask_other<A: Ask>(&self, limit: &Limit, ask: A, now: Time) -> A::Answer {
        let [word, _] = &self.words;
        match &limit.0 {
            Shape::Plain(bucket) => update(word, |word| ask.ask(bucket, word, now)),
            Shape::Word(limit) => update(word, |word| limit.ask(word, ask, now)),
            Shape::Pair(limit) => self.ask_pair(limit, ask, now),
            Shape::Wide(limit) => limit.ask(lock(&self.wide).get_or_insert_with(|| limit.fresh()), ask, now),
        }
    }

    fn ask_pair<A: Ask>(&self, limit: &SlidingWindow, ask: A, now: Time) -> A::Answer {
        let [even, odd] = &self.words;
        let (current, previous) = if limit.turn(now) == 0 { (even, odd) } else { (odd, even) };
        if ask.is_reset() {
            previous.store(0, Ordering::Release);
        }
        let previous = previous.load(Ordering::Acquire);
        update(current, |current| limit.ask_current(current, previous, ask, now))
    }

    /// Books tokens, now or ahead, if the wait is no longer than `max_wait`.
    ///
    /// # Errors
    /// The refusal. Nothing was taken.
    pub fn reserve(&self, limit: &Limit, cost: u64, max_wait: Duration, now: Time) -> Result<Reservation, Decision> {
        self.refunds.book(now, || self.decide(limit, Op::Reserve { cost, max_wait }, now))
    }

    /// Gives back what has not been served of a reservation, and says how much that was.
    pub fn cancel(&self, limit: &Limit, reservation: Reservation, now: Time) -> u64 {
        let tokens = self.refunds.claim(limit, &reservation, now);
        let _ = self.decide(limit, Op::Refund(tokens), now);
        tokens
    }

    /// Goes over from one limit to another.
    pub fn change(&self, from: &Limit, to: &Limit, change: Change, now: Time) {
        let [word, _] = &self.words;
        let decide = |limit: &Limit, op| self.decide(limit, op, now);
        change_limit((from, to), change, now, decide, |_, carry| update(word, |word| *word = carry(*word)));
    }
}
