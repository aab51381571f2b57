//! Millions of clients in bounded memory, without a lock.

mod hash;
mod line;
mod memory;
mod wide;

use crate::algorithm::sliding_window::SlidingWindow;
use crate::algorithm::token_bucket::PlainBucket;
use crate::algorithm::{Allow, Ask, Change, Hold, Lack, LackAtLeast, Op, PutBack, TakeOut};
use crate::decision::Decision;
use crate::limit::{Limit, Shape, Transition};
use crate::pace::is_too_late;
use crate::reservation::{Refunds, Reservation};
use crate::sync::{AtomicU32, AtomicU64, Ordering, pause};
use crate::time::Time;
use hash::HashKey;
use line::{Attempt, Line, SLOTS, Tag, Turn, update};
use memory::Lines;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;
use wide::WideTable;

/// At its rated capacity a table is half full. One line in twenty-four then has no room for all of its keys,
/// but only one group in a million.
const KEYS_PER_LINE: f64 = SLOTS as f64 / 2.0;

/// Lines that help each other out: a key that finds its own line full is kept in another one of its group.
const GROUP: usize = if cfg!(loom) { 2 } else { 8 };

/// Requests whose cache misses overlap in [`Table::decide_many`].
const BATCH: usize = 16;

/// Keys share counters of refunds; see [`Refunds`].
const REFUND_COUNTERS: usize = if cfg!(loom) { 1 } else { 1024 };

/// How large a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// For so many clients that owe something at the same time: 25.6 bytes each.
    Keys(usize),
    /// In so many bytes, or a little less; at least 512.
    Memory(usize),
}

/// What a full table forgot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forgotten {
    /// Clients whose state was given up for another's.
    pub clients: u64,
    /// How long all of them together would still have had to wait until nothing was owed. Times the rate of
    /// a limit, these are the tokens that they were forgiven.
    pub owed: Duration,
}

/// The states of many clients, of any limits, in memory that never grows.
///
/// A client is whatever the key says: anything that can be hashed, borrowed or not. Keys are not stored, only
/// a fingerprint: about one client in 400 million shares its state with another one, and is then limited together
/// with it, never less. Clients of different limits must have different keys, for example a tuple of the rule's
/// name and the client's.
///
/// Nothing is ever cleaned up. A state that says no more than that of a new client takes no room: its slot is
/// free. When there is none, the client that owes least is forgotten, and [`forgotten`](Self::forgotten)
/// counts what it was forgiven: who floods the table with fresh keys never frees one that is being limited.
///
/// ```
/// use std::hash::RandomState;
/// use tollgate_limit::{Capacity, Limit, Op, Table, Time};
///
/// let table = Table::new(Capacity::Keys(10_000), &RandomState::new());
/// let limit = Limit::token_bucket("2 per second".parse()?);
/// let now = Time::ZERO;
/// assert!(table.decide("alice", &limit, Op::Take(2), now).is_allowed());
/// assert!(!table.decide("alice", &limit, Op::Take(1), now).is_allowed());
/// assert!(table.decide(&("tenant", 7), &limit, Op::Take(1), now).is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Table {
    lines: Lines,
    hash_key: Box<HashKey>,
    refunds: Box<[Refunds]>,
    forgotten_clients: AtomicU64,
    forgotten_nanos: AtomicU64,
    wide: WideTable,
}

/// Where a key is kept.
#[derive(Clone, Copy)]
struct Place {
    line: usize,
    tag: Tag,
}

impl Table {
    /// An empty table. Its secret is drawn from `random`, in production a fresh
    /// [`RandomState`](std::hash::RandomState), so that nobody can choose keys that collide.
    pub fn new(capacity: Capacity, random: &impl BuildHasher) -> Table {
        let groups = match capacity {
            Capacity::Keys(keys) => (keys as f64 / KEYS_PER_LINE / GROUP as f64).ceil() as usize,
            Capacity::Memory(bytes) => bytes / size_of::<Line>() / GROUP,
        };
        let lines = groups.max(1) * GROUP;
        Table {
            lines: Lines::new(lines),
            hash_key: Box::new(HashKey::new(random)),
            refunds: (0..REFUND_COUNTERS).map(|_| Refunds::default()).collect(),
            forgotten_clients: AtomicU64::new(0),
            forgotten_nanos: AtomicU64::new(0),
            wide: WideTable::new((lines as f64 * KEYS_PER_LINE) as usize),
        }
    }

