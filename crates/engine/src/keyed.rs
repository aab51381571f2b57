use crate::clock::Clock;
use std::hash::{Hash, RandomState};
use std::time::Duration;
use tollgate_limit::{Capacity, Decision, Limit, Op, Quota, Reservation, Table};

/// Clients that a limiter has room for unless it is told otherwise: 2.5 MB.
const DEFAULT_CLIENTS: usize = 100_000;

/// A limit of its own for every client: per user, API key, address, or any mix of them.
///
/// A key is anything that can be hashed: `&str`, `&[u8]`, numbers, `IpAddr`, tuples of them. It is neither
/// stored nor copied. Memory is what the builder was told and no more; see [`Table`] for what happens when
/// more clients come than it is rated for.
///
/// ```
/// use tollgate::RateLimiter;
///
/// let limiter = RateLimiter::keyed("2 per second".parse()?);
/// assert!(limiter.allow("alice"));
/// assert!(limiter.allow("alice"));
/// assert!(!limiter.allow("alice"));
/// assert!(limiter.allow("bob"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct KeyedRateLimiter {
    limit: Limit,
    clock: Clock,
    table: Table,
}

/// Makes a [`KeyedRateLimiter`] that is not the default one.
#[derive(Debug)]
pub struct KeyedRateLimiterBuilder {
    limit: Limit,
    clock: Option<Clock>,
    capacity: Capacity,
}

impl KeyedRateLimiterBuilder {
    /// Another clock than [`Clock::default`].
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> KeyedRateLimiterBuilder {
        self.clock = Some(clock);
        self
    }

    /// Room for so many clients, or so much memory. By default for 100,000 clients, in 2.5 MB.
    #[must_use]
    pub fn capacity(mut self, capacity: Capacity) -> KeyedRateLimiterBuilder {
        self.capacity = capacity;
        self
    }

    /// The limiter.
    pub fn build(self) -> KeyedRateLimiter {
        let table = Table::new(self.capacity, &RandomState::new());
        KeyedRateLimiter { limit: self.limit, clock: self.clock.unwrap_or_default(), table }
    }
}

impl KeyedRateLimiter {
    /// A token bucket for each client, to be fitted with another clock or capacity.
    ///
    /// ```
    /// use tollgate::{Capacity, Clock, KeyedRateLimiter};
    ///
    /// let limiter = KeyedRateLimiter::builder("100 per minute".parse()?)
    ///     .capacity(Capacity::Memory(64 << 20))
    ///     .clock(Clock::system())
    ///     .build();
    /// assert!(limiter.table().capacity() > 2_600_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(quota: Quota) -> KeyedRateLimiterBuilder {
        KeyedRateLimiter::with_limit(Limit::token_bucket(quota))
    }

    /// Any other algorithm.
    pub fn with_limit(limit: Limit) -> KeyedRateLimiterBuilder {
        KeyedRateLimiterBuilder { limit, clock: None, capacity: Capacity::Keys(DEFAULT_CLIENTS) }
    }

    /// Takes one token of the client's if there is one.
    #[inline(always)]
    pub fn allow<K: Hash + ?Sized>(&self, key: &K) -> bool {
        self.table.allow(key, &self.limit, 1, self.clock.now())
    }

    /// Takes `cost` tokens of the client's or none, and tells all there is to tell.
    ///
    /// ```
    /// use tollgate::RateLimiter;
    ///
    /// let limiter = RateLimiter::keyed("10 per minute".parse()?);
    /// let decision = limiter.check(&("upload", 42), 8);
    /// assert_eq!((decision.is_allowed(), decision.remaining), (true, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn check<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        self.decide(key, Op::Take(cost))
    }

    /// Takes one token of each client's, in order, with one reading of the clock and overlapping cache misses.
    ///
    /// ```
    /// use tollgate::RateLimiter;
    ///
    /// let limiter = RateLimiter::keyed("1 per minute".parse()?);
    /// let mut allowed = Vec::new();
    /// limiter.allow_many(&["a", "b", "a"], |_, yes| allowed.push(yes));
    /// assert_eq!(allowed, [true, true, false]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn allow_many<K: Hash>(&self, keys: &[K], each: impl FnMut(usize, bool)) {
        self.table.allow_many(keys.iter().map(|key| (key, &self.limit, 1)), self.clock.now(), each);
    }

    /// The same, telling all there is to tell.
    #[inline]
    pub fn check_many<K: Hash>(&self, keys: &[K], each: impl FnMut(usize, Decision)) {
        self.table.decide_many(keys.iter().map(|key| (key, &self.limit, Op::Take(1))), self.clock.now(), each);
    }

    /// What [`check`](Self::check) would say, without taking anything.
    pub fn peek<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        self.decide(key, Op::Peek(cost))
    }

    /// Any operation: take as many as there are, charge into debt, refund, drain, reset.
    #[inline(always)]
    pub fn decide<K: Hash + ?Sized>(&self, key: &K, op: Op) -> Decision {
        self.table.decide(key, &self.limit, op, self.clock.now())
    }

    /// Books `cost` tokens, to be used after [`Reservation::wait`], if that is not longer than `max_wait`.
    ///
    /// # Errors
    /// The refusal, which says when it would be worth asking again. Nothing was taken.
    pub fn reserve<K: Hash + ?Sized>(&self, key: &K, cost: u64, max_wait: Duration) -> Result<Reservation, Decision> {
        self.table.reserve(key, &self.limit, (cost, max_wait), self.clock.now())
    }

    /// Gives back what has not been served yet of a client's reservation, and says how much that was.
    pub fn cancel<K: Hash + ?Sized>(&self, key: &K, reservation: Reservation) -> u64 {
        self.table.cancel(key, &self.limit, reservation, self.clock.now())
    }

    /// Blocks the thread until `cost` tokens of the client's are there; first come, first served.
    ///
    /// # Errors
    /// At once, where it would take longer than `max_wait`. Nothing was taken.
    pub fn wait<K: Hash + ?Sized>(&self, key: &K, cost: u64, max_wait: Duration) -> Result<Decision, Decision> {
        let reservation = self.reserve(key, cost, max_wait)?;
        self.clock.wait_until(reservation.ready_at());
        Ok(reservation.decision())
    }

    /// Waits until `cost` tokens of the client's are there; first come, first served, on any runtime. Dropped
    /// before that, the future gives its place back.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::RateLimiter;
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = RateLimiter::keyed("10 per second".parse()?);
    /// if limiter.until_ready("alice", 1, Duration::from_millis(500)).await.is_err() {
    ///     println!("too busy");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// At once, where it would take longer than `max_wait`. Nothing was taken.
    #[cfg(feature = "async")]
    pub async fn until_ready<K: Hash + ?Sized>(
        &self,
        key: &K,
        cost: u64,
        max_wait: Duration,
    ) -> Result<Decision, Decision> {
        let reservation = self.reserve(key, cost, max_wait)?;
        let cancel = |unused| _ = self.cancel(key, unused);
        Ok(crate::waiting::ready(&self.clock, reservation, cancel).await)
    }

    /// The limit in force.
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// The states of the clients, for other limits on the same memory and for what there is to know about it.
    pub fn table(&self) -> &Table {
        &self.table
    }
}
