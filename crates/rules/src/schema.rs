//! Our own format as a JSON Schema, for editors: from the tables that files are checked by, so that neither can know
//! what the other does not.

use crate::check::{NAMESPACE_FIELDS, condition, identity, rule};
use crate::dialect::Dialect;
use crate::identity::{EncodedSlash, ForwardedHeader, MOST_PARTS};
use crate::limits::ALGORITHMS;
use crate::model::names;
use serde_json::{Map, Value, json};

/// The schema of one namespace. It knows which fields there are and what kinds of values they take; the rest is found
/// by [`RuleSet::parse`](crate::RuleSet::parse).
///
/// ```
/// let schema = tollgate_rules::json_schema();
/// assert_eq!(schema["properties"]["rules"]["items"]["$ref"], "#/$defs/rule");
/// ```
pub fn json_schema() -> Value {
    let mut schema = object(&NAMESPACE_FIELDS, &["namespace", "rules"], namespace_field);
    if let Value::Object(schema) = &mut schema {
        schema.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
        schema.insert("title".to_owned(), "Rules of a Tollgate namespace".into());
        schema.insert("$defs".to_owned(), definitions());
    }
    schema
}

fn definitions() -> Value {
    json!({
        "text": { "type": ["string", "number", "boolean"] },
        "name": { "type": ["string", "number", "boolean"], "minLength": 1, "maxLength": 128 },
        "texts": { "anyOf": [reference("text"), list("text")] },
        "values": { "anyOf": [reference("text"), { "type": "array", "items": reference("text"), "minItems": 1 }] },
        "condition": { "anyOf": [reference("values"), one_of(&condition::FIELDS, condition_field)] },
        "entry": object(&rule::ENTRY_FIELDS, &["key"], entry_field),
        "amount": amount(),
        "limit": { "anyOf": [reference("amount"), object(&rule::LIMIT_FIELDS, &["limit"], limit_field)] },
        "limits": {
            "anyOf": [
                { "const": "unlimited" },
                { "type": "array", "items": reference("limit"), "maxItems": rule::MOST_LIMITS },
            ],
        },
        "tiers": {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": reference("limits"),
            },
        },
        "override": object(&rule::OVERRIDE_FIELDS, &rule::OVERRIDE_FIELDS, override_field),
        "cost": { "anyOf": [reference("text"), object(&rule::COST_FIELDS, &["attribute"], cost_field)] },
        "identity": object(&identity::FIELDS, &[], identity_field),
        "path": object(&identity::PATH_FIELDS, &[], path_field),
        "rule": {
            "allOf": [object(&rule::FIELDS, &["name", "limits"], rule_field)],
            "oneOf": [
                { "required": ["key"], "not": { "required": ["descriptor"] } },
                { "required": ["descriptor"], "not": { "anyOf": [{ "required": ["key"] }, { "required": ["match"] }] } },
            ],
        },
    })
}

/// A map with these fields and no others.
fn object(fields: &[&str], required: &[&str], describe: fn(&str) -> Value) -> Value {
    let properties: Map<String, Value> = fields.iter().map(|name| ((*name).to_owned(), describe(name))).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// A map with exactly one of these fields.
fn one_of(fields: &[&str], describe: fn(&str) -> Value) -> Value {
    let mut schema = object(fields, &[], describe);
    if let Value::Object(schema) = &mut schema {
        schema.insert("minProperties".to_owned(), 1.into());
        schema.insert("maxProperties".to_owned(), 1.into());
    }
    schema
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

fn list(of: &str) -> Value {
    json!({ "type": "array", "items": reference(of) })
}

fn key() -> Value {
    json!({ "type": "array", "items": reference("name"), "maxItems": MOST_PARTS, "uniqueItems": true })
}

fn choice<T>(names: &[(&str, T)]) -> Value {
    json!({ "enum": names.iter().map(|(name, _)| *name).collect::<Vec<_>>() })
}

fn whole(least: i64, most: u64) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most })
}

fn flag() -> Value {
    json!({ "type": "boolean" })
}

