#[cfg(feature = "redis")]
mod shared;

use crate::clock::Clock;
#[cfg(feature = "tower")]
use crate::engine::{Answer, Question};
use crate::engine::{Engine, EngineBuilder, Event, Explanation, Hold, Verdict};
use crate::files::{self, LoadError, Look};
#[cfg(feature = "redis")]
use crate::sharing::Sharing;
use crate::watch::Watch;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tollgate_limit::Capacity;
#[cfg(feature = "tower")]
use tollgate_limit::Time;
use tollgate_rules::model::NoMatch;
use tollgate_rules::{Mistakes, Request, RuleSet, Source};

/// Buckets that are shared with other hosts and in use at the same time: 8 MiB.
#[cfg(feature = "redis")]
const ACCOUNTS: usize = 65_536;

/// An [`Engine`] with a clock and, if they are in files, its rules: what a service embeds.
///
/// Cheap to clone; clones count together.
///
/// ```
/// use tollgate::{Request, Tollgate};
///
/// let tollgate = Tollgate::from_yaml("
/// namespace: payments
/// rules:
///   - name: api
///     match: { path: \"/v1/**\" }
///     key: [api_key]
///     limits: [100 per second burst 200]
///     tiers: { plan: { gold: [1000 per second] } }
/// ")?;
/// let attributes = [("path", "/v1/charges".into()), ("api_key", "k-17".into()), ("plan", "gold".into())];
/// let verdict = tollgate.check(&Request::new("payments", &attributes));
/// assert!(verdict.is_allowed());
/// assert_eq!(verdict.remaining(), Some(999));
/// # Ok::<(), tollgate::Mistakes>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tollgate {
    engine: Arc<Engine>,
    clock: Clock,
    /// Where the rules are.
    files: Option<Arc<Files>>,
    #[cfg(feature = "redis")]
    sharing: Option<Sharing>,
}

/// An answer to come from whoever keeps limits elsewhere.
#[cfg(feature = "tower")]
pub(crate) type Asking = std::pin::Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Where rules are, and what the files looked like when they were last read.
#[derive(Debug)]
struct Files {
    path: PathBuf,
    seen: Mutex<Look>,
}

/// Says how a [`Tollgate`] is to be.
#[derive(Debug, Default)]
pub struct TollgateBuilder {
    engine: EngineBuilder,
    clock: Option<Clock>,
    #[cfg(feature = "redis")]
    store: Option<tollgate_store::Config>,
}

impl TollgateBuilder {
    /// Another clock than the default one.
    #[must_use]
    pub fn clock(self, clock: Clock) -> TollgateBuilder {
        TollgateBuilder { clock: Some(clock), ..self }
    }

    /// How many buckets it keeps at the same time: each limit of each client has one. 100,000 unless told otherwise.
    #[must_use]
    pub fn capacity(self, capacity: Capacity) -> TollgateBuilder {
        TollgateBuilder { engine: self.engine.capacity(capacity), ..self }
    }

    /// Counts together with all hosts that use the same Redis or Valkey, where rules say so by `shared`. Requests are then
    /// to be decided by [`Tollgate::decide`], and the rest must be called within a tokio runtime.
    ///
    /// ```no_run
    /// use tollgate::store::Config;
    /// use tollgate::{Request, Tollgate};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let tollgate = Tollgate::builder().store(Config::new("redis.internal:6379")).open("rules.yaml")?;
    /// let verdict = tollgate.decide(&Request::new("shop", &[("user", "alice".into())])).await;
    /// if verdict.is_degraded() {
    ///     eprintln!("the store cannot be reached");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn store(self, store: tollgate_store::Config) -> TollgateBuilder {
        let engine = self.engine.accounts(ACCOUNTS);
        TollgateBuilder { store: Some(store), engine, ..self }
    }

    /// What becomes of requests of namespaces that nobody has rules for. They pass, unless told otherwise, and the
    /// verdict says why.
    #[must_use]
    pub fn unknown_namespaces(self, unknown_namespaces: NoMatch) -> TollgateBuilder {
        TollgateBuilder { engine: self.engine.unknown_namespaces(unknown_namespaces), ..self }
    }

    /// Calls this with everything that happens. It runs in the midst of decisions, so it had better be quick.
    #[must_use]
    pub fn observer(self, observer: impl Fn(&Event<'_>) + Send + Sync + 'static) -> TollgateBuilder {
        TollgateBuilder { engine: self.engine.observer(observer), ..self }
    }

    /// With rules that were read already.
    pub fn build(self, rules: RuleSet) -> Tollgate {
        let clock = self.clock.unwrap_or_default();
        let engine = Arc::new(self.engine.build(rules, clock.now()));
        Tollgate {
            #[cfg(feature = "redis")]
            sharing: self.store.map(|store| Sharing::start(&engine, clock.clone(), store)),
            engine,
            clock,
            files: None,
        }
    }

    /// With the rules of a file, or of all `.yaml`, `.yml` and `.json` files of a directory.
    ///
    /// # Errors
    /// What could not be read, or everything that is wrong with the rules.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Tollgate, LoadError> {
        let path = path.as_ref().to_owned();
        let (rules, seen) = files::load(&path)?;
        Ok(Tollgate { files: Some(Arc::new(Files { path, seen: Mutex::new(seen) })), ..self.build(rules) })
    }
}

