//! What the log says about limits that daemons share: whether they can, and what becomes of them while they cannot.

use crate::listen::Stop;
use crate::state::State;
use std::mem::Discriminant;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tollgate::store::{Store, Trouble};
use tracing::{info, warn};

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(50);

/// How long it may take to find out why the store cannot be reached.
const PATIENCE: Duration = Duration::from_secs(1);

/// Looks until the daemon is to end.
pub(crate) async fn watch(state: Arc<State>, mut stop: Stop) {
    let mut store = StoreWatch { lost_at: Some(Instant::now()), told: None, was_there: false };
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
    let namespaces = in_force.namespaces().iter();
    let rules = namespaces.flat_map(|namespace| namespace.rules().iter().map(move |rule| (namespace, rule.rule())));
    let shared = rules.filter(|(_, rule)| rule.shared.is_by_store());
    shared.map(|(namespace, rule)| format!("{}/{}", namespace.model().name, rule.name)).collect()
}

/// Of what kind the trouble was that was told of, if that was known.
#[derive(Clone, Copy)]
struct Told(Option<Discriminant<Trouble>>);

/// Whether the store can be reached, as far as has been said.
struct StoreWatch {
    /// Since when it cannot.
    lost_at: Option<Instant>,
    /// What has been said about it.
    told: Option<Told>,
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
        if let Some(lost_at) = self.lost_at {
            self.lost(store, lost_at.elapsed());
        }
    }

    fn found(&mut self, store: &Store, after: Duration) {
        let address = &store.config().address;
        if self.told.is_some() {
            info!(store = %address, ?after, "the store is back; limits are shared again");
        } else if !self.was_there {
            info!(store = %address, "limits are shared through the store");
        }
        *self = StoreWatch { lost_at: None, told: None, was_there: true };
    }

    /// Says why once that is known, and again if it is for another kind of reason: somebody may have to do something else about it.
    fn lost(&mut self, store: &Store, since: Duration) {
        let trouble = store.trouble();
        let kind = trouble.as_deref().map(std::mem::discriminant);
        let is_news = self.told.is_none_or(|told| kind.is_some() && told.0 != kind);
        if !is_news || kind.is_none() && since < PATIENCE {
            return;
        }
        let why = trouble.map_or_else(|| "the store does not answer".to_owned(), |trouble| trouble.to_string());
        let address = &store.config().address;
        warn!(store = %address, "{why}; until it is back, rules that are shared do what their `on_failure` says");
        self.told = Some(Told(kind));
    }
}
