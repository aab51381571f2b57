//! A host that decides by itself about limits that it shares.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads clocks")]

use super::load::Cost;
use crate::server::process::{Server, own_processor_time, total};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tollgate::store::Config;
use tollgate::{Request, RuleSet, Source, Tollgate};

/// Decisions between two looks at the clock.
const BATCH: u64 = 1_000;

/// A host with one rule that is never exceeded.
pub struct Host {
    tollgate: Tollgate,
}

/// What a decision cost, and how often the store was asked for it.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub cost: Cost,
    pub calls: f64,
}

impl Host {
    pub async fn start(address: SocketAddr, shared: &str) -> Host {
        let limits = "[100000000 per second]";
        let rules =
            format!("namespace: bench\nrules: [{{ name: users, key: [user], limits: {limits}, shared: {shared} }}]\n");
        let rules = RuleSet::parse(&[Source::new("rules", &*rules)]).expect("rules");
        let patient = Duration::from_secs(5);
        let config = Config { budget: patient, connect_timeout: patient, ..Config::new(address.to_string()) };
        let tollgate = Tollgate::builder().store(config).build(rules);
        while tollgate.engine().ledger().is_cut_off() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Host { tollgate }
    }

    async fn decide(&self) {
        let attributes = [("user", "alice".into())];
        let verdict = self.tollgate.decide(&Request::new("bench", &attributes)).await;
        assert!(verdict.is_allowed() && !verdict.is_degraded(), "{verdict:?}");
    }

    fn calls(&self) -> u64 {
        self.tollgate.sharing().map_or(0, |sharing| sharing.store().stats().answered)
    }
}

/// Decides one request after the other for a while.
pub fn measure_host(runtime: &Handle, host: &Host, server: &Server, lasts: Duration) -> Load {
    let before = (total(&server.processor_time()), total(&own_processor_time()), host.calls());
    let decisions = runtime.block_on(async {
        let (start, mut decisions) = (Instant::now(), 0);
        while start.elapsed() < lasts {
            for _ in 0..BATCH {
                host.decide().await;
            }
            decisions += BATCH;
            tokio::task::yield_now().await;
        }
        decisions as f64
    });
    let micros = |before: u64, after: u64| (after - before) as f64 / 1_000.0 / decisions;
    let store = micros(before.0, total(&server.processor_time()));
    let client = micros(before.1, total(&own_processor_time()));
    Load { cost: Cost { store, client }, calls: (host.calls() - before.2) as f64 / decisions }
}
