//! Those who decide: what people write today with the usual client, and Tollgate.

use redis::aio::MultiplexedConnection;
use redis::{Client, Script, pipe};
use std::net::SocketAddr;
use std::time::Duration;
use tollgate::{Clock, Engine, Request, RuleSet, Source, Value};
use tollgate_store::{Config, Store};

/// No client ever has so many requests while this runs.
const BURST: u64 = 2_000_000;
/// What is spent comes back so slowly that every client stays known: a token takes ten minutes.
const COUNT: u64 = 6;
const PERIOD: &str = "3600";

/// One way to decide about a client.
pub enum Limiter {
    /// `INCR` and `EXPIRE` in one write: a counter for each window.
    Counter(Usual),
    /// GCRA in a script, called by its hash.
    Gcra(Usual, Script),
    /// A log in a sorted set, which remembers requests for so many seconds.
    SortedSet(Usual, Script, &'static str),
    /// Rules with limits of ours.
    Tollgate(Box<Tollgate>),
}

/// Whether it is refused, the limit, what is left, and when to come back.
type Throttled = (u64, u64, u64, i64, u64);

/// The multiplexed connection of the `redis` crate, as it comes.
pub struct Usual {
    connection: MultiplexedConnection,
    prefix: &'static str,
}

impl Usual {
    async fn connect(address: SocketAddr, prefix: &'static str) -> Usual {
        let client = Client::open(format!("redis://{address}")).expect("an address");
        let connection = client.get_multiplexed_async_connection().await.expect("the server accepts");
        Usual { connection, prefix }
    }

    fn key(&self, client: &str) -> String {
        [self.prefix, client].concat()
    }
}

/// An engine with a store.
pub struct Tollgate {
    engine: Engine,
    store: Store,
    clock: Clock,
}

impl Tollgate {
    /// With these rules, in the namespace `bench`.
    pub async fn open(address: SocketAddr, rules: &str) -> Tollgate {
        let clock = Clock::system();
        let rules = RuleSet::parse(&[Source::new("rules", rules)]).expect("rules");
        // Nobody is given up on a machine that is kept busy.
        let patient = Duration::from_secs(5);
        let config = Config { budget: patient, connect_timeout: patient, ..Config::new(address.to_string()) };
        let store = Store::open(config);
        store.connected().await;
        Tollgate { engine: Engine::new(rules, clock.now()), store, clock }
    }

    async fn decide(&self, client: &str) -> bool {
        let attributes = [("user", Value::Text(client))];
        let verdict = self.engine.check_with(&self.store, &Request::new("bench", &attributes), self.clock.now()).await;
        assert!(verdict.checks().iter().all(|check| !check.is_degraded), "{:?}", self.store.stats());
        verdict.is_allowed()
    }

    /// Questions that the store has answered so far.
    pub fn calls(&self) -> u64 {
        self.store.stats().answered
    }
}

/// So many limits on one client, all in the store, none of which is ever reached.
fn exact_rules(limits: u64) -> String {
    let limits: Vec<String> = (1..=limits).map(|count| format!("{} per hour burst {BURST}", COUNT * count)).collect();
    let limits = limits.join(", ");
    format!("namespace: bench\nrules: [{{ name: users, key: [user], limits: [{limits}], shared: store-exact }}]\n")
}

impl Limiter {
    pub async fn counter(address: SocketAddr) -> Limiter {
        Limiter::Counter(Usual::connect(address, "counter:").await)
    }

    pub async fn gcra(address: SocketAddr) -> Limiter {
        let script = Script::new(include_str!("../server/gcra.lua"));
        Limiter::Gcra(Usual::connect(address, "gcra:").await, script)
    }

    pub async fn sorted_set(address: SocketAddr, period: &'static str) -> Limiter {
        let script = Script::new(include_str!("sorted_set.lua"));
        Limiter::SortedSet(Usual::connect(address, "log:").await, script, period)
    }

    pub async fn exact(address: SocketAddr, limits: u64) -> Limiter {
        Limiter::Tollgate(Box::new(Tollgate::open(address, &exact_rules(limits)).await))
    }

    /// Whether a request of this client is let through.
    pub async fn decide(&self, client: &str) -> bool {
        match self {
            Limiter::Counter(usual) => {
                let key = usual.key(client);
                let mut pair = pipe();
                pair.incr(&key, 1).expire(&key, 3_600).ignore();
                let (used,): (u64,) = pair.query_async(&mut usual.connection.clone()).await.expect("a reply");
                used <= BURST
            }
            Limiter::Gcra(usual, script) => {
                let mut call = script.key(usual.key(client));
                let call = call.arg(BURST - 1).arg(COUNT).arg(PERIOD);
                let (refused, _, _, _, _): Throttled =
                    call.invoke_async(&mut usual.connection.clone()).await.expect("a reply");
                refused == 0
            }
            Limiter::SortedSet(usual, script, period) => {
                let mut call = script.key(usual.key(client));
                let call = call.arg(BURST).arg(*period);
                let (refused, _left): (u64, u64) =
                    call.invoke_async(&mut usual.connection.clone()).await.expect("a reply");
                refused == 0
            }
            Limiter::Tollgate(tollgate) => tollgate.decide(client).await,
        }
    }
}
