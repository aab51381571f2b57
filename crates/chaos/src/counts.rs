use std::sync::atomic::{AtomicU64, Ordering};

/// What a proxy has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were taken.
    pub connections: u64,
    /// Connections that were reset on purpose.
    pub reset: u64,
    /// Connections that were ended in the midst of what the server said.
    pub cut: u64,
    /// Bytes of streams that were handed on, both ways.
    pub bytes: u64,
    /// Datagrams that came, both ways.
    pub datagrams: u64,
    /// Datagrams that were lost.
    pub lost: u64,
    /// Datagrams that were sent twice.
    pub duplicated: u64,
    /// Copies of datagrams that were kept back for others to overtake.
    pub reordered: u64,
}

/// The same, counting.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: Counter,
    pub(crate) reset: Counter,
    pub(crate) cut: Counter,
    pub(crate) bytes: Counter,
    pub(crate) datagrams: Counter,
    pub(crate) lost: Counter,
    pub(crate) duplicated: Counter,
    pub(crate) reordered: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn read(&self) -> Counts {
        Counts {
            connections: self.connections.read(),
            reset: self.reset.read(),
            cut: self.cut.read(),
            bytes: self.bytes.read(),
            datagrams: self.datagrams.read(),
            lost: self.lost.read(),
            duplicated: self.duplicated.read(),
            reordered: self.reordered.read(),
        }
    }
}
