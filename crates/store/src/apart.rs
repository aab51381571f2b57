//! Questions about states that a cluster keeps in several slots. All nodes are asked at once; what some of them took for a
//! request that others refuse is given back, and nobody waits for that.

use crate::call::{Answer, Ask, Call, Says};
use crate::refund::Refund;
use crate::script::Run;
use crate::store::Shared;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::time::Instant;
use tollgate_limit::{Decision, Time};

/// Those of the questions whose states are in one slot.
struct Part {
    slot: u16,
    /// Which of them.
    places: Vec<usize>,
    call: Call,
}

/// What each limit says, if all nodes say it before the deadline.
pub(crate) async fn ask(shared: &Arc<Shared>, asks: &[Ask], deadline: Instant) -> Option<Vec<Decision>> {
    let Some(parts) = each_part(asks, &shared.slots(asks)) else {
        shared.stats.impossible.add();
        return None;
    };
    // Nothing is taken where somebody is known not to answer.
    let map = shared.map();
    let is_there = |part: &Part| map.node(part.slot).is_some_and(|node| node.connection().is_some());
    if !parts.iter().all(is_there) {
        shared.stats.unreachable.add();
        shared.stale();
        return None;
    }
    let answers = all(parts.iter().map(|part| ask_part(shared, part, deadline))).await;
    let passes = passes(&parts, &answers);
    if passes != Some(true) {
        give_back(shared, &parts, &answers);
    }
    let mut decisions: Vec<Option<Decision>> = vec![None; asks.len()];
    for (part, answer) in parts.iter().zip(answers) {
        let said = answer?.decisions(part.call.asks(), passes?);
        for (place, decision) in part.places.iter().zip(said) {
            *decisions.get_mut(*place)? = Some(decision);
        }
    }
    decisions.into_iter().collect()
}

async fn ask_part(shared: &Shared, part: &Part, deadline: Instant) -> Option<Answer> {
    let write = |out: &mut Vec<u8>, form| part.call.write(out, &shared.config.prefix, form);
    shared.question(part.slot, write, |reply| part.call.answer(&reply).ok(), deadline).await
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
            tokio::spawn(async move { shared.give_back(&taken, Some(taken_at)).await });
        }
    }
}

impl Shared {
    fn slots(&self, asks: &[Ask]) -> Vec<u16> {
        asks.iter().map(|ask| self.slot(&ask.key)).collect()
    }

    /// How many tokens each limit has got back, where the store says it within the budget. If it is known when they were taken,
    /// what has come in since then is not given back.
    pub(crate) async fn give_back(&self, asks: &[Ask], taken_at: Option<Time>) -> Vec<Option<u64>> {
        let deadline = Instant::now() + self.config.budget;
        let groups = by_slot(&self.slots(asks));
        let parts = groups.iter().map(|(_, places)| self.give_back_part(chosen(asks, places), taken_at, deadline));
        let mut given = vec![None; asks.len()];
        for ((_, places), part) in groups.iter().zip(all(parts).await) {
            for (place, tokens) in places.iter().zip(part.into_iter().flatten()) {
                if let Some(given) = given.get_mut(*place) {
                    *given = Some(tokens);
                }
            }
        }
        self.refusals.forget(asks);
        given
    }

    async fn give_back_part(&self, asks: Vec<Ask>, taken_at: Option<Time>, deadline: Instant) -> Option<Vec<u64>> {
        let refund = match taken_at {
            None => Refund::new(asks),
            Some(taken_at) => Refund::of_taken_at(asks, taken_at),
        };
        let Some(refund) = refund else {
            self.stats.impossible.add();
            return None;
        };
        let names = refund.asks().iter().map(|ask| ask.key.name(&self.config.prefix).into_bytes());
        let keys: Vec<Vec<u8>> = names.collect();
        let arguments: Vec<Vec<u8>> = refund.arguments().iter().map(|word| word.clone().into_bytes()).collect();
        let run = Run { script: refund.script(), keys: &keys, arguments: &arguments };
        refund.read(&self.run(&run, deadline).await?).ok()
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
