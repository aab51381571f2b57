//! What hosts need that limit together: how what they spent adds up where nobody knows the algorithms, and what each of
//! them may let through while it hears nothing of the others.

use crate::algorithm::fixed_window::FixedWindow;
use crate::limit::{Limit, OneWord, Shape, Wider};
use crate::quota::Quota;
use crate::time::Time;
use std::time::Duration;

/// How what was spent of a limit comes back: all that somebody has to know who adds it up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Recovery {
    /// At so many tokens a second.
    Steady(f64),
    /// A whole limit at a time, when the next window begins.
    Window {
        /// When the present one has begun.
        start: Time,
        /// How long it is.
        length: Duration,
    },
}

impl Limit {
    /// How what was spent of it comes back. `None` where what hosts have spent does not add up, since it also matters
    /// when they did: of sliding windows and logs, warm-ups and queues.
    ///
    /// ```
    /// use tollgate_limit::{Limit, Recovery, Time};
    ///
    /// let limit = Limit::token_bucket("90 per minute".parse()?);
    /// assert_eq!(limit.recovery(Time::ZERO), Some(Recovery::Steady(1.5)));
    /// assert_eq!(Limit::sliding_log("90 per minute".parse()?).recovery(Time::ZERO), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recovery(&self, now: Time) -> Option<Recovery> {
        let steady = |quota: &Quota| Recovery::Steady(quota.count() as f64 / quota.period().as_secs_f64());
        match &self.0 {
            Shape::Plain(plain) => Some(steady(&plain.bucket().quota)),
            Shape::Word(OneWord::TokenBucket(bucket)) => Some(steady(&bucket.quota)),
            Shape::Word(OneWord::FixedWindow(window)) => Some(next_window(window, now)),
            Shape::Word(OneWord::LeakyQueue(_) | OneWord::SmoothBursty(_)) | Shape::Pair(_) | Shape::Wide(_) => None,
        }
    }

    /// Whether what hosts have spent of it [adds up](Self::recovery).
    pub fn adds_up(&self) -> bool {
        match &self.0 {
            Shape::Plain(_) | Shape::Word(OneWord::TokenBucket(_) | OneWord::FixedWindow(_)) => true,
            Shape::Word(OneWord::LeakyQueue(_) | OneWord::SmoothBursty(_)) | Shape::Pair(_) | Shape::Wide(_) => false,
        }
    }

    /// What one of so many hosts may let through by itself, such that all of them keep to the same rate. Even the
    /// smallest share is a token at a time, only less often. It is a bucket, whatever the limit is, unless there is only
    /// one host.
    ///
    /// ```
    /// use tollgate_limit::Limit;
    ///
    /// let limit = Limit::fixed_window("100 per minute".parse()?);
    /// assert_eq!(limit.share(4), Limit::token_bucket("100 per 4 minutes burst 25".parse()?));
    /// assert_eq!(limit.share(200), Limit::token_bucket("100 per 200 minutes burst 1".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn share(&self, hosts: u64) -> Limit {
        if hosts <= 1 {
            return *self;
        }
        let (count, period) = self.rate();
        let burst = (self.most() / hosts).max(1);
        let longer = u32::try_from(hosts).ok().and_then(|hosts| period.checked_mul(hosts));
        let quota = longer.and_then(|period| Quota::new(count, period).ok()).or_else(|| Quota::new(1, period).ok());
        match quota.and_then(|quota| quota.with_burst(burst).ok()) {
            Some(quota) => Limit::token_bucket(quota),
            None => *self,
        }
    }

    /// So many tokens per period in the long run.
    fn rate(&self) -> (u64, Duration) {
        let of = |quota: &Quota| (quota.count(), quota.period());
        match &self.0 {
            Shape::Plain(plain) => of(&plain.bucket().quota),
            Shape::Word(OneWord::TokenBucket(bucket)) => of(&bucket.quota),
            Shape::Word(OneWord::LeakyQueue(queue)) => of(&queue.quota),
            Shape::Word(OneWord::SmoothBursty(bursty)) => of(&bursty.quota),
            Shape::Word(OneWord::FixedWindow(window)) => (window.limit, window.longest()),
            Shape::Pair(window) => (window.limit, Duration::from_nanos(window.period)),
            Shape::Wide(Wider::SlidingLog(log)) => (log.limit, Duration::from_nanos(log.period)),
            Shape::Wide(Wider::SmoothWarmingUp(limit)) => (1, Duration::from_nanos(limit.interval.ceil() as u64)),
        }
    }
}

fn next_window(window: &FixedWindow, now: Time) -> Recovery {
    let span = window.span(now);
    Recovery::Window { start: Time::from_nanos(span.start), length: Duration::from_nanos(span.length) }
}
