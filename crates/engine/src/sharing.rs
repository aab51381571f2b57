//! Limits that many hosts count together in Redis or Valkey (feature `redis`).
//!
//! [`Engine`] decides and writes down; here is who talks to the store. Requests that only the store can decide about wait for
//! it, no longer than its budget. Everything else happens in one task in the background, which is called when something
//! is urgent and looks after the rest now and then.

mod debtors;
mod flush;
mod holding;
mod lender;
mod rounds;
mod teller;

pub use holding::Unreached;

use crate::clock::Clock;
use crate::engine::{Answer, Engine, Explanation, Pending, Question, Step, Verdict};
use crate::ledger::{Account, AccountId};
use debtors::Debtors;
use flush::Waiting;
use lender::{Lender, Lent, Wish, borrow};
use rounds::{Among, Rounds};
use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;
use teller::{Letter, Teller};
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tollgate_limit::Time;
use tollgate_rules::Request;
use tollgate_rules::model::Shared;
use tollgate_store::{Ask, Client, Config, Fingerprint, Host, Says, Store, Told, Totals};

/// How often a host says that it is there.
const BEAT: Duration = Duration::from_secs(1);

/// How often it is looked whether the store is there, and which tokens are not needed.
const TICK: Duration = Duration::from_millis(20);

/// How often it is looked which accounts are not used any more.
const CLOSING: Duration = Duration::from_millis(500);

/// What is urgent is told together with all that is within this.
const GATHER: Duration = Duration::from_millis(1);

/// So many questions of the background are under way at the same time.
const AT_ONCE: usize = 16;

/// Debts are paid and letters sent for so long before something else is looked after again.
const TURN: Duration = Duration::from_millis(100);

/// So many debts are paid at the same time, and so many of them by one question: so few that requests are hardly held up, and
/// that each is on its way before anybody asks who owes nothing any more.
const DEBTS_AT_ONCE: usize = 8;
const DEBTS_TOGETHER: usize = 4;

/// So many wishes for tokens are fulfilled before it is looked whether something is urgent.
const WISHES_AT_ONCE: usize = 128;

/// So many debtors are looked at for those whom the store can be asked about.
const MOST_LOOKED_AT: usize = 1_000;

/// So many different numbers of hosts are remembered for as long as something is owed.
const MOST_SHARES: usize = 8;

/// After so long every host that could not reach the store has been there again.
const LONGEST_RETURN: Duration = Duration::from_secs(5);

/// Clients ask the store again after so long, whether or not they have paid by then.
const LONGEST_SETTLING: Duration = Duration::from_millis(500);

/// After so many beats that nobody answered the store counts as gone.
const MOST_MISSED: u32 = 2;

/// What was spent while the store could not be reached may put a client into debt for so long.
const LONGEST_DEBT: Duration = Duration::from_secs(60);

/// An engine's connection to a store. Cheap to clone; it ends with the last clone, or with the engine.
#[derive(Clone)]
pub struct Sharing {
    store: Store,
    task: Arc<Task>,
}

/// Ends when it is dropped.
struct Task {
    handle: JoinHandle<()>,
    flushes: mpsc::Sender<Waiting>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

impl Sharing {
    /// Counts together with all hosts that use the same store and prefix. Until it is reached, rules do what they say for
    /// failures. An engine is shared once.
    ///
    /// Connections live on the runtime that this is called in, whoever asks. It has to go on running, and nothing on it should block:
    /// who asks from another one would wait for it.
    ///
    /// # Panics
    /// Outside of a tokio runtime, which it lives on.
    pub fn start(engine: &Arc<Engine>, clock: Clock, config: Config) -> Sharing {
        let (store, bell) = (Store::open(config), Arc::new(Notify::new()));
        let ring = Arc::clone(&bell);
        engine.ledger().on_urgent(move || ring.notify_one());
        // Who is decided about before the store is reached pays first, too.
        engine.ledger().set_settled(false);
        let host = Host(RandomState::new().hash_one(0_u8));
        let keeper = Keeper {
            engine: Arc::downgrade(engine),
            clock,
            store: store.clone(),
            host,
            beaten_at: None,
            missed: 0,
            found_at: None,
            shares: VecDeque::new(),
            ahead: Ahead::default(),
            teller: Teller::default(),
            lender: Lender::default(),
            debtors: Debtors::default(),
            told_debtors: Debtors::default(),
            looking: Rounds::every(TICK),
            closing: Rounds::every(CLOSING),
        };
        let (flushes, waiting) = mpsc::channel(1);
        let handle = tokio::spawn(keeper.run(bell, waiting));
        Sharing { store, task: Arc::new(Task { handle, flushes }) }
    }

