//! What holds for anything that arrives on a RESP connection.

use tollgate_daemon::resp::decode::{Decoded, LONGEST_ARGUMENT, MOST_ARGUMENTS, decode, unquote};

/// Decodes command by command, as a connection does.
pub(crate) fn check(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(decoded) = decode(rest) {
        let taken = match decoded {
            Decoded::Incomplete => break,
            Decoded::Command(arguments, taken) => {
                assert!(arguments.len() <= MOST_ARGUMENTS);
                assert!(arguments.iter().all(|argument| argument.len() <= LONGEST_ARGUMENT));
                taken
            }
            Decoded::Typed(line, taken) => {
                let length = |words: &[Vec<u8>]| words.iter().map(Vec::len).sum::<usize>();
                assert!(unquote(line).is_ok_and(|words| length(&words) <= line.len()) || unquote(line).is_err());
                taken
            }
        };
        assert!(taken > 0 && taken <= rest.len());
        // What comes in pieces is only understood when the last one is there, and never otherwise.
        assert!(matches!(decode(&rest[..taken - 1]), Ok(Decoded::Incomplete)));
        rest = &rest[taken..];
    }
}
