//! What can go wrong with a question, and what each protocol calls it: the only table of its kind.

use std::borrow::Cow;
use std::fmt;

/// Why there is no verdict. A refusal is none of these: it is an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The question makes no sense, and how it would.
    Malformed(Cow<'static, str>),
    /// It is larger than anything that makes sense.
    TooLarge(Cow<'static, str>),
    /// There is no such command, method or page.
    Unknown(Cow<'static, str>),
    /// The page is there, but not for this method.
    WrongMethod,
    /// Nobody has said who is asking.
    NoToken,
    /// The token is none of ours.
    WrongToken,
    /// The reservation was settled already, its time ran out, or there never was one.
    NoReservation,
    /// As many reservations are open as can be.
    TooManyReservations,
    /// The question took too long to arrive.
    TooSlow,
    /// The daemon is about to end.
    Stopping,
    /// The store did not say that it has done what it was told to.
    NoStore,
}

/// The codes of gRPC that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "they are the names that gRPC gives them")]
pub enum GrpcCode {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl Fault {
    /// A short name, for metrics and Problem Details.
    pub fn name(&self) -> &'static str {
        self.row().0
    }

    /// What replies begin with over RESP, before a space.
    pub fn resp(&self) -> &'static str {
        self.row().1
    }

    /// The code over gRPC.
    pub fn grpc(&self) -> GrpcCode {
        self.row().2
    }

    /// The status over HTTP.
    pub fn http(&self) -> u16 {
        self.row().3
    }

    /// Name, RESP, gRPC, HTTP.
    fn row(&self) -> (&'static str, &'static str, GrpcCode, u16) {
        match self {
            Fault::Malformed(_) => ("malformed", "ERR", GrpcCode::InvalidArgument, 400),
            Fault::TooLarge(_) => ("too-large", "ERR", GrpcCode::ResourceExhausted, 413),
            Fault::Unknown(_) => ("unknown", "ERR", GrpcCode::Unimplemented, 404),
            Fault::WrongMethod => ("wrong-method", "ERR", GrpcCode::Unimplemented, 405),
            Fault::NoToken => ("no-token", "NOAUTH", GrpcCode::Unauthenticated, 401),
            Fault::WrongToken => ("wrong-token", "WRONGPASS", GrpcCode::Unauthenticated, 401),
            Fault::NoReservation => ("no-reservation", "ERR", GrpcCode::NotFound, 404),
            Fault::TooManyReservations => ("too-many-reservations", "BUSY", GrpcCode::Unavailable, 503),
            Fault::TooSlow => ("too-slow", "ERR", GrpcCode::DeadlineExceeded, 408),
            Fault::Stopping => ("stopping", "LOADING", GrpcCode::Unavailable, 503),
            Fault::NoStore => ("no-store", "TRYAGAIN", GrpcCode::Unavailable, 503),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Malformed(text) | Fault::TooLarge(text) | Fault::Unknown(text) => text,
            Fault::WrongMethod => "there is such a page, but not for this method",
            Fault::NoToken => "a token is required; the configuration names them under `tokens`",
            Fault::WrongToken => "the token is not one of those that the configuration names",
            Fault::NoReservation => "there is no such reservation: it was settled, or its time ran out",
            Fault::TooManyReservations => "too many reservations are open; settle some, or let them run out sooner",
            Fault::TooSlow => "the request took too long to arrive",
            Fault::Stopping => "the daemon is about to end; ask another one",
            Fault::NoStore => "the store does not answer, so that only what is counted here was reset; ask again",
        })
    }
}

impl std::error::Error for Fault {}
