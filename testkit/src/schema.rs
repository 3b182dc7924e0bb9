//! A small validator for the JSON Schemas of `spec/schemas`.
//!
//! Theory of operation. [`Schemas::load`] reads every schema of a directory and refuses a keyword that
//! it does not know, so no part of a schema is passed over in silence. What is known is the part of
//! JSON Schema 2020-12 that these schemas use: annotations, types, constants, bounds, members, items,
//! the combinators and `$ref` to a definition of the same schema or to another whole schema.
//! [`Schemas::check`] returns one line for each broken rule, with the place in the instance.
//!
//! Not promised: any other keyword, dialect or form of reference. A document is checked by itself:
//! nothing here looks at files, names or processes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use regex_lite::Regex;
use serde_json::{Map, Value};

/// Every schema of a directory, by the last part of its `$id`.
#[derive(Debug)]
pub struct Schemas {
    by_name: BTreeMap<String, Value>,
    urn: String,
    patterns: BTreeMap<String, Regex>,
}

/// What every `$id` starts with, before the name of the directory.
const URN: &str = "urn:runstore:schema:";

/// How deep a reference may lead; schemas that refer to themselves are not used.
const MAX_DEPTH: usize = 64;

/// Keywords whose value is one schema.
const ONE: [&str; 7] =
    ["items", "additionalProperties", "propertyNames", "contains", "if", "then", "else"];
/// Keywords whose value is a list of schemas.
const LIST: [&str; 3] = ["anyOf", "oneOf", "allOf"];
/// Keywords whose value is an object of schemas.
const NAMED: [&str; 2] = ["properties", "$defs"];
/// Keywords with a plain value.
const PLAIN: [&str; 16] = [
    "$schema",
    "$id",
    "$ref",
    "$comment",
    "title",
    "type",
    "required",
    "const",
    "enum",
    "minimum",
    "exclusiveMinimum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
];