    /// Asks the limit about one client, and keeps what follows from the answer.
    #[inline(always)]
    pub fn decide<K: Hash + ?Sized>(&self, key: &K, limit: &Limit, op: Op, now: Time) -> Decision {
        let hash = self.hash(key);
        if op == Op::Reset {
            return self.refunds(hash).end_era(|| self.ask(hash, limit, op, now));
        }
        self.ask(hash, limit, op, now)
    }

    /// Takes `cost` tokens of one client's or none: [`Op::Take`] for those who need no more than the yes or no,
    /// and faster.
    #[inline(always)]
    pub fn allow<K: Hash + ?Sized>(&self, key: &K, limit: &Limit, cost: u64, now: Time) -> bool {
        self.ask(self.hash(key), limit, Allow(cost), now)
    }

    /// Asks about several clients at once, in order, so that their cache misses overlap: about a third of the
    /// time per request at a million clients.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// use tollgate_limit::{Capacity, Limit, Op, Table, Time};
    ///
    /// let table = Table::new(Capacity::Keys(10_000), &RandomState::new());
    /// let limit = Limit::token_bucket("1 per second".parse()?);
    /// let mut allowed = Vec::new();
    /// let requests = ["alice", "bob", "alice"].map(|key| (key, &limit, Op::Take(1)));
    /// table.decide_many(requests, Time::ZERO, |_, decision| allowed.push(decision.is_allowed()));
    /// assert_eq!(allowed, [true, true, false]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn decide_many<'a, K: Hash>(
        &self,
        requests: impl IntoIterator<Item = (K, &'a Limit, Op)>,
        now: Time,
        each: impl FnMut(usize, Decision),
    ) {
        self.ask_many(requests, now, each);
    }

    /// Takes so many tokens of each of several clients', all of a client's or none: [`decide_many`] for those
    /// who need no more than the yes or no, and faster.
    ///
    /// [`decide_many`]: Self::decide_many
    #[inline]
    pub fn allow_many<'a, K: Hash>(
        &self,
        requests: impl IntoIterator<Item = (K, &'a Limit, u64)>,
        now: Time,
        each: impl FnMut(usize, bool),
    ) {
        self.ask_many(requests.into_iter().map(|(key, limit, cost)| (key, limit, Allow(cost))), now, each);
    }

    #[inline(always)]
    fn ask_many<'a, K: Hash, A: Ask>(
        &self,
        requests: impl IntoIterator<Item = (K, &'a Limit, A)>,
        now: Time,
        mut each: impl FnMut(usize, A::Answer),
    ) {
        let mut requests = requests.into_iter();
        let mut decided = 0;
        loop {
            let mut batch = [None; BATCH];
            for slot in &mut batch {
                let Some((key, limit, ask)) = requests.next() else { break };
                let hash = self.hash(&key);
                self.lines.prefetch(self.line_of(hash));
                *slot = Some((hash, limit, ask));
            }
            for slot in batch {
                let Some((hash, limit, ask)) = slot else { return };
                each(decided, self.ask(hash, limit, ask, now));
                decided += 1;
            }
        }
    }

    /// Books tokens for a client, now or ahead, if the wait is no longer than `max_wait`.
    ///
    /// # Errors
    /// The refusal. Nothing was taken.
    pub fn reserve<K: Hash + ?Sized>(
        &self,
        key: &K,
        limit: &Limit,
        (cost, max_wait): (u64, Duration),
        now: Time,
    ) -> Result<Reservation, Decision> {
        let hash = self.hash(key);
        let op = Op::Reserve { cost, max_wait };
        self.refunds(hash).book(now, || self.ask(hash, limit, op, now))
    }

    /// Gives back what has not been served of a client's reservation, and says how much that was.
    #[expect(clippy::needless_pass_by_value, reason = "nobody can give it back twice")]
    pub fn cancel<K: Hash + ?Sized>(&self, key: &K, limit: &Limit, reservation: Reservation, now: Time) -> u64 {
        let hash = self.hash(key);
        self.refunds(hash).give_back(&reservation, reservation.cost(), |cancel| self.ask(hash, limit, cancel, now))
    }

