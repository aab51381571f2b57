//! What Envoy asks, borrowed from the bytes that it came in.

use crate::fault::Fault;
use crate::grpc::wire::{Malformed, Reader};
use smallvec::SmallVec;
use std::ops::Range;
use tollgate::{Request, Value};

/// As many descriptors as a request can have.
pub const MOST_DESCRIPTORS: usize = 256;

/// As many entries as a descriptor can have.
pub const MOST_ENTRIES: usize = 64;

/// Names and values of one or more descriptors.
type Entries<'a> = SmallVec<[(&'a str, Value<'a>); 8]>;

/// `envoy.service.ratelimit.v3.RateLimitRequest`
#[derive(Clone, Debug, Default)]
pub struct RateLimitRequest<'a> {
    /// The namespace whose rules apply.
    pub domain: &'a str,
    /// What each descriptor costs that does not say; 0 is 1.
    pub hits_addend: u32,
    /// In the order of the message.
    pub descriptors: SmallVec<[Descriptor; 4]>,
    /// Those of all descriptors, one after the other.
    entries: Entries<'a>,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Where its entries are among those of the request.
    entries: Range<usize>,
    /// What applies instead of the rules.
    pub limit: Option<Override>,
    /// Instead of the request's; 0 only looks.
    pub hits_addend: Option<u64>,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Override {
    /// 0 lets nothing through.
    pub requests_per_unit: u32,
    /// By its number.
    pub unit: u32,
}

impl<'a> RateLimitRequest<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// It is none, or larger than anything that makes sense.
    pub fn decode(message: &'a [u8]) -> Result<RateLimitRequest<'a>, Fault> {
        let mut request = RateLimitRequest::default();
        let mut reader = Reader::new(message);
        while let Some((number, field)) = reader.field()? {
            match number {
                1 => request.domain = field.text()?,
                2 => request.descriptor(field.message()?)?,
                3 => request.hits_addend = field.small_number()?,
                _ => {}
            }
        }
        Ok(request)
    }

    /// The entries of one of its descriptors.
    pub fn entries(&self, descriptor: &Descriptor) -> &[(&'a str, Value<'a>)] {
        self.entries.get(descriptor.entries.clone()).unwrap_or_default()
    }

    /// What one of its descriptors costs.
    pub fn hits(&self, descriptor: &Descriptor) -> u64 {
        descriptor.hits_addend.unwrap_or_else(|| self.hits_addend.max(1).into())
    }

    /// What the rules are asked about one of its descriptors.
    pub fn part(&self, descriptor: &Descriptor) -> Request<'_> {
        Request::new(self.domain, self.entries(descriptor)).with_cost(self.hits(descriptor))
    }

    fn descriptor(&mut self, mut reader: Reader<'a>) -> Result<(), Fault> {
        if self.descriptors.len() == MOST_DESCRIPTORS {
            return Err(Fault::TooLarge(format!("a request has at most {MOST_DESCRIPTORS} descriptors").into()));
        }
        let start = self.entries.len();
        let mut descriptor = Descriptor::default();
        while let Some((number, field)) = reader.field()? {
            match number {
                1 if self.entries.len() - start == MOST_ENTRIES => {
                    return Err(Fault::TooLarge(format!("a descriptor has at most {MOST_ENTRIES} entries").into()));
                }
                1 => self.entries.push(entry(field.message()?)?),
                2 => read_override(descriptor.limit.get_or_insert_default(), field.message()?)?,
                3 => read_wrapped(descriptor.hits_addend.get_or_insert_default(), field.message()?)?,
                _ => {}
            }
        }
        descriptor.entries = start..self.entries.len();
        self.descriptors.push(descriptor);
        Ok(())
    }
}

fn entry<'a>(mut reader: Reader<'a>) -> Result<(&'a str, Value<'a>), Malformed> {
    let (mut key, mut value) = ("", "");
    while let Some((number, field)) = reader.field()? {
        match number {
            1 => key = field.text()?,
            2 => value = field.text()?,
            _ => {}
        }
    }
    Ok((key, Value::Text(value)))
}

fn read_override(limit: &mut Override, mut reader: Reader<'_>) -> Result<(), Malformed> {
    while let Some((number, field)) = reader.field()? {
        match number {
            1 => limit.requests_per_unit = field.small_number()?,
            2 => limit.unit = field.small_number()?,
            _ => {}
        }
    }
    Ok(())
}

/// `google.protobuf.UInt64Value`
fn read_wrapped(value: &mut u64, mut reader: Reader<'_>) -> Result<(), Malformed> {
    while let Some((number, field)) = reader.field()? {
        if number == 1 {
            *value = field.number()?;
        }
    }
    Ok(())
}
