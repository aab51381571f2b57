//! What an algorithm is, and how every operation is answered from that.

pub(crate) mod bucket;
pub(crate) mod calendar;
pub(crate) mod fixed_window;
pub(crate) mod leaky_queue;
pub(crate) mod sliding_log;
pub(crate) mod sliding_window;
pub(crate) mod smooth_bursty;
pub(crate) mod smooth_warming_up;
pub(crate) mod token_bucket;
pub(crate) mod window;

use crate::decision::{Decision, Outcome, Retry};
use crate::pace::is_too_late;
use crate::time::Time;
use std::time::Duration;

/// What can be asked of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// All of these tokens or none.
    Take(u64),
    /// As many of these tokens as there are; refused only where there is not even one.
    TakeUpTo(u64),
    /// These tokens, whether they are there or not: what is missing becomes debt.
    Charge(u64),
    /// These tokens, now or booked ahead, if the wait is no longer than this.
    Reserve {
        /// Tokens wanted.
        cost: u64,
        /// The longest wait that is of use.
        max_wait: Duration,
    },
    /// What [`Op::Take`] would say. Takes nothing.
    Peek(u64),
    /// Puts tokens back, never above the limit. The caller vouches that they were not used.
    Refund(u64),
    /// Takes everything there is. What is booked ahead stays.
    Drain,
    /// Forgets everything, as if nobody had ever asked.
    Reset,
}

/// What to do with what was spent so far when a quota changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Who had 3 tokens left still has 3, or the new limit where that is less.
    KeepTokens,
    /// Who had half of the old limit left has half of the new one.
    Proportional,
    /// Everybody starts afresh.
    Reset,
}

/// One way to limit, as pure functions of its state, the cost and the time.
///
/// `State::default()` is what a client is in of whom nothing is known; it must mean the same as having been
/// idle for long, since idle clients are forgotten.
pub(crate) trait Algorithm {
    type State: Default;

    /// The most that can ever be available at once.
    fn limit(&self) -> u64;

    /// Tokens that could be taken now; negative while in debt.
    fn available(&self, state: &Self::State, now: Time) -> i64;

    /// How long a request of this cost would be held back if it were let in now; `None` if it never could be.
    fn delay(&self, state: &Self::State, cost: u64, now: Time) -> Option<Duration>;

    /// Whether a request of this cost would not be held back at all: the delay is zero.
    fn fits(&self, state: &Self::State, cost: u64, now: Time) -> bool {
        self.delay(state, cost, now) == Some(Duration::ZERO)
    }

    /// How long a request of this cost may be held back: by itself, or as long as its caller would wait.
    fn patience(&self, cost: u64, asked: Option<Duration>) -> Duration;

    /// Takes `cost` tokens, there or not.
    fn spend(&self, state: &mut Self::State, cost: u64, now: Time);

    /// Takes `cost` tokens into debt, as deep as debts go.
    fn charge(&self, state: &mut Self::State, cost: u64, now: Time) {
        self.spend(state, cost, now);
    }

    /// Puts `tokens` back, never above the limit.
    fn refund(&self, state: &mut Self::State, tokens: u64, now: Time);

    /// How long until everything is available again.
    fn reset_after(&self, state: &Self::State, now: Time) -> Duration;

    /// Brings a state into range that no history could have led to, as after a jump of the clock. Such a state
    /// owes too much; what [fits](Self::fits) needs no repair. Says whether it did anything.
    fn repair(&self, _state: &mut Self::State, _now: Time) -> bool {
        false
    }

    /// Remembers that a request of this cost was refused, where that matters, and says whether it does.
    fn refused(&self, _state: &mut Self::State, _cost: u64, _now: Time) -> bool {
        false
    }

    /// How many of the tokens of a booking can still be given back without breaking the bound on bursts.
    fn unserved(&self, state: &Self::State, booking: &Booking, now: Time) -> Unserved;

    /// The state in which so many tokens are missing to full; more than the limit are owed.
    fn lacking(&self, tokens: f64, now: Time) -> Self::State {
        let mut state = Self::State::default();
        // The cast is exact where it matters, and stays within range where it is not.
        self.charge(&mut state, tokens.ceil() as u64, now);
        state
    }

    /// The state in which so many tokens are available; negative ones are owed.
    fn holding(&self, tokens: i64, now: Time) -> Self::State {
        let mut state = Self::State::default();
        let missing = i128::from(self.limit()) - i128::from(tokens);
        self.charge(&mut state, u64::try_from(missing.max(0)).unwrap_or(u64::MAX), now);
        state
    }
}

