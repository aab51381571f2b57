//! Who may owe something, each once, in the order in which that was noticed.

use crate::ledger::AccountId;
use std::collections::{HashSet, VecDeque};

#[derive(Debug, Default)]
pub(super) struct Debtors {
    queue: VecDeque<AccountId>,
    known: HashSet<AccountId>,
}

impl Debtors {
    pub(super) fn add(&mut self, id: AccountId) {
        if self.known.insert(id) {
            self.queue.push_back(id);
        }
    }

    /// Takes the next one out.
    pub(super) fn next(&mut self) -> Option<AccountId> {
        let id = self.queue.pop_front()?;
        self.known.remove(&id);
        Some(id)
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
