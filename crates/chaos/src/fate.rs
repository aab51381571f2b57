//! What happens to whom: functions of the seed and of numbers, and of nothing else.

use crate::chaos::{Chaos, Delay, Direction};
use std::time::Duration;

/// A datagram is overtaken by no more than so many.
const MOST_OVERTAKING: u64 = 3;

/// Which datagram, or which chunk of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The number of its connection, or of the client that the datagrams come from.
    pub connection: u64,
    /// Where it goes.
    pub direction: Direction,
    /// Its own number among those.
    pub number: u64,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It serves.
    Serves,
    /// It is reset at once.
    Reset,
    /// Nothing is handed on.
    Held,
    /// It ends after so many bytes of what the server answers, when there is one more.
    Cut {
        /// How many are handed on.
        after: u64,
    },
}

/// How one copy of a datagram gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// How long it takes.
    pub delay: Duration,
    /// How many copies of others that come after it are handed on before it, if they come soon.
    pub overtaken_by: u64,
}

impl Chaos {
    /// What becomes of the n-th connection.
    pub fn connection(&self, number: u64) -> Fate {
        let drawn = self.fraction([number, 0, 0, Question::Connection as u64]);
        let after = self.cut_after.start
            + self.draw([number, 0, 0, Question::Cut as u64]) % (self.cut_after.end - self.cut_after.start);
        let fates = [
            (self.reset, Fate::Reset),
            (self.hold, Fate::Held),
            (self.lose_replies, Fate::Cut { after: 0 }),
            (self.cut, Fate::Cut { after }),
        ];
        let mut reached = 0.0;
        for (rate, fate) in fates {
            reached += rate;
            if drawn < reached {
                return fate;
            }
        }
        Fate::Serves
    }

    /// How long the n-th chunk of a stream takes.
    pub fn chunk(&self, place: Place) -> Duration {
        self.delay_of(place, 0)
    }

    /// How the n-th datagram gets there: not at all, once or twice.
    pub fn datagram(&self, place: Place) -> Vec<Passage> {
        let link = self.link(place.direction);
        if link.is_parted || self.happens(link.loss, place, Question::Loss) {
            return Vec::new();
        }
        let copies = if self.happens(link.duplicate, place, Question::Duplicate) { 2 } else { 1 };
        (0..copies)
            .map(|copy| Passage { delay: self.delay_of(place, copy), overtaken_by: self.overtaken_by(place, copy) })
            .collect()
    }

    fn overtaken_by(&self, place: Place, copy: u64) -> u64 {
        let question = if copy == 0 { Question::Reorder } else { Question::ReorderCopy };
        if self.happens(self.link(place.direction).reorder, place, question) {
            1 + self.draw(words(place, Question::Overtaking)) % MOST_OVERTAKING
        } else {
            0
        }
    }

    fn delay_of(&self, place: Place, copy: u64) -> Duration {
        let Delay { shortest, jitter } = self.link(place.direction).delay;
        let question = if copy == 0 { Question::Delay } else { Question::DelayCopy };
        shortest + jitter.mul_f64(self.fraction(words(place, question)))
    }

    fn happens(&self, rate: f64, place: Place, question: Question) -> bool {
        self.fraction(words(place, question)) < rate
    }

    /// From 0 up to and without 1.
    fn fraction(&self, words: [u64; 4]) -> f64 {
        // So many bits are exact in a float.
        (self.draw(words) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn draw(&self, words: [u64; 4]) -> u64 {
        words.iter().fold(mix(self.seed), |state, word| mix(state ^ word))
    }
}

/// What is drawn for. Each has numbers of its own, so that more loss does not change who is delayed by how much. What
/// becomes of a connection is one question: there is one answer to it.
#[derive(Clone, Copy)]
enum Question {
    Connection,
    Cut,
    Loss,
    Duplicate,
    Reorder,
    ReorderCopy,
    Overtaking,
    Delay,
    DelayCopy,
}

fn words(place: Place, question: Question) -> [u64; 4] {
    [place.connection, place.direction as u64, place.number, question as u64]
}

/// The step of `SplitMix64`.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
