//! What holds whatever is asked of a limit, and whatever its clock does.
//!
//! Bytes are read as a script: words that begin with a command's letter and hold its numbers, as in
//! `Bucket:10/1000000000/20 take:3 +100 charge:5 -1000`. Whatever follows the letter is for whoever reads it.
//! Words that make no sense are skipped, so that every script is a valid one.

use std::time::Duration;
use tollgate_limit::{
    Blocked, Calendar, CalendarUnit, Cell, Change, Decision, Limit, Op, Outcome, Quota, Reservation, Retry, Time,
};

/// Longer scripts find nothing that shorter ones do not.
const LONGEST_SCRIPT: usize = 4_096;

/// From here on (the year 2262) limits refuse everything.
const LATE: Time = Time::from_nanos(1 << 63);

/// Plays the script.
pub(crate) fn check(script: &[u8]) {
    let script = script.get(..LONGEST_SCRIPT).unwrap_or(script);
    let mut words = script.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(Word::new);
    let Some(limit) = words.by_ref().find_map(|word| word.limit()) else { return };
    let mut player = Player::new(limit);
    words.for_each(|word| player.play(&word));
}

/// A command: its letter and its numbers.
struct Word {
    letter: u8,
    numbers: [u64; 4],
}

impl Word {
    fn new(word: &[u8]) -> Word {
        let mut numbers = [0; 4];
        let digits = word.split(|byte| !byte.is_ascii_digit()).filter(|digits| !digits.is_empty());
        for (number, digits) in numbers.iter_mut().zip(digits) {
            *number =
                digits.iter().fold(0, |n: u64, digit| n.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
        }
        Word { letter: word.first().copied().unwrap_or_default(), numbers }
    }

    /// `Bucket:count/nanoseconds/burst` and so on.
    fn limit(&self) -> Option<Limit> {
        let [count, period, burst, wait] = self.numbers;
        let wait = Duration::from_nanos(wait);
        let quota = || Quota::new(count, Duration::from_nanos(period)).ok()?.with_burst(burst.max(1)).ok();
        Some(match self.letter {
            b'B' => Limit::token_bucket(quota()?),
            b'Q' => Limit::leaky_queue(quota()?),
            b'G' => Limit::smooth_bursty(quota()?, wait),
            b'W' => Limit::smooth_warming_up(quota()?, Duration::from_nanos(burst), wait).ok()?,
            b'F' => Limit::fixed_window(quota()?),
            b'C' => Limit::cycles(quota()?, wait),
            b'S' => Limit::sliding_window(quota()?),
            b'L' => Limit::sliding_log(quota()?),
            b'R' => Limit::rolling_log(quota()?, wait, Blocked::Ignored),
            b'H' => Limit::rolling_log(quota()?, wait, Blocked::Counted),
            b'M' => Limit::calendar_window(count, self.calendar()?).ok()?,
            _ => return None,
        })
    }

    /// `M:count/unit/seconds east/seconds west`.
    fn calendar(&self) -> Option<Calendar> {
        let [_, unit, east, west] = self.numbers;
        let unit = match unit % 6 {
            0 => CalendarUnit::Minute,
            1 => CalendarUnit::Hour,
            2 => CalendarUnit::Day,
            3 => CalendarUnit::Week,
            4 => CalendarUnit::Month,
            _ => CalendarUnit::Year,
        };
        let seconds = i64::try_from(east).ok()?.checked_sub(i64::try_from(west).ok()?)?;
        Calendar::at_offset(unit, i32::try_from(seconds).ok()?)
    }

    fn op(&self) -> Option<Op> {
        let [first, second, ..] = self.numbers;
        Some(match self.letter {
            b't' => Op::Take(first),
            b'u' => Op::TakeUpTo(first),
            b'c' => Op::Charge(first),
            b'b' => Op::Reserve { cost: first, max_wait: Duration::from_nanos(second) },
            b'p' => Op::Peek(first),
            b'r' => Op::Refund(first),
            b'd' => Op::Drain,
            b'z' => Op::Reset,
            _ => return None,
        })
    }

    /// `+nanoseconds`, `-nanoseconds` and `@nanoseconds since the epoch`.
    fn time(&self, now: Time) -> Option<Time> {
        let [nanos, ..] = self.numbers;
        match self.letter {
            b'+' => Some(now + Duration::from_nanos(nanos)),
            b'-' => Some(Time::from_nanos(now.as_nanos().saturating_sub(nanos))),
            b'@' => Some(Time::from_nanos(nanos)),
            _ => None,
        }
    }

    fn change(&self) -> Change {
        let [.., last] = self.numbers;
        match last % 3 {
            0 => Change::KeepTokens,
            1 => Change::Proportional,
            _ => Change::Reset,
        }
    }
}

/// A client of a limit, and its twin that is only ever told yes or no.
struct Player {
    limit: Limit,
    now: Time,
    /// Whether the clock was ever set back; then a wait that was foretold may turn out longer.
    set_back: bool,
    cell: Cell,
    twin: Cell,
    /// The last booking that was not cancelled yet, and the twin's.
    booked: Option<[Reservation; 2]>,
}

impl Player {
    fn new(limit: Limit) -> Player {
        let new = || Cell::new(&limit, Time::ZERO);
        Player { limit, now: Time::ZERO, set_back: false, cell: new(), twin: new(), booked: None }
    }

