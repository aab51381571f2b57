//! The library beside governor and throttlecrab: the same loops, in one run, as ratios.

use governor::clock::{Clock as GovernorClock, MonotonicClock, QuantaClock, QuantaUpkeepClock};
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{DefaultKeyedRateLimiter, Quota as GovernorQuota};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use throttlecrab::{AdaptiveStore, RateLimiter as Throttlecrab};
use tollgate::{Capacity, Clock, KeyedRateLimiter, RateLimiter};
use tollgate_bench::chart::{Bars, svg};
use tollgate_bench::memory::resident;
use tollgate_bench::report::{Row, Section, all_reached, processor, progress};
use tollgate_bench::timing::{Comparison, Of, Worst, compare, on_threads, timed, worst};
use tollgate_bench::workload::{key, uniform, zipf};

type Governor = DefaultKeyedRateLimiter<String>;
type GovernorUnkeyed<C> =
    governor::RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<<C as GovernorClock>::Instant>>;

/// Refills so slowly that every client keeps owing, and bursts so far that none is refused.
const ALLOWING: (&str, u32, u32) = ("1 per minute burst 100000", 1, 100_000);
/// Lets each client through once.
const REFUSING: (&str, u32, u32) = ("1 per minute burst 1", 1, 1);

/// How much is measured.
struct Effort {
    /// Rounds, and requests in each of them.
    unkeyed: (usize, usize),
    keyed: (usize, usize),
    tries: usize,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [what, who, clients] = arguments.as_slice()
        && what == "--memory-of"
    {
        print!("{}", memory_of(who, clients.parse().unwrap_or(0)));
        return ExitCode::SUCCESS;
    }
    let full = arguments.iter().any(|argument| argument == "--full");
    let check = arguments.iter().any(|argument| argument == "--check");
    if let Some(unknown) = arguments.iter().find(|argument| !["--full", "--check"].contains(&argument.as_str())) {
        eprintln!("unknown option {unknown}; there are --full and --check");
        return ExitCode::from(2);
    }
    let effort = if full {
        Effort { unkeyed: (100, 1_000_000), keyed: (21, 1_000_000), tries: 5 }
    } else {
        Effort { unkeyed: (15, 1_000_000), keyed: (9, 400_000), tries: 3 }
    };
    let sections = [unkeyed(&effort), keyed(&effort), memory(), stalls(&effort)];
    write_docs(&sections, full);
    let reached = all_reached(&sections);
    ExitCode::from(u8::from(check && !reached))
}

/// Requests refused and allowed at one limit, by kind of clock.
fn unkeyed(effort: &Effort) -> Section {
    let mut section = Section::new(
        "One limit for everybody",
        "Clocks of the same kind on both sides: the system's, the processor's counter, one noted down by a thread. \
         The clock is nearly all there is to measure. Two threads on one limit fight for one cache line.",
        &["tollgate", "governor", "ratio"],
    );
    let interval = Duration::from_millis(1);
    let upkeep = QuantaUpkeepClock::from_interval(interval).expect("the only upkeep thread");
    unkeyed_rows(&mut section, effort, "system clock", &Clock::system(), &MonotonicClock);
    unkeyed_rows(&mut section, effort, "counter", &Clock::fast(), &QuantaClock::default());
    unkeyed_rows(&mut section, effort, "cached clock", &Clock::cached(interval), &upkeep);
    bare_swap(&mut section, effort);
    section
}

