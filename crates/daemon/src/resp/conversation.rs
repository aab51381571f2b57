//! What is said on a connection, wherever its bytes are moved: here is what one has to know to go on with it, and here
//! commands are decided, in batches. Those that may take long, or have to wait for the store, are only begun by who can wait.

use super::command::{self, Session};
use super::decode::{Batch, Decoded, Malformed, Then, decode, decode_batch, unquote};
use super::reply::Replies;
use crate::listen::Peer;
use crate::state::State;
use std::ops::ControlFlow;
use std::time::Duration;
use tollgate::Time;

/// Replies beyond this are sent before more is decided: whoever does not read them is not served, either.
const MOST_UNSENT: usize = 64 * 1024;

/// How long a command may take to arrive once it has begun.
const COMMAND_PATIENCE: Duration = Duration::from_secs(30);

/// A conversation with a client. It can go on elsewhere, and nothing is lost or answered twice.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) session: Session,
    /// What has come and is not decided: the beginning of a command, unless it is to go on elsewhere.
    pub(super) received: Vec<u8>,
    /// What is decided and not sent.
    pub(super) replies: Replies,
    /// Since when the next command is waited for, or its end.
    pub(super) waiting_since: Time,
}

/// What came of the commands that were there: how many of how many bytes were decided, and why no more.
pub(super) struct Answered {
    pub(super) taken: usize,
    pub(super) commands: u64,
    pub(super) pause: Pause,
}

/// What has to be done before more can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// To read: nothing whole is left.
    Incomplete,
    /// To send the replies: there are too many of them.
    Unsent,
    /// To take one's time for the next command, of which nothing was done yet.
    Long,
    /// Nothing: the client has said goodbye.
    Over,
    /// Nothing: what follows cannot be understood.
    Broken(Malformed),
}

impl Conversation {
    /// One that begins.
    pub(super) fn new(peer: Peer, now: Time) -> Conversation {
        Conversation {
            session: Session::new(peer.is_trusted),
            received: Vec::new(),
            replies: Replies::default(),
            waiting_since: now,
        }
    }

    /// Answers the commands at the beginning of `bytes`, as many as can be without waiting for anything.
    pub(super) fn answer(&mut self, bytes: &[u8], state: &State, now: Time) -> Answered {
        let mut answered = Answered { taken: 0, commands: 0, pause: Pause::Incomplete };
        while let ControlFlow::Continue(()) = self.answer_batch(bytes, state, now, &mut answered) {}
        if self.session.is_over {
            answered.pause = Pause::Over;
        }
        answered
    }

    fn answer_batch(&mut self, bytes: &[u8], state: &State, now: Time, answered: &mut Answered) -> ControlFlow<()> {
        let mut batch = Batch::new();
        let then = decode_batch(bytes.get(answered.taken..).unwrap_or_default(), &mut batch);
        if batch.len() > 1 {
            batch.iter().for_each(|command| prefetch(command, state));
        }
        for command in &batch {
            answered.pause = match command {
                _ if self.session.is_over => Pause::Over,
                _ if self.replies.bytes().len() > MOST_UNSENT => Pause::Unsent,
                Decoded::Command(arguments, _)
                    if !command::takes_long(arguments)
                        && command::run(state, &mut self.session, arguments, now, &mut self.replies) =>
                {
                    answered.taken += command.taken();
                    answered.commands += 1;
                    continue;
                }
                _ => Pause::Long,
            };
            return ControlFlow::Break(());
        }
        answered.pause = match then {
            Then::Another => return ControlFlow::Continue(()),
            Then::Incomplete => Pause::Incomplete,
            Then::Broken(malformed) => Pause::Broken(malformed),
        };
        ControlFlow::Break(())
    }

    /// Answers the one command at the beginning of `bytes`, however long it takes.
    pub(super) async fn answer_long(&mut self, bytes: &[u8], state: &State, now: Time) -> Answered {
        match self.run(bytes, state, now).await {
            Ok(taken) => Answered { taken, commands: 1, pause: Pause::Unsent },
            Err(malformed) => Answered { taken: 0, commands: 0, pause: Pause::Broken(malformed) },
        }
    }

    async fn run(&mut self, bytes: &[u8], state: &State, now: Time) -> Result<usize, Malformed> {
        let command = decode(bytes)?;
        match &command {
            Decoded::Command(arguments, _) => {
                command::run_long(state, &mut self.session, arguments, now, &mut self.replies).await;
            }
            Decoded::Typed(line, _) => {
                let words = unquote(line)?;
                let arguments = words.iter().map(Vec::as_slice).collect();
                command::run_long(state, &mut self.session, &arguments, now, &mut self.replies).await;
            }
            Decoded::Incomplete => {}
        }
        Ok(command.taken())
    }

    /// How long it may be waited for, where nobody has to say anything for `idle`.
    pub(super) fn patience(&self, idle: Duration) -> Duration {
        if self.received.is_empty() { idle } else { COMMAND_PATIENCE }
    }
}

/// Begins to fetch the bucket that a command is about.
fn prefetch(command: &Decoded<'_>, state: &State) {
    if let Decoded::Command(arguments, _) = command
        && let [name, key, _, ..] = arguments.as_slice()
        && (name.eq_ignore_ascii_case(b"CL.THROTTLE") || name.eq_ignore_ascii_case(b"THROTTLE"))
    {
        state.buckets().prefetch(*key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::state::at_once;
    use tollgate::{RuleSet, Tollgate};

    #[test]
    fn what_takes_long_is_not_begun_before_somebody_has_the_time() {
        let state = State::new(Tollgate::builder().build(RuleSet::default()), 1000, Access::new(["secret"]));
        let now = state.now();
        let mut conversation = Conversation::new(Peer { address: None, is_trusted: true }, now);
        let mut rest: &[u8] = b"PING\r\nSTATS\r\nPING \"two\"\r\nPING\r\nPI";
        let mut pauses = Vec::new();
        while pauses.last() != Some(&Pause::Incomplete) {
            let answered = match pauses.last() {
                Some(Pause::Long) => at_once(conversation.answer_long(rest, &state, now)).unwrap(),
                _ => conversation.answer(rest, &state, now),
            };
            rest = rest.get(answered.taken..).unwrap_or_default();
            pauses.push(answered.pause);
        }
        assert_eq!(conversation.replies.bytes(), b"+PONG\r\n*0\r\n$3\r\ntwo\r\n+PONG\r\n");
        assert_eq!(rest, b"PI");
        assert_eq!(pauses, [Pause::Long, Pause::Unsent, Pause::Long, Pause::Unsent, Pause::Incomplete]);
    }

    #[test]
    fn after_a_goodbye_nothing_is_heard() {
        let state = State::new(Tollgate::builder().build(RuleSet::default()), 1000, Access::new(["secret"]));
        let now = state.now();
        for rest in ["PING\r\n", "STATS\r\n", "*x\r\n", "PI", ""] {
            let mut conversation = Conversation::new(Peer { address: None, is_trusted: true }, now);
            let said = ["QUIT\r\n", rest].concat();
            let answered = conversation.answer(said.as_bytes(), &state, now);
            assert_eq!((answered.pause, answered.taken), (Pause::Over, 6), "{rest:?}");
        }
    }
}
