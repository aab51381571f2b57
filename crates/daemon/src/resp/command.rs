//! What can be asked over RESP, one function a command.

mod by_rules;
mod handshake;
mod stats;

pub use handshake::Session;

use super::decode::Arguments;
use super::reply::Replies;
use crate::fault::Fault;
use crate::meters::Protocol;
use crate::state::{State, at_once};
use crate::throttle::{Throttle, ThrottleError};
use by_rules::ByRules;
use smallvec::SmallVec;
use std::borrow::Cow;
use tollgate::{Limit, Time};

/// What came of a command: its replies are written, or there is a fault to be.
type Done = Result<(), Fault>;

/// Whether others should not have to wait for a command: it looks at all rules.
pub fn takes_long(arguments: &Arguments<'_>) -> bool {
    let long: [&[u8]; 2] = [b"STATS", b"EXPLAIN"];
    arguments.first().is_some_and(|name| long.iter().any(|long| name.eq_ignore_ascii_case(long)))
}

/// Answers one command, unless it has to wait for the store: then nothing has happened. Says whether it is answered.
pub fn run(state: &State, session: &mut Session, arguments: &Arguments<'_>, now: Time, replies: &mut Replies) -> bool {
    let Some((name, arguments)) = arguments.split_first() else { return true };
    let name = upper(name);
    let done = match ByRules::find(&name).filter(|_| session.may_ask()) {
        None => answer(state, session, (&name, arguments), now, replies),
        Some(command) => match at_once(command.answer(state.short_turn(now), arguments, replies)) {
            Some(done) => done,
            None => return false,
        },
    };
    conclude(done, state, replies);
    true
}

/// The same, however long it takes.
pub async fn run_long(
    state: &State,
    session: &mut Session,
    arguments: &Arguments<'_>,
    now: Time,
    replies: &mut Replies,
) {
    let Some((name, arguments)) = arguments.split_first() else { return };
    let name = upper(name);
    let done = match ByRules::find(&name).filter(|_| session.may_ask()) {
        None => answer(state, session, (&name, arguments), now, replies),
        Some(command) => command.answer(state.long_turn(now), arguments, replies).await,
    };
    conclude(done, state, replies);
}

fn upper(name: &[u8]) -> SmallVec<[u8; 16]> {
    let mut upper = SmallVec::from_slice(name);
    upper.make_ascii_uppercase();
    upper
}

/// Says what went wrong, if something has.
fn conclude(done: Done, state: &State, replies: &mut Replies) {
    if let Err(fault) = done {
        state.meters().of(Protocol::Resp).fault(&fault);
        replies.error(&format!("{} {fault}", fault.resp()));
    }
}

/// Answers all but what rules are asked.
fn answer(
    state: &State,
    session: &mut Session,
    (name, arguments): (&[u8], &[&[u8]]),
    now: Time,
    replies: &mut Replies,
) -> Done {
    match name {
        b"AUTH" => return handshake::auth(state, session, arguments, replies),
        b"HELLO" => return handshake::hello(state, session, arguments, replies),
        b"QUIT" => return handshake::quit(session, replies),
        b"POST" | b"HOST:" => return Err(hang_up(session)),
        _ if !session.may_ask() => return Err(Fault::NoToken),
        _ => {}
    }
    match name {
        b"CL.THROTTLE" => throttle(state, session, arguments, now, replies, Dialect::Cell),
        b"THROTTLE" => throttle(state, session, arguments, now, replies, Dialect::Crab),
        b"STATS" => stats::tell(state, replies),
        b"PING" => return handshake::ping(arguments, replies),
        b"ECHO" => return handshake::echo(arguments, replies),
        b"CLIENT" => return handshake::client(session, arguments, replies),
        b"COMMAND" => handshake::command(arguments, replies),
        b"INFO" => handshake::info(state, replies),
        b"SELECT" => return handshake::select(arguments, replies),
        b"RESET" => handshake::reset(session, replies),
        _ => return Err(unknown(name)),
    }
    Ok(())
}

/// What can be asked, apart from what clients say to get acquainted.
const COMMANDS: [&str; 13] = [
    "CL.THROTTLE",
    "THROTTLE",
    "CHECK",
    "CHECK.HEADERS",
    "PEEK",
    "RESERVE",
    "SETTLE",
    "REFUND",
    "RESET.CLIENT",
    "EXPLAIN",
    "STATS",
    "PING",
    "INFO",
];

/// A page in somebody's browser can be made to send requests to this machine, with commands in them.
fn hang_up(session: &mut Session) -> Fault {
    session.is_over = true;
    Fault::Unknown("this is not HTTP; the configuration says where that is answered".into())
}

fn unknown(name: &[u8]) -> Fault {
    let name = name.get(..name.len().min(64)).unwrap_or_default().to_ascii_lowercase();
    Fault::Unknown(format!("unknown command '{}'; there are {}", name.escape_ascii(), COMMANDS.join(", ")).into())
}

/// In the words of Redis, and how it would be right.
fn wrong_arity(name: &str, usage: &str) -> Fault {
    let name = name.to_ascii_lowercase();
    Fault::Malformed(format!("wrong number of arguments for '{name}' command; usage: {usage}").into())
}

