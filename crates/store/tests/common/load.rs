//! Decisions at an even rate while something happens to the store, and what became of them.

#![allow(dead_code, reason = "no test uses all of it")]

use crate::common::{PATIENCE, now, pause};
use crate::machine::Machine;
use crate::notes::Notes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tollgate::{Clock, Engine, Request, RuleSet, Sharing, Source, Step, Value, Verdict};
use tollgate_store::{Config, Fingerprint, Snapshot, Store};

/// How decisions come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// So many at once,
    pub(crate) count: u64,
    /// and then nothing for so long.
    pub(crate) every: Duration,
}

impl Pace {
    /// How many come in that time.
    fn in_time(self, time: Duration) -> u64 {
        (self.count as f64 * time.div_duration_f64(self.every)) as u64
    }
}

/// 5,000 a second.
pub(crate) const BUSY: Pace = Pace { count: 5, every: Duration::from_millis(1) };

/// A fifth of that.
pub(crate) const CALM: Pace = Pace { count: 1, every: Duration::from_millis(1) };

/// Bursts with pauses that are longer than the budget.
pub(crate) const BURSTS: Pace = Pace { count: 15, every: Duration::from_millis(4) };

/// How many ask.
pub(crate) const USERS: u64 = 100;

/// The promise, and what is allowed where others use the machine, too.
const LONGEST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT_LOADED: Duration = Duration::from_millis(10);
const LONGEST_RECOVERY: Duration = Duration::from_secs(1);
pub(crate) const MOST_WAITING: u64 = 20;

/// Whatever is held up for longer than this says that the machine is busy: an answer takes half a millisecond, and is late after
/// two. Connections may rest by that for a while.
const LATE: Duration = Duration::from_micros(1_500);
const UNREST: Duration = Duration::from_millis(100);

const RULES: &str = "
namespace: n
rules:
  - name: all
    match: { op: all }
    key: [user]
    limits: [1000000 per second, 1000000 per minute using fixed-window]
    shared: store-exact
  - { name: exact, match: { op: exact }, key: [], limits: [100 per second burst 50], shared: store-exact }
  - { name: lease, match: { op: lease }, key: [], limits: [100 per second burst 50], shared: store-lease }
  - { name: store, match: { op: store }, key: [], limits: [100 per second burst 50], shared: store }
";

/// Those who ask for more than they are allowed, each by another mode, and what that is.
const GREEDY: [&str; 3] = ["exact", "lease", "store"];
const GREEDY_RATE: f64 = 100.0;
const GREEDY_BURST: f64 = 50.0;

/// How one decision went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) took: Duration,
    pub(crate) is_degraded: bool,
    /// Who asked.
    pub(crate) user: u64,
}

impl Sample {
    /// Whoever does not wait is decided in much less than a millisecond.
    fn is_in_vain(&self) -> bool {
        self.is_degraded && self.took > Duration::from_millis(1)
    }
}

/// How things stood.
#[derive(Debug)]
pub(crate) struct Moment {
    pub(crate) at: Instant,
    pub(crate) stats: Snapshot,
}

/// Decisions at an even rate, for as long as this lives. Two of these at once would measure each other.
pub(crate) struct Load {
    runtime: Runtime,
    pub(crate) store: Store,
    _sharing: Sharing,
    samples: Notes<Sample>,
    /// When each of the greedy was let through.
    admitted: [Notes<Instant>; GREEDY.len()],
    machine: Machine,
    pace: Pace,
    connects: Notes<(Instant, u64)>,
    is_over: Arc<AtomicBool>,
}

impl Load {
    pub(crate) fn start(config: Config, pace: Pace) -> Load {
        let runtime = Machine::runtime(2);
        let rules = RuleSet::parse(&[Source::new("rules", RULES)]).unwrap();
        let clock = Clock::system();
        let engine = Arc::new(Engine::builder().accounts(4_096).build(rules, clock.now()));
        let sharing = runtime.block_on(async { Sharing::start(&engine, clock.clone(), config) });
        let load = Load {
            store: sharing.store().clone(),
            _sharing: sharing,
            machine: Machine::watch(),
            pace,
            runtime,
            samples: Notes::new(),
            admitted: std::array::from_fn(|_| Notes::new()),
            connects: Notes::new(),
            is_over: Arc::default(),
        };
        let asker = Asker { engine, store: load.store.clone(), clock };
        load.spawn_greedy(&asker);
        load.spawn_decisions(asker);
        load.spawn_watch();
        load
    }

