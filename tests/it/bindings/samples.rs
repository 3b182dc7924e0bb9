//! Documents that are, or are not, of a type.

use std::fs;

use serde_json::{Map, Value, json};
use testkit::schema::Schemas;
use testkit::tree;

use super::here;
use crate::ask;
use crate::schemas::{documents, schemas};

/// A document and whether it has to be of the type of its schema.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) schema: String,
    /// Where it comes from, and what was changed.
    pub(super) what: String,
    pub(super) document: Value,
    pub(super) fits: bool,
}

/// Every vector, recording, case, example and some answers, as far as the schema accepts them.
pub(super) fn accepted() -> Vec<Sample> {
    let schemas = schemas();
    let mut samples = Vec::new();
    let mut add = |schema: &str, what: String, bytes: &[u8]| {
        if documents::validates(&schemas, schema, bytes).is_ok() {
            let document = serde_json::from_slice(bytes).expect("valid, so it parses");
            samples.push(Sample { schema: schema.to_owned(), what, document, fits: true });
        }
    };
    for (schema, name, bytes) in documents::of_vectors() {
        add(schema, format!("the vector {name}"), &bytes);
    }
    for top in ["tests/golden/peer-runs", "conformance/cases"] {
        for path in tree::walk(&here(top)).expect("the recordings are part of the project") {
            let Some(schema) = documents::schema_of(&path).filter(|_| path.is_file()) else {
                continue;
            };
            let bytes = fs::read(&path).expect("readable");
            for document in documents::documents_of(schema, &bytes) {
                add(schema, path.display().to_string(), &document);
            }
        }
    }
    for (schema, what, bytes) in examples() {
        add(&schema, what, &bytes);
    }
    let store = here("examples/store");
    let store = ask::utf8(&store);
    for args in [
        &["inspect", store][..],
        &["list", store, "--all"],
        &["check", store, "-x"],
        &["slots", store],
        &["leases", store],
        &["results", store],
        &["prune", store],
        &["recover", store],
        &["roots"],
        &["explain"],
        &["spec", "14"],
    ] {
        let answer = ask::run(&[args, &["--format", "json"]].concat()).stdout;
        let schema: Value = serde_json::from_slice(&answer).expect("one document");
        let schema = schema["schema"].as_str().and_then(|name| name.strip_prefix("runstore."));
        let schema = schema.and_then(|name| name.strip_suffix("/1")).expect("it names its schema");
        add(schema, format!("the answer of {args:?}"), &answer);
    }
    samples
}

/// The examples: schema, file, bytes.
fn examples() -> Vec<(String, String, Vec<u8>)> {
    let paths = tree::walk(&here("spec/examples/v1")).expect("there are examples");
    let named = paths.into_iter().filter(|path| path.is_file()).map(|path| {
        let name = path.file_name().expect("named").to_string_lossy().into_owned();
        let schema = name.split('.').next().unwrap_or_default().to_owned();
        (schema, name, fs::read(&path).expect("readable"))
    });
    named.collect()
}

/// The examples with one change each, whose answer follows from the schema.
pub(super) fn changed() -> Vec<Sample> {
    let schemas = schemas();
    let mut samples = Vec::new();
    for (schema, file, bytes) in examples() {
        let document: Map<String, Value> = serde_json::from_slice(&bytes).expect("an object");
        let mut add = |what: String, document: Map<String, Value>, fits: bool| {
            let (schema, what) = (schema.clone(), format!("{file}, {what}"));
            samples.push(Sample { schema, what, document: document.into(), fits });
        };
        let mut more = document.clone();
        more.insert("noSuchMember".to_owned(), json!({ "of": ["another", 1, null] }));
        add("with one more member".to_owned(), more, true);
        let required = schemas.part(&schema, "/required").and_then(Value::as_array).cloned();
        for key in required.iter().flatten().filter_map(Value::as_str) {
            let mut less = document.clone();
            less.remove(key);
            add(format!("without {key}"), less, false);
        }
        for key in document.keys() {
            let changes = changes(&schemas, &schema, key);
            for (value, fits) in changes {
                let what = format!("with {key} as {value}");
                let mut other = document.clone();
                other.insert(key.clone(), value);
                add(what, other, fits);
            }
        }
    }
    samples
}

/// Values for a member of the root of a schema, and whether they are of its type.
fn changes(schemas: &Schemas, schema: &str, key: &str) -> Vec<(Value, bool)> {
    let Some(rules) = schemas.part(schema, &format!("/properties/{key}")) else {
        return Vec::new();
    };
    let nothing = json!("no-such-word");
    if let Some(any_of) = rules["anyOf"].as_array() {
        // An open list of words takes any other; what takes anything takes a number too.
        let is_open = any_of.iter().any(|one| one["enum"].is_array());
        return vec![(nothing, true), (json!(7), !is_open)];
    }
    if rules["enum"].is_array() || rules.get("const").is_some() {
        return vec![(nothing, false), (json!(7), false), (json!(null), false)];
    }
    let Some(told) = rules.get("type") else { return vec![(nothing, true), (json!(7.5), true)] };
    let one = std::slice::from_ref(told);
    let types: Vec<_> = told.as_array().map_or(one, Vec::as_slice).iter().collect();
    let has = |name: &str| types.iter().any(|kind| *kind == name);
    let mut values = vec![
        (json!(null), has("null")),
        (json!(true), has("boolean")),
        (json!("text"), has("string")),
        (json!(7), has("integer") || has("number")),
    ];
    if !has("array") {
        values.push((json!([[]]), false));
    }
    if !has("object") {
        values.push((json!({ "": 1 }), false));
    }
    values
}
