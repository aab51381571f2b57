//! A service that asks by plain function calls, whatever its protocol is.
//!
//! `cargo run --example rules`

use std::io::{self, Write};
use std::time::Duration;
use tollgate::{Action, Clock, Request, RuleSet, Source, Tollgate, Value};

const RULES: &str = include_str!("rules.yaml");

/// Asks for everything that the rules are about. The time passes only when it is told to.
pub(crate) fn run(out: &mut impl Write) -> io::Result<()> {
    let (clock, hands) = Clock::manual();
    let rules = RuleSet::parse(&[Source::new("rules.yaml", RULES)]).map_err(io::Error::other)?;
    let tollgate = Tollgate::builder().clock(clock).build(rules);

    writeln!(out, "Four attempts to log in from one address:")?;
    for _ in 0..4 {
        attempt(&tollgate, &[("operation", "login".into()), ("ip", "192.0.2.1".into())], out)?;
    }
    hands.advance(Duration::from_secs(20));
    writeln!(out, "And one twenty seconds later:")?;
    attempt(&tollgate, &[("operation", "login".into()), ("ip", "192.0.2.1".into())], out)?;

    writeln!(out, "Three reports at once, which are made one a second:")?;
    for _ in 0..3 {
        attempt(&tollgate, &[("operation", "report".into())], out)?;
    }

    writeln!(out, "A prompt that was estimated at 800 tokens and took 300:")?;
    prompt(&tollgate, out)
}

fn attempt(tollgate: &Tollgate, attributes: &[(&str, Value<'_>)], out: &mut impl Write) -> io::Result<()> {
    let verdict = tollgate.check(&Request::new("shop", attributes));
    match verdict.action() {
        Action::Allow => writeln!(out, "  go ahead, {} left", verdict.remaining().unwrap_or(u64::MAX)),
        Action::Wait(wait) => writeln!(out, "  go ahead in {wait:?}"),
        Action::Refuse(status) => writeln!(out, "  {status}: {}", verdict.detail()),
        Action::Drop => writeln!(out, "  no answer"),
    }
}

/// What something costs may be known only afterwards.
fn prompt(tollgate: &Tollgate, out: &mut impl Write) -> io::Result<()> {
    let attributes = [("operation", "prompt".into()), ("login", "alice".into())];
    let prompt = Request::new("shop", &attributes).with_cost(800);
    let Ok(hold) = tollgate.reserve(&prompt, Duration::from_secs(60)) else { return writeln!(out, "  refused") };
    writeln!(out, "  {} left meanwhile", tollgate.peek(&prompt).remaining().unwrap_or(u64::MAX))?;
    tollgate.settle(hold, 300);
    writeln!(out, "  {} left in the end", tollgate.peek(&prompt).remaining().unwrap_or(u64::MAX))
}

fn main() -> io::Result<()> {
    run(&mut io::stdout().lock())
}