    fn spawn_decisions(&self, asker: Asker) {
        let (pace, samples, is_over) = (self.pace, self.samples.pen(), Arc::clone(&self.is_over));
        self.runtime.spawn(async move {
            let mut ticks = ticks(pace.every);
            for number in 0_u64.. {
                ticks.tick().await;
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                for part in 0..pace.count {
                    let (asker, samples) = (asker.clone(), samples.clone());
                    tokio::spawn(async move {
                        let user = (number * 7 + part) % USERS;
                        let at = now();
                        let verdict = asker.ask("all", &user.to_string()).await;
                        let took = at.elapsed();
                        // It may come too late to be noted.
                        let _ = samples.send(Sample { at, took, is_degraded: verdict.is_degraded(), user });
                    });
                }
            }
        });
    }

    /// Each of them more than three times as often as it is allowed.
    fn spawn_greedy(&self, asker: &Asker) {
        for (mode, admitted) in GREEDY.iter().zip(&self.admitted) {
            let (asker, admitted, is_over) = (asker.clone(), admitted.pen(), Arc::clone(&self.is_over));
            self.runtime.spawn(async move {
                let mut ticks = ticks(Duration::from_millis(3));
                while !is_over.load(Ordering::Relaxed) {
                    ticks.tick().await;
                    let (asker, admitted) = (asker.clone(), admitted.clone());
                    tokio::spawn(async move {
                        if asker.ask(mode, "greedy").await.is_allowed() {
                            let _ = admitted.send(now());
                        }
                    });
                }
            });
        }
    }

    fn spawn_watch(&self) {
        let (store, connects, is_over) = (self.store.clone(), self.connects.pen(), Arc::clone(&self.is_over));
        self.runtime.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let _ = connects.send((now(), store.stats().connects));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment { at: now(), stats: self.store.stats() }
    }

    /// Waits until nearly all decisions are made by the store, and says how long that took.
    pub(crate) fn wait_for_store(&self) -> Recovery {
        self.wait_for(|_| true)
    }

    /// The same for decisions about some of those who ask.
    pub(crate) fn wait_for(&self, is_meant: impl Fn(u64) -> bool) -> Recovery {
        let start = now();
        while start.elapsed() < PATIENCE {
            pause(Duration::from_millis(10));
            let mut meant: Vec<Sample> =
                self.samples.read().all.iter().rev().take_while(|sample| sample.at + UNREST > start).copied().collect();
            meant.retain(|sample| sample.at >= start && is_meant(sample.user));
            meant.sort_by_key(|sample| sample.at);
            if let Some(at) = first_of_many(&meant, self.quiet()) {
                return Recovery { took: at - start, lateness: self.machine.lateness(start) };
            }
        }
        panic!("the store is not found again: {:?}, {:?}", self.store.trouble(), self.store.stats());
    }

    /// Waits until nearly all decisions are, which may take a few minutes where others use the machine.
    pub(crate) fn wait_until_steady(&self) {
        let start = now();
        while start.elapsed() < 5 * PATIENCE {
            let samples = self.samples.read();
            let last = samples.all.iter().rev().take(1_000);
            if samples.all.len() > 1_000 && last.filter(|sample| sample.is_degraded).count() < 20 {
                return;
            }
            drop(samples);
            pause(Duration::from_millis(10));
        }
        panic!("this machine is too busy: {:?}, {:?}", self.store.trouble(), self.store.stats());
    }

    /// How many decisions were made since then about those who are meant, and how many of them without the store.
    pub(crate) fn degraded(&self, since: Instant, is_meant: impl Fn(u64) -> bool) -> (usize, usize) {
        self.count(|sample| sample.at >= since && is_meant(sample.user))
    }

    /// The same without what was decided while the machine was late, or soon after: connections rest by it for a while, which
    /// says nothing about the store.
    pub(crate) fn undisturbed(&self, since: Instant, is_meant: impl Fn(u64) -> bool) -> (usize, usize) {
        let is_quiet = self.quiet();
        self.count(|sample| sample.at >= since && is_meant(sample.user) && is_quiet(sample.at))
    }

    /// Whether the machine was not late at some time, nor shortly before.
    fn quiet(&self) -> impl Fn(Instant) -> bool + use<> {
        let late = self.machine.disturbances(LATE);
        move |at| !late.iter().any(|(from, to)| *from < at + LATE && at < *to + UNREST)
    }

    /// How many decisions about those who are meant waited in vain since then, unless it was the machine that held them up.
    pub(crate) fn in_vain(&self, since: Instant, is_meant: impl Fn(u64) -> bool) -> u64 {
        self.in_vain_between(since, now(), is_meant)
    }

