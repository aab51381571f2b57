use crate::algorithm::bucket;
use crate::algorithm::calendar::Calendar;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::leaky_queue::LeakyQueue;
use crate::algorithm::sliding_log::{Blocked, Log, SlidingLog};
use crate::algorithm::sliding_window::SlidingWindow;
use crate::algorithm::smooth_bursty::SmoothBursty;
use crate::algorithm::smooth_warming_up::{SmoothWarmingUp, Warmth};
use crate::algorithm::token_bucket::{PlainBucket, TokenBucket};
use crate::algorithm::{Algorithm, Ask, Change};
use crate::decision::Decision;
use crate::quota::{Quota, QuotaError};
use crate::time::Time;
use std::time::Duration;

/// A limit: one of the algorithms with its numbers. All of them answer the same questions.
///
/// A limit holds no state. [`Cell`](crate::Cell) keeps the state of one client, [`Table`](crate::Table) that
/// of millions; both are told the limit with every question.
///
/// | limit | memory per client | never more than, in any interval `d` |
/// |---|---|---|
/// | [`token_bucket`](Limit::token_bucket) | a word | `burst + rate × d` |
/// | [`leaky_queue`](Limit::leaky_queue) | a word | `1 + rate × d` leave the queue |
/// | [`fixed_window`](Limit::fixed_window), [`calendar_window`](Limit::calendar_window) | a word | `2 × count` within a period |
/// | [`cycles`](Limit::cycles) | a word | `2 × count` within a period |
/// | [`sliding_window`](Limit::sliding_window) | two words | `count + rate × d` |
/// | [`sliding_log`](Limit::sliding_log), [`rolling_log`](Limit::rolling_log) | 16 bytes a token | `count` within a period |
/// | [`smooth_bursty`](Limit::smooth_bursty) | a word | `burst + largest request + rate × d` |
/// | [`smooth_warming_up`](Limit::smooth_warming_up) | two words | `largest request + rate × d` |
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit(pub(crate) Shape);

/// The algorithms, by the shape of their state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// A token bucket of the commonest kind.
    Plain(PlainBucket),
    Word(OneWord),
    Pair(SlidingWindow),
    Wide(Wider),
}

/// Algorithms whose state is one word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OneWord {
    TokenBucket(TokenBucket),
    LeakyQueue(LeakyQueue),
    SmoothBursty(SmoothBursty),
    FixedWindow(FixedWindow),
}

/// Algorithms whose state does not fit into words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wider {
    SlidingLog(SlidingLog),
    SmoothWarmingUp(SmoothWarmingUp),
}

/// The state of one of the wider algorithms.
#[derive(Debug)]
pub(crate) enum WideState {
    Log(Log),
    Warmth(Warmth),
}

/// Runs the same code on whichever algorithm it is.
macro_rules! on_each {
    ($limit:expr, $algorithm:ident => $code:expr) => {
        match $limit {
            Shape::Plain($algorithm) => $code,
            Shape::Word(OneWord::TokenBucket($algorithm)) => $code,
            Shape::Word(OneWord::LeakyQueue($algorithm)) => $code,
            Shape::Word(OneWord::SmoothBursty($algorithm)) => $code,
            Shape::Word(OneWord::FixedWindow($algorithm)) => $code,
            Shape::Pair($algorithm) => $code,
            Shape::Wide(Wider::SlidingLog($algorithm)) => $code,
            Shape::Wide(Wider::SmoothWarmingUp($algorithm)) => $code,
        }
    };
}

impl Limit {
    /// Tokens drip in at the quota's rate, up to its burst; a request passes when enough are there. The
    /// default choice: smallest, fastest and exact. GCRA and the leaky bucket as a meter are this, too.
    pub const fn token_bucket(quota: Quota) -> Limit {
        match PlainBucket::new(quota) {
            Some(plain) => Limit(Shape::Plain(plain)),
            None => Limit(Shape::Word(OneWord::TokenBucket(TokenBucket { quota }))),
        }
    }

    /// Requests leave at the quota's even pace. Up to `burst` of them are inside; each is told how long to wait.
    pub const fn leaky_queue(quota: Quota) -> Limit {
        Limit(Shape::Word(OneWord::LeakyQueue(LeakyQueue { quota })))
    }

