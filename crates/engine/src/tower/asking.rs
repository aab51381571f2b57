//! Requests that only a store can decide about.

use super::{Attributes, Gate};
use crate::engine::{Pending, Verdict};
use crate::sharing::Sharing;
use std::pin::Pin;
use tollgate_limit::Time;

/// The verdict to come.
pub(super) type Asking = Pin<Box<dyn Future<Output = Verdict> + Send>>;

impl Gate {
    /// Asks the store about a request, which is known by what it was begun with.
    pub(super) fn ask(&self, sharing: &Sharing, pending: Pending, request: &crate::Request<'_>, now: Time) -> Asking {
        let attributes = request.attributes.iter();
        let known =
            attributes.fold(Attributes::default(), |known, (name, value)| known.with((*name).to_owned(), *value));
        let (tollgate, sharing) = (self.tollgate.clone(), sharing.clone());
        let (namespace, cost) = (self.namespace.clone(), request.cost);
        Box::pin(async move {
            let attributes = known.values();
            let request = crate::Request::new(&namespace, &attributes).with_cost(cost);
            let parts = std::slice::from_ref(&request);
            tollgate.engine().finish_with(sharing.store(), pending, parts, now).await
        })
    }
}
