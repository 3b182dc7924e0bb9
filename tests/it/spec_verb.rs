//! `runstore spec`: what the program prints is what stands in `spec/`, and a wrong name leads to the right one.
//!
//! Theory of operation. The files are read here anew, by line and without the program's reader, and compared with
//! what the program of this build says.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::ask::{self, Answer, assert_harmless};

fn spec() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("spec")
}

/// The pages of the spec: name without the ending, and text.
fn pages() -> BTreeMap<String, String> {
    let entries = fs::read_dir(spec()).expect("there is a spec");
    let paths = entries.map(|entry| entry.expect("readable").path());
    paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .map(|path| {
            let stem = path.file_stem().expect("named").to_string_lossy().into_owned();
            (stem, fs::read_to_string(&path).expect("text"))
        })
        .collect()
}

/// What the registry says of a clause, by its key.
type Row = BTreeMap<String, String>;

fn registry() -> Vec<Row> {
    let text = fs::read_to_string(spec().join("clauses.toml")).expect("there is a registry");
    let mut rows: Vec<Row> = Vec::new();
    for line in text.lines() {
        if line == "[[clause]]" {
            rows.push(Row::new());
        } else if let (Some(row), Some((key, value))) = (rows.last_mut(), line.split_once(" = ")) {
            row.insert(key.to_owned(), value.trim_matches(['"', '[', ']']).to_owned());
        }
    }
    rows
}

/// The text of a paragraph of a page, which is one line.
fn paragraph(pages: &BTreeMap<String, String>, row: &Row) -> String {
    let page = &pages[row["chapter"].trim_end_matches(".md")];
    let mark = format!("**{}** ", row["id"]);
    let line = page.lines().find_map(|line| line.strip_prefix(&mark));
    line.unwrap_or_else(|| panic!("{} stands in its chapter", row["id"])).to_owned()
}

fn json(name: &str) -> Value {
    let answer = Answer::of(&ask::run(&["spec", name, "--format", "json"]));
    assert_eq!((answer.code, &answer.json["schema"]), (0, &"runstore.spec/1".into()), "{name}");
    answer.json
}

#[test]
fn every_clause_of_the_registry_is_printed_with_its_text() {
    let (pages, rows) = (pages(), registry());
    assert!(rows.len() > 500, "{}", rows.len());
    let mut areas: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        let (area, _) = row["id"].rsplit_once('-').expect("an id has a number");
        areas.entry(area).or_default().push(row);
    }
    for (area, rows) in areas {
        let text = ask::run(&["spec", area]).text();
        let answer = json(area);
        let told = answer["clauses"].as_array().expect("a list");
        assert_eq!(told.len(), rows.len(), "{area}: as many as the registry has");
        for (row, one) in rows.into_iter().zip(told) {
            let (id, whole) = (&row["id"], paragraph(&pages, row));
            assert_eq!(one["id"], **id, "in the order of the registry");
            let head = format!("{id} ({}; {})\n", row["level"], row["role"].replace('"', ""));
            let at = text.find(&head).unwrap_or_else(|| panic!("{head}: {text}"));
            let rest = &text[at..];
            let end = rest[1..].find("\nRS-").map_or(rest.len(), |end| end + 1);
            assert!(rest[..end].contains(&format!("\n\n{whole}\n")), "{id}: {}", &rest[..end]);
            let told = rest[..end].lines().find_map(|line| line.strip_prefix("  facts     "));
            assert_eq!(told.unwrap_or_default(), row["facts"].replace('"', ""), "{id}");
            assert!(one["text"].as_str().is_some_and(|text| text.starts_with(&whole)), "{one:#}");
            assert_eq!(one["file"], format!("spec/{}", row["chapter"]), "{id}");
            assert_eq!(one["since"], *row["since"], "{id}");
            assert!(one["section"].is_string(), "{id} stands below a heading");
        }
    }
}

