//! The thread of a cached clock. In a program of its own, since it counts the threads of the program.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::thread;
use std::time::Duration;
use tollgate::Clock;

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// Lets other threads run until they have brought something about; false if they never do.
fn until(happened: impl Fn() -> bool) -> bool {
    let clock = Clock::system();
    let start = clock.now();
    while !happened() {
        if clock.now().since(start) > Duration::from_secs(30) {
            return false;
        }
        thread::yield_now();
    }
    true
}

#[test]
fn its_thread_ends_with_the_last_clone() {
    let before = threads();
    let clock = Clock::cached(Duration::from_millis(1));
    assert_eq!(threads(), before + 1);

    let clone = clock.clone();
    drop(clock);
    let shown = clone.now();
    assert!(until(|| clone.now() > shown), "it stands still, though somebody looks at it");

    drop(clone);
    assert!(until(|| threads() == before), "it runs on, though nobody looks at it");
}
