//! What is written down while something is watched.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard};

/// Notes that many threads make while one looks at them. Who makes one waits for nobody: a reader that the machine holds up would hold
/// up what is measured.
#[derive(Debug)]
pub(crate) struct Notes<T> {
    pen: Sender<T>,
    read: Mutex<Read<T>>,
}

/// The notes so far.
#[derive(Debug)]
pub(crate) struct Read<T> {
    unread: Receiver<T>,
    pub(crate) all: Vec<T>,
}

impl<T> Notes<T> {
    pub(crate) fn new() -> Notes<T> {
        let (pen, unread) = channel();
        Notes { pen, read: Mutex::new(Read { unread, all: Vec::new() }) }
    }

    /// What notes are made by.
    pub(crate) fn pen(&self) -> Sender<T> {
        self.pen.clone()
    }

    pub(crate) fn read(&self) -> MutexGuard<'_, Read<T>> {
        let mut read = self.read.lock().unwrap();
        let Read { unread, all } = &mut *read;
        all.extend(unread.try_iter());
        read
    }
}
