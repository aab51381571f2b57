//! Keeps connections: makes them, tries whether the store does what it is for, and makes new ones in place of the lost.

use crate::call::{Ask, Call, Says};
use crate::config::{Address, Config, Protocol};
use crate::connection::{Commands, Connection};
use crate::key::Fingerprint;
use crate::node::Node;
use crate::resp::{Command, Reply, take_reply};
use crate::script::Form;
use crate::store::Shared;
use crate::stream::{self, Stream};
use bytes::BytesMut;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tollgate_limit::{Limit, Quota};

/// The shortest and the longest pause between two attempts. With the first there are never more than ten a second.
const SHORTEST_PAUSE: Duration = Duration::from_millis(110);
const LONGEST_PAUSE: Duration = Duration::from_millis(150);

/// How often a script is run at the most to see whether it is answered promptly.
const TRIES: usize = 3;

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The store cannot be reached, or hangs up.
    Unreachable(String),
    /// It says no, in its own words: to our name and password, or to what we ask.
    Refused(String),
    /// It answers, but only after so long.
    Slow(Duration),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Unreachable(why) => write!(f, "the store cannot be reached: {why}"),
            Trouble::Refused(why) if why.starts_with("NOAUTH") => {
                write!(f, "the store wants a password and has got none: {why}")
            }
            Trouble::Refused(why) if why.contains("NOPERM") => {
                write!(f, "the store's user may not do all that is needed there: {why}")
            }
            Trouble::Refused(why) => write!(f, "the store refuses: {why}"),
            Trouble::Slow(took) => {
                write!(f, "the store takes {took:?} to answer, which is more than two thirds of the budget")
            }
        }
    }
}

/// Goes on for as long as anybody has the store and it has the node.
pub(crate) async fn keep(shared: Arc<Shared>, node: Arc<Node>) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let Some(missing) = node.missing() else {
            node.lost.notified().await;
            continue;
        };
        shared.turn_to_connect().await;
        let longest = shared.config.longest_connect();
        let connected = timeout(longest, connect(&shared, &node)).await;
        match connected.unwrap_or_else(|_| Err(silent(longest, &shared.config))) {
            Ok((stream, probe)) => {
                node.set(missing, Connection::new(stream, probe, Arc::clone(&node.lost)));
                shared.found.notify_waiters();
                pause = SHORTEST_PAUSE;
            }
            Err(trouble) => {
                node.failed_to_connect(trouble);
                shared.stale();
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        sleep(jittered(pause)).await;
    }
}

/// Gives turns to whoever wants to connect, in the order in which they come and never more than ten a second.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<Option<Instant>>);

impl Turns {
    pub(crate) async fn next(&self) {
        let mut last = self.0.lock().await;
        if let Some(last) = *last {
            sleep_until(last + SHORTEST_PAUSE).await;
        }
        *last = Some(Instant::now());
    }
}

/// Up to a third more, so that hosts that lost the store together do not come back together.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(0_u8) % 1_024;
    pause + pause * u32::try_from(random).unwrap_or(0) / 3_072
}

/// Where the server is now.
async fn find(config: &Config) -> Result<String, Trouble> {
    let (sentinels, name) = match &config.address {
        Address::Server(address) => return Ok(address.clone()),
        Address::Sentinels { sentinels, name } => (sentinels, name),
        Address::Cluster(_) => return Err(Trouble::Unreachable("no node is all of a cluster".to_owned())),
    };
    let longest = config.longest_connect() / u32::try_from(sentinels.len() + 1).unwrap_or(u32::MAX);
    let mut trouble = Trouble::Unreachable("there are no sentinels to ask".to_owned());
    for sentinel in sentinels {
        match timeout(longest, ask_sentinel(sentinel, name, config)).await {
            Ok(Ok(address)) => return Ok(address),
            Ok(Err(other)) => trouble = other,
            Err(_) => trouble = silent(longest, config),
        }
    }
    Err(trouble)
}