fn unkeyed_rows<C: GovernorClock + Clone>(section: &mut Section, effort: &Effort, name: &str, clock: &Clock, theirs: &C)
where
    C::Instant: Send + Sync,
    GovernorUnkeyed<C>: Sync,
{
    let (_, requests) = effort.unkeyed;
    let fast = NonZeroU32::new(1_000_000_000).expect("not zero");
    let allowing = RateLimiter::builder("1000000000 per second".parse().expect("a quota")).clock(clock.clone()).build();
    let governor = GovernorUnkeyed::direct_with_clock(GovernorQuota::per_second(fast), theirs.clone());
    for threads in [1, 2] {
        let each = requests / threads;
        let compared = compare(
            if threads == 1 { Of::OneThread } else { Of::Threads },
            effort.unkeyed,
            &mut [
                &mut || {
                    on_threads(threads, |_| {
                        (0..each).for_each(|_| {
                            black_box(allowing.allow());
                        })
                    })
                },
                &mut || {
                    on_threads(threads, |_| {
                        (0..each).for_each(|_| {
                            black_box(governor.check().is_ok());
                        })
                    })
                },
            ],
        );
        section.push(compared_row(format!("allowed, {name}, {}", counted(threads, "thread")), &compared, Some(1.0)));
    }
    let refusing = RateLimiter::builder("1 per hour".parse().expect("a quota")).clock(clock.clone()).build();
    let governor = GovernorUnkeyed::direct_with_clock(GovernorQuota::per_hour(NonZeroU32::MIN), theirs.clone());
    let compared = compare(
        Of::OneThread,
        effort.unkeyed,
        &mut [
            &mut || {
                (0..requests).for_each(|_| {
                    black_box(refusing.allow());
                })
            },
            &mut || {
                (0..requests).for_each(|_| {
                    black_box(governor.check().is_ok());
                })
            },
        ],
    );
    section.push(compared_row(format!("refused, {name}, 1 thread"), &compared, Some(1.0)));
}

/// What two threads on one word cost at the least.
fn bare_swap(section: &mut Section, effort: &Effort) {
    let word = AtomicU64::new(0);
    let (_, requests) = effort.unkeyed;
    let each = requests / 2;
    let swap = || {
        let mut before = word.load(Ordering::Acquire);
        while let Err(now) = word.compare_exchange_weak(before, before + 1, Ordering::AcqRel, Ordering::Acquire) {
            before = now;
        }
    };
    let compared =
        compare(Of::Threads, effort.unkeyed, &mut [&mut || on_threads(2, |_| (0..each).for_each(|_| swap()))]);
    let cells = vec![format!("{:.1} ns", compared.nanos[0]), String::new(), String::new()];
    section.push(Row { work: "bare compare-and-swap, 2 threads".into(), cells, target: String::new(), reached: None });
}

/// A limit per client.
fn keyed(effort: &Effort) -> Section {
    let mut section = Section::new(
        "A limit for every client",
        "Keys are strings of 20 bytes; the clock is read on every call (once per batch), from the same kind of source on \
         all sides but throttlecrab's, which is given the system's time and knows no threads. Every client owes \
         something all the time, so that the table is as full as it is rated for.",
        &["tollgate", "governor", "ratio", "throttlecrab", "ratio"],
    );
    for (clients, target) in [(1, 1.5), (10_000, 1.5)] {
        let requests = uniform(effort.keyed.1, clients);
        let limiters = Limiters::new(clients, ALLOWING, true);
        section.push(limiters.allowed(effort, &format!("{}, uniform", counted(clients, "key")), &requests, 1, target));
    }
    million(effort, &mut section);
    let clients = 5_000_000;
    progress("filling 5 M keys");
    let limiters = Limiters::new(clients, ALLOWING, true);
    let requests = uniform(effort.keyed.1, clients);
    section.push(limiters.allowed(effort, "5 M keys, uniform", &requests, 1, 2.0));
    section
}

