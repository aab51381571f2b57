//! Limits whose states are kept by somebody else: what to compare and to add there, and what follows from that.
//!
//! Whoever keeps a state need not know the algorithms. [`Limit::terms`] says what has to hold for a request to be let
//! in and what is added then, in whole numbers; [`Limit::decide_kept`] makes the decision of what the state was. So both
//! sides cannot drift apart in anything but the comparison, which is what a test has to look at.

use crate::algorithm::bucket::BucketRule;
use crate::algorithm::fixed_window::{FixedWindow, Frame};
use crate::algorithm::leaky_queue::LeakyQueue;
use crate::algorithm::sliding_log::{Entry, Log, SlidingLog};
use crate::algorithm::sliding_window::SlidingWindow;
use crate::algorithm::smooth_bursty::SmoothBursty;
use crate::algorithm::smooth_warming_up::{SmoothWarmingUp, Warmth};
use crate::algorithm::token_bucket::TokenBucket;
use crate::algorithm::{Algorithm, Ask, Op};
use crate::decision::{Decision, Outcome, Retry};
use crate::limit::{Limit, OneWord, Shape, Wider};
use crate::pace::{Pace, SKEW_NANOS};
use crate::time::{Time, nanos};
use std::time::Duration;

/// Numbers up to here can be added to each other in a double without a loss. Who asks for more than that never fits where
/// limits are below it, and neither does who asks for exactly as much.
const EXACT: u64 = 1 << 52;

/// What it takes to let a request in where the state is kept elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Terms {
    /// The state is the moment at which a bucket is full again.
    Bucket(BucketTerms),
    /// The state is the number of a window and what was used of it.
    Window(WindowTerms),
    /// The state is the number of a window, what was used of it and what was used of the one before.
    SlidingWindow(SlidingTerms),
    /// The state is a list of moments and tokens.
    Log(LogTerms),
    /// The state is permits in store, and when the next request may go ahead.
    WarmUp(WarmUpTerms),
}

/// A request fits if `full_at <= clock(now + wait) + room`, where the clock shows units and a `full_at` in the past counts
/// as now. Then `price` is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketTerms {
    /// What moments are counted in.
    pub clock: UnitClock,
    /// Units that the request takes.
    pub price: u64,
    /// Units that may be missing; `None` where the request never fits.
    pub room: Option<u64>,
    /// How long the request may be held back: microseconds where the clock shows those, otherwise nanoseconds.
    pub wait: u64,
    /// Units from empty to full.
    pub fill: u64,
    /// Units per token.
    pub token: u64,
    /// What is further ahead than this was written before the clock jumped. It counts as an empty bucket.
    pub jumped: u64,
}

/// A clock on which every token takes a whole number of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitClock {
    /// It shows microseconds.
    Micros,
    /// It shows `(nanoseconds << shift & (2^63 - 1)) * factor >> 63`.
    Scaled {
        /// Zero, or ten where nanoseconds are too long.
        shift: u32,
        /// At most 2^63.
        factor: u64,
    },
}

/// What was used is less by `limit` in every window that follows. A request fits if it is within the limit, or
/// within that of a later window that begins in no more than `wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowTerms {
    /// When windows begin.
    pub frame: WindowFrame,
    /// Tokens that the request takes.
    pub cost: u64,
    /// Tokens per window.
    pub limit: u64,
    /// Microseconds that the request may be held back; `None` where it never fits.
    pub wait: Option<u64>,
    /// What is more than this was written before the clock jumped. It counts as one limit.
    pub jumped: u64,
}

/// When windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowFrame {
    /// Number n at `n * period + phase` microseconds since the epoch.
    Every {
        /// Microseconds.
        period: u64,
        /// Microseconds.
        phase: i64,
    },
    /// Number n with the month `n * months`, counted from January of the year 0.
    Months {
        /// One or twelve.
        months: i64,
        /// Seconds east of UTC.
        offset: i32,
    },
}

/// A request fits if `current + previous * left / period + cost <= limit`, where the fraction is rounded up and `left` is
/// what is left of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingTerms {
    /// Microseconds from window to window; number n begins at n times that.
    pub period: u64,
    /// Tokens that the request takes.
    pub cost: u64,
    /// Tokens per window.
    pub limit: u64,
}

