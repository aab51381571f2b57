use crate::call::{Ask, Call};
use crate::config::Config;
use crate::connection::{Commands, Connection};
use crate::keeper::{self, Trouble};
use crate::refund::Refund;
use crate::refusals::Refusals;
use crate::resp::Reply;
use crate::script::{Form, Run};
use crate::stats::{Snapshot, Stats};
use arc_swap::ArcSwapOption;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tollgate_limit::{Decision, Time};

/// A Redis or Valkey server in which many hosts count together. Cheap to clone; clones share everything.
///
/// Every decision waits for it for as long as its [budget](Config::budget) and no longer. A connection that fails three
/// times in a row is given up; while there is none nobody waits at all, and each rule does what it says for failures.
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

/// Timers go off within a millisecond or two. One that is later says more about this host than about the store.
const LATE_TIMER: Duration = Duration::from_millis(2);

/// What the handles of a store and its keeper share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) stats: Stats,
    /// Told when a connection is lost.
    pub(crate) lost: Arc<Notify>,
    /// Told when one is there.
    found: Notify,
    connections: Vec<ArcSwapOption<Connection>>,
    trouble: ArcSwapOption<Trouble>,
    next: AtomicUsize,
    refusals: Refusals,
    /// When the store began to be silent, in microseconds since `start`: it said something then, or was asked after it
    /// had not been for a while.
    silent_since: AtomicU64,
    start: Instant,
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
    /// # Panics
    /// Outside of a tokio runtime, which its connections live on.
    pub fn open(config: Config) -> Store {
        let connections = (0..config.connections.max(1)).map(|_| ArcSwapOption::empty()).collect();
        let shared = Arc::new(Shared {
            stats: Stats::default(),
            lost: Arc::default(),
            found: Notify::new(),
            connections,
            trouble: ArcSwapOption::empty(),
            next: AtomicUsize::new(0),
            refusals: Refusals::new(config.remembered),
            silent_since: AtomicU64::new(0),
            start: Instant::now(),
            config,
        });
        let keeper = Keeper(tokio::spawn(keeper::keep(Arc::clone(&shared))));
        Store { shared, _keeper: Arc::new(keeper) }
    }

    /// Asks limits that go ahead together or not at all. The time is this host's, and only matters for how long a refusal
    /// is remembered.
    ///
    /// If the future is dropped before it is ready, the request may have been paid for.
    pub async fn ask(&self, asks: Vec<Ask>, now: Time) -> Told {
        let (asks, places) = merge(asks);
        if let Some((index, decision)) = self.shared.refusals.find(&asks, now) {
            self.shared.stats.remembered.add();
            let ask = places.iter().position(|place| *place == index).unwrap_or(index);
            return Told::Refused { ask, decision };
        }
        let Some(call) = Call::new(asks) else {
            self.shared.stats.impossible.add();
            return Told::Failed;
        };
        match self.shared.ask(&call).await {
            Some(decisions) => {
                self.shared.refusals.add(call.asks(), &decisions, now);
                Told::Decided(places.iter().filter_map(|place| decisions.get(*place).copied()).collect())
            }
            None => Told::Failed,
        }
    }

    /// Gives back what these questions have taken and nobody used: never more than is missing, and nothing to logs and
    /// warm-ups. Says how many tokens each has got back, or `None` where the store did not say within the budget; those
    /// may be back or not, and must not be given back again. Hosts that have been refused meanwhile hear of it when
    /// they would have asked again anyway.
    ///
    /// The caller vouches that the tokens were taken, and that this is the only time that they are given back.
    pub async fn give_back(&self, asks: Vec<Ask>) -> Vec<Option<u64>> {
        let costs: Vec<u64> = asks.iter().map(|ask| ask.cost).collect();
        let (asks, places) = merge(asks);
        let Some(refund) = Refund::new(asks) else {
            self.shared.stats.impossible.add();
            return vec![None; costs.len()];
        };
        let given = self.shared.give_back(&refund).await;
        self.shared.refusals.forget(refund.asks());
        share_out(&costs, &places, given)
    }

    /// Whether there is a connection that works, as far as is known.
    pub fn is_connected(&self) -> bool {
        self.shared.connection().is_some()
    }

    /// Waits until there is one.
    pub async fn connected(&self) {
        loop {
            let found = self.shared.found.notified();
            if self.is_connected() {
                return;
            }
            found.await;
        }
    }

    /// Why there is no connection, or one less than there should be: what came of the last attempt.
    pub fn trouble(&self) -> Option<Arc<Trouble>> {
        self.shared.trouble.load_full()
    }

    /// Where it is, and how much it is waited for.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    pub(crate) async fn run(&self, run: &Run<'_>, deadline: Instant) -> Option<Reply> {
        self.shared.run(run, deadline).await
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
    /// The first place in which there is no connection.
    pub(crate) fn missing(&self) -> Option<usize> {
        self.connections.iter().position(|place| place.load().as_ref().is_none_or(|connection| connection.is_closed()))
    }

    pub(crate) fn set(&self, place: usize, connection: Connection) {
        if let Some(place) = self.connections.get(place) {
            place.store(Some(Arc::new(connection)));
        }
        self.trouble.store(None);
        self.found.notify_waiters();
    }

    pub(crate) fn failed_to_connect(&self, trouble: Trouble) {
        self.trouble.store(Some(Arc::new(trouble)));
    }

    /// One that works, each in turn.
    fn connection(&self) -> Option<Arc<Connection>> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let places = (0..self.connections.len())
            .filter_map(|step| self.connections.get(turn.wrapping_add(step) % self.connections.len()));
        places.filter_map(ArcSwapOption::load_full).find(|connection| !connection.is_closed())
    }

    /// What each limit says, if the store says it within the budget.
    async fn ask(&self, call: &Call) -> Option<Vec<Decision>> {
        let deadline = Instant::now() + self.config.budget;
        let write = |out: &mut Vec<u8>, form| call.write(out, &self.config.prefix, form);
        self.question(write, |reply| call.read(&reply).ok(), deadline).await
    }

    /// How many tokens each limit has got back, if the store says it within the budget.
    async fn give_back(&self, refund: &Refund) -> Vec<Option<u64>> {
        let deadline = Instant::now() + self.config.budget;
        let write = |out: &mut Vec<u8>, form| refund.write(out, &self.config.prefix, form);
        match self.question(write, |reply| refund.read(&reply).ok(), deadline).await {
            Some(given) => given.into_iter().map(Some).collect(),
            None => vec![None; refund.asks().len()],
        }
    }

    /// Runs a script on whoever keeps the slot of its keys, and says what it answered, if it did within the deadline.
    /// An error is no answer.
    pub(crate) async fn run(&self, run: &Run<'_>, deadline: Instant) -> Option<Reply> {
        let read = |reply| if matches!(reply, Reply::Error(_)) { None } else { Some(reply) };
        self.question(|out, form| run.write(out, form), read, deadline).await
    }

    /// The one way in which the store is asked anything.
    async fn question<T>(
        &self,
        write: impl Fn(&mut Vec<u8>, Form),
        read: impl FnOnce(Reply) -> Option<T>,
        deadline: Instant,
    ) -> Option<T> {
        let Some(connection) = self.connection() else {
            self.stats.unreachable.add();
            return None;
        };
        if self.is_crowded() {
            self.stats.crowded.add();
            return None;
        }
        let reply = self.exchange(&connection, written(&write, Form::Digest), deadline).await?;
        let reply = match reply {
            // Scripts are gone when a store was restarted, or somebody has flushed them.
            Reply::Error(error) if error.starts_with("NOSCRIPT") => {
                self.stats.reloaded.add();
                self.exchange(&connection, written(&write, Form::Source), deadline).await?
            }
            reply => reply,
        };
        let answer = read(reply);
        match answer {
            Some(_) => {
                self.stats.answered.add();
                connection.succeeded();
            }
            None => {
                self.stats.failed.add();
                connection.failed();
            }
        }
        answer
    }

    async fn exchange(&self, connection: &Connection, commands: Commands, deadline: Instant) -> Option<Reply> {
        if self.waiting() == 0 {
            self.heard();
        }
        match within(deadline, connection.ask(commands)).await {
            Ok(Some(reply)) => {
                self.heard();
                Some(reply)
            }
            // The connection is gone, or too much waits in it.
            Ok(None) => {
                self.stats.failed.add();
                None
            }
            Err(Late { is_ours }) => {
                self.stats.late.add();
                if !is_ours {
                    connection.failed();
                }
                None
            }
        }
    }

    /// Whether the store is silent, and as many wait for it as may.
    fn is_crowded(&self) -> bool {
        self.waiting() >= self.config.most_waiting && self.silence() > self.config.budget / 3
    }

    fn waiting(&self) -> usize {
        self.connections.iter().filter_map(|place| place.load().as_ref().map(|connection| connection.waiting())).sum()
    }

    fn silence(&self) -> Duration {
        let since = Duration::from_micros(self.silent_since.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(since)
    }

    fn heard(&self) {
        let now = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.silent_since.store(now, Ordering::Relaxed);
    }
}

fn written(write: impl Fn(&mut Vec<u8>, Form), form: Form) -> Commands {
    let mut bytes = Vec::with_capacity(512);
    write(&mut bytes, form);
    Commands { bytes, unwanted: 0 }
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

/// The answer did not come in time.
struct Late {
    /// Whether it was us who were late: this host had no time to look for it.
    is_ours: bool,
}

/// What comes of asking before a deadline. On a host that is busy the answer may be there and not have been looked at yet.
async fn within<T>(deadline: Instant, asking: impl Future<Output = T>) -> Result<T, Late> {
    let mut asking = pin!(asking);
    if let Ok(answer) = timeout_at(deadline, &mut asking).await {
        return Ok(answer);
    }
    let is_ours = deadline.elapsed() > LATE_TIMER;
    tokio::task::yield_now().await;
    timeout_at(deadline, &mut asking).await.map_err(|_| Late { is_ours })
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