async fn ask_sentinel(sentinel: &str, name: &str, config: &Config) -> Result<String, Trouble> {
    let mut stream = stream::connect(sentinel, config).await.map_err(unreachable)?;
    let mut command = Vec::new();
    Command::new(&mut command, 3).word("SENTINEL").word("GET-MASTER-ADDR-BY-NAME").word(name);
    let mut reply = exchange(&mut stream, &command).await?;
    // Mostly they want no password, and know none. If they do, it is the store's.
    if config.password.is_some() && matches!(&reply, Reply::Error(error) if error.starts_with("NOAUTH")) {
        introduce(&mut stream, config).await?;
        reply = exchange(&mut stream, &command).await?;
    }
    match reply {
        Reply::Array(parts) => match parts.as_slice() {
            [Reply::Text(host), Reply::Text(port)] => {
                let (host, port) = (String::from_utf8_lossy(host), String::from_utf8_lossy(port));
                Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
            }
            _ => Err(Trouble::Refused("a sentinel does not say where the primary is".to_owned())),
        },
        Reply::Null => Err(Trouble::Refused(format!("a sentinel knows no primary \"{name}\""))),
        other => Err(Trouble::Refused(said(other))),
    }
}

/// A stream on which we are known and on which every script that decides was run, and answered promptly; and how to try that again.
async fn connect(shared: &Shared, node: &Arc<Node>) -> Result<(Stream, Commands), Trouble> {
    let config = &shared.config;
    let address = match node.address() {
        Some(address) => address.to_owned(),
        None => find(config).await?,
    };
    let mut stream = stream::connect(&address, config).await.map_err(unreachable)?;
    introduce(&mut stream, config).await?;
    let trials = trials(shared, node);
    for call in &trials {
        // The first time the store has to compile it.
        run(&mut stream, call, shared, Form::Source).await?;
        let took = time(&mut stream, call, shared).await?;
        if took > config.prompt() {
            return Err(Trouble::Slow(took));
        }
    }
    Ok((stream, probe(&trials, config)))
}

/// All of these at once, or the time where there is nothing else to ask for.
fn probe(trials: &[Call], config: &Config) -> Commands {
    let mut bytes = Vec::new();
    trials.iter().for_each(|call| call.write(&mut bytes, &config.prefix, Form::Digest));
    if trials.is_empty() {
        Command::new(&mut bytes, 1).word("TIME");
    }
    Commands { bytes, unwanted: trials.len().saturating_sub(1) }
}

/// What somebody says to whom no connection is kept.
pub(crate) async fn ask_once(address: &str, command: &[u8], config: &Config) -> Result<Reply, Trouble> {
    let mut stream = stream::connect(address, config).await.map_err(unreachable)?;
    introduce(&mut stream, config).await?;
    exchange(&mut stream, command).await
}

/// How long a script takes: the best of a few, since each may have been held up by something else.
async fn time(stream: &mut Stream, call: &Call, shared: &Shared) -> Result<Duration, Trouble> {
    let mut best = Duration::MAX;
    for _ in 0..TRIES {
        let start = Instant::now();
        run(stream, call, shared, Form::Digest).await?;
        best = best.min(start.elapsed());
        if best <= shared.config.prompt() {
            break;
        }
    }
    Ok(best)
}

/// Says who we are, by the newer protocol if the store knows it.
async fn introduce(stream: &mut Stream, config: &Config) -> Result<(), Trouble> {
    if config.protocol == Protocol::Newest {
        match exchange(stream, &hello(config)).await? {
            Reply::Error(error) if !is_too_new(&error) => return Err(refused(&error, config)),
            Reply::Error(_) => {}
            _ => return Ok(()),
        }
    }
    let Some(command) = auth(config) else { return Ok(()) };
    match exchange(stream, &command).await? {
        Reply::Error(error) => Err(refused(&error, config)),
        _ => Ok(()),
    }
}

