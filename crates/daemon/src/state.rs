mod turn;

pub use turn::{Turn, at_once};

use crate::access::Access;
use crate::holds::{HoldId, Holds};
use crate::meters::Meters;
use crate::otlp::Tracer;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tollgate::{Capacity, Engine, Table, Time, Tollgate, Verdict};

/// A reservation runs out after this, unless its client says otherwise, and after an hour at the latest.
pub const RESERVED_FOR: Duration = Duration::from_secs(60);
const LONGEST_RESERVATION: Duration = Duration::from_secs(3600);

/// What all front ends share: the rules, and the buckets of those who bring their own rates.
#[derive(Debug)]
pub struct State {
    tollgate: Tollgate,
    buckets: Table,
    holds: Holds,
    access: Access,
    meters: Meters,
    tracer: Option<Tracer>,
    started: Time,
    is_stopping: AtomicBool,
}

/// What came of a reservation.
#[derive(Debug)]
pub enum Reserved {
    /// It is open.
    Open {
        /// What to settle it by.
        id: HoldId,
        /// How long to wait before going ahead.
        wait: Duration,
        /// Whether those were not asked whom a limit is shared with.
        is_degraded: bool,
    },
    /// Nothing was taken, and this is why.
    Refused(Box<Verdict>),
}

impl State {
    /// With these rules, room for so many keys that bring their own rate, and these tokens for strangers.
    pub fn new(tollgate: Tollgate, keys: usize, access: Access) -> State {
        State {
            started: tollgate.clock().now(),
            tollgate,
            buckets: Table::new(Capacity::Keys(keys), &RandomState::new()),
            holds: Holds::default(),
            access,
            meters: Meters::default(),
            tracer: None,
            is_stopping: AtomicBool::new(false),
        }
    }

    /// The same, with some questions traced.
    #[must_use]
    pub fn with_tracer(self, tracer: Tracer) -> State {
        State { tracer: Some(tracer), ..self }
    }

    /// Traces questions, if they are to be.
    pub fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// When counting began.
    pub fn started(&self) -> Time {
        self.started
    }

    /// What decides by rules.
    pub fn engine(&self) -> &Engine {
        self.tollgate.engine()
    }

    /// The rules and where they are from.
    pub fn tollgate(&self) -> &Tollgate {
        &self.tollgate
    }

    /// The buckets of `CL.THROTTLE`.
    pub fn buckets(&self) -> &Table {
        &self.buckets
    }

    /// The only clock there is.
    pub fn now(&self) -> Time {
        self.tollgate.clock().now()
    }

    /// Who may ask from elsewhere.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// What the front ends have done.
    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Whether new questions had better go elsewhere.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Says so from now on.
    pub fn begin_to_stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// How many reservations are open.
    pub fn open_reservations(&self) -> usize {
        self.holds.len()
    }
}
