//! What can be asked over RESP, one function a command.

use super::decode::Arguments;
use super::reply::Replies;
use crate::state::State;
use crate::throttle::Throttle;
use smallvec::SmallVec;
use tollgate::{Action, Request, Time, Value, Verdict};

/// What one connection has said about itself.
#[derive(Debug, Default)]
pub struct Session {
    name: Vec<u8>,
    /// Whether it has said goodbye.
    pub is_over: bool,
}

/// Answers one command.
pub fn run(state: &State, session: &mut Session, arguments: &Arguments<'_>, now: Time, replies: &mut Replies) {
    let Some((name, arguments)) = arguments.split_first() else { return };
    let mut upper: SmallVec<[u8; 16]> = SmallVec::from_slice(name);
    upper.make_ascii_uppercase();
    match upper.as_slice() {
        b"CL.THROTTLE" => throttle(state, arguments, now, replies, Dialect::Cell),
        b"THROTTLE" => throttle(state, arguments, now, replies, Dialect::Crab),
        b"CHECK" => check(state, arguments, now, replies),
        b"PEEK" => peek(state, arguments, now, replies),
        b"RESET.CLIENT" => reset(state, arguments, now, replies),
        b"EXPLAIN" => explain(state, arguments, now, replies),
        b"PING" => ping(arguments, replies),
        b"ECHO" => echo(arguments, replies),
        b"HELLO" => hello(session, arguments, replies),
        b"CLIENT" => client(session, arguments, replies),
        b"COMMAND" => replies.array(0),
        b"INFO" => info(state, replies),
        b"SELECT" => select(arguments, replies),
        b"RESET" => {
            (*session, replies.is_resp3) = (Session::default(), false);
            replies.simple("RESET");
        }
        b"AUTH" => replies.error("ERR AUTH called without any password configured; leave it out"),
        b"QUIT" => {
            session.is_over = true;
            replies.simple("OK");
        }
        _ => unknown(name, replies),
    }
}

fn unknown(name: &[u8], replies: &mut Replies) {
    let name = name.get(..name.len().min(64)).unwrap_or_default();
    replies.error(&format!(
        "ERR unknown command '{}'; there are CL.THROTTLE, THROTTLE, CHECK, PEEK, RESET.CLIENT, EXPLAIN, PING, INFO",
        name.escape_ascii()
    ));
}

fn wrong_arity(name: &str, usage: &str, replies: &mut Replies) {
    replies.error(&format!("ERR wrong number of arguments for '{name}' command; usage: {usage}"));
}

/// Whose numbers are answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Cell,
    Crab,
}

fn throttle(state: &State, arguments: &[&[u8]], now: Time, replies: &mut Replies, dialect: Dialect) {
    let parsed = parse_throttle(arguments);
    let answer = parsed.and_then(|(key, throttle)| {
        let limit = throttle.limit().map_err(|error| error.to_string())?;
        Ok(throttle.decide(key, &limit, state.buckets(), now))
    });
    match (answer, dialect) {
        (Ok(answer), Dialect::Cell) => replies.integers(&answer.as_cell()),
        (Ok(answer), Dialect::Crab) => replies.integers(&answer.as_crab()),
        (Err(error), Dialect::Cell) => replies.error(&format!("Cell error: {error}")),
        (Err(error), Dialect::Crab) => replies.error(&format!("ERR {error}")),
    }
}

fn parse_throttle<'a>(arguments: &[&'a [u8]]) -> Result<(&'a [u8], Throttle), String> {
    let (key, max_burst, count, period, quantity) = match *arguments {
        [key, max_burst, count, period] => (key, max_burst, count, period, None),
        [key, max_burst, count, period, quantity] => (key, max_burst, count, period, Some(quantity)),
        _ => return Err("Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]".to_owned()),
    };
    let throttle = Throttle {
        max_burst: integer(max_burst)?,
        count: integer(count)?,
        period: integer(period)?,
        quantity: quantity.map_or(Ok(1), integer)?,
    };
    Ok((key, throttle))
}

fn integer(text: &[u8]) -> Result<i64, String> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| {
        let shown = text.get(..text.len().min(64)).unwrap_or_default();
        format!("Couldn't parse as integer: {}", shown.escape_ascii())
    })
}

const CHECK_USAGE: &str = "CHECK namespace cost [attribute value ...]";

/// The attributes of a request.
type Attributes<'a> = SmallVec<[(&'a str, Value<'a>); 8]>;

/// `namespace cost [attribute value ...]`
fn with_request(arguments: &[&[u8]], replies: &mut Replies, answer: impl FnOnce(&Request<'_>, &mut Replies)) {
    match parse_request(arguments) {
        Ok((namespace, cost, attributes)) => answer(&Request::new(namespace, &attributes).with_cost(cost), replies),
        Err(error) => replies.error(&error),
    }
}

fn parse_request<'a>(arguments: &[&'a [u8]]) -> Result<(&'a str, u64, Attributes<'a>), String> {
    let text = |bytes: &'a [u8]| std::str::from_utf8(bytes).map_err(|_| "ERR arguments are UTF-8".to_owned());
    let [namespace, cost, rest @ ..] = arguments else {
        return Err(format!("ERR wrong number of arguments; usage: {CHECK_USAGE}"));
    };
    let (pairs, []) = rest.as_chunks::<2>() else {
        return Err(format!("ERR an attribute without a value; usage: {CHECK_USAGE}"));
    };
    let cost = text(cost)?.parse().map_err(|_| "ERR the cost is a whole number from 0".to_owned())?;
    let attributes: Result<Attributes<'a>, String> =
        pairs.iter().map(|[name, value]| Ok((text(name)?, Value::Text(text(value)?)))).collect();
    Ok((text(namespace)?, cost, attributes?))
}

