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
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn patience() -> Patience {
        Patience::new(20, 3 * MS)
    }

    /// So many come in every millisecond; as many as may wait.
    fn come(patience: &Patience, from: Duration, millis: u32) -> Vec<Waiting<'_>> {
        (0..millis).flat_map(|step| (0..5).filter_map(move |_| patience.admit(from + step * MS))).collect()
    }

    fn wait_in_vain(patience: &Patience, waiting: Vec<Waiting<'_>>, now: Duration) -> usize {
        let count = waiting.len();
        for one in waiting {
            patience.waited_in_vain(now);
            drop(one);
        }
        count
    }

    #[test]
    fn a_server_that_answers_is_asked_by_everybody() {
        let patience = patience();
        for step in 0..100 {
            let now = step * MS;
            let waiting: Vec<_> = (0..1_000).filter_map(|_| patience.admit(now)).collect();
            assert_eq!(waiting.len(), 1_000);
            waiting.iter().for_each(|_| patience.answered(now + MS / 2));
        }
    }

    #[test]
    fn n4_no_more_than_a_dozen_wait_at_once_for_a_server_that_is_silent() {
        let patience = patience();
        let waiting = come(&patience, 1_000 * MS, 100);
        assert_eq!(waiting.len(), 12);
    }

    #[test]
    fn n4_who_gives_up_has_waited_in_vain_if_the_server_was_silent_for_long() {
        let patience = patience();
        let _waiting = patience.admit(10 * MS);
        assert!(!patience.is_in_vain(10 * MS, 11 * MS), "not for long");
        assert!(patience.is_in_vain(10 * MS, 12 * MS));
        patience.answered(11 * MS);
        assert!(!patience.is_in_vain(10 * MS, 12 * MS), "somebody else was answered");
        assert!(patience.is_in_vain(11 * MS, 13 * MS));
    }

    #[test]
    fn n4_no_more_than_twenty_wait_in_vain_however_often_an_outage_comes_back() {
        // All of those who may at once, or only a few each time.
        for arrive in [5, 2] {
            let (patience, mut in_vain) = (patience(), 0);
            for flap in 0..20 {
                let start = flap * 400 * MS;
                let ask = |from, millis| match patience.exhausted_by() {
                    None => (0..millis * arrive).filter_map(|_| patience.admit(from)).collect(),
                    Some(_) => Vec::new(),
                };
                in_vain += wait_in_vain(&patience, ask(start, 1), start + 3 * MS);
                patience.was_gone(start + 100 * MS);
                patience.was_troubled(start + 200 * MS);
                for step in 200..400 {
                    ask(start + step * MS, 1).iter().for_each(|_| patience.answered(start + step * MS));
                }
            }
            assert!((9..=20).contains(&in_vain), "{in_vain}");
            assert_eq!(patience.exhausted_by(), Some(Fault::Outage));
            patience.was_tried(10_000 * MS);
            assert_eq!(come(&patience, 10_001 * MS, 100).len(), 12);
        }
    }

    #[test]
    fn an_outage_is_over_when_nothing_was_the_matter_for_a_while() {
        let patience = patience();
        patience.waited_in_vain(MS);
        patience.was_gone(100 * MS);
        patience.was_troubled(500 * MS);
        patience.forget(500 * MS + PROBATION);
        assert!(patience.is_outage.load(Ordering::Relaxed));
        patience.forget(501 * MS + PROBATION);
        assert!(!patience.is_outage.load(Ordering::Relaxed));
        assert_eq!(patience.in_vain.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_outage_is_not_over_before_anybody_can_have_waited_in_vain() {
        let patience = Patience::new(20, 1_000 * MS);
        patience.waited_in_vain(MS);
        patience.was_gone(MS);
        patience.forget(2_000 * MS);
        assert!(patience.is_outage.load(Ordering::Relaxed));
        patience.forget(2_002 * MS);
        assert!(!patience.is_outage.load(Ordering::Relaxed));
    }

    #[test]
    fn hiccups_are_forgotten_where_enough_others_are_answered() {
        let patience = patience();
        for round in 0..100 {
            let start = round * 20 * MS;
            let waiting = come(&patience, start, 3);
            assert_eq!(wait_in_vain(&patience, waiting, start + 3 * MS), 12, "round {round}");
            for _ in 0..12 * ANSWERS_FOR_ONE {
                patience.answered(start + 4 * MS);
            }
        }
        // Where there are not, they are a fault.
        for round in 0..2 {
            let waiting = come(&patience, (3_000 + round * 20) * MS, 3);
            wait_in_vain(&patience, waiting, (3_003 + round * 20) * MS);
        }
        assert_eq!(patience.exhausted_by(), Some(Fault::Hiccups));
        assert_eq!(come(&patience, 4_000 * MS, 10).len(), 0);
    }

    #[test]
    fn hiccups_are_forgotten_after_a_while_without_any() {
        let patience = patience();
        let waiting = come(&patience, 10 * MS, 3);
        assert_eq!(wait_in_vain(&patience, waiting, 13 * MS), 12);
        assert_eq!(come(&patience, 2_000 * MS, 1).len(), 5);
        assert_eq!(patience.in_vain.load(Ordering::Relaxed), 12);
        come(&patience, 13 * MS + UNFORGOTTEN * PROBATION + MS, 1);
        assert_eq!(patience.in_vain.load(Ordering::Relaxed), 0);
    }

    /// Ten requests a second, and a server that is there half of the time: no three in a row are late.
    #[test]
    fn n4_a_few_requests_do_not_wait_in_vain_for_ever_either() {
        let patience = patience();
        for round in 0.. {
            let start = round * 400 * MS;
            for late in [0, 100] {
                let waiting = patience.admit(start + late * MS).unwrap();
                patience.waited_in_vain(start + (late + 3) * MS);
                drop(waiting);
            }
            if patience.exhausted_by() == Some(Fault::Hiccups) {
                return assert_eq!(round, 9);
            }
            for prompt in [200, 300] {
                let waiting = patience.admit(start + prompt * MS).unwrap();
                patience.answered(start + (prompt + 1) * MS);
                drop(waiting);
            }
        }
    }

    #[test]
    fn n4_hiccups_that_go_on_after_the_server_was_tried_are_an_outage() {
        let patience = patience();
        let vex = |from: Duration| (0..20).for_each(|step| patience.waited_in_vain(from + step * MS));
        for (tried_at, fault) in [(40, Fault::Hiccups), (400, Fault::Outage), (2_000, Fault::Hiccups)] {
            vex((tried_at - 30) * MS);
            assert_eq!(patience.exhausted_by(), Some(fault), "before {tried_at} ms");
            patience.was_tried(tried_at * MS);
            assert_eq!(patience.exhausted_by(), None);
            // Soon afterwards.
            vex((tried_at + 100) * MS);
            assert_eq!(patience.exhausted_by(), Some(Fault::Outage));
            patience.was_tried((tried_at + 200) * MS);
        }
    }

    /// Many come at once, and then nobody for a while.
    #[test]
    fn a_fault_that_is_over_keeps_nobody_from_asking_also_where_requests_come_in_bursts() {
        for is_outage in [true, false] {
            let patience = patience();
            (0..8).for_each(|_| patience.waited_in_vain(13 * MS));
            if is_outage {
                patience.was_gone(100 * MS);
            }
            assert_eq!(patience.exhausted_by(), None);
            for burst in 1..50 {
                let start = (100 + burst * 10) * MS;
                // The first says that it is well.
                let first = patience.admit(start);
                patience.answered(start);
                let waiting: Vec<_> = (0..50).filter_map(|_| patience.admit(start)).collect();
                assert_eq!(waiting.len(), 50, "burst {burst}");
                waiting.iter().chain(&first).for_each(|_| patience.answered(start + MS / 3));
            }
            assert_eq!(patience.in_vain.load(Ordering::Relaxed), 0);
        }
    }

    /// One in five hundred is late for other reasons.
    #[test]
    fn an_outage_ends_also_where_a_few_answers_are_late() {
        let patience = patience();
        patience.was_gone(100 * MS);
        for step in 101..500 {
            let now = step * MS;
            let waiting = come(&patience, now, 1);
            assert_eq!(waiting.len(), 5, "in step {step}");
            waiting.iter().for_each(|_| patience.answered(now + MS / 2));
            if step % 100 == 0 {
                patience.waited_in_vain(now + MS / 2);
            }
        }
        assert!(!patience.is_outage.load(Ordering::Relaxed));
    }

    #[test]
    fn nobody_is_kept_from_asking_by_an_outage_that_nobody_has_waited_in() {
        let patience = patience();
        patience.was_gone(MS);
        patience.was_found(2 * MS);
        (0..12).for_each(|_| patience.waited_in_vain(2 * MS));
        assert_eq!(patience.exhausted_by(), None, "hiccups are no outage");
        patience.is_over();
        assert_eq!((0..1_000).filter_map(|_| patience.admit(2 * MS)).collect::<Vec<_>>().len(), 1_000);
    }
}
