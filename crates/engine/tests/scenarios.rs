//! Rules, requests and times → verdicts, as files that a person can read: every file in `scenarios/` is one.
//!
//! ```text
//! # A comment.
//! rules:                                    the rules of the lines below; a second block replaces the first
//!   namespace: shop
//!   rules: [{ name: api, key: [user], limits: [2 per minute] }]
//!
//! at 0s shop user=ann cost=2 → allow rule=api remaining=0
//!       shop user=ann        → refuse 429 retry=30s
//!   retry-after: 30                         indented lines are the headers (of `explain`, the explanation): all of them
//! ```
//!
//! A line is `[at TIME] [N times] [COMMAND] REQUEST [& REQUEST]… → EXPECTATION`. Without a time it is that of the line
//! before. Commands are `peek`, `reserve NAME for DURATION`, `explain`, all with a request; `reset` with a request and
//! a number of buckets; `settle NAME at COST` and `refund NAME`. An expectation is what happens (`allow`, `wait 2s`,
//! `refuse 429`, `drop`) and as much of `rule=`, `reason=`, `remaining=`, `retry=`, `version=` as matters.
//! `shadow=` names the rules that would have refused and `degraded` says that a limit could not be asked; both must be
//! there exactly when they are true. A block `bad rules:` must be refused, and changes nothing.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::indexing_slicing, reason = "so has one that finds less than it expects")]

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use std::{fs, mem};
use tollgate::{Action, Engine, Hold, Request, RuleSet, Source, Time, Value, Verdict};
use tollgate_limit::parse_duration;

/// What went wrong in a line.
type Complaint = String;

/// One line, or a block with the lines that are indented below it.
#[derive(Debug)]
struct Entry<'a> {
    number: usize,
    text: &'a str,
    below: Vec<&'a str>,
}

#[derive(Default)]
struct Scenario {
    engine: Option<Engine>,
    now: Time,
    holds: HashMap<String, Hold>,
}

#[test]
fn every_scenario_goes_as_it_is_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 15, "only {} scenarios", files.len());
    let mut complaints = String::new();
    for file in files {
        for (line, complaint) in play(&fs::read_to_string(&file).unwrap()) {
            writeln!(complaints, "{}:{line}: {complaint}", file.display()).unwrap();
        }
    }
    assert!(complaints.is_empty(), "\n{complaints}");
}

#[test]
fn a_scenario_that_goes_otherwise_is_reported_with_line_expectation_and_outcome() {
    let rules = "rules:\n  namespace: n\n  rules: [{ name: r, key: [], limits: [1 per minute] }]\n";
    let complain = |line: &str| play(&format!("{rules}{line}\n")).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    assert_eq!(complain("n → allow rule=r remaining=0"), [""; 0]);
    assert_eq!(play(&format!("{rules}n → refuse 429"))[0].0, 4);
    let expected = "expected `refuse 429`, got `allow reason=within-limits rule=r remaining=0 version=1`";
    assert_eq!(complain("n → refuse 429"), [expected]);
    assert_eq!(complain("n → allow rmaining=3"), ["`rmaining` is nothing that can be expected"]);
    assert_eq!(complain("n"), ["a line without `→`"]);
    assert_eq!(complain("at noon n → allow"), ["`noon` is no time"]);
    assert_eq!(complain("n user → allow"), ["`user` is no attribute: write name=value"]);
    assert_eq!(complain("settle x at 3"), ["nothing was reserved as `x`"]);
    assert_eq!(complain("n → allow\n  x-nonsense: 1").len(), 1);
    assert_eq!(complain("bad rules:\n  namespace: n\n  rules: []"), ["these rules are good"]);
}

fn play(text: &str) -> Vec<(usize, Complaint)> {
    let mut scenario = Scenario::default();
    let played = entries(text).into_iter().map(|entry| (entry.number, scenario.play(&entry)));
    played.filter_map(|(number, result)| Some((number, result.err()?))).collect()
}

/// The lines of a file that say something, each with the indented ones below it.
fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        match entries.last_mut() {
            Some(entry) if line.starts_with("  ") => entry.below.push(line),
            // Blank lines belong to rules; elsewhere they do no harm.
            Some(entry) if line.trim().is_empty() => entry.below.push(""),
            _ if line.trim().is_empty() || line.starts_with('#') => {}
            _ => entries.push(Entry { number, text: line, below: Vec::new() }),
        }
    }
    entries
}

impl Scenario {
    fn play(&mut self, entry: &Entry<'_>) -> Result<(), Complaint> {
        match entry.text.trim_end() {
            "rules:" => self.replace(&entry.below.join("\n")),
            "bad rules:" => match parse(&entry.below.join("\n")) {
                Ok(_) => Err("these rules are good".to_owned()),
                Err(_) => Ok(()),
            },
            line => self.line(line, entry),
        }
    }

