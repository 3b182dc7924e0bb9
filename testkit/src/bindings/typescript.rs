//! The declarations as TypeScript: interfaces and unions, no code.
//!
//! An object that others may add to has an index signature, because their members survive. An open list of words is
//! written so that editors still offer the words that are known.

use std::fmt::Write as _;

use super::layer::Layer;
use super::shape::{Body, Declared, Member, Shape, Types};

const HEAD: &str = "\
// ABOUT
// Made from spec/schemas/LAYER by `COMMAND`; changes are made there.
//
// A type is wider than its schema: conditions over several members, patterns and bounds are not told.
";

const OF_READERS: &str = "\
// Members and words that are not listed are data of another version. They are kept when a document is rewritten.
// In a document `null` counts as absent. A list with `(string & {})` is open: any other word may stand there.
";

const OF_WRITERS: &str = "\
// An object without an index signature has no other members. Where others may add some, theirs stay.
";

/// The whole file.
pub(super) fn write(types: &Types, layer: &Layer) -> String {
    let mut out = HEAD.replace("COMMAND", super::COMMAND);
    out = out.replace("LAYER", layer.dir).replace("ABOUT", layer.about);
    out.push_str(if layer.is_open { OF_READERS } else { OF_WRITERS });
    for Declared { name, note, body } in &types.declared {
        out.push('\n');
        comment(&mut out, "", note.as_deref());
        match body {
            Body::Words(words) => {
                let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
                let _ = writeln!(out, "export type {name} =\n  | {};", words.join("\n  | "));
            }
            Body::Object(members, is_open) => object(&mut out, name, members, *is_open),
            Body::OneOf(shapes) => {
                let shapes: Vec<_> = shapes.iter().map(shown).collect();
                let _ = writeln!(out, "export type {name} =\n  | {};", shapes.join("\n  | "));
            }
        }
    }
    out.push_str("\n/** The type of each schema, by its name. */\nexport interface BySchema {\n");
    for (schema, name) in &types.of_schemas {
        let _ = writeln!(out, "  {}: {name};", key(schema));
    }
    out.push_str("}\n");
    out
}

fn object(out: &mut String, name: &str, members: &[Member], is_open: bool) {
    let _ = writeln!(out, "export interface {name} {{");
    for Member { name, shape, required, note } in members {
        comment(out, "  ", note.as_deref());
        let mark = if *required { "" } else { "?" };
        let _ = writeln!(out, "  {}{mark}: {};", key(name), shown(shape));
    }
    out.push_str(if is_open { "  [member: string]: unknown;\n}\n" } else { "}\n" });
}

fn comment(out: &mut String, indent: &str, note: Option<&str>) {
    if let Some(note) = note {
        let _ = writeln!(out, "{indent}/** {} */", note.replace("*/", "* /"));
    }
}

fn key(name: &str) -> String {
    let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'$');
    if is_plain { name.to_owned() } else { quoted(name) }
}

/// A JSON string is one of TypeScript too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn shown(shape: &Shape) -> String {
    match shape {
        Shape::Any => "unknown".to_owned(),
        Shape::Never => "never".to_owned(),
        Shape::Null => "null".to_owned(),
        Shape::Boolean => "boolean".to_owned(),
        Shape::Integer | Shape::Number => "number".to_owned(),
        Shape::Text => "string".to_owned(),
        Shape::Fixed(value) => value.to_string(),
        Shape::Words(name) | Shape::Named(name) => name.clone(),
        Shape::OpenWords(name) => format!("{name} | (string & {{}})"),
        Shape::List(items) => format!("Array<{}>", shown(items)),
        Shape::Map(None, values) => format!("Record<string, {}>", shown(values)),
        Shape::Map(Some(keys), values) => format!("Partial<Record<{keys}, {}>>", shown(values)),
        Shape::OneOf(shapes) => shapes.iter().map(shown).collect::<Vec<_>>().join(" | "),
    }
}
