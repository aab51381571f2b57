//! What the benchmarks share: workloads, fair timing, and how results are shown.

pub mod chart;
pub mod memory;
pub mod report;
pub mod rules;
pub mod server;
#[cfg(feature = "store")]
pub mod store;
pub mod timing;
pub mod workload;
