//! Which bucket an account is of, and what it is found by.

use super::purse::Era;
use tollgate_limit::Limit;
use tollgate_rules::model::{ErrorBudget, Shared};

/// The tag of an account that nobody has, and of one that is being closed.
pub(super) const FREE: u64 = 0;
pub(super) const CLOSING: u64 = u64::MAX;

/// Which bucket an account is of.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// The limit, the same on every host.
    pub limit_id: u64,
    /// The client's key, [encoded](tollgate_rules::identity::Key::encode).
    pub client: Box<[u8]>,
    /// How much is allowed.
    pub limit: Limit,
    /// How hosts count together.
    pub shared: Shared,
    /// What all of them may hide.
    pub error_budget: ErrorBudget,
    /// Whether this host counts its share while the others cannot be reached.
    pub(crate) counts_here: bool,
    /// The client's fingerprint on this host.
    pub(crate) fingerprint: u64,
}

impl Account {
    /// Where this host counts it.
    pub fn bucket(&self) -> (u64, u64) {
        (self.limit_id, self.fingerprint)
    }

    /// What it is found by.
    pub(crate) fn entry(&self) -> Entry {
        Entry::new(self.bucket(), self.shared)
    }
}

/// What an account is found by: a bucket, and how it is shared. When a rule says otherwise from now on, what is in the account
/// of before is still told, or given back, as it was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry(pub(super) u64);

impl Entry {
    #[inline]
    pub(crate) fn new((limit_id, fingerprint): (u64, u64), shared: Shared) -> Entry {
        let mode: u64 = match shared {
            Shared::Local | Shared::Cluster | Shared::Store => 0,
            Shared::StoreExact => 0x9e37_79b9,
            Shared::StoreLease => 0x7f4a_7c15,
        };
        // Evenly distributed, since nobody outside knows the fingerprint.
        let mixed = (fingerprint ^ limit_id.rotate_left(32) ^ mode).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Entry((mixed ^ mixed >> 32 ^ limit_id).clamp(FREE + 1, CLOSING - 1))
    }
}

/// An account's number, and whose it was when that was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AccountId {
    pub(super) index: u32,
    pub(super) era: Era,
    pub(super) tag: u64,
}
