//! A daemon within the test, whose clock stands still.

use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tollgate::{Clock, ManualClock, RuleSet, Source, Tollgate};
use tollgate_daemon::State;
use tollgate_daemon::access::Access;
use tollgate_daemon::listen::{FrontEnd, Peer, Stop};
use tollgate_daemon::meters::Meter;

/// What all front ends share, by these rules, at half a minute past.
pub(crate) fn state(rules: &str, tokens: &[&str]) -> (Arc<State>, ManualClock) {
    let (clock, hands) = Clock::manual();
    hands.advance(Duration::from_secs(1_800_000_030));
    let rules = RuleSet::parse(&[Source::new("rules.yaml", rules)]).unwrap();
    let tollgate = Tollgate::builder().clock(clock).build(rules);
    (Arc::new(State::new(tollgate, 1000, Access::new(tokens))), hands)
}

/// A front end that takes everybody for a stranger.
pub(crate) struct Suspicious<F>(pub(crate) F);

impl<F: FrontEnd> FrontEnd for Suspicious<F> {
    async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(&self, stream: S, peer: Peer, stop: Stop) {
        self.0.serve(stream, Peer { is_trusted: false, ..peer }, stop).await;
    }

    fn meter(&self) -> &Meter {
        self.0.meter()
    }
}
