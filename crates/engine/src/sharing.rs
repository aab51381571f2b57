//! Limits that many hosts count together in Redis or Valkey.

use crate::engine::{Answer, Engine, Question, Step, Verdict};
use tokio::time::Instant;
use tollgate_limit::Time;
use tollgate_rules::Request;
use tollgate_store::{Ask, Fingerprint, Says, Store, Told};

impl Engine {
    /// Decides about a request: what is limited here, here; what is kept in the store, there.
    ///
    /// If the future is dropped before it is ready, the request may have been paid for.
    pub async fn check_with(&self, store: &Store, request: &Request<'_>, now: Time) -> Verdict {
        self.check_all_with(store, std::slice::from_ref(request), now).await
    }

    /// The same for several requests that go ahead together or not at all.
    pub async fn check_all_with(&self, store: &Store, parts: &[Request<'_>], now: Time) -> Verdict {
        match self.begin_all(parts, now) {
            Step::Done(verdict) => verdict,
            Step::Ask(pending) => {
                let start = Instant::now();
                let answer = ask(store, pending.questions(), now).await;
                self.finish_all(pending, parts, &answer, now + start.elapsed())
            }
        }
    }
}

/// Brings the answer to what [`Engine::begin`] wants to know.
async fn ask(store: &Store, questions: &[Question], now: Time) -> Answer {
    match store.ask(questions.iter().map(asked).collect(), now).await {
        Told::Decided(decisions) => Answer::Decided(decisions),
        Told::Refused { ask, decision } => Answer::Refused { question: ask, decision },
        Told::Failed => Answer::Failed,
    }
}

fn asked(question: &Question) -> Ask {
    let says = match (question.is_shadow, question.is_quota_mode) {
        (true, _) => Says::Shadow,
        (false, true) => Says::Quota,
        (false, false) => Says::Refuse,
    };
    let Question { limit, cost, max_wait, .. } = *question;
    Ask { key: Fingerprint::new(question.limit_id, &question.client), limit, cost, max_wait, says }
}
