//! A quota's own clock, on which every token takes a whole number of units.
//!
//! A bucket's state is a point in time in one `u64`, its *word*. Words count *ticks*: nanoseconds, or for
//! quotas above 10^9 per second 1024ths of one. A token rarely takes a whole number of ticks (3 per second
//! is one every 333,333,333.3 ns), and rounding each take would make the rate drift. So the arithmetic
//! happens in *units*, of which a token takes exactly `token`, and of which one or slightly less passes per
//! tick. Because no tick holds more than one unit, every unit has a tick of its own, and going from a word
//! to units and back loses nothing: the rate is exact to 2^-61 however many takes there are.
//!
//! Most quotas people write (100 per second, 1000 per minute) need none of it: their units are ticks.

use crate::Time;
use crate::quota::QuotaError;
use std::num::NonZeroU64;

/// Ticks per nanosecond, as a shift, for quotas above one token per nanosecond.
const FINE: u32 = 10;

/// Fine ticks go round after 104 days. What a bucket owes is kept to less than half of that (see
/// [`Pace::ceiling`]), so that a word from the last round is recognised.
const FINE_MASK: u64 = u64::MAX >> 1;

/// The longest an empty bucket may take to fill, in ticks: 73 years, or three days of fine ticks.
const LONGEST_FILL: u64 = 1 << 61;
const LONGEST_FINE_FILL: u64 = 1 << 58;

/// A bucket can be charged into debt by this many bursts; more is forgiven, so that nobody is locked out
/// for long.
const MOST_DEBT_IN_BURSTS: u64 = 10;

/// Bookings reach at least this far ahead, or as far as the deepest debt where that is further.
const BOOKING_NANOS: u64 = 3_600_000_000_000;

/// Unit arithmetic of one quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Units that one token takes.
    pub(crate) token: u64,
    /// Units from empty to full: `burst` tokens.
    pub(crate) fill: u64,
    /// The furthest ahead of now that charges can bring a bucket: empty and as deep in debt as it gets.
    pub(crate) deepest: u64,
    /// The furthest ahead of now that anything can bring a bucket. What is further away was written before
    /// the clock jumped.
    pub(crate) ceiling: u64,
    /// `None` where units are ticks.
    ratio: Option<Ratio>,
    ticks: Ticks,
}

/// What words count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// Ticks per nanosecond, as a shift: 0 or [`FINE`].
    shift: u32,
    mask: u64,
}

impl Ticks {
    /// One tick is one nanosecond.
    pub(crate) const COARSE: Ticks = Ticks { shift: 0, mask: u64::MAX };
    /// One tick is a 1024th of a nanosecond.
    pub(crate) const FINE: Ticks = Ticks { shift: FINE, mask: FINE_MASK };

    /// What it takes to tell `count` tokens per `period` nanoseconds apart.
    pub(crate) const fn for_rate(count: u64, period: u64) -> Ticks {
        if count > period { Ticks::FINE } else { Ticks::COARSE }
    }

    pub(crate) const fn is_fine(self) -> bool {
        self.shift != 0
    }

    /// A moment, in ticks.
    #[inline(always)]
    pub(crate) const fn at(self, time: Time) -> u64 {
        (time.as_nanos() << self.shift) & self.mask
    }

    /// A duration in nanoseconds, in ticks.
    #[inline(always)]
    pub(crate) const fn of(self, nanos: u64) -> u64 {
        nanos.saturating_mul(1 << self.shift)
    }

    /// Ticks in nanoseconds, rounded up.
    #[inline(always)]
    pub(crate) const fn nanos(self, ticks: u64) -> u64 {
        ticks.div_ceil(1 << self.shift)
    }

    /// Whether `now` is so late (after the year 2262) that sums with it could overflow.
    #[inline(always)]
    pub(crate) const fn is_too_late(self, now: Time) -> bool {
        self.at(now) > u64::MAX >> 1
    }
}

/// Units per tick, between a half and one, as a fixed-point number with 63 binary places, and its inverse.
#[derive(Clone, Copy, Debug)]
struct Ratio {
    units_per_tick: u64,
    ticks_per_unit: u64,
}

