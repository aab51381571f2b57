//! Sliding log: the time of every token taken within the window. Exact, and the only limit whose memory
//! grows with its count.

use super::{Algorithm, Booking, Unserved};
use crate::pace::SKEW_NANOS;
use crate::quota::Quota;
use crate::time::{Time, nanos};
use std::collections::VecDeque;
use std::time::Duration;

/// Never more than `count` in any `period`, wherever it begins; optionally with a pause between any two
/// requests, and with refused attempts counted like allowed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlidingLog {
    pub(crate) limit: u64,
    pub(crate) period: u64,
    pub(crate) gap: u64,
    blocked: Blocked,
}

/// What a refused attempt does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Nothing: who was refused and comes back in time is let in.
    Ignored,
    /// It counts like any other, so that whoever keeps hammering stays locked out.
    Counted,
}

/// What was taken, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    total: u64,
    /// When the last request came that counts, which a gap may be longer than the period after.
    last: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) at: u64,
    pub(crate) tokens: u64,
}

impl Log {
    /// A log of these entries, oldest first; those without tokens only say when the last request came.
    pub(crate) fn of(entries: impl IntoIterator<Item = Entry>) -> Log {
        let mut log = Log::default();
        for entry in entries {
            log.last = Some(entry.at);
            log.total = log.total.saturating_add(entry.tokens);
            if entry.tokens > 0 {
                log.entries.push_back(entry);
            }
        }
        log
    }
}

impl SlidingLog {
    /// `count` tokens in any `period`. The burst plays no part.
    pub(crate) const fn new(quota: Quota) -> SlidingLog {
        SlidingLog { limit: quota.count(), period: nanos(quota.period()), gap: 0, blocked: Blocked::Ignored }
    }

    /// The same with at least `gap` between two requests, and a choice of what refused ones do.
    pub(crate) const fn rolling(quota: Quota, gap: Duration, blocked: Blocked) -> SlidingLog {
        SlidingLog { gap: nanos(gap), blocked, ..SlidingLog::new(quota) }
    }

    pub(crate) fn counts_refusals(&self) -> bool {
        self.blocked == Blocked::Counted
    }

    /// Whether an entry still counts.
    fn counts(&self, entry: &Entry, now: Time) -> bool {
        now.as_nanos() < entry.at.saturating_add(self.period)
    }

    fn used(&self, log: &Log, now: Time) -> u64 {
        let gone: u64 = log.entries.iter().take_while(|entry| !self.counts(entry, now)).map(|entry| entry.tokens).sum();
        log.total.saturating_sub(gone)
    }

    /// When no more than `room` tokens count any more.
    fn until_room(&self, log: &Log, room: u64, now: Time) -> Duration {
        let mut used = log.total;
        let frees = log.entries.iter().find(|entry| {
            used = used.saturating_sub(entry.tokens);
            used <= room
        });
        frees.map_or(Duration::ZERO, |entry| Time::from_nanos(entry.at.saturating_add(self.period)).since(now))
    }

    fn until_gap(&self, log: &Log, now: Time) -> Duration {
        match log.last {
            Some(last) if self.gap > 0 => Time::from_nanos(last.saturating_add(self.gap)).since(now),
            _ => Duration::ZERO,
        }
    }

    /// The most that is remembered: ten limits of debt.
    pub(crate) fn deepest(&self) -> u64 {
        self.limit.saturating_mul(11).min(1 << 62)
    }

    fn record(&self, log: &mut Log, tokens: u64, now: Time) {
        self.forget(log, now);
        let tokens = tokens.min(self.deepest());
        let at = log.entries.back().map_or(0, |last| last.at).max(now.as_nanos());
        match log.entries.back_mut() {
            Some(last) if last.at == at => last.tokens += tokens,
            _ => log.entries.push_back(Entry { at, tokens }),
        }
        log.total += tokens;
        log.last = Some(at);
        let excess = log.total.saturating_sub(self.deepest());
        self.drop_oldest(log, excess);
        self.merge_oldest(log);
    }

