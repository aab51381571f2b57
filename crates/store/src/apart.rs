//! Questions about states that a cluster may keep in several slots. All nodes are asked at once; what some of them took for
//! a request that others refuse is given back, and nobody waits for that.

use crate::call::{Answer, Ask, Call, Says};
use crate::node::Until;
use crate::refund::Refund;
use crate::script::Run;
use crate::store::{Question, Shared};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tollgate_limit::{Decision, Time};

/// Those of the questions whose states are in one slot.
struct Part {
    slot: u16,
    /// Which of them.
    places: Vec<usize>,
    call: Call,
}

/// When tokens were taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken {
    /// So long ago.
    Ago(Duration),
    /// At that time, as the store tells it.
    At(Time),
}

/// What each limit says, if all nodes say it before the deadline.
pub(crate) async fn ask(shared: &Arc<Shared>, asks: &[Ask], until: Until) -> Option<Vec<Decision>> {
    let Some(parts) = each_part(asks, &shared.slots(asks)) else {
        shared.stats.impossible.add();
        return None;
    };
    // Nothing is taken where somebody is known not to answer.
    let map = shared.map();
    let is_there = |part: &Part| map.node(part.slot).is_some_and(|node| node.ready().is_some());
    if !parts.iter().all(is_there) {
        shared.stats.unreachable.add();
        shared.stale();
        return None;
    }
    let answers = all(parts.iter().map(|part| shared.put(part.slot, &part.call, until))).await;
    let passes = passes(&parts, &answers);
    if passes != Some(true) {
        give_back(shared, &parts, &answers);
    }
    let said = |(part, answer): (&Part, Option<Answer>)| Some(answer?.decisions(part.call.asks(), passes?));
    let said: Vec<Vec<Decision>> = parts.iter().zip(answers).map(said).collect::<Option<_>>()?;
    in_order(asks.len(), parts.iter().map(|part| &part.places).zip(said)).into_iter().collect()
}

/// Whether the request passes: nobody refuses it, and if there are quotas one of them has room. `None` if somebody does not
/// say.
fn passes(parts: &[Part], answers: &[Option<Answer>]) -> Option<bool> {
    let (mut passes, mut has_quotas, mut has_room) = (true, false, false);
    for (part, answer) in parts.iter().zip(answers) {
        for (ask, (fits, _)) in part.call.asks().iter().zip(&answer.as_ref()?.states) {
            passes &= ask.says != Says::Refuse || *fits;
            has_quotas |= ask.says == Says::Quota;
            has_room |= ask.says == Says::Quota && *fits;
        }
    }
    Some(passes && (has_room || !has_quotas))
}

/// Gives back what was taken, as far as that is known.
fn give_back(shared: &Arc<Shared>, parts: &[Part], answers: &[Option<Answer>]) {
    for (part, answer) in parts.iter().zip(answers) {
        let Some(answer) = answer.as_ref().filter(|answer| answer.passes) else { continue };
        let each = part.call.asks().iter().zip(&answer.states);
        let taken: Vec<Ask> =
            each.filter(|(ask, (fits, _))| *fits && ask.cost > 0).map(|(ask, _)| ask.clone()).collect();
        if !taken.is_empty() {
            let (shared, taken_at) = (Arc::clone(shared), answer.now);
            let home = shared.home.clone();
            home.spawn(async move { shared.give_back(&taken, Taken::At(taken_at), shared.later()).await });
        }
    }
}

impl Shared {
    fn slots(&self, asks: &[Ask]) -> Vec<u16> {
        asks.iter().map(|ask| self.slot(&ask.key)).collect()
    }

    /// How many tokens each limit has got back, where the store says it by then. What has come in since they were
    /// taken is not given back.
    pub(crate) async fn give_back(&self, asks: &[Ask], taken: Taken, until: Until) -> Vec<Option<u64>> {
        let groups = by_slot(&self.slots(asks));
        let parts = groups.iter().map(|(_, places)| self.give_back_part(chosen(asks, places), taken, until));
        let given = all(parts).await.into_iter().map(Option::unwrap_or_default);
        self.refusals.forget(asks);
        in_order(asks.len(), groups.iter().map(|(_, places)| places).zip(given))
    }