    /// Gives back up to so many tokens of what has not been served of a client's reservation; the rest of it is
    /// used. Says how many that were.
    pub fn give_back<K: Hash + ?Sized>(
        &self,
        key: &K,
        limit: &Limit,
        (reservation, tokens): (Reservation, u64),
        now: Time,
    ) -> u64 {
        let hash = self.hash(key);
        self.refunds(hash).give_back(&reservation, tokens, |cancel| self.ask(hash, limit, cancel, now))
    }

    /// [`Op::Refund`], but granted are only as many tokens as were missing. Where there are fewer, they have come back by
    /// themselves, or were [carried over](Self::carry_over) meanwhile.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// use tollgate_limit::{Capacity, Limit, Op, Table, Time};
    ///
    /// let table = Table::new(Capacity::Keys(10_000), &RandomState::new());
    /// let limit = Limit::token_bucket("5 per second".parse()?);
    /// assert!(table.decide("alice", &limit, Op::Take(2), Time::ZERO).is_allowed());
    /// assert_eq!(table.put_back("alice", &limit, 3, Time::ZERO).granted, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_back<K: Hash + ?Sized>(&self, key: &K, limit: &Limit, tokens: u64, now: Time) -> Decision {
        let hash = self.hash(key);
        // Not while it is being carried over: what is half here and half there cannot be given back to either.
        self.refunds(hash).alone(|| self.ask(hash, limit, PutBack(tokens), now))
    }

    /// Makes so many tokens of a client's missing to full, also parts of them, whatever it had before: others know better.
    /// More than the limit are owed, up to what debts can be.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// use std::time::Duration;
    /// use tollgate_limit::{Capacity, Limit, Op, Table, Time};
    ///
    /// let table = Table::new(Capacity::Keys(10_000), &RandomState::new());
    /// let limit = Limit::token_bucket("2 per second".parse()?);
    /// assert_eq!(table.bring_into_line("alice", &limit, 2.5, Time::ZERO).remaining, 0);
    /// let next = table.decide("alice", &limit, Op::Take(1), Time::ZERO);
    /// assert_eq!(next.retry_after(), Some(Duration::from_millis(750)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bring_into_line<K: Hash + ?Sized>(&self, key: &K, limit: &Limit, missing: f64, now: Time) -> Decision {
        self.ask(self.hash(key), limit, Lack(missing), now)
    }

    /// Makes at least so many tokens of a client's missing to full, also parts of them. If more are, nothing changes.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// use tollgate_limit::{Capacity, Limit, Op, Table, Time};
    ///
    /// let table = Table::new(Capacity::Keys(10_000), &RandomState::new());
    /// let limit = Limit::token_bucket("10 per second".parse()?);
    /// assert_eq!(table.hold_to("alice", &limit, 4.0, Time::ZERO).remaining, 6);
    /// assert_eq!(table.decide("alice", &limit, Op::Take(2), Time::ZERO).remaining, 4);
    /// assert_eq!(table.hold_to("alice", &limit, 4.0, Time::ZERO).remaining, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hold_to<K: Hash + ?Sized>(&self, key: &K, limit: &Limit, missing: f64, now: Time) -> Decision {
        self.ask(self.hash(key), limit, LackAtLeast(missing), now)
    }

    /// Takes what a client has spent of one limit over to another, under which it has another key. Nothing is taken
    /// over twice, and more than the new limit ever holds is forgiven, so that nobody is locked out for long.
    ///
    /// Costs hardly more than a glance where there is nothing to take over.
    pub fn carry_over<K: Hash + ?Sized>(&self, from: (&K, &Limit), to: (&K, &Limit), now: Time) {
        let (hash, new_hash) = (self.hash(from.0), self.hash(to.0));
        if is_too_late(now) || self.ask(hash, from.1, Op::Peek(0), now).missing() == 0 {
            return;
        }
        // What was booked before cannot be given back any more. It also makes the others wait who want to carry
        // over the same, so that they find it done.
        self.refunds(hash).end_era(|| {
            // First the new one pays, then the old one is cleared: nobody sees less than was spent. Requests that
            // still ask the old limit may have added to it in between.
            let before = self.ask(hash, from.1, Op::Peek(0), now).missing();
            let most = to.1.most();
            let _ = self.ask(new_hash, to.1, Op::Charge(before.min(most)), now);
            let cleared = self.ask(hash, from.1, TakeOut, now).missing();
            let op = if cleared >= before {
                Op::Charge((cleared - before).min(most))
            } else {
                Op::Refund(before.min(most).saturating_sub(cleared))
            };
            let _ = self.ask(new_hash, to.1, op, now);
        });
    }

    /// Begins to fetch what is kept for a key, for those who have something else to do before they ask.
    #[inline]
    pub fn prefetch<K: Hash + ?Sized>(&self, key: &K) {
        self.lines.prefetch(self.line_of(self.hash(key)));
    }

    /// A number that stands for a key, different in every table: nobody who does not know the table's secret can
    /// find two keys with the same one.
    #[inline]
    pub fn fingerprint<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.hash(key)
    }

    /// Takes a client over from one limit to another.
    pub fn change<K: Hash + ?Sized>(&self, key: &K, from: &Limit, to: &Limit, change: Change, now: Time) {
        if is_too_late(now) {
            return;
        }
        let hash = self.hash(key);
        self.refunds(hash).end_era(|| match Transition::new(from, to, change, now) {
            Transition::Rewrite { fine, carry } => {
                self.with_word(self.place(hash, fine), now, |word| *word = carry(*word));
            }
            Transition::Replace => {
                let before = self.ask(hash, from, Op::Peek(0), now);
                let _ = self.ask(hash, from, Op::Reset, now);
                self.ask(hash, to, Hold(to.carried_over(&before, change)), now);
            }
        });
    }

    /// Clients that the table is rated for.
    pub fn capacity(&self) -> usize {
        (self.lines.len() as f64 * KEYS_PER_LINE) as usize
    }

    /// Bytes of its slots. Logs and warm-ups come on top, as far as they are used.
    pub fn memory(&self) -> usize {
        size_of_val::<[Line]>(&self.lines)
    }

    /// Clients of whom something is known. Looks at the whole table, without stopping anyone.
    pub fn occupied(&self, now: Time) -> usize {
        self.lines.iter().map(|line| line.occupied(now)).sum::<usize>() + self.wide.occupied(now)
    }

    /// What had to be forgotten because there was no room.
    pub fn forgotten(&self) -> Forgotten {
        Forgotten {
            clients: self.forgotten_clients.load(Ordering::Relaxed),
            owed: Duration::from_nanos(self.forgotten_nanos.load(Ordering::Relaxed)),
        }
    }

    #[inline(always)]
    fn hash<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        (&*self.hash_key).hash_one(key)
    }

    /// The upper bits of the hash choose the line, the lower ones the tag.
    #[inline(always)]
    fn line_of(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.lines.len() as u128) >> 64) as usize
    }

    #[inline(always)]
    fn place(&self, hash: u64, fine: bool) -> Place {
        Place { line: self.line_of(hash), tag: Tag::new(hash, fine) }
    }

    #[expect(clippy::indexing_slicing, reason = "reduced to below the length")]
    fn refunds(&self, hash: u64) -> &Refunds {
        &self.refunds[hash as usize % REFUND_COUNTERS]
    }

    #[inline(always)]
    fn ask<A: Ask>(&self, hash: u64, limit: &Limit, ask: A, now: Time) -> A::Answer {
        match &limit.0 {
            Shape::Plain(bucket) => self.ask_plain(hash, bucket, ask, now),
            _ => self.ask_other(hash, limit, ask, now),
        }
    }

    #[inline(always)]
    fn ask_plain<A: Ask>(&self, hash: u64, bucket: &PlainBucket, ask: A, now: Time) -> A::Answer {
        self.with_word(self.place(hash, false), now, move |word| ask.ask(bucket, word, now))
    }

    #[inline(never)]
    fn ask_other<A: Ask>(&self, hash: u64, limit: &Limit, ask: A, now: Time) -> A::Answer {
        match &limit.0 {
            Shape::Plain(bucket) => self.ask_plain(hash, bucket, ask, now),
            Shape::Word(limit) => {
                self.with_word(self.place(hash, limit.is_fine()), now, move |word| limit.ask(word, ask, now))
            }
            Shape::Pair(limit) => self.ask_pair(hash, limit, ask, now),
            Shape::Wide(limit) => {
                let (answer, forgiven) = self.wide.ask(hash, limit, ask, now);
                forgiven.inspect(|owed| self.forget(*owed));
                answer
            }
        }
    }

    fn ask_pair<A: Ask>(&self, hash: u64, limit: &SlidingWindow, ask: A, now: Time) -> A::Answer {
        let even = self.place(hash, limit.ticks().is_fine());
        let odd = Place { tag: even.tag.second(), ..even };
        let (current, previous) = if limit.turn(now) == 0 { (even, odd) } else { (odd, even) };
        let previous = self.with_word(previous, now, move |word: &mut u64| {
            let before = *word;
            if ask.is_reset() {
                *word = 0;
            }
            if ask.looks_back() { before } else { *word }
        });
        self.with_word(current, now, move |word| limit.ask_current(word, previous, ask, now))
    }

    /// Runs `step` on the word of a key, which is zero for a key that nothing is known of. It may be run
    /// several times; the last one counts. It is copied to where it is rarely needed, so that the way that is
    /// common can keep all it knows in registers.
    #[inline(always)]
    fn with_word<R>(&self, place: Place, now: Time, step: impl Fn(&mut u64) -> R + Copy) -> R {
        if let Some(slot) = self.line(place.line).find(place.tag)
            && let Attempt::Done((result, _)) = update(slot, place.tag, &step)
        {
            return result;
        }
        self.with_word_elsewhere(place, now, step)
    }

    /// The same for a key that is not in its own line, or whose slot has just changed hands.
    #[inline(never)]
    fn with_word_elsewhere<R>(&self, place: Place, now: Time, step: impl Fn(&mut u64) -> R) -> R {
        let mut attempts = 0;
        loop {
            if let Some(slot) = self.find(place, now) {
                if let Attempt::Done((result, word)) = update(slot, place.tag, &step) {
                    self.line(place.line).prolong_overflow(place.tag.owed(word, now), now);
                    return result;
                }
            } else {
                let mut word = 0;
                let result = step(&mut word);
                if word == 0 || self.settle(place, word, now) {
                    return result;
                }
            }
            pause(attempts);
            attempts += 1;
        }
    }

    /// The slot of a key, in its line or elsewhere in the group.
    fn find(&self, place: Place, now: Time) -> Option<(&AtomicU64, &AtomicU32)> {
        let home = self.line(place.line);
        let elsewhere = || self.neighbours(place.line).find_map(|line| line.find(place.tag));
        home.find(place.tag).or_else(|| if home.overflows(now) { elsewhere() } else { None })
    }

    /// Finds a slot for a new key's first word. Fails if others interfered; nothing was then kept.
    fn settle(&self, place: Place, word: u64, now: Time) -> bool {
        let home = self.line(place.line);
        let Some(turn) = home.turn() else { return false };
        if self.find(place, now).is_some() {
            // Whose turn it was before has settled the same key.
            return false;
        }
        if let Some(slot) = home.free(now) {
            return slot.hand_over(&turn, place.tag) && slot.fill(place.tag, word);
        }
        // Before the key goes elsewhere, so that nobody misses it there.
        home.mark_overflow(place.tag.owed(word, now), now);
        for line in self.neighbours(place.line) {
            if let Some(turn) = line.turn()
                && let Some(slot) = line.free(now)
            {
                return slot.hand_over(&turn, place.tag) && slot.fill(place.tag, word);
            }
        }
        self.displace(&turn, place, word, now)
    }

    /// Takes the slot of the key that owes least, which is forgotten.
    fn displace(&self, turn: &Turn<'_>, place: Place, word: u64, now: Time) -> bool {
        let home = self.line(place.line);
        let Some(mut least) = home.least_owing(now) else { return true };
        let mut its_turn = None;
        for line in self.neighbours(place.line) {
            if let Some(slot) = line.least_owing(now)
                && slot.owed(now) < least.owed(now)
                && let Some(turn) = line.turn()
            {
                (least, its_turn) = (slot, Some(turn));
            }
        }
        let settled = least.hand_over(its_turn.as_ref().unwrap_or(turn), place.tag) && least.fill(place.tag, word);
        if settled {
            self.forget(least.owed(now));
        }
        settled
    }

    fn forget(&self, owed: u64) {
        self.forgotten_clients.fetch_add(1, Ordering::Relaxed);
        self.forgotten_nanos.fetch_add(owed, Ordering::Relaxed);
    }

    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "places are fractions of the length, and groups are whole")]
    fn line(&self, index: usize) -> &Line {
        &self.lines[index]
    }

    /// The other lines of a line's group, nearest first.
    fn neighbours(&self, index: usize) -> impl Iterator<Item = &Line> {
        (1..GROUP).map(move |distance| self.line(index ^ distance))
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("capacity", &self.capacity())
            .field("forgotten", &self.forgotten())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
