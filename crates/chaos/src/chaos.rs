//! What is to happen, as a value.

use std::num::NonZeroU64;
use std::ops::Range;
use std::time::Duration;

/// So many milliseconds.
pub const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Where something is going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// What a client sends.
    ToServer,
    /// What the server answers.
    ToClient,
}

/// What is to happen to what passes, all from one seed. Without anything else, nothing is.
///
/// A connection has one fate. Where the parts that are [reset](Chaos::reset), [held](Chaos::hold), [left without
/// replies](Chaos::lose_replies) and [cut](Chaos::cut) are more than all together, those named first come first. Datagrams
/// have no connections, and meet only what their [`Link`] is like.
///
/// ```
/// use tollgate_chaos::{Chaos, Direction, Link, ms};
///
/// // Datagrams: both ways alike, or each on its own.
/// let lossy = Chaos::new(1).delay(ms(2)..ms(10)).loss(0.3).duplicate(0.1).reorder(0.2);
/// let one_way = Chaos::new(1).on(Direction::ToClient, Link::new().delay(ms(50)));
/// // Streams: one in ten is reset, and three in ten end somewhere in the first kilobyte of what the server answers.
/// let cut = Chaos::new(1).reset(0.1).cut(0.3, 1..1_024);
/// assert_ne!(lossy, one_way);
/// # let _ = cut;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Chaos {
    pub(crate) seed: u64,
    to_server: Link,
    to_client: Link,
    pub(crate) door: Door,
    pub(crate) reset: f64,
    pub(crate) hold: f64,
    pub(crate) lose_replies: f64,
    pub(crate) cut: f64,
    pub(crate) cut_after: Range<u64>,
}

/// What becomes of somebody who wants to connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Door {
    #[default]
    Open,
    /// Nobody looks who is there.
    Unattended,
    /// Nobody listens.
    Shut,
}

impl Chaos {
    /// Nothing happens.
    pub fn new(seed: u64) -> Chaos {
        Chaos {
            seed,
            to_server: Link::new(),
            to_client: Link::new(),
            door: Door::Open,
            reset: 0.0,
            hold: 0.0,
            lose_replies: 0.0,
            cut: 0.0,
            cut_after: 0..1,
        }
    }

    /// One direction on its own.
    #[must_use]
    pub fn on(mut self, direction: Direction, link: Link) -> Chaos {
        match direction {
            Direction::ToServer => self.to_server = link,
            Direction::ToClient => self.to_client = link,
        }
        self
    }

    /// What one direction is like.
    pub fn link(&self, direction: Direction) -> &Link {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }

    /// [`Link::delay`] both ways.
    #[must_use]
    pub fn delay(self, delay: impl Into<Delay>) -> Chaos {
        let delay = delay.into();
        self.both(|link| link.delay(delay))
    }

    /// [`Link::loss`] both ways.
    #[must_use]
    pub fn loss(self, rate: f64) -> Chaos {
        self.both(|link| link.loss(rate))
    }

    /// [`Link::duplicate`] both ways.
    #[must_use]
    pub fn duplicate(self, rate: f64) -> Chaos {
        self.both(|link| link.duplicate(rate))
    }

    /// [`Link::reorder`] both ways.
    #[must_use]
    pub fn reorder(self, rate: f64) -> Chaos {
        self.both(|link| link.reorder(rate))
    }

    /// [`Link::bytes_per_second`] both ways.
    #[must_use]
    pub fn bytes_per_second(self, rate: NonZeroU64) -> Chaos {
        self.both(|link| link.bytes_per_second(rate))
    }

    /// Connections are taken, and nothing is handed on either way.
    #[must_use]
    pub fn stall(self) -> Chaos {
        self.both(Link::partition)
    }

    /// This part of the connections is reset as soon as they are made. Those that there are already when this is
    /// [set](crate::Proxy::set) meet their fate too. The server sees an orderly end.
    #[must_use]
    pub fn reset(mut self, rate: f64) -> Chaos {
        self.reset = checked(rate);
        self
    }

