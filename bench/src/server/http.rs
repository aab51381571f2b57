//! Requests over HTTP/1.1, and replies that say how long they are.

use super::load::Talk;
use super::resp::push_key;

/// Posts JSON in which only the key changes.
#[derive(Clone, Debug)]
pub struct Http {
    before: Vec<u8>,
    after: Vec<u8>,
    /// What has come of a reply that is not complete.
    partial: Vec<u8>,
}

impl Http {
    /// Posts `before`, a key and `after` to a path.
    pub fn new(path: &str, before: &str, after: &str) -> Http {
        let mut key = Vec::new();
        push_key(0, &mut key);
        let length = before.len() + key.len() + after.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{before}"
        );
        Http { before: head.into_bytes(), after: after.into(), partial: Vec::new() }
    }
}

impl Talk for Http {
    fn ask(&mut self, client: u64, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.before);
        push_key(client, bytes);
        bytes.extend_from_slice(&self.after);
    }

    fn hear(&mut self, received: &[u8], _: &mut Vec<u8>) -> usize {
        self.partial.extend_from_slice(received);
        let mut replies = 0;
        while let Some(length) = reply(&self.partial) {
            self.partial.drain(..length);
            replies += 1;
        }
        replies
    }
}

/// How long the first reply is, if all of it is there.
fn reply(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..head]).expect("headers are text");
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let length = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = length.and_then(|(_, length)| length.trim().parse().ok()).expect("a reply with a length");
    (bytes.len() >= head + length).then_some(head + length)
}
