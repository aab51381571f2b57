use super::Verdict;
use super::books::Books;
use super::deciding::Booked;
#[cfg(feature = "redis")]
use super::elsewhere::Elsewhere;
use smallvec::SmallVec;
use std::time::Duration;
use tollgate_limit::Time;
use tollgate_rules::Request;

/// Tokens that were taken by an estimate, until it is known what they really were.
///
/// Whoever drops it has used what was estimated, as has everybody whose time runs out.
#[must_use = "what is not settled has been used as estimated"]
#[derive(Debug)]
pub struct Hold {
    booked: SmallVec<[Booked; 0]>,
    estimate: u64,
    wait: Duration,
    #[cfg(feature = "redis")]
    taken_at: Time,
    expires: Time,
    is_degraded: bool,
    /// What was taken where limits are kept together with others.
    #[cfg(feature = "redis")]
    elsewhere: Vec<Elsewhere>,
}

impl Hold {
    /// What a verdict has taken for a request at a time, to be settled within a while.
    #[expect(clippy::result_large_err, reason = "a refusal is a verdict like any other, which nobody boxes")]
    pub(crate) fn of(
        verdict: Verdict,
        request: &Request<'_>,
        (taken_at, expires_after): (Time, Duration),
    ) -> Result<Hold, Verdict> {
        if !verdict.is_allowed() {
            return Err(verdict);
        }
        Ok(Hold {
            estimate: request.cost,
            wait: verdict.wait(),
            #[cfg(feature = "redis")]
            taken_at,
            expires: taken_at + expires_after,
            is_degraded: verdict.is_degraded(),
            #[cfg(feature = "redis")]
            elsewhere: verdict.plan.taken_elsewhere(std::slice::from_ref(request)),
            booked: verdict.plan.reservations,
        })
    }

    /// Whether a limit that hosts share could not be asked, so that its rule's `on_failure` has decided.
    pub fn is_degraded(&self) -> bool {
        self.is_degraded
    }

    /// What was taken elsewhere, and when.
    #[cfg(feature = "redis")]
    pub(crate) fn take_elsewhere(&mut self) -> (Time, Vec<Elsewhere>) {
        (self.taken_at, std::mem::take(&mut self.elsewhere))
    }

    /// What was estimated.
    pub fn estimate(&self) -> u64 {
        self.estimate
    }

    /// How long to wait before going ahead.
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// Until when it can be settled for less.
    pub fn expires(&self) -> Time {
        self.expires
    }

    /// Rules with a cost of their own are not concerned by what a request turns out to cost; only a request that
    /// did not happen at all costs nothing there, either.
    pub(super) fn settle(self, books: &Books, actual: u64, now: Time) {
        let more = actual.saturating_sub(self.estimate);
        let in_time = now <= self.expires;
        for booked in self.booked {
            let (is_estimate, cost) = (booked.is_estimate, booked.reservation.cost());
            if is_estimate && more > 0 {
                booked.use_more(books, more, now);
            } else if in_time && (is_estimate || actual == 0) {
                booked.use_less(books, if is_estimate { self.estimate.saturating_sub(actual) } else { cost }, now);
            }
        }
    }
}

/// What a [`Verdict`] took that can be given back: to be kept while a request waits, which the verdict itself should
/// not be. Whoever drops it has used what was taken.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Engine, Request, RuleSet, Source, Time};
///
/// let rules = "
/// namespace: api
/// rules: [{ name: all, key: [], limits: [1 per second], over: queue up to 5s }]
/// ";
/// let engine = Engine::new(RuleSet::parse(&[Source::new("rules.yaml", rules)])?, Time::ZERO);
/// let request = Request::new("api", &[]);
/// assert!(engine.check(&request, Time::ZERO).wait().is_zero());
/// let second = engine.check(&request, Time::ZERO);
/// assert_eq!(second.wait(), Duration::from_secs(1));
///
/// // Its client leaves, so the next one need not wait for it.
/// engine.cancel(second.into_booking(), Time::ZERO);
/// assert_eq!(engine.check(&request, Time::ZERO).wait(), Duration::from_secs(1));
/// # Ok::<(), tollgate::Mistakes>(())
/// ```
#[derive(Debug, Default)]
pub struct Booking(pub(super) SmallVec<[Booked; 0]>);

impl Booking {
    pub(super) fn cancel(self, books: &Books, now: Time) {
        self.0.into_iter().for_each(|booked| booked.cancel(books, now));
    }
}

impl From<Verdict> for Booking {
    fn from(verdict: Verdict) -> Booking {
        verdict.into_booking()
    }
}
