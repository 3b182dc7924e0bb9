//! The types of `bindings/` against the schemas that they are made from, and against documents.
//!
//! Theory of operation. That the files are what the generator makes says nothing about the generator. So the files
//! are read as their users read them, the Python by Python itself ([`python`]), the TypeScript by a reader of its
//! declarations ([`declarations`]) and, where there is one, by its compiler ([`typescript`]); and each is asked about
//! every vector, recording, case, example and everything that the library writes ([`samples`]). What a schema accepts has to be of the type. Of the
//! examples and of written documents, changes are made whose answer follows from the schema: a member that must be there is left out, one is of a
//! wrong type, a word is not listed, one more member stands there.

mod declarations;
mod python;
mod samples;
mod typescript;

use std::fs;

use crate::schemas::here;

#[test]
fn the_types_are_what_the_schemas_make() {
    let made = testkit::bindings::files(&here("spec/schemas")).expect("each has a type");
    assert_eq!(made.len(), 4, "one file for each language and layer");
    for (name, text) in made {
        let there = fs::read_to_string(here("bindings").join(name)).unwrap_or_default();
        assert!(
            there == text,
            "{name} is not what the schemas make: cargo run -p testkit --bin make-types"
        );
    }
}
