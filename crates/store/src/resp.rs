//! The protocol of Redis, as far as scripts are called by it.

use bytes::{Buf, BytesMut};
use std::fmt;

/// Replies to our scripts are far smaller, and so is the map of a cluster, be every slot of it in a range of its own.
/// Whoever sends more is no store of ours.
const LONGEST_REPLY: usize = 8 << 20;
const MOST_ELEMENTS: usize = 16_384;
const DEEPEST: usize = 8;

/// Room that is made for elements before they have come.
const MOST_AT_ONCE: usize = 32;

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

/// Takes the next reply out of what has come; `None` while it is not all there. Either version of the protocol is
/// understood: maps and sets come as arrays, and what the store says without having been asked is left out.
///
/// # Errors
/// It is neither version, or larger than anything that our scripts answer.
pub fn take_reply(input: &mut BytesMut) -> Result<Option<Reply>, Malformed> {
    loop {
        let mut reader = Reader { bytes: input, at: 0 };
        let frame = reader.frame(DEEPEST)?;
        let read = reader.at;
        match frame {
            Some(frame) => {
                input.advance(read);
                if let Frame::Reply(reply) = frame {
                    return Ok(Some(reply));
                }
            }
            None if input.len() > LONGEST_REPLY => return Err(Malformed),
            None => return Ok(None),
        }
    }
}

/// Something that the store says.
enum Frame {
    Reply(Reply),
    /// What nobody asked, or what is only said about the reply that follows.
    Aside,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn frame(&mut self, depth: usize) -> Result<Option<Frame>, Malformed> {
        let Some(line) = self.line() else { return Ok(None) };
        let (kind, rest) = line.split_first().ok_or(Malformed)?;
        let reply = match kind {
            b':' => Some(Reply::Integer(number(rest)?)),
            b'+' | b',' | b'(' => Some(Reply::Text(rest.to_vec())),
            b'#' => Some(Reply::Integer(i64::from(truth(rest)?))),
            b'-' => Some(error(rest)),
            b'_' => Some(Reply::Null),
            b'$' => self.bulk(number(rest)?)?.map(|bytes| bytes.map_or(Reply::Null, Reply::Text)),
            b'=' => self.bulk(number(rest)?)?.map(|bytes| bytes.map_or(Reply::Null, verbatim)),
            b'!' => self.bulk(number(rest)?)?.map(|bytes| bytes.map_or(Reply::Null, |bytes| error(&bytes))),
            b'*' | b'~' => self.array(number(rest)?, depth)?,
            b'%' => self.array(pairs(rest)?, depth)?,
            b'>' => return Ok(self.array(number(rest)?, depth)?.map(|_| Frame::Aside)),
            b'|' => return Ok(self.array(pairs(rest)?, depth)?.map(|_| Frame::Aside)),
            _ => return Err(Malformed),
        };
        Ok(reply.map(Frame::Reply))
    }

    /// So many bytes, which may be none at all.
    fn bulk(&mut self, length: i64) -> Result<Option<Option<Vec<u8>>>, Malformed> {
        if length == -1 {
            return Ok(Some(None));
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST_REPLY).ok_or(Malformed)?;
        let Some(bytes) = self.bytes.get(self.at..self.at + length + 2) else { return Ok(None) };
        let text = bytes.strip_suffix(b"\r\n").ok_or(Malformed)?;
        self.at += length + 2;
        Ok(Some(Some(text.to_vec())))
    }

    fn array(&mut self, length: i64, depth: usize) -> Result<Option<Reply>, Malformed> {
        if length == -1 {
            return Ok(Some(Reply::Null));
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= MOST_ELEMENTS).ok_or(Malformed)?;
        let depth = depth.checked_sub(1).ok_or(Malformed)?;
        let mut elements = Vec::with_capacity(length.min(MOST_AT_ONCE));
        while elements.len() < length {
            match self.frame(depth)? {
                Some(Frame::Reply(element)) => elements.push(element),
                Some(Frame::Aside) => {}
                None => return Ok(None),
            }
        }
        Ok(Some(Reply::Array(elements)))
    }

    /// The next line without its end.
    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        self.at += end + 2;
        rest.get(..end)
    }
}

