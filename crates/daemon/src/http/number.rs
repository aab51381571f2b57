//! Whole numbers in JSON, where `1`, `1.0` and `1e0` are the same: not every language writes them alike.

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// A whole number from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole(pub(super) u64);

/// A whole number that may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signed(pub(super) i64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Whole, D::Error> {
        deserializer.deserialize_any(WholeVisitor)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
        Ok(Whole(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
        whole(number).map(Whole).ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }
}

impl<'de> Deserialize<'de> for Signed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Signed, D::Error> {
        deserializer.deserialize_any(SignedVisitor)
    }
}

struct SignedVisitor;

impl Visitor<'_> for SignedVisitor {
    type Value = Signed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of 64 bits")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Signed, E> {
        Ok(Signed(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Signed, E> {
        i64::try_from(number).map(Signed).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Signed, E> {
        let size = whole(number.abs()).and_then(|size| i64::try_from(size).ok());
        let signed = size.map(|size| if number < 0.0 { -size } else { size });
        signed.map(Signed).ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }
}

/// A number with a decimal point, if there is nothing behind it.
pub(super) fn whole(number: f64) -> Option<u64> {
    // One more than the largest there is.
    const TOO_LARGE: f64 = 18_446_744_073_709_551_616.0;
    (number.fract() == 0.0 && (0.0..TOO_LARGE).contains(&number)).then_some(number as u64)
}