    fn drop_oldest(&self, log: &mut Log, mut tokens: u64) {
        while let Some(oldest) = log.entries.front_mut() {
            let dropped = oldest.tokens.min(tokens);
            oldest.tokens -= dropped;
            log.total -= dropped;
            tokens -= dropped;
            if oldest.tokens > 0 {
                return;
            }
            log.entries.pop_front();
        }
    }

    /// What is older than a whole limit's worth decides nothing before that is gone as well, and is kept
    /// together with the oldest of it. So there are never more entries than tokens in the limit.
    fn merge_oldest(&self, log: &mut Log) {
        while let [oldest, second] = [log.entries.front(), log.entries.get(1)]
            && let (Some(oldest), Some(_)) = (oldest, second)
            && log.total - oldest.tokens >= self.limit
        {
            let merged = oldest.tokens;
            log.entries.pop_front();
            if let Some(second) = log.entries.front_mut() {
                second.tokens += merged;
            }
        }
    }

    /// Drops what no longer counts.
    fn forget(&self, log: &mut Log, now: Time) {
        while let Some(oldest) = log.entries.front()
            && !self.counts(oldest, now)
        {
            log.total = log.total.saturating_sub(oldest.tokens);
            log.entries.pop_front();
        }
    }
}

impl Algorithm for SlidingLog {
    type State = Log;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn available(&self, log: &Log, now: Time) -> i64 {
        super::window::left(self.limit, self.used(log, now))
    }

    fn delay(&self, log: &Log, cost: u64, now: Time) -> Option<Duration> {
        let room = self.limit.checked_sub(cost)?;
        let until_room = if self.used(log, now) <= room { Duration::ZERO } else { self.until_room(log, room, now) };
        Some(until_room.max(self.until_gap(log, now)))
    }

    /// It cannot book ahead.
    fn patience(&self, _cost: u64, _asked: Option<Duration>) -> Duration {
        Duration::ZERO
    }

    fn spend(&self, log: &mut Log, cost: u64, now: Time) {
        if cost > 0 {
            self.record(log, cost, now);
        }
    }

    /// Gives back the oldest tokens: those come back soonest by themselves, so nobody gains by a late refund.
    fn refund(&self, log: &mut Log, tokens: u64, now: Time) {
        self.forget(log, now);
        self.drop_oldest(log, tokens);
        if log.entries.is_empty() && tokens > 0 {
            log.last = None;
        }
    }

    fn reset_after(&self, log: &Log, now: Time) -> Duration {
        let counts_until = log.entries.back().map_or(0, |last| last.at.saturating_add(self.period));
        Time::from_nanos(counts_until).since(now).max(self.until_gap(log, now))
    }

    /// What lies further in the future than clocks differ was written before the clock jumped: it is moved to
    /// now, and then counts for one period and no longer.
    fn repair(&self, log: &mut Log, now: Time) -> bool {
        let latest = now.as_nanos().saturating_add(SKEW_NANOS);
        let jumped = log.entries.iter_mut().rev().take_while(|entry| entry.at > latest);
        let broken = jumped.map(|entry| entry.at = now.as_nanos()).count() > 0;
        if broken || log.last.is_some_and(|last| last > latest) {
            log.last = Some(now.as_nanos());
        }
        broken
    }

    fn refused(&self, log: &mut Log, cost: u64, now: Time) -> bool {
        let counted = self.blocked == Blocked::Counted && cost > 0;
        if counted {
            self.record(log, cost, now);
        }
        counted
    }

    /// All of it until it leaves the window by itself.
    fn unserved(&self, _log: &Log, booking: &Booking, now: Time) -> Unserved {
        Unserved { tokens: if now < booking.full_at { booking.cost } else { 0 }, moves: 0 }
    }
}
