//! Decisions at an even rate while something happens to the store, and what became of them.

#![allow(dead_code, reason = "no test uses all of it")]

use crate::common::{PATIENCE, now, pause};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tollgate::{Clock, Engine, Request, RuleSet, Source, Step, Value};
use tollgate_store::{Config, Fingerprint, Store};

/// Decisions a millisecond.
pub(crate) const RATE: u64 = 5;

/// How many ask.
pub(crate) const USERS: u64 = 100;

/// The promise, and what is allowed where others use the machine, too.
const LONGEST_WAIT: Duration = Duration::from_millis(10);
const USUAL_WAIT: Duration = Duration::from_millis(5);
pub(crate) const LONGEST_RECOVERY: Duration = Duration::from_secs(1);
const MOST_WAITING: u64 = 20;

/// A timer that is later than this says that the machine is busy, and connections may be lost by that for a while.
const LATE: Duration = Duration::from_millis(3);
const UNREST: Duration = Duration::from_millis(800);

const RULES: &str = "
namespace: n
rules:
  - { name: a, key: [user], limits: [1000000 per second, 1000000 per minute using fixed-window], shared: store-exact, on_failure: local }
";

/// How one decision went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) took: Duration,
    pub(crate) is_degraded: bool,
    /// Who asked.
    pub(crate) user: u64,
}

/// Decisions at an even rate, for as long as this lives.
pub(crate) struct Load {
    runtime: Runtime,
    pub(crate) store: Store,
    samples: Arc<Mutex<Vec<Sample>>>,
    /// By how much timers are late that nothing but the machine holds up.
    lateness: Arc<Mutex<Vec<Sample>>>,
    connects: Arc<Mutex<Vec<(Instant, u64)>>>,
    is_over: Arc<AtomicBool>,
    /// Two of these at once would measure each other.
    _alone: MutexGuard<'static, ()>,
}

impl Load {
    /// So many a millisecond.
    pub(crate) fn start(config: Config, rate: u64) -> Load {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let store = runtime.block_on(async { Store::open(config) });
        let load = Load {
            store,
            runtime,
            samples: Arc::default(),
            lateness: Arc::default(),
            connects: Arc::default(),
            is_over: Arc::default(),
            _alone: alone,
        };
        load.spawn_decisions(rate);
        for _ in 0..12 {
            load.spawn_control();
        }
        load.spawn_watch();
        load
    }

