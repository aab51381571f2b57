//! One question to the store: what is sent, and what the reply means. Nothing here reads a socket or a clock.

use crate::key::Fingerprint;
use crate::resp::{Command, Reply};
use crate::script::{BUCKETS, Form, LIMITS, LOOK, Script, WINDOWS};
use smallvec::SmallVec;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;
use tollgate_limit::kept::{
    Asked, BucketTerms, Kept, LogTerms, SlidingTerms, Terms, UnitClock, WarmUpTerms, WindowFrame, WindowTerms,
};
use tollgate_limit::{Decision, Limit, Time};

/// No bucket holds so many microseconds.
const NEVER: u64 = 1 << 52;

/// Bytes of what is said about most limits.
const ROOM: usize = 96;

/// The first part of a pair counts these.
const BILLION: u64 = 1_000_000_000;

/// A limit that is asked for a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Whose state. A key is asked about by one limit for ever: another limit has another id, and so another key.
    pub key: Fingerprint,
    /// How much is allowed.
    pub limit: Limit,
    /// What the request costs.
    pub cost: u64,
    /// How long the request may be held, if not by what the limit says itself.
    pub max_wait: Option<Duration>,
    /// What a refusal does.
    pub says: Says,
}

/// What it does to a request that a limit has no room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// It is refused.
    Refuse,
    /// It is refused if no other limit of this kind has room, either.
    Quota,
    /// Nothing, it is only told.
    Shadow,
}

/// Whether two of them are about one state.
pub(crate) fn has_twins(asks: &[Ask]) -> bool {
    asks.iter().enumerate().any(|(index, ask)| asks.iter().take(index).any(|other| other.key == ask.key))
}

/// All limits of one request, asked by one script: all of them are taken or none.
#[derive(Clone, Debug)]
pub struct Call {
    asks: Vec<Ask>,
    arguments: Arguments,
    script: &'static LazyLock<Script>,
}

/// What came back is not what the script answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reply is none of the script's")
    }
}

impl std::error::Error for Unreadable {}

impl Call {
    /// Asks these limits. `None` if one of them cannot be kept in the store, since its windows do not take whole
    /// microseconds or there are more than 2^52 tokens in them; or if two have the same key, since all are looked at
    /// before any is taken.
    pub fn new(asks: Vec<Ask>) -> Option<Call> {
        Call::saying(asks, |says| says)
    }

    /// Asks a part of a request's limits. What other parts have to say decides about quotas, too, so that each of them is
    /// taken if it has room, and only told about.
    pub(crate) fn part(asks: Vec<Ask>) -> Option<Call> {
        Call::saying(asks, |says| if says == Says::Quota { Says::Shadow } else { says })
    }

    fn saying(asks: Vec<Ask>, says: impl Fn(Says) -> Says) -> Option<Call> {
        if has_twins(&asks) {
            return None;
        }
        let terms = asks.iter().map(|ask| Some((says(ask.says), ask.limit.terms(ask.cost, ask.max_wait)?)));
        let terms: SmallVec<[(Says, Terms); 4]> = terms.collect::<Option<_>>()?;
        let script = script_for(&terms);
        let mut arguments = Arguments { bytes: Vec::with_capacity(ROOM * terms.len()), count: 0 };
        for (says, terms) in &terms {
            if !std::ptr::eq(script, &BUCKETS) {
                arguments.head(*says, terms);
            }
            arguments.add(terms);
        }
        Some(Call { asks, arguments, script })
    }

    /// Asks what would become of a request, and takes nothing.
    pub fn look(asks: Vec<Ask>) -> Option<Call> {
        let call = Call::of_every_kind(asks)?;
        Some(Call { script: &LOOK, ..call })
    }

    /// With the arguments that scripts take which know every kind of limit: nobody refuses.
    fn of_every_kind(asks: Vec<Ask>) -> Option<Call> {
        Call::saying(asks, |_| Says::Shadow)
    }

