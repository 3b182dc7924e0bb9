//! The rules, each a function of files that returns one line per problem.
//!
//! Theory of operation. A rule looks at one [`File`] or at all of them, and knows nothing of a disk. A
//! problem starts with the path, and the line where there is one, so that an editor can jump to it.
//! Every rule has a bad and a good sample in `samples.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{code, coverage};

/// One file: its path from the top of the repository, with slashes, and its text.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Longer files are split.
pub(crate) const LINES: usize = 700;

/// Roles: users of the store that never use one another.
const ROLES: [&str; 7] = ["launcher", "runner", "observer", "recover", "inspect", "check", "wait"];

/// What `protocol` must not name of the standard library: everything that touches the world.
const WORLD: [&str; 7] = ["fs", "io", "net", "process", "env", "thread", "os"];

/// Crates that touch the world.
const WORLD_CRATES: [&str; 4] = ["rustix", "libc", "tempfile", "walkdir"];

/// Every problem of a whole repository.
pub(crate) fn all(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for file in files {
        out.extend(arrows(file));
        out.extend(pure_protocol(file));
        out.extend(docs(file));
        out.extend(finished(file));
        out.extend(size(file));
        out.extend(machine_paths(file));
        out.extend(rows_once(file));
    }
    out.extend(declared(files));
    out.extend(clauses(files));
    out.extend(coverage::covered(files, &coverage::WAIVED));
    out.extend(crash_rows(files));
    out
}

/// The arrows of `ARCHITECTURE.md`: `protocol` uses itself, `store` also `protocol`, a role also
/// `store`, and the command line only what the library shows to everybody.
pub(crate) fn arrows(file: &File) -> Vec<String> {
    let Some(inside) = file.path.strip_prefix("src/").filter(|_| is_rust(file)) else {
        return Vec::new();
    };
    let area = inside.split('/').next().unwrap_or_default().trim_end_matches(".rs");
    let may: Vec<&str> = match area {
        "lib" => return Vec::new(),
        "protocol" => vec!["protocol"],
        "store" => vec!["protocol", "store"],
        "cli" | "main" => vec!["cli"],
        role => vec!["protocol", "store", role],
    };
    let known =
        |name: &str| ROLES.contains(&name) || matches!(name, "protocol" | "store" | "cli" | "main");
    let stripped = code::strip(&file.text);
    let mut used = code::names_after(&stripped, "crate");
    used.extend(names_above(&stripped, inside));
    // The library cannot name itself by its crate name, except by mistake.
    if !matches!(area, "cli" | "main") {
        used.extend(code::names_after(&stripped, "runstore"));
    }
    used.retain(|(_, name)| known(name) && !may.contains(&name.as_str()));
    used.into_iter()
        .map(|(line, name)| {
            let allowed = may.join(" and ");
            format!("{}:{line}: {area} uses {name}; it may use {allowed} only", file.path)
        })
        .collect()
}

/// Names reached by climbing out of the file's area: `super::super::store` in a file two levels deep.
fn names_above(stripped: &str, inside: &str) -> Vec<(usize, String)> {
    let parts = inside.trim_end_matches(".rs").trim_end_matches("/mod").split('/').count();
    let top = vec!["super"; parts].join("::");
    code::names_after(stripped, &top)
}

/// `protocol` does no I/O: no file, clock, process, environment, thread or socket.
pub(crate) fn pure_protocol(file: &File) -> Vec<String> {
    let is_test = file.path.ends_with("tests.rs");
    let inside = file.path.starts_with("src/protocol/") || file.path == "src/protocol.rs";
    if !is_rust(file) || !inside || is_test {
        return Vec::new();
    }
    let stripped = code::strip(&file.text);
    let code = code::without_tests(&stripped);
    let mut found = Vec::new();
    for (line, name) in code::names_after(code, "std") {
        if WORLD.contains(&name.as_str()) {
            found.push((line, format!("std::{name}")));
        }
    }
    for word in ["SystemTime", "Instant"] {
        found.extend(code::lines_of_word(code, word).into_iter().map(|line| (line, word.into())));
    }
    for name in WORLD_CRATES {
        found
            .extend(code::names_after(code, name).into_iter().map(|(line, _)| (line, name.into())));
    }
    found
        .into_iter()
        .map(|(line, what)| format!("{}:{line}: protocol does no I/O, but names {what}", file.path))
        .collect()
}

/// Every module opens with its docs.
pub(crate) fn docs(file: &File) -> Vec<String> {
    let first = file.text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let told = first.strip_prefix("//!").is_some_and(|text| !text.trim().is_empty());
    // A shebang or an attribute may not stand before the docs either: the docs are the first thing.
    if !is_rust(file) || told {
        return Vec::new();
    }
    vec![format!("{}:1: a module opens with `//!` docs", file.path)]
}