/// A request fits if no more than `limit - cost` tokens were taken in the last `period`, and the last request came at
/// least `gap` ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTerms {
    /// Microseconds.
    pub period: u64,
    /// Microseconds.
    pub gap: u64,
    /// Tokens that the request takes; none leave no trace.
    pub cost: u64,
    /// Tokens per period.
    pub limit: u64,
    /// More than this is not remembered.
    pub deepest: u64,
    /// Whether requests that were refused are remembered like others.
    pub counts_refusals: bool,
}

/// A request fits if the next one may go ahead in `wait` at the latest. See Guava's `SmoothWarmingUp` for the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarmUpTerms {
    /// Nanoseconds that the request may be held back; `None` where it never fits.
    pub wait: Option<u64>,
    /// Permits that the request takes.
    pub cost: u64,
    /// Nanoseconds per permit when warm.
    pub interval: f64,
    /// How much longer each permit above the threshold makes it.
    pub slope: f64,
    /// From how many permits in store on it is cold.
    pub threshold: f64,
    /// The most permits that can be in store.
    pub most: f64,
    /// Nanoseconds until all are in store.
    pub warm_up: u64,
    /// What is further ahead than so many nanoseconds was written before the clock jumped.
    pub jumped: u64,
}

/// A state that was kept elsewhere, of a limit with the [`Terms`] of the same name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kept {
    /// There is none.
    Nothing,
    /// A bucket that is full again at so many units.
    Bucket(u64),
    /// What was used of the window with this number.
    Window(i64, u64),
    /// What was used of the window with this number, and of the one before.
    SlidingWindow(u64, u64, u64),
    /// Tokens that count, the moment at which the one was taken that has to be forgotten for the request to fit, and
    /// the moment of the last request; both in microseconds.
    Log(u64, u64, u64),
    /// Permits in store, and when the next request may go ahead, in nanoseconds.
    WarmUp(f64, u64),
}

/// What became of a request where its states are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Tokens that it takes.
    pub cost: u64,
    /// How long it may be held back, if not by what the limit says itself.
    pub max_wait: Option<Duration>,
    /// Whether it fits.
    pub fits: bool,
    /// Whether its tokens were taken.
    pub is_taken: bool,
}

impl Limit {
    /// What it takes to let in a request of this cost, which may be held back for `max_wait` or for as long as the
    /// limit itself says. `None` where microseconds or numbers of 52 bits do not suffice to say it.
    pub fn terms(&self, cost: u64, max_wait: Option<Duration>) -> Option<Terms> {
        let wait = self.patience(cost, max_wait);
        match &self.0 {
            Shape::Plain(plain) => Some(Terms::Bucket(token_bucket(plain.bucket(), cost, wait))),
            Shape::Word(OneWord::TokenBucket(bucket)) => Some(Terms::Bucket(token_bucket(bucket, cost, wait))),
            Shape::Word(OneWord::LeakyQueue(queue)) => Some(Terms::Bucket(leaky_queue(queue, cost, wait))),
            Shape::Word(OneWord::SmoothBursty(bursty)) => Some(Terms::Bucket(smooth_bursty(bursty, cost, wait))),
            Shape::Word(OneWord::FixedWindow(window)) => fixed_window(window, cost, wait).map(Terms::Window),
            Shape::Pair(window) => sliding_window(window, cost).map(Terms::SlidingWindow),
            Shape::Wide(Wider::SlidingLog(log)) => sliding_log(log, cost).map(Terms::Log),
            Shape::Wide(Wider::SmoothWarmingUp(limit)) => warm_up(limit, cost, wait).map(Terms::WarmUp),
        }
    }

    /// The decision about a request that was made elsewhere at a time that is `now` there, by what the state was before;
    /// where a refusal was counted, by what it was after.
    pub fn decide_kept(&self, kept: Kept, asked: Asked, now: Time) -> Decision {
        match &self.0 {
            Shape::Plain(plain) => decide(plain, || bucket_word(plain.pace(), kept), asked, now),
            Shape::Word(OneWord::TokenBucket(limit)) => decide(limit, || bucket_word(limit.pace(), kept), asked, now),
            Shape::Word(OneWord::LeakyQueue(limit)) => decide(limit, || bucket_word(limit.pace(), kept), asked, now),
            Shape::Word(OneWord::SmoothBursty(limit)) => decide(limit, || bucket_word(limit.pace(), kept), asked, now),
            Shape::Word(OneWord::FixedWindow(limit)) => decide(limit, || window_word(limit, kept), asked, now),
            Shape::Pair(limit) => decide(limit, || sliding_words(limit, kept), asked, now),
            Shape::Wide(Wider::SlidingLog(limit)) => {
                // It holds nobody back, and a refusal that counts is in the state already.
                let asked = Asked { max_wait: None, ..asked };
                decide(limit, || log(limit, asked.cost, kept), asked, now)
            }
            Shape::Wide(Wider::SmoothWarmingUp(limit)) => decide(limit, || warmth(kept), asked, now),
        }
    }
}