    /// For a script that is told something before it is told about limits, of every kind.
    pub(crate) fn after(word: impl fmt::Display, asks: Vec<Ask>) -> Option<Call> {
        let mut call = Call::of_every_kind(asks)?;
        let mut arguments = Arguments::default();
        arguments.word(word);
        arguments.append(&call.arguments);
        call.arguments = arguments;
        Some(call)
    }

    /// What is asked.
    pub fn asks(&self) -> &[Ask] {
        &self.asks
    }

    /// The script that answers it.
    pub fn script(&self) -> &'static Script {
        self.script
    }

    /// What the script is told about the limits.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        self.arguments.words()
    }

    /// Writes the command.
    pub(crate) fn write(&self, out: &mut Vec<u8>, prefix: &str, form: Form) {
        let script = self.script();
        let mut command = Command::new(out, 3 + self.asks.len() + self.arguments.count);
        match form {
            Form::Digest => command.word("EVALSHA").word(script.digest()),
            Form::Source => command.word("EVAL").word(script.source()),
        };
        command.number(self.asks.len() as u64);
        for ask in &self.asks {
            command.word_of(Fingerprint::name_length(prefix), |out| ask.key.write_name(prefix, out));
        }
        out.extend_from_slice(&self.arguments.bytes);
    }

    /// What each limit said, in the order in which they were asked.
    ///
    /// # Errors
    /// The reply is none of the script's.
    pub fn read(&self, reply: &Reply) -> Result<Vec<Decision>, Unreadable> {
        let answer = self.answer(reply)?;
        Ok(answer.decisions(&self.asks, answer.passes))
    }

    /// The same, before anything is made of it.
    pub(crate) fn answer(&self, reply: &Reply) -> Result<Answer, Unreadable> {
        let Reply::Array(elements) = reply else { return Err(Unreadable) };
        if std::ptr::eq(self.script, &BUCKETS) {
            return self.plain_answer(elements);
        }
        let Some(([seconds, micros, passes], answers)) = elements.split_first_chunk() else { return Err(Unreadable) };
        let (now, passes) = (read_time(seconds, micros)?, number(passes)? == 1);
        if answers.len() != 2 * self.asks.len() {
            return Err(Unreadable);
        }
        let states = self.asks.iter().zip(answers.chunks_exact(2)).map(|(ask, answer)| {
            let [fits, kept] = answer else { return Err(Unreadable) };
            Ok((number(fits)? == 1, read_kept(ask, kept)?))
        });
        Ok(Answer { now, passes, states: states.collect::<Result<_, _>>()? })
    }

    /// What [`BUCKETS`] answers: numbers alone.
    fn plain_answer(&self, elements: &[Reply]) -> Result<Answer, Unreadable> {
        let Some(([micros, passes], answers)) = elements.split_first_chunk() else { return Err(Unreadable) };
        let (now, passes) = (number(micros)?.checked_mul(1_000).ok_or(Unreadable)?, number(passes)? == 1);
        let (kept, fitting) = answers.split_at_checked(self.asks.len()).ok_or(Unreadable)?;
        if fitting.len() != if passes { 0 } else { self.asks.len() } {
            return Err(Unreadable);
        }
        let states = kept.iter().enumerate().map(|(index, kept)| {
            let fits = fitting.get(index).map_or(Ok(1), number)? == 1;
            Ok((fits, if *kept == Reply::Null { Kept::Nothing } else { Kept::Bucket(number(kept)?) }))
        });
        Ok(Answer { now: Time::from_nanos(now), passes, states: states.collect::<Result<_, _>>()? })
    }
}

/// What a script answered.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The time there.
    pub(crate) now: Time,
    /// Whether all that fits was taken.
    pub(crate) passes: bool,
    /// For every limit whether the request fits, and what was kept.
    pub(crate) states: SmallVec<[(bool, Kept); 4]>,
}