impl Pace {
    pub(crate) const fn new(count: NonZeroU64, period: NonZeroU64, burst: NonZeroU64) -> Result<Pace, QuotaError> {
        let ticks = Ticks::for_rate(count.get(), period.get());
        let longest = if ticks.is_fine() { LONGEST_FINE_FILL } else { LONGEST_FILL };
        let period = ticks.of(period.get());
        if period > longest {
            return Err(QuotaError::TooLong);
        }
        let token = period / count.get();
        if token == 0 {
            return Err(QuotaError::TooFast);
        }
        let fill = match token.checked_mul(burst.get()) {
            Some(fill) if fill <= longest => fill,
            _ => return Err(QuotaError::TooLong),
        };
        let debt = smaller(fill.saturating_mul(MOST_DEBT_IN_BURSTS), longest);
        let ahead = larger(debt, ticks.of(BOOKING_NANOS));
        let ratio = Ratio::new(token * count.get(), period);
        Ok(Pace { token, fill, deepest: fill + debt, ceiling: fill + ahead, ratio, ticks })
    }

    pub(crate) const fn ticks(&self) -> Ticks {
        self.ticks
    }

    /// Whether units and ticks are nanoseconds.
    #[inline(always)]
    pub(crate) const fn is_in_nanos(&self) -> bool {
        self.ratio.is_none() && !self.ticks.is_fine()
    }

    /// The same, for a pace that [is in nanoseconds](Self::is_in_nanos), so that the compiler knows.
    #[inline(always)]
    pub(crate) const fn in_nanos(&self) -> Pace {
        Pace { ratio: None, ticks: Ticks::COARSE, ..*self }
    }

    /// Now, in units.
    #[inline(always)]
    pub(crate) fn clock(&self, now: Time) -> u64 {
        self.load(self.ticks.at(now))
    }

    /// A stored word, in units.
    #[inline(always)]
    pub(crate) fn load(&self, word: u64) -> u64 {
        match &self.ratio {
            None => word,
            Some(ratio) => ratio.units(word),
        }
    }

    /// The first word that [`load`](Self::load)s as this many units.
    #[inline(always)]
    pub(crate) fn store(&self, units: u64) -> u64 {
        match &self.ratio {
            None => units,
            Some(ratio) => ratio.ticks(units),
        }
    }

    /// Nanoseconds from `now` until the clock shows `units`, rounded up: waiting that long is enough.
    #[inline(always)]
    pub(crate) fn until(&self, units: u64, now: Time) -> u64 {
        self.ticks.nanos(self.store(units).saturating_sub(self.ticks.at(now)))
    }

    /// Nanoseconds that so many units take to pass, rounded up.
    pub(crate) fn nanos(&self, units: u64) -> u64 {
        self.ticks.nanos(self.store(units))
    }

    /// Units that surely pass in so many nanoseconds.
    pub(crate) fn units_in(&self, nanos: u64) -> u64 {
        self.load(self.ticks.of(nanos))
    }
}

const fn smaller(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

const fn larger(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

impl Ratio {
    /// `units` per `ticks`, rounded down (towards refusing) by less than 2^-62 of itself.
    const fn new(units: u64, ticks: u64) -> Option<Ratio> {
        if units == ticks {
            return None;
        }
        let units_per_tick = (((units as u128) << 63) / ticks as u128) as u64;
        let ticks_per_unit = (1_u128 << 126).div_ceil(units_per_tick as u128) as u64;
        Some(Ratio { units_per_tick, ticks_per_unit })
    }

    #[inline(never)]
    fn units(&self, ticks: u64) -> u64 {
        scale(ticks, self.units_per_tick)
    }

    /// The smallest number of ticks that holds `units`.
    #[inline(never)]
    fn ticks(&self, units: u64) -> u64 {
        // The inverse is rounded up and the product down, so this is one too few to one too many.
        let guess = scale(units, self.ticks_per_unit);
        if self.units(guess) < units {
            guess.saturating_add(1)
        } else if guess > 0 && self.units(guess - 1) >= units {
            guess - 1
        } else {
            guess
        }
    }
}

/// `n` times a fixed-point number with 63 binary places, no larger than `u64::MAX`.
#[inline(always)]
fn scale(n: u64, factor: u64) -> u64 {
    let product = (u128::from(n) * u128::from(factor)) >> 63;
    u64::try_from(product).unwrap_or(u64::MAX)
}
