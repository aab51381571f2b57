//! What Prometheus reads: what the rules, the front ends and the process have done.
//!
//! How many series there are depends on the rules alone, never on what clients send. The keys that are refused most
//! often are shown only to those who ask for them: they name clients, and each that comes up begins a series.

mod process;
mod store;

use crate::meters::{Meter, Protocol};
use crate::state::State;
use process::Process;
use std::fmt::{self, Display, Write};
use std::sync::atomic::Ordering;
use tollgate::stats::RuleSnapshot;
use tollgate::{Forgotten, Table};

/// How metrics are written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format 0.0.4.
    Prometheus,
    /// `OpenMetrics` 1.0.
    OpenMetrics,
}

/// Whether clients are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// They are not.
    Hidden,
    /// The sixteen of each rule that were refused most often.
    Top,
}

impl Format {
    /// What somebody is to get who accepts these.
    pub fn of<'a>(mut accepted: impl Iterator<Item = &'a str>) -> Format {
        let is_open = accepted.any(|value| value.contains("application/openmetrics-text"));
        if is_open { Format::OpenMetrics } else { Format::Prometheus }
    }

    /// What it is sent as.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All metrics there are.
pub fn page(state: &State, format: Format, keys: Keys) -> String {
    let mut page = Page { text: String::with_capacity(16 * 1024), format };
    let rules = state.engine().snapshot();
    page.engine(state);
    page.rules(&rules);
    if keys == Keys::Top {
        page.top(&rules);
    }
    if let Some(sharing) = state.sharing() {
        page.store(sharing.store(), state.engine().ledger());
    }
    page.front_ends(state);
    page.process(&Process::read());
    if format == Format::OpenMetrics {
        page.text.push_str("# EOF\n");
    }
    page.text
}

/// The name of a namespace, that of a rule, and what the rule has done.
type Rule = (String, String, RuleSnapshot);

/// One number of a front end's.
type Reading = fn(&Meter) -> u64;

/// Metrics that are being written.
struct Page {
    text: String,
    format: Format,
}

/// What kind of number a metric is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It only grows; its name ends in `_total`.
    Counter,
    Gauge,
    Histogram,
}

impl Page {
    fn engine(&mut self, state: &State) {
        self.family("tollgate_build_info", Kind::Gauge, "Always 1; says which version runs.");
        self.sample("tollgate_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        self.alone(
            "tollgate_rules_version",
            Kind::Gauge,
            "One more each time the rules are replaced.",
            state.engine().version(),
        );
        self.alone(
            "tollgate_reservations_open",
            Kind::Gauge,
            "Reservations that nobody has settled yet.",
            state.open_reservations(),
        );
        let tables = [("rules", state.engine().table()), ("throttle", state.buckets())];
        self.tables(
            "tollgate_table_capacity_buckets",
            Kind::Gauge,
            "Buckets that there is room for.",
            &tables,
            Table::capacity,
        );
        self.tables(
            "tollgate_table_memory_bytes",
            Kind::Gauge,
            "Memory set aside for buckets.",
            &tables,
            Table::memory,
        );
        let forgotten = |table: &Table| table.forgotten();
        self.tables(
            "tollgate_forgotten_clients_total",
            Kind::Counter,
            "Buckets that a full table gave up for others.",
            &tables,
            |table| forgotten(table).clients,
        );
        self.tables(
            "tollgate_forgotten_seconds_total",
            Kind::Counter,
            "How long those would still have taken to refill; times a limit's rate, the tokens they were forgiven.",
            &tables,
            |table| seconds(&forgotten(table)),
        );
    }

    fn tables<T: Display>(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        tables: &[(&str, &Table)],
        value: impl Fn(&Table) -> T,
    ) {
        self.family(name, kind, help);
        for (label, table) in tables {
            self.sample(name, &[("table", label)], value(table));
        }
    }

    fn rules(&mut self, rules: &[Rule]) {
        self.family("tollgate_decisions_total", Kind::Counter, "Decisions by rule and by how they ended.");
        for (namespace, rule, RuleSnapshot { counts, .. }) in rules {
            let endings = [
                ("allowed", counts.allowed),
                ("waited", counts.waited),
                ("refused", counts.refused),
                ("shadowed", counts.shadowed),
            ];
            for (ending, count) in endings {
                let labels = [("namespace", &**namespace), ("rule", rule), ("ending", ending)];
                self.sample("tollgate_decisions_total", &labels, count);
            }
        }
        self.family(
            "tollgate_degraded_total",
            Kind::Counter,
            "Decisions of all endings that were made without the store, as the rule says for failures.",
        );
        for (namespace, rule, RuleSnapshot { counts, .. }) in rules {
            self.sample("tollgate_degraded_total", &[("namespace", namespace), ("rule", rule)], counts.degraded);
        }
        let of_rules = "Clients that the rule has seen, by estimate.";
        self.each_rule("tollgate_clients", of_rules, rules, |rule| rule.clients.round());
        let of_refused =
            "Clients that were refused at least once, or would have been but for a shadowed rule, by estimate.";
        self.each_rule("tollgate_refused_clients", of_refused, rules, |rule| rule.refused_clients.round());
        self.uses(rules);
    }