    /// Where hosts count together.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl fmt::Debug for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharing").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Engine {
    /// Decides about a request: what is limited here, here; what is kept in the store, there.
    ///
    /// If the future is dropped before it is ready, the request may have been paid for.
    pub async fn check_with(&self, store: &Store, request: &Request<'_>, now: Time) -> Verdict {
        self.check_all_with(store, std::slice::from_ref(request), now).await
    }

    /// The same for several requests that go ahead together or not at all.
    pub async fn check_all_with(&self, store: &Store, parts: &[Request<'_>], now: Time) -> Verdict {
        match self.begin_all(parts, now) {
            Step::Done(verdict) => verdict,
            Step::Ask(pending) => self.finish_with(store, pending, parts, now).await,
        }
    }

    /// What [`check_with`](Engine::check_with) would say. Takes nothing.
    pub async fn peek_with(&self, store: &Store, request: &Request<'_>, now: Time) -> Verdict {
        let pending = match self.begin_to_peek(request, now) {
            Step::Done(verdict) => return verdict,
            Step::Ask(pending) => pending,
        };
        let answer = store.look(asks(pending.questions())).await.map_or(Answer::Failed, Answer::Decided);
        self.finish_to_peek(pending, &answer, now)
    }

    /// Every rule of the request's namespace, and why it applies or not, as [`explain`](Engine::explain) does, with what the
    /// store says of limits that are kept there. Takes nothing.
    pub async fn explain_with(&self, store: &Store, request: &Request<'_>, now: Time) -> Explanation {
        Explanation::new(self.peek_with(store, request, now).await, request)
    }

    /// Asks the store what was found to be asked when a decision was begun, and finishes it.
    pub async fn finish_with(&self, store: &Store, pending: Pending, parts: &[Request<'_>], now: Time) -> Verdict {
        let start = Instant::now();
        let answer = ask(store, pending.questions(), now).await;
        self.finish_all(pending, parts, &answer, now + start.elapsed())
    }
}

/// Brings the answer to what [`Engine::begin`] wants to know.
pub(crate) async fn ask(store: &Store, questions: &[Question], now: Time) -> Answer {
    match store.ask(asks(questions), now).await {
        Told::Decided(decisions) => Answer::Decided(decisions),
        Told::Refused { ask, decision } => Answer::Refused { question: ask, decision },
        Told::Failed => Answer::Failed,
    }
}

fn asks(questions: &[Question]) -> Vec<Ask> {
    let mut last: Option<(&[u8], Client)> = None;
    let asks = questions.iter().map(|question| {
        // Mostly all questions are about one client.
        let known = last.filter(|(client, _)| *client == &*question.client);
        let (_, client) = *last.insert(known.unwrap_or_else(|| (&question.client, Client::new(&question.client))));
        asked(question, client)
    });
    asks.collect()
}

fn asked(question: &Question, client: Client) -> Ask {
    let says = match (question.is_shadow, question.is_quota_mode) {
        (true, _) => Says::Shadow,
        (false, true) => Says::Quota,
        (false, false) => Says::Refuse,
    };
    let Question { limit, cost, max_wait, .. } = *question;
    Ask { key: client.at(question.limit_id), limit, cost, max_wait, says }
}

/// By how much the store's clock is ahead of this host's; the one that is behind is below zero.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    by: Duration,
    is_behind: bool,
}

impl Ahead {
    fn new(store: Time, here: Time) -> Ahead {
        if store >= here {
            Ahead { by: store.since(here), is_behind: false }
        } else {
            Ahead { by: here.since(store), is_behind: true }
        }
    }