    /// `count` per window of `period`, aligned to multiples of the period. The burst plays no part.
    pub const fn fixed_window(quota: Quota) -> Limit {
        Limit(Shape::Word(OneWord::FixedWindow(FixedWindow::new(quota))))
    }

    /// `limit` per minute, hour, day, week, month or year of the calendar.
    ///
    /// # Errors
    /// A limit of zero, or of more than one token per nanosecond.
    pub const fn calendar_window(limit: u64, calendar: Calendar) -> Result<Limit, QuotaError> {
        match FixedWindow::calendar(limit, calendar) {
            Ok(window) => Ok(Limit(Shape::Word(OneWord::FixedWindow(window)))),
            Err(error) => Err(error),
        }
    }

    /// Resilience4j's limiter: `count` permits every `period`; callers wait up to `timeout` for later periods.
    pub const fn cycles(quota: Quota, timeout: Duration) -> Limit {
        Limit(Shape::Word(OneWord::FixedWindow(FixedWindow::cycles(quota, timeout))))
    }

    /// `count` per sliding window of `period`, estimated from two counters. The burst plays no part.
    pub const fn sliding_window(quota: Quota) -> Limit {
        Limit(Shape::Pair(SlidingWindow::new(quota)))
    }

    /// Never more than `count` in any `period`: exact, for up to 16 bytes per token. The burst plays no part.
    pub const fn sliding_log(quota: Quota) -> Limit {
        Limit(Shape::Wide(Wider::SlidingLog(SlidingLog::new(quota))))
    }

    /// The sliding log with at least `gap` between two requests, and a choice whether refused ones count too.
    pub const fn rolling_log(quota: Quota, gap: Duration, blocked: Blocked) -> Limit {
        Limit(Shape::Wide(Wider::SlidingLog(SlidingLog::rolling(quota, gap, blocked))))
    }

    /// Guava's `RateLimiter.create(rate)`: each request pays for the one before, and waits up to `timeout` for
    /// that (`Duration::MAX`: as long as it takes). Up to `burst` permits are stored; Guava stores a second's.
    pub const fn smooth_bursty(quota: Quota, timeout: Duration) -> Limit {
        Limit(Shape::Word(OneWord::SmoothBursty(SmoothBursty { quota, timeout })))
    }

    /// Guava's `RateLimiter.create(rate, warmUpPeriod)`: after a pause the rate comes back slowly, over
    /// `warm_up`. The burst plays no part.
    ///
    /// # Errors
    /// A warm-up of no time at all.
    pub fn smooth_warming_up(quota: Quota, warm_up: Duration, timeout: Duration) -> Result<Limit, QuotaError> {
        let limit = SmoothWarmingUp::new(quota, warm_up, timeout)?;
        Ok(Limit(Shape::Wide(Wider::SmoothWarmingUp(limit))))
    }

    /// The most that can ever be available at once.
    pub fn most(&self) -> u64 {
        on_each!(&self.0, algorithm => algorithm.limit())
    }

    /// The longest that a request of this cost can be held back: as the limit itself has it, or by a caller who would
    /// wait for so long.
    #[inline]
    pub fn patience(&self, cost: u64, asked: Option<Duration>) -> Duration {
        match (&self.0, asked) {
            // By far the commonest limit has none of its own.
            (Shape::Plain(_), None) => Duration::ZERO,
            _ => self.patience_of_any(cost, asked),
        }
    }

    fn patience_of_any(&self, cost: u64, asked: Option<Duration>) -> Duration {
        on_each!(&self.0, algorithm => algorithm.patience(cost, asked))
    }

    /// Whether requests that were refused count, too.
    pub fn counts_refusals(&self) -> bool {
        matches!(&self.0, Shape::Wide(Wider::SlidingLog(log)) if log.counts_refusals())
    }

    /// The algorithm, where its state is one word.
    fn one_word(&self) -> Option<OneWord> {
        match &self.0 {
            Shape::Plain(plain) => Some(OneWord::TokenBucket(*plain.bucket())),
            Shape::Word(limit) => Some(*limit),
            Shape::Pair(_) | Shape::Wide(_) => None,
        }
    }

