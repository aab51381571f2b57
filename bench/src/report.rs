//! Results as people see them: lines while it runs, a table in the docs.

use std::fmt::Write;
use std::io::{self, IsTerminal, Write as _};

/// One line of results.
#[derive(Clone, Debug)]
pub struct Row {
    pub work: String,
    /// What was measured, one per column of its table.
    pub cells: Vec<String>,
    pub target: String,
    /// Whether the target was reached; `None` where there is none.
    pub reached: Option<bool>,
}

/// A table with its heading.
#[derive(Clone, Debug)]
pub struct Section {
    pub title: &'static str,
    pub about: &'static str,
    pub columns: &'static [&'static str],
    pub rows: Vec<Row>,
}

impl Section {
    pub fn new(title: &'static str, about: &'static str, columns: &'static [&'static str]) -> Section {
        println!("\n{title}\n{:<46}{} target", "", columns.iter().map(|c| format!("{c:>14}")).collect::<String>());
        Section { title, about, columns, rows: Vec::new() }
    }

    pub fn push(&mut self, mut row: Row) {
        row.cells.resize(self.columns.len(), String::new());
        let cells: String = row.cells.iter().map(|cell| format!("{cell:>14}")).collect();
        println!("\r{:<46}{cells} {} {}", row.work, row.target, mark(row.reached));
        self.rows.push(row);
    }

    pub fn markdown(&self) -> String {
        let mut text = format!("## {}\n\n{}\n\n", self.title, self.about);
        let _ = writeln!(text, "| work | {} | target | |", self.columns.join(" | "));
        let _ = writeln!(text, "|---|{}---|---|", "---|".repeat(self.columns.len()));
        for row in &self.rows {
            let _ =
                writeln!(text, "| {} | {} | {} | {} |", row.work, row.cells.join(" | "), row.target, mark(row.reached));
        }
        text
    }
}

fn mark(reached: Option<bool>) -> &'static str {
    match reached {
        Some(true) => "✓",
        Some(false) => "missed",
        None => "",
    }
}

/// Says what is going on, where somebody is watching.
pub fn progress(what: &str) {
    if io::stdout().is_terminal() {
        print!("\r{what:<60}");
        let _ = io::stdout().flush();
    }
}

/// Prints what was missed; true if nothing was.
pub fn all_reached(sections: &[Section]) -> bool {
    let missed = sections.iter().flat_map(|section| &section.rows).filter(|row| row.reached == Some(false));
    let missed: Vec<_> = missed.collect();
    for row in &missed {
        println!("missed: {}: {} (target {})", row.work, row.cells.join(", "), row.target);
    }
    missed.is_empty()
}

/// The processor, as far as it says what it is.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models: Vec<_> = info.lines().filter_map(|line| line.strip_prefix("model name")).collect();
    let name = models.first().and_then(|line| line.split(':').nth(1)).unwrap_or("unknown processor").trim();
    format!("{} × {name}", models.len().max(1))
}
