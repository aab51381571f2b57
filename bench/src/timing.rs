//! Timing several contestants on a machine that is never quiet.

use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Nanoseconds per operation of each contestant, and how many times faster the first one was than each.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub nanos: Vec<f64>,
    pub ratios: Vec<f64>,
}

/// Runs the contestants in turn, several rounds over, so that whatever else the machine does hits all of them,
/// and takes the medians. The ratio is the median of the rounds' ratios.
pub fn compare(rounds: usize, operations: usize, contestants: &mut [&mut dyn FnMut()]) -> Comparison {
    contestants.iter_mut().for_each(|run| run());
    let rounds: Vec<Vec<f64>> =
        (0..rounds).map(|_| contestants.iter_mut().map(|run| time(operations, run)).collect()).collect();
    let column = |pick: &dyn Fn(&[f64]) -> f64| median(rounds.iter().map(|round| pick(round)).collect());
    Comparison {
        nanos: (0..contestants.len()).map(|index| column(&|round| round[index])).collect(),
        ratios: (0..contestants.len()).map(|index| column(&|round| round[index] / round[0])).collect(),
    }
}

fn time(operations: usize, run: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / operations as f64
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Runs `work` on so many threads, which all begin at the same time, each with its number.
pub fn on_threads(threads: usize, work: impl Fn(usize) + Sync) {
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
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
    let took = start.elapsed();
    let mut worst_idle = Duration::ZERO;
    let (start, mut last) = (Instant::now(), Instant::now());
    while start.elapsed() < took {
        let now = Instant::now();
        worst_idle = worst_idle.max(now - last);
        last = now;
    }
    Worst { call: worst_call, idle: worst_idle }
}

/// How long one call took.
pub fn timed<R>(call: impl FnOnce() -> R) -> Duration {
    let start = Instant::now();
    std::hint::black_box(call());
    start.elapsed()
}
