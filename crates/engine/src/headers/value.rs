use smallvec::SmallVec;

/// The largest integer that structured fields can hold (RFC 9651, 3.3.1).
pub(super) const LARGEST: u64 = 999_999_999_999_999;

/// The value of a header as it is put together; ASCII, whatever comes in. Ordinary ones stay on the stack.
#[derive(Default)]
pub(super) struct Value(SmallVec<[u8; 256]>);

impl Value {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn as_str(&self) -> &str {
        // Never the default: only ASCII gets in.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Part of the syntax.
    pub(super) fn text(&mut self, text: &'static str) -> &mut Value {
        debug_assert!(text.is_ascii());
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// In decimal, and no more than a structured field can hold.
    pub(super) fn number(&mut self, number: u64) -> &mut Value {
        let mut rest = number.min(LARGEST);
        let start = self.0.len();
        loop {
            self.0.push(b'0' + (rest % 10) as u8);
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if let Some(digits) = self.0.get_mut(start..) {
            digits.reverse();
        }
        self
    }

    /// In quotes. What a structured field cannot spell becomes a question mark: the client needs the name to tell
    /// its limits apart, not to read it.
    pub(super) fn string(&mut self, text: &str) -> &mut Value {
        self.0.push(b'"');
        for character in text.chars() {
            match character {
                '"' | '\\' => self.0.extend_from_slice(&[b'\\', character as u8]),
                ' '..='~' => self.0.push(character as u8),
                _ => self.0.push(b'?'),
            }
        }
        self.0.push(b'"');
        self
    }
}
