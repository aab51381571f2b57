//! Traces: which questions were asked, by whom they were asked for, and how long they took.

use super::attribute;
use crate::meters::Protocol;
use crate::state::State;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tollgate::{Event, Time};

/// Spans that wait to be sent; more are lost.
const MOST_WAITING: usize = 2000;

/// Decides which questions are traced: those whose caller traces them, and some of all others.
#[derive(Debug)]
pub struct Tracer {
    /// One question of so many.
    every: Option<u64>,
    asked: AtomicU64,
    secret: RandomState,
    spans: Sender<Span>,
}

/// A question that is being traced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace {
    trace: u128,
    parent: Option<u64>,
    span: u64,
    start: Time,
}

/// A question that was traced.
#[derive(Debug)]
pub(crate) struct Span {
    trace: Trace,
    end: Time,
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    fault: Option<&'static str>,
}

impl Tracer {
    /// Traces this share of the questions that nobody traces yet.
    pub(crate) fn new(share: f64) -> (Tracer, Receiver<Span>) {
        let (spans, receiver) = channel(MOST_WAITING);
        let every = (share > 0.0).then(|| (1.0 / share).round() as u64);
        (Tracer { every, asked: AtomicU64::new(0), secret: RandomState::new(), spans }, receiver)
    }

    /// Begins to trace a question if it is to be. `parent` says what its caller does.
    fn begin(&self, parent: Option<&[u8]>, now: Time) -> Option<Trace> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let random = |salt: u8| self.secret.hash_one((number, salt));
        match parent.and_then(read_parent) {
            Some((trace, parent, is_traced)) => {
                is_traced.then(|| Trace { trace, parent: Some(parent), span: random(0), start: now })
            }
            None => {
                let every = self.every?;
                let trace = u128::from(random(1)) << 64 | u128::from(random(2));
                number.is_multiple_of(every).then(|| Trace { trace, parent: None, span: random(0), start: now })
            }
        }
    }

    /// Hands over a question that was answered.
    fn end(&self, trace: Trace, (protocol, name): Asked, notes: Vec<Note>, fault: Option<&'static str>, now: Time) {
        let mut attributes = vec![("tollgate.protocol", protocol.name().to_owned())];
        for Note { namespace, rule, reason, is_allowed, is_degraded } in notes {
            attributes.push(("tollgate.namespace", namespace));
            attributes.push(("tollgate.allowed", is_allowed.to_string()));
            attributes.push(("tollgate.reason", reason.to_owned()));
            attributes.extend(rule.map(|rule| ("tollgate.rule", rule)));
            attributes.extend(is_degraded.then(|| ("tollgate.degraded", is_degraded.to_string())));
        }
        // Who cannot send them fast enough loses some.
        let _ = self.spans.try_send(Span { trace, end: now, name, attributes, fault });
    }
}

impl State {
    /// Begins to trace a question if it is to be. `parent` is the header `traceparent`.
    pub(crate) fn trace(&self, parent: Option<&[u8]>) -> Option<Trace> {
        self.tracer()?.begin(parent, self.now())
    }

    /// Answers a question that may be traced.
    pub(crate) async fn traced<T, E>(
        &self,
        trace: Option<Trace>,
        asked: Asked,
        answer: impl Future<Output = Result<T, E>>,
        fault: impl FnOnce(&E) -> &'static str,
    ) -> Result<T, E> {
        let Some((tracer, trace)) = self.tracer().zip(trace) else { return answer.await };
        let (mut answer, mut notes) = (pin!(answer), Vec::new());
        let answered = poll_fn(|context| {
            NOTES.set(Some(std::mem::take(&mut notes)));
            let polled = answer.as_mut().poll(context);
            notes = NOTES.take().unwrap_or_default();
            polled
        });
        let answered = answered.await;
        tracer.end(trace, asked, notes, answered.as_ref().err().map(fault), self.now());
        answered
    }
}

/// How somebody asked, and what.
pub(crate) type Asked = (Protocol, &'static str);

/// What was decided.
struct Note {
    namespace: String,
    rule: Option<String>,
    reason: &'static str,
    is_allowed: bool,
    is_degraded: bool,
}

/// Of a question that asks for many decisions only these are noted down.
const MOST_NOTES: usize = 8;

thread_local! {
    /// What was decided for the question that is being traced, if one is. Whoever has to wait takes it along, so it is the
    /// only one of its thread.
    static NOTES: RefCell<Option<Vec<Note>>> = const { RefCell::new(None) };
}

/// Notes down what the engine says, for the question that is being traced.
pub(crate) fn note(event: &Event<'_>) {
    let Event::Decided { parts, verdict } = event else { return };
    NOTES.with_borrow_mut(|notes| {
        if let Some(notes) = notes.as_mut().filter(|notes| notes.len() < MOST_NOTES) {
            notes.push(Note {
                namespace: parts.first().map_or(String::new(), |part| part.namespace.to_owned()),
                rule: verdict.rule().map(str::to_owned),
                reason: verdict.reason().name(),
                is_allowed: verdict.is_allowed(),
                is_degraded: verdict.is_degraded(),
            });
        }
    });
}

/// `00-<32 digits>-<16 digits>-<2 digits>`: the trace, the caller's span, and whether they are recorded.
fn read_parent(header: &[u8]) -> Option<(u128, u64, bool)> {
    let text = std::str::from_utf8(header).ok()?;
    let mut fields = text.trim().split('-');
    let [version, trace, parent, flags] = [fields.next()?, fields.next()?, fields.next()?, fields.next()?];
    let is_hex = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_known = is_hex(version, 2) && version != "ff" && is_hex(trace, 32) && is_hex(parent, 16) && is_hex(flags, 2);
    if !is_known {
        return None;
    }
    let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
    let parent = u64::from_str_radix(parent, 16).ok().filter(|parent| *parent != 0)?;
    let flags = u8::from_str_radix(flags, 16).ok()?;
    Some((trace, parent, flags & 1 == 1))
}

impl Span {
    pub(super) fn to_json(&self) -> Value {
        let attributes: Vec<Value> = self.attributes.iter().map(|(name, value)| attribute(name, value)).collect();
        let status = match self.fault {
            Some(fault) => json!({ "code": 2, "message": fault }),
            None => json!({}),
        };
        json!({
            "traceId": format!("{:032x}", self.trace.trace),
            "spanId": format!("{:016x}", self.trace.span),
            "parentSpanId": self.trace.parent.map_or(String::new(), |parent| format!("{parent:016x}")),
            "name": self.name,
            "kind": 2,
            "startTimeUnixNano": self.trace.start.as_nanos().to_string(),
            "endTimeUnixNano": self.end.as_nanos().to_string(),
            "attributes": attributes,
            "status": status,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_traced_by_its_caller_is_traced_and_nobody_else_beyond_the_share() {
        let (tracer, _spans) = Tracer::new(0.25);
        let known = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = tracer.begin(Some(known), Time::ZERO).unwrap();
        assert_eq!(
            (trace.trace, trace.parent),
            (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, Some(0x00f0_67aa_0ba9_02b7))
        );
        let silent = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        assert!((0..100).all(|_| tracer.begin(Some(silent), Time::ZERO).is_none()));
        assert_eq!((0..100).filter(|_| tracer.begin(None, Time::ZERO).is_some()).count(), 25);
        for wrong in [
            "",
            "00",
            "00-0-0-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        ] {
            assert_eq!(read_parent(wrong.as_bytes()), None, "{wrong}");
        }
        let (none, _spans) = Tracer::new(0.0);
        assert!((0..100).all(|_| none.begin(None, Time::ZERO).is_none()));
    }
}