    fn replace(&mut self, text: &str) -> Result<(), Complaint> {
        let rules = parse(text)?;
        match &self.engine {
            None => self.engine = Some(Engine::new(rules, self.now)),
            Some(engine) => engine.replace(rules, self.now),
        }
        Ok(())
    }

    fn line(&mut self, line: &str, entry: &Entry<'_>) -> Result<(), Complaint> {
        let mut words = words(line)?;
        if let [at, time, ..] = words.as_slice()
            && at == "at"
        {
            self.now = Time::ZERO + parse_duration(time).map_err(|_| format!("`{time}` is no time"))?;
            words.drain(..2);
        }
        let mut times = 1;
        if let [number, word, ..] = words.as_slice()
            && word == "times"
        {
            times = number.parse().map_err(|_| format!("`{number}` is no number"))?;
            words.drain(..2);
        }
        (0..times).try_for_each(|_| self.command(&words, entry))
    }

    fn command(&mut self, words: &[String], entry: &Entry<'_>) -> Result<(), Complaint> {
        let engine = self.engine.as_ref().ok_or("there are no rules yet")?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["settle", name, "at", cost] => {
                let hold = self.holds.remove(*name).ok_or(format!("nothing was reserved as `{name}`"))?;
                engine.settle(hold, cost.parse().map_err(|_| format!("`{cost}` is no cost"))?, self.now);
                Ok(())
            }
            ["refund", name] => {
                let hold = self.holds.remove(*name).ok_or(format!("nothing was reserved as `{name}`"))?;
                engine.refund(hold, self.now);
                Ok(())
            }
            words => self.ask(words, entry),
        }
    }

    fn ask(&mut self, words: &[&str], entry: &Entry<'_>) -> Result<(), Complaint> {
        let engine = self.engine.as_ref().ok_or("there are no rules yet")?;
        let arrow = words.iter().position(|word| *word == "→").ok_or("a line without `→`")?;
        let (asked, expected) = (&words[..arrow], &words[arrow + 1..]);
        let now = self.now;
        match asked {
            ["peek", request @ ..] => {
                with_requests(request, |parts| compare(&engine.peek(&parts[0], now), now, expected, &entry.below))
            }
            ["reset", request @ ..] => with_requests(request, |parts| {
                let actual = engine.reset(&parts[0], now).to_string();
                same(&expected.join(" "), &actual)
            }),
            ["explain", request @ ..] => with_requests(request, |parts| {
                let explanation = engine.explain(&parts[0], now);
                same_lines(&entry.below, explanation.to_string().lines())?;
                compare(&explanation.verdict, now, expected, &[])
            }),
            ["reserve", name, "for", time, request @ ..] => {
                let expires = parse_duration(time).map_err(|_| format!("`{time}` is no time"))?;
                let made = with_requests(request, |parts| Ok(engine.reserve(&parts[0], expires, now)))?;
                match made {
                    Err(verdict) => compare(&verdict, now, expected, &entry.below),
                    Ok(hold) => {
                        let actual = booked(&hold);
                        self.holds.insert((*name).to_owned(), hold);
                        same(&expected.join(" "), &actual)
                    }
                }
            }
            request => {
                with_requests(request, |parts| compare(&engine.check_all(parts, now), now, expected, &entry.below))
            }
        }
    }
}

/// The text is indented by two, which keeps the marks between documents from being ones.
fn parse(text: &str) -> Result<RuleSet, Complaint> {
    let text: String = text.lines().map(|line| format!("{}\n", line.strip_prefix("  ").unwrap_or(line))).collect();
    RuleSet::parse(&[Source::new("rules", text)]).map_err(|mistakes| format!("these rules are wrong:\n{mistakes}"))
}

