//! Replies, appended to a buffer that goes out in one piece.

/// `:-9223372036854775808\r\n`
const LONGEST_LINE: usize = 23;

/// How large a buffer may stay between replies.
const KEPT: usize = 16 * 1024;

/// Writes replies in RESP2, or RESP3 for those who said hello to it.
#[derive(Debug, Default)]
pub struct Replies {
    bytes: Vec<u8>,
    /// Whether maps are written as such.
    pub is_resp3: bool,
}

impl Replies {
    /// What has been written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets so many bytes, which were sent. Buffers that grew large are given back.
    pub fn sent(&mut self, bytes: usize) {
        self.bytes.drain(..bytes.min(self.bytes.len()));
        if self.bytes.is_empty() {
            self.bytes.shrink_to(KEPT);
        }
    }

    /// Gives back the memory that is not in use.
    pub fn rest(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// `+OK`
    pub fn simple(&mut self, text: &str) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// `-ERR …`. Line breaks, which would end the reply, become spaces.
    pub fn error(&mut self, text: &str) {
        self.bytes.push(b'-');
        self.bytes.extend(text.bytes().map(|byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }));
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// `:7`
    pub fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    /// How many there are.
    pub fn count(&mut self, count: usize) {
        self.length(b':', count);
    }

    /// A name and a number.
    pub fn pair(&mut self, name: &str, value: i64) {
        self.bulk(name.as_bytes());
        self.integer(value);
    }

    /// A text of any bytes.
    pub fn bulk(&mut self, text: &[u8]) {
        self.length(b'$', text.len());
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Nothing.
    pub fn null(&mut self) {
        self.bytes.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Begins a list of so many replies.
    pub fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// Begins so many pairs.
    pub fn map(&mut self, pairs: usize) {
        if self.is_resp3 {
            self.length(b'%', pairs);
        } else {
            self.array(2 * pairs);
        }
    }

    /// A list of numbers.
    pub fn integers(&mut self, numbers: &[i64]) {
        self.bytes.reserve(LONGEST_LINE * (numbers.len() + 1));
        self.array(numbers.len());
        numbers.iter().for_each(|number| self.integer(*number));
    }

    fn length(&mut self, kind: u8, length: usize) {
        self.number(kind, i64::try_from(length).unwrap_or(i64::MAX));
    }

    /// A line of a number, written from its end. The formatting of the standard library would take longer than to decide.
    #[inline]
    fn number(&mut self, kind: u8, number: i64) {
        match number {
            // Most have one digit.
            0..=9 => self.bytes.extend_from_slice(&[kind, b'0' + number as u8, b'\r', b'\n']),
            -1 => self.bytes.extend_from_slice(&[kind, b'-', b'1', b'\r', b'\n']),
            _ => self.long_number(kind, number),
        }
    }

    fn long_number(&mut self, kind: u8, number: i64) {
        let mut line: [u8; LONGEST_LINE] = *b":-9223372036854775808\r\n";
        let (mut rest, mut start) = (number.unsigned_abs(), LONGEST_LINE - 2);
        for place in line.iter_mut().rev().skip(2) {
            *place = b'0' + (rest % 10) as u8;
            (rest, start) = (rest / 10, start - 1);
            if rest == 0 {
                break;
            }
        }
        self.bytes.push(kind);
        if number < 0 {
            self.bytes.push(b'-');
        }
        self.bytes.extend_from_slice(line.get(start..).unwrap_or_default());
    }
}
