//! What the chapters of the spec say about the code, compared with the code.

use std::collections::BTreeSet;

use runstore::protocol::Word as _;
use runstore::protocol::finding;

use crate::schemas::here;

fn read(path: &str) -> String {
    std::fs::read_to_string(here(path)).expect("the spec is part of the project")
}

/// The cells of the rows of the table below a line, without its head.
fn table(text: &str, head: &str) -> Vec<Vec<String>> {
    let rest = text.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    rest.take_while(|line| line.starts_with('|'))
        .map(|line| {
            line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
        })
        .collect()
}

/// The texts between back quotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn the_table_of_chapters_names_every_module_of_the_protocol_and_no_other() {
    let rows = table(&read("spec/README.md"), "| chapter | module");
    let chapters = std::fs::read_dir(here("spec")).expect("there is a spec").filter(|entry| {
        let name = entry.as_ref().expect("readable").file_name();
        name.to_string_lossy().starts_with(|c: char| c.is_ascii_digit())
    });
    assert_eq!(rows.len(), chapters.count(), "every chapter has a row");
    let named: BTreeSet<String> =
        rows.iter().flat_map(|row| quoted(&row[1])).map(str::to_owned).collect();
    for path in &named {
        assert!(here("src").join(path).exists(), "{path} is named and has to be there");
    }
    for entry in std::fs::read_dir(here("src/protocol")).expect("the library has a protocol") {
        let entry = entry.expect("readable");
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_folder = entry.path().is_dir();
        if name == "mod.rs" || name.ends_with("_tests.rs") {
            continue;
        }
        let path = format!("protocol/{name}{}", if is_folder { "/" } else { "" });
        assert!(named.contains(&path), "{path} is named at the chapter that it implements");
    }
    let schemas: BTreeSet<String> =
        rows.iter().flat_map(|row| quoted(&row[2])).map(str::to_owned).collect();
    let there: BTreeSet<String> = std::fs::read_dir(here("spec/schemas/v1"))
        .expect("there are schemas")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .map(|name| name.trim_end_matches(".schema.json").to_owned())
        .collect();
    assert_eq!(schemas, there, "every schema belongs to a chapter");
}

#[test]
fn the_table_of_findings_is_that_of_the_code() {
    let rows = table(&read("spec/11-diagnosis.md"), "| id | severity | meaning");
    let ids: Vec<_> = rows.iter().filter_map(|row| quoted(&row[0]).next()).collect();
    let ours: Vec<_> = finding::ALL.iter().map(|kind| kind.id).collect();
    assert_eq!(ids, ours, "the ids of the code, in their order");
    for (row, kind) in rows.iter().zip(finding::ALL) {
        let id = kind.id;
        assert_eq!(row[1], kind.severity.as_str(), "{id}: its severity");
        assert!(kind.meaning.starts_with(&row[2]), "{id}: its meaning begins so");
        assert_eq!(row[3], kind.clauses.join(", "), "{id}: the clauses that it rests on");
    }
}
