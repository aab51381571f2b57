//! The JSON Schema that is checked in, and what it says about the good files.

use crate::{file_name, files, parsed};
use serde_json::{Map, Value};
use std::fs;
use std::path::Path;
use tollgate_rules::{Regex, RuleSet, Source, json_schema};

#[test]
fn the_schema_that_is_checked_in_is_the_one_that_files_are_checked_by() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.schema.json");
    let now = format!("{:#}\n", json_schema());
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(&file, &now).unwrap();
    }
    let stale = fs::read_to_string(&file).unwrap_or_default() != now;
    assert!(!stale, "docs/rules.schema.json is stale: run this test with UPDATE_SCHEMA=1");
}

/// What is wrong with a value, as far as the schema's words are known.
fn validate(schema: &Value, value: &Value, root: &Value) -> Result<(), String> {
    let words = match schema {
        Value::Bool(true) => return Ok(()),
        Value::Object(words) => words,
        other => panic!("no schema: {other}"),
    };
    words.iter().try_for_each(|(word, said)| {
        let holds = keyword(word, said, words, value, root)?;
        if holds { Ok(()) } else { Err(format!("{value} against {word}: {said}")) }
    })
}

fn keyword(word: &str, said: &Value, words: &Map<String, Value>, value: &Value, root: &Value) -> Result<bool, String> {
    let passes = |schema: &Value| validate(schema, value, root).is_ok();
    let number = |said: &Value| said.as_f64().unwrap();
    let count = |said: &Value| usize::try_from(said.as_u64().unwrap()).unwrap();
    Ok(match word {
        "$schema" | "$defs" | "title" | "description" | "examples" => true,
        "$ref" => {
            let pointer = said.as_str().unwrap().strip_prefix('#').unwrap();
            validate(root.pointer(pointer).unwrap(), value, root)?;
            true
        }
        "type" => match said {
            Value::Array(types) => types.iter().any(|said| is_a(said, value)),
            said => is_a(said, value),
        },
        "enum" => said.as_array().unwrap().contains(value),
        "const" => said == value,
        "anyOf" => said.as_array().unwrap().iter().any(passes),
        "allOf" => said.as_array().unwrap().iter().all(passes),
        "oneOf" => said.as_array().unwrap().iter().filter(|schema| passes(schema)).count() == 1,
        "not" => !passes(said),
        "required" => {
            let fields = value.as_object();
            let names = said.as_array().unwrap();
            fields.is_none_or(|fields| names.iter().all(|name| fields.contains_key(name.as_str().unwrap())))
        }
        "properties" => {
            for (name, schema) in said.as_object().unwrap() {
                value.get(name).map_or(Ok(()), |value| validate(schema, value, root))?;
            }
            true
        }
        "additionalProperties" => {
            let known = words.get("properties").and_then(Value::as_object);
            let is_known = |name: &str| known.is_some_and(|known| known.contains_key(name));
            for (name, value) in value.as_object().into_iter().flatten().filter(|(name, _)| !is_known(name)) {
                if *said == Value::Bool(false) {
                    return Err(format!("unknown field {name}"));
                }
                validate(said, value, root)?;
            }
            true
        }
        "items" => {
            value.as_array().into_iter().flatten().try_for_each(|item| validate(said, item, root))?;
            true
        }
        "minItems" => value.as_array().is_none_or(|items| items.len() >= count(said)),
        "maxItems" => value.as_array().is_none_or(|items| items.len() <= count(said)),
        "uniqueItems" => value
            .as_array()
            .is_none_or(|items| items.iter().enumerate().all(|(index, item)| !items[..index].contains(item))),
        "minProperties" => value.as_object().is_none_or(|fields| fields.len() >= count(said)),
        "maxProperties" => value.as_object().is_none_or(|fields| fields.len() <= count(said)),
        "minLength" => value.as_str().is_none_or(|text| text.chars().count() >= count(said)),
        "maxLength" => value.as_str().is_none_or(|text| text.chars().count() <= count(said)),
        "minimum" => value.as_f64().is_none_or(|value| value >= number(said)),
        "maximum" => value.as_f64().is_none_or(|value| value <= number(said)),
        "pattern" => value.as_str().is_none_or(|text| {
            let from_start = said.as_str().unwrap().strip_prefix('^').unwrap();
            Regex::new(&format!("(?:{from_start})(?s:.*)")).unwrap().matches(text)
        }),
        word => panic!("the validator does not know {word}"),
    })
}

fn is_a(said: &Value, value: &Value) -> bool {
    match said.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        other => panic!("the validator does not know the type {other}"),
    }
}

/// A text as the JSON that an editor sees: rules that take it in as metadata give it back.
fn documents(text: &str) -> Vec<Value> {
    if let Ok(json) = serde_json::from_str(text) {
        return vec![json];
    }
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(['#', '%'])).collect();
    let text = lines.join("\n");
    let documents = text.split("\n---\n").map(|part| part.trim_start_matches("---\n").trim_end_matches("\n..."));
    documents.map(as_metadata).collect()
}

fn as_metadata(document: &str) -> Value {
    let head = "namespace: a\nrules:\n  - name: a\n    key: []\n    limits: []\n    metadata:\n      ";
    let set = parsed(format!("{head}{}\n", document.replace('\n', "\n      ")));
    set.namespaces[0].rules[0].metadata.clone().unwrap()
}

#[test]
fn good_files_satisfy_the_schema() {
    let schema = json_schema();
    let mut checked = 0;
    for file in files("good").iter().filter(|file| !file_name(file).starts_with("envoy")) {
        for document in documents(&fs::read_to_string(file).unwrap()) {
            validate(&schema, &document, &schema).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            checked += 1;
        }
    }
    assert!(checked >= 6, "only {checked} documents");
}

#[test]
fn what_is_written_satisfies_the_schema() {
    let schema = json_schema();
    for file in files("good") {
        let text = fs::read_to_string(&file).unwrap();
        let set = RuleSet::parse(&[Source::new(file_name(&file), text)]).unwrap();
        for document in documents(&set.to_yaml()) {
            validate(&schema, &document, &schema).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
    }
}

#[test]
fn the_schema_refuses_what_is_no_namespace() {
    let schema = json_schema();
    for text in [
        "namespce: a\nrules: []",
        "namespace: a\nrules: [{ name: a, limits: [] }]",
        "namespace: a\nrules: [{ name: a, key: [], limits: [five per minute] }]",
        "namespace: a\nrules: [{ name: a, key: [], descriptor: [{ key: x }], limits: [] }]",
        "namespace: a\nrules: [{ name: a, key: [ip, ip], limits: [] }]",
        "namespace: a\nrules: [{ name: a, key: [], limits: [], then: finish }]",
        "namespace: a\nrules: [{ name: a, key: [], limits: [], match: { a: { regex: x, glob: y } } }]",
        "namespace: a\nidentity: { hops: 33 }\nrules: []",
    ] {
        let document = &documents(text)[0];
        assert!(validate(&schema, document, &schema).is_err(), "{text}");
    }
}
