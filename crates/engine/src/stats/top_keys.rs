use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// How many keys are watched.
const ENTRIES: usize = 16;

/// What an entry's hash is before there is a key.
const VACANT: u64 = 0;

/// The keys that were added most often, in bounded memory: the space-saving of Metwally, Agrawal and El Abbadi.
///
/// Sixteen keys are watched. One that is not takes the place of the least frequent, and its count as well. So of `n`
/// additions no count is too low, and none is too high by more than `n / 16`, nor by more than its
/// [`error`](TopKey::error); each key with more than `n / 16` of the additions is among them.
///
/// Counting a watched key is an addition without a lock. To change which keys are watched takes a lock that nobody
/// waits for: who finds it taken goes on uncounted, which [`missed`](Self::missed) tells, and a key's count may be too
/// low by as many. What other threads count for a key between the choice of its place and the takeover is inherited
/// like the rest, so that the error, which says so, may then exceed `n / 16`.
#[derive(Debug)]
pub struct TopKeys {
    /// Apart from the counts, so that looking for a key reads two cache lines that seldom change.
    hashes: [AtomicU64; ENTRIES],
    counts: [AtomicU64; ENTRIES],
    missed: AtomicU64,
    /// Whoever holds it may write to `hashes`.
    owners: Mutex<[Owner; ENTRIES]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Owner {
    name: KeyName,
    /// What the count was when the key came.
    inherited: u64,
}

/// A key that is often refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKey {
    /// What it is called, shortened and without control characters.
    pub name: String,
    /// How often it was added, at most.
    pub count: u64,
    /// By how much the count may be too high.
    pub error: u64,
}

impl Default for TopKeys {
    fn default() -> TopKeys {
        TopKeys {
            hashes: std::array::from_fn(|_| AtomicU64::new(VACANT)),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            missed: AtomicU64::new(0),
            owners: Mutex::default(),
        }
    }
}

impl TopKeys {
    /// Counts a key, known by its hash. `name` is only called if it has to be learned.
    pub fn add(&self, hash: u64, name: impl FnOnce(&mut KeyName)) {
        let hash = if hash == VACANT { !VACANT } else { hash };
        if self.count(hash) {
            return;
        }
        match self.owners.try_lock() {
            Ok(owners) => self.admit(hash, name, owners),
            Err(TryLockError::Poisoned(owners)) => self.admit(hash, name, owners.into_inner()),
            Err(TryLockError::WouldBlock) => _ = self.missed.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The keys that are watched, the most frequent first.
    pub fn snapshot(&self) -> Vec<TopKey> {
        // Waits only for writers, who never wait for anybody.
        let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let taken = self.hashes.iter().map(|hash| hash.load(Ordering::Relaxed) != VACANT);
        let mut top: Vec<TopKey> = owners
            .iter()
            .zip(counts)
            .zip(taken)
            .filter(|&(_, taken)| taken)
            .map(|((owner, count), _)| TopKey { name: owner.name.to_string(), count, error: owner.inherited })
            .collect();
        drop(owners);
        top.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        top
    }

    /// How many additions were left out, as the list was being changed by somebody else.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Counts a key that is watched.
    ///
    /// The key may lose its place between the look at the hash and the addition. Then [`admit`](Self::admit) wrote the
    /// new hash before it added to the count itself. Either our addition came before that one, and was part of what
    /// the new key inherited; or after, and acquires the new hash, sees that it counted for somebody else, and takes
    /// it back.
    fn count(&self, hash: u64) -> bool {
        let mut entries = self.hashes.iter().zip(&self.counts);
        let Some((owner, count)) = entries.find(|(owner, _)| owner.load(Ordering::Relaxed) == hash) else {
            return false;
        };
        count.fetch_add(1, Ordering::AcqRel);
        let still_there = owner.load(Ordering::Relaxed) == hash;
        if !still_there {
            count.fetch_sub(1, Ordering::AcqRel);
        }
        still_there
    }

    /// Gives a key the place of the least frequent one.
    #[cold]
    fn admit(&self, hash: u64, name: impl FnOnce(&mut KeyName), mut owners: MutexGuard<'_, [Owner; ENTRIES]>) {
        // Somebody else may have done it in between.
        if self.count(hash) {
            return;
        }
        let mut rendered = KeyName::default();
        name(&mut rendered);
        let entries = self.hashes.iter().zip(&self.counts).zip(owners.iter_mut());
        let least = entries.min_by_key(|((_, count), _)| count.load(Ordering::Relaxed));
        if let Some(((place, count), owner)) = least {
            // In this order; see `count`.
            place.store(hash, Ordering::Relaxed);
            let inherited = count.fetch_add(1, Ordering::AcqRel);
            *owner = Owner { name: rendered, inherited };
        }
    }
}

/// How many bytes of a name are kept.
const NAME_BYTES: usize = 62;

/// The name of a key, for people: what fits of it, and question marks for control characters, as clients may send
/// anything and operators look at it in a terminal.
///
/// ```
/// use std::fmt::Write;
/// use tollgate::stats::KeyName;
///
/// let mut name = KeyName::default();
/// write!(name, "user={}", "bob\n")?;
/// assert_eq!(name.to_string(), "user=bob?");
/// # Ok::<(), std::fmt::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct KeyName {
    bytes: [u8; NAME_BYTES],
    len: u8,
    /// Whether there was more.
    cut: bool,
}

impl Default for KeyName {
    fn default() -> KeyName {
        KeyName { bytes: [0; NAME_BYTES], len: 0, cut: false }
    }
}

impl KeyName {
    /// Whether there was room for the character; once there was not, there is for no other.
    fn push(&mut self, character: char) -> bool {
        let character = if character.is_control() { '?' } else { character };
        let room = self.bytes.get_mut(usize::from(self.len)..).unwrap_or_default();
        match room.get_mut(..character.len_utf8()) {
            Some(room) if !self.cut => {
                self.len += character.encode_utf8(room).len() as u8;
                true
            }
            _ => {
                self.cut = true;
                false
            }
        }
    }
}

/// Fails where the name has to be cut, which spares the caller the rest, and is no reason to stop.
impl Write for KeyName {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.chars().all(|character| self.push(character)) { Ok(()) } else { Err(fmt::Error) }
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        f.write_str(std::str::from_utf8(bytes).unwrap_or_default())?;
        if self.cut { f.write_char('…') } else { Ok(()) }
    }
}
