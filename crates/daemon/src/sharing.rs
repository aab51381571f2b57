//! What the log says about limits that daemons share: whether they can, and what becomes of them while they cannot.

use crate::listen::Stop;
use crate::state::State;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tollgate::model::Shared;
use tollgate::store::Store;
use tracing::{info, warn};

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(50);

/// How long it may take to find out why the store cannot be reached.
const PATIENCE: Duration = Duration::from_secs(1);

/// Looks until the daemon is to end.
pub(crate) async fn watch(state: Arc<State>, mut stop: Stop) {
    let mut store = StoreWatch { lost_at: Some(Instant::now()), is_told: false, was_there: false };
    let mut warned_of = 0;
    loop {
        match state.sharing() {
            Some(sharing) => store.look(sharing.store()),
            None => warn_of_rules(&state, &mut warned_of),
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            () = stop.come() => return,
        }
    }
}

/// Says which rules would be shared if there were a store, once for each version of the rules.
fn warn_of_rules(state: &State, warned_of: &mut u64) {
    let version = state.engine().version();
    if std::mem::replace(warned_of, version) == version {
        return;
    }
    let rules = shared_rules(state);
    if !rules.is_empty() {
        warn!(
            rules = rules.join(", "),
            "rules are shared through a store, and there is none; until `store` names one, each does here what its `on_failure` says"
        );
    }
}

/// The rules that need a store, by namespace and name.
fn shared_rules(state: &State) -> Vec<String> {
    let in_force = state.engine().in_force();
    let needs_store = |shared| matches!(shared, Shared::Store | Shared::StoreExact | Shared::StoreLease);
    let namespaces = in_force.namespaces().iter();
    let rules = namespaces.flat_map(|namespace| namespace.rules().iter().map(move |rule| (namespace, rule.rule())));
    let shared = rules.filter(|(_, rule)| needs_store(rule.shared));
    shared.map(|(namespace, rule)| format!("{}/{}", namespace.model().name, rule.name)).collect()
}

/// Whether the store can be reached, as far as has been said.
struct StoreWatch {
    /// Since when it cannot.
    lost_at: Option<Instant>,
    /// Whether that has been said.
    is_told: bool,
    /// Whether it ever could be.
    was_there: bool,
}

impl StoreWatch {
    fn look(&mut self, store: &Store) {
        match (store.is_connected(), self.lost_at) {
            (true, Some(lost_at)) => self.found(store, lost_at.elapsed()),
            (false, None) => self.lost_at = Some(Instant::now()),
            _ => {}
        }
        if let Some(lost_at) = self.lost_at
            && !self.is_told
        {
            self.lost(store, lost_at.elapsed());
        }
    }

    fn found(&mut self, store: &Store, after: Duration) {
        let address = &store.config().address;
        if self.is_told {
            info!(store = %address, ?after, "the store is back; limits are shared again");
        } else if !self.was_there {
            info!(store = %address, "limits are shared through the store");
        }
        *self = StoreWatch { lost_at: None, is_told: false, was_there: true };
    }

    /// Says why once that is known.
    fn lost(&mut self, store: &Store, since: Duration) {
        let why = match store.trouble() {
            Some(trouble) => trouble.to_string(),
            None if since >= PATIENCE => "the store does not answer".to_owned(),
            None => return,
        };
        let address = &store.config().address;
        warn!(store = %address, "{why}; until it is back, rules that are shared do what their `on_failure` says");
        self.is_told = true;
    }
}
