//! Reservations that are open: what was estimated, until somebody says what it really was.

use crate::fault::Fault;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use tollgate::{Hold, Time};

/// As many as can be open at the same time, of all clients together.
const MOST: usize = 100_000;

/// What a reservation is settled by. It cannot be guessed, and is written as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(u64);

impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for HoldId {
    type Err = Fault;

    fn from_str(text: &str) -> Result<HoldId, Fault> {
        let is_id = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_id.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        number.map(HoldId).ok_or(Fault::Malformed("a reservation is 16 hexadecimal digits, as it was answered".into()))
    }
}

/// The reservations that are open.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    open: Mutex<Open>,
    secret: RandomState,
}

#[derive(Debug, Default)]
struct Open {
    holds: HashMap<HoldId, Hold>,
    /// The same in the order in which their time runs out.
    by_end: BTreeSet<(Time, HoldId)>,
    count: u64,
}

impl Holds {
    /// Whether there is room for another one. What has run out makes room.
    pub(crate) fn has_room(&self, now: Time) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.drop_expired(now);
        open.holds.len() < MOST
    }

    pub(crate) fn keep(&self, hold: Hold) -> HoldId {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.count += 1;
        let id = HoldId(self.secret.hash_one(open.count));
        open.by_end.insert((hold.expires(), id));
        open.holds.insert(id, hold);
        id
    }

    /// # Errors
    /// There is no such reservation, or there is no longer.
    pub(crate) fn take(&self, id: HoldId, now: Time) -> Result<Hold, Fault> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.drop_expired(now);
        let hold = open.holds.remove(&id).ok_or(Fault::NoReservation)?;
        open.by_end.remove(&(hold.expires(), id));
        Ok(hold)
    }

    pub(crate) fn len(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).holds.len()
    }
}

impl Open {
    /// Whoever has not settled by then has used what was estimated.
    fn drop_expired(&mut self, now: Time) {
        while let Some((end, id)) = self.by_end.first().copied().filter(|(end, _)| *end < now) {
            self.by_end.remove(&(end, id));
            self.holds.remove(&id);
        }
    }
}
