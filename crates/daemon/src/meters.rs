//! What front ends have done, counted.

use crate::fault::Fault;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How somebody asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// As Redis clients do.
    Resp,
    /// As Envoy does.
    Grpc,
    /// As everybody can.
    Http,
}

impl Protocol {
    /// All there are.
    pub const ALL: [Protocol; 3] = [Protocol::Resp, Protocol::Grpc, Protocol::Http];

    /// What metrics and logs call it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Resp => "resp",
            Protocol::Grpc => "grpc",
            Protocol::Http => "http",
        }
    }
}

/// Counters of one protocol.
#[derive(Debug, Default)]
pub struct Meter {
    /// Connections that were accepted.
    pub accepted: AtomicU64,
    /// Connections that were turned away: too many of one peer's, or no proper TLS.
    pub turned_away: AtomicU64,
    /// Connections that are open.
    pub open: AtomicU64,
    /// Questions that were answered, be it with a fault.
    pub questions: AtomicU64,
    faults: Mutex<BTreeMap<&'static str, u64>>,
}

impl Meter {
    /// Counts so many questions.
    pub fn asked(&self, questions: u64) {
        self.questions.fetch_add(questions, Ordering::Relaxed);
    }

    /// Counts a fault.
    pub fn fault(&self, fault: &Fault) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner).entry(fault.name()).or_default() += 1;
    }

    /// How many faults there were, by name.
    pub fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The counters of all protocols.
#[derive(Debug, Default)]
pub struct Meters([Meter; 3]);

impl Meters {
    /// Those of one.
    pub fn of(&self, protocol: Protocol) -> &Meter {
        let [resp, grpc, http] = &self.0;
        match protocol {
            Protocol::Resp => resp,
            Protocol::Grpc => grpc,
            Protocol::Http => http,
        }
    }
}
