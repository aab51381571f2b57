//! One noisy client and three polite ones at the same limit, live.
//!
//! `cargo run --release --example demo` takes ten seconds; with `-- --fast` the time is a virtual one.

use std::io::{self, Write};
use std::time::Duration;
use tollgate::{Clock, KeyedRateLimiter, Quota, RateLimiter};

const QUOTA: &str = "20 per second burst 20";
const SECONDS: u32 = 10;
const TICKS_PER_SECOND: u32 = 20;
const TICKS_PER_LINE: u32 = TICKS_PER_SECOND / 2;

/// Who asks, how often, and what came of it.
struct Client {
    name: &'static str,
    requests_per_second: u32,
    now: Count,
    total: Count,
}

/// Requests by what was said to them.
#[derive(Clone, Copy, Default)]
struct Count {
    allowed: usize,
    refused: usize,
}

fn clients() -> [Client; 4] {
    let client = |(name, requests_per_second)| Client {
        name,
        requests_per_second,
        now: Count::default(),
        total: Count::default(),
    };
    [("noisy", 60), ("alice", 4), ("bob", 10), ("carol", 18)].map(client)
}

impl Client {
    /// Sends the requests that are due at this tick.
    fn ask(&mut self, limiter: &KeyedRateLimiter, tick: u32) {
        let due_by = |tick| tick * self.requests_per_second / TICKS_PER_SECOND;
        for _ in due_by(tick)..due_by(tick + 1) {
            match limiter.allow(self.name) {
                true => self.now.allowed += 1,
                false => self.now.refused += 1,
            }
        }
    }

    /// Prints what came of the requests since the last time.
    fn report(&mut self, tick: u32, out: &mut impl Write) -> io::Result<()> {
        let Count { allowed, refused } = std::mem::take(&mut self.now);
        self.total.allowed += allowed;
        self.total.refused += refused;
        let seconds = f64::from(tick + 1) / f64::from(TICKS_PER_SECOND);
        let bar = "█".repeat(allowed) + &"░".repeat(refused);
        writeln!(out, "{seconds:4.1} s  {:<5}  {allowed:>2} allowed  {refused:>2} refused  {bar}", self.name)
    }

    fn sum_up(&self, out: &mut impl Write) -> io::Result<()> {
        let Count { allowed, refused } = self.total;
        let rate = allowed as f64 / f64::from(SECONDS);
        writeln!(out, "{:<6}  {:>5}  {allowed:>7}  {refused:>7}  {rate:>18.1}", self.name, allowed + refused)
    }
}

/// Shows the clients at the limit, until `out` does not want to hear any more. `next_tick` lets time pass.
fn run(clock: Clock, mut next_tick: impl FnMut(), out: &mut impl Write) -> io::Result<()> {
    let quota: Quota = QUOTA.parse().map_err(io::Error::other)?;
    let limiter = KeyedRateLimiter::builder(quota).clock(clock).build();
    let mut clients = clients();
    writeln!(out, "Four clients, each allowed {quota}. One of them asks for three times as much.")?;
    for tick in 0..SECONDS * TICKS_PER_SECOND {
        next_tick();
        clients.iter_mut().for_each(|client| client.ask(&limiter, tick));
        if (tick + 1) % TICKS_PER_LINE == 0 {
            writeln!(out)?;
            clients.iter_mut().try_for_each(|client| client.report(tick, out))?;
        }
    }
    writeln!(out, "\nclient  asked  allowed  refused  allowed per second")?;
    clients.iter().try_for_each(|client| client.sum_up(out))?;
    what_next(out)
}

fn what_next(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nWhat to try next:")?;
    writeln!(out, "  another QUOTA at the top of crates/engine/examples/demo.rs, as \"5 per second burst 40\"")?;
    writeln!(out, "  the same in no time, on a virtual clock: cargo run --release --example demo -- --fast")?;
    writeln!(out, "  what else a limiter can be asked:        cargo doc --open --package tollgate")
}

/// Ten seconds of the machine's clock, paced by a limiter.
fn live(out: &mut impl Write) -> io::Result<()> {
    let tick = Duration::from_secs(1) / TICKS_PER_SECOND;
    let pace = Quota::new(1, tick).map(RateLimiter::new).map_err(io::Error::other)?;
    let next_tick = || {
        let _ = pace.wait(1, Duration::MAX);
    };
    run(Clock::default(), next_tick, out)
}

/// Ten seconds of a clock that jumps from tick to tick.
pub(crate) fn fast(out: &mut impl Write) -> io::Result<()> {
    let (clock, hands) = Clock::manual();
    run(clock, || hands.advance(Duration::from_secs(1) / TICKS_PER_SECOND), out)
}

fn main() {
    let mut out = io::stdout().lock();
    let is_fast = std::env::args().any(|argument| argument == "--fast");
    // Whoever closes the pipe has seen enough.
    let _ = if is_fast { fast(&mut out) } else { live(&mut out) };
}