impl Schemas {
    /// Loads every `*.schema.json` of a directory, whose name is part of their ids.
    ///
    /// # Errors
    /// A file that cannot be read, is not JSON, has a keyword that is not known here, or a reference
    /// or pattern that leads nowhere.
    pub fn load(dir: &Path) -> io::Result<Self> {
        let layer = dir.file_name().unwrap_or_default().to_string_lossy();
        let urn = format!("{URN}{layer}:");
        let mut schemas = Self { by_name: BTreeMap::new(), urn, patterns: BTreeMap::new() };
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(name) = file.strip_suffix(".schema.json") else { continue };
            let schema: Value = serde_json::from_slice(&fs::read(&path)?)?;
            if schema["$id"] != format!("{}{name}", schemas.urn) {
                return Err(wrong(&file, "its `$id` is not its file name"));
            }
            schemas.by_name.insert(name.to_owned(), schema);
        }
        for (name, schema) in schemas.by_name.clone() {
            schemas.look_through(&name, &schema, &name)?;
        }
        Ok(schemas)
    }

    /// The names of the schemas, such as `status`, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// A part of a schema by its JSON pointer, such as `/properties/state`; the whole with `""`.
    pub fn part(&self, name: &str, pointer: &str) -> Option<&Value> {
        self.by_name.get(name)?.pointer(pointer)
    }

    /// What is wrong with an instance by the named schema; `pointer` leads to the part that applies.
    ///
    /// # Panics
    /// When there is no such schema or part.
    pub fn check(&self, name: &str, pointer: &str, instance: &Value) -> Vec<String> {
        let schema =
            self.part(name, pointer).unwrap_or_else(|| panic!("no schema {name}{pointer}"));
        let mut bad = Vec::new();
        self.apply(name, schema, instance, "", 0, &mut bad);
        bad
    }

    /// Refuses what [`Schemas::apply`] would pass over, and prepares the patterns.
    fn look_through(&mut self, name: &str, schema: &Value, place: &str) -> io::Result<()> {
        if schema.is_boolean() {
            return Ok(());
        }
        let members = schema.as_object().ok_or_else(|| wrong(place, "no schema"))?;
        for (key, value) in members {
            let place = format!("{place}/{key}");
            let key = key.as_str();
            if ONE.contains(&key) {
                self.look_through(name, value, &place)?;
            } else if LIST.contains(&key) {
                let list = value.as_array().ok_or_else(|| wrong(&place, "no list"))?;
                for schema in list {
                    self.look_through(name, schema, &place)?;
                }
            } else if NAMED.contains(&key) {
                let named = value.as_object().ok_or_else(|| wrong(&place, "no object"))?;
                for (key, schema) in named {
                    self.look_through(name, schema, &format!("{place}/{key}"))?;
                }
            } else if key == "pattern" {
                let text = value.as_str().ok_or_else(|| wrong(&place, "no pattern"))?;
                let regex = Regex::new(text).map_err(|e| wrong(&place, &e.to_string()))?;
                self.patterns.insert(text.to_owned(), regex);
            } else if !PLAIN.contains(&key) {
                return Err(wrong(&place, "a keyword that is not known here"));
            }
            if key == "$ref" && self.referred(name, value).is_none() {
                return Err(wrong(&place, "it leads nowhere"));
            }
        }
        Ok(())
    }

    fn referred<'s>(&'s self, name: &'s str, to: &Value) -> Option<(&'s str, &'s Value)> {
        let to = to.as_str()?;
        if let Some(pointer) = to.strip_prefix('#') {
            return Some((name, self.part(name, pointer)?));
        }
        let (name, schema) = self.by_name.get_key_value(to.strip_prefix(self.urn.as_str())?)?;
        Some((name, schema))
    }

    fn holds(&self, name: &str, schema: &Value, instance: &Value, depth: usize) -> bool {
        let mut bad = Vec::new();
        self.apply(name, schema, instance, "", depth + 1, &mut bad);
        bad.is_empty()
    }

    fn apply(
        &self,
        name: &str,
        schema: &Value,
        instance: &Value,
        at: &str,
        depth: usize,
        bad: &mut Vec<String>,
    ) {
        assert!(depth < MAX_DEPTH, "{name}: the schema refers to itself");
        let Some(rules) = schema.as_object() else {
            if schema == &Value::Bool(false) {
                bad.push(format!("{at}: must be absent"));
            }
            return;
        };
        if let Some(to) = rules.get("$ref") {
            let (name, schema) = self.referred(name, to).expect("checked when it was loaded");
            self.apply(name, schema, instance, at, depth + 1, bad);
        }
        self.value(rules, instance, at, bad);
        self.combined(name, rules, instance, at, depth, bad);
        match instance {
            Value::Object(members) => self.object(name, rules, members, at, depth, bad),
            Value::Array(items) => self.array(name, rules, items, at, depth, bad),
            Value::String(text) => self.text(rules, text, at, bad),
            _ => {}
        }
    }

    /// Type, constants and bounds of numbers.
    fn value(&self, rules: &Map<String, Value>, instance: &Value, at: &str, bad: &mut Vec<String>) {
        if let Some(wanted) = rules.get("type") {
            let one = std::slice::from_ref(wanted);
            let types = wanted.as_array().map_or(one, Vec::as_slice);
            if !types.iter().any(|t| is_of_type(instance, t.as_str().unwrap_or_default())) {
                bad.push(format!("{at}: must be {wanted}"));
            }
        }
        if let Some(wanted) = rules.get("const").filter(|wanted| !equal(wanted, instance)) {
            bad.push(format!("{at}: must be {wanted}"));
        }
        let words = rules.get("enum").and_then(Value::as_array);
        if words.is_some_and(|words| !words.iter().any(|word| equal(word, instance))) {
            bad.push(format!("{at}: must be one of the listed words"));
        }
        let bound = |key| rules.get(key).and_then(Value::as_f64).zip(instance.as_f64());
        if bound("minimum").is_some_and(|(least, number)| number < least) {
            bad.push(format!("{at}: too small"));
        }
        if bound("exclusiveMinimum").is_some_and(|(below, number)| number <= below) {
            bad.push(format!("{at}: too small"));
        }
    }

    fn combined(
        &self,
        name: &str,
        rules: &Map<String, Value>,
        instance: &Value,
        at: &str,
        depth: usize,
        bad: &mut Vec<String>,
    ) {
        let count = |key| {
            let list = rules.get(key).and_then(Value::as_array)?;
            Some(list.iter().filter(|schema| self.holds(name, schema, instance, depth)).count())
        };
        if count("anyOf") == Some(0) {
            bad.push(format!("{at}: none of the alternatives"));
        }
        if count("oneOf").is_some_and(|n| n != 1) {
            bad.push(format!("{at}: not exactly one of the alternatives"));
        }
        for schema in rules.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.apply(name, schema, instance, at, depth + 1, bad);
        }
        if let Some(condition) = rules.get("if") {
            let holds = self.holds(name, condition, instance, depth);
            if let Some(schema) = rules.get(if holds { "then" } else { "else" }) {
                self.apply(name, schema, instance, at, depth + 1, bad);
            }
        }
    }

    fn object(
        &self,
        name: &str,
        rules: &Map<String, Value>,
        members: &Map<String, Value>,
        at: &str,
        depth: usize,
        bad: &mut Vec<String>,
    ) {
        for key in rules.get("required").and_then(Value::as_array).into_iter().flatten() {
            let key = key.as_str().unwrap_or_default();
            if !members.contains_key(key) {
                bad.push(format!("{at}/{key}: missing"));
            }
        }
        let listed = rules.get("properties").and_then(Value::as_object);
        for (key, value) in members {
            let place = format!("{at}/{key}");
            let own = listed.and_then(|listed| listed.get(key));
            if let Some(schema) = own.or_else(|| rules.get("additionalProperties")) {
                self.apply(name, schema, value, &place, depth + 1, bad);
            }
            if let Some(schema) = rules.get("propertyNames") {
                self.apply(name, schema, &Value::String(key.clone()), &place, depth + 1, bad);
            }
        }
    }

    fn array(
        &self,
        name: &str,
        rules: &Map<String, Value>,
        items: &[Value],
        at: &str,
        depth: usize,
        bad: &mut Vec<String>,
    ) {
        for (index, item) in items.iter().enumerate() {
            if let Some(schema) = rules.get("items") {
                self.apply(name, schema, item, &format!("{at}/{index}"), depth + 1, bad);
            }
            if rules.get("uniqueItems") == Some(&Value::Bool(true)) && items[..index].contains(item)
            {
                bad.push(format!("{at}/{index}: a repetition"));
            }
        }
        let needed = |schema| items.iter().any(|item| self.holds(name, schema, item, depth));
        if rules.get("contains").is_some_and(|schema| !needed(schema)) {
            bad.push(format!("{at}: the needed item is missing"));
        }
        if rules.get("minItems").and_then(Value::as_u64).is_some_and(|n| (items.len() as u64) < n) {
            bad.push(format!("{at}: too few items"));
        }
        if rules.get("maxItems").and_then(Value::as_u64).is_some_and(|n| (items.len() as u64) > n) {
            bad.push(format!("{at}: too many items"));
        }
    }

    fn text(&self, rules: &Map<String, Value>, text: &str, at: &str, bad: &mut Vec<String>) {
        let length = text.chars().count() as u64;
        let bound = |key| rules.get(key).and_then(Value::as_u64);
        if bound("minLength").is_some_and(|least| length < least) {
            bad.push(format!("{at}: too short"));
        }
        if bound("maxLength").is_some_and(|most| length > most) {
            bad.push(format!("{at}: too long"));
        }
        let pattern = rules.get("pattern").and_then(Value::as_str);
        if pattern.is_some_and(|pattern| !self.patterns[pattern].is_match(text)) {
            bad.push(format!("{at}: of another form"));
        }
    }
}

