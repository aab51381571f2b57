//! What was seen, and what happened between.

use crate::cli::connection::Reply;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

/// How many intervals are kept.
const KEPT: usize = 60;

/// What a rule has done since the daemon began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) allowed: u64,
    pub(super) refused: u64,
    pub(super) shadowed: u64,
    pub(super) clients: u64,
    pub(super) refused_clients: u64,
    pub(super) top: Vec<(String, u64)>,
}

/// Whose rule it is, and its name.
pub(super) type Name = (String, String);

/// One rule.
#[derive(Clone, Debug, Default)]
pub(super) struct Rule {
    pub(super) totals: Totals,
    /// Per second, the latest last.
    pub(super) allowed: VecDeque<f64>,
    pub(super) refused: VecDeque<f64>,
}

impl Rule {
    /// The latest rates.
    pub(super) fn rates(&self) -> (f64, f64) {
        let latest = |rates: &VecDeque<f64>| rates.back().copied().unwrap_or(0.0);
        (latest(&self.allowed), latest(&self.refused))
    }
}

/// All rules, as they were seen.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) rules: HashMap<Name, Rule>,
    /// What there is to say about the store, if there is one.
    pub(super) store: Option<String>,
    seen: Option<Instant>,
}

impl History {
    /// Adds what is seen now. Rules that are no longer there are forgotten.
    pub(super) fn add(&mut self, now: Instant, totals: Vec<(Name, Totals)>) {
        let seconds =
            self.seen.replace(now).map(|before| now.saturating_duration_since(before).as_secs_f64().max(1e-3));
        let mut before = std::mem::take(&mut self.rules);
        for (name, totals) in totals {
            let known = before.remove(&name);
            let mut rule = known.clone().unwrap_or_default();
            if let (Some(seconds), Some(known)) = (seconds, known) {
                // A daemon that was started anew counts from nothing.
                let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
                push(&mut rule.allowed, rate(totals.allowed, known.totals.allowed));
                push(
                    &mut rule.refused,
                    rate(totals.refused + totals.shadowed, known.totals.refused + known.totals.shadowed),
                );
            }
            rule.totals = totals;
            self.rules.insert(name, rule);
        }
    }
}

fn push(rates: &mut VecDeque<f64>, rate: f64) {
    if rates.len() == KEPT {
        rates.pop_front();
    }
    rates.push_back(rate);
}

/// Reads the reply to `STATS`.
pub(super) fn read(reply: &Reply) -> Option<Vec<(Name, Totals)>> {
    let Reply::List(rules) = reply else { return None };
    rules.iter().map(read_rule).collect()
}

/// Reads the reply to `INFO`, as far as it is about the store.
pub(super) fn read_store(info: &str) -> Option<String> {
    let field = |name: &str| {
        let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.unwrap_or_default().trim()
    };
    match field("store") {
        "connected" => Some(format!("connected, {} daemons count together", field("store_hosts"))),
        "lost" => Some(format!("LOST, rules do what they say for failures; {}", field("store_trouble"))),
        _ => None,
    }
}

fn read_rule(reply: &Reply) -> Option<(Name, Totals)> {
    let (mut name, mut totals) = (Name::default(), Totals::default());
    for [field, value] in pairs(reply)? {
        match (field.to_string().as_str(), value) {
            ("namespace", Reply::Text(text)) => name.0.clone_from(text),
            ("rule", Reply::Text(text)) => name.1.clone_from(text),
            ("allowed" | "waited", value) => totals.allowed += number(value)?,
            ("refused", value) => totals.refused = number(value)?,
            ("shadowed", value) => totals.shadowed = number(value)?,
            ("clients", value) => totals.clients = number(value)?,
            ("refused_clients", value) => totals.refused_clients = number(value)?,
            ("top_refused", value) => {
                let key = |[key, count]: &[Reply; 2]| Some((key.to_string(), number(count)?));
                totals.top = pairs(value)?.iter().map(key).collect::<Option<_>>()?;
            }
            // A newer daemon may say more.
            _ => {}
        }
    }
    Some((name, totals))
}

fn pairs(reply: &Reply) -> Option<&[[Reply; 2]]> {
    let Reply::List(items) = reply else { return None };
    Some(items.as_chunks::<2>().0)
}

fn number(reply: &Reply) -> Option<u64> {
    let Reply::Number(number) = reply else { return None };
    u64::try_from(*number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any moment will do")]
    fn rates_are_what_happened_between() {
        let start = Instant::now();
        let totals = |allowed, refused| Totals { allowed, refused, ..Totals::default() };
        let name = || ("shop".to_owned(), "logins".to_owned());
        let mut history = History::default();
        history.add(start, vec![(name(), totals(100, 7))]);
        assert_eq!(history.rules[&name()].rates(), (0.0, 0.0));
        history.add(start + Duration::from_secs(2), vec![(name(), totals(300, 8))]);
        assert_eq!(history.rules[&name()].rates(), (100.0, 0.5));
        history.add(start + Duration::from_secs(3), vec![(name(), totals(5, 0))]);
        assert_eq!(history.rules[&name()].rates(), (0.0, 0.0), "a daemon that was started anew");
        history.add(start + Duration::from_secs(4), Vec::new());
        assert!(history.rules.is_empty());
        for second in 0..200 {
            history.add(start + Duration::from_secs(10 + second), vec![(name(), totals(second, 0))]);
        }
        assert_eq!(history.rules[&name()].allowed.len(), KEPT);
    }
}
