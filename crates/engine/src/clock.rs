//! Where the time comes from. The only place that reads a clock, and the only one that waits.

mod manual;
mod timer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tollgate_limit::Time;

pub use manual::ManualClock;
#[cfg(feature = "async")]
pub(crate) use timer::Timer;

/// A source of time, cheap to clone; clones show the same time.
///
/// Times count from the Unix epoch but never jump: the system's wall clock is read once, when the clock is
/// made, and from then on a monotonic one. After a machine was suspended, limits go on where they were.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, RateLimiter};
///
/// let (clock, hands) = Clock::manual();
/// let limiter = RateLimiter::builder("1 per minute".parse()?).clock(clock).build();
/// assert!(limiter.allow());
/// assert!(!limiter.allow());
/// hands.advance(Duration::from_secs(60));
/// assert!(limiter.allow());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System(Origin),
    #[cfg(feature = "fast-clock")]
    Fast(Counter),
    Cached(Arc<AtomicU64>),
    Manual(ManualClock),
}

/// A counter, how long its ticks are, and what time it was when it stood at zero.
#[cfg(feature = "fast-clock")]
#[derive(Clone, Debug)]
struct Counter {
    counter: quanta::Clock,
    /// Nanoseconds per 2^40 ticks.
    scale: u64,
    zero: u64,
}

#[cfg(feature = "fast-clock")]
impl Counter {
    fn new() -> Counter {
        let counter = quanta::Clock::new();
        let scale = counter.delta_as_nanos(0, 1 << 40);
        let unset = Counter { counter, scale, zero: 0 };
        Counter { zero: Origin::new().nanos.saturating_sub(unset.now()), ..unset }
    }

    #[inline(always)]
    fn now(&self) -> u64 {
        self.zero + ((u128::from(self.counter.raw()) * u128::from(self.scale)) >> 40) as u64
    }
}

/// A monotonic moment and what time it was then.
#[derive(Clone, Copy, Debug)]
struct Origin {
    instant: Instant,
    nanos: u64,
}

impl Origin {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn new() -> Origin {
        // A machine whose clock stands before 1970 counts from there.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Origin { instant: Instant::now(), nanos: nanos(wall) }
    }

    #[inline(always)]
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> u64 {
        self.nanos + nanos(Instant::now().duration_since(self.instant))
    }
}

#[inline]
fn nanos(duration: Duration) -> u64 {
    duration.as_secs() * 1_000_000_000 + u64::from(duration.subsec_nanos())
}

impl Clock {
    /// The operating system's monotonic clock: exact to the nanosecond, about 20 ns per reading.
    pub fn system() -> Clock {
        Clock(Source::System(Origin::new()))
    }

    /// The processor's time-stamp counter, measured against the system's clock when the first one is made
    /// (which takes up to 200 ms): as fine as [`system`](Self::system) at less than half the cost, and up to a
    /// few parts in a million fast or slow. Where there is no such counter, the system's clock.
    #[cfg(feature = "fast-clock")]
    pub fn fast() -> Clock {
        Clock(Source::Fast(Counter::new()))
    }

    /// The time as a thread notes it down once per `interval`: a plain memory read, and up to `interval` (or
    /// what the scheduler makes of it) late. The thread ends with the last clone of the clock.
    pub fn cached(interval: Duration) -> Clock {
        let origin = Origin::new();
        let noted = Arc::new(AtomicU64::new(origin.now()));
        let note = Arc::downgrade(&noted);
        thread::spawn(move || {
            while let Some(noted) = note.upgrade() {
                noted.store(origin.now(), Ordering::Relaxed);
                drop(noted);
                #[expect(clippy::disallowed_methods, reason = "this is the clock")]
                thread::sleep(interval);
            }
        });
        Clock(Source::Cached(noted))
    }

    /// A clock that stands still until its hands are moved, for tests. Waiting on it works, too: who waits is
    /// woken when the time has come.
    pub fn manual() -> (Clock, ManualClock) {
        let hands = ManualClock::default();
        (Clock(Source::Manual(hands.clone())), hands)
    }

    /// What time it is.
    #[inline(always)]
    pub fn now(&self) -> Time {
        // The cheapest one first: it is the only one for which a branch more or less matters.
        if let Source::Cached(noted) = &self.0 {
            return Time::from_nanos(noted.load(Ordering::Relaxed));
        }
        match &self.0 {
            #[cfg(feature = "fast-clock")]
            Source::Fast(counter) => Time::from_nanos(counter.now()),
            Source::System(origin) => Time::from_nanos(origin.now()),
            Source::Manual(hands) => hands.now(),
            Source::Cached(noted) => Time::from_nanos(noted.load(Ordering::Relaxed)),
        }
    }

    /// Blocks the thread until it is `time`.
    pub(crate) fn wait_until(&self, time: Time) {
        if let Source::Manual(hands) = &self.0 {
            return hands.wait_until(time);
        }
        loop {
            match time.since(self.now()) {
                Duration::ZERO => return,
                #[expect(clippy::disallowed_methods, reason = "this is the clock")]
                left => thread::sleep(left),
            }
        }
    }
}

/// [`Clock::fast`] where it is compiled in, and [`Clock::system`] otherwise.
impl Default for Clock {
    fn default() -> Clock {
        #[cfg(feature = "fast-clock")]
        return Clock::fast();
        #[cfg(not(feature = "fast-clock"))]
        Clock::system()
    }
}
