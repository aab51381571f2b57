//! How much the machine itself holds up what runs on it. Where others use it, too, that says nothing about what is tested.

use crate::common::{now, pause};
use crate::notes::Notes;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// The threads that are watched.
const NAME: &str = "load";

/// How often processors and threads are looked at, and what is not worth mentioning there.
const LOOK: Duration = Duration::from_millis(1);
const TRIFLE: Duration = Duration::from_micros(300);

/// Who was held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// A thread of the runtime, or all that runs on a processor.
    Ours,
    /// A server that this process has started.
    Server,
}

#[derive(Clone, Copy, Debug)]
struct Delay {
    whose: Whose,
    by: Duration,
    /// When that was seen, up to one look after it was over.
    to: Instant,
}

impl Delay {
    fn from(&self) -> Instant {
        self.to - self.by
    }
}

/// Watches for as long as it lives.
pub(crate) struct Machine {
    delays: Notes<Delay>,
    is_over: Arc<AtomicBool>,
}

impl Machine {
    /// A runtime whose threads can be watched.
    pub(crate) fn runtime(threads: usize) -> Runtime {
        Builder::new_multi_thread().worker_threads(threads).thread_name(NAME).enable_all().build().unwrap()
    }

    /// Watches the threads that there are by now. Nothing of this runs on the runtime itself: what that holds up is its own fault.
    pub(crate) fn watch() -> Machine {
        let machine = Machine { delays: Notes::new(), is_over: Arc::default() };
        let processors = sched_getaffinity(None).unwrap();
        for processor in (0..CpuSet::MAX_CPU).filter(|processor| processors.is_set(*processor)) {
            machine.watch_processor(processor);
        }
        machine.watch_threads();
        machine
    }

    /// A thread that sleeps on a processor is woken in time, unless the processor is not there.
    fn watch_processor(&self, processor: usize) {
        let (delays, is_over) = (self.delays.pen(), Arc::clone(&self.is_over));
        std::thread::spawn(move || {
            let mut only = CpuSet::new();
            only.set(processor);
            sched_setaffinity(None, &only).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                let from = now();
                pause(LOOK);
                note(&delays, Whose::Ours, from.elapsed().saturating_sub(LOOK));
            }
        });
    }

    /// The system counts for how long threads wait until there is a processor for them.
    fn watch_threads(&self) {
        let (delays, is_over) = (self.delays.pen(), Arc::clone(&self.is_over));
        std::thread::spawn(move || {
            let ours = our_threads().into_iter().map(|file| (Whose::Ours, file, Duration::MAX));
            let servers = servers().into_iter().map(|file| (Whose::Server, file, Duration::MAX));
            let mut threads: Vec<(Whose, File, Duration)> = ours.chain(servers).collect();
            while !is_over.load(Ordering::Relaxed) {
                for (whose, file, before) in &mut threads {
                    let waited = waited(file);
                    // It is counted when the waiting is over.
                    note(&delays, *whose, waited.saturating_sub(*before));
                    *before = waited;
                }
                pause(LOOK);
            }
        });
    }

    /// For how much of that time something of ours was held up. A decision is made by several threads in turn, so that what holds up
    /// one and then another adds up.
    pub(crate) fn held_up(&self, from: Instant, to: Instant) -> Duration {
        let delays = self.delays.read();
        let ours = delays.all.iter().filter(|one| one.whose == Whose::Ours);
        let mut ours: Vec<(Instant, Instant)> =
            ours.map(|one| (one.from().max(from), one.to.min(to + LOOK))).filter(|(from, to)| from < to).collect();
        ours.sort();
        let (mut sum, mut seen) = (Duration::ZERO, from);
        for (from, to) in ours {
            sum += to.saturating_duration_since(from.max(seen));
            seen = seen.max(to);
        }
        sum.min(to - from)
    }

    /// The most since then.
    pub(crate) fn lateness(&self, since: Instant) -> Duration {
        let delays = self.delays.read();
        delays.all.iter().filter(|one| one.to >= since).map(|one| one.by).max().unwrap_or_default()
    }

    /// When anything of ours or a server was held up for longer than so much.
    pub(crate) fn disturbances(&self, longer: Duration) -> Vec<(Instant, Instant)> {
        let delays = self.delays.read();
        delays.all.iter().filter(|one| one.by > longer).map(|one| (one.from() - LOOK, one.to)).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn note(delays: &Sender<Delay>, whose: Whose, by: Duration) {
    if by > TRIFLE {
        // Nobody may be interested any more.
        let _ = delays.send(Delay { whose, by, to: now() });
    }
}

fn tasks() -> Vec<PathBuf> {
    std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path()).collect()
}

/// What the system says of each thread of the runtime.
fn our_threads() -> Vec<File> {
    let is_ours = |name: String| name.trim_end() == NAME;
    let ours = tasks().into_iter().filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(is_ours));
    ours.map(|task| File::open(task.join("schedstat")).unwrap()).collect()
}

/// And of the first thread of each process that this one has started, which is the one that answers.
fn servers() -> Vec<File> {
    let children = tasks().into_iter().filter_map(|task| std::fs::read_to_string(task.join("children")).ok());
    let each = |children: String| children.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    children.flat_map(each).filter_map(|child| File::open(format!("/proc/{child}/schedstat")).ok()).collect()
}

/// The second number: nanoseconds.
fn waited(statistics: &File) -> Duration {
    let mut text = [0; 64];
    // A thread that has ended says nothing.
    let count = statistics.read_at(&mut text, 0).unwrap_or(0);
    let text = std::str::from_utf8(text.get(..count).unwrap_or_default()).unwrap_or_default();
    Duration::from_nanos(text.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0))
}
