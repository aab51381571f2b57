//! What the benchmarks share: workloads, fair timing, and how results are shown.

pub mod chart;
pub mod memory;
pub mod report;
pub mod rules;
pub mod server;
pub mod timing;
pub mod workload;
