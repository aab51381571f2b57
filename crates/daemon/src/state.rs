use std::hash::RandomState;
use tollgate::{Capacity, Engine, Table, Time, Tollgate};

/// What all front ends share: the rules, and the buckets of those who bring their own rates.
#[derive(Debug)]
pub struct State {
    tollgate: Tollgate,
    buckets: Table,
}

impl State {
    /// With these rules, and room for so many keys that bring their own rate.
    pub fn new(tollgate: Tollgate, keys: usize) -> State {
        State { tollgate, buckets: Table::new(Capacity::Keys(keys), &RandomState::new()) }
    }

    /// What decides by rules.
    pub fn engine(&self) -> &Engine {
        self.tollgate.engine()
    }

    /// The buckets of `CL.THROTTLE`.
    pub fn buckets(&self) -> &Table {
        &self.buckets
    }

    /// The only clock there is.
    pub fn now(&self) -> Time {
        self.tollgate.clock().now()
    }
}
