//! Timing several contestants on a machine that is never quiet.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads clocks")]

use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Nanoseconds per operation of each contestant, and how many times faster the first one was than each.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub nanos: Vec<f64>,
    pub ratios: Vec<f64>,
}

/// How the rounds of a contestant become one figure.
#[derive(Clone, Copy, Debug)]
pub enum Of {
    /// Of one thread the fastest round: whatever else the machine does can only make a round slower.
    OneThread,
    /// Of several threads the median: the fastest round is the one in which they met least.
    Threads,
}

/// Runs the contestants in turn, several rounds over.
pub fn compare(of: Of, (rounds, operations): (usize, usize), contestants: &mut [&mut dyn FnMut()]) -> Comparison {
    contestants.iter_mut().for_each(|run| run());
    let mut times = vec![Vec::new(); contestants.len()];
    for _ in 0..rounds {
        for (times, run) in times.iter_mut().zip(contestants.iter_mut()) {
            times.push(time(operations, run));
        }
    }
    let nanos: Vec<f64> = times.into_iter().map(|times| figure(of, times)).collect();
    let ratios = nanos.iter().map(|other| other / nanos[0]).collect();
    Comparison { nanos, ratios }
}

fn figure(of: Of, mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    match of {
        Of::OneThread => times[0],
        Of::Threads => times[times.len() / 2],
    }
}

fn time(operations: usize, run: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / operations as f64
}

/// Runs `work` on so many threads, which all begin at the same time, each with its number and on a core of its own:
/// two that take turns on one core never meet. A single one is the caller's: to start another would be measured too.
pub fn on_threads(threads: usize, work: impl Fn(usize) + Sync) {
    if threads == 1 {
        return work(0);
    }
    let start = Barrier::new(threads);
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (start, work, core) = (&start, &work, cores.get(thread).copied());
            scope.spawn(move || {
                core.map(core_affinity::set_for_current);
                start.wait();
                work(thread);
            });
        }
    });
}

/// The longest that one of many calls took, beside the longest that a loop of nothing took in the same time.
#[derive(Clone, Copy, Debug)]
pub struct Worst {
    pub call: Duration,
    pub idle: Duration,
}

impl Worst {
    pub fn beyond_idle(&self) -> Duration {
        self.call.saturating_sub(self.idle)
    }
}

/// Times every call of `calls` calls; `call` is given its number. Then idles for as long as they took.
pub fn worst(calls: u64, mut call: impl FnMut(u64) -> Duration) -> Worst {
    let start = Instant::now();
    let worst_call = (0..calls).map(&mut call).max().unwrap_or_default();
    Worst { call: worst_call, idle: worst_idle(start.elapsed()) }
}

/// The longest that a turn of a loop of nothing takes in such a time.
pub fn worst_idle(during: Duration) -> Duration {
    let mut worst = Duration::ZERO;
    let (start, mut last) = (Instant::now(), Instant::now());
    while start.elapsed() < during {
        let now = Instant::now();
        worst = worst.max(now - last);
        last = now;
    }
    worst
}

/// How long one call took.
pub fn timed<R>(call: impl FnOnce() -> R) -> Duration {
    let start = Instant::now();
    std::hint::black_box(call());
    start.elapsed()
}
