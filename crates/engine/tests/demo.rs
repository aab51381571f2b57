//! The demonstration shows what it says, and stops when nobody looks.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "../examples/demo.rs"]
#[expect(dead_code, reason = "nobody starts it live")]
mod demo;

use std::io::{self, Write};

fn shown() -> String {
    let mut out = Vec::new();
    demo::fast(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The first line of the text that begins so.
fn line<'a>(text: &'a str, start: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(start)).unwrap()
}

#[test]
fn the_noisy_client_is_held_to_its_limit_and_the_polite_ones_get_all_they_ask_for() {
    let shown = shown();
    let (_, summary) = shown.split_once("client  asked  allowed  refused").unwrap();
    let numbers = |name| line(summary, name).split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>();
    // Twenty at once and twenty a second, less what had not come in at the end.
    assert_eq!(numbers("noisy"), ["600", "219", "381", "21.9"]);
    assert_eq!(numbers("alice"), ["40", "40", "0", "4.0"]);
    assert_eq!(numbers("bob"), ["100", "100", "0", "10.0"]);
    assert_eq!(numbers("carol"), ["180", "180", "0", "18.0"]);
}

#[test]
fn a_bar_shows_a_block_per_request() {
    let shown = shown();
    let bar = |start| line(&shown, start).rsplit_once(' ').unwrap().1;
    assert_eq!(bar(" 5.0 s  noisy"), "█".repeat(10) + &"░".repeat(20));
    assert_eq!(bar(" 5.0 s  carol"), "█".repeat(9));
}

#[test]
fn every_line_fits_on_a_terminal_and_holds_nothing_but_text() {
    for line in shown().lines() {
        assert!(line.chars().count() <= 100, "{line}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}

#[test]
fn it_stops_at_the_first_line_that_nobody_reads() {
    struct ClosedPipe(usize);
    impl Write for ClosedPipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    assert_eq!(demo::fast(&mut ClosedPipe(20)).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}
