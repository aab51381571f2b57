//! The scripts that decide in the store. They are constant: whatever a rule says comes in their arguments.

use sha1::{Digest, Sha1};
use std::fmt::Write;
use std::sync::LazyLock;

/// A script and the name that the store knows it by.
#[derive(Debug)]
pub struct Script {
    source: &'static str,
    digest: String,
}

/// Decides by buckets in microseconds alone, which nearly all limits are. It is [`LIMITS`] without the rest, since a script
/// is run from its first line on every time.
pub static BUCKETS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("scripts/time.lua"),
        include_str!("scripts/bucket.lua"),
        "local kinds = { b = bucket }\n\n",
        include_str!("scripts/decide.lua"),
    ))
});

/// Decides by limits of every kind.
pub static LIMITS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("scripts/time.lua"),
        include_str!("scripts/bucket.lua"),
        include_str!("scripts/long.lua"),
        include_str!("scripts/paced.lua"),
        include_str!("scripts/window.lua"),
        include_str!("scripts/sliding.lua"),
        include_str!("scripts/log.lua"),
        include_str!("scripts/warm_up.lua"),
        "local kinds = { b = bucket, p = paced, w = window, m = months, s = sliding, l = log, u = warm_up }\n\n",
        include_str!("scripts/decide.lua"),
    ))
});

impl Script {
    fn new(source: &'static str) -> Script {
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