impl Answer {
    /// What each limit said, where what fits stays taken if the request passes.
    pub(crate) fn decisions(&self, asks: &[Ask], passes: bool) -> Vec<Decision> {
        let each = asks.iter().zip(&self.states);
        each.map(|(ask, (fits, kept))| {
            let asked = Asked { cost: ask.cost, max_wait: ask.max_wait, fits: *fits, is_taken: *fits && passes };
            ask.limit.decide_kept(*kept, asked, self.now)
        })
        .collect()
    }
}

/// The store's time, as `TIME` says it.
pub(crate) fn read_time(seconds: &Reply, micros: &Reply) -> Result<Time, Unreadable> {
    let nanos = u128::from(number(seconds)?) * u128::from(BILLION) + u128::from(number(micros)?) * 1_000;
    Ok(Time::from_nanos(u64::try_from(nanos).map_err(|_| Unreadable)?))
}

fn number(reply: &Reply) -> Result<u64, Unreadable> {
    match reply {
        Reply::Integer(number) => u64::try_from(*number).map_err(|_| Unreadable),
        Reply::Text(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Unreadable),
        Reply::Null | Reply::Array(_) | Reply::Error(_) => Err(Unreadable),
    }
}

/// What a script has kept for a limit.
pub(crate) fn read_kept(ask: &Ask, reply: &Reply) -> Result<Kept, Unreadable> {
    let text = match reply {
        Reply::Null => return Ok(Kept::Nothing),
        Reply::Text(text) => std::str::from_utf8(text).map_err(|_| Unreadable)?,
        _ => return Err(Unreadable),
    };
    let parse = |number: &str| number.parse::<u64>().map_err(|_| Unreadable);
    let numbers: Vec<&str> = text.split(':').collect();
    let terms = ask.limit.terms(ask.cost, ask.max_wait).ok_or(Unreadable)?;
    Ok(match (terms, numbers.as_slice()) {
        (Terms::Bucket(_), [full_at]) => Kept::Bucket(parse(full_at)?),
        (Terms::Window(_), [number, used]) => Kept::Window(number.parse().map_err(|_| Unreadable)?, parse(used)?),
        (Terms::Window(WindowTerms { limit, .. }), [digits]) => {
            let used = digits.len().saturating_sub(limit.to_string().len());
            let (number, used) = digits.split_at_checked(used).ok_or(Unreadable)?;
            Kept::Window(number.parse().map_err(|_| Unreadable)?, parse(used)?)
        }
        (Terms::SlidingWindow(_), [number, current, previous]) => {
            Kept::SlidingWindow(parse(number)?, parse(current)?, parse(previous)?)
        }
        (Terms::Log(_), [used, frees_at, last_at]) => Kept::Log(parse(used)?, parse(frees_at)?, parse(last_at)?),
        (Terms::WarmUp(_), [stored, next]) => Kept::WarmUp(stored.parse().map_err(|_| Unreadable)?, parse(next)?),
        _ => return Err(Unreadable),
    })
}

/// What a script is told, in the order in which it reads it.
#[derive(Clone, Debug, Default)]
struct Arguments {
    /// As they are sent.
    bytes: Vec<u8>,
    count: usize,
}

impl Arguments {
    fn head(&mut self, says: Says, terms: &Terms) {
        self.word(kind(terms)).word(match says {
            Says::Refuse => "r",
            Says::Quota => "q",
            Says::Shadow => "s",
        });
    }

    fn add(&mut self, terms: &Terms) {
        match terms {
            Terms::Bucket(terms) => match terms.clock {
                UnitClock::Micros => self.bucket(terms),
                UnitClock::Scaled { shift, factor } => self.paced(terms, shift, factor),
            },
            Terms::Window(terms) => self.window(terms),
            Terms::SlidingWindow(SlidingTerms { period, cost, limit }) => {
                self.word(period).word(cost).word(limit);
            }
            Terms::Log(terms) => self.log(terms),
            Terms::WarmUp(terms) => self.warm_up(terms),
        }
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        // Before each of them its length is said.
        std::str::from_utf8(&self.bytes).unwrap_or_default().split("\r\n").skip(1).step_by(2)
    }