    fn play(&mut self, word: &Word) {
        if let Some(time) = word.time(self.now) {
            self.set_back |= time < self.now;
            self.now = time;
        } else if let Some(op) = word.op() {
            self.decide(op);
        } else if let Some(to) = word.limit() {
            self.change(to, word.change());
        } else if word.letter == b'x' {
            self.cancel();
        }
    }

    fn decide(&mut self, op: Op) {
        let said = match op {
            Op::Take(cost) => self.take(cost),
            Op::Reserve { cost, max_wait } => self.reserve(cost, max_wait),
            _ => {
                let _ = self.twin.decide(&self.limit, op, self.now);
                self.cell.decide(&self.limit, op, self.now)
            }
        };
        self.is_possible(op, &said);
    }

    /// A peek before foresees it, and the yes or no is that of the whole decision.
    fn take(&self, cost: u64) -> Decision {
        let foreseen = self.peek(cost, self.now);
        let said = self.cell.decide(&self.limit, Op::Take(cost), self.now);
        assert_eq!(
            (said.is_allowed(), said.wait()),
            (foreseen.is_allowed(), foreseen.wait()),
            "{cost} of {:?}",
            self.limit
        );
        // Where refused attempts count, the attempt has made it longer.
        let is_no_shorter = said.retry_after() >= foreseen.retry_after();
        assert!(self.set_back || is_no_shorter, "{cost} of {:?}", self.limit);
        let _ = self.twin.decide(&self.limit, Op::Peek(cost), self.now);
        assert_eq!(self.twin.allow(&self.limit, cost, self.now), said.is_allowed(), "{cost} of {:?}", self.limit);
        assert_eq!(self.peek(1, self.now), self.twin.decide(&self.limit, Op::Peek(1), self.now));
        said
    }

    fn reserve(&mut self, cost: u64, max_wait: Duration) -> Decision {
        let book = |cell: &Cell| cell.reserve(&self.limit, cost, max_wait, self.now);
        let (first, second) = (book(&self.cell), book(&self.twin));
        assert_eq!(first, second);
        match (first, second) {
            (Ok(first), Ok(second)) => {
                assert!(first.wait() <= max_wait, "{first:?}");
                let decision = first.decision();
                self.booked = Some([first, second]);
                decision
            }
            (Err(refused), _) | (_, Err(refused)) => refused,
        }
    }

    fn cancel(&mut self) {
        let Some([first, second]) = self.booked.take() else { return };
        let booked = first.cost();
        let back = self.cell.cancel(&self.limit, first, self.now);
        assert!(back <= booked, "{back} of {booked} came back");
        assert_eq!(back, self.twin.cancel(&self.limit, second, self.now));
    }

    fn change(&mut self, to: Limit, change: Change) {
        self.cell.change(&self.limit, &to, change, self.now);
        self.twin.change(&self.limit, &to, change, self.now);
        self.limit = to;
        // What was booked at one limit is not given back to another.
        self.booked = None;
        let said = self.peek(1, self.now);
        self.is_possible(Op::Peek(1), &said);
    }

    fn peek(&self, cost: u64, now: Time) -> Decision {
        self.cell.decide(&self.limit, Op::Peek(cost), now)
    }

    fn is_possible(&self, op: Op, said: &Decision) {
        let told = || format!("{op:?} at {} of {:?}: {said:?}", self.now, self.limit);
        assert_eq!(said.limit, self.limit.most(), "{}", told());
        assert!(said.remaining <= said.limit, "{}", told());
        assert!(said.remaining == 0 || said.debt == 0, "{}", told());
        assert!(said.granted <= asked(op).unwrap_or(said.limit), "{}", told());
        if op == Op::Reset && self.now < LATE {
            assert_eq!(said.remaining, said.limit, "{}", told());
        }
        match said.outcome {
            Outcome::Refused(_) => assert_eq!(said.granted, 0, "{}", told()),
            Outcome::Allowed | Outcome::AllowedAfter(_) => assert_eq!(said.retry_after(), None),
        }
        if let (Op::Peek(cost), Outcome::Refused(Retry::After(wait))) = (op, said.outcome) {
            self.is_let_in_later(cost, wait);
        }
    }

    /// Who comes back when told is let in, if nobody else was.
    fn is_let_in_later(&self, cost: u64, wait: Duration) {
        let then = self.now + wait;
        if !self.set_back && then < LATE {
            let said = self.peek(cost, then);
            assert!(said.is_allowed(), "{cost} of {:?} at {} after {wait:?}: {said:?}", self.limit, self.now);
        }
    }
}

/// The most that an operation can grant; `None` where that is all there is.
fn asked(op: Op) -> Option<u64> {
    match op {
        Op::Take(n) | Op::TakeUpTo(n) | Op::Charge(n) | Op::Refund(n) | Op::Reserve { cost: n, .. } => Some(n),
        Op::Peek(_) | Op::Reset => Some(0),
        Op::Drain => None,
    }
}