fn million(effort: &Effort, section: &mut Section) {
    let clients = 1_000_000;
    let requests = uniform(effort.keyed.1, clients);
    let skewed = zipf(effort.keyed.1, clients);
    progress("filling 1 M keys");
    let limiters = Limiters::new(clients, ALLOWING, true);
    section.push(limiters.allowed(effort, "1 M keys, uniform", &requests, 1, 2.0));
    section.push(limiters.allowed(effort, "1 M keys, uniform", &requests, 2, 2.5));
    section.push(limiters.allowed(effort, "1 M keys, zipf 0.99", &skewed, 1, 1.8));
    section.push(limiters.allowed(effort, "1 M keys, zipf 0.99", &skewed, 2, 1.8));
    section.push(limiters.batched(effort, &requests));
    let hot = vec![key(1); effort.keyed.1];
    section.push(Row { target: String::new(), reached: None, ..limiters.allowed(effort, "1 hot key", &hot, 2, 0.0) });
    drop(limiters);
    progress("filling 1 M keys that are refused");
    let limiters = Limiters::new(clients, REFUSING, true);
    section.push(limiters.allowed(effort, "1 M keys, uniform, refused", &requests, 1, 2.0));
}

/// The three libraries, with every client known to each of them.
struct Limiters {
    tollgate: KeyedRateLimiter,
    governor: Governor,
    throttlecrab: std::sync::Mutex<Throttlecrab<AdaptiveStore>>,
    quota: (u32, u32),
}

impl Limiters {
    fn new(clients: usize, (quota, count, burst): (&str, u32, u32), fill: bool) -> Limiters {
        let store = AdaptiveStore::builder().capacity(clients).build();
        let limiters = Limiters {
            tollgate: KeyedRateLimiter::builder(quota.parse().expect("a quota"))
                .capacity(Capacity::Keys(clients.max(1000)))
                .build(),
            governor: Governor::keyed(governor_quota(count, burst)),
            throttlecrab: std::sync::Mutex::new(Throttlecrab::new(store)),
            quota: (count, burst),
        };
        if fill {
            let keys: Vec<String> = (0..clients as u64).map(key).collect();
            keys.iter().for_each(|key| {
                black_box(limiters.tollgate.allow(key.as_str()));
            });
            keys.iter().for_each(|key| {
                black_box(limiters.governor.check_key(key).is_ok());
            });
            limiters.throttle(&keys);
        }
        limiters
    }

    fn throttle(&self, requests: &[String]) {
        let mut limiter = self.throttlecrab.lock().expect("no panic");
        let (count, burst) = (i64::from(self.quota.0), i64::from(self.quota.1));
        for key in requests {
            #[expect(clippy::disallowed_methods, reason = "this is where throttlecrab's time comes from")]
            let _ = black_box(limiter.rate_limit(key, burst, count, 60, 1, SystemTime::now()));
        }
    }

    /// All requests, one by one, spread over the threads.
    fn allowed(&self, effort: &Effort, work: &str, requests: &[String], threads: usize, target: f64) -> Row {
        progress(work);
        let share = requests.len() / threads;
        let of = |thread: usize| &requests[thread * share..(thread + 1) * share];
        let tollgate = &mut || {
            on_threads(threads, |thread| {
                of(thread).iter().for_each(|key| {
                    black_box(self.tollgate.allow(key.as_str()));
                });
            })
        };
        let governor = &mut || {
            on_threads(threads, |thread| {
                of(thread).iter().for_each(|key| {
                    black_box(self.governor.check_key(key).is_ok());
                });
            })
        };
        let throttlecrab = &mut || self.throttle(requests);
        let compared = if threads == 1 {
            compare(Of::OneThread, (effort.keyed.0, requests.len()), &mut [tollgate, governor, throttlecrab])
        } else {
            compare(Of::Threads, (effort.keyed.0, requests.len()), &mut [tollgate, governor])
        };
        compared_row(format!("{work}, {}", counted(threads, "thread")), &compared, Some(target))
    }

    fn batched(&self, effort: &Effort, requests: &[String]) -> Row {
        progress("batches");
        let compared = compare(
            Of::OneThread,
            (effort.keyed.0, requests.len()),
            &mut [
                &mut || {
                    requests.chunks(16).for_each(|keys| {
                        self.tollgate.allow_many(keys, |_, allowed| {
                            black_box(allowed);
                        })
                    })
                },
                &mut || {
                    requests.iter().for_each(|key| {
                        black_box(self.governor.check_key(key).is_ok());
                    })
                },
                &mut || self.throttle(requests),
            ],
        );
        compared_row("1 M keys, uniform, batches of 16, 1 thread".into(), &compared, Some(4.0))
    }
}

