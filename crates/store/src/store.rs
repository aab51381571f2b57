use crate::apart::{self, Taken};
use crate::call::{Ask, Call, has_twins};
use crate::cluster::{self, Notices};
use crate::config::{Address, Config};
use crate::connection::{Commands, Connection};
use crate::keeper::{self, Trouble, Turns};
use crate::key::{Fingerprint, TAGS};
use crate::map::Map;
use crate::node::{NoReply, Node, Until};
use crate::refusals::Refusals;
use crate::resp::{Command, Reply};
use crate::script::{Form, Run, Script};
use crate::slots::{Redirection, slot_of};
use crate::stats::{Snapshot, Stats};
use arc_swap::{ArcSwap, ArcSwapOption};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tollgate_limit::{Decision, Time};

/// A Redis or Valkey server, or a cluster of them, in which many hosts count together. Cheap to clone; clones share
/// everything.
///
/// Every decision waits for it for as long as its [budget](Config::budget) and no longer, and [few](Config::most_waiting) do so in
/// vain. After three late answers in a row nobody asks until one is prompt or there is a new connection; each rule does
/// what it says for failures.
///
/// ```no_run
/// use tollgate_limit::{Limit, Time};
/// use tollgate_store::{Ask, Config, Fingerprint, Says, Store, Told};
///
/// # async fn example(now: Time) -> Result<(), Box<dyn std::error::Error>> {
/// let store = Store::open(Config::new("127.0.0.1:6379"));
/// let limit = Limit::token_bucket("5 per minute".parse()?);
/// let ask = Ask { key: Fingerprint::new(1, b"alice"), limit, cost: 1, max_wait: None, says: Says::Refuse };
/// match store.ask(vec![ask], now).await {
///     Told::Decided(decisions) => println!("{decisions:?}"),
///     Told::Refused { decision, .. } => println!("still refused: {:?}", decision.retry_after()),
///     Told::Failed => println!("nobody knows: {:?}", store.trouble()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    _keeper: Arc<Keeper>,
}

/// What came of asking.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// What each limit said, in the order in which they were asked; all or nothing was taken.
    Decided(Vec<Decision>),
    /// One limit is known to refuse, so that nobody was asked about the others and nothing was taken.
    Refused {
        /// Which of those that were to be asked.
        ask: usize,
        /// What it says.
        decision: Decision,
    },
    /// The store did not say within the budget.
    Failed,
}

/// How often a question is sent at the most: to a node that has forgotten the script, and to others that it names.
const MOST_TRIES: usize = 4;

/// As many budgets are waited for an answer that no request waits for.
const PATIENCE: u32 = 20;

/// How long somebody waits for a connection before it looks again whether there is one.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What a script is asked: about states in a slot, and how the command that runs it is written.
pub(crate) struct Question<'a, W> {
    pub(crate) slot: u16,
    pub(crate) script: &'a Script,
    pub(crate) write: W,
}

/// What the handles of a store and its keepers share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) stats: Stats,
    /// Where all that goes on in the background lives. Whoever asks may live somewhere else, and not for as long.
    pub(crate) home: Handle,
    /// Told when there is a connection that was not there before.
    pub(crate) found: Notify,
    pub(crate) refusals: Refusals,
    map: ArcSwap<Map>,
    /// Where to tell that the map is wrong; one server has none that could be.
    notices: Option<Notices>,
    /// Why the map is not known.
    trouble: ArcSwapOption<Trouble>,
    turns: Turns,
}