fn is_of_type(instance: &Value, name: &str) -> bool {
    match name {
        "null" => instance.is_null(),
        "boolean" => instance.is_boolean(),
        "string" => instance.is_string(),
        "array" => instance.is_array(),
        "object" => instance.is_object(),
        "number" => instance.is_number(),
        // A number without a fraction is an integer, however it is spelled.
        "integer" => instance.as_f64().is_some_and(|n| n.fract() == 0.0),
        other => panic!("no such type: {other}"),
    }
}

/// Numbers are equal by value: `1` and `1.0` are one number.
fn equal(one: &Value, other: &Value) -> bool {
    one == other || one.as_f64().zip(other.as_f64()).is_some_and(|(a, b)| a.total_cmp(&b).is_eq())
}

fn wrong(place: &str, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{place}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn load(mut schema: Value) -> io::Result<Schemas> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let layer = dir.path().join("v1");
        fs::create_dir(&layer).expect("made");
        schema["$id"] = json!(format!("{URN}v1:it"));
        fs::write(layer.join("it.schema.json"), schema.to_string()).expect("written");
        Schemas::load(&layer)
    }

    /// Asserts what a schema accepts and what it refuses.
    fn rule(schema: Value, good: &[Value], bad: &[Value]) {
        let schemas = load(schema.clone()).expect("a schema of known keywords");
        for instance in good {
            let said = schemas.check("it", "", instance);
            assert!(said.is_empty(), "{schema} accepts {instance}: {said:?}");
        }
        for instance in bad {
            assert!(!schemas.check("it", "", instance).is_empty(), "{schema} refuses {instance}");
        }
    }

    #[test]
    fn types_constants_and_bounds_are_judged_by_value() {
        rule(
            json!({"type": "integer"}),
            &[json!(1), json!(1.0), json!(1e20)],
            &[json!(1.5), json!("1")],
        );
        rule(
            json!({"type": ["string", "null"]}),
            &[json!(""), json!(null)],
            &[json!(0), json!([])],
        );
        rule(json!({"const": 1}), &[json!(1), json!(1.0)], &[json!("1"), json!(true), json!(2)]);
        rule(json!({"enum": ["a", "b"]}), &[json!("a")], &[json!("A"), json!(null)]);
        rule(json!({"minimum": 0}), &[json!(0), json!("text")], &[json!(-0.5)]);
        rule(json!({"exclusiveMinimum": 0}), &[json!(0.1)], &[json!(0)]);
        rule(
            json!({"minLength": 1, "maxLength": 2}),
            &[json!("éé"), json!(7)],
            &[json!(""), json!("ééé")],
        );
        rule(
            json!({"pattern": "^[^/]+\\.json$"}),
            &[json!("a.json")],
            &[json!("a/b.json"), json!("a")],
        );
    }

    #[test]
    fn members_and_items_are_judged_at_their_place() {
        let object = json!({"type": "object", "required": ["a"],
            "properties": {"a": {"type": "string"}, "b": false},
            "additionalProperties": {"type": "number"}, "propertyNames": {"maxLength": 3}});
        rule(
            object,
            &[json!({"a": ""}), json!({"a": "", "c": 1})],
            &[
                json!({}),
                json!({"a": 1}),
                json!({"a": "", "b": 1}),
                json!({"a": "", "c": ""}),
                json!({"a": "", "long": 1}),
            ],
        );
        let array = json!({"type": "array", "minItems": 1, "maxItems": 2, "uniqueItems": true,
            "items": {"type": "number"}, "contains": {"const": 2}});
        rule(
            array,
            &[json!([1, 2])],
            &[json!([]), json!([1]), json!([2, 2]), json!([2, ""]), json!([2, 1, 3])],
        );
        let schemas = load(json!({"items": {"required": ["x"]}})).expect("known keywords");
        assert_eq!(schemas.check("it", "", &json!([{"x": 1}, {}])), ["/1/x: missing"]);
    }

    #[test]
    fn combinators_and_references_lead_to_other_rules() {
        let any = json!({"anyOf": [{"type": "string"}, {"minimum": 5}]});
        rule(any, &[json!("x"), json!(6)], &[json!(4)]);
        let one = json!({"oneOf": [{"type": "number"}, {"minimum": 5}]});
        rule(one, &[json!(4), json!("x")], &[json!(6)]);
        rule(
            json!({"allOf": [{"minimum": 1}, {"type": "number"}]}),
            &[json!(1)],
            &[json!(0), json!("")],
        );
        let when = json!({"if": {"const": 1}, "then": false, "else": {"type": "string"}});
        rule(when, &[json!("x")], &[json!(1), json!(2)]);
        let reference = json!({"$ref": "#/$defs/text", "$defs": {"text": {"type": "string"}}});
        rule(reference, &[json!("x")], &[json!(1)]);
        rule(
            json!({"properties": {"in": {"$ref": "urn:runstore:schema:v1:it"}}, "type": "object"}),
            &[json!({"in": {}})],
            &[json!({"in": {"in": 1}})],
        );
    }

    #[test]
    fn a_schema_with_anything_unknown_is_refused_when_it_is_loaded() {
        for schema in [
            json!({"maximum": 3}),
            json!({"properties": {"a": {"format": "uri"}}}),
            json!({"$ref": "#/$defs/nowhere"}),
            json!({"$ref": "urn:runstore:schema:v1:other"}),
            json!({"items": 5}),
        ] {
            assert!(load(schema.clone()).is_err(), "{schema} cannot be judged");
        }
    }
}