    fn spawn_decisions(&self, rate: u64) {
        let rules = RuleSet::parse(&[Source::new("rules", RULES)]).unwrap();
        let clock = Clock::system();
        let engine = Arc::new(Engine::new(rules, clock.now()));
        let (store, samples, is_over) = (self.store.clone(), Arc::clone(&self.samples), Arc::clone(&self.is_over));
        self.runtime.spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(1));
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            for number in 0_u64.. {
                ticks.tick().await;
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                for part in 0..rate {
                    let (store, engine, clock) = (store.clone(), Arc::clone(&engine), clock.clone());
                    let samples = Arc::clone(&samples);
                    tokio::spawn(async move {
                        let user = (number * 7 + part) % USERS;
                        let name = user.to_string();
                        let attributes = [("user", Value::Text(&name))];
                        let at = now();
                        let verdict = engine.check_with(&store, &Request::new("n", &attributes), clock.now()).await;
                        let is_degraded = verdict.checks().iter().any(|check| check.is_degraded);
                        samples.lock().unwrap().push(Sample { at, took: at.elapsed(), is_degraded, user });
                    });
                }
            }
        });
    }

    fn spawn_control(&self) {
        let (lateness, is_over) = (Arc::clone(&self.lateness), Arc::clone(&self.is_over));
        self.runtime.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let at = now();
                tokio::time::sleep(Duration::from_millis(3)).await;
                let took = at.elapsed().saturating_sub(Duration::from_millis(3));
                lateness.lock().unwrap().push(Sample { at, took, is_degraded: false, user: 0 });
            }
        });
    }

    fn spawn_watch(&self) {
        let (store, connects, is_over) = (self.store.clone(), Arc::clone(&self.connects), Arc::clone(&self.is_over));
        self.runtime.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                connects.lock().unwrap().push((now(), store.stats().connects));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }

    /// Waits until decisions are made by the store, and says how long that took.
    pub(crate) fn wait_for_store(&self) -> Duration {
        self.wait_for(|_| true)
    }

    /// The same for decisions about some of those who ask.
    pub(crate) fn wait_for(&self, is_meant: impl Fn(u64) -> bool) -> Duration {
        let start = now();
        while start.elapsed() < PATIENCE {
            let answered = |sample: &Sample| sample.at >= start && !sample.is_degraded && is_meant(sample.user);
            if let Some(sample) = self.samples.lock().unwrap().iter().rev().take(500).rev().find(|s| answered(s)) {
                return sample.at - start;
            }
            pause(Duration::from_millis(1));
        }
        panic!("the store is not found again: {:?}, {:?}", self.store.trouble(), self.store.stats());
    }

    /// Waits until nearly all decisions are, which may take a few minutes where others use the machine.
    pub(crate) fn wait_until_steady(&self) {
        let start = now();
        while start.elapsed() < 5 * PATIENCE {
            let samples = self.samples.lock().unwrap();
            let last = samples.iter().rev().take(1_000);
            if samples.len() > 1_000 && last.filter(|sample| sample.is_degraded).count() < 20 {
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

    /// The same without what was decided while the machine was late, or soon after: connections are lost by it and take a
    /// while to be made again, which says nothing about the store.
    pub(crate) fn undisturbed(&self, since: Instant, is_meant: impl Fn(u64) -> bool) -> (usize, usize) {
        let late = |sample: &Sample| (sample.took > LATE).then_some(sample.at);
        let late: Vec<Instant> = self.lateness.lock().unwrap().iter().filter_map(late).collect();
        let is_quiet = |at: Instant| !late.iter().any(|late| *late < at + LATE && at < *late + UNREST);
        self.count(|sample| sample.at >= since && is_meant(sample.user) && is_quiet(sample.at))
    }

    fn count(&self, is_meant: impl Fn(&Sample) -> bool) -> (usize, usize) {
        let samples = self.samples.lock().unwrap();
        let meant: Vec<&Sample> = samples.iter().filter(|sample| is_meant(sample)).collect();
        (meant.len(), meant.iter().filter(|sample| sample.is_degraded).count())
    }

    /// What happened since then.
    pub(crate) fn report(&self, since: Instant) -> Report {
        let took = |samples: &Mutex<Vec<Sample>>| {
            let samples = samples.lock().unwrap();
            let mut took: Vec<Duration> = samples.iter().filter(|s| s.at >= since).map(|s| s.took).collect();
            took.sort_unstable();
            took
        };
        let (decisions, lateness) = (took(&self.samples), took(&self.lateness));
        let of_hundred = |percent: usize| *decisions.get((decisions.len() - 1) * percent / 100).unwrap();
        let degraded = self.samples.lock().unwrap().iter().filter(|s| s.at >= since && s.is_degraded).count();
        Report {
            decisions: decisions.len(),
            degraded,
            most_take: of_hundred(99),
            longest: *decisions.last().unwrap(),
            lateness: *lateness.last().unwrap(),
            most_at_once: self.most_at_once(since),
            connects_per_second: self.connects_per_second(since),
        }
    }

    /// How many waited in vain at the same time.
    fn most_at_once(&self, since: Instant) -> u64 {
        let samples = self.samples.lock().unwrap();
        let waits = samples.iter().filter(|s| s.at >= since && s.is_degraded && s.took > Duration::from_millis(1));
        let mut changes: Vec<(Instant, i64)> = waits.flat_map(|s| [(s.at, 1), (s.at + s.took, -1)]).collect();
        changes.sort_unstable();
        let counts = changes.iter().scan(0_i64, |count, (_, change)| {
            *count += change;
            Some(*count)
        });
        counts.max().unwrap_or(0).unsigned_abs()
    }

    /// The most in any second.
    fn connects_per_second(&self, since: Instant) -> u64 {
        let connects = self.connects.lock().unwrap();
        let each = connects.iter().filter(|(at, _)| *at >= since);
        let before = |at: Instant| connects.iter().rev().find(|(then, _)| *then + Duration::from_secs(1) <= at);
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
    /// 99 of 100.
    pub(crate) most_take: Duration,
    pub(crate) longest: Duration,
    pub(crate) lateness: Duration,
    pub(crate) most_at_once: u64,
    pub(crate) connects_per_second: u64,
}

impl Report {
    /// Whether nothing but what happened to the store has held anybody up.
    pub(crate) fn is_undisturbed(&self) -> bool {
        self.lateness <= LATE
    }

    /// The machine itself is late at times, which says nothing about the store.
    pub(crate) fn assert_nobody_waits(&self, story: &str) {
        assert!(self.most_take <= USUAL_WAIT + self.lateness, "{story}: {self:?}");
        assert!(self.longest <= LONGEST_WAIT + 2 * self.lateness, "{story}: {self:?}");
        let came_meanwhile = RATE * u64::try_from(self.lateness.as_millis()).unwrap();
        assert!(self.most_at_once <= MOST_WAITING + came_meanwhile, "{story}: {self:?}");
        assert!(self.connects_per_second <= 10, "{story}: {self:?}");
    }
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
        match engine.begin(&Request::new("n", &[("user", Value::Text(&name))]), clock.now()) {
            Step::Ask(pending) => {
                let question = pending.questions().first().unwrap();
                Fingerprint::new(question.limit_id, &question.client).slot(&config.prefix)
            }
            Step::Done(verdict) => panic!("{verdict:?}"),
        }
    };
    (0..USERS).map(slot).collect()
}
