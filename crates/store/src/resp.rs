//! The protocol of Redis, as far as scripts are called by it.

use bytes::{Buf, BytesMut};
use std::fmt;

/// Replies to our scripts are far smaller. Whoever sends more is no store of ours.
const LONGEST_REPLY: usize = 1 << 20;
const MOST_ELEMENTS: usize = 4_096;
const DEEPEST: usize = 8;

/// What the store says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A whole number.
    Integer(i64),
    /// Bytes, a status or a number that is not whole.
    Text(Vec<u8>),
    /// Nothing.
    Null,
    /// Several replies in one.
    Array(Vec<Reply>),
    /// That it did not do what it was asked to, and why.
    Error(String),
}

/// What comes is not the protocol. The connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what it says is not the protocol of Redis")
    }
}

impl std::error::Error for Malformed {}

/// Takes the next reply out of what has come; `None` while it is not all there.
pub(crate) fn take_reply(input: &mut BytesMut) -> Result<Option<Reply>, Malformed> {
    let mut reader = Reader { bytes: input, at: 0 };
    let reply = reader.reply(DEEPEST)?;
    let read = reader.at;
    if reply.is_some() {
        input.advance(read);
    } else if input.len() > LONGEST_REPLY {
        return Err(Malformed);
    }
    Ok(reply)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn reply(&mut self, depth: usize) -> Result<Option<Reply>, Malformed> {
        let Some(line) = self.line() else { return Ok(None) };
        let (kind, rest) = line.split_first().ok_or(Malformed)?;
        let text = || String::from_utf8_lossy(rest).into_owned();
        Ok(Some(match kind {
            b':' => Reply::Integer(number(rest)?),
            b'+' | b',' | b'#' => Reply::Text(rest.to_vec()),
            b'-' => Reply::Error(text()),
            b'_' => Reply::Null,
            b'$' => return self.bulk(number(rest)?),
            b'*' => return self.array(number(rest)?, depth),
            _ => return Err(Malformed),
        }))
    }

    fn bulk(&mut self, length: i64) -> Result<Option<Reply>, Malformed> {
        if length == -1 {
            return Ok(Some(Reply::Null));
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST_REPLY).ok_or(Malformed)?;
        let Some(bytes) = self.bytes.get(self.at..self.at + length + 2) else { return Ok(None) };
        let text = bytes.strip_suffix(b"\r\n").ok_or(Malformed)?;
        self.at += length + 2;
        Ok(Some(Reply::Text(text.to_vec())))
    }

    fn array(&mut self, length: i64, depth: usize) -> Result<Option<Reply>, Malformed> {
        if length == -1 {
            return Ok(Some(Reply::Null));
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= MOST_ELEMENTS).ok_or(Malformed)?;
        let depth = depth.checked_sub(1).ok_or(Malformed)?;
        let mut elements = Vec::new();
        for _ in 0..length {
            let Some(element) = self.reply(depth)? else { return Ok(None) };
            elements.push(element);
        }
        Ok(Some(Reply::Array(elements)))
    }

    /// The next line without its end.
    fn line(&mut self) -> Option<Vec<u8>> {
        let rest = self.bytes.get(self.at..)?;
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        self.at += end + 2;
        rest.get(..end).map(<[u8]>::to_vec)
    }
}

fn number(digits: &[u8]) -> Result<i64, Malformed> {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(Malformed)
}

/// Writes a command.
pub(crate) struct Command<'a> {
    out: &'a mut Vec<u8>,
}

impl Command<'_> {
    /// A command of so many words.
    pub(crate) fn new(out: &mut Vec<u8>, words: usize) -> Command<'_> {
        header(out, b'*', words);
        Command { out }
    }

    pub(crate) fn word(&mut self, word: impl AsRef<[u8]>) -> &mut Self {
        header(self.out, b'$', word.as_ref().len());
        self.out.extend_from_slice(word.as_ref());
        self.out.extend_from_slice(b"\r\n");
        self
    }
}

fn header(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    out.extend_from_slice(number.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Reply>, Malformed> {
        take_reply(&mut BytesMut::from(text))
    }

    #[test]
    fn replies_are_read_however_they_are_cut() {
        let whole = "*5\r\n$3\r\n123\r\n:1\r\n$-1\r\n_\r\n*1\r\n+OK\r\n-ERR no\r\n";
        let expected = Reply::Array(vec![
            Reply::Text(b"123".to_vec()),
            Reply::Integer(1),
            Reply::Null,
            Reply::Null,
            Reply::Array(vec![Reply::Text(b"OK".to_vec())]),
        ]);
        let mut input = BytesMut::new();
        let mut replies = Vec::new();
        for byte in whole.bytes() {
            input.extend_from_slice(&[byte]);
            replies.extend(take_reply(&mut input).unwrap());
        }
        assert_eq!(replies, [expected, Reply::Error("ERR no".to_owned())]);
        assert!(input.is_empty());
    }

    #[test]
    fn what_is_no_reply_of_a_store_is_refused() {
        let deep = "*1\r\n".repeat(20);
        for text in
            ["HTTP/1.1 400\r\n", "\r\n", ":x\r\n", "$99999999999\r\n", "*-2\r\n", "$1\r\nabc", "*999999\r\n", &deep]
        {
            assert_eq!(read(text), Err(Malformed), "{text}");
        }
    }
}
