//! What can be asked over RESP, one function a command.

use super::decode::Arguments;
use super::reply::Replies;
use crate::answer::{Answer, milliseconds};
use crate::fault::Fault;
use crate::meters::Protocol;
use crate::state::{Reserved, State};
use crate::throttle::Throttle;
use smallvec::SmallVec;
use std::time::Duration;
use tollgate::{Request, Time, Value};

/// What one connection has said about itself.
#[derive(Debug)]
pub struct Session {
    name: Vec<u8>,
    /// Whether it was let in without a token.
    is_trusted: bool,
    /// Whether it has shown a token.
    is_known: bool,
    /// Whether it has said goodbye.
    pub is_over: bool,
}

impl Session {
    /// Of a peer that needs a token unless it is trusted.
    pub fn new(is_trusted: bool) -> Session {
        Session { name: Vec::new(), is_trusted, is_known: false, is_over: false }
    }
}

/// What came of a command: its replies are written, or there is a fault to be.
type Done = Result<(), Fault>;

/// Answers one command.
pub fn run(state: &State, session: &mut Session, arguments: &Arguments<'_>, now: Time, replies: &mut Replies) {
    let Some((name, arguments)) = arguments.split_first() else { return };
    let mut upper: SmallVec<[u8; 16]> = SmallVec::from_slice(name);
    upper.make_ascii_uppercase();
    if let Err(fault) = answer(state, session, (&upper, arguments), now, replies) {
        state.meters().of(Protocol::Resp).fault(&fault);
        replies.error(&format!("{} {fault}", fault.resp()));
    }
}

fn answer(
    state: &State,
    session: &mut Session,
    (name, arguments): (&[u8], &[&[u8]]),
    now: Time,
    replies: &mut Replies,
) -> Done {
    match name {
        b"AUTH" => return auth(state, session, arguments, replies),
        b"HELLO" => return hello(state, session, arguments, replies),
        b"QUIT" => session.is_over = true,
        _ if !session.is_trusted && !session.is_known => return Err(Fault::NoToken),
        _ => {}
    }
    match name {
        b"CL.THROTTLE" => throttle(state, arguments, now, replies, Dialect::Cell),
        b"THROTTLE" => throttle(state, arguments, now, replies, Dialect::Crab),
        b"CHECK" => tell(&Answer::new(&state.engine().check(&request(arguments)?.borrow(), now)), replies),
        b"PEEK" => tell(&Answer::new(&state.engine().peek(&request(arguments)?.borrow(), now)), replies),
        b"RESERVE" => return reserve(state, arguments, now, replies),
        b"SETTLE" => return settle(state, arguments, now, replies),
        b"REFUND" => return refund(state, arguments, now, replies),
        b"RESET.CLIENT" => replies.count(state.engine().reset(&request(arguments)?.borrow(), now)),
        b"EXPLAIN" => {
            replies.bulk(state.engine().explain(&request(arguments)?.borrow(), now).to_string().as_bytes());
        }
        b"PING" => return ping(arguments, replies),
        b"ECHO" => return echo(arguments, replies),
        b"CLIENT" => return client(session, arguments, replies),
        b"COMMAND" => replies.array(0),
        b"INFO" => info(state, replies),
        b"SELECT" => return select(arguments, replies),
        b"RESET" => {
            (*session, replies.is_resp3) = (Session::new(session.is_trusted), false);
            replies.simple("RESET");
        }
        b"QUIT" => replies.simple("OK"),
        _ => return Err(unknown(name)),
    }
    Ok(())
}

fn unknown(name: &[u8]) -> Fault {
    let name = name.get(..name.len().min(64)).unwrap_or_default().to_ascii_lowercase();
    let text = format!(
        "unknown command '{}'; there are CL.THROTTLE, THROTTLE, CHECK, PEEK, RESERVE, SETTLE, REFUND, RESET.CLIENT, EXPLAIN, \
         PING, INFO",
        name.escape_ascii()
    );
    Fault::Unknown(text.into())
}