/// What a store says that does not let us in, without what we said: some repeat it.
fn refused(error: &str, config: &Config) -> Trouble {
    let secrets = config.password.iter().filter(|password| !password.is_empty());
    Trouble::Refused(secrets.fold(error.to_owned(), |error, secret| error.replace(secret.as_str(), "***")))
}

fn hello(config: &Config) -> Vec<u8> {
    let mut out = Vec::new();
    let mut command = Command::new(&mut out, if config.password.is_some() { 7 } else { 4 });
    command.word("HELLO").word("3");
    if let Some(password) = &config.password {
        command.word("AUTH").word(config.user.as_deref().unwrap_or("default")).word(password);
    }
    command.word("SETNAME").word("tollgate");
    out
}

/// Whether that is what a store says that does not know the newer protocol, or that hides it.
fn is_too_new(error: &str) -> bool {
    error.starts_with("NOPROTO") || error.starts_with("ERR unknown command")
}

fn auth(config: &Config) -> Option<Vec<u8>> {
    let password = config.password.as_ref()?;
    let mut command = Vec::new();
    match &config.user {
        Some(user) => Command::new(&mut command, 3).word("AUTH").word(user).word(password),
        None => Command::new(&mut command, 2).word("AUTH").word(password),
    };
    Some(command)
}

/// Questions that nobody asked, one for each script that decides. They write, since a store that only reads is of no use.
/// A node that keeps no slots cannot be asked any.
fn trials(shared: &Shared, node: &Arc<Node>) -> Vec<Call> {
    let Some(tag) = shared.tag_at(node) else { return Vec::new() };
    let quota = Quota::new(1_000, Duration::from_secs(1)).ok();
    let kinds = [Limit::token_bucket, Limit::fixed_window, Limit::sliding_window];
    let limits = quota.into_iter().flat_map(|quota| kinds.map(|limit| limit(quota)));
    let calls = limits.zip(0..).filter_map(|(limit, number)| {
        let key = Fingerprint::of_nobody(tag, number);
        Call::new(vec![Ask { key, limit, cost: 0, max_wait: None, says: Says::Refuse }])
    });
    calls.collect()
}

async fn run(stream: &mut Stream, call: &Call, shared: &Shared, form: Form) -> Result<(), Trouble> {
    let mut command = Vec::new();
    call.write(&mut command, &shared.config.prefix, form);
    let reply = exchange(stream, &command).await?;
    match &reply {
        // A node that says who else keeps a slot by now is in order.
        Reply::Error(error) if shared.is_elsewhere(error) => {
            shared.stale();
            Ok(())
        }
        _ => call.read(&reply).map(drop).map_err(|_| Trouble::Refused(said(reply))),
    }
}

async fn exchange(stream: &mut Stream, command: &[u8]) -> Result<Reply, Trouble> {
    stream.write_all(command).await.map_err(unreachable)?;
    stream.flush().await.map_err(unreachable)?;
    let mut unread = BytesMut::new();
    loop {
        if let Some(reply) = take_reply(&mut unread).map_err(unreachable)? {
            return Ok(reply);
        }
        match stream.read_buf(&mut unread).await {
            Ok(count) if count > 0 => {}
            Ok(_) => return Err(Trouble::Unreachable("it hangs up".to_owned())),
            Err(error) => return Err(unreachable(error)),
        }
    }
}

/// Nothing came of a new connection in time.
pub(crate) fn silent(longest: Duration, config: &Config) -> Trouble {
    let hint = if config.is_encrypted() { "; does it speak TLS on this port?" } else { "" };
    Trouble::Unreachable(format!("no answer to a new connection within {longest:?}{hint}"))
}

fn unreachable(error: impl fmt::Display) -> Trouble {
    Trouble::Unreachable(error.to_string())
}

fn said(reply: Reply) -> String {
    match reply {
        Reply::Error(error) => error,
        _ => "what it says is not what our scripts answer".to_owned(),
    }
}