fn truth(letter: &[u8]) -> Result<bool, Malformed> {
    match letter {
        b"t" => Ok(true),
        b"f" => Ok(false),
        _ => Err(Malformed),
    }
}

/// Text after a word about its form, which is of no use here.
fn verbatim(bytes: Vec<u8>) -> Reply {
    Reply::Text(bytes.get(4..).map(<[u8]>::to_vec).unwrap_or(bytes))
}

fn error(bytes: &[u8]) -> Reply {
    Reply::Error(String::from_utf8_lossy(bytes).into_owned())
}

/// How many elements a map has: two for each of its keys.
fn pairs(digits: &[u8]) -> Result<i64, Malformed> {
    number(digits)?.checked_mul(2).filter(|elements| *elements >= 0).ok_or(Malformed)
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

    /// Further words of one.
    pub(crate) fn further(out: &mut Vec<u8>) -> Command<'_> {
        Command { out }
    }

    pub(crate) fn word(&mut self, word: impl AsRef<[u8]>) -> &mut Self {
        header(self.out, b'$', word.as_ref().len());
        self.out.extend_from_slice(word.as_ref());
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// A word of so many bytes, which are written in place.
    pub(crate) fn word_of(&mut self, length: usize, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        header(self.out, b'$', length);
        write(self.out);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// A number as a word.
    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        let length = number.checked_ilog10().map_or(1, |zeros| zeros as usize + 1);
        self.word_of(length, |out| digits(out, number))
    }
}

fn header(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    digits(out, number as u64);
    out.extend_from_slice(b"\r\n");
}

/// Writes a number, the first digit first.
fn digits(out: &mut Vec<u8>, number: u64) {
    const MOST: usize = 20;
    let (mut reversed, mut rest, mut count) = ([0; MOST], number, 0);
    for digit in &mut reversed {
        (*digit, rest, count) = (b'0' + (rest % 10) as u8, rest / 10, count + 1);
        if rest == 0 {
            break;
        }
    }
    out.extend(reversed.iter().take(count).rev());
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
    fn numbers_are_written_as_everybody_writes_them() {
        for number in [0, 1, 9, 10, 99, 100, 12_345_678_901, u64::MAX] {
            let mut out = Vec::new();
            Command::further(&mut out).number(number);
            let digits = number.to_string();
            assert_eq!(out, format!("${}\r\n{digits}\r\n", digits.len()).into_bytes());
        }
    }

    #[test]
    fn the_newer_protocol_is_understood_and_what_nobody_asked_is_left_out() {
        let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
        for (frame, expected) in [
            ("_\r\n", Reply::Null),
            ("#t\r\n", Reply::Integer(1)),
            ("#f\r\n", Reply::Integer(0)),
            (",1.5\r\n", text("1.5")),
            ("(12345678901234567890\r\n", text("12345678901234567890")),
            ("=7\r\ntxt:abc\r\n", text("abc")),
            ("!6\r\nERR no\r\n", Reply::Error("ERR no".to_owned())),
            ("%1\r\n+a\r\n:1\r\n", Reply::Array(vec![text("a"), Reply::Integer(1)])),
            ("~1\r\n+a\r\n", Reply::Array(vec![text("a")])),
            (">2\r\n+message\r\n+a\r\n:1\r\n", Reply::Integer(1)),
            ("|1\r\n+ttl\r\n:5\r\n*1\r\n|1\r\n+x\r\n:6\r\n:1\r\n", Reply::Array(vec![Reply::Integer(1)])),
        ] {
            for end in 0..frame.len() {
                assert_eq!(read(&frame[..end]), Ok(None), "{frame}");
            }
            assert_eq!(read(frame), Ok(Some(expected)), "{frame}");
        }
    }

    #[test]
    fn what_is_no_reply_of_a_store_is_refused() {
        let deep = "*1\r\n".repeat(20);
        for text in [
            "HTTP/1.1 400\r\n",
            "\r\n",
            ":x\r\n",
            "#x\r\n",
            "%-1\r\n",
            "%9223372036854775807\r\n",
            "$99999999999\r\n",
            "*-2\r\n",
            "$1\r\nabc",
            "*999999\r\n",
            &deep,
        ] {
            assert_eq!(read(text), Err(Malformed), "{text}");
        }
    }
}