    fn append(&mut self, others: &Arguments) {
        self.bytes.extend_from_slice(&others.bytes);
        self.count += others.count;
    }

    fn word(&mut self, word: impl fmt::Display) -> &mut Self {
        Command::further(&mut self.bytes).word(word.to_string());
        self.count += 1;
        self
    }

    /// The same, quickly.
    fn number(&mut self, number: u64) -> &mut Self {
        Command::further(&mut self.bytes).number(number);
        self.count += 1;
        self
    }

    fn pair(&mut self, number: u64) -> &mut Self {
        self.word(number / BILLION).word(number % BILLION)
    }

    /// Nothing is less than this.
    fn below_zero(&mut self) -> &mut Self {
        self.word(-1).word(0)
    }

    fn bucket(&mut self, terms: &BucketTerms) {
        match terms.room {
            Some(room) => self.number(room.saturating_add(terms.wait)),
            None => self.word(-1),
        };
        self.number(terms.price.min(NEVER)).number(terms.fill).number(step(terms));
    }

    fn paced(&mut self, terms: &BucketTerms, shift: u32, factor: u64) {
        const LIMB: u64 = 1 << 21;
        self.word(1_u64 << shift).word(factor >> 42).word((factor >> 21) % LIMB).word(factor % LIMB);
        // Only how long a key is kept depends on it, and so it may be a little too small.
        let per_milli = 1e6 * (1_u64 << shift) as f64 * (factor as f64 / (1_u64 << 63) as f64);
        self.word(per_milli * 0.999);
        match terms.room {
            Some(room) => self.pair(terms.wait).pair(room),
            None => self.pair(0).below_zero(),
        };
        self.pair(terms.price).pair(terms.fill).word(terms.jumped / BILLION + 1);
    }

    fn window(&mut self, terms: &WindowTerms) {
        match terms.frame {
            WindowFrame::Every { period, phase } => self.word(period).word(phase),
            WindowFrame::Months { months, offset } => self.word(months).word(offset),
        };
        self.word(terms.cost).word(terms.limit);
        match terms.wait {
            Some(wait) => self.word(wait),
            None => self.word(-1),
        };
        self.word(terms.jumped);
    }

    fn log(&mut self, terms: &LogTerms) {
        self.word(terms.period).word(terms.gap).word(terms.cost).word(terms.limit).word(terms.deepest);
        self.word(u8::from(terms.counts_refusals));
    }

    fn warm_up(&mut self, terms: &WarmUpTerms) {
        match terms.wait {
            Some(wait) => self.pair(wait),
            None => self.below_zero(),
        };
        self.word(terms.jumped / BILLION + 1).word(terms.cost).word(terms.interval).word(terms.slope);
        self.word(terms.threshold).word(terms.most).word(terms.warm_up);
    }
}

/// How many microseconds a step of a bucket's key is: short beside the time in which the bucket fills, and no longer than a
/// few requests take. It depends on the limit alone.
fn step(terms: &BucketTerms) -> u64 {
    const SHORT: u64 = 10_000_000;
    const A_FEW: u64 = 16;
    (terms.fill / 4).min(terms.token.saturating_mul(A_FEW).max(SHORT)).max(1)
}

/// The shortest that can decide by all of these.
fn script_for(terms: &[(Says, Terms)]) -> &'static LazyLock<Script> {
    let are_all = |kinds: &[&str]| terms.iter().all(|(_, terms)| kinds.contains(&kind(terms)));
    if are_all(&["b"]) && terms.iter().all(|(says, _)| *says == Says::Refuse) {
        &BUCKETS
    } else if are_all(&["b", "w", "m"]) {
        &WINDOWS
    } else {
        &LIMITS
    }
}

