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
pub(crate) const BOOKING_NANOS: u64 = 3_600_000_000_000;

/// By so much the clocks of two callers may differ. What lies further ahead than anything can be was written
/// before the clock jumped.
pub(crate) const SKEW_NANOS: u64 = 1_000_000_000;

/// Unit arithmetic of one quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Units that one token takes.
    pub(crate) token: u64,
    /// Units from empty to full: `burst` tokens.
    pub(crate) fill: u64,
    /// The furthest ahead of now that charges can bring a bucket: empty and as deep in debt as it gets.
    pub(crate) deepest: u64,
    /// The furthest ahead of now that anything can bring a bucket.
    pub(crate) ceiling: u64,
    /// What is further ahead than this was written before the clock jumped.
    pub(crate) jumped: u64,
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

    /// How far `word` lies ahead of another moment, both in ticks. Fine ticks go round: what is more than half
    /// a round ahead lies behind.
    #[inline(always)]
    pub(crate) const fn ahead(self, word: u64, moment: u64) -> u64 {
        if !self.is_fine() {
            return word.saturating_sub(moment);
        }
        let ahead = word.wrapping_sub(moment) & self.mask;
        // Zero is the word of a client nobody knows, wherever in its round the clock is.
        if word == 0 || ahead > self.mask >> 1 { 0 } else { ahead }
    }

    /// A number of ticks, which may be beyond the end of a round, as a word.
    #[inline(always)]
    pub(crate) const fn word(self, ticks: u64) -> u64 {
        ticks & self.mask
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
        let ratio = Ratio::new(token * count.get(), period);
        let ceiling = fill + larger(debt, Ratio::convert(ratio, ticks.of(BOOKING_NANOS)));
        let jumped = ceiling + Ratio::convert(ratio, ticks.of(SKEW_NANOS));
        Ok(Pace { token, fill, deepest: fill + debt, ceiling, jumped, ratio, ticks })
    }

    pub(crate) const fn ticks(&self) -> Ticks {
        self.ticks
    }

    /// By how much nanoseconds are shifted to be ticks, and units per tick as a fixed-point number with 63 binary
    /// places.
    pub(crate) fn scale(&self) -> (u32, u64) {
        (self.ticks.shift, self.ratio.map_or(1 << 63, |ratio| ratio.units_per_tick))
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

    /// How many units a stored word lies ahead of now.
    #[inline(always)]
    pub(crate) fn owed(&self, word: u64, now: Time) -> u64 {
        let moment = self.ticks.at(now);
        let ahead = self.ticks.ahead(word, moment);
        self.load(moment + ahead) - self.load(moment)
    }

    /// Ticks, in units.
    #[inline(always)]
    fn load(&self, ticks: u64) -> u64 {
        match &self.ratio {
            None => ticks,
            Some(ratio) => ratio.units(ticks),
        }
    }

    /// The first tick at which the clock shows so many units.
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
    const fn units(&self, ticks: u64) -> u64 {
        scale(ticks, self.units_per_tick)
    }

    const fn convert(ratio: Option<Ratio>, ticks: u64) -> u64 {
        match ratio {
            None => ticks,
            Some(ratio) => ratio.units(ticks),
        }
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
const fn scale(n: u64, factor: u64) -> u64 {
    let product = (n as u128 * factor as u128) >> 63;
    if product > u64::MAX as u128 { u64::MAX } else { product as u64 }
}

/// Whether `now` is so late (after the year 2262) that sums with it could overflow. Nothing is decided then.
#[inline(always)]
pub(crate) const fn is_too_late(now: Time) -> bool {
    now.as_nanos() > i64::MAX as u64
}
