//! How many requests wait for a server. All times are since some moment in the past, which the caller chooses.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How long nothing must have been the matter with a server before an outage counts as over, or twice the budget if that is more. It
/// may come and go meanwhile.
const PROBATION: Duration = Duration::from_millis(300);
const LONGEST_PROBATION: Duration = Duration::from_secs(5);

/// Hiccups are forgotten after so many times that long without any.
const UNFORGOTTEN: u32 = 10;

/// And so many answers make up for one who waited in vain.
const ANSWERS_FOR_ONE: usize = 20;

/// Three in five of those who may wait in vain may do so at the same time. The others are for when it happens again.
const AT_ONCE: (usize, usize) = (3, 5);

/// A server is silent when it has said nothing for a third of the budget.
const SILENCE: u32 = 3;

/// When something was that has not been yet.
const NEVER: u64 = u64::MAX;

/// What may be the matter with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is held up at times, and answers in between. Whoever waited in vain is forgotten when enough others are answered.
    Hiccups,
    /// It hangs up, is silent for long, or has hiccups again as soon as it was tried. However that comes and goes, it is one fault
    /// until the server was well for a while.
    Outage,
}

/// Who waits for a server, and who has in vain: no more than `most` for one fault, except that in the first moment nobody can know,
/// and whoever comes in it waits.
#[derive(Debug)]
pub(crate) struct Patience {
    most: usize,
    at_once: usize,
    budget: Duration,
    probation: Duration,
    waiting: AtomicUsize,
    /// How many have waited in vain and are not forgotten.
    in_vain: AtomicUsize,
    /// How many were answered while any are not.
    answered: AtomicUsize,
    is_outage: AtomicBool,
    /// When it last said something, or was asked after it had not been for a while; in microseconds, as all of these.
    silent_since: AtomicU64,
    /// When anything was the matter with it last.
    troubled_at: AtomicU64,
    /// When it was last found to be well after too many had waited in vain.
    tried_at: AtomicU64,
}

impl Patience {
    pub(crate) fn new(most: usize, budget: Duration) -> Patience {
        // Without anybody who waits nobody would ever know.
        let most = most.max(1);
        Patience {
            most,
            at_once: most.saturating_mul(AT_ONCE.0).div_ceil(AT_ONCE.1),
            budget,
            probation: (budget * 2).clamp(PROBATION, LONGEST_PROBATION),
            waiting: AtomicUsize::new(0),
            in_vain: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            is_outage: AtomicBool::new(false),
            silent_since: AtomicU64::new(0),
            troubled_at: AtomicU64::new(0),
            tried_at: AtomicU64::new(NEVER),
        }
    }

    /// Lets one more wait, for as long as what is returned lives; `None` if too many do.
    pub(crate) fn admit(&self, now: Duration) -> Option<Waiting<'_>> {
        // In this order, and in the other one where somebody stops waiting: nobody is overlooked between the two.
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        let waiting = Waiting(&self.waiting);
        self.forget(now);
        let in_vain = self.in_vain.load(Ordering::Acquire);
        if before == 0 && in_vain == 0 {
            set(&self.silent_since, now);
        }
        let left = self.most.saturating_sub(in_vain);
        let is_silent = since(&self.silent_since, now) > self.budget / SILENCE;
        (left > 0 && (before < left.min(self.at_once) || !is_silent)).then_some(waiting)
    }

    /// Somebody who asked at that time had no more time to wait. If it was for long, and the server has said nothing meanwhile, that was
    /// in vain: requests that have less time than the budget would otherwise wait for a silent server for ever.
    pub(crate) fn is_in_vain(&self, asked_at: Duration, now: Duration) -> bool {
        let waited = now.saturating_sub(asked_at);
        waited > self.budget / SILENCE && since(&self.silent_since, now) >= waited
    }

    /// Somebody was answered.
    pub(crate) fn answered(&self, now: Duration) {
        self.said_something(now);
        if self.in_vain.load(Ordering::Relaxed) > 0 && !self.is_outage.load(Ordering::Relaxed) {
            let answered = self.answered.fetch_add(1, Ordering::Relaxed) + 1;
            if answered.is_multiple_of(ANSWERS_FOR_ONE) {
                let less = |in_vain: usize| in_vain.checked_sub(1);
                let _ = self.in_vain.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
            }
        }
    }

    /// Somebody has waited in vain.
    pub(crate) fn waited_in_vain(&self, now: Duration) {
        let in_vain = self.in_vain.fetch_add(1, Ordering::AcqRel) + 1;
        let was_just_tried =
            self.tried_at.load(Ordering::Relaxed) != NEVER && since(&self.tried_at, now) < self.probation;
        if in_vain >= self.most && was_just_tried {
            self.is_outage.store(true, Ordering::Relaxed);
        }
        // One among many who are answered does not prolong an outage.
        if !self.is_outage.load(Ordering::Relaxed) || since(&self.silent_since, now) > self.budget {
            self.was_troubled(now);
        }
    }

    /// The server has hung up, or says nothing for so long that this is no hiccup.
    pub(crate) fn was_gone(&self, now: Duration) {
        self.is_outage.store(true, Ordering::Relaxed);
        self.was_troubled(now);
    }

    /// The server is not well, or cannot be asked. If there is an outage, it goes on.
    pub(crate) fn was_troubled(&self, now: Duration) {
        set(&self.troubled_at, now);
    }

    /// There is a connection where there was none. If nobody has waited in vain meanwhile, as when it is made for the first time,
    /// nothing was the matter.
    pub(crate) fn was_found(&self, now: Duration) {
        self.was_troubled(now);
        if self.in_vain.load(Ordering::Relaxed) == 0 {
            self.is_over();
        }
    }

    /// By what so many have waited in vain that nobody asks until the server is known to be well, if they have: as many as may; in
    /// an outage so many that if it came back there would be more.
    pub(crate) fn exhausted_by(&self) -> Option<Fault> {
        let left = self.most.saturating_sub(self.in_vain.load(Ordering::Relaxed));
        match self.is_outage.load(Ordering::Relaxed) {
            true => (left < self.at_once).then_some(Fault::Outage),
            false => (left == 0).then_some(Fault::Hiccups),
        }
    }

    /// The server has been tried and is well.
    pub(crate) fn was_tried(&self, now: Duration) {
        set(&self.tried_at, now);
        self.is_over();
    }

    /// Forgets a fault if nothing was the matter for a while.
    pub(crate) fn forget(&self, now: Duration) {
        let is_outage = self.is_outage.load(Ordering::Relaxed);
        if !is_outage && self.in_vain.load(Ordering::Relaxed) == 0 {
            return;
        }
        let calm = if is_outage { self.probation } else { self.probation * UNFORGOTTEN };
        if since(&self.troubled_at, now) > calm {
            self.is_over();
        }
    }

    fn is_over(&self) {
        self.in_vain.store(0, Ordering::Release);
        self.is_outage.store(false, Ordering::Release);
    }

    /// The server has said something, be it to nobody.
    pub(crate) fn said_something(&self, now: Duration) {
        set(&self.silent_since, now);
    }
}

/// Somebody who waits, also if it gives up.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn since(time: &AtomicU64, now: Duration) -> Duration {
    now.saturating_sub(Duration::from_micros(time.load(Ordering::Relaxed)))
}

fn set(time: &AtomicU64, now: Duration) {
    time.store(u64::try_from(now.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
