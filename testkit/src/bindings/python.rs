//! The declarations as Python: `TypedDict` classes of the standard library, for 3.8 and later.
//!
//! A class cannot mix members that must be there with others before 3.11, so one of each kind is written where both
//! are needed, the second built on the first. A member whose name is a word of the language stands in a third,
//! which is made by a call. That a type has no other members cannot be told by a class; such types are listed.

use std::fmt::Write as _;

use super::layer::Layer;
use super::shape::{Body, Declared, Member, Shape, Types};

const HEAD: &str = "\
\"\"\"ABOUT

Made from spec/schemas/LAYER by `COMMAND`; changes are made there.

A type is wider than its schema: conditions over several members, patterns and bounds are not told.
";

const OF_READERS: &str = "\
Members and words that are not listed are data of another version. They are kept when a document is rewritten.
In a document None counts as absent. `Union[SomeWords, str]` is an open list: any other word may stand there.
";

const OF_WRITERS: &str = "\
Types in CLOSED have no other members. Where others may add some, theirs stay.
";

const IMPORTS: &str = "\
An `int` may be spelled 1.0 in JSON, which Python reads as a float.
\"\"\"

from __future__ import annotations

from typing import NAMES
";

/// Names that no member of a class can have.
const RESERVED: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];

/// The whole file.
pub(super) fn write(types: &Types, layer: &Layer) -> String {
    let body = body(types);
    let mut out = HEAD.replace("COMMAND", super::COMMAND);
    out = out.replace("LAYER", layer.dir).replace("ABOUT", layer.about);
    out.push_str(if layer.is_open { OF_READERS } else { OF_WRITERS });
    let names = ["Any", "Dict", "FrozenSet", "List", "Literal", "NoReturn", "TypedDict", "Union"];
    let is_used =
        |name: &&&str| body.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == **name);
    let used: Vec<&str> = names.iter().filter(is_used).copied().collect();
    out + &IMPORTS.replace("NAMES", &used.join(", ")) + &body
}

fn body(types: &Types) -> String {
    let mut out = String::new();
    for Declared { name, note, body } in &types.declared {
        match body {
            Body::Words(words) => {
                let words: Vec<_> =
                    words.iter().map(|word| format!("    {},\n", quoted(word))).collect();
                let _ = write!(out, "\n{name} = Literal[\n{}]\n", words.concat());
            }
            Body::Object(members, _) => object(&mut out, name, note.as_deref(), members),
            Body::OneOf(shapes) => {
                let shapes: Vec<_> =
                    shapes.iter().map(|one| format!("    {},\n", shown(one))).collect();
                let note = note.iter().map(|note| format!("#: {note}\n")).collect::<String>();
                let _ = write!(out, "\n\n{note}{name} = Union[\n{}]\n", shapes.concat());
            }
        }
    }
    out.push_str("\n\n#: The type of each schema, by its name.\nBY_SCHEMA: Dict[str, Any] = {\n");
    for (schema, name) in &types.of_schemas {
        let _ = writeln!(out, "    {}: {name},", quoted(schema));
    }
    out.push_str("}\n");
    let closed: Vec<&str> =
        types.declared.iter().filter(|one| is_closed(one)).map(|one| &*one.name).collect();
    if !closed.is_empty() {
        let closed = closed.join(",\n    ");
        out.push_str("\n#: Types that have no other members.\n");
        let _ = writeln!(out, "CLOSED: FrozenSet[Any] = frozenset([\n    {closed},\n])");
    }
    out
}

fn is_closed(declared: &Declared) -> bool {
    matches!(declared.body, Body::Object(_, false))
}

fn object(out: &mut String, name: &str, note: Option<&str>, members: &[Member]) {
    let (plain, odd): (Vec<_>, Vec<_>) = members.iter().partition(|member| is_plain(&member.name));
    let (required, other): (Vec<&Member>, Vec<_>) = plain.into_iter().partition(|m| m.required);
    let mut bases: Vec<String> = Vec::new();
    for is_required in [true, false] {
        let odd: Vec<_> = odd.iter().filter(|member| member.required == is_required).collect();
        if !odd.is_empty() {
            let base = format!("_{name}{}", if is_required { "NamedRequired" } else { "Named" });
            let _ = writeln!(out, "\n{base} = TypedDict(\"{base}\", {{");
            for member in odd {
                let _ = writeln!(out, "    {}: {},", quoted(&member.name), shown(&member.shape));
            }
            let total = if is_required { "" } else { ", total=False" };
            let _ = writeln!(out, "}}{total})");
            bases.push(base);
        }
    }
    if !required.is_empty() && !other.is_empty() {
        let base = format!("_{name}Required");
        class(out, &base, &bases, true, None, &required);
        class(out, name, &[base], false, note, &other);
    } else if other.is_empty() {
        class(out, name, &bases, true, note, &required);
    } else {
        class(out, name, &bases, false, note, &other);
    }
}

fn class(
    out: &mut String,
    name: &str,
    bases: &[String],
    total: bool,
    note: Option<&str>,
    members: &[&Member],
) {
    let mut heads: Vec<&str> = bases.iter().map(String::as_str).collect();
    if heads.is_empty() {
        heads.push("TypedDict");
    }
    if !total {
        heads.push("total=False");
    }
    let _ = writeln!(out, "\n\nclass {name}({}):", heads.join(", "));
    if let Some(note) = note {
        let _ = writeln!(out, "    \"\"\"{}\"\"\"\n", note.replace('\\', "\\\\").replace('"', "'"));
    }
    for Member { name, shape, note, .. } in members {
        if let Some(note) = note {
            let _ = writeln!(out, "    # {note}");
        }
        let _ = writeln!(out, "    {name}: {}", shown(shape));
    }
    if members.is_empty() {
        out.push_str("    pass\n");
    }
}

fn is_plain(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic());
    // Two underscores at the front would be changed by the language.
    starts
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !RESERVED.contains(&name)
}

/// A JSON string without a control character is one of Python too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn shown(shape: &Shape) -> String {
    match shape {
        Shape::Any => "Any".to_owned(),
        Shape::Never => "NoReturn".to_owned(),
        Shape::Null => "None".to_owned(),
        Shape::Boolean => "bool".to_owned(),
        Shape::Integer => "int".to_owned(),
        Shape::Number => "float".to_owned(),
        Shape::Text => "str".to_owned(),
        Shape::Fixed(value) => format!("Literal[{}]", fixed(value)),
        Shape::Words(name) | Shape::Named(name) => name.clone(),
        Shape::OpenWords(_) => format!("Union[{}]", alternatives(shape)),
        Shape::List(items) => format!("List[{}]", shown(items)),
        Shape::Map(None, values) => format!("Dict[str, {}]", shown(values)),
        Shape::Map(Some(keys), values) => format!("Dict[{keys}, {}]", shown(values)),
        Shape::OneOf(shapes) => {
            let shapes: Vec<_> = shapes.iter().map(alternatives).collect();
            format!("Union[{}]", shapes.join(", "))
        }
    }
}

/// A shape as a part of a union.
fn alternatives(shape: &Shape) -> String {
    match shape {
        Shape::OpenWords(name) => format!("{name}, str"),
        shape => shown(shape),
    }
}

fn fixed(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Bool(true) => "True".to_owned(),
        serde_json::Value::Bool(false) => "False".to_owned(),
        serde_json::Value::Null => "None".to_owned(),
        value => value.to_string(),
    }
}
