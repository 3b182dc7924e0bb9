//! Documents that are, or are not, of a type.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};
use testkit::schema::Schemas;

use crate::ask;
use crate::schemas::{documents, here, schemas, writers, written};

/// A document and whether it has to be of the type of its schema.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) schema: String,
    /// Whether the schema is one of what the library writes.
    pub(super) is_written: bool,
    /// Where it comes from, and what was changed.
    pub(super) what: String,
    pub(super) document: Value,
    pub(super) fits: bool,
}

/// Everything that is asked about: all documents, and changes of the examples and of one written document of each
/// schema.
pub(super) fn all() -> &'static [Sample] {
    static ALL: OnceLock<Vec<Sample>> = OnceLock::new();
    ALL.get_or_init(|| {
        let (reader, writer) = (schemas(), writers());
        let mut samples = accepted(&reader);
        let (count, mut seen) = (samples.len(), BTreeSet::new());
        for (schema, document) in written::documents() {
            let what = "written by the library".to_owned();
            samples.push(Sample { schema, is_written: true, what, document, fits: true });
        }
        assert!(count > 1000 && samples.len() > count + 100, "{count} of {}", samples.len());
        for one in samples.clone() {
            match one.is_written {
                true if seen.insert(one.schema.clone()) => samples.extend(changed(&writer, &one)),
                false if one.what.starts_with("example") => samples.extend(changed(&reader, &one)),
                _ => {}
            }
        }
        assert_eq!(seen.len(), writer.names().count(), "one of each");
        assert!(samples.iter().filter(|one| !one.fits).count() > 1000, "many do not fit");
        samples
    })
}

/// Every vector, recording, case, example and some answers, as far as the schema accepts them.
fn accepted(schemas: &Schemas) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut add = |schema: &str, what: String, bytes: &[u8]| {
        if documents::validates(schemas, schema, bytes).is_ok() {
            let document = serde_json::from_slice(bytes).expect("valid, so it parses");
            let schema = schema.to_owned();
            samples.push(Sample { schema, is_written: false, what, document, fits: true });
        }
    };
    for (schema, name, bytes) in documents::of_vectors() {
        add(schema, format!("the vector {name}"), &bytes);
    }
    for (schema, place, bytes) in documents::of_recordings() {
        add(schema, place, &bytes);
    }
    for (schema, name, bytes) in documents::of_examples() {
        add(&schema, format!("example {name}"), &bytes);
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
        let document: Value = serde_json::from_slice(&answer).expect("one document");
        let schema = ask::schema_of(&document).expect("it names its schema");
        add(schema, format!("the answer of {args:?}"), &answer);
    }
    samples
}

/// Documents with one change each, whose answer follows from the schema.
fn changed(schemas: &Schemas, of: &Sample) -> Vec<Sample> {
    let mut samples = Vec::new();
    let document = of.document.as_object().expect("every document is an object");
    let mut add = |what: String, document: Map<String, Value>, fits: bool| {
        let what = format!("{}, {what}", of.what);
        samples.push(Sample { what, document: document.into(), fits, ..of.clone() });
    };
    let schema = schemas.part(&of.schema, "").expect("every sample has a schema");
    let mut more = document.clone();
    more.insert("noSuchMember".to_owned(), json!({ "of": ["another", 1, null] }));
    add("with one more member".to_owned(), more, !is_closed(schema));
    for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let mut less = document.clone();
        less.remove(key);
        add(format!("without {key}"), less, false);
    }
    for key in document.keys() {
        for (value, fits) in changes(&schema["properties"][key]) {
            let what = format!("with {key} as {value}");
            let mut other = document.clone();
            other.insert(key.clone(), value);
            add(what, other, fits);
        }
    }
    samples
}

/// Whether a schema allows no other members.
fn is_closed(schema: &Value) -> bool {
    match schema["oneOf"].as_array() {
        Some(several) if schema["properties"].is_null() => several.iter().all(is_closed),
        _ => schema["additionalProperties"] == false,
    }
}

/// Values for a member, and whether they are of its type. Of a member that is described elsewhere there are none.
fn changes(rules: &Value) -> Vec<(Value, bool)> {
    let nothing = json!("no-such-word");
    if rules["enum"].is_array() || rules.get("const").is_some() {
        return vec![(nothing, false), (json!(7), false), (json!(null), false)];
    }
    let one = std::slice::from_ref(rules);
    let any_of = rules["anyOf"].as_array().map_or(one, Vec::as_slice);
    let said = ["type", "enum", "$ref", "oneOf", "allOf"];
    let is_anything = |rules: &&Value| {
        rules.as_object().map_or(rules.as_bool() == Some(true), |rules| {
            said.iter().chain(&["anyOf"]).all(|key| !rules.contains_key(*key))
        })
    };
    if any_of.iter().any(|rules| is_anything(&rules)) {
        return vec![(nothing, true), (json!(7.5), true), (json!([[]]), true)];
    }
    if any_of.iter().any(|rules| rules.get("type").is_none() && rules.get("enum").is_none()) {
        return Vec::new();
    }
    // Of an open list of words the other alternative is any text.
    let types = any_of.iter().flat_map(|rules| match &rules["type"] {
        Value::Array(several) => several.clone(),
        one => vec![one.clone()],
    });
    let types: Vec<Value> = types.collect();
    let has = |name: &str| types.iter().any(|kind| kind == name);
    let mut values = vec![
        (json!(null), has("null")),
        (json!(true), has("boolean")),
        (nothing, has("string")),
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
