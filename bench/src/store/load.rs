//! The load: tasks that each always have a decision under way, as the requests of a service do.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads clocks")]

use super::limiter::Limiter;
use crate::server::process::{Server, own_processor_time, total};
use crate::workload::{KeyBuffer, Random};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Decisions under way at any time.
const TASKS: u64 = 50;

/// What a decision took on each side, in microseconds of processor time.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub store: f64,
    pub client: f64,
}

impl Cost {
    pub fn both(&self) -> f64 {
        self.store + self.client
    }
}

/// Asks about every client once, so that all of them are known.
pub fn fill(runtime: &Handle, limiter: &Arc<Limiter>, clients: u64) {
    let next = Arc::new(AtomicU64::new(0));
    let tasks = (0..TASKS).map(|_| {
        let (limiter, next) = (Arc::clone(limiter), Arc::clone(&next));
        runtime.spawn(async move {
            let mut key = KeyBuffer::default();
            loop {
                let client = next.fetch_add(1, Ordering::Relaxed);
                if client >= clients {
                    return;
                }
                assert!(limiter.decide(key.write(client)).await, "client {client} is refused");
            }
        })
    });
    wait_for(runtime, tasks.collect());
}

/// Asks about random ones of so many clients for a while.
pub fn measure(runtime: &Handle, limiter: &Arc<Limiter>, server: &Server, clients: u64, lasts: Duration) -> Cost {
    let before = (total(&server.processor_time()), total(&own_processor_time()));
    let end = Instant::now() + lasts;
    let decisions = Arc::new(AtomicU64::new(0));
    let tasks = (0..TASKS).map(|number| {
        let (limiter, decisions) = (Arc::clone(limiter), Arc::clone(&decisions));
        runtime.spawn(async move {
            let (mut key, mut random, mut decided) = (KeyBuffer::default(), Random(number), 0);
            while Instant::now() < end {
                let client = random.draw() % clients;
                assert!(limiter.decide(key.write(client)).await, "client {client} is refused");
                decided += 1;
            }
            decisions.fetch_add(decided, Ordering::Relaxed);
        })
    });
    wait_for(runtime, tasks.collect());
    let decisions = decisions.load(Ordering::Relaxed) as f64;
    let micros = |before: u64, after: u64| (after - before) as f64 / 1_000.0 / decisions;
    Cost {
        store: micros(before.0, total(&server.processor_time())),
        client: micros(before.1, total(&own_processor_time())),
    }
}

fn wait_for(runtime: &Handle, tasks: Vec<tokio::task::JoinHandle<()>>) {
    for task in tasks {
        runtime.block_on(task).expect("a task that decides");
    }
}