fn governor_quota(count: u32, burst: u32) -> GovernorQuota {
    let [count, burst] = [count, burst].map(|number| NonZeroU32::new(number).expect("not zero"));
    GovernorQuota::per_minute(count).allow_burst(burst)
}

/// Resident bytes per client, each measured in a process of its own.
fn memory() -> Section {
    let mut section = Section::new(
        "Memory",
        "Resident bytes per client at the rated capacity, measured as the growth of a process of its own.",
        &["tollgate", "governor"],
    );
    for clients in [1_000_000_u64, 5_000_000] {
        progress("measuring memory");
        let [ours, theirs] = ["tollgate", "governor"].map(|who| ask_child(who, clients) as f64 / clients as f64);
        section.push(Row {
            work: format!("{} M clients", clients / 1_000_000),
            cells: vec![format!("{ours:.1} B"), format!("{theirs:.1} B")],
            target: "at most 26 B".into(),
            reached: Some(ours > 0.0 && ours <= 26.0),
        });
    }
    section
}

fn ask_child(who: &str, clients: u64) -> u64 {
    let this = std::env::current_exe().expect("the path of this program");
    let output = Command::new(this).args(["--memory-of", who, &clients.to_string()]).output().expect("a child");
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0)
}

fn memory_of(who: &str, clients: u64) -> u64 {
    let quota = ALLOWING;
    // Drops the names as it goes, as a service does.
    if who == "tollgate" {
        let clock = Clock::system();
        let before = resident();
        let capacity = Capacity::Keys(clients as usize);
        let limiter =
            KeyedRateLimiter::builder(quota.0.parse().expect("a quota")).capacity(capacity).clock(clock).build();
        (0..clients).for_each(|client| {
            black_box(limiter.allow(key(client).as_str()));
        });
        assert_eq!(
            limiter.table().occupied(Clock::system().now()) as u64 + limiter.table().forgotten().clients,
            clients
        );
        resident() - before
    } else {
        let before = resident();
        let limiter = Governor::keyed(governor_quota(quota.1, quota.2));
        (0..clients).for_each(|client| {
            black_box(limiter.check_key(&key(client)).is_ok());
        });
        let grown = resident() - before;
        drop(black_box(limiter));
        grown
    }
}

/// The worst single call, while clients come and while they come and go.
fn stalls(effort: &Effort) -> Section {
    let mut section = Section::new(
        "The worst single call",
        "Beside the worst that a loop of nothing suffers in the same time on the same machine. Of several tries the \
         best: what belongs to a limiter happens in each of them.",
        &["tollgate", "idle", "governor", "idle"],
    );
    let fill = |limiter: &KeyedRateLimiter| {
        worst(5_000_000, |client| {
            let key = key(client);
            timed(|| limiter.allow(key.as_str()))
        })
    };
    let ours = best(effort.tries, || {
        let quota = ALLOWING.0.parse().expect("a quota");
        fill(&KeyedRateLimiter::builder(quota).capacity(Capacity::Keys(5_000_000)).build())
    });
    let theirs = best(1, || {
        let governor = Governor::keyed(governor_quota(ALLOWING.1, ALLOWING.2));
        worst(5_000_000, |client| {
            let key = key(client);
            timed(|| governor.check_key(&key).is_ok())
        })
    });
    section.push(stall_row("filling to 5 M keys", ours, theirs));
    section.push(stall_row(
        "10 M keys that come and go",
        best(effort.tries, come_and_go),
        best(1, governor_come_and_go),
    ));
    section
}

/// Ten million clients that each ask once and are forgotten after a millisecond, with room for a million.
fn come_and_go() -> Worst {
    let quota = "1000 per second".parse().expect("a quota");
    let limiter = KeyedRateLimiter::builder(quota).capacity(Capacity::Keys(1_000_000)).build();
    worst(10_000_000, |client| {
        let key = key(client);
        timed(|| limiter.allow(key.as_str()))
    })
}