fn check(state: &State, arguments: &[&[u8]], now: Time, replies: &mut Replies) {
    with_request(arguments, replies, |request, replies| tell(&state.engine().check(request, now), replies));
}

fn peek(state: &State, arguments: &[&[u8]], now: Time, replies: &mut Replies) {
    with_request(arguments, replies, |request, replies| tell(&state.engine().peek(request, now), replies));
}

fn reset(state: &State, arguments: &[&[u8]], now: Time, replies: &mut Replies) {
    with_request(arguments, replies, |request, replies| {
        let buckets = state.engine().reset(request, now);
        replies.integer(i64::try_from(buckets).unwrap_or(i64::MAX));
    });
}

fn explain(state: &State, arguments: &[&[u8]], now: Time, replies: &mut Replies) {
    with_request(arguments, replies, |request, replies| {
        replies.bulk(state.engine().explain(request, now).to_string().as_bytes());
    });
}

/// What a verdict says, as names and values.
fn tell(verdict: &Verdict, replies: &mut Replies) {
    let milliseconds =
        |wait: std::time::Duration| i64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let decision = verdict.deciding().map(|check| check.decision);
    replies.map(9);
    let mut pair = |name: &str, value: i64| {
        replies.bulk(name.as_bytes());
        replies.integer(value);
    };
    pair("allowed", i64::from(verdict.is_allowed()));
    pair("status", status(verdict.action()));
    pair("limit", decision.map_or(-1, |decision| number(decision.limit)));
    pair("remaining", decision.map_or(-1, |decision| number(decision.remaining)));
    pair("wait_ms", milliseconds(verdict.wait()));
    pair("retry_after_ms", verdict.retry_after().map_or(-1, milliseconds));
    pair("reset_after_ms", decision.map_or(-1, |decision| milliseconds(decision.reset_after)));
    replies.bulk(b"rule");
    replies.bulk(verdict.rule().unwrap_or_default().as_bytes());
    replies.bulk(b"reason");
    replies.bulk(verdict.reason().name().as_bytes());
}

/// As HTTP would answer; 0 for a connection that is to be closed.
fn status(action: Action) -> i64 {
    match action {
        Action::Allow | Action::Wait(_) => 200,
        Action::Refuse(status) => status.into(),
        Action::Drop => 0,
    }
}

fn ping(arguments: &[&[u8]], replies: &mut Replies) {
    match arguments {
        [] => replies.simple("PONG"),
        [message] => replies.bulk(message),
        _ => wrong_arity("ping", "PING [message]", replies),
    }
}

fn echo(arguments: &[&[u8]], replies: &mut Replies) {
    match arguments {
        [message] => replies.bulk(message),
        _ => wrong_arity("echo", "ECHO message", replies),
    }
}

/// `HELLO [2|3 [AUTH user password] [SETNAME name]]`
fn hello(session: &mut Session, arguments: &[&[u8]], replies: &mut Replies) {
    let (version, mut options) = match arguments {
        [] => (None, arguments),
        [version, options @ ..] => (Some(*version), options),
    };
    replies.is_resp3 = match version {
        None => replies.is_resp3,
        Some(b"2") => false,
        Some(b"3") => true,
        Some(_) => return replies.error("NOPROTO unsupported protocol version; there are 2 and 3"),
    };
    while let [option, rest @ ..] = options {
        options = match rest {
            [name, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                session.name = name.to_vec();
                rest
            }
            _ => return replies.error("ERR Syntax error in HELLO; no password is configured, leave AUTH out"),
        };
    }
    replies.map(5);
    for (name, value) in
        [("server", "tollgate"), ("version", env!("CARGO_PKG_VERSION")), ("mode", "standalone"), ("role", "master")]
    {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.bulk(b"proto");
    replies.integer(if replies.is_resp3 { 3 } else { 2 });
}

/// What clients say about themselves when they connect.
fn client(session: &mut Session, arguments: &[&[u8]], replies: &mut Replies) {
    match arguments {
        [option, name] if option.eq_ignore_ascii_case(b"SETNAME") => {
            session.name = name.to_vec();
            replies.simple("OK");
        }
        [option] if option.eq_ignore_ascii_case(b"GETNAME") => replies.bulk(&session.name),
        [option] if option.eq_ignore_ascii_case(b"ID") => replies.integer(1),
        [option, ..]
            if [&b"SETINFO"[..], b"NO-EVICT", b"NO-TOUCH"].iter().any(|known| option.eq_ignore_ascii_case(known)) =>
        {
            replies.simple("OK");
        }
        _ => replies.error("ERR unknown CLIENT subcommand; there are SETNAME, GETNAME, ID, SETINFO"),
    }
}

/// There is one database.
fn select(arguments: &[&[u8]], replies: &mut Replies) {
    match arguments {
        [b"0"] => replies.simple("OK"),
        [_] => replies.error("ERR DB index is out of range; there is only 0"),
        _ => wrong_arity("select", "SELECT 0", replies),
    }
}

fn info(state: &State, replies: &mut Replies) {
    let forgotten = state.engine().forgotten();
    let text = format!(
        "# Server\r\nredis_version:7.4.0\r\ntollgate_version:{}\r\n\r\n# Rules\r\nrules_version:{}\r\nforgotten_clients:{}\r\n",
        env!("CARGO_PKG_VERSION"),
        state.engine().version(),
        forgotten.clients
    );
    replies.bulk(text.as_bytes());
}
