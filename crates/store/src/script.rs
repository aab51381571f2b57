//! The scripts that decide in the store. They are constant: whatever a rule says comes in their arguments.

use crate::resp::Command;
use sha1::{Digest, Sha1};
use std::fmt::Write;
use std::sync::LazyLock;

/// A script and the name that the store knows it by.
#[derive(Debug)]
pub struct Script {
    source: &'static str,
    digest: String,
}

/// Decides by buckets in microseconds alone that refuse, which nearly all limits are and do. A script is run from its first
/// line on every time, and so [`LIMITS`] takes longer.
pub static BUCKETS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("scripts/time.lua"),
        include_str!("scripts/steps.lua"),
        include_str!("scripts/buckets.lua"),
    ))
});

/// What decides by limits of some kinds, or only looks at them.
macro_rules! by_kinds {
    ($kinds:literal, only looks: $only_looks:literal, $($part:literal),+) => {
        concat!(
            include_str!("scripts/time.lua"),
            include_str!("scripts/steps.lua"),
            $(include_str!($part),)+
            "local kinds = { ", $kinds, " }\nlocal only_looks = ", $only_looks, "\n\n",
            include_str!("scripts/decide.lua"),
        )
    };
}

macro_rules! by_every_kind {
    (only looks: $only_looks:literal) => {
        by_kinds!(
            "b = bucket, p = paced, w = window, m = months, s = sliding, l = log, u = warm_up",
            only looks: $only_looks,
            "scripts/bucket.lua",
            "scripts/long.lua",
            "scripts/paced.lua",
            "scripts/window.lua",
            "scripts/sliding.lua",
            "scripts/log.lua",
            "scripts/warm_up.lua"
        )
    };
}

/// Decides by buckets in microseconds and fixed windows, which nearly all of the others are. It takes a store half as long to read as
/// [`LIMITS`], and when it has forgotten them everybody waits for that.
pub static WINDOWS: LazyLock<Script> = LazyLock::new(|| {
    let source = by_kinds!(
        "b = bucket, w = window, m = months",
        only looks: "false",
        "scripts/bucket.lua",
        "scripts/window.lua"
    );
    Script::new(source)
});

/// Decides by limits of every kind.
pub static LIMITS: LazyLock<Script> = LazyLock::new(|| Script::new(by_every_kind!(only looks: "false")));

/// Says what [`LIMITS`] would, and takes nothing.
pub static LOOK: LazyLock<Script> = LazyLock::new(|| Script::new(by_every_kind!(only looks: "true")));

/// Gives back what the others took.
pub static GIVE_BACK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("scripts/time.lua"),
        include_str!("scripts/steps.lua"),
        include_str!("scripts/long.lua"),
        include_str!("scripts/paced.lua"),
        include_str!("scripts/window.lua"),
        include_str!("scripts/sliding.lua"),
        include_str!("scripts/give_back.lua"),
    ))
});

impl Script {
    pub(crate) fn new(source: &'static str) -> Script {
        let mut digest = String::with_capacity(40);
        for byte in Sha1::digest(source) {
            // Writing to a string cannot fail.
            let _ = write!(digest, "{byte:02x}");
        }
        Script { source, digest }
    }

    /// What it does, in Lua.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// The SHA-1 of its source, for `EVALSHA`.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

/// How a script is named to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// By its digest, which the store knows if it has run it before.
    Digest,
    /// With all of its source.
    Source,
}

/// A script with the keys that it touches, all of one slot and with the prefix, and its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) script: &'a Script,
    pub(crate) keys: &'a [Vec<u8>],
    pub(crate) arguments: &'a [Vec<u8>],
}

impl Run<'_> {
    /// Writes the command.
    pub(crate) fn write(&self, out: &mut Vec<u8>, form: Form) {
        let mut command = Command::new(out, 3 + self.keys.len() + self.arguments.len());
        match form {
            Form::Digest => command.word("EVALSHA").word(self.script.digest()),
            Form::Source => command.word("EVAL").word(self.script.source()),
        };
        command.word(self.keys.len().to_string());
        for word in self.keys.iter().chain(self.arguments) {
            command.word(word);
        }
    }
}