/// Words, of which quotes may hold spaces together: `name="a b"`.
fn words(line: &str) -> Result<Vec<String>, Complaint> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for character in line.chars() {
        match character {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    if quoted { Err("a quote without its end".to_owned()) } else { Ok(words) }
}

/// Reads `namespace name=value… [cost=N] [& …]`.
fn with_requests<R>(words: &[&str], ask: impl FnOnce(&[Request<'_>]) -> Result<R, Complaint>) -> Result<R, Complaint> {
    let mut parts = Vec::new();
    for words in words.split(|word| *word == "&") {
        let [namespace, attributes @ ..] = words else { return Err("a request without a namespace".to_owned()) };
        let mut cost = 1;
        let mut read = Vec::new();
        for attribute in attributes {
            let (name, value) =
                attribute.split_once('=').ok_or(format!("`{attribute}` is no attribute: write name=value"))?;
            match name {
                "cost" => cost = value.parse().map_err(|_| format!("`{value}` is no cost"))?,
                _ => read.push((name, Value::Text(value))),
            }
        }
        parts.push((*namespace, read, cost));
    }
    let requests: Vec<Request<'_>> =
        parts.iter().map(|(name, attributes, cost)| Request::new(name, attributes).with_cost(*cost)).collect();
    ask(&requests)
}

/// Compares as much of a verdict as is expected, and all headers if any are.
fn compare(verdict: &Verdict, now: Time, expected: &[&str], headers: &[&str]) -> Result<(), Complaint> {
    let actual = describe(verdict);
    let wrong = || format!("expected `{}`, got `{}`", expected.join(" "), show(&actual));
    let mut words = expected.iter();
    let mut action = words.next().map(ToString::to_string).unwrap_or_default();
    if action == "wait" || action == "refuse" {
        write!(action, " {}", words.next().copied().unwrap_or_default()).unwrap();
    }
    let mut fields = vec![("", action)];
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        fields.push((name, value.to_owned()));
    }
    for (name, value) in &fields {
        match actual.iter().find(|(known, _)| known == name) {
            None => return Err(format!("`{name}` is nothing that can be expected")),
            Some((_, actual)) if actual.as_ref() != Some(value) => return Err(wrong()),
            Some(_) => {}
        }
    }
    let untold = |name: &str| fields.iter().all(|(told, _)| *told != name);
    if actual.iter().any(|(name, value)| matches!(*name, "shadow" | "degraded") && value.is_some() && untold(name)) {
        return Err(wrong());
    }
    let mut lines = Vec::new();
    verdict.headers(now, |name, value| lines.push(format!("{name}: {value}")));
    if headers.iter().all(|line| line.is_empty()) { Ok(()) } else { same_lines(headers, lines.iter().map(|l| &**l)) }
}

/// Everything that can be expected of a verdict, in the words of a scenario.
fn describe(verdict: &Verdict) -> Vec<(&'static str, Option<String>)> {
    let action = match verdict.action() {
        Action::Allow => "allow".to_owned(),
        Action::Wait(wait) => format!("wait {wait:?}"),
        Action::Refuse(status) => format!("refuse {status}"),
        Action::Drop => "drop".to_owned(),
    };
    let reason = verdict.reason().name();
    let retry = match verdict.retry_after() {
        Some(wait) => Some(format!("{wait:?}")),
        None if verdict.is_allowed() => None,
        None => Some("never".to_owned()),
    };
    let shadowed = verdict.checks().iter().filter(|check| check.is_shadow && !check.decision.is_allowed());
    let mut shadowed: Vec<&str> = shadowed.filter_map(|check| Some(&*verdict.rule_of(check)?.name)).collect();
    shadowed.dedup();
    vec![
        ("", Some(action)),
        ("reason", Some(reason.to_owned())),
        ("rule", Some(verdict.rule().unwrap_or("none").to_owned())),
        ("remaining", verdict.remaining().map(|left| left.to_string())),
        ("retry", retry),
        ("shadow", Some(shadowed.join(",")).filter(|names| !names.is_empty())),
        ("degraded", verdict.checks().iter().any(|check| check.is_degraded).then(String::new)),
        ("version", Some(verdict.version().to_string())),
    ]
}

fn show(actual: &[(&str, Option<String>)]) -> String {
    let show = |(name, value): &(&str, Option<String>)| match (*name, value.as_deref()?) {
        ("", action) => Some(action.to_owned()),
        (name, "") => Some(name.to_owned()),
        (name, value) => Some(format!("{name}={value}")),
    };
    actual.iter().filter_map(show).collect::<Vec<_>>().join(" ")
}

fn booked(hold: &Hold) -> String {
    match hold.wait() {
        Duration::ZERO => "allow".to_owned(),
        wait => format!("wait {wait:?}"),
    }
}

fn same(expected: &str, actual: &str) -> Result<(), Complaint> {
    if expected == actual { Ok(()) } else { Err(format!("expected `{expected}`, got `{actual}`")) }
}

fn same_lines<'a>(expected: &[&str], actual: impl Iterator<Item = &'a str>) -> Result<(), Complaint> {
    let tidy = |line: &str| line.trim().to_owned();
    let mut expected: Vec<String> = expected.iter().map(|line| tidy(line)).collect();
    while expected.last().is_some_and(String::is_empty) {
        mem::drop(expected.pop());
    }
    let actual: Vec<String> = actual.map(tidy).collect();
    let show = |lines: &[String]| lines.iter().map(|line| format!("\n    {line}")).collect::<String>();
    if expected == actual { Ok(()) } else { Err(format!("expected{}\n  got{}", show(&expected), show(&actual))) }
}
