//! What is on its way in one direction: when it is due, and in which order. Times are given, and nothing is sent.

use crate::chaos::Link;
use crate::fate::Passage;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::Duration;

/// A datagram that waits to be overtaken and is not goes on after so long.
const LONGEST_HOLD: Duration = Duration::from_millis(50);

/// Bytes that are on their way at the most.
const MOST_BYTES: usize = 4 * 1_024 * 1_024;

/// What is on its way, first in, first out.
#[derive(Debug)]
pub(crate) struct Line<T> {
    waiting: VecDeque<(Duration, T)>,
    bytes: usize,
    /// When all that came so far has been put on the wire.
    free_at: Duration,
    last_due: Duration,
}

impl<T: AsRef<[u8]>> Line<T> {
    pub(crate) fn new() -> Line<T> {
        Line { waiting: VecDeque::new(), bytes: 0, free_at: Duration::ZERO, last_due: Duration::ZERO }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= MOST_BYTES
    }

    /// Puts something behind all that is there.
    pub(crate) fn push(&mut self, item: T, delay: Duration, link: &Link, now: Duration) {
        let length = item.as_ref().len();
        self.free_at = self.free_at.max(now) + link.bytes_per_second.map_or(Duration::ZERO, |rate| time(length, rate));
        self.last_due = self.last_due.max(self.free_at + delay);
        self.bytes += length;
        self.waiting.push_back((self.last_due, item));
    }

    /// What goes on next, and when.
    pub(crate) fn next(&self) -> Option<(Duration, &T)> {
        self.waiting.front().map(|(due, item)| (*due, item))
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let (_, item) = self.waiting.pop_front()?;
        self.bytes -= item.as_ref().len();
        Some(item)
    }

    /// Takes some bytes off what goes on next, and all of it if it was no longer.
    pub(crate) fn advance(&mut self, count: usize)
    where
        T: bytes::Buf,
    {
        let Some((_, item)) = self.waiting.front_mut() else { return };
        item.advance(count);
        self.bytes -= count;
        if !item.has_remaining() {
            self.waiting.pop_front();
        }
    }
}

/// How long so many bytes take.
fn time(bytes: usize, per_second: NonZeroU64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / per_second.get() as f64)
}

/// Those that are to be overtaken, until they were.
#[derive(Debug)]
pub(crate) struct Overtaking<T> {
    /// How many have come.
    came: u64,
    /// In the order in which they came.
    held: Vec<Held<T>>,
}

#[derive(Debug)]
struct Held<T> {
    number: u64,
    /// How many are still to overtake it.
    by: u64,
    until: Duration,
    delay: Duration,
    item: T,
}

impl<T: Clone> Overtaking<T> {
    pub(crate) fn new() -> Overtaking<T> {
        Overtaking { came: 0, held: Vec::new() }
    }

    /// Takes a datagram, and returns what goes on now, with the delay of each.
    pub(crate) fn pass(&mut self, item: &T, passages: &[Passage], now: Duration) -> Vec<(Duration, T)> {
        let mut ready = Vec::new();
        for passage in passages {
            let (number, until) = (self.came, now + LONGEST_HOLD);
            let copy = Held { number, by: passage.overtaken_by, until, delay: passage.delay, item: item.clone() };
            match copy.by {
                0 => self.release(copy, &mut ready),
                _ => self.held.push(copy),
            }
        }
        self.came += 1;
        ready
    }

    /// Those that have waited for long enough.
    pub(crate) fn expire(&mut self, now: Duration) -> Vec<(Duration, T)> {
        let mut ready = Vec::new();
        while let Some(late) = self.take_first(|held| held.until <= now) {
            self.release(late, &mut ready);
        }
        ready
    }

    /// When the next one will have.
    pub(crate) fn next_expiry(&self) -> Option<Duration> {
        self.held.iter().map(|held| held.until).min()
    }

    /// Lets one go on, and after it those that were waiting for nobody else. They overtake as well as any other.
    fn release(&mut self, first: Held<T>, ready: &mut Vec<(Duration, T)>) {
        let mut next = Some(first);
        while let Some(Held { number, delay, item, .. }) = next {
            ready.push((delay, item));
            self.held.iter_mut().filter(|held| held.number < number).for_each(|held| held.by -= 1);
            next = self.take_first(|held| held.by == 0);
        }
    }

    fn take_first(&mut self, is_meant: impl Fn(&Held<T>) -> bool) -> Option<Held<T>> {
        let index = self.held.iter().position(is_meant)?;
        Some(self.held.remove(index))
    }
}

#[cfg(test)]
mod tests;
