//! What several tests share: deadlines, and a condition that is looked at until it is true.

#![allow(dead_code, reason = "no test uses all of it")]

use std::future::Future;
use std::time::Duration;
use tokio::time::timeout;
use tollgate_chaos::ms;

/// The longest that anything may take. Far more than it does, so that a busy machine fails no test.
const PATIENCE: Duration = Duration::from_secs(60);

/// What comes of something that has to end.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("no end in {PATIENCE:?}"))
}

/// Waits until something is true.
pub(crate) async fn eventually(mut is_true: impl AsyncFnMut() -> bool) {
    within(async {
        while !is_true().await {
            tokio::time::sleep(ms(1)).await;
        }
    })
    .await;
}