/// The same, cleaned up after every million clients as its documentation advises.
fn governor_come_and_go() -> Worst {
    let governor = Governor::keyed(GovernorQuota::per_second(NonZeroU32::new(1000).expect("not zero")));
    worst(10_000_000, |client| {
        if client % 1_000_000 == 999_999 {
            return timed(|| governor.retain_recent());
        }
        let key = key(client);
        timed(|| governor.check_key(&key).is_ok())
    })
}

fn best(tries: usize, mut run: impl FnMut() -> Worst) -> Worst {
    progress("looking for stalls");
    (0..tries).map(|_| run()).min_by_key(Worst::beyond_idle).expect("at least one try")
}

fn stall_row(work: &str, ours: Worst, theirs: Worst) -> Row {
    let millis = |duration: Duration| format!("{:.2} ms", duration.as_secs_f64() * 1e3);
    Row {
        work: work.into(),
        cells: vec![millis(ours.call), millis(ours.idle), millis(theirs.call), millis(theirs.idle)],
        target: "at most 1 ms beyond idle".into(),
        reached: Some(ours.beyond_idle() <= Duration::from_millis(1)),
    }
}

/// Nanoseconds of the first contestant, then of each other one with the ratio.
fn compared_row(work: String, compared: &Comparison, target: Option<f64>) -> Row {
    let mut cells = vec![format!("{:.1} ns", compared.nanos[0])];
    for (nanos, ratio) in compared.nanos.iter().zip(&compared.ratios).skip(1) {
        cells.extend([format!("{nanos:.1} ns"), format!("{ratio:.2}x")]);
    }
    let ratio = compared.ratios[1];
    Row {
        work,
        cells,
        target: target.map(|target| format!("{target:.1}x")).unwrap_or_default(),
        // As it is printed, to the second decimal.
        reached: target.map(|target| (ratio * 100.0).round() >= target * 100.0),
    }
}

fn counted(number: usize, what: &str) -> String {
    let number_text = if number >= 1000 { format!("{} k", number / 1000) } else { number.to_string() };
    format!("{number_text} {what}{}", if number == 1 { "" } else { "s" })
}

const INSTRUCTIONS: &str = concat!(
    "## Instructions\n\nPer decision, without the clock, counted by `bench/run instructions`:\n\n```text\n",
    include_str!("../../instructions.txt"),
    "```\n"
);

fn write_docs(sections: &[Section], full: bool) {
    let command = if full { "bench/run library --full" } else { "bench/run library" };
    let tables: Vec<String> = sections.iter().map(Section::markdown).collect();
    let text = format!(
        "# Performance\n\nWritten by `{command}`, on {}. Every row is measured in one run, side by side, contestant by \
         contestant in turn; of each contestant the fastest of several rounds (with two threads the median); ratios are \
         above 1 where Tollgate is faster.\n\n![Nanoseconds per decision](performance.svg)\n\n{}\n{INSTRUCTIONS}",
        processor(),
        tables.join("\n")
    );
    let bars = sections.iter().filter(|section| section.columns.len() == 5).flat_map(|section| &section.rows).map(bars);
    let picture = svg(&["tollgate", "governor", "throttlecrab"], &bars.collect::<Vec<_>>());
    for (name, content) in [("performance.md", text), ("performance.svg", picture)] {
        let path = format!("{}/../docs/{name}", env!("CARGO_MANIFEST_DIR"));
        match std::fs::write(path, content) {
            Ok(()) => println!("written to docs/{name}"),
            Err(error) => eprintln!("cannot write docs/{name}: {error}"),
        }
    }
}

/// The cells of a row that are times.
fn bars(row: &Row) -> Bars {
    let nanos = row.cells.iter().filter_map(|cell| cell.strip_suffix(" ns")?.parse().ok()).collect();
    Bars { work: row.work.clone(), nanos }
}
