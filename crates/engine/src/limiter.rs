use crate::clock::Clock;
use crate::keyed::KeyedRateLimiter;
use crate::live::{Gate, LiveGate};
use std::time::Duration;
use tollgate_limit::{Change, Decision, Limit, Op, Quota, Reservation, Time};

/// One limit for everybody who asks: a database, an outgoing connection, a whole service.
///
/// For a limit per client see [`KeyedRateLimiter`](crate::KeyedRateLimiter).
///
/// ```
/// use tollgate::RateLimiter;
///
/// let limiter = RateLimiter::new("100 per second burst 200".parse()?);
/// if limiter.allow() {
///     // serve the request
/// }
/// let decision = limiter.check(5);
/// println!("{} of {} left", decision.remaining, decision.limit);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RateLimiter {
    gate: LiveGate,
    clock: Clock,
}

/// Makes a [`RateLimiter`] that is not the default one.
#[derive(Debug)]
pub struct RateLimiterBuilder {
    limit: Limit,
    clock: Option<Clock>,
}

impl RateLimiterBuilder {
    /// Another clock than [`Clock::default`].
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> RateLimiterBuilder {
        self.clock = Some(clock);
        self
    }

    /// The limiter.
    pub fn build(self) -> RateLimiter {
        let clock = self.clock.unwrap_or_default();
        RateLimiter { gate: LiveGate::new(self.limit, clock.now()), clock }
    }
}

impl RateLimiter {
    /// A token bucket on the default clock.
    pub fn new(quota: Quota) -> RateLimiter {
        RateLimiter::builder(quota).build()
    }

    /// A token bucket for every client, on the default clock, with room for 100,000 clients.
    pub fn keyed(quota: Quota) -> KeyedRateLimiter {
        KeyedRateLimiter::builder(quota).build()
    }

    /// A token bucket to be fitted with another clock.
    pub fn builder(quota: Quota) -> RateLimiterBuilder {
        RateLimiter::with_limit(Limit::token_bucket(quota))
    }

    /// Any other algorithm.
    ///
    /// ```
    /// use tollgate::{Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::with_limit(Limit::sliding_log("5 per minute".parse()?)).build();
    /// assert!(limiter.allow());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_limit(limit: Limit) -> RateLimiterBuilder {
        RateLimiterBuilder { limit, clock: None }
    }

    /// Takes one token if there is one.
    #[inline(always)]
    pub fn allow(&self) -> bool {
        let now = self.clock.now();
        let Gate { limit, cell } = self.gate.first();
        cell.allow(limit, 1, now) || cell.has_moved() && self.allow_changed(now)
    }

    #[cold]
    fn allow_changed(&self, now: Time) -> bool {
        self.gate.ask(|gate| gate.cell.allow(&gate.limit, 1, now), |allowed| !allowed)
    }

    /// Takes `cost` tokens or none, and tells all there is to tell.
    #[inline(always)]
    pub fn check(&self, cost: u64) -> Decision {
        self.decide(Op::Take(cost))
    }

    /// What [`check`](Self::check) would say, without taking anything.
    pub fn peek(&self, cost: u64) -> Decision {
        self.decide(Op::Peek(cost))
    }

    /// Any operation: take as many as there are, charge into debt, refund, drain, reset.
    ///
    /// ```
    /// use tollgate::{Op, RateLimiter};
    ///
    /// let limiter = RateLimiter::new("10 per hour".parse()?);
    /// assert_eq!(limiter.decide(Op::TakeUpTo(25)).granted, 10);
    /// assert_eq!(limiter.decide(Op::Charge(3)).debt, 3);
    /// assert_eq!(limiter.decide(Op::Reset).remaining, 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn decide(&self, op: Op) -> Decision {
        let now = self.clock.now();
        self.gate.ask(|gate| gate.cell.decide(&gate.limit, op, now), |decision| !decision.is_allowed())
    }

    /// Books `cost` tokens, to be used after [`Reservation::wait`], if that is not longer than `max_wait`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::RateLimiter;
    ///
    /// let limiter = RateLimiter::new("1 per minute".parse()?);
    /// assert!(limiter.allow());
    /// let booked = limiter.reserve(1, Duration::from_secs(90)).expect("a wait of a minute");
    /// assert!(booked.wait() <= Duration::from_secs(60));
    /// assert!(limiter.reserve(1, Duration::from_secs(90)).is_err());
    /// assert_eq!(limiter.cancel(booked), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The refusal, which says when it would be worth asking again. Nothing was taken.
    pub fn reserve(&self, cost: u64, max_wait: Duration) -> Result<Reservation, Decision> {
        let now = self.clock.now();
        self.gate.ask(|gate| gate.cell.reserve(&gate.limit, cost, max_wait, now), Result::is_err)
    }

    /// Gives back what has not been served yet of a reservation, and says how much that was.
    pub fn cancel(&self, reservation: Reservation) -> u64 {
        let now = self.clock.now();
        self.gate.hold(|gate| gate.cell.cancel(&gate.limit, reservation, now))
    }

    /// Puts another limit in place while others keep asking.
    ///
    /// ```
    /// use tollgate::{Change, Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::new("10 per hour".parse()?);
    /// assert_eq!(limiter.check(4).remaining, 6);
    /// limiter.change(Limit::token_bucket("100 per hour".parse()?), Change::KeepTokens);
    /// assert_eq!(limiter.peek(1).remaining, 6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn change(&self, to: Limit, change: Change) {
        self.gate.change(to, change, self.clock.now());
    }

    /// The limit in force.
    pub fn limit(&self) -> Limit {
        self.gate.hold(|gate| gate.limit)
    }

    /// Blocks the thread until `cost` tokens are its own; first come, first served.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::RateLimiter;
    ///
    /// let limiter = RateLimiter::new("1000 per second burst 1".parse()?);
    /// for _ in 0..3 {
    ///     limiter.wait(1, Duration::from_secs(1)).expect("a millisecond each");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// At once, where it would take longer than `max_wait`. Nothing was taken.
    pub fn wait(&self, cost: u64, max_wait: Duration) -> Result<Decision, Decision> {
        let reservation = self.reserve(cost, max_wait)?;
        self.clock.wait_until(reservation.ready_at());
        Ok(reservation.decision())
    }

    /// Waits until `cost` tokens are the caller's own; first come, first served, on any runtime. Dropped before
    /// that, the future gives its place back.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::RateLimiter;
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::new("10 per second".parse()?);
    /// match limiter.until_ready(1, Duration::from_secs(2)).await {
    ///     Ok(_) => println!("go ahead"),
    ///     Err(refused) => println!("try again in {:?}", refused.retry_after()),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// At once, where it would take longer than `max_wait`. Nothing was taken.
    #[cfg(feature = "async")]
    pub async fn until_ready(&self, cost: u64, max_wait: Duration) -> Result<Decision, Decision> {
        let reservation = self.reserve(cost, max_wait)?;
        let cancel = |unused| _ = self.cancel(unused);
        Ok(crate::waiting::ready(&self.clock, reservation, cancel).await)
    }
}
