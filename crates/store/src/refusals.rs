//! Refusals that are still true: whoever keeps asking is refused without asking the store.
//!
//! A state that has no room for a request will have none before the time that the store said, whoever else takes
//! something meanwhile. So a refusal holds for every request of that cost or more, with as much patience, until then. The
//! time it counts from is when the store was asked, not when it answered: then it never holds for too long. Only who gives
//! back or forgets what was spent makes it untrue, which hosts hear of when they ask again, after a second at the latest.

use crate::call::{Ask, Says};
use crate::key::Fingerprint;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tollgate_limit::{Decision, Outcome, Retry, Time};

/// What costs more than a limit ever holds is refused for ever; that is remembered for so long.
const FOR_EVER: Duration = Duration::from_secs(10);

/// Every other refusal is remembered for no longer than this.
const LONGEST: Duration = Duration::from_secs(1);

/// A fixed number of refusals; a new one takes the place of another that it shares its bits with.
#[derive(Debug)]
pub(crate) struct Refusals(Vec<Mutex<Option<Refusal>>>);

#[derive(Clone, Copy, Debug)]
struct Refusal {
    key: Fingerprint,
    cost: u64,
    max_wait: Option<Duration>,
    since: Time,
    until: Time,
    decision: Decision,
}

impl Refusals {
    pub(crate) fn new(most: usize) -> Refusals {
        Refusals((0..most).map(|_| Mutex::default()).collect())
    }

    /// The first of the questions that is known to be refused, and with it the request.
    pub(crate) fn find(&self, asks: &[Ask], now: Time) -> Option<(usize, Decision)> {
        asks.iter().enumerate().find_map(|(index, ask)| Some((index, self.recall(ask, now)?)))
    }

    fn recall(&self, ask: &Ask, now: Time) -> Option<Decision> {
        let refusal = (*self.place(ask)?.lock().unwrap_or_else(PoisonError::into_inner))?;
        let is_about = refusal.key == ask.key && refusal.cost <= ask.cost && refusal.max_wait == ask.max_wait;
        let holds = is_about && refusal.since <= now && now < refusal.until;
        holds.then(|| refusal.at(now))
    }

    /// Remembers what was refused by questions asked at this time.
    pub(crate) fn add(&self, asks: &[Ask], decisions: &[Decision], asked_at: Time) {
        for (ask, decision) in asks.iter().zip(decisions) {
            let Outcome::Refused(retry) = decision.outcome else { continue };
            let until = asked_at
                + match retry {
                    Retry::After(wait) => wait.min(LONGEST),
                    Retry::Never => FOR_EVER,
                };
            let Some(place) = self.place(ask) else { continue };
            let Ask { key, cost, max_wait, .. } = *ask;
            let refusal = Refusal { key, cost, max_wait, since: asked_at, until, decision: *decision };
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
        }
    }

    /// Forgets what was refused, since there may be room again.
    pub(crate) fn forget(&self, asks: &[Ask]) {
        for ask in asks {
            let Some(place) = self.place(ask) else { continue };
            let mut refusal = place.lock().unwrap_or_else(PoisonError::into_inner);
            refusal.take_if(|refusal| refusal.key == ask.key);
        }
    }

    /// Where a refusal is remembered; nowhere if it would not mean that the request is refused, or if it counts.
    fn place(&self, ask: &Ask) -> Option<&Mutex<Option<Refusal>>> {
        if ask.says != Says::Refuse || ask.limit.counts_refusals() {
            return None;
        }
        self.0.get(ask.key.bits().checked_rem(self.0.len() as u64)? as usize)
    }
}

impl Refusal {
    /// What the limit would say now: the same, and that it takes less long.
    fn at(&self, now: Time) -> Decision {
        let passed = now.since(self.since);
        let outcome = match self.decision.outcome {
            Outcome::Refused(Retry::After(wait)) => Outcome::Refused(Retry::After(wait.saturating_sub(passed))),
            other => other,
        };
        Decision { outcome, reset_after: self.decision.reset_after.saturating_sub(passed), ..self.decision }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_limit::{Blocked, Cell, Limit, Op};

    fn ask(cost: u64) -> Ask {
        let limit = Limit::token_bucket("2 per second".parse().unwrap());
        Ask { key: Fingerprint::new(1, b"a"), limit, cost, max_wait: None, says: Says::Refuse }
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(10_000 + millis)
    }

    fn refused(ask: &Ask) -> Decision {
        let cell = Cell::default();
        let _ = cell.decide(&ask.limit, Op::Drain, at(0));
        cell.decide(&ask.limit, Op::Take(ask.cost), at(0))
    }

    #[test]
    fn a_refusal_holds_until_it_can_succeed_and_for_no_smaller_cost() {
        let refusals = Refusals::new(8);
        refusals.add(&[ask(1)], &[refused(&ask(1))], at(0));
        let (index, decision) = refusals.find(&[ask(1)], at(200)).unwrap();
        assert_eq!((index, decision.retry_after()), (0, Some(Duration::from_millis(300))));
        assert_eq!(decision.reset_after, Duration::from_millis(800));
        assert!(refusals.find(&[ask(2)], at(499)).is_some());
        assert!(refusals.find(&[ask(0)], at(1)).is_none());
        assert!(refusals.find(&[ask(1)], at(500)).is_none());
        // A clock that went back knows nothing.
        assert!(refusals.find(&[ask(1)], Time::ZERO).is_none());
        // Who can wait longer may be let through.
        let patient = Ask { max_wait: Some(Duration::from_secs(5)), ..ask(1) };
        assert!(refusals.find(std::slice::from_ref(&patient), at(1)).is_none());
        let other = Ask { key: Fingerprint::new(1, b"b"), ..ask(1) };
        assert!(refusals.find(std::slice::from_ref(&other), at(1)).is_none());
        assert_eq!(refusals.find(&[other, ask(1)], at(1)).unwrap().0, 1);
    }

    #[test]
    fn a_refusal_is_forgotten_when_something_is_given_back() {
        let refusals = Refusals::new(1);
        refusals.add(&[ask(1)], &[refused(&ask(1))], at(0));
        refusals.forget(&[Ask { key: Fingerprint::new(1, b"b"), ..ask(1) }]);
        assert!(refusals.find(&[ask(1)], at(1)).is_some());
        refusals.forget(&[ask(1)]);
        assert!(refusals.find(&[ask(1)], at(1)).is_none());
    }

    #[test]
    fn what_costs_more_than_there_ever_is_is_remembered_too() {
        let refusals = Refusals::new(8);
        refusals.add(&[ask(3)], &[refused(&ask(3))], at(0));
        assert_eq!(refusals.find(&[ask(3)], at(9_000)).unwrap().1.outcome, Outcome::Refused(Retry::Never));
        assert!(refusals.find(&[ask(2)], at(0)).is_none());
    }

    #[test]
    fn refusals_that_do_not_refuse_or_that_count_are_asked_every_time() {
        let counting = Limit::rolling_log("2 per second".parse().unwrap(), Duration::ZERO, Blocked::Counted);
        let refusals = Refusals::new(8);
        for other in [
            Ask { says: Says::Shadow, ..ask(1) },
            Ask { says: Says::Quota, ..ask(1) },
            Ask { limit: counting, ..ask(1) },
        ] {
            refusals.add(std::slice::from_ref(&other), &[refused(&ask(1))], at(0));
            assert!(refusals.find(&[other], at(1)).is_none());
        }
        let none = Refusals::new(0);
        none.add(&[ask(1)], &[refused(&ask(1))], at(0));
        assert!(none.find(&[ask(1)], at(1)).is_none());
    }
}