fn decide<A: Algorithm>(limit: &A, state: impl Fn() -> A::State, asked: Asked, now: Time) -> Decision {
    let take = match asked.max_wait {
        None => Op::Take(asked.cost),
        Some(max_wait) => Op::Reserve { cost: asked.cost, max_wait },
    };
    let looked = Op::Peek(asked.cost).ask(limit, &mut state(), now);
    let taken = take.ask(limit, &mut state(), now);
    let said = if asked.max_wait.is_none() { looked.outcome } else { taken.outcome };
    // Whoever keeps the state has the last word.
    let outcome = match (asked.fits, said) {
        (true, Outcome::Refused(_)) => Outcome::Allowed,
        (false, Outcome::Allowed | Outcome::AllowedAfter(_)) => Outcome::Refused(Retry::After(Duration::ZERO)),
        _ => said,
    };
    Decision { outcome, ..if asked.is_taken { taken } else { looked } }
}

fn bucket(pace: &Pace, price: u64, room: Option<u64>, wait: Duration) -> BucketTerms {
    let Pace { fill, jumped, token, .. } = *pace;
    let wait = nanos(wait);
    if is_in_micros(pace) {
        // Moments are whole microseconds, and so is what may be missing.
        let [price, wait, fill, token, jumped] = [price, wait, fill, token, jumped].map(|nanos| nanos / 1_000);
        let room = room.map(|room| room / 1_000);
        return BucketTerms { clock: UnitClock::Micros, price, room, wait, fill, token, jumped };
    }
    let (shift, factor) = pace.scale();
    BucketTerms { clock: UnitClock::Scaled { shift, factor }, price, room, wait, fill, token, jumped }
}

/// Whether every token takes whole microseconds.
fn is_in_micros(pace: &Pace) -> bool {
    pace.is_in_nanos() && pace.token.is_multiple_of(1_000)
}

fn token_bucket(limit: &TokenBucket, cost: u64, wait: Duration) -> BucketTerms {
    let pace = limit.quota.pace();
    let price = cost.saturating_mul(pace.token);
    bucket(pace, price, pace.fill.checked_sub(price), wait)
}

/// Who can wait for less long than a queue takes that has room for the request needs one that is shorter.
fn leaky_queue(limit: &LeakyQueue, cost: u64, wait: Duration) -> BucketTerms {
    let terms = token_bucket(&TokenBucket { quota: limit.quota }, cost, Duration::ZERO);
    match terms.room {
        Some(_) if wait < BucketRule::patience(limit, cost, None) => {
            bucket(limit.quota.pace(), cost.saturating_mul(limit.quota.pace().token), Some(0), wait)
        }
        _ => terms,
    }
}

fn smooth_bursty(limit: &SmoothBursty, cost: u64, wait: Duration) -> BucketTerms {
    let pace = limit.quota.pace();
    let room = (cost <= limit.half() / pace.token).then_some(pace.fill);
    bucket(pace, cost.saturating_mul(pace.token), room, wait)
}

fn fixed_window(window: &FixedWindow, cost: u64, wait: Duration) -> Option<WindowTerms> {
    let frame = match window.frame {
        Frame::Every(period) => WindowFrame::Every { period: micros(period)?, phase: 0 },
        Frame::Calendar(calendar) => match calendar.frame() {
            Ok((period, phase)) => WindowFrame::Every { period: micros(period)?, phase: phase / 1_000 },
            Err(months) => WindowFrame::Months { months, offset: calendar.offset() },
        },
    };
    let wait = nanos(wait) / 1_000;
    let windows = match frame {
        WindowFrame::Every { period, .. } => wait / period + 2,
        WindowFrame::Months { .. } => 2,
    };
    let limit = window.limit;
    let fits = limit.checked_mul(windows)? <= EXACT;
    let counter = window.current(Time::ZERO);
    let jumped = counter.ceiling().saturating_add(counter.skew()).min(EXACT);
    let wait = (cost <= limit).then_some(wait);
    fits.then_some(WindowTerms { frame, cost: cost.min(EXACT), limit, wait, jumped })
}