/// Ends with the last handle.
struct Keeper(JoinHandle<()>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Store {
    /// A store that connections are made to from now on. Whoever asks before there is one is not kept waiting.
    ///
    /// Connections live on the runtime that this is called in, whoever asks. It has to go on running, and nothing on it should block:
    /// who asks from another one would wait for it.
    ///
    /// # Panics
    /// Outside of a tokio runtime, which its connections live on.
    pub fn open(config: Config) -> Store {
        let (seeds, map) = match &config.address {
            Address::Cluster(seeds) => (Some(seeds.clone()), Map::empty()),
            _ => (None, Map::of_one(Node::new(None, &config))),
        };
        let (notices, received) = Notices::new();
        let shared = Arc::new(Shared {
            stats: Stats::default(),
            home: Handle::current(),
            found: Notify::new(),
            refusals: Refusals::new(config.remembered),
            map: ArcSwap::from_pointee(map),
            notices: seeds.is_some().then_some(notices),
            trouble: ArcSwapOption::empty(),
            turns: Turns::default(),
            config,
        });
        let keeper = match (seeds, shared.map().nodes()) {
            (None, [node]) => tokio::spawn(keeper::keep(Arc::clone(&shared), Arc::clone(node))),
            (seeds, _) => tokio::spawn(cluster::keep(Arc::clone(&shared), seeds.unwrap_or_default(), received)),
        };
        Store { shared, _keeper: Arc::new(Keeper(keeper)) }
    }

    /// Asks limits that go ahead together or not at all. The time is this host's, and only matters for how long a refusal
    /// is remembered.
    ///
    /// If the future is dropped before it is ready, the request may have been paid for.
    pub async fn ask(&self, asks: Vec<Ask>, now: Time) -> Told {
        self.ask_until(self.shared.soon(), asks, now).await
    }

    /// The same for somebody whom no request waits for, and who rather waits longer than not to know what came of it.
    pub async fn ask_patiently(&self, asks: Vec<Ask>, now: Time) -> Told {
        self.ask_until(self.shared.later(), asks, now).await
    }

    async fn ask_until(&self, until: Until, asks: Vec<Ask>, now: Time) -> Told {
        if asks.is_empty() {
            return Told::Decided(Vec::new());
        }
        // Mostly all of them are about different states.
        let (asks, places) = if has_twins(&asks) { merge(asks) } else { (asks, Vec::new()) };
        if let Some((index, decision)) = self.shared.refusals.find(&asks, now) {
            self.shared.stats.remembered.add();
            let ask = places.iter().position(|place| *place == index).unwrap_or(index);
            return Told::Refused { ask, decision };
        }
        match self.shared.ask(asks, until, now).await {
            Some(decisions) if places.is_empty() => Told::Decided(decisions),
            Some(decisions) => {
                Told::Decided(places.iter().filter_map(|place| decisions.get(*place).copied()).collect())
            }
            None => Told::Failed,
        }
    }

    /// What [`ask`](Store::ask) would say about each limit, if the store says it within the budget. Takes nothing.
    pub async fn look(&self, asks: Vec<Ask>) -> Option<Vec<Decision>> {
        let (asks, places) = merge(asks);
        let decisions = self.shared.look(&asks).await?;
        Some(places.iter().filter_map(|place| decisions.get(*place).copied()).collect())
    }

    /// Gives back what these questions have just taken and nobody used: never more than is missing, and nothing to logs and
    /// warm-ups. Says how many tokens each has got back, or `None` where the store did not say within the budget; those
    /// may be back or not, and must not be given back again. Hosts that have been refused meanwhile hear of it when
    /// they would have asked again anyway.
    ///
    /// The caller vouches that the tokens were taken, and that this is the only time that they are given back.
    pub async fn give_back(&self, asks: Vec<Ask>) -> Vec<Option<u64>> {
        self.give_back_after(Duration::ZERO, asks).await
    }

    /// The same for somebody whom no request waits for. If it is said when they were taken, by the store's clock, what has come in since
    /// then is not given back.
    pub async fn give_back_patiently(&self, asks: Vec<Ask>, taken_at: Option<Time>) -> Vec<Option<u64>> {
        let taken = taken_at.map_or(Taken::Ago(Duration::ZERO), Taken::At);
        self.give_back_until(self.shared.later(), taken, asks).await
    }

    /// The same for what was taken so long ago. What has come in since then is not given back, since others may have taken it;
    /// nor is anything of a window that has ended.
    pub async fn give_back_after(&self, ago: Duration, asks: Vec<Ask>) -> Vec<Option<u64>> {
        self.give_back_until(self.shared.soon(), Taken::Ago(ago), asks).await
    }

    async fn give_back_until(&self, until: Until, taken: Taken, asks: Vec<Ask>) -> Vec<Option<u64>> {
        let costs: Vec<u64> = asks.iter().map(|ask| ask.cost).collect();
        let (asks, places) = merge(asks);
        let given = self.shared.give_back(&asks, taken, until).await;
        share_out(&costs, &places, given)
    }

    /// Whether there is a connection that works, as far as is known; in a cluster to every node that keeps any slots, so
    /// that whatever is asked can be decided. It may rest for some milliseconds after late answers.
    pub fn is_connected(&self) -> bool {
        self.shared.map().is_connected()
    }

    /// Waits until that is so.
    pub async fn connected(&self) {
        loop {
            let found = self.shared.found.notified();
            if self.is_connected() {
                return;
            }
            // One that has to show that it is well tells nobody when it has.
            let _ = timeout(LOOK_AGAIN, found).await;
        }
    }

    /// Why there is no connection, or one less than there should be: what came of the last attempt. In a cluster that is
    /// why nobody says who keeps what, or else what is the matter with the first node that something is the matter with.
    pub fn trouble(&self) -> Option<Arc<Trouble>> {
        let of_nodes = || self.shared.map().nodes().iter().find_map(|node| node.trouble());
        self.shared.trouble.load_full().or_else(of_nodes)
    }

    /// Whether it is a cluster, of which a part may be out of reach.
    pub fn is_cluster(&self) -> bool {
        self.shared.is_cluster()
    }

    /// Whether there is a connection to whoever keeps this state, be it that nobody else of a cluster is there.
    pub fn is_reached(&self, key: &Fingerprint) -> bool {
        self.shared.map().node(self.shared.slot(key)).is_some_and(|node| node.connection().is_some())
    }

    /// Where it is, and how much it is waited for.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Runs a script for somebody whom no request waits for.
    pub(crate) async fn run(&self, run: &Run<'_>) -> Option<Reply> {
        self.shared.run(run, self.shared.later()).await
    }

    pub(crate) fn forget_refusals(&self, asks: &[Ask]) {
        self.shared.refusals.forget(asks);
    }

    /// What has been asked so far, and how that went.
    pub fn stats(&self) -> Snapshot {
        self.shared.stats.snapshot()
    }
}

impl Shared {
    pub(crate) fn map(&self) -> Arc<Map> {
        self.map.load_full()
    }

    pub(crate) fn set_map(&self, map: Arc<Map>) {
        self.map.store(map);
        // Who is missing may not be in it any more.
        self.found.notify_waiters();
    }

    pub(crate) fn set_trouble(&self, trouble: Option<Trouble>) {
        self.trouble.store(trouble.map(Arc::new));
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.notices.is_some()
    }

    pub(crate) fn notices(&self) -> Option<&Notices> {
        self.notices.as_ref()
    }

    /// Somebody did not do what the map says of it, if there is any.
    pub(crate) fn stale(&self) {
        if let Some(notices) = &self.notices {
            notices.stale();
        }
    }

    /// Waits until it is our turn to connect to anybody.
    pub(crate) async fn turn_to_connect(&self) {
        self.turns.next().await;
        self.stats.connects.add();
    }

    /// A tag whose keys a node keeps.
    pub(crate) fn tag_at(&self, node: &Arc<Node>) -> Option<u32> {
        let map = self.map();
        if !map.is_keeper(node) {
            return None;
        }
        let slot = |tag| Fingerprint::of_nobody(tag, 0).slot(&self.config.prefix);
        // Keys whose prefix has braces of its own are all in one slot.
        let tags = if slot_of(self.config.prefix.as_bytes()) == slot(0) && slot(0) == slot(1) { 1 } else { TAGS };
        (0..tags).find(|tag| map.node(slot(*tag)).is_some_and(|keeper| Arc::ptr_eq(keeper, node)))
    }

    /// The slot of a key; where one server keeps all of them it does not matter.
    pub(crate) fn slot(&self, key: &Fingerprint) -> u16 {
        if self.is_cluster() { key.slot(&self.config.prefix) } else { 0 }
    }

    /// For a request that waits.
    pub(crate) fn soon(&self) -> Until {
        Until { deadline: Instant::now() + self.config.budget, is_patient: false }
    }

    /// For somebody whom no request waits for.
    pub(crate) fn later(&self) -> Until {
        Until { deadline: Instant::now() + self.config.budget * PATIENCE, is_patient: true }
    }

    /// What each limit says, if the store says it by then.
    async fn ask(self: &Arc<Shared>, asks: Vec<Ask>, until: Until, now: Time) -> Option<Vec<Decision>> {
        let slot = asks.first().map_or(0, |ask| self.slot(&ask.key));
        if self.is_cluster() && asks.iter().any(|ask| self.slot(&ask.key) != slot) {
            let decisions = apart::ask(self, &asks, until).await?;
            self.refusals.add(&asks, &decisions, now);
            return Some(decisions);
        }
        let Some(call) = Call::new(asks) else {
            self.stats.impossible.add();
            return None;
        };
        let write = |out: &mut Vec<u8>, form| call.write(out, &self.config.prefix, form);
        let question = Question { slot, script: call.script(), write };
        let decisions = self.question(question, |reply| call.read(&reply).ok(), until).await?;
        self.refusals.add(call.asks(), &decisions, now);
        Some(decisions)
    }

    /// Runs a script on whoever keeps the slot of its keys, and says what it answered, if it did within the deadline.
    /// An error is no answer.
    pub(crate) async fn run(&self, run: &Run<'_>, until: Until) -> Option<Reply> {
        let read = |reply| if matches!(reply, Reply::Error(_)) { None } else { Some(reply) };
        let slot = run.keys.first().filter(|_| self.is_cluster()).map_or(0, |key| slot_of(key));
        let question = Question { slot, script: run.script, write: |out: &mut Vec<u8>, form| run.write(out, form) };
        self.question(question, read, until).await
    }

    /// The one way in which the store is asked anything: whoever keeps the slot, or whom that one names instead.
    pub(crate) async fn question<T>(
        &self,
        question: Question<'_, impl Fn(&mut Vec<u8>, Form)>,
        read: impl FnOnce(Reply) -> Option<T>,
        until: Until,
    ) -> Option<T> {
        let asked_at = Instant::now();
        let (connection, reply) = self.ask_whoever_knows(question, until).await?;
        let is_elsewhere = matches!(&reply, Reply::Error(error) if self.is_elsewhere(error));
        let answer = read(reply);
        match answer {
            Some(_) => {
                self.stats.answered.add();
                // Who was patient may have waited for longer than requests can.
                if asked_at.elapsed() <= self.config.budget {
                    connection.succeeded();
                }
            }
            None => {
                self.stats.failed.add();
                self.stale();
                if !is_elsewhere {
                    connection.failed();
                }
            }
        }
        answer
    }

    /// The first reply that does not name somebody else, and where it comes from.
    async fn ask_whoever_knows(
        &self,
        Question { slot, script, write }: Question<'_, impl Fn(&mut Vec<u8>, Form)>,
        until: Until,
    ) -> Option<(Arc<Connection>, Reply)> {
        let mut node = self.map.load().node(slot).cloned();
        let (mut form, mut is_asking) = (Form::Digest, false);
        let mut said = None;
        for _ in 0..MOST_TRIES {
            let Some(asked) = &node else {
                self.stats.unreachable.add();
                self.stale();
                return None;
            };
            let asked_at = Instant::now();
            let (connection, reply) = self.ask_node(asked, written(&write, form, is_asking), until).await?;
            let redirection = match &reply {
                Reply::Error(error) => self.redirection(error, asked),
                _ => None,
            };
            said = Some((connection, reply));
            match redirection {
                // Scripts are gone when a store was restarted, or somebody has flushed them.
                Some(Redirection::NoScript) if form == Form::Digest => {
                    if asked.reloads(script, asked_at) {
                        self.stats.reloaded.add();
                        form = Form::Source;
                    }
                }
                Some(Redirection::Moved(address)) => {
                    node = self.map.load().at(&address).cloned();
                    is_asking = false;
                    self.notices()?.moved(slot, &address);
                }
                Some(Redirection::Ask(address)) => {
                    node = self.map.load().at(&address).cloned();
                    is_asking = true;
                    self.notices()?.asked(&address);
                }
                _ => return said,
            }
        }
        said
    }

    async fn ask_node(&self, node: &Arc<Node>, commands: Commands, until: Until) -> Option<(Arc<Connection>, Reply)> {
        match node.ask(commands, until, &self.stats).await {
            Ok(said) => Some(said),
            Err(NoReply::Crowded) => None,
            Err(NoReply::Unreachable | NoReply::Silent) => {
                self.stale();
                None
            }
        }
    }

    /// Whether a node says that it need not know, which is no fault of its.
    pub(crate) fn is_elsewhere(&self, error: &str) -> bool {
        // Where to does not matter here.
        self.is_cluster() && Redirection::read(error, ":").is_some_and(|said| said.is_elsewhere())
    }

    /// What an error says to do, where there is anybody else.
    fn redirection(&self, error: &str, node: &Node) -> Option<Redirection> {
        let said = Redirection::read(error, node.address().unwrap_or_default())?;
        (self.is_cluster() || said == Redirection::NoScript).then_some(said)
    }
}

/// A command, after another one that lets a node do what it does not keep yet.
fn written(write: impl Fn(&mut Vec<u8>, Form), form: Form, is_asking: bool) -> Commands {
    let mut bytes = Vec::with_capacity(512);
    if is_asking {
        Command::new(&mut bytes, 1).word("ASKING");
    }
    write(&mut bytes, form);
    Commands { bytes, unwanted: usize::from(is_asking) }
}

/// What to ask, and for every limit where in that it is. Those about one state are asked as one that costs as much as
/// all of them.
fn merge(given: Vec<Ask>) -> (Vec<Ask>, Vec<usize>) {
    let mut asks: Vec<Ask> = Vec::with_capacity(given.len());
    let places = given.into_iter().map(|ask| {
        let known = asks.iter().position(|other| other.key == ask.key);
        match known.and_then(|place| asks.get_mut(place)) {
            Some(other) => other.cost = other.cost.saturating_add(ask.cost),
            None => asks.push(ask),
        }
        known.unwrap_or(asks.len() - 1)
    });
    let places = places.collect();
    (asks, places)
}

/// What each has got back of what the states did that they share: the first all of its cost, if there is as much.
fn share_out(costs: &[u64], places: &[usize], mut given: Vec<Option<u64>>) -> Vec<Option<u64>> {
    let share = |(cost, place): (&u64, &usize)| {
        let left = given.get_mut(*place)?.as_mut()?;
        let share = (*left).min(*cost);
        *left -= share;
        Some(share)
    };
    costs.iter().zip(places).map(share).collect()
}

/// Without what is asked.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("config", &self.shared.config)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
