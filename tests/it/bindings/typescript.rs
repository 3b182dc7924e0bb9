//! The TypeScript types: read by the reader of [`declarations`](super::declarations), and by the compiler where there is one.
//!
//! The compiler is the program that `RUNSTORE_TSC` names, else `tsc` on the path. It is no part of the tools of this
//! repository, and nothing is fetched for it.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use testkit::process::skip;

use super::declarations::Declarations;
use super::here;
use super::samples::{self, Sample};

const FILE: &str = "bindings/typescript/runstore.d.ts";

fn declarations() -> Declarations {
    Declarations::read(&fs::read_to_string(here(FILE)).expect("it is part of the project"))
}

#[test]
fn every_document_that_a_schema_accepts_is_of_its_typescript_type() {
    let declared = declarations();
    assert_eq!(declared.undeclared(), Vec::<String>::new(), "every name is declared");
    let mut samples = samples::accepted();
    let count = samples.len();
    samples.extend(samples::changed());
    let fits = |one: &Sample| declared.fits(&declared.of_schema(&one.schema), &one.document);
    let wrong = samples.iter().filter(|one| fits(one) != one.fits);
    let wrong: Vec<_> = wrong.map(|one| format!("{}: {}", one.schema, one.what)).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), samples.len(), wrong.join("\n"));
    let refused = samples.iter().filter(|one| !one.fits).count();
    assert!(count > 1000 && refused > 500, "{count} documents and {refused} bad ones were asked");
}

#[test]
fn the_reader_of_declarations_tells_types_apart_and_passes_nothing_over() {
    let declared = Declarations::read(
        "// A file.\nexport type W =\n  | \"a\"\n  | \"b\";\n/** Of * it. */\nexport interface T {\n  \"x-y\": W;\n  \
         o?: W | (string & {}) | null;\n  n?: Array<number>;\n  r?: Partial<Record<W, 1>>;\n  z?: never;\n  \
         [member: string]: unknown;\n}\n",
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
    for strange in ["export class X {}", "export type X = string[];", "export type X = keyof Y;"] {
        let read = std::panic::catch_unwind(|| Declarations::read(strange));
        assert!(read.is_err(), "{strange}: not understood, so refused");
    }
}

/// The compiler, if there is one.
fn compiler() -> Option<Command> {
    let named = std::env::var_os("RUNSTORE_TSC").unwrap_or_else(|| "tsc".into());
    let there = Command::new(&named).arg("--version").output();
    there.is_ok_and(|out| out.status.success()).then(|| Command::new(named))
}

/// A program that says of each document that it is of its type, and of each bad one that it is not.
fn program(samples: &[Sample], declared: &Declarations) -> String {
    let mut text = "import type * as runstore from \"./runstore\";\n".to_owned();
    for (number, one) in samples.iter().enumerate() {
        let name = declared.of_schema(&one.schema);
        if !one.fits {
            text.push_str("// @ts-expect-error\n");
        }
        let document = literal(&one.document);
        let _ = writeln!(text, "export const d{number}: runstore.{name} = {document};");
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
    let mut samples = samples::accepted();
    samples.extend(samples::changed());
    fs::copy(here(FILE), dir.path().join("runstore.d.ts")).expect("room");
    let path = dir.path().join("documents.ts");
    fs::write(&path, program(&samples, &declarations())).expect("room");
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
    let out = compiler.args(args).arg(&path).current_dir(dir.path()).output().expect("started");
    let said = String::from_utf8_lossy(&out.stdout);
    let said: String = said.lines().take(20).flat_map(|line| [line, "\n"]).collect();
    assert!(out.status.success(), "{} documents: {said}", samples.len());
}
