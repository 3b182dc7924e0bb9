//! Types for other languages, made from the hand-written schemas of `spec/schemas`.
//!
//! Theory of operation. `shape` reads the schemas into declarations of its own, in which each type is declared
//! before it is used; `typescript` and `python` write them down. [`files`] is both, as paths below `bindings/`
//! and texts; the program `make-types` writes them and a test compares them with what lies there. The same
//! schemas make the same bytes. Each layer of the schemas has its files: what a reader has to bear, and what
//! this library writes.
//!
//! A type is wider than its schema, never narrower: what the schema accepts is of the type. Conditions over several
//! members, patterns, lengths and bounds are not told. A form of schema that would have to be narrowed or guessed
//! is an error, so that nobody extends the schemas past the types in silence.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

mod layer;
mod python;
mod shape;
mod typescript;

/// The program that writes the files, as a command in the repository.
const COMMAND: &str = "cargo run -p testkit --bin make-types";

/// Every file of the bindings that is made: its path below `bindings/`, and its text. `schemas` is the directory of
/// the layers.
///
/// # Errors
/// A schema that cannot be read, or of a form that no type stands for; the error names the place.
pub fn files(schemas: &Path) -> io::Result<BTreeMap<&'static str, String>> {
    let mut files = BTreeMap::new();
    for layer in &layer::ALL {
        let types = shape::read(&schemas.join(layer.dir), layer)?;
        files.insert(layer.python, python::write(&types, layer));
        files.insert(layer.typescript, typescript::write(&types, layer));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};

    use super::*;
    use crate::tree;

    /// What is made of the schemas when one of those of what a reader has to bear is changed.
    fn changed(
        name: &str,
        change: impl Fn(&mut Value),
    ) -> io::Result<BTreeMap<&'static str, String>> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let top = dir.path().join("schemas");
        let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../spec/schemas");
        tree::copy(&real, &top).expect("there are schemas");
        let path = top.join(format!("v1/{name}.schema.json"));
        let mut schema = serde_json::from_slice(&fs::read(&path).expect("readable")).expect("JSON");
        change(&mut schema);
        fs::write(&path, schema.to_string()).expect("written");
        files(&top)
    }

    #[test]
    fn a_member_that_is_added_to_a_schema_is_in_both_languages() {
        let made = changed("roots", |schema| {
            schema["$defs"]["root"]["properties"]["class"] = json!({"type": ["integer", "null"]});
        });
        let made = made.expect("each has a type");
        let (python, typescript) =
            (&made["python/runstore_types.py"], &made["typescript/runstore.d.ts"]);
        assert!(typescript.contains("\n  class?: number | null;\n"), "{typescript}");
        // A word of the language is no name of a member of a class.
        let odd = "\n_RootsRootNamed = TypedDict(\"_RootsRootNamed\", {\n    \"class\": Union[int, None],\n}, total=False)\n";
        assert!(python.contains(odd), "{python}");
        assert!(python.contains("\nclass RootsRoot(_RootsRootNamed):\n"), "{python}");
    }

    #[test]
    fn a_form_that_no_type_stands_for_is_refused_with_its_place() {
        let properties = |key: &'static str, value: Value| {
            move |schema: &mut Value| schema["properties"][key] = value.clone()
        };
        let refused = |name: &str, change: &dyn Fn(&mut Value), said: &str| {
            let error = changed(name, change).expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        };
        refused("roots", &properties("x", json!({"enum": ["a", 1]})), "no list of words");
        refused("roots", &properties("x", json!({"minimum": 1, "items": true})), "no type is told");
        let beside = json!({"$ref": "#/$defs/root", "required": ["path"]});
        refused("roots", &properties("x", beside), "$ref stands beside");
        refused("roots", &|s| s["required"] = json!(["y"]), "y is required and not described");
        let condition = json!({"if": {"required": ["y"]}, "then": {}});
        refused("roots", &|s| s["allOf"] = json!([condition]), "y is named in a condition");
        let untyped = |s: &mut Value| drop(s.as_object_mut().expect("an object").remove("type"));
        refused("roots", &untyped, "roots: a type with a name is an object");
        let twice = |s: &mut Value| {
            for key in ["x", "y"] {
                s["properties"][key] = json!({"enum": ["only", "here"]});
            }
        };
        refused("roots", &twice, "give them a name in layer.rs");
    }
}