#[test]
fn a_clause_is_found_by_its_id_in_any_case_and_has_its_table() {
    let one = ask::run(&["spec", "rs-start-47"]);
    assert_eq!(one.code, 0, "{}", one.errors());
    assert_harmless("a clause", &one.stdout);
    let text = one.text();
    assert!(text.starts_with("RS-START-47 (MUST; runner)\n  in        14."), "{text}");
    assert_eq!(text.matches("\nRS-").count(), 0, "one clause, no other: {text}");
    let slot = json("RS-SLOT-04");
    let text = slot["clauses"][0]["text"].as_str().expect("a text");
    assert!(text.contains("table below") && text.contains("\n| 1 |"), "with its table: {text}");
    assert_eq!(slot["chapters"][0]["name"], "09", "and the page that it stands in");
    let whole = ask::run(&["explain", "RS-SLOT-04"]).text();
    assert!(
        whole.contains("\n  whole   runstore spec RS-SLOT-04\n"),
        "explain leads here: {whole}"
    );
}

#[test]
fn every_page_is_printed_as_it_stands() {
    let pages = pages();
    for (stem, text) in &pages {
        let outcome = ask::run(&["spec", stem]);
        assert_eq!((outcome.code, &outcome.text()), (0, text), "{stem}");
    }
    let answer = json("durability");
    assert_eq!(answer["chapters"][0]["text"], *pages["durability"], "in JSON too");
    let start_up = &pages["14-start-up"];
    for name in ["14", "14-START-UP.md", "spec/14-start-up.md", "launcher and runner"] {
        assert_eq!(&ask::run(&["spec", name]).text(), start_up, "{name}");
    }
    for name in ["07", "7", "Events and"] {
        assert_eq!(&ask::run(&["spec", name]).text(), &pages["07-events-and-control"], "{name}");
    }
}

#[test]
fn without_a_name_all_that_can_be_asked_for_is_listed() {
    let text = ask::run(&["spec"]).text();
    let answer = Answer::of(&ask::run(&["spec", "--format", "json"])).json;
    let listed = answer["chapters"].as_array().expect("a list");
    assert_eq!(listed.len(), pages().len(), "every page");
    let sum: u64 = listed.iter().filter_map(|page| page["clauses"].as_u64()).sum();
    assert_eq!(sum, registry().len() as u64, "every clause belongs to one of them");
    for page in listed {
        let word = |key: &str| page[key].as_str().expect("a text").to_owned();
        let line = text.lines().find(|line| line.starts_with(&word("name")));
        let line = line.unwrap_or_else(|| panic!("{page:#}: {text}"));
        assert!(line.contains(&word("title")), "{line}");
        for area in page["areas"].as_array().expect("a list") {
            let told = format!("{} ({})", area["area"].as_str().expect("a text"), area["clauses"]);
            assert!(line.contains(&told), "{told}: {line}");
        }
    }
}

#[test]
fn a_name_that_is_none_leads_to_the_nearest() {
    let wrong = |name: &str| {
        let outcome = ask::run(&["spec", name]);
        assert_eq!(outcome.code, 2, "{name}: {}", outcome.text());
        assert!(outcome.stdout.is_empty(), "{name}: an error is no answer");
        outcome.errors()
    };
    for (name, near) in [
        ("rs-strt-47", "hint: the nearest names: RS-START-47, "),
        ("RS-STARD", "hint: the nearest names: RS-START\n"),
        ("rs-role-99", "RS-ROLE-09"),
        ("recovry", "hint: the nearest names: 16-recovery\n"),
        ("glosary", "glossary"),
    ] {
        let errors = wrong(name);
        assert!(errors.contains(near), "{name}: {errors}");
    }
    let several = wrong("proof");
    assert!(several.contains("hint: runstore spec 06 (Candidate and proof)"), "{several}");
    for name in ["", " ", "no-such-word", "18", &"x".repeat(100_000)] {
        let errors = wrong(name);
        let near = errors.contains("nearest");
        assert!(
            !near && errors.contains("runstore spec lists"),
            "no guess without a reason: {name:.20}"
        );
    }
}
