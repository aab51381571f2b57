//! Room for the few limits whose state is larger than words: logs and warm-ups.
//!
//! The same rules as in the lines, without their cleverness: sets of a few clients, each behind a lock that
//! is held for one decision. What has expired is dropped when its set is next looked at, and who owes least
//! is forgotten when a set is full.

use crate::algorithm::Op;
use crate::decision::Decision;
use crate::limit::{WideState, Wider};
use crate::sync::lock;
use crate::time::Time;
use std::sync::{Mutex, OnceLock};

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

    /// Decides on the state of one client. Tells `forget` how many nanoseconds a client was forgiven that had
    /// to make room.
    pub(crate) fn with(
        &self,
        hash: u64,
        limit: &Wider,
        now: Time,
        decide: impl FnOnce(&mut WideState) -> Decision,
        forget: &mut impl FnMut(u64),
    ) -> Decision {
        let sets = self.sets.get_or_init(|| (0..self.clients.div_ceil(RATED)).map(|_| Mutex::default()).collect());
        let index = ((u128::from(hash) * sets.len() as u128) >> 64) as usize;
        let Some(set) = sets.get(index) else { return limit.decide(&mut limit.fresh(), Op::Peek(0), now) };
        let mut set = lock(set);
        set.retain(|entry| entry.expires > now || entry.hash == hash);
        let mut entry = match set.iter().position(|entry| entry.hash == hash) {
            Some(known) => set.swap_remove(known),
            None => Entry { hash, state: limit.fresh(), expires: now },
        };
        let decision = decide(&mut entry.state);
        entry.expires = now + decision.reset_after;
        if entry.expires > now {
            make_room(&mut set, now, forget);
            set.push(entry);
        }
        decision
    }

    pub(crate) fn occupied(&self, now: Time) -> usize {
        let of_set = |set: &Mutex<Vec<Entry>>| lock(set).iter().filter(|entry| entry.expires > now).count();
        self.sets.get().map_or(0, |sets| sets.iter().map(of_set).sum())
    }
}

/// Forgets the client that owes least, if the set is full.
fn make_room(set: &mut Vec<Entry>, now: Time, forget: &mut impl FnMut(u64)) {
    if set.len() < MOST {
        return;
    }
    let least = set.iter().enumerate().min_by_key(|(_, entry)| entry.expires).map(|(index, _)| index);
    if let Some(index) = least {
        let forgotten = set.swap_remove(index);
        forget(u64::try_from(forgotten.expires.since(now).as_nanos()).unwrap_or(u64::MAX));
    }
}