    /// On this part of the connections nothing is handed on.
    #[must_use]
    pub fn hold(mut self, rate: f64) -> Chaos {
        self.hold = checked(rate);
        self
    }

    /// This part of the connections ends when the server answers, before a byte of that is handed on: the request was
    /// received, and the client cannot know.
    #[must_use]
    pub fn lose_replies(mut self, rate: f64) -> Chaos {
        self.lose_replies = checked(rate);
        self
    }

    /// This part of the connections ends after some bytes of what the server answers, mostly in the midst of a reply.
    ///
    /// # Panics
    /// If the range is empty.
    #[must_use]
    pub fn cut(mut self, rate: f64, after: Range<u64>) -> Chaos {
        assert!(!after.is_empty(), "there is no number in {after:?}");
        self.cut = checked(rate);
        self.cut_after = after;
        self
    }

    /// New connections are refused, as by a server that does not run. Those that there are go on.
    #[must_use]
    pub fn refuse(mut self) -> Chaos {
        self.door = Door::Shut;
        self
    }

    /// New connections hang, as with a server that is too busy to take them. After the first two it takes for ever to
    /// connect. Those that there are go on; those that hung are reset when this is over.
    #[must_use]
    pub fn hang(mut self) -> Chaos {
        self.door = Door::Unattended;
        self
    }

    /// As if the server had been killed: what there is is reset, and new connections are refused.
    #[must_use]
    pub fn down(self) -> Chaos {
        self.stall().reset(1.0).refuse()
    }

    fn both(mut self, change: impl Fn(Link) -> Link) -> Chaos {
        self.to_server = change(self.to_server);
        self.to_client = change(self.to_client);
        self
    }
}

/// What is to happen to what goes in one direction.
///
/// ```
/// use tollgate_chaos::{Link, ms};
///
/// let far_away = Link::new().delay(ms(80)..ms(120));
/// let cut_off = Link::new().partition();
/// assert_ne!(far_away, cut_off);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    pub(crate) delay: Delay,
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    pub(crate) reorder: f64,
    pub(crate) bytes_per_second: Option<NonZeroU64>,
    pub(crate) is_parted: bool,
}

impl Link {
    /// Nothing happens.
    pub fn new() -> Link {
        Link::default()
    }

    /// Everything arrives so much later: a duration, or one from a range each time.
    #[must_use]
    pub fn delay(mut self, delay: impl Into<Delay>) -> Link {
        self.delay = delay.into();
        self
    }

    /// This part of the datagrams is lost. Streams lose nothing.
    #[must_use]
    pub fn loss(mut self, rate: f64) -> Link {
        self.loss = checked(rate);
        self
    }

    /// This part of the datagrams arrives twice.
    #[must_use]
    pub fn duplicate(mut self, rate: f64) -> Link {
        self.duplicate = checked(rate);
        self
    }

    /// This part of the datagrams is overtaken by up to three that come after them within 50 ms.
    #[must_use]
    pub fn reorder(mut self, rate: f64) -> Link {
        self.reorder = checked(rate);
        self
    }

    /// No more than so much passes. What comes faster waits.
    #[must_use]
    pub fn bytes_per_second(mut self, rate: NonZeroU64) -> Link {
        self.bytes_per_second = Some(rate);
        self
    }

    /// Nothing passes: datagrams are lost, and streams wait until this is over, as TCP sends again what was lost.
    #[must_use]
    pub fn partition(mut self) -> Link {
        self.is_parted = true;
        self
    }
}

/// How long something takes: always the same, or anything from a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    pub(crate) shortest: Duration,
    /// How much longer it takes at the most.
    pub(crate) jitter: Duration,
}

impl From<Duration> for Delay {
    fn from(always: Duration) -> Delay {
        Delay { shortest: always, jitter: Duration::ZERO }
    }
}

impl From<Range<Duration>> for Delay {
    fn from(range: Range<Duration>) -> Delay {
        Delay { shortest: range.start, jitter: range.end.saturating_sub(range.start) }
    }
}

fn checked(rate: f64) -> f64 {
    assert!((0.0..=1.0).contains(&rate), "{rate} is not a part of one");
    rate
}