    /// The same until some time.
    pub(crate) fn in_vain_between(&self, since: Instant, to: Instant, is_meant: impl Fn(u64) -> bool) -> u64 {
        let is_held_up = self.held_up();
        let is_counted =
            |sample: &Sample| (since..to).contains(&sample.at) && is_meant(sample.user) && !is_held_up(sample);
        self.count(|sample| sample.is_in_vain() && is_counted(sample)).0 as u64
    }

    /// Whether the machine was late while somebody waited, or right before.
    fn held_up(&self) -> impl Fn(&Sample) -> bool + use<> {
        let late = self.machine.disturbances(LATE);
        move |sample| late.iter().any(|(from, to)| *from < sample.at + sample.took && sample.at < *to + LATE)
    }

    fn count(&self, is_meant: impl Fn(&Sample) -> bool) -> (usize, usize) {
        let samples = self.samples.read();
        let meant: Vec<&Sample> = samples.all.iter().filter(|sample| is_meant(sample)).collect();
        (meant.len(), meant.iter().filter(|sample| sample.is_degraded).count())
    }

    /// What happened from when something broke until now, and how many waited before it was mended.
    pub(crate) fn report(&self, broken: &Moment, mended: &Moment) -> Report {
        let since = broken.at;
        let samples = self.samples.read();
        let mut decisions: Vec<&Sample> = samples.all.iter().filter(|sample| sample.at >= since).collect();
        decisions.sort_by_key(|decision| decision.took);
        let of_hundred = |percent: usize| decisions.get((decisions.len() - 1) * percent / 100).unwrap().took;
        let over = decisions.iter().filter(|decision| decision.took > LONGEST_WAIT);
        let held_up = |decision: &&&Sample| self.machine.held_up(decision.at, decision.at + decision.took);
        Report {
            decisions: decisions.len(),
            degraded: decisions.iter().filter(|decision| decision.is_degraded).count(),
            most_take: of_hundred(99),
            longest: of_hundred(100),
            over: over.map(|decision| (decision.took, held_up(&decision))).collect(),
            lateness: self.machine.lateness(since),
            most_at_once: most_at_once(&decisions),
            came_meanwhile: self.pace.in_time(self.machine.lateness(since)),
            waited: in_vain(&mended.stats) - in_vain(&broken.stats),
            failed: mended.stats.failed - broken.stats.failed,
            waited_in_all: in_vain(&self.store.stats()) - in_vain(&broken.stats),
            connects_per_second: self.connects_per_second(since),
            admitted: self
                .admitted
                .each_ref()
                .map(|admitted| admitted.read().all.iter().filter(|at| **at >= since).count()),
            seconds: since.elapsed().as_secs_f64(),
        }
    }

    /// The most in any second.
    fn connects_per_second(&self, since: Instant) -> u64 {
        let connects = self.connects.read();
        let each = connects.all.iter().filter(|(at, _)| *at >= since);
        let before = |at: Instant| connects.all.iter().rev().find(|(then, _)| *then + Duration::from_secs(1) <= at);
        each.map(|(at, count)| count - before(*at).map_or(0, |(_, count)| *count)).max().unwrap_or(0)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) decisions: usize,
    pub(crate) degraded: usize,
    /// At the most, of 99 in 100.
    pub(crate) most_take: Duration,
    pub(crate) longest: Duration,
    /// Decisions that took longer than promised, each with by how much the machine held it up.
    pub(crate) over: Vec<(Duration, Duration)>,
    pub(crate) lateness: Duration,
    /// How many waited in vain at the same time, and how many come while the machine holds up everything.
    pub(crate) most_at_once: u64,
    pub(crate) came_meanwhile: u64,
    /// How many waited in vain while the fault lasted: the store hung up or was late.
    pub(crate) waited: u64,
    /// How many were answered by an error.
    pub(crate) failed: u64,
    /// How many waited in vain until all was over: the machine may have hiccups.
    pub(crate) waited_in_all: u64,
    pub(crate) connects_per_second: u64,
    /// How often each of the greedy was let through, in so many seconds.
    pub(crate) admitted: [usize; GREEDY.len()],
    pub(crate) seconds: f64,
}

impl Report {
    /// Where the machine holds up nothing, nothing takes too long; otherwise that comes on top. And whatever happens, few wait in
    /// vain, and nobody is allowed too much.
    pub(crate) fn assert_nobody_waits(&self, story: &str) {
        assert!(self.most_take <= LONGEST_WAIT, "{story}: {self:?}");
        for (took, held_up) in &self.over {
            let longest = if *held_up < LATE { LONGEST_WAIT } else { LONGEST_WAIT_LOADED };
            assert!(*took <= longest + *held_up, "{story}: {took:?}, held up by {held_up:?}: {self:?}");
        }
        assert!(self.most_at_once <= MOST_WAITING + self.came_meanwhile, "{story}: {self:?}");
        assert!(self.waited_in_all <= MOST_WAITING + self.decisions as u64 / 20, "{story}: {self:?}");
        assert!(self.connects_per_second <= 10, "{story}: {self:?}");
    }

