//! The TypeScript types: read by the reader of [`declarations`](super::declarations), and by the compiler where there is one.
//!
//! The compiler is the program that `RUNSTORE_TSC` names, else `tsc` on the path. It is no part of the tools of this
//! repository, and nothing is fetched for it.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use testkit::process::skip;
use testkit::program::is_there;

use super::declarations::Declarations;
use super::samples::{self, Sample};
use crate::schemas::here;

/// The files: of what a reader has to bear, and of what the library writes.
const FILES: [&str; 2] = ["runstore.d.ts", "runstore-written.d.ts"];

fn path(file: &str) -> PathBuf {
    here("bindings/typescript").join(file)
}

fn declarations() -> [Declarations; 2] {
    let read = |file| fs::read_to_string(path(file)).expect("it is part of the project");
    FILES.map(|file| Declarations::read(&read(file)))
}

#[test]
fn every_document_that_a_schema_accepts_is_of_its_typescript_type() {
    let declared = declarations();
    for file in &declared {
        assert_eq!(file.undeclared(), Vec::<String>::new(), "every name is declared");
    }
    let samples = samples::all();
    let fits = |one: &Sample| {
        let file = &declared[usize::from(one.is_written)];
        file.fits(&file.of_schema(&one.schema), &one.document)
    };
    let wrong = samples.iter().filter(|one| fits(one) != one.fits);
    let wrong: Vec<_> = wrong.map(|one| format!("{}: {}", one.schema, one.what)).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), samples.len(), wrong.join("\n"));
}

#[test]
fn the_reader_of_declarations_tells_types_apart_and_passes_nothing_over() {
    let declared = Declarations::read(
        "// A file.\nexport type W =\n  | \"a\"\n  | \"b\";\n/** Of * it. */\nexport interface T {\n  \"x-y\": W;\n  \
         o?: W | (string & {}) | null;\n  n?: Array<number>;\n  r?: Partial<Record<W, 1>>;\n  z?: never;\n  \
         [member: string]: unknown;\n}\nexport interface C {\n  a?: 1;\n}\n",
    );
    for good in [
        json!({"x-y": "a"}),
        json!({"x-y": "b", "o": "c", "n": [1, 2.5], "r": {"a": 1.0}, "more": {}}),
        json!({"x-y": "b", "o": null, "n": []}),
    ] {
        assert!(declared.fits("T", &good), "{good}");
    }
    for bad in [
        json!([]),
        json!({}),
        json!({"x-y": "c"}),
        json!({"x-y": "a", "o": 1}),
        json!({"x-y": "a", "n": ["1"]}),
        json!({"x-y": "a", "r": {"c": 1}}),
        json!({"x-y": "a", "r": {"a": 2}}),
        json!({"x-y": "a", "z": null}),
    ] {
        assert!(!declared.fits("T", &bad), "{bad}");
    }
    let closed = [json!({}), json!({"a": 1}), json!({"b": 1})];
    assert_eq!(closed.map(|value| declared.fits("C", &value)), [true, true, false]);
    for strange in ["export class X {}", "export type X = string[];", "export type X = keyof Y;"] {
        let read = std::panic::catch_unwind(|| Declarations::read(strange));
        assert!(read.is_err(), "{strange}: not understood, so refused");
    }
}

/// The compiler, if there is one.
fn compiler() -> Option<Command> {
    let named = std::env::var_os("RUNSTORE_TSC").unwrap_or_else(|| "tsc".into());
    is_there(&named).then(|| Command::new(named))
}

/// A program that says of each document that it is of its type, and of each bad one that it is not.
fn program(samples: &[Sample], declared: &[Declarations; 2]) -> String {
    let mut text = String::new();
    for (name, file) in ["reader", "writer"].iter().zip(FILES) {
        let _ = writeln!(text, "import type * as {name} from \"./{}\";", file.replace(".d.ts", ""));
    }
    for (number, one) in samples.iter().enumerate() {
        let name = declared[usize::from(one.is_written)].of_schema(&one.schema);
        let module = if one.is_written { "writer" } else { "reader" };
        if !one.fits {
            text.push_str("// @ts-expect-error\n");
        }
        let document = literal(&one.document);
        let _ = writeln!(text, "export const d{number}: {module}.{name} = {document};");
    }
    text
}

/// JSON as an expression. `__proto__` would not be a member.
fn literal(value: &Value) -> String {
    value.to_string().replace("\"__proto__\":", "[\"__proto__\"]:")
}

#[test]
fn the_compiler_agrees_about_every_document() {
    let Some(mut compiler) = compiler() else {
        return skip("tsc", "there is no compiler of TypeScript; RUNSTORE_TSC may name one");
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let samples = samples::all();
    for file in FILES {
        fs::copy(path(file), dir.path().join(file)).expect("room");
    }
    let documents = dir.path().join("documents.ts");
    fs::write(&documents, program(samples, &declarations())).expect("room");
    let args = [
        "--strict",
        "--noEmit",
        "--target",
        "es2022",
        "--module",
        "es2022",
        "--skipLibCheck",
        "false",
    ];
    let out =
        compiler.args(args).arg(&documents).current_dir(dir.path()).output().expect("started");
    let said = String::from_utf8_lossy(&out.stdout);
    let said: String = said.lines().take(20).flat_map(|line| [line, "\n"]).collect();
    assert!(out.status.success(), "{} documents: {said}", samples.len());
}
