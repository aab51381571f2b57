//! Forgetting what was spent, for whoever may begin anew.

use crate::call::Ask;
use crate::resp::Reply;
use crate::script::{Run, Script};
use crate::store::Store;
use std::sync::LazyLock;

/// Forgets states.
static FORGET: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/forget.lua")));

impl Store {
    /// Forgets what was spent of these limits, whether hosts decide by what is kept here or only [tell](Store::tell) it, and
    /// that this host was refused. Says whether the store has said so of all of them; to ask again does no harm. Other
    /// hosts that remember a refusal hear of it when they ask again.
    pub async fn forget(&self, asks: &[Ask]) -> bool {
        self.forget_refusals(asks);
        let mut is_forgotten = true;
        for ask in asks {
            let name = ask.key.name(&self.config().prefix);
            let keys = [self.told_name(&ask.key).into_bytes(), name.into_bytes()];
            let run = Run { script: &FORGET, keys: &keys, arguments: &[] };
            is_forgotten &= matches!(self.run(&run).await, Some(Reply::Integer(_)));
        }
        // What was refused while this was on its way is no longer true, either.
        self.forget_refusals(asks);
        is_forgotten
    }
}
