//! Unary gRPC calls, as bare HTTP/2 frames: a client that did more would take more of the processor than the servers.

use super::load::Talk;
use super::resp::push_key;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// How much more than at first the server may send on a connection: as much as the protocol allows, so that it never has
/// to be told again.
const WINDOW: u32 = 0x7fff_ffff - 65_535;

/// Calls in which only the key changes.
#[derive(Clone, Debug)]
pub struct Grpc {
    headers: Vec<u8>,
    before: Vec<u8>,
    after: Vec<u8>,
    stream: u32,
    partial: Vec<u8>,
    messages: usize,
    ended: usize,
}

impl Grpc {
    /// Calls a method with a message of `before`, a key and `after`.
    pub fn new(path: &str, before: Vec<u8>, after: Vec<u8>) -> Grpc {
        Grpc { headers: headers(path), before, after, stream: 1, partial: Vec::new(), messages: 0, ended: 0 }
    }
}

/// The headers of a call, each spelt out in full. Their names are of HPACK's fixed table where it has them.
fn headers(path: &str) -> Vec<u8> {
    // `:method: POST` and `:scheme: http` as a whole.
    let mut block = vec![0x83, 0x86];
    literal(&mut block, &[0x04], path);
    literal(&mut block, &[0x01], "localhost");
    // Above 14 the number of a name goes on in the next byte.
    literal(&mut block, &[0x0f, 31 - 15], "application/grpc");
    literal(&mut block, b"\x00\x02te", "trailers");
    block
}

fn literal(block: &mut Vec<u8>, name: &[u8], value: &str) {
    block.extend_from_slice(name);
    block.push(value.len() as u8);
    block.extend_from_slice(value.as_bytes());
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, length: usize) {
    bytes.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
}

impl Talk for Grpc {
    fn ask(&mut self, client: u64, bytes: &mut Vec<u8>) {
        if self.stream == 1 {
            bytes.extend_from_slice(PREFACE);
            frame(bytes, SETTINGS, 0, 0, 0);
            frame(bytes, WINDOW_UPDATE, 0, 0, 4);
            bytes.extend_from_slice(&WINDOW.to_be_bytes());
        }
        frame(bytes, HEADERS, END_HEADERS, self.stream, self.headers.len());
        bytes.extend_from_slice(&self.headers);
        let message = self.before.len() + 20 + self.after.len();
        frame(bytes, DATA, END_STREAM, self.stream, 5 + message);
        bytes.push(0);
        bytes.extend_from_slice(&(message as u32).to_be_bytes());
        bytes.extend_from_slice(&self.before);
        push_key(client, bytes);
        bytes.extend_from_slice(&self.after);
        self.stream += 2;
    }

    fn hear(&mut self, received: &[u8], bytes: &mut Vec<u8>) -> usize {
        self.partial.extend_from_slice(received);
        let (before, mut at) = (self.ended, 0);
        while let Some((header, rest)) = self.partial[at..].split_first_chunk::<9>() {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let Some(payload) = rest.get(..length) else { break };
            let (kind, flags) = (header[3], header[4]);
            answer(kind, flags, payload, bytes);
            self.messages += usize::from(kind == DATA);
            self.ended += usize::from(kind <= HEADERS && flags & END_STREAM != 0);
            assert!(self.messages >= self.ended, "a call has failed: {}", payload.escape_ascii());
            at += 9 + length;
        }
        self.partial.drain(..at);
        self.ended - before
    }
}

/// What a frame asks for. The messages of both services begin with a first field of 1: the request is allowed.
fn answer(kind: u8, flags: u8, payload: &[u8], bytes: &mut Vec<u8>) {
    match kind {
        DATA => assert_eq!(payload.get(5..7), Some(&[0x08, 1][..]), "a request was refused"),
        RESET | GOAWAY => panic!("the server has given up: {}", payload.escape_ascii()),
        SETTINGS if flags & ACK == 0 => frame(bytes, SETTINGS, ACK, 0, 0),
        PING if flags & ACK == 0 => {
            frame(bytes, PING, ACK, 0, payload.len());
            bytes.extend_from_slice(payload);
        }
        _ => {}
    }
}
