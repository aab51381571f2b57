//! Reading rules again when their files change.
//!
//! Files are looked at, not waited for: notifications do not tell of links that are swapped above a file (as
//! Kubernetes does) or of changes on network file systems, and looking costs a few system calls a second.

use crate::files::{self, LoadError, Look};
use crate::gate::Tollgate;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often files have to be missed in a row to be missing.
const MOST_MISSES: u32 = 2;

/// Keeps rules as their files are, until it is dropped.
#[must_use = "watching ends when this is dropped"]
#[derive(Debug)]
pub struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(tollgate: Tollgate, interval: Duration) -> Watch {
        let (stop, stopped) = channel();
        // What was read, not what is there now: it may have changed already.
        let mut watcher = Watcher { seen: tollgate.seen(), tollgate, misses: 0 };
        let watch = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(interval) {
                watcher.look();
            }
        };
        // Without a thread nothing is watched, and dropping does nothing.
        let thread = thread::Builder::new().name("tollgate-watch".to_owned()).spawn(watch).ok();
        Watch { stop: Some(stop), thread }
    }
}

/// What the thread knows.
struct Watcher {
    tollgate: Tollgate,
    /// The files that were read last, be they good or bad.
    seen: Option<Look>,
    /// How often in a row the files were not there.
    misses: u32,
}

impl Watcher {
    fn look(&mut self) {
        let Some(path) = self.tollgate.path() else { return };
        match files::look(path) {
            Ok(now) => {
                if self.seen.as_ref() != Some(&now) {
                    // The observer was told what is wrong; until the files change again there is nothing to do.
                    let _ = self.tollgate.reload();
                    self.seen = Some(now);
                }
                self.misses = 0;
            }
            // What is not there for a moment is being written anew. What stays away is told of once.
            Err((path, error)) => {
                self.misses = self.misses.saturating_add(1);
                if self.misses == MOST_MISSES {
                    self.tollgate.complain(&LoadError::Unreadable { path, error });
                }
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing left to say.
            let _ = thread.join();
        }
    }
}