    fn store_time(self, here: Time) -> Time {
        let by = u64::try_from(self.by.as_nanos()).unwrap_or(u64::MAX);
        let here = here.as_nanos();
        Time::from_nanos(if self.is_behind { here.saturating_sub(by) } else { here.saturating_add(by) })
    }
}

/// Whoever talks to the store in the background.
struct Keeper {
    engine: Weak<Engine>,
    clock: Clock,
    store: Store,
    host: Host,
    /// When the store last knew that this host is there.
    beaten_at: Option<Instant>,
    /// How often it did not answer since.
    missed: u32,
    /// Since when the store can be reached.
    found_at: Option<Instant>,
    /// How many hosts were known of while something was spent by a share that is still owed.
    shares: VecDeque<u64>,
    ahead: Ahead,
    teller: Teller,
    lender: Lender,
    /// Accounts in which something may be owed to the store.
    debtors: Debtors,
    /// The same where hosts only tell what they spend.
    told_debtors: Debtors,
    looking: Rounds,
    closing: Rounds,
}

impl Keeper {
    async fn run(mut self, bell: Arc<Notify>, mut flushes: mpsc::Receiver<Waiting>) {
        loop {
            let waiting = tokio::select! {
                waiting = flushes.recv() => waiting,
                rung = timeout(TICK, bell.notified()) => {
                    if rung.is_ok() {
                        sleep(GATHER).await;
                    }
                    None
                }
            };
            // Without an engine there is nobody to talk for.
            let Some(engine) = self.engine.upgrade() else { return };
            if let Some(waiting) = waiting {
                self.flush(&engine, waiting).await;
                continue;
            }
            self.look(&engine);
            let was_cut_off = engine.ledger().is_cut_off();
            self.beat(&engine).await;
            let is_cut_off = engine.ledger().is_cut_off();
            if !is_cut_off {
                // What was spent up to now is owed before others say what they have spent.
                if was_cut_off {
                    self.look(&engine);
                }
                self.charge_told(&engine);
            }
            self.pay(&engine).await;
            if !is_cut_off {
                let among = if self.looking.is_due() { Among::All } else { Among::Used };
                self.tell(&engine, among).await;
                self.lend(&engine, among).await;
            }
            if self.closing.is_due() {
                let now = self.clock.now();
                self.teller.close_idle(&engine, now);
                self.lender.close_idle(&engine, now);
            }
        }
    }

    /// Sees which accounts were used.
    fn look(&mut self, engine: &Engine) {
        let (ledger, now) = (engine.ledger(), self.clock.now());
        self.remember_share(ledger.hosts());
        let urgent = ledger.take_urgent().into_iter().map(|id| (id, true));
        let touched = ledger.take_touched().into_iter().map(|id| (id, false));
        for (id, is_urgent) in urgent.chain(touched).collect::<Vec<_>>() {
            let Some(account) = ledger.account(id) else {
                ledger.look_again(id);
                continue;
            };
            // Of limits that only the store keeps, debts are all that there are accounts for.
            if account.shared == Shared::StoreExact || ledger.is_owing(id) {
                let is_told = account.shared == Shared::Store;
                if is_told { &mut self.told_debtors } else { &mut self.debtors }.add(id);
            }
            match account.shared {
                Shared::Store => self.teller.used(ledger, id, &account, is_urgent, now),
                Shared::StoreLease => self.lender.used(id, &account, now),
                Shared::Local | Shared::Cluster | Shared::StoreExact => {}
            }
        }
    }

    /// Says that this host is there, and finds out whether the store is.
    async fn beat(&mut self, engine: &Engine) {
        if !self.store.is_connected() {
            self.beaten_at = None;
            self.lose(engine);
            return;
        }
        if self.beaten_at.is_some_and(|at| at.elapsed() < BEAT) {
            return;
        }
        match self.store.count_hosts(self.host).await {
            Some((hosts, time)) => {
                (self.beaten_at, self.missed) = (Some(Instant::now()), 0);
                self.ahead = Ahead::new(time, self.clock.now());
                self.find(engine, hosts);
            }
            None => {
                (self.beaten_at, self.missed) = (None, self.missed.saturating_add(1));
                if self.missed >= MOST_MISSED {
                    self.lose(engine);
                }
            }
        }
    }

    fn lose(&mut self, engine: &Engine) {
        self.found_at = None;
        engine.ledger().set_cut_off(true);
        // Of a cluster others may be there, whose clients need not wait.
        if !self.store.is_cluster() {
            engine.ledger().set_settled(false);
        }
    }

    /// The store knows of so many hosts. It may have forgotten some while nobody could reach it, and they come back one by one.
    fn find(&mut self, engine: &Engine, hosts: u64) {
        let ledger = engine.ledger();
        if self.found_at.is_none() {
            ledger.set_settled(false);
        }
        let are_all_back = self.found_at.get_or_insert_with(Instant::now).elapsed() >= LONGEST_RETURN;
        ledger.set_hosts(if are_all_back { hosts } else { hosts.max(ledger.hosts()) });
        ledger.set_cut_off(false);
    }

    /// Tells what was spent by rules with `shared: store`, until nothing is due.
    async fn tell(&mut self, engine: &Engine, among: Among) {
        let start = Instant::now();
        self.tell_some(engine, among).await;
        while self.beaten_at.is_some() && self.teller.has_more() && start.elapsed() < TURN {
            self.tell_some(engine, Among::All).await;
        }
    }