fn wrong_arity(name: &str, usage: &str) -> Fault {
    Fault::Malformed(format!("wrong number of arguments for '{name}' command; usage: {usage}").into())
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

const USAGE: &str = "CHECK namespace cost [attribute value ...]";
const RESERVE_USAGE: &str = "RESERVE namespace cost milliseconds [attribute value ...]";

/// `namespace cost [attribute value ...]`
struct Asked<'a> {
    namespace: &'a str,
    cost: u64,
    attributes: SmallVec<[(&'a str, Value<'a>); 8]>,
}

impl Asked<'_> {
    fn borrow(&self) -> Request<'_> {
        Request::new(self.namespace, &self.attributes).with_cost(self.cost)
    }
}

fn request<'a>(arguments: &[&'a [u8]]) -> Result<Asked<'a>, Fault> {
    let [namespace, cost, rest @ ..] = arguments else { return Err(wrong_arity("check", USAGE)) };
    asked(namespace, cost, rest, USAGE)
}

fn asked<'a>(namespace: &'a [u8], cost: &[u8], rest: &[&'a [u8]], usage: &str) -> Result<Asked<'a>, Fault> {
    let (pairs, []) = rest.as_chunks::<2>() else {
        return Err(Fault::Malformed(format!("an attribute without a value; usage: {usage}").into()));
    };
    let pair = |[name, value]: &[&'a [u8]; 2]| Ok((text(name)?, Value::Text(text(value)?)));
    let attributes = pairs.iter().map(pair).collect::<Result<_, Fault>>()?;
    Ok(Asked { namespace: text(namespace)?, cost: whole(cost, "the cost")?, attributes })
}

fn text(bytes: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(bytes).map_err(|_| Fault::Malformed("arguments are UTF-8".into()))
}

fn whole(bytes: &[u8], what: &str) -> Result<u64, Fault> {
    text(bytes)?.parse().map_err(|_| Fault::Malformed(format!("{what} is a whole number from 0").into()))
}

fn reserve(state: &State, arguments: &[&[u8]], now: Time, replies: &mut Replies) -> Done {
    let [namespace, cost, expires, rest @ ..] = arguments else { return Err(wrong_arity("reserve", RESERVE_USAGE)) };
    let asked = asked(namespace, cost, rest, RESERVE_USAGE)?;
    let expires = Duration::from_millis(whole(expires, "the time to settle it within")?);
    match state.reserve(&asked.borrow(), Some(expires), now)? {
        Reserved::Refused(verdict) => tell(&Answer::new(&verdict), replies),
        Reserved::Open(id, wait) => {
            replies.map(4);
            replies.pair("allowed", 1);
            replies.pair("status", 200);
            replies.pair("wait_ms", number(milliseconds(wait)));
            replies.bulk(b"reservation");
            replies.bulk(id.to_string().as_bytes());
        }
    }
    Ok(())
}

fn settle(state: &State, arguments: &[&[u8]], now: Time, replies: &mut Replies) -> Done {
    let [id, actual] = arguments else { return Err(wrong_arity("settle", "SETTLE reservation actual-cost")) };
    state.settle(text(id)?.parse()?, whole(actual, "the actual cost")?, now)?;
    replies.simple("OK");
    Ok(())
}

fn refund(state: &State, arguments: &[&[u8]], now: Time, replies: &mut Replies) -> Done {
    let [id] = arguments else { return Err(wrong_arity("refund", "REFUND reservation")) };
    state.settle(text(id)?.parse()?, 0, now)?;
    replies.simple("OK");
    Ok(())
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What a verdict says, as names and values; -1 for what there is not.
fn tell(answer: &Answer<'_>, replies: &mut Replies) {
    let time = |time: Option<Duration>| time.map_or(-1, |time| number(milliseconds(time)));
    replies.map(9);
    replies.pair("allowed", i64::from(answer.allowed));
    replies.pair("status", answer.status.into());
    replies.pair("limit", answer.limit.map_or(-1, number));
    replies.pair("remaining", answer.remaining.map_or(-1, number));
    replies.pair("wait_ms", time(Some(answer.wait)));
    replies.pair("retry_after_ms", time(answer.retry_after));
    replies.pair("reset_after_ms", time(answer.reset_after));
    replies.bulk(b"rule");
    replies.bulk(answer.rule.unwrap_or_default().as_bytes());
    replies.bulk(b"reason");
    replies.bulk(answer.reason.as_bytes());
}

/// `AUTH [user] token`. Users are not told apart.
fn auth(state: &State, session: &mut Session, arguments: &[&[u8]], replies: &mut Replies) -> Done {
    let ([token] | [_, token]) = arguments else { return Err(wrong_arity("auth", "AUTH token")) };
    log_in(state, session, token)?;
    replies.simple("OK");
    Ok(())
}

fn log_in(state: &State, session: &mut Session, token: &[u8]) -> Done {
    if state.access().is_empty() {
        return Err(Fault::Malformed("AUTH called without any token configured; leave it out".into()));
    }
    state.access().check(token)?;
    session.is_known = true;
    Ok(())
}

fn ping(arguments: &[&[u8]], replies: &mut Replies) -> Done {
    match arguments {
        [] => replies.simple("PONG"),
        [message] => replies.bulk(message),
        _ => return Err(wrong_arity("ping", "PING [message]")),
    }
    Ok(())
}

fn echo(arguments: &[&[u8]], replies: &mut Replies) -> Done {
    let [message] = arguments else { return Err(wrong_arity("echo", "ECHO message")) };
    replies.bulk(message);
    Ok(())
}

/// `HELLO [2|3 [AUTH user token] [SETNAME name]]`
fn hello(state: &State, session: &mut Session, arguments: &[&[u8]], replies: &mut Replies) -> Done {
    let (version, mut options) = match arguments {
        [] => (None, arguments),
        [version, options @ ..] => (Some(*version), options),
    };
    let is_resp3 = match version {
        None => replies.is_resp3,
        Some(b"2") => false,
        Some(b"3") => true,
        Some(_) => {
            replies.error("NOPROTO unsupported protocol version; there are 2 and 3");
            return Ok(());
        }
    };
    while let [option, rest @ ..] = options {
        options = match rest {
            [name, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                session.name = name.to_vec();
                rest
            }
            [_, token, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                log_in(state, session, token)?;
                rest
            }
            _ => {
                return Err(Fault::Malformed(
                    "Syntax error in HELLO; usage: HELLO 3 [AUTH user token] [SETNAME name]".into(),
                ));
            }
        };
    }
    if !session.is_trusted && !session.is_known {
        return Err(Fault::NoToken);
    }
    replies.is_resp3 = is_resp3;
    replies.map(5);
    for (name, value) in
        [("server", "tollgate"), ("version", env!("CARGO_PKG_VERSION")), ("mode", "standalone"), ("role", "master")]
    {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.pair("proto", if replies.is_resp3 { 3 } else { 2 });
    Ok(())
}

/// What clients say about themselves when they connect.
fn client(session: &mut Session, arguments: &[&[u8]], replies: &mut Replies) -> Done {
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
        _ => {
            let text = "unknown CLIENT subcommand; there are SETNAME, GETNAME, ID, SETINFO";
            return Err(Fault::Unknown(text.into()));
        }
    }
    Ok(())
}

/// There is one database.
fn select(arguments: &[&[u8]], replies: &mut Replies) -> Done {
    match arguments {
        [b"0"] => replies.simple("OK"),
        [_] => return Err(Fault::Malformed("DB index is out of range; there is only 0".into())),
        _ => return Err(wrong_arity("select", "SELECT 0")),
    }
    Ok(())
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
