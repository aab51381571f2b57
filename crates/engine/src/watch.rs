//! Reading rules again when their files change.
//!
//! Files are looked at, not waited for: notifications do not tell of links that are swapped above a file (as
//! Kubernetes does) or of changes on network file systems, and looking costs a few system calls a second.

use crate::files::{self, Look};
use crate::gate::Tollgate;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

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
        let mut seen = tollgate.path().and_then(look);
        let watch = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(interval) {
                let now = tollgate.path().and_then(look);
                // What is not there at the moment is about to be written anew.
                if now.is_some() && now != seen {
                    // The observer was told what is wrong; until the files change again there is nothing to do.
                    let _ = tollgate.reload();
                    seen = now;
                }
            }
        };
        // Without a thread nothing is watched, and dropping does nothing.
        let thread = thread::Builder::new().name("tollgate-watch".to_owned()).spawn(watch).ok();
        Watch { stop: Some(stop), thread }
    }
}

fn look(path: &Path) -> Option<Look> {
    files::look(path).ok()
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