    async fn tell_some(&mut self, engine: &Engine, among: Among) {
        let now = self.clock.now();
        let when = (self.store.config().interval, now, self.ahead.store_time(now));
        let letters = self.teller.letters(engine, among, |key| self.store.group(key), when);
        let sending = letters.into_iter().map(|letter| send(self.store.clone(), self.host, letter));
        each(sending, |(letter, totals)| match totals {
            Some(totals) => self.teller.answered(engine, &letter, &totals, self.clock.now()),
            // It is sent again when the store is there again.
            None => self.beaten_at = None,
        })
        .await;
    }

    /// Takes tokens ahead for rules with `shared: store-lease`, and gives back what is not needed.
    async fn lend(&mut self, engine: &Engine, among: Among) {
        let now = self.clock.now();
        let (store, clock) = (self.store.clone(), self.clock.clone());
        for some in self.lender.wishes(engine, among, (now, self.ahead.store_time(now))).chunks(WISHES_AT_ONCE) {
            let wishes = some.iter().map(|wish| fulfil(store.clone(), wish.clone(), now));
            each(wishes, |answer: Option<(AccountId, Ask, Lent)>| {
                if let Some((id, ask, lent)) = answer {
                    self.lender.answered(engine, (id, &ask), lent, clock.now());
                }
            })
            .await;
            self.tell_urgent(engine).await;
        }
    }

    /// Tells what cannot wait until something else is done that takes long.
    async fn tell_urgent(&mut self, engine: &Engine) {
        self.look(engine);
        if self.teller.is_urgent() && !engine.ledger().is_cut_off() {
            self.charge_told(engine);
            self.tell_some(engine, Among::Used).await;
        }
    }

    /// What is spent without the store is spent by the share of one of as many hosts as are known of.
    fn remember_share(&mut self, hosts: u64) {
        self.shares.retain(|known| *known != hosts);
        self.shares.push_back(hosts);
        if self.shares.len() > MOST_SHARES {
            self.shares.pop_front();
        }
    }

    /// Charges what was spent while nobody could be told, as far as it still counts, before others tell what they have spent.
    fn charge_told(&mut self, engine: &Engine) {
        let (ledger, now) = (engine.ledger(), self.clock.now());
        self.remember_share(ledger.hosts());
        while let Some(id) = self.told_debtors.next() {
            if let Some(account) = ledger.account(id) {
                let tokens = engine.still_owed(&account, ledger.take_owed(id), self.shares.make_contiguous(), now);
                engine.charge(&account, tokens, now);
            }
        }
    }

    /// Charges what was spent while the store could not be reached, as far as it still counts, to whoever can be: some of a cluster
    /// may be there, and a store that does not count hosts may do everything else.
    async fn pay(&mut self, engine: &Engine) {
        let start = Instant::now();
        self.remember_share(engine.ledger().hosts());
        while self.pay_some(engine).await && start.elapsed() < TURN {
            self.tell_urgent(engine).await;
        }
        let is_paid = self.debtors.is_empty();
        if is_paid && self.told_debtors.is_empty() {
            self.shares.clear();
        }
        let is_settled = is_paid || self.found_at.is_some_and(|found_at| found_at.elapsed() > LONGEST_SETTLING);
        if is_settled && (self.store.is_cluster() || !engine.ledger().is_cut_off()) {
            engine.ledger().set_settled(true);
        }
    }

    /// Says whether there may be more to pay.
    async fn pay_some(&mut self, engine: &Engine) -> bool {
        let ledger = engine.ledger();
        let debts = self.debts(engine);
        let (count, mut is_answered) = (debts.len(), false);
        let now = self.clock.now();
        let letters = self.together(debts).into_iter().map(|debts| pay(self.store.clone(), debts, now));
        // What nobody answered may have been charged or not. It is charged again: then a client gets less, never more.
        each(letters, |letter| {
            is_answered |= letter.iter().all(|(_, unpaid)| *unpaid == 0);
            letter.into_iter().for_each(|(id, unpaid)| ledger.paid(id, unpaid));
        })
        .await;
        is_answered && count == DEBTS_AT_ONCE
    }