/// Whose numbers and whose errors are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// redis-cell's, from 0.3.0 on.
    Cell,
    /// throttlecrab's.
    Crab,
}

/// The numbers of both, as throttlecrab names them in its errors.
const NUMBERS: [&str; 4] = ["max_burst", "count_per_period", "period", "quantity"];

fn throttle(
    state: &State,
    session: &mut Session,
    arguments: &[&[u8]],
    now: Time,
    replies: &mut Replies,
    dialect: Dialect,
) {
    match throttled(state, session, arguments, now, dialect) {
        Ok(numbers) => replies.integers(&numbers),
        Err(error) => {
            state.meters().of(Protocol::Resp).fault(&Fault::Malformed(Cow::Borrowed("")));
            replies.error(&error);
        }
    }
}

fn throttled(
    state: &State,
    session: &mut Session,
    arguments: &[&[u8]],
    now: Time,
    dialect: Dialect,
) -> Result<[i64; 5], String> {
    let (key, words, quantity) = match *arguments {
        [key, burst, count, period] => (key, [burst, count, period], None),
        [key, burst, count, period, quantity] => (key, [burst, count, period], Some(quantity)),
        _ => return Err(dialect.wrong_arity()),
    };
    if let Some(rate) = &session.rate
        && quantity.is_none()
        && rate.is(dialect, words)
    {
        return Ok(rate.decide(key, state, now));
    }
    new_rate(state, session, (key, words, quantity), now, dialect)
}

/// Understands a rate that the connection has not asked at before, and remembers it for the next time.
fn new_rate(
    state: &State,
    session: &mut Session,
    (key, words, quantity): (&[u8], [&[u8]; 3], Option<&[u8]>),
    now: Time,
    dialect: Dialect,
) -> Result<[i64; 5], String> {
    let throttle = dialect.parse(words, quantity)?;
    let limit = throttle.limit().map_err(|error| dialect.impossible(&error))?;
    let rate = Rate { dialect, words: words.map(SmallVec::from_slice), throttle, limit };
    let answer = rate.decide(key, state, now);
    if quantity.is_none() && words.iter().all(|word| word.len() <= LONGEST_WORD) {
        session.rate = Some(rate);
    }
    Ok(answer)
}

/// A number has no more digits.
const LONGEST_WORD: usize = 20;

/// What a connection asks at, again and again. To understand it takes longer than to decide.
#[derive(Debug)]
struct Rate {
    dialect: Dialect,
    words: [SmallVec<[u8; LONGEST_WORD]>; 3],
    throttle: Throttle,
    limit: Limit,
}

impl Rate {
    fn is(&self, dialect: Dialect, words: [&[u8]; 3]) -> bool {
        self.dialect == dialect && self.words.iter().zip(words).all(|(known, word)| known.as_slice() == word)
    }

    fn decide(&self, key: &[u8], state: &State, now: Time) -> [i64; 5] {
        let answer = self.throttle.decide(key, &self.limit, state.buckets(), now);
        match self.dialect {
            Dialect::Cell => answer.as_cell(),
            Dialect::Crab => answer.as_crab(),
        }
    }
}

impl Dialect {
    fn parse(self, [burst, count, period]: [&[u8]; 3], quantity: Option<&[u8]>) -> Result<Throttle, String> {
        let [burst_name, count_name, period_name, quantity_name] = NUMBERS;
        let throttle = Throttle {
            max_burst: self.integer(burst_name, burst)?,
            count: self.integer(count_name, count)?,
            period: self.integer(period_name, period)?,
            quantity: quantity.map_or(Ok(1), |quantity| self.integer(quantity_name, quantity))?,
        };
        if self == Dialect::Crab { as_of_cell(throttle) } else { Ok(throttle) }
    }

    fn integer(self, name: &str, text: &[u8]) -> Result<i64, String> {
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        number.ok_or_else(|| match self {
            Dialect::Cell => cell_error(&format!("Couldn't parse as integer: {}", String::from_utf8_lossy(text))),
            Dialect::Crab => format!("ERR invalid {name}"),
        })
    }

    fn wrong_arity(self) -> String {
        match self {
            Dialect::Cell => {
                cell_error("Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]")
            }
            Dialect::Crab => "ERR wrong number of arguments for 'throttle' command".to_owned(),
        }
    }

    fn impossible(self, error: &ThrottleError) -> String {
        match self {
            Dialect::Cell => cell_error(&error.to_string()),
            Dialect::Crab => crab_error(&error.to_string()),
        }
    }
}

fn cell_error(text: &str) -> String {
    format!("Cell error: Store error: {text}")
}

fn crab_error(text: &str) -> String {
    format!("ERR Rate limit check failed: {text}")
}

/// A call of throttlecrab's in redis-cell's terms: its burst is all that can be taken at once, the first included.
fn as_of_cell(throttle: Throttle) -> Result<Throttle, String> {
    if throttle.quantity < 0 {
        return Err(crab_error(&format!("negative quantity: {}", throttle.quantity)));
    }
    if throttle.max_burst <= 0 || throttle.count <= 0 || throttle.period <= 0 {
        return Err(crab_error("invalid rate limit parameters"));
    }
    Ok(Throttle { max_burst: throttle.max_burst - 1, ..throttle })
}
