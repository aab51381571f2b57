//! `POST /json`: Envoy's rate limit service for those who have no gRPC, as envoyproxy/ratelimit has it.
//!
//! A request in JSON is translated to the message that it stands for, and the answer back: what is decided, and how, is
//! the business of [`envoy`] alone.

use super::number::whole;
use super::reply::{self, Reply};
use super::server::Visit;
use crate::fault::Fault;
use crate::grpc::envoy;
use crate::grpc::wire::{Malformed, PREFIX, Reader, Writer};
use http::{HeaderMap, StatusCode};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::fmt;

/// Answers 200, or 429 where a limit is exceeded.
pub(super) async fn json(visit: &Visit, headers: HeaderMap, body: &[u8]) -> Result<Reply, Fault> {
    let asked: Asked<'_> =
        serde_json::from_slice(body).map_err(|error| Fault::Malformed(format!("the body: {error}").into()))?;
    let (question, mut answer) = (message(|writer| asked.write(writer)), Writer::default());
    envoy::should_rate_limit(visit.turn(), without_prefix(&question), &mut answer).await?;
    let answer = answer.take();
    let told = Told::read(Reader::new(without_prefix(&answer)))?;
    let mut reply = reply::json(headers, &told);
    if told.overall_code == CODES.get(2).copied() {
        *reply.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    }
    Ok(reply)
}

fn message(write: impl FnOnce(&mut Writer)) -> bytes::Bytes {
    let mut writer = Writer::default();
    writer.frame(write);
    writer.take()
}

/// A message as it is sent over gRPC, without what stands before it there.
fn without_prefix(bytes: &[u8]) -> &[u8] {
    bytes.get(PREFIX..).unwrap_or_default()
}

/// `RateLimitResponse.Code`
const CODES: [&str; 3] = ["UNKNOWN", "OK", "OVER_LIMIT"];

/// `RateLimitResponse.RateLimit.Unit`, of which overrides know all but the last.
const UNITS: [&str; 8] = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"];

/// `RateLimitRequest`. Fields are called as in the proto file or in JSON's own manner, and may be null.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Asked<'a> {
    #[serde(borrow)]
    domain: Option<Cow<'a, str>>,
    #[serde(borrow)]
    descriptors: Option<Vec<Descriptor<'a>>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Small>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Descriptor<'a> {
    #[serde(borrow)]
    entries: Option<Vec<Entry<'a>>>,
    limit: Option<Override>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Large>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry<'a> {
    #[serde(borrow)]
    key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    value: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Override {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Option<Small>,
    unit: Unit,
}

impl Asked<'_> {
    fn write(&self, writer: &mut Writer) {
        writer.bytes(1, self.domain.as_deref().unwrap_or_default().as_bytes());
        for descriptor in self.descriptors.iter().flatten() {
            writer.message(2, |writer| descriptor.write(writer));
        }
        writer.plain_number(3, self.hits_addend.as_ref().map_or(0, |number| number.0));
    }
}

impl Descriptor<'_> {
    fn write(&self, writer: &mut Writer) {
        for entry in self.entries.iter().flatten() {
            writer.message(1, |writer| {
                writer.bytes(1, entry.key.as_deref().unwrap_or_default().as_bytes());
                writer.bytes(2, entry.value.as_deref().unwrap_or_default().as_bytes());
            });
        }
        if let Some(limit) = &self.limit {
            writer.message(2, |writer| {
                writer.plain_number(1, limit.requests_per_unit.as_ref().map_or(0, |number| number.0));
                writer.plain_number(2, limit.unit.0);
            });
        }
        if let Some(hits) = &self.hits_addend {
            writer.message(3, |writer| writer.plain_number(1, hits.0));
        }
    }
}

/// A whole number, also as a text: JSON's own numbers are not exact beyond 53 bits.
#[derive(Debug)]
struct Whole<const MOST: u64>(u64);

type Small = Whole<{ u32::MAX as u64 }>;
type Large = Whole<{ u64::MAX }>;

impl<'de, const MOST: u64> Deserialize<'de> for Whole<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeVisitor)
    }
}

struct WholeVisitor<const MOST: u64>;

impl<const MOST: u64> Visitor<'_> for WholeVisitor<MOST> {
    type Value = Whole<MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {MOST}")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Whole<MOST>, E> {
        let is_in_range = number <= MOST;
        is_in_range.then_some(Whole(number)).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Whole<MOST>, E> {
        let known = whole(number).filter(|number| *number <= MOST);
        known.map(Whole).ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Whole<MOST>, E> {
        let number = text.parse().ok().filter(|number| *number <= MOST);
        number.map(Whole).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// A unit of time, by its name or its number.
#[derive(Debug)]
struct Unit(u64);

impl<'de> Deserialize<'de> for Unit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unit, D::Error> {
        deserializer.deserialize_any(UnitVisitor)
    }
}

struct UnitVisitor;

impl Visitor<'_> for UnitVisitor {
    type Value = Unit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SECOND, MINUTE, HOUR, DAY, MONTH or YEAR")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Unit, E> {
        Ok(Unit(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Unit, E> {
        let number = UNITS.iter().zip(0..).find(|(name, _)| **name == text).map(|(_, number)| Unit(number));
        number.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// `RateLimitResponse`. What has its default is left out.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    overall_code: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<Status<'a>>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<Limit<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_remaining: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Limit<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_per_unit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

impl<'a> Told<'a> {
    fn read(mut reader: Reader<'a>) -> Result<Told<'a>, Malformed> {
        let mut told = Told::default();
        while let Some((number, field)) = reader.field()? {
            match number {
                1 => told.overall_code = name(&CODES, field.number()?),
                2 => told.statuses.push(Status::read(field.message()?)?),
                _ => {}
            }
        }
        Ok(told)
    }
}

impl<'a> Status<'a> {
    fn read(mut reader: Reader<'a>) -> Result<Status<'a>, Malformed> {
        let mut status = Status::default();
        while let Some((number, field)) = reader.field()? {
            match number {
                1 => status.code = name(&CODES, field.number()?),
                2 => status.current_limit = Some(Limit::read(field.message()?)?),
                3 => status.limit_remaining = Some(field.small_number()?),
                4 => status.duration_until_reset = Some(duration(field.message()?)?),
                _ => {}
            }
        }
        Ok(status)
    }
}

impl<'a> Limit<'a> {
    fn read(mut reader: Reader<'a>) -> Result<Limit<'a>, Malformed> {
        let mut limit = Limit::default();
        while let Some((number, field)) = reader.field()? {
            match number {
                1 => limit.requests_per_unit = Some(field.small_number()?),
                2 => limit.unit = name(&UNITS, field.number()?),
                3 => limit.name = Some(field.text()?),
                _ => {}
            }
        }
        Ok(limit)
    }
}

/// `google.protobuf.Duration`, of whole seconds.
fn duration(mut reader: Reader<'_>) -> Result<String, Malformed> {
    let mut seconds = 0;
    while let Some((number, field)) = reader.field()? {
        if number == 1 {
            seconds = field.number()?;
        }
    }
    Ok(format!("{seconds}s"))
}

fn name(names: &[&'static str], number: u64) -> Option<&'static str> {
    usize::try_from(number).ok().and_then(|number| names.get(number)).copied()
}