    /// The tokens that this limit makes available after another one has decided `before`.
    pub(crate) fn carried_over(&self, before: &Decision, change: Change) -> i64 {
        let most = i128::from(self.most());
        let available = i128::from(before.remaining) - i128::from(before.debt);
        let tokens = match change {
            Change::Reset => most,
            Change::KeepTokens => available.min(most),
            Change::Proportional => {
                let (used, limit) = (i128::from(before.limit) - available, i128::from(before.limit.max(1)));
                most - (used * most + limit - 1) / limit
            }
        };
        i64::try_from(tokens).unwrap_or(if tokens < 0 { i64::MIN } else { i64::MAX })
    }
}

impl OneWord {
    #[inline(always)]
    pub(crate) fn ask<A: Ask>(&self, word: &mut u64, ask: A, now: Time) -> A::Answer {
        match self {
            OneWord::TokenBucket(limit) => ask.ask(limit, word, now),
            OneWord::LeakyQueue(limit) => ask.ask(limit, word, now),
            OneWord::SmoothBursty(limit) => ask.ask(limit, word, now),
            OneWord::FixedWindow(limit) => ask.ask(limit, word, now),
        }
    }

    /// Whether words count 1024ths of nanoseconds.
    #[inline]
    pub(crate) fn is_fine(&self) -> bool {
        match self {
            OneWord::FixedWindow(limit) => limit.ticks().is_fine(),
            _ => self.quota().is_some_and(|quota| quota.pace().ticks().is_fine()),
        }
    }

    /// The word that stands for `from`'s under this limit, where both keep a bucket.
    pub(crate) fn carry(&self, from: &OneWord, word: u64, change: Change, now: Time) -> Option<u64> {
        Some(bucket::carry(from.quota()?, self.quota()?, word, change, now))
    }

    fn has_bucket(&self) -> bool {
        self.quota().is_some()
    }

    fn quota(&self) -> Option<&Quota> {
        match self {
            OneWord::TokenBucket(TokenBucket { quota })
            | OneWord::LeakyQueue(LeakyQueue { quota })
            | OneWord::SmoothBursty(SmoothBursty { quota, .. }) => Some(quota),
            OneWord::FixedWindow(_) => None,
        }
    }
}

impl Wider {
    /// Asks about a state, which is replaced by a fresh one if it is another algorithm's.
    pub(crate) fn ask<A: Ask>(&self, state: &mut WideState, ask: A, now: Time) -> A::Answer {
        match (self, state) {
            (Wider::SlidingLog(limit), WideState::Log(log)) => ask.ask(limit, log, now),
            (Wider::SmoothWarmingUp(limit), WideState::Warmth(warmth)) => ask.ask(limit, warmth, now),
            (_, other) => {
                *other = self.fresh();
                self.ask(other, ask, now)
            }
        }
    }

    /// When a state will say no more than a fresh one.
    pub(crate) fn expires(&self, state: &WideState, now: Time) -> Time {
        now + match (self, state) {
            (Wider::SlidingLog(limit), WideState::Log(log)) => limit.reset_after(log, now),
            (Wider::SmoothWarmingUp(limit), WideState::Warmth(warmth)) => limit.reset_after(warmth, now),
            _ => Duration::ZERO,
        }
    }

    pub(crate) fn fresh(&self) -> WideState {
        match self {
            Wider::SlidingLog(_) => WideState::Log(Log::default()),
            Wider::SmoothWarmingUp(_) => WideState::Warmth(Warmth::default()),
        }
    }
}

/// How to go over from one limit to another.
pub(crate) enum Transition<'a> {
    /// By rewriting the one word that is the state of both.
    Rewrite { fine: bool, carry: Box<dyn Fn(u64) -> u64 + 'a> },
    /// By asking the old one how much is left, forgetting that, and giving the new one as much.
    Replace,
}

impl<'a> Transition<'a> {
    pub(crate) fn new(from: &'a Limit, to: &'a Limit, change: Change, now: Time) -> Transition<'a> {
        match (from.one_word(), to.one_word()) {
            (Some(old), Some(new)) if old.is_fine() == new.is_fine() && old.has_bucket() && new.has_bucket() => {
                let carry = move |word| new.carry(&old, word, change, now).unwrap_or(word);
                Transition::Rewrite { fine: new.is_fine(), carry: Box::new(carry) }
            }
            _ => Transition::Replace,
        }
    }
}