    /// What each limit would say, if all nodes say it within the budget.
    pub(crate) async fn look(&self, asks: &[Ask]) -> Option<Vec<Decision>> {
        let until = self.soon();
        let groups = by_slot(&self.slots(asks));
        let parts = groups.iter().map(|(slot, places)| self.look_at(*slot, chosen(asks, places), until));
        let said: Vec<Vec<Decision>> = all(parts).await.into_iter().collect::<Option<_>>()?;
        in_order(asks.len(), groups.iter().map(|(_, places)| places).zip(said)).into_iter().collect()
    }

    async fn look_at(&self, slot: u16, asks: Vec<Ask>, until: Until) -> Option<Vec<Decision>> {
        let Some(call) = Call::look(asks) else {
            self.stats.impossible.add();
            return None;
        };
        let answer = self.put(slot, &call, until).await?;
        Some(answer.decisions(call.asks(), false))
    }

    /// Puts a question to whoever keeps the slot.
    async fn put(&self, slot: u16, call: &Call, until: Until) -> Option<Answer> {
        let write = |out: &mut Vec<u8>, form| call.write(out, &self.config.prefix, form);
        let question = Question { slot, script: call.script(), write };
        self.question(question, |reply| call.answer(&reply).ok(), until).await
    }

    async fn give_back_part(&self, asks: Vec<Ask>, taken: Taken, until: Until) -> Option<Vec<u64>> {
        let refund = match taken {
            Taken::Ago(ago) => Refund::of_taken_ago(asks, ago),
            Taken::At(time) => Refund::of_taken_at(asks, time),
        };
        let Some(refund) = refund else {
            self.stats.impossible.add();
            return None;
        };
        let names = refund.asks().iter().map(|ask| ask.key.name(&self.config.prefix).into_bytes());
        let keys: Vec<Vec<u8>> = names.collect();
        let arguments: Vec<Vec<u8>> = refund.arguments().map(|word| word.as_bytes().to_vec()).collect();
        let run = Run { script: refund.script(), keys: &keys, arguments: &arguments };
        refund.read(&self.run(&run, until).await?).ok()
    }
}

/// `None` if one of them cannot be asked at all.
fn each_part(asks: &[Ask], slots: &[u16]) -> Option<Vec<Part>> {
    let part = |(slot, places): (u16, Vec<usize>)| {
        let call = Call::part(chosen(asks, &places))?;
        Some(Part { slot, places, call })
    };
    by_slot(slots).into_iter().map(part).collect()
}

fn chosen(asks: &[Ask], places: &[usize]) -> Vec<Ask> {
    places.iter().filter_map(|place| asks.get(*place).cloned()).collect()
}

/// The slots, each with the places that it is in.
fn by_slot(slots: &[u16]) -> Vec<(u16, Vec<usize>)> {
    let mut groups: Vec<(u16, Vec<usize>)> = Vec::new();
    for (place, slot) in slots.iter().enumerate() {
        match groups.iter_mut().find(|(other, _)| other == slot) {
            Some((_, places)) => places.push(place),
            None => groups.push((*slot, vec![place])),
        }
    }
    groups
}

/// What is said about each group, where it was asked; nothing where nothing is said.
fn in_order<'g, T>(count: usize, said: impl Iterator<Item = (&'g Vec<usize>, Vec<T>)>) -> Vec<Option<T>> {
    let mut ordered: Vec<Option<T>> = std::iter::repeat_with(|| None).take(count).collect();
    for (place, said) in said.flat_map(|(places, said)| places.iter().zip(said)) {
        if let Some(place) = ordered.get_mut(*place) {
            *place = Some(said);
        }
    }
    ordered
}

/// Something that goes on, and what becomes of it.
struct Pending<F: Future> {
    future: Pin<Box<F>>,
    output: Option<F::Output>,
}

/// What becomes of all of these, which go on at the same time.
async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<Pending<F>> =
        futures.map(|future| Pending { future: Box::pin(future), output: None }).collect();
    poll_fn(|context| {
        for one in pending.iter_mut().filter(|one| one.output.is_none()) {
            if let Poll::Ready(output) = one.future.as_mut().poll(context) {
                one.output = Some(output);
            }
        }
        if pending.iter().all(|one| one.output.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    pending.into_iter().filter_map(|one| one.output).collect()
}
