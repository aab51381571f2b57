//! Room for the few limits whose state is larger than words: logs and warm-ups.
//!
//! The same rules as in the lines, without their cleverness: sets of a few clients, each behind a lock that
//! is held for one decision. What has expired is dropped when its set is next looked at, and who owes least
//! is forgotten when a set is full.

use crate::algorithm::Ask;
use crate::limit::{WideState, Wider};
use crate::sync::{Mutex, lock};
use crate::time::{Time, nanos};
use std::sync::OnceLock;

/// Clients per set, on average at the rated capacity and at most.
const RATED: usize = 8;
const MOST: usize = 2 * RATED;

#[derive(Debug)]
pub(crate) struct WideTable {
    sets: OnceLock<Box<[Mutex<Vec<Entry>>]>>,
    clients: usize,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    state: WideState,
    /// From then on the state says no more than a fresh one.
    expires: Time,
}

impl WideTable {
    /// Takes no memory before it is used.
    pub(crate) fn new(clients: usize) -> WideTable {
        WideTable { sets: OnceLock::new(), clients }
    }

    /// Asks about one client. Says, too, how many nanoseconds another one was forgiven that had to make room.
    pub(crate) fn ask<A: Ask>(&self, hash: u64, limit: &Wider, ask: A, now: Time) -> (A::Answer, Option<u64>) {
        let sets = self.sets.get_or_init(|| (0..self.clients.div_ceil(RATED)).map(|_| Mutex::default()).collect());
        let index = ((u128::from(hash) * sets.len() as u128) >> 64) as usize;
        #[expect(clippy::indexing_slicing, reason = "a fraction of the length, of which there is at least one")]
        let mut set = lock(&sets[index]);
        set.retain(|entry| entry.expires > now || entry.hash == hash);
        let mut entry = match set.iter().position(|entry| entry.hash == hash) {
            Some(known) => set.swap_remove(known),
            None => Entry { hash, state: limit.fresh(), expires: now },
        };
        let answer = limit.ask(&mut entry.state, ask, now);
        entry.expires = limit.expires(&entry.state, now);
        if entry.expires <= now {
            return (answer, None);
        }
        let forgiven = make_room(&mut set, now);
        set.push(entry);
        (answer, forgiven)
    }

    pub(crate) fn occupied(&self, now: Time) -> usize {
        let of_set = |set: &Mutex<Vec<Entry>>| lock(set).iter().filter(|entry| entry.expires > now).count();
        self.sets.get().map_or(0, |sets| sets.iter().map(of_set).sum())
    }
}

/// Forgets the client that owes least, if the set is full, and says how many nanoseconds it was forgiven.
fn make_room(set: &mut Vec<Entry>, now: Time) -> Option<u64> {
    if set.len() < MOST {
        return None;
    }
    let (least, _) = set.iter().enumerate().min_by_key(|(_, entry)| entry.expires)?;
    Some(nanos(set.swap_remove(least).expires.since(now)))
}
