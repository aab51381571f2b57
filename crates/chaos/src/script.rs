use crate::chaos::Chaos;
use std::time::Duration;

/// What happens when: one phase after the other, over and over again or once.
///
/// ```
/// use tollgate_chaos::{Chaos, Script, ms};
///
/// let flapping = Script::new().then(ms(200), Chaos::new(1).down()).then(ms(200), Chaos::new(1)).repeated();
/// assert_eq!(flapping.at(ms(450)), Some(&Chaos::new(1).down()));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    phases: Vec<(Duration, Chaos)>,
    is_repeated: bool,
}

impl Script {
    /// Without any phases.
    pub fn new() -> Script {
        Script::default()
    }

    /// After that, this for so long.
    #[must_use]
    pub fn then(mut self, lasts: Duration, chaos: Chaos) -> Script {
        self.phases.push((lasts, chaos));
        self
    }

    /// From the beginning after the last phase. Otherwise that one goes on.
    #[must_use]
    pub fn repeated(mut self) -> Script {
        self.is_repeated = true;
        self
    }

    /// What happens after so long; `None` if there are no phases.
    pub fn at(&self, elapsed: Duration) -> Option<&Chaos> {
        self.phase(elapsed).map(|(chaos, _)| chaos)
    }

    /// The same, and until when; that is `None` if it goes on for ever.
    pub(crate) fn phase(&self, elapsed: Duration) -> Option<(&Chaos, Option<Duration>)> {
        let whole: Duration = self.phases.iter().map(|(lasts, _)| lasts).sum();
        let rounds = if self.is_repeated { elapsed.as_nanos().checked_div(whole.as_nanos()).unwrap_or(0) } else { 0 };
        let mut end = whole * u32::try_from(rounds).unwrap_or(u32::MAX);
        for (lasts, chaos) in &self.phases {
            end += *lasts;
            if elapsed < end {
                return Some((chaos, Some(end)));
            }
        }
        self.phases.last().map(|(_, chaos)| (chaos, None))
    }
}