fn sliding_window(window: &SlidingWindow, cost: u64) -> Option<SlidingTerms> {
    let SlidingWindow { limit, period } = *window;
    (limit < EXACT).then_some(SlidingTerms { period: micros(period)?, cost: cost.min(EXACT), limit })
}

fn sliding_log(log: &SlidingLog, cost: u64) -> Option<LogTerms> {
    // Moments are whole microseconds, and so the next whole one after the period is the same.
    let (period, gap) = (log.period.div_ceil(1_000), log.gap.div_ceil(1_000));
    let deepest = log.deepest();
    let (cost, counts_refusals) = (cost.min(EXACT), log.counts_refusals());
    let fits = deepest <= EXACT && gap <= EXACT;
    fits.then_some(LogTerms { period, gap, cost, limit: log.limit, deepest, counts_refusals })
}

fn warm_up(limit: &SmoothWarmingUp, cost: u64, wait: Duration) -> Option<WarmUpTerms> {
    let fits = limit.delay(&Warmth::default(), cost, Time::ZERO).is_some();
    let SmoothWarmingUp { interval, slope, threshold, most, warm_up, .. } = *limit;
    let jumped = limit.furthest().saturating_add(SKEW_NANOS);
    let wait = fits.then_some(nanos(wait));
    let cost = if fits { cost } else { cost.min(EXACT) };
    (cost <= EXACT).then_some(WarmUpTerms { wait, cost, interval, slope, threshold, most, warm_up, jumped })
}

/// Nanoseconds that are whole microseconds.
fn micros(nanos: u64) -> Option<u64> {
    nanos.is_multiple_of(1_000).then_some(nanos / 1_000)
}

fn bucket_word(pace: Pace, kept: Kept) -> u64 {
    match kept {
        Kept::Bucket(full_at) if is_in_micros(&pace) => full_at.saturating_mul(1_000),
        Kept::Bucket(full_at) => pace.ticks().word(pace.store(full_at)),
        _ => 0,
    }
}

fn window_word(limit: &FixedWindow, kept: Kept) -> u64 {
    let Kept::Window(number, used) = kept else { return 0 };
    let every = |period: u64, phase: i64| {
        let start = i128::from(number) * i128::from(period) + i128::from(phase);
        Time::from_nanos(u64::try_from(start).unwrap_or(0))
    };
    let start = match limit.frame {
        Frame::Every(period) => every(period, 0),
        Frame::Calendar(calendar) => match calendar.frame() {
            Ok((period, phase)) => every(period, phase),
            Err(months) => calendar.start_of_month(number.saturating_mul(months)),
        },
    };
    limit.word(used, start)
}

fn sliding_words(limit: &SlidingWindow, kept: Kept) -> [u64; 2] {
    let Kept::SlidingWindow(number, current, previous) = kept else { return [0; 2] };
    let start = Time::from_nanos(number.saturating_mul(limit.period));
    let words = [limit.counter(0, start).word(current), limit.counter(1, start).word(previous)];
    let [current, previous] = words;
    if limit.turn(start) == 0 { words } else { [previous, current] }
}

/// A log that answers a request of this cost as the one would that it is the summary of.
fn log(limit: &SlidingLog, cost: u64, kept: Kept) -> Log {
    let Kept::Log(used, frees_at, last_at) = kept else { return Log::default() };
    // More than that nobody remembers who keeps it right.
    let used = used.min(limit.deepest());
    let after = limit.limit.saturating_sub(cost).min(used);
    let (frees_at, last_at) = (frees_at.saturating_mul(1_000), last_at.saturating_mul(1_000));
    if frees_at == 0 || frees_at == last_at {
        return Log::of([Entry { at: last_at, tokens: used }]);
    }
    Log::of([Entry { at: frees_at, tokens: used - after }, Entry { at: last_at, tokens: after }])
}

fn warmth(kept: Kept) -> Warmth {
    match kept {
        Kept::WarmUp(stored, next_free) => Warmth { stored, next_free },
        _ => Warmth::default(),
    }
}