/// Nothing unfinished: no placeholder, and no ignored test without a reason.
pub(crate) fn finished(file: &File) -> Vec<String> {
    if !is_rust(file) {
        return Vec::new();
    }
    let stripped = code::strip(&file.text);
    let mut out = Vec::new();
    for word in ["todo", "unimplemented"] {
        for (at, _) in stripped.match_indices(&format!("{word}!")) {
            let line = code::line_of(&stripped, at);
            out.push(format!("{}:{line}: unfinished code: {word}!", file.path));
        }
    }
    for (at, _) in stripped.match_indices("#[ignore") {
        let rest = stripped[at + "#[ignore".len()..].trim_start();
        if !rest.strip_prefix('=').is_some_and(|r| r.trim_start().starts_with('"')) {
            let line = code::line_of(&stripped, at);
            out.push(format!("{}:{line}: a test is ignored without a reason", file.path));
        }
    }
    out
}

/// A file fits one sitting.
pub(crate) fn size(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    if !is_rust(file) || lines <= LINES {
        return Vec::new();
    }
    vec![format!("{}: {lines} lines; a file has at most {LINES}", file.path)]
}

/// The code map has one row for each place: two come of a merge, and one of them is out of date.
pub(crate) fn rows_once(file: &File) -> Vec<String> {
    if file.path != "ARCHITECTURE.md" {
        return Vec::new();
    }
    let mut seen = BTreeMap::new();
    let mut out = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let Some(place) = line.strip_prefix("| `").and_then(|row| row.split(" |").next()) else {
            continue;
        };
        if let Some(first) = seen.insert(place, number + 1) {
            out.push(format!("{}:{}: `{place} has a row in line {first}", file.path, number + 1));
        }
    }
    out
}

/// No path of the machine on which something was written.
pub(crate) fn machine_paths(file: &File) -> Vec<String> {
    // In pieces, so that this file keeps its own rule.
    let starts = [["/wo", "rk/"], ["/tmp/", "wt-"], ["/fa", "rm/"]].map(|parts| parts.concat());
    let mut out = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let begins = |at: usize| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '*' | '-'))
        };
        if starts.iter().any(|start| line.match_indices(start.as_str()).any(|(at, _)| begins(at))) {
            out.push(format!("{}:{}: a path of somebody's machine", file.path, number + 1));
        }
    }
    out
}

/// Every file below `src` and `tests/it` is declared, so that none is silently not compiled.
pub(crate) fn declared(files: &[File]) -> Vec<String> {
    let by_path: BTreeMap<_, _> = files.iter().map(|file| (file.path.as_str(), file)).collect();
    let mut out = Vec::new();
    for file in files.iter().filter(|file| is_rust(file)) {
        let folders = ["src/", "tests/it/", "conformance/src/", "testkit/src/"];
        let is_crate = ["main.rs", "lib.rs"]
            .iter()
            .any(|name| folders.iter().any(|folder| file.path == format!("{folder}{name}")));
        let is_bin = ["src/bin/", "conformance/src/bin/", "testkit/src/bin/"]
            .iter()
            .any(|folder| file.path.starts_with(folder));
        if is_crate || is_bin || !folders.iter().any(|folder| file.path.starts_with(folder)) {
            continue;
        }
        let (folder, name) = file.path.rsplit_once('/').expect("lies in a folder");
        let (folder, module) = match name {
            "mod.rs" => folder.rsplit_once('/').expect("lies in a folder"),
            _ => (folder, name.trim_end_matches(".rs")),
        };
        let homes = ["/mod.rs", "/lib.rs", "/main.rs", ".rs"].map(|end| format!("{folder}{end}"));
        let declares = |home: &&File| {
            let code = code::strip(&home.text);
            code.lines().any(|line| line.trim().ends_with(&format!("mod {module};")))
        };
        // A sibling may name the file itself, as test modules do.
        let named = |other: &File| {
            other.path.starts_with(&format!("{folder}/"))
                && other.text.contains(&format!("#[path = \"{name}\"]"))
        };
        let home = homes.iter().filter_map(|home| by_path.get(home.as_str()).copied());
        if !home.collect::<Vec<_>>().iter().any(declares) && !files.iter().any(named) {
            out.push(format!("{}: no module declares this file", file.path));
        }
    }
    out
}