/// What a reservation holds, as seen when it is cancelled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Booking {
    pub(crate) cost: u64,
    pub(crate) made_at: Time,
    /// What was used of the limit after the booking: its tokens are the last of these.
    pub(crate) used: u64,
    /// When the limit would have been full again after the booking.
    pub(crate) full_at: Time,
    /// Nanoseconds' worth of tokens that others have given back since: everything booked moved ahead by that.
    pub(crate) moved_ahead: u64,
}

/// What can be given back of a booking.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unserved {
    pub(crate) tokens: u64,
    /// By how many nanoseconds the bookings behind it move ahead: not at all if there are none.
    pub(crate) moves: u64,
}

/// A question that every algorithm answers. A state that it leaves as it was need not be written.
pub(crate) trait Ask: Copy {
    type Answer;

    fn ask<A: Algorithm>(self, algorithm: &A, state: &mut A::State, now: Time) -> Self::Answer;

    /// Whether both counters of a sliding window are to be cleared.
    fn is_reset(self) -> bool;

    /// Whether it is answered from what they were before that.
    fn looks_back(self) -> bool {
        false
    }

    /// What is answered about a state that has gone over to another limit: not here.
    fn moved(self) -> Self::Answer;
}

/// [`Op::Take`] where only yes or no matters: most of a decision's cost is describing it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allow(pub(crate) u64);

impl Ask for Allow {
    type Answer = bool;

    #[inline(always)]
    fn ask<A: Algorithm>(self, algorithm: &A, state: &mut A::State, now: Time) -> bool {
        let fits = !is_too_late(now)
            && (algorithm.fits(state, self.0, now)
                || algorithm.repair(state, now) && algorithm.fits(state, self.0, now)
                || matches!(hold_back(algorithm, state, self.0, None, now), Outcome::AllowedAfter(_)));
        if fits {
            algorithm.spend(state, self.0, now);
        } else if !is_too_late(now) {
            algorithm.refused(state, self.0, now);
        }
        fits
    }

    #[inline(always)]
    fn is_reset(self) -> bool {
        false
    }

    #[inline(always)]
    fn moved(self) -> bool {
        false
    }
}

impl Ask for Op {
    type Answer = Decision;

    #[inline]
    fn ask<A: Algorithm>(self, algorithm: &A, state: &mut A::State, now: Time) -> Decision {
        if is_too_late(now) {
            return Decision { limit: algorithm.limit(), ..Decision::nothing(Retry::Never) };
        }
        algorithm.repair(state, now);
        let (outcome, granted) = self.apply(algorithm, state, now);
        describe(algorithm, state, outcome, granted, now)
    }

    fn is_reset(self) -> bool {
        self == Op::Reset
    }

    fn moved(self) -> Decision {
        Decision::nothing(Retry::After(Duration::ZERO))
    }
}

/// Gives back what has not been served of a booking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cancel(pub(crate) Booking);

impl Ask for Cancel {
    type Answer = Unserved;

    fn ask<A: Algorithm>(self, algorithm: &A, state: &mut A::State, now: Time) -> Unserved {
        if is_too_late(now) {
            return Unserved::default();
        }
        algorithm.repair(state, now);
        let unserved = algorithm.unserved(state, &self.0, now);
        algorithm.refund(state, unserved.tokens, now);
        unserved
    }

    fn is_reset(self) -> bool {
        false
    }

    fn moved(self) -> Unserved {
        Unserved::default()
    }
}

/// [`Op::Refund`] that says how many tokens were missing to take it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutBack(pub(crate) u64);

impl Ask for PutBack {
    type Answer = Decision;

    fn ask<A: Algorithm>(self, algorithm: &A, state: &mut A::State, now: Time) -> Decision {
        let before = Op::Peek(0).ask(algorithm, state, now);
        let granted = self.0.min(before.missing());
        Decision { granted, ..Op::Refund(self.0).ask(algorithm, state, now) }
    }

    fn is_reset(self) -> bool {
        false
    }

    fn moved(self) -> Decision {
        Op::Refund(self.0).moved()
    }
}

/// [`Op::Reset`] that says what there was before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakeOut;

impl Ask for TakeOut {
    type Answer = Decision;

    fn ask<A: Algorithm>(self, algorithm: &A, state: &mut A::State, now: Time) -> Decision {
        let before = Op::Peek(0).ask(algorithm, state, now);
        *state = A::State::default();
        before
    }

    fn is_reset(self) -> bool {
        true
    }

    fn looks_back(self) -> bool {
        true
    }

    fn moved(self) -> Decision {
        Op::Reset.moved()
    }
}

/// Makes so many tokens available; negative ones are owed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold(pub(crate) i64);

impl Ask for Hold {
    type Answer = ();

    fn ask<A: Algorithm>(self, algorithm: &A, state: &mut A::State, now: Time) {
        if !is_too_late(now) {
            *state = algorithm.holding(self.0, now);
        }
    }