fn amount() -> Value {
    let using = ALGORITHMS.iter().map(|(name, options)| match options {
        [] => (*name).to_owned(),
        options => format!("{name} ({})", options.join(", ")),
    });
    let using: Vec<String> = using.collect();
    json!({
        "type": "string",
        "pattern": "^\\s*[0-9][0-9_]*\\s+[Pp][Ee][Rr]\\s",
        "description": format!("N per DURATION, burst B, using one of {}", using.join(", ")),
        "examples": ["100 per second burst 200", "100 per day using sliding-window", "0 per second"],
    })
}

fn namespace_field(name: &str) -> Value {
    match name {
        "namespace" => reference("name"),
        "no_match" => choice(&names::NO_MATCH),
        "headers" => choice(&Dialect::NAMES),
        "identity" => reference("identity"),
        "rules" => list("rule"),
        _ => Value::Null,
    }
}

fn rule_field(name: &str) -> Value {
    match name {
        "name" => reference("name"),
        "description" => reference("text"),
        "match" => json!({ "type": "object", "additionalProperties": reference("condition") }),
        "descriptor" => {
            json!({ "type": "array", "items": reference("entry"), "minItems": 1, "maxItems": MOST_PARTS })
        }
        "key" => key(),
        "limits" => reference("limits"),
        "tiers" => reference("tiers"),
        "overrides" => list("override"),
        "cost" => reference("cost"),
        "priority" => json!({ "type": "integer", "minimum": i32::MIN, "maximum": i32::MAX }),
        "then" => choice(&names::THEN),
        "over" => over(),
        "on_failure" => choice(&names::ON_FAILURE),
        "shared" => choice(&names::SHARED),
        "error_budget" => percent(),
        "headers" => choice(&Dialect::NAMES),
        "replaces" => list("name"),
        "quota_mode" => flag(),
        "metadata" => true.into(),
        _ => Value::Null,
    }
}

fn percent() -> Value {
    json!({ "type": "string", "pattern": "^\\s*[0-9.]+\\s*%\\s*$", "examples": ["5%", "0.5%"] })
}

fn over() -> Value {
    json!({
        "type": "string",
        "pattern": "^\\s*(reject|queue\\s+up\\s+to\\s|drop|shadow)",
        "examples": rule::OVER_FORMS,
    })
}

fn condition_field(name: &str) -> Value {
    match name {
        "present" => flag(),
        "not" | "exact" | "glob" | "regex" | "cidr" => reference("values"),
        _ => Value::Null,
    }
}

fn entry_field(name: &str) -> Value {
    match name {
        "key" => reference("name"),
        "value" => reference("text"),
        "shared" => flag(),
        _ => Value::Null,
    }
}

fn limit_field(name: &str) -> Value {
    match name {
        "limit" => reference("amount"),
        "name" => reference("name"),
        _ => Value::Null,
    }
}

fn override_field(name: &str) -> Value {
    match name {
        "client" => json!({ "type": "object", "minProperties": 1, "additionalProperties": reference("text") }),
        "limits" => reference("limits"),
        _ => Value::Null,
    }
}

fn cost_field(name: &str) -> Value {
    match name {
        "attribute" => reference("name"),
        "default" => whole(0, u64::MAX),
        "max" => whole(1, u64::MAX),
        _ => Value::Null,
    }
}

fn identity_field(name: &str) -> Value {
    match name {
        "trusted_proxies" => reference("texts"),
        "hops" => whole(0, identity::MOST_HOPS.into()),
        "forwarded" => choice(&ForwardedHeader::NAMES),
        "ipv4_prefix" => whole(1, 32),
        "ipv6_prefix" => whole(1, 128),
        "path" => reference("path"),
        "api_key" | "login" => reference("text"),
        _ => Value::Null,
    }
}

fn path_field(name: &str) -> Value {
    match name {
        "fold_case" | "keep_trailing_slash" | "drop_parameters" => flag(),
        "suffixes" => reference("texts"),
        "encoded_slash" => choice(&EncodedSlash::NAMES),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nulls(schema: &Value) -> usize {
        match schema {
            Value::Null => 1,
            Value::Array(items) => items.iter().map(nulls).sum(),
            Value::Object(fields) => fields.values().map(nulls).sum(),
            _ => 0,
        }
    }

    #[test]
    fn every_field_that_is_checked_is_described() {
        assert_eq!(nulls(&json_schema()), 0, "{:#}", json_schema());
    }
}
