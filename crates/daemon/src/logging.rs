//! What is written to standard error, and how.

use crate::config::{LogFormat, LogLevel};
use crate::otlp;
use std::io::IsTerminal;
use tollgate::Event;
use tracing::level_filters::LevelFilter;
use tracing::{error, info};

/// Begins to log. Who has begun already goes on as before.
pub(crate) fn start(level: LogLevel, format: LogFormat) {
    let level = match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal());
    // Only a second attempt fails.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Logs what happens to rules. Decisions are counted, and some are traced.
pub(crate) fn observe(event: &Event<'_>) {
    match event {
        Event::RulesReplaced { version } => info!(version, "new rules are in force"),
        Event::RulesRefused { mistakes } => {
            error!("the new rules are wrong, the ones before stay in force:\n{mistakes}");
        }
        Event::RulesUnreadable { path, error } => {
            error!(path = %path.display(), %error, "the rules cannot be read, the ones before stay in force");
        }
        _ => otlp::note(event),
    }
}