    /// Each of the greedy, who had spent all of its burst before, has had what has come in since then, and as many bursts as the
    /// store has forgotten; and what this host had in hand of it, which is a quarter at the most.
    pub(crate) fn assert_limits_hold(&self, forgotten: u32, story: &str) {
        let most = GREEDY_BURST * f64::from(forgotten) + GREEDY_RATE * self.seconds;
        for (admitted, mode) in self.admitted.iter().zip(GREEDY) {
            assert!(*admitted as f64 <= most + GREEDY_BURST / 4.0, "{story}: {mode}: {admitted} of {most}: {self:?}");
        }
    }

    pub(crate) fn assert_hardly_anybody_waits(&self, story: &str) {
        self.assert_nobody_waits(story);
        assert!(self.waited <= MOST_WAITING, "{story}: {self:?}");
    }
}

/// How many waited in vain at the same time.
fn most_at_once(decisions: &[&Sample]) -> u64 {
    let waits = decisions.iter().filter(|one| one.is_in_vain());
    let mut changes: Vec<(Instant, i64)> = waits.flat_map(|one| [(one.at, 1), (one.at + one.took, -1)]).collect();
    changes.sort_unstable();
    let counts = changes.iter().scan(0, |count: &mut i64, (_, change)| {
        *count += change;
        Some(*count)
    });
    counts.max().unwrap_or(0).unsigned_abs()
}

fn in_vain(stats: &Snapshot) -> u64 {
    stats.late + stats.lost
}

/// How long it took until the store was used again.
#[derive(Debug)]
pub(crate) struct Recovery {
    took: Duration,
    /// By how much the machine was late meanwhile.
    lateness: Duration,
}

impl Recovery {
    pub(crate) fn assert_is_soon(&self, story: &str) {
        assert!(self.took <= LONGEST_RECOVERY + self.lateness, "{story}: {self:?}");
    }
}

/// When a tenth of a second begins in which nearly all decisions are made by the store that the machine does not disturb.
fn first_of_many(samples: &[Sample], is_quiet: impl Fn(Instant) -> bool) -> Option<Instant> {
    let last = samples.last()?.at;
    let is_first = |(place, first): &(usize, &Sample)| {
        let end = first.at + Duration::from_millis(100);
        let window = samples.iter().skip(*place).take_while(|sample| sample.at < end);
        let are_most_by_store = || {
            let undisturbed: Vec<&Sample> = window.clone().filter(|sample| is_quiet(sample.at)).collect();
            undisturbed.iter().filter(|sample| sample.is_degraded).count() * 20 <= undisturbed.len()
        };
        !first.is_degraded && end <= last && are_most_by_store()
    };
    samples.iter().enumerate().find(is_first).map(|(_, first)| first.at)
}

/// Whoever asks.
#[derive(Clone)]
struct Asker {
    engine: Arc<Engine>,
    store: Store,
    clock: Clock,
}

impl Asker {
    async fn ask(&self, op: &str, user: &str) -> Verdict {
        let attributes = [("op", Value::Text(op)), ("user", Value::Text(user))];
        self.engine.check_with(&self.store, &Request::new("n", &attributes), self.clock.now()).await
    }
}

fn ticks(every: Duration) -> Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// Of decisions that nothing disturbed one in fifty may be made without the store. A few of them say nothing.
pub(crate) fn assert_hardly_any((all, degraded): (usize, usize), story: &str) {
    assert!(all < 1_000 || degraded <= all / 50, "{story}: {degraded} of {all}");
}

/// The slots of a cluster that the states of those who ask are in.
pub(crate) fn slots(config: &Config) -> Vec<u16> {
    let clock = Clock::system();
    let engine = Engine::new(RuleSet::parse(&[Source::new("rules", RULES)]).unwrap(), clock.now());
    let slot = |user: u64| {
        let name = user.to_string();
        let attributes = [("op", Value::Text("all")), ("user", Value::Text(&name))];
        match engine.begin(&Request::new("n", &attributes), clock.now()) {
            Step::Ask(pending) => {
                let question = pending.questions().first().unwrap();
                Fingerprint::new(question.limit_id, &question.client).slot(&config.prefix)
            }
            Step::Done(verdict) => panic!("{verdict:?}"),
        }
    };
    (0..USERS).map(slot).collect()
}
