//! What the store was asked, and whether it is there.

use super::{Kind, Page};
use tollgate::ledger::Ledger;
use tollgate::store::{Snapshot, Store};

impl Page {
    pub(super) fn store(&mut self, store: &Store, ledger: &Ledger) {
        let stats = store.stats();
        self.questions(&stats);
        let connected = "Whether there is a connection to the store that works.";
        self.alone("tollgate_store_connected", Kind::Gauge, connected, u8::from(store.is_connected()));
        let cut_off =
            "Whether what is spent here cannot be told to the others, so that rules do what they say for failures.";
        self.alone("tollgate_store_cut_off", Kind::Gauge, cut_off, u8::from(ledger.is_cut_off()));
        let hosts = "Daemons that count together, as far as is known, this one included.";
        self.alone("tollgate_store_hosts", Kind::Gauge, hosts, ledger.hosts());
        let connects = "Connections to the store that were tried.";
        self.alone("tollgate_store_connects_total", Kind::Counter, connects, stats.connects);
        let reloaded = "Times that the store had forgotten a script.";
        self.alone("tollgate_store_scripts_reloaded_total", Kind::Counter, reloaded, stats.reloaded);
        let unrecorded = "Tokens that the others are not told of, since too many clients were in use at the same time.";
        self.alone("tollgate_store_unrecorded_tokens_total", Kind::Counter, unrecorded, ledger.unrecorded());
    }

    fn questions(&mut self, stats: &Snapshot) {
        let name = "tollgate_store_questions_total";
        let help = "Questions for the store by how they ended; those that are `remembered` were known to be refused.";
        self.family(name, Kind::Counter, help);
        let endings = [
            ("answered", stats.answered),
            ("remembered", stats.remembered),
            ("late", stats.late),
            ("lost", stats.lost),
            ("unheard", stats.unheard),
            ("failed", stats.failed),
            ("unreachable", stats.unreachable),
            ("crowded", stats.crowded),
            ("impossible", stats.impossible),
        ];
        for (ending, count) in endings {
            self.sample(name, &[("ending", ending)], count);
        }
    }
}