    fn is_reset(self) -> bool {
        true
    }

    fn moved(self) {}
}

/// Makes so many tokens missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lack(pub(crate) f64);

impl Ask for Lack {
    type Answer = Decision;

    fn ask<A: Algorithm>(self, algorithm: &A, state: &mut A::State, now: Time) -> Decision {
        if !is_too_late(now) {
            *state = algorithm.lacking(self.0, now);
        }
        Op::Peek(0).ask(algorithm, state, now)
    }

    fn is_reset(self) -> bool {
        true
    }

    fn moved(self) -> Decision {
        Op::Reset.moved()
    }
}

/// Makes at least so many tokens missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LackAtLeast(pub(crate) f64);

impl Ask for LackAtLeast {
    type Answer = Decision;

    fn ask<A: Algorithm>(self, algorithm: &A, state: &mut A::State, now: Time) -> Decision {
        let before = Op::Peek(0).ask(algorithm, state, now);
        if is_too_late(now) {
            return before;
        }
        let mut lacking = algorithm.lacking(self.0, now);
        let after = Op::Peek(0).ask(algorithm, &mut lacking, now);
        if (after.missing(), after.reset_after) <= (before.missing(), before.reset_after) {
            return before;
        }
        *state = lacking;
        after
    }

    fn is_reset(self) -> bool {
        false
    }

    fn moved(self) -> Decision {
        Op::Reset.moved()
    }
}

impl Op {
    #[inline]
    fn apply<A: Algorithm>(self, algorithm: &A, state: &mut A::State, now: Time) -> (Outcome, u64) {
        match self {
            Op::Take(cost) => take(algorithm, state, cost, None, now),
            Op::Reserve { cost, max_wait } => take(algorithm, state, cost, Some(max_wait), now),
            Op::Peek(cost) => (admit(algorithm, state, cost, None, now), 0),
            Op::TakeUpTo(most) => take_up_to(algorithm, state, most, now),
            Op::Charge(cost) => {
                algorithm.charge(state, cost, now);
                (Outcome::Allowed, cost)
            }
            Op::Refund(tokens) => {
                algorithm.refund(state, tokens, now);
                (Outcome::Allowed, tokens)
            }
            Op::Drain => {
                let all = algorithm.available(state, now).max(0).unsigned_abs();
                algorithm.spend(state, all, now);
                (Outcome::Allowed, all)
            }
            Op::Reset => {
                *state = A::State::default();
                (Outcome::Allowed, 0)
            }
        }
    }
}

#[inline(always)]
fn take<A: Algorithm>(
    algorithm: &A,
    state: &mut A::State,
    cost: u64,
    asked: Option<Duration>,
    now: Time,
) -> (Outcome, u64) {
    let outcome = admit(algorithm, state, cost, asked, now);
    if let Outcome::Refused(_) = outcome {
        let counted = algorithm.refused(state, cost, now);
        return (if counted { admit(algorithm, state, cost, asked, now) } else { outcome }, 0);
    }
    algorithm.spend(state, cost, now);
    (outcome, cost)
}

#[inline(always)]
fn admit<A: Algorithm>(algorithm: &A, state: &A::State, cost: u64, asked: Option<Duration>, now: Time) -> Outcome {
    if algorithm.fits(state, cost, now) { Outcome::Allowed } else { hold_back(algorithm, state, cost, asked, now) }
}

/// What becomes of a request that does not fit: it waits or is refused.
#[inline(always)]
fn hold_back<A: Algorithm>(algorithm: &A, state: &A::State, cost: u64, asked: Option<Duration>, now: Time) -> Outcome {
    let Some(delay) = algorithm.delay(state, cost, now) else {
        return Outcome::Refused(Retry::Never);
    };
    match algorithm.patience(cost, asked) {
        // The same as below, without its arithmetic.
        Duration::ZERO => Outcome::Refused(Retry::After(delay)),
        patience if delay <= patience => Outcome::AllowedAfter(delay),
        patience => Outcome::Refused(Retry::After(delay - patience)),
    }
}

fn take_up_to<A: Algorithm>(algorithm: &A, state: &mut A::State, most: u64, now: Time) -> (Outcome, u64) {
    let granted = algorithm.available(state, now).max(0).unsigned_abs().min(most);
    take(algorithm, state, granted.max(most.min(1)), None, now)
}

#[inline(always)]
fn describe<A: Algorithm>(algorithm: &A, state: &A::State, outcome: Outcome, granted: u64, now: Time) -> Decision {
    let available = algorithm.available(state, now);
    Decision {
        outcome,
        granted,
        limit: algorithm.limit(),
        remaining: available.max(0).unsigned_abs(),
        debt: available.min(0).unsigned_abs(),
        reset_after: algorithm.reset_after(state, now),
    }
}
