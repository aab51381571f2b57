//! Requests of Redis clients.

use super::load::Talk;
use crate::workload::key;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

/// A command, with the key of a client where it has a gap, and as many lines as there are in its reply.
#[derive(Clone, Debug)]
pub struct Resp {
    before: Vec<u8>,
    after: Vec<u8>,
    has_key: bool,
    lines: usize,
    lines_heard: usize,
}

/// Where the key goes.
pub const KEY: &str = "KEY";

impl Resp {
    /// A command of these words, [`KEY`] standing for the key.
    pub fn new(words: &[&str], lines: usize) -> Resp {
        let mut parts = [format!("*{}\r\n", words.len()), String::new()];
        let mut part = 0;
        for word in words {
            if *word == KEY {
                parts[part] += &format!("${}\r\n", key(0).len());
                part = 1;
                parts[part] += "\r\n";
            } else {
                parts[part] += &format!("${}\r\n{word}\r\n", word.len());
            }
        }
        let [before, after] = parts.map(String::into_bytes);
        Resp { before, after, has_key: part == 1, lines, lines_heard: 0 }
    }
}

impl Talk for Resp {
    fn ask(&mut self, client: u64, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.before);
        if self.has_key {
            push_key(client, bytes);
        }
        bytes.extend_from_slice(&self.after);
    }

    fn hear(&mut self, received: &[u8], _: &mut Vec<u8>) -> usize {
        assert!(!received.starts_with(b"-"), "{}", received.escape_ascii());
        let before = self.lines_heard / self.lines;
        self.lines_heard += received.iter().filter(|byte| **byte == b'\n').count();
        self.lines_heard / self.lines - before
    }
}

/// Leaves a script with a Redis server, and says what to call it by.
pub fn load_script(address: SocketAddr, script: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    let request = format!("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n${}\r\n{script}\r\n", script.len());
    stream.write_all(request.as_bytes()).expect("the server takes requests");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("the server replies"));
    let (kind, hash) = (lines.next(), lines.next());
    assert_eq!(kind.as_deref(), Some("$40"), "the script is not accepted");
    hash.expect("the hash of the script")
}

/// [`key`] without the formatting, which would take longer than all the rest.
pub fn push_key(client: u64, bytes: &mut Vec<u8>) {
    let mut digits = *b"client-0000000000000";
    let mut rest = client;
    for digit in digits.iter_mut().rev().take(13) {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    bytes.extend_from_slice(&digits);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_as_everywhere() {
        let mut bytes = Vec::new();
        push_key(987_654, &mut bytes);
        assert_eq!(bytes, key(987_654).as_bytes());
    }

    #[test]
    fn commands_have_their_key_where_it_belongs() {
        let mut bytes = Vec::new();
        Resp::new(&["GET", KEY, "1"], 1).ask(7, &mut bytes);
        assert_eq!(bytes, b"*3\r\n$3\r\nGET\r\n$20\r\nclient-0000000000007\r\n$1\r\n1\r\n");
    }
}