impl Tollgate {
    /// With the rules of a file, or of all `.yaml`, `.yml` and `.json` files of a directory.
    ///
    /// # Errors
    /// What could not be read, or everything that is wrong with the rules.
    pub fn open(path: impl AsRef<Path>) -> Result<Tollgate, LoadError> {
        Tollgate::builder().open(path)
    }

    /// With rules in YAML or JSON.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn from_yaml(text: &str) -> Result<Tollgate, Mistakes> {
        Ok(Tollgate::builder().build(RuleSet::parse(&[Source::new("rules", text)])?))
    }

    /// One with another clock, size or observer.
    pub fn builder() -> TollgateBuilder {
        TollgateBuilder::default()
    }

    /// Decides about a request: it pays all limits that apply or none.
    #[inline]
    pub fn check(&self, request: &Request<'_>) -> Verdict {
        self.engine.check_by(std::slice::from_ref(request), || self.clock.now())
    }

    /// Whether there is anybody to ask about limits that are kept elsewhere.
    #[cfg(feature = "tower")]
    pub(crate) fn can_ask(&self) -> bool {
        #[cfg(feature = "redis")]
        return self.sharing.is_some();
        #[cfg(not(feature = "redis"))]
        false
    }

    /// Brings the answer to what [`Engine::begin`] wants to know.
    #[cfg(feature = "tower")]
    pub(crate) fn ask(&self, questions: &[Question], now: Time) -> Asking {
        #[cfg(feature = "redis")]
        if let Some(sharing) = &self.sharing {
            let (store, questions) = (sharing.store().clone(), questions.to_vec());
            return Box::pin(async move { crate::sharing::ask(&store, &questions, now).await });
        }
        let _ = (questions, now);
        Box::pin(std::future::ready(Answer::Failed))
    }

    /// What [`check`](Self::check) would say. Takes nothing.
    pub fn peek(&self, request: &Request<'_>) -> Verdict {
        self.engine.peek(request, self.clock.now())
    }

    /// Takes an estimate, to be [settled](Self::settle) within `expires_after`; see [`Engine::reserve`].
    ///
    /// # Errors
    /// The refusal. Nothing was taken.
    #[expect(clippy::result_large_err, reason = "a refusal is a verdict like any other, which nobody boxes")]
    pub fn reserve(&self, request: &Request<'_>, expires_after: Duration) -> Result<Hold, Verdict> {
        self.engine.reserve(request, expires_after, self.clock.now())
    }

    /// Replaces an estimate by what it really was.
    pub fn settle(&self, hold: Hold, actual: u64) {
        self.engine.settle(hold, actual, self.clock.now());
    }

    /// Gives back what was reserved for a request that did not happen.
    pub fn refund(&self, hold: Hold) {
        self.engine.refund(hold, self.clock.now());
    }

    /// Forgets what the client of a request has spent, and says in how many buckets.
    pub fn reset(&self, request: &Request<'_>) -> usize {
        self.engine.reset(request, self.clock.now())
    }

    /// Every rule of the request's namespace, and why it applies or not.
    pub fn explain(&self, request: &Request<'_>) -> Explanation {
        self.engine.explain(request, self.clock.now())
    }

    /// Replaces all rules at once, keeping what was spent.
    pub fn replace(&self, rules: RuleSet) {
        self.engine.replace(rules, self.clock.now());
    }

    /// Reads the rules again from where they are. Does nothing if they are not from files.
    ///
    /// # Errors
    /// What could not be read, or everything that is wrong with the rules. The ones before stay in force.
    pub fn reload(&self) -> Result<(), LoadError> {
        let Some(files) = &self.files else { return Ok(()) };
        // Whoever reads first replaces first, or old rules might follow new ones.
        let mut seen = files.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (rules, look) = files::load(&files.path).inspect_err(|error| self.complain(error))?;
        self.replace(rules);
        *seen = look;
        Ok(())
    }

    /// Tells the observer why the rules before are still in force.
    pub(crate) fn complain(&self, error: &LoadError) {
        self.engine.tell(&match error {
            LoadError::Unreadable { path, error } => Event::RulesUnreadable { path, error },
            LoadError::Wrong(mistakes) => Event::RulesRefused { mistakes },
        });
    }

    /// What the files looked like when the rules in force were read.
    pub(crate) fn seen(&self) -> Option<Look> {
        self.files.as_ref().map(|files| files.seen.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Reads the rules again whenever their files change, until the answer is dropped. Files are looked at every
    /// second; what is wrong goes to the [observer](TollgateBuilder::observer) and nowhere else, and leaves the rules as
    /// they were. Without files there is nothing to watch.
    pub fn watch(&self) -> Watch {
        self.watch_every(Duration::from_secs(1))
    }

    /// The same, looking at the files more often or less.
    pub fn watch_every(&self, interval: Duration) -> Watch {
        Watch::start(self.clone(), interval)
    }

    /// The file or directory that the rules were read from.
    pub fn path(&self) -> Option<&Path> {
        self.files.as_ref().map(|files| files.path.as_path())
    }

    /// What decides.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What the time is read from.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}