/// Every clause that is mentioned is registered, and every registered one is written down at a
/// paragraph of its chapter.
pub(crate) fn clauses(files: &[File]) -> Vec<String> {
    let Some(registry) = files.iter().find(|file| file.path == "spec/clauses.toml") else {
        return vec!["spec/clauses.toml: the clause registry is missing".into()];
    };
    let (entries, mut out) = registered(registry);
    let known: BTreeSet<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
    let places = ["src/", "tests/", "conformance/src/", "conformance/tests/", "testkit/src/"];
    for file in files {
        let chapter = file.path.starts_with("spec/") && file.path.ends_with(".md");
        if !chapter && !places.iter().any(|place| file.path.starts_with(place)) {
            continue;
        }
        for (number, line) in file.text.lines().enumerate() {
            for id in ids(line).into_iter().filter(|id| !known.contains(id)) {
                out.push(format!("{}:{}: unknown clause {id}", file.path, number + 1));
            }
        }
    }
    for entry in entries.iter().filter(|entry| !entry.withdrawn) {
        let path = format!("spec/{}", entry.chapter.trim_start_matches("spec/"));
        let paragraphs = files.iter().filter(|file| file.path == path);
        let written = paragraphs
            .flat_map(|file| file.text.lines())
            .filter(|line| opens_with(line, &entry.id))
            .count();
        if written != 1 {
            let (line, id) = (entry.line, &entry.id);
            out.push(format!(
                "{}:{line}: {id} stands at {written} paragraphs of {path}; it stands at one",
                registry.path
            ));
        }
    }
    out
}

/// Every row of `spec/durability.md` names a crash test that exists, as `file::test` in its last cell.
pub(crate) fn crash_rows(files: &[File]) -> Vec<String> {
    let Some(page) = files.iter().find(|file| file.path == "spec/durability.md") else {
        return Vec::new();
    };
    let exists = |name: &str| {
        let Some((module, test)) = name.split_once("::") else { return false };
        let path = format!("tests/crash/{module}.rs");
        let head = format!("fn {test}(");
        files.iter().any(|file| file.path == path && file.text.contains(&head))
    };
    let mut out = Vec::new();
    for (number, line) in page.text.lines().enumerate() {
        let is_row = line.starts_with("| ") && !line.starts_with("| step ");
        let Some(cell) = line.trim_end().trim_end_matches('|').rsplit('|').next() else { continue };
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if is_row && (names.is_empty() || !names.iter().all(|name| exists(name))) {
            out.push(format!("{}:{}: the row names no crash test", page.path, number + 1));
        }
    }
    out
}

struct Entry {
    id: String,
    chapter: String,
    withdrawn: bool,
    line: usize,
}

/// The entries of the registry. Only `[[clause]]` tables with one-line members are understood.
fn registered(registry: &File) -> (Vec<Entry>, Vec<String>) {
    let mut entries: Vec<Entry> = Vec::new();
    for (number, line) in registry.text.lines().enumerate() {
        let line = line.trim();
        if line == "[[clause]]" {
            let (id, chapter) = (String::new(), String::new());
            entries.push(Entry { id, chapter, withdrawn: false, line: number + 1 });
        }
        let (Some(entry), Some((key, value))) = (entries.last_mut(), line.split_once('=')) else {
            continue;
        };
        let text = value.trim().trim_matches('"').to_owned();
        match key.trim() {
            "id" => entry.id = text,
            "chapter" => entry.chapter = text,
            "withdrawn" => entry.withdrawn = text != "false",
            "status" => entry.withdrawn = text == "withdrawn",
            _ => {}
        }
    }
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in &entries {
        let place = format!("{}:{}", registry.path, entry.line);
        if ids(&entry.id) != [entry.id.as_str()] {
            problems.push(format!("{place}: `{}` is no clause id", entry.id));
        }
        if !seen.insert(&entry.id) {
            problems.push(format!("{place}: {} is registered twice", entry.id));
        }
    }
    if entries.is_empty() {
        problems.push(format!("{}: no clause is registered", registry.path));
    }
    (entries, problems)
}

/// Whether a line of a chapter is the paragraph of a clause: the id comes first, after marks of lists,
/// headings, tables or emphasis.
fn opens_with(line: &str, id: &str) -> bool {
    let text = line.trim_start_matches([' ', '*', '-', '#', '>', '|', '`', '_', '[']);
    text.strip_prefix(id).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
}

/// The clause ids in a line: `RS-`, capitals, `-`, two digits.
pub(crate) fn ids(line: &str) -> Vec<&str> {
    let mut out = Vec::new();
    for (at, _) in line.match_indices("RS-") {
        let rest = &line[at + 3..];
        let area = rest.bytes().take_while(u8::is_ascii_uppercase).count();
        let number = rest.get(area..area + 3).unwrap_or_default();
        let shaped = number.starts_with('-') && number[1..].bytes().all(|b| b.is_ascii_digit());
        let goes_on = rest[(area + 3).min(rest.len())..].starts_with(|c: char| c.is_alphanumeric());
        let starts = !line[..at].ends_with(|c: char| c.is_alphanumeric());
        if area > 0 && shaped && !goes_on && starts {
            out.push(&line[at..at + 3 + area + 3]);
        }
    }
    out
}

fn is_rust(file: &File) -> bool {
    file.path.ends_with(".rs")
}
