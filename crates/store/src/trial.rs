//! Tries a connection that rests, until its server is known to be well or the connection is of no use.

use crate::connection::{Connection, NoAnswer};
use crate::node::{Node, is_unfit};
use crate::patience::Fault;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A connection on which no answer is prompt for so long is given up, or for the budget if that is more.
const LONGEST_REST: Duration = Duration::from_millis(100);

/// Where too many have waited in vain it takes so many prompt answers; one that is not takes away so many of them.
const GOOD: u32 = 5;
const BAD: u32 = 4;

/// After an outage it takes so many, with pauses between them: together longer than things mostly take that come and go.
const GOOD_AFTER_OUTAGE: u32 = 22;
const BETWEEN_PROBES: Duration = Duration::from_millis(10);

/// Whoever has been tried for so long need not be any better than without an outage. It may be us who are not prompt.
const LONG_TRIAL: Duration = Duration::from_millis(400);

/// A connection that is now prompt and now not for so long is given up, or for so many budgets if that is more.
const LONGEST_TRIAL: Duration = Duration::from_secs(2);
const MOST_BUDGETS: u32 = 20;

/// A connection that is tried, and given up unless it passes: also if the trial ends too soon, with its runtime for one.
#[derive(Debug)]
pub(crate) struct Trial {
    node: Arc<Node>,
    connection: Arc<Connection>,
    is_passed: bool,
}

impl Drop for Trial {
    fn drop(&mut self) {
        if !self.is_passed {
            self.connection.give_up();
        }
    }
}

impl Trial {
    pub(crate) fn new(node: Arc<Node>, connection: Arc<Connection>) -> Trial {
        Trial { node, connection, is_passed: false }
    }

    pub(crate) async fn run(mut self) {
        self.is_passed = self.passes().await;
        if self.is_passed {
            self.connection.succeeded();
            self.connection.go_on();
        }
    }

    /// Asks for nobody until an answer is prompt; where too many have waited in vain, until some are.
    async fn passes(&self) -> bool {
        let Trial { node, connection, .. } = self;
        let start = Instant::now();
        let (mut last_prompt, mut good) = (start, 0_u32);
        while start.elapsed() < LONGEST_TRIAL.max(node.budget * MOST_BUDGETS) {
            let asked_at = Instant::now();
            // Also if this host has slept for a while there is time for one more.
            let deadline = (last_prompt + LONGEST_REST.max(node.budget)).max(asked_at + node.prompt);
            match connection.ask(connection.probe(), deadline).await {
                Ok(reply) if is_unfit(&reply) => return false,
                Ok(_) if asked_at.elapsed() > node.prompt => good = good.saturating_sub(BAD),
                Ok(_) => {
                    (last_prompt, good) = (asked_at, good + 1);
                    node.patience.said_something(node.now());
                    if self.is_enough(good, start.elapsed()) {
                        return true;
                    }
                    self.pause().await;
                }
                Err(NoAnswer::Full) if Instant::now() < deadline => sleep(BETWEEN_PROBES).await,
                Err(_) => {
                    self.is_gone();
                    return false;
                }
            }
        }
        false
    }

    /// Whether it is well, by so many prompt answers in that time.
    fn is_enough(&self, good: u32, elapsed: Duration) -> bool {
        let patience = &self.node.patience;
        let is_enough = match patience.exhausted_by() {
            None => return true,
            Some(Fault::Outage) if elapsed < LONG_TRIAL => good >= GOOD_AFTER_OUTAGE,
            Some(_) => good >= GOOD,
        };
        if is_enough {
            patience.was_tried(self.node.now());
        }
        is_enough
    }

    async fn pause(&self) {
        if self.node.patience.exhausted_by() == Some(Fault::Outage) {
            sleep(BETWEEN_PROBES).await;
        }
    }

    /// The server does not answer any more, unless it is known to be well by another connection.
    fn is_gone(&self) {
        if self.node.connection().is_none() {
            self.node.patience.was_gone(self.node.now());
        }
    }
}
