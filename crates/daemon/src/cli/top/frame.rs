//! What is shown: rules, the busiest refusers first, and under each whom it refuses most.

use super::history::{History, Name, Rule};
use std::collections::VecDeque;

/// How wide the little charts are.
const CHART: usize = 20;

/// How many clients are shown under a rule.
const CLIENTS: usize = 3;

/// The lines to show, none longer than `width` characters and at most `height`.
pub(super) fn frame(history: &History, width: usize, height: usize) -> Vec<String> {
    let mut rules: Vec<(&Name, &Rule)> = history.rules.iter().collect();
    rules.sort_by(|one, other| {
        order(*other).partial_cmp(&order(*one)).unwrap_or(std::cmp::Ordering::Equal).then(one.0.cmp(other.0))
    });
    let sum = |rate: fn((f64, f64)) -> f64| rules.iter().map(|(_, rule)| rate(rule.rates())).sum::<f64>();
    let (allowed, refused) = (sum(|(allowed, _)| allowed), sum(|(_, refused)| refused));
    let mut lines = vec![
        format!(
            "tollgate top   {} rules   {}/s allowed   {}/s refused   (q ends)",
            rules.len(),
            short(allowed),
            short(refused)
        ),
        history.store.as_ref().map_or_else(String::new, |store| format!("store: {store}")),
        format!(
            "{:<28} {:>8} {:>8} {:>9} {:>9}  {:<CHART$}  {:<CHART$}",
            "RULE", "ALLOW/s", "REFUSE/s", "CLIENTS", "REFUSED", "ALLOWED", "REFUSED"
        ),
    ];
    for (name, rule) in rules {
        lines.push(rule_line(name, rule));
        let top = rule.totals.top.iter().take(CLIENTS);
        lines
            .extend(top.map(|(client, count)| format!("    {:<40} refused {}", cut(client, 40), short(*count as f64))));
    }
    lines.truncate(height.saturating_sub(1).max(1));
    lines.iter().map(|line| cut(line, width)).collect()
}

/// By what is refused, then by what is allowed.
fn order((_, rule): (&Name, &Rule)) -> (f64, f64, u64) {
    let (allowed, refused) = rule.rates();
    (refused, allowed, rule.totals.refused)
}

fn rule_line((namespace, name): &Name, rule: &Rule) -> String {
    let (allowed, refused) = rule.rates();
    let totals = &rule.totals;
    format!(
        "{:<28} {:>8} {:>8} {:>9} {:>9}  {:<CHART$}  {:<CHART$}",
        cut(&format!("{namespace}/{name}"), 28),
        short(allowed),
        short(refused),
        short(totals.clients as f64),
        short(totals.refused_clients as f64),
        chart(&rule.allowed),
        chart(&rule.refused),
    )
}

/// A column for each of the latest rates, in proportion to the highest.
fn chart(rates: &VecDeque<f64>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = rates.iter().copied().fold(0.0, f64::max);
    let bar = |rate: &f64| {
        let height = if highest > 0.0 { (rate / highest * 7.0).round() as usize } else { 0 };
        BARS.get(height).copied().unwrap_or('█')
    };
    rates.iter().skip(rates.len().saturating_sub(CHART)).map(bar).collect()
}

/// A number in at most six characters.
fn short(number: f64) -> String {
    match number {
        n if n >= 1e12 => format!("{:.1}T", n / 1e12),
        n if n >= 1e9 => format!("{:.1}G", n / 1e9),
        n if n >= 1e6 => format!("{:.1}M", n / 1e6),
        n if n >= 1e4 => format!("{:.1}k", n / 1e3),
        n if n >= 10.0 || n.fract() == 0.0 => format!("{n:.0}"),
        n => format!("{n:.1}"),
    }
}

/// So many characters at most, the last one an ellipsis where something is missing.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::super::history::{Totals, read_store};
    use super::*;

    #[test]
    fn the_rule_that_refuses_most_comes_first_with_whom_it_refuses() {
        let mut history = History::default();
        let rule = |allowed: f64, refused: f64, top: &[(&str, u64)]| Rule {
            totals: Totals {
                clients: 12_345,
                top: top.iter().map(|(name, count)| ((*name).into(), *count)).collect(),
                ..Totals::default()
            },
            allowed: [1.0, allowed].into(),
            refused: [0.0, refused].into(),
        };
        history.rules.insert(("shop".into(), "api".into()), rule(2500.0, 0.0, &[]));
        history.rules.insert(("shop".into(), "logins".into()), rule(4.0, 8.0, &[("192.0.2.1", 99)]));
        let shown = frame(&history, 120, 40).join("\n");
        let expected = "\
tollgate top   2 rules   2504/s allowed   8/s refused   (q ends)

RULE                          ALLOW/s REFUSE/s   CLIENTS   REFUSED  ALLOWED               REFUSED             
shop/logins                         4        8     12.3k         0  ▃█                    ▁█                  
    192.0.2.1                                refused 99
shop/api                         2500        0     12.3k         0  ▁█                    ▁▁                  ";
        assert_eq!(shown, expected);
        history.store = read_store("# Store\r\nstore:lost\r\nstore_hosts:2\r\nstore_trouble:it hangs up\r\n");
        assert_eq!(frame(&history, 120, 40)[1], "store: LOST, rules do what they say for failures; it hangs up");
        history.store = read_store("# Store\r\nstore:connected\r\nstore_hosts:2\r\n");
        assert_eq!(frame(&history, 120, 40)[1], "store: connected, 2 daemons count together");
        assert_eq!(read_store("# Store\r\nstore:none\r\n"), None);
        assert!(frame(&history, 20, 3).iter().all(|line| line.chars().count() <= 20));
        assert_eq!(frame(&history, 20, 3).len(), 2);
    }
}