/// What the scripts call it.
fn kind(terms: &Terms) -> &'static str {
    match terms {
        Terms::Bucket(BucketTerms { clock: UnitClock::Micros, .. }) => "b",
        Terms::Bucket(_) => "p",
        Terms::Window(WindowTerms { frame: WindowFrame::Every { .. }, .. }) => "w",
        Terms::Window(_) => "m",
        Terms::SlidingWindow(_) => "s",
        Terms::Log(_) => "l",
        Terms::WarmUp(_) => "u",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(limit: Limit, client: &[u8]) -> Ask {
        Ask { key: Fingerprint::new(1, client), limit, cost: 1, max_wait: None, says: Says::Refuse }
    }

    #[test]
    fn what_a_script_could_not_get_right_is_not_asked() {
        let bucket = Limit::token_bucket("10 per second".parse().unwrap());
        assert!(Call::new(vec![ask(bucket, b"a"), ask(bucket, b"b")]).is_some());
        assert!(Call::new(vec![ask(bucket, b"a"), ask(bucket, b"a")]).is_none());
        for text in ["7 per 1001ns", "9000000000000000 per 52 weeks"] {
            assert!(Call::new(vec![ask(Limit::fixed_window(text.parse().unwrap()), b"a")]).is_none(), "{text}");
            assert!(Call::new(vec![ask(Limit::token_bucket(text.parse().unwrap()), b"a")]).is_some(), "{text}");
        }
    }

    #[test]
    fn replies_of_other_scripts_are_not_believed() {
        let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
        // Not a plain one, as it only tells.
        let limit = Limit::token_bucket("10 per second".parse().unwrap());
        let call = Call::new(vec![Ask { says: Says::Shadow, ..ask(limit, b"a") }]).unwrap();
        let at = |seconds: &str, kept: Reply| {
            Reply::Array(vec![text(seconds), text("5"), Reply::Integer(1), Reply::Integer(1), kept])
        };
        let answer = |kept| at("1800000000", kept);
        assert!(call.read(&answer(Reply::Null)).unwrap()[0].is_allowed());
        assert_eq!(call.read(&answer(text("1800000000000000"))).unwrap()[0].remaining, 9);
        for wrong in [
            answer(text("1:2")),
            answer(text("x")),
            answer(Reply::Integer(-1)),
            Reply::Null,
            Reply::Array(vec![text("1800000000"), text("5"), Reply::Integer(1)]),
            at("99999999999999999999", Reply::Null),
            at("18446744073709551615", Reply::Null),
        ] {
            assert_eq!(call.read(&wrong), Err(Unreadable), "{wrong:?}");
        }
    }

    #[test]
    fn plain_buckets_are_answered_in_numbers() {
        let call = Call::new(vec![ask(Limit::token_bucket("10 per second".parse().unwrap()), b"a")]).unwrap();
        let now = 1_800_000_000_000_000;
        let numbers = |numbers: &[i64]| Reply::Array(numbers.iter().map(|number| Reply::Integer(*number)).collect());
        let first = Reply::Array(vec![Reply::Integer(now), Reply::Integer(1), Reply::Null]);
        assert_eq!(call.read(&first).unwrap()[0].remaining, 9);
        assert_eq!(call.read(&numbers(&[now, 1, now + 500_000])).unwrap()[0].remaining, 4);
        assert!(!call.read(&numbers(&[now, 0, now + 950_000, 0])).unwrap()[0].is_allowed());
        for wrong in [
            numbers(&[]),
            numbers(&[now, 1]),
            numbers(&[now, 0, now]),
            numbers(&[now, 1, now, 1]),
            numbers(&[now, 1, -1]),
            numbers(&[-1, 1, now]),
            numbers(&[i64::MAX, 1, now]),
        ] {
            assert_eq!(call.read(&wrong), Err(Unreadable), "{wrong:?}");
        }
    }
}
