//! Before a host ends: what it has spent is told, what it owes is paid, and what it took ahead is given back.

use super::{Among, Keeper, Sharing, TICK, each, fulfil};
use crate::engine::Engine;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// Nobody is kept from ending for longer than this.
const LONGEST: Duration = Duration::from_secs(2);

/// Somebody who waits until all is told.
pub(super) type Waiting = oneshot::Sender<()>;

impl Sharing {
    /// Tells the store at once what this host has spent so far, pays what it owes, and gives back the tokens that it took ahead,
    /// as a service does before it ends. Says whether nothing is left to tell, after two seconds at the latest. Tokens whose return the
    /// store does not confirm are not offered again: they may be back already, and come back by themselves in any case.
    ///
    /// ```no_run
    /// # async fn stop(tollgate: tollgate::Tollgate) {
    /// if let Some(sharing) = tollgate.sharing()
    ///     && !sharing.flush().await
    /// {
    ///     eprintln!("the store does not know of all that was spent");
    /// }
    /// # }
    /// ```
    pub async fn flush(&self) -> bool {
        let (waiting, is_told) = oneshot::channel();
        // Whoever would do it may be gone, with its runtime for one.
        let told = async { self.task.flushes.send(waiting).await.is_ok() && is_told.await.is_ok() };
        timeout(LONGEST, told).await.unwrap_or(false)
    }
}

impl Keeper {
    /// Goes on until all is told, or nobody waits for it any more.
    pub(super) async fn flush(&mut self, engine: &Engine, waiting: Waiting) {
        while !self.flush_once(engine).await {
            if waiting.is_closed() {
                return;
            }
            sleep(TICK).await;
        }
        let _ = waiting.send(());
    }

    /// Says whether nothing is left to tell.
    async fn flush_once(&mut self, engine: &Engine) -> bool {
        self.beat(engine).await;
        self.look(engine);
        if !engine.ledger().is_cut_off() {
            // What was owed is to be told from now on.
            self.charge_told(engine);
            self.look(engine);
            self.teller.hurry();
            self.tell(engine, Among::All).await;
        }
        self.pay(engine).await;
        self.give_back(engine).await;
        let is_paid = self.debtors.is_empty() && self.told_debtors.is_empty();
        is_paid && self.teller.is_all_told() && !self.lender.has_tokens(engine, self.clock.now())
    }

    /// Gives back all that was taken ahead and can be.
    async fn give_back(&mut self, engine: &Engine) {
        let now = self.clock.now();
        let returns = self.lender.returns(engine, |key| self.store.is_reached(key), now);
        each(returns.into_iter().map(|wish| fulfil(self.store.clone(), wish, now)), drop).await;
    }
}
