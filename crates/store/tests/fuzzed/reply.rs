//! What holds for anything that a store says.

use bytes::BytesMut;
use tollgate_store::{Malformed, Range, Redirection, Reply, read_map, take_reply};

/// Where the reply comes from.
const ASKED: &str = "seed:6379";

/// Reads reply by reply, as a connection does, and takes each for a map and for a redirection.
pub(crate) fn check(bytes: &[u8]) {
    let whole = replies([bytes]);
    let middle = bytes.first().map_or(0, |first| usize::from(*first) % bytes.len());
    let (left, right) = bytes.split_at(middle);
    // However it is cut.
    assert_eq!(whole, replies([left, right]));
    assert_eq!(whole, replies(bytes.chunks(1)));
    for reply in whole.0 {
        if let Reply::Error(error) = &reply {
            redirect(error);
        }
        if let Ok(ranges) = read_map(reply, ASKED) {
            check_map(&ranges);
        }
    }
    redirect(&String::from_utf8_lossy(bytes));
}

fn replies<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Reply>, Result<(), Malformed>) {
    let (mut input, mut replies) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let before = input.len();
            match take_reply(&mut input) {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => break,
                Err(malformed) => return (replies, Err(malformed)),
            }
            assert!(input.len() < before, "a reply takes something");
        }
    }
    (replies, Ok(()))
}

/// Every slot is one that there is, nobody else keeps it, and it is known where.
fn check_map(ranges: &[Range]) {
    assert!(!ranges.is_empty());
    assert!(ranges.iter().all(|range| range.first <= range.last && range.last < 16_384));
    assert!(ranges.is_sorted_by(|one, next| one.last < next.first));
    ranges.iter().for_each(|range| check_address(&range.address));
}

fn redirect(error: &str) {
    if let Some(Redirection::Moved(address) | Redirection::Ask(address)) = Redirection::read(error, ASKED) {
        check_address(&address);
    }
}

fn check_address(address: &str) {
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    assert!(matches!(port, Some(Ok(1..))), "{address}");
}
