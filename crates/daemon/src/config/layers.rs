//! Where values come from: the default, the file, the environment, the command line, each over the ones before.

use super::ConfigMistakes;
use super::settings::{SETTINGS, Setting};
use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Where a value is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// A line of a file.
    File(PathBuf, usize),
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path, line) => write!(f, "{}:{line}", path.display()),
            Origin::Environment(variable) => write!(f, "environment, {variable}"),
            Origin::Flag(name) => write!(f, "command line, --{name}"),
        }
    }
}

/// The value of every setting, and where it is from.
#[derive(Clone, Debug)]
pub struct Layers {
    values: Vec<(&'static Setting, String, Origin)>,
}

impl Default for Layers {
    fn default() -> Layers {
        let value = |setting: &'static Setting| (setting, setting.default.to_owned(), Origin::Default);
        Layers { values: SETTINGS.iter().map(value).collect() }
    }
}

impl Layers {
    /// The value in force. Only settings that exist are asked for.
    pub fn get(&self, name: &str) -> (&str, &Origin) {
        let found = self.values.iter().find(|(setting, ..)| setting.name == name);
        found.map_or(("", &Origin::Default), |(_, value, origin)| (value, origin))
    }

    /// The value in force as it may be seen by everybody.
    pub fn shown(&self, name: &str) -> Cow<'_, str> {
        let found = self.values.iter().find(|(setting, ..)| setting.name == name);
        found.map_or(Cow::Borrowed(""), |(setting, value, _)| setting.shown(value))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Setting, &str, &Origin)> {
        self.values.iter().map(|(setting, value, origin)| (*setting, value.as_str(), origin))
    }

    /// Puts a value over what was there.
    pub fn set(&mut self, name: &str, value: String, origin: Origin) {
        if let Some(entry) = self.values.iter_mut().find(|(setting, ..)| setting.name == name) {
            (entry.1, entry.2) = (value, origin);
        }
    }

    /// Puts a file over what was there.
    ///
    /// # Errors
    /// What is no TOML, and every key that there is not.
    pub fn add_file(&mut self, path: &Path, text: &str) -> Result<(), ConfigMistakes> {
        let line_of = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            ConfigMistakes(vec![format!("{}:{}: {}", path.display(), line_of(at), error.message())])
        })?;
        let mut mistakes = ConfigMistakes::default();
        for (key, value) in table.get_ref() {
            let origin = Origin::File(path.to_owned(), line_of(key.span().start));
            match (SETTINGS.iter().find(|setting| setting.key() == **key.get_ref()), scalar(value.get_ref())) {
                (Some(setting), Some(value)) => self.set(setting.name, value, origin),
                (Some(_), None) => {
                    mistakes.0.push(format!("{origin}: `{}` takes a text, a number or a yes or no", key.get_ref()));
                }
                (None, _) => mistakes.0.push(format!("{origin}: {}", unknown(key.get_ref()))),
            }
        }
        if mistakes.0.is_empty() { Ok(()) } else { Err(mistakes) }
    }

    /// Puts the environment over what was there.
    ///
    /// # Errors
    /// Every variable of ours that there is not.
    pub fn add_environment(&mut self, variables: impl Iterator<Item = (String, String)>) -> Result<(), ConfigMistakes> {
        let mut mistakes = ConfigMistakes::default();
        for (variable, value) in variables.filter(|(variable, _)| variable.starts_with("TOLLGATE_")) {
            match SETTINGS.iter().find(|setting| setting.variable() == variable) {
                Some(setting) => self.set(setting.name, value, Origin::Environment(variable)),
                // The ones for the command line itself.
                None if ["TOLLGATE_CONFIG", "TOLLGATE_SERVER", "TOLLGATE_TOKEN"].contains(&variable.as_str()) => {}
                None => mistakes.0.push(format!("environment, {variable}: there is no such setting")),
            }
        }
        if mistakes.0.is_empty() { Ok(()) } else { Err(mistakes) }
    }

    /// As a file that says the same but for passwords, with where each value is from.
    pub fn to_toml(&self) -> String {
        let lines = self.iter().map(|(setting, value, origin)| {
            let value = &*setting.shown(value);
            let is_bare = value.parse::<u64>().is_ok() || value == "true" || value == "false";
            let value = if is_bare { value.to_owned() } else { toml::Value::String(value.to_owned()).to_string() };
            let line = format!("{} = {value}", setting.key());
            format!("{line:<44} # {origin}\n")
        });
        lines.collect()
    }
}

fn unknown(key: &str) -> String {
    let known: Vec<String> = SETTINGS.iter().map(Setting::key).collect();
    match tollgate::did_you_mean(key, known.iter().map(String::as_str)) {
        Some(close) => format!("there is no setting `{key}`; did you mean `{close}`?"),
        None => format!("there is no setting `{key}`; `tollgate config` prints all there are"),
    }
}

/// A value as it would be written on the command line.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string().replace('_', "")),
        DeValue::Boolean(is_so) => Some(is_so.to_string()),
        _ => None,
    }
}
