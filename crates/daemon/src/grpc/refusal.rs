//! What a call is told that gets no answer.

use crate::fault::{Fault, GrpcCode};
use http::HeaderValue;
use std::fmt::Write;

/// Why a call gets no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// As all protocols have it.
    Fault(Fault),
    /// The health of something was asked that is not here.
    NoService,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        Refusal::Fault(fault)
    }
}

impl Refusal {
    pub(super) fn code(&self) -> GrpcCode {
        match self {
            Refusal::Fault(fault) => fault.grpc(),
            Refusal::NoService => GrpcCode::NotFound,
        }
    }

    /// A short name, for traces.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Refusal::Fault(fault) => fault.name(),
            Refusal::NoService => "no-service",
        }
    }

    /// What people are told, in the characters that a header can have.
    pub(super) fn message(&self) -> HeaderValue {
        let text = match self {
            Refusal::Fault(fault) => fault.to_string(),
            Refusal::NoService => "there is no such service here".to_owned(),
        };
        HeaderValue::try_from(percent_encoded(&text)).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::{Refusal, percent_encoded};
    use crate::fault::{Fault, GrpcCode};

    #[test]
    fn what_headers_cannot_have_is_encoded() {
        assert_eq!(percent_encoded("50 % für\nalle"), "50 %25 f%C3%BCr%0Aalle");
    }

    #[test]
    fn a_fault_has_the_code_of_the_one_table() {
        let refusal = Refusal::from(Fault::Stopping);
        assert_eq!(refusal.code(), GrpcCode::Unavailable);
        assert_eq!(refusal.message().to_str().unwrap(), Fault::Stopping.to_string());
    }
}