    /// The debts of those whose turn it is.
    fn debts(&mut self, engine: &Engine) -> Vec<(AccountId, Ask)> {
        let (ledger, now) = (engine.ledger(), self.clock.now());
        let mut debts = Vec::new();
        for _ in 0..self.debtors.len().min(MOST_LOOKED_AT) {
            if debts.len() == DEBTS_AT_ONCE {
                break;
            }
            let Some(id) = self.debtors.next() else { break };
            let Some(account) = ledger.account(id) else { continue };
            let is_owing = ledger.is_owing(id);
            // Whoever lends closes its accounts itself.
            if !is_owing && (account.shared != Shared::StoreExact || ledger.close(id)) {
                continue;
            }
            // It is looked at again until nothing is owed. Meanwhile another node of a cluster may be there.
            self.debtors.add(id);
            let key = Fingerprint::new(account.limit_id, &account.client);
            if is_owing && self.store.is_reached(&key) {
                let tokens = engine.still_owed(&account, ledger.take_to_pay(id), self.shares.make_contiguous(), now);
                debts.push((id, debt(&account, key, tokens)));
            }
        }
        debts
    }

    /// Puts debts together that can be paid by one question.
    fn together(&self, mut debts: Vec<(AccountId, Ask)>) -> Vec<Vec<(AccountId, Ask)>> {
        debts.sort_by_key(|(_, debt)| self.store.group(&debt.key));
        let groups = debts.chunk_by(|(_, one), (_, other)| self.store.group(&one.key) == self.store.group(&other.key));
        groups.flat_map(|group| group.chunks(DEBTS_TOGETHER)).map(<[_]>::to_vec).collect()
    }
}

/// Tells what a letter says, and brings the sums if there is an answer.
async fn send(store: Store, host: Host, letter: Letter) -> (Letter, Option<Totals>) {
    let totals = store.tell(host, &letter.batch).await;
    (letter, totals)
}

fn debt(account: &Account, key: Fingerprint, tokens: u64) -> Ask {
    Ask { key, limit: account.limit, cost: tokens, max_wait: None, says: Says::Quota }
}

/// Charges debts, and says how much of each is still owed. No request waits for it.
async fn pay(store: Store, debts: Vec<(AccountId, Ask)>, now: Time) -> Vec<(AccountId, u64)> {
    let asks: Vec<Ask> = debts.iter().map(|(_, debt)| debt.clone()).collect();
    let uncharged = charge(|asks| store.ask_patiently(asks, now), &asks).await;
    let unpaid = |debt: &Ask| if uncharged.contains(&debt.key) { debt.cost } else { 0 };
    debts.iter().map(|(id, debt)| (*id, unpaid(debt))).collect()
}

/// Takes tokens ahead, or gives back what is not needed.
async fn fulfil(store: Store, wish: Wish, now: Time) -> Option<(AccountId, Ask, Lent)> {
    match wish {
        Wish::Borrow { id, ask } => {
            let lent = borrow(&store, &ask, now).await;
            Some((id, ask, lent))
        }
        Wish::Return { ask, taken_at } => {
            store.give_back_patiently(vec![ask], taken_at).await;
            None
        }
    }
}

/// Lets all of them go on, a few at the same time, and hands over what becomes of each.
async fn each<F>(futures: impl Iterator<Item = F>, mut done: impl FnMut(F::Output))
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut going = JoinSet::new();
    for future in futures {
        if going.len() == AT_ONCE {
            going.join_next().await.and_then(Result::ok).map(&mut done);
        }
        going.spawn(future);
    }
    while let Some(ended) = going.join_next().await {
        ended.ok().map(&mut done);
    }
}

/// Takes tokens in the store whether they are there or not, and says of which it has not answered that it did. Limits that cannot go
/// into debt give all that they have.
async fn charge<F: Future<Output = Told>>(ask: impl Fn(Vec<Ask>) -> F, debts: &[Ask]) -> Vec<Fingerprint> {
    let owed = |debt: &Ask, cost| Ask { cost, max_wait: Some(LONGEST_DEBT), says: Says::Quota, ..debt.clone() };
    let all: Vec<Ask> = debts.iter().filter(|debt| debt.cost > 0).map(|debt| owed(debt, debt.cost)).collect();
    let keys = |debts: &[Ask]| debts.iter().map(|debt| debt.key).collect();
    let Told::Decided(decisions) = ask(all.clone()).await else { return keys(&all) };
    let refused = all.iter().zip(&decisions).filter(|(_, decision)| !decision.is_allowed() && decision.remaining > 0);
    let rest: Vec<Ask> = refused.map(|(debt, decision)| owed(debt, decision.remaining)).collect();
    match ask(rest.clone()).await {
        Told::Decided(_) => Vec::new(),
        Told::Refused { .. } | Told::Failed => keys(&rest),
    }
}

#[cfg(test)]
mod tests;