    fn each_rule<T: Display>(&mut self, name: &str, help: &str, rules: &[Rule], value: impl Fn(&RuleSnapshot) -> T) {
        self.family(name, Kind::Gauge, help);
        for (namespace, rule, snapshot) in rules {
            self.sample(name, &[("namespace", namespace), ("rule", rule)], value(snapshot));
        }
    }

    /// No sum is kept of uses, so the histogram has none, and neither a count in `OpenMetrics`, which wants both or none.
    fn uses(&mut self, rules: &[Rule]) {
        let help = "How much of its limit a client had used after each decision; beyond 1 are the refused.";
        self.family("tollgate_limit_use_ratio", Kind::Histogram, help);
        for (namespace, rule, RuleSnapshot { uses, .. }) in rules {
            let mut count = 0;
            let bounds = ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1.0", "+Inf"];
            for (bound, more) in bounds.into_iter().zip(uses.tenths.iter().chain([&uses.over])) {
                count += more;
                let labels = [("namespace", &**namespace), ("rule", rule), ("le", bound)];
                self.sample("tollgate_limit_use_ratio_bucket", &labels, count);
            }
            if self.format == Format::Prometheus {
                self.sample("tollgate_limit_use_ratio_count", &[("namespace", namespace), ("rule", rule)], count);
            }
        }
    }

    /// Gauges, as a key that is forgotten and comes back begins anew.
    fn top(&mut self, rules: &[Rule]) {
        let name = "tollgate_top_refused";
        self.family(
            name,
            Kind::Gauge,
            "How often the clients were refused, or shadowed, that were so most often; at most.",
        );
        for (namespace, rule, snapshot) in rules {
            for (place, key) in snapshot.top.iter().enumerate() {
                // Shortened names may be the same, and no two series can be.
                let place = (place + 1).to_string();
                let labels = [("namespace", &**namespace), ("rule", rule), ("place", &place), ("key", &key.name)];
                self.sample(name, &labels, key.count);
            }
        }
    }

    fn front_ends(&mut self, state: &State) {
        let meters = Protocol::ALL.map(|protocol| (protocol.name(), state.meters().of(protocol)));
        let counters: [(&str, Kind, &str, Reading); 4] = [
            ("tollgate_connections_accepted_total", Kind::Counter, "Connections that were accepted.", |meter| {
                meter.accepted.load(Ordering::Relaxed)
            }),
            (
                "tollgate_connections_turned_away_total",
                Kind::Counter,
                "Connections that were closed at once: too many of one peer, or no proper TLS.",
                |meter| meter.turned_away.load(Ordering::Relaxed),
            ),
            ("tollgate_connections_open", Kind::Gauge, "Connections that are open.", |meter| {
                meter.open.load(Ordering::Relaxed)
            }),
            ("tollgate_questions_total", Kind::Counter, "Questions that were answered, be it with a fault.", |meter| {
                meter.questions.load(Ordering::Relaxed)
            }),
        ];
        for (name, kind, help, value) in counters {
            self.family(name, kind, help);
            for (protocol, meter) in meters {
                self.sample(name, &[("protocol", protocol)], value(meter));
            }
        }
        self.family(
            "tollgate_faults_total",
            Kind::Counter,
            "Questions without a verdict, by what was wrong with them.",
        );
        for (protocol, meter) in meters {
            for (fault, count) in meter.faults() {
                self.sample("tollgate_faults_total", &[("protocol", protocol), ("fault", fault)], count);
            }
        }
    }

    fn process(&mut self, process: &Process) {
        self.known("process_cpu_seconds_total", Kind::Counter, "CPU time, of users and system.", process.cpu_seconds);
        self.known("process_start_time_seconds", Kind::Gauge, "When it started, since 1970.", process.start_seconds);
        self.known("process_resident_memory_bytes", Kind::Gauge, "Memory in use.", process.resident_bytes);
        self.known("process_virtual_memory_bytes", Kind::Gauge, "Memory set aside.", process.virtual_bytes);
        self.known("process_open_fds", Kind::Gauge, "Files and sockets that are open.", process.open_files);
        self.known("process_max_fds", Kind::Gauge, "As many as can be open.", process.most_files);
    }

    /// A metric that is left out where it is not known.
    fn known(&mut self, name: &str, kind: Kind, help: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.alone(name, kind, help, value);
        }
    }

    /// A metric of one series.
    fn alone(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// What is said before the series of a metric. `OpenMetrics` calls a counter by its name without `_total`.
    fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let name = match self.format {
            Format::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
            Format::Prometheus => name,
        };
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a string cannot fail.
        _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let begin = if at == 0 { '{' } else { ',' };
            _ = write!(self.text, "{begin}{label}=\"{}\"", Escaped(text));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        _ = writeln!(self.text, "{end} {value}");
    }
}

fn seconds(forgotten: &Forgotten) -> f64 {
    forgotten.owed.as_secs_f64()
}

/// The value of a label within its quotes.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '"' => f.write_str("\\\""),
            '\\' => f.write_str("\\\\"),
            '\n' => f.write_str("\\n"),
            _ => f.write_char(character),
        })
    }
}
