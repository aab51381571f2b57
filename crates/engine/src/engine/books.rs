//! What this host knows of what clients have spent.

use crate::ledger::Ledger;
use tollgate_limit::Table;

/// The buckets of this host, and what it has to tell those whom it counts together with.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) table: Table,
    pub(crate) ledger: Ledger,
}
