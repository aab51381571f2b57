//! Giving back what was taken and not used. Nothing here reads a socket or a clock.

use crate::call::{Ask, Call, Unreadable, read_kept, read_time};
use crate::resp::Reply;
use crate::script::{GIVE_BACK, Script};
use std::time::Duration;
use tollgate_limit::Time;
use tollgate_limit::kept::{Asked, Kept};

/// Tokens that requests took and did not use, given back by one script: each state moves back by the cost of its question,
/// and never beyond that in which nothing is missing. Logs and warm-ups stay as they are.
///
/// The caller vouches that the tokens were taken and are given back once.
///
/// ```
/// use tollgate_limit::Limit;
/// use tollgate_store::{Ask, Fingerprint, GIVE_BACK, Refund, Says};
///
/// let limit = Limit::token_bucket("5 per minute".parse()?);
/// let ask = Ask { key: Fingerprint::new(1, b"alice"), limit, cost: 2, max_wait: None, says: Says::Refuse };
/// let refund = Refund::new(vec![ask]).ok_or("nobody can have asked that")?;
/// assert_eq!(refund.script().digest(), GIVE_BACK.digest());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Refund(Call);

impl Refund {
    /// Gives back what these have just taken. `None` if they cannot have been [asked](Call::new).
    pub fn new(asks: Vec<Ask>) -> Option<Refund> {
        Refund::of_taken_ago(asks, Duration::ZERO)
    }

    /// Gives back what these took so long ago, but nothing that has come in since: others may have taken that.
    pub fn of_taken_ago(asks: Vec<Ask>, ago: Duration) -> Option<Refund> {
        Call::after(format_args!("-{}", ago.as_micros()), asks).map(Refund)
    }

    /// Gives back what these took at that time, as the store tells it, but nothing that has come in since: others may have
    /// taken that. So no more is ever let through in any time than if it had not been taken at all.
    pub fn of_taken_at(asks: Vec<Ask>, taken_at: Time) -> Option<Refund> {
        let micros = taken_at.as_nanos() / 1_000;
        Call::after(micros, asks).map(Refund)
    }

    /// What is given back.
    pub fn asks(&self) -> &[Ask] {
        self.0.asks()
    }

    /// The script that does it.
    pub fn script(&self) -> &'static Script {
        &GIVE_BACK
    }

    /// What the script is told about the limits.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        self.0.arguments()
    }

    /// How many tokens each limit has got back. Where that is less than was taken, the rest had come back by itself.
    ///
    /// # Errors
    /// The reply is none of the script's.
    pub fn read(&self, reply: &Reply) -> Result<Vec<u64>, Unreadable> {
        let Reply::Array(elements) = reply else { return Err(Unreadable) };
        let Some(([seconds, micros], states)) = elements.split_first_chunk() else { return Err(Unreadable) };
        let now = read_time(seconds, micros)?;
        if states.len() != 2 * self.asks().len() {
            return Err(Unreadable);
        }
        let given = |(ask, states): (&Ask, &[Reply])| {
            let [before, after] = states else { return Err(Unreadable) };
            let missing = |kept| Ok(missing(ask, read_kept(ask, kept)?, now));
            Ok(missing(before)?.saturating_sub(missing(after)?).min(ask.cost))
        };
        self.asks().iter().zip(states.chunks_exact(2)).map(given).collect()
    }
}

/// How many tokens a state lacks to full.
fn missing(ask: &Ask, kept: Kept, now: Time) -> u64 {
    let looked = Asked { cost: 0, max_wait: None, fits: true, is_taken: false };
    ask.limit.decide_kept(kept, looked, now).missing()
}
