//! Any bytes as a JSON document: nothing panics, an unpatched document is its source, a patch keeps
//! every other byte, and what is accepted is what another JSON reader accepts.
//!
//! The other reader refuses three things on purpose that this one keeps as they are: numbers that no
//! double holds, lone surrogates, and nesting near the limit. Those are left out of the comparison.

#![no_main]

use libfuzzer_sys::fuzz_target;
use runstore::protocol::{Document, Kind, Outline, Raw};
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let ours = Document::from_bytes(data);
    let theirs = serde_json::from_slice::<Value>(data);
    match (&ours, &theirs) {
        (Err(e), Ok(Value::Object(_))) => panic!("refused what is an object: {e}"),
        (Ok(_), Ok(other)) if !other.is_object() => panic!("took {other} for an object"),
        (Ok(_), Err(e)) => assert!(is_left_out(&e.to_string()), "took what is not JSON: {e}"),
        _ => {}
    }
    let mut room = Outline::default();
    let outlined = Document::outlined(data, &mut room);
    match (&ours, &outlined) {
        (Err(one), Err(other)) => assert_eq!(one, other, "an outline changes no answer"),
        (one, other) => assert_eq!(one.is_ok(), other.is_ok(), "an outline changes no answer"),
    }
    let (Ok(doc), Ok(outlined)) = (ours, outlined) else { return };
    // Before anything is listed, members are found by their places.
    for (key, _) in doc.members() {
        assert_eq!(outlined.get(key), doc.get(key), "an outline finds the same");
    }
    ask(&doc, theirs.as_ref().ok());
    ask(&outlined, theirs.as_ref().ok());
});

/// Everything that can be asked of a document.
fn ask(doc: &Document<'_>, theirs: Option<&Value>) {
    for (_, raw) in doc.members() {
        look(raw, 4);
    }
    if let Some(Value::Object(members)) = theirs {
        for (key, value) in members {
            let raw = doc.get(key).expect("a member is found under its key");
            compare(raw, value);
        }
        assert!(doc.members().count() >= members.len(), "no member is lost");
    }
    patch(doc);
}

/// Whether another reader's refusal is one of the three that are ours to accept.
fn is_left_out(error: &str) -> bool {
    ["number out of range", "surrogate", "hex escape", "unicode code point", "recursion limit"]
        .iter()
        .any(|known| error.contains(known))
}

/// Asks a value for everything it might be.
fn look(raw: Raw<'_>, depth: usize) {
    let number = raw.number();
    assert!(number.is_none_or(f64::is_finite), "a number is finite");
    if let (Some(whole), Some(number)) = (raw.integer(), number) {
        assert_eq!(whole as f64, number, "a whole number is the number");
    }
    let _ = (raw.string(), raw.exact_string(), raw.instant_ms(), raw.boolean());
    if depth == 0 {
        return;
    }
    for element in raw.array().unwrap_or_default() {
        look(element, depth - 1);
    }
    if let Some(inner) = raw.object() {
        assert_eq!(inner.source(), raw.text(), "an object is its text");
        inner.members().for_each(|(_, member)| look(member, depth - 1));
    }
}

/// Compares a value with what another reader made of it.
fn compare(raw: Raw<'_>, value: &Value) {
    match value {
        Value::Null => assert_eq!(raw.kind(), Kind::Null),
        Value::Bool(b) => assert_eq!(raw.boolean(), Some(*b)),
        Value::Number(n) => assert_eq!(raw.number(), n.as_f64(), "{raw:?}"),
        Value::String(s) => {
            assert_eq!(raw.string().as_deref(), Some(s.as_str()));
            assert_eq!(raw.exact_string().as_deref(), Some(s.as_str()));
        }
        Value::Array(values) => {
            let elements = raw.array().expect("an array stays one");
            assert_eq!(elements.len(), values.len(), "no element is lost");
            elements.into_iter().zip(values).for_each(|(e, v)| compare(e, v));
        }
        Value::Object(members) => {
            let inner = raw.object().expect("an object stays one");
            for (key, value) in members {
                compare(inner.get(key).expect("a member is found under its key"), value);
            }
        }
    }
}

fn patch(doc: &Document<'_>) {
    const NEW: &str = "\u{1f980} a key that no seed has";
    let first = doc.members().next().map(|(key, raw)| (key.to_owned(), raw.text().to_owned()));
    let same: Vec<_> = first.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    if doc.read_only_reason().is_some() {
        assert!(doc.patched(&same).is_err(), "a document that cannot be patched refuses");
        return;
    }
    assert_eq!(doc.patched(&[]).as_deref(), Ok(doc.source()), "no patch changes nothing");
    assert_eq!(doc.patched(&same).as_deref(), Ok(doc.source()), "an equal value changes nothing");
    if doc.get(NEW).is_some() {
        return;
    }
    let mut changes = vec![(NEW, "[1,{}]")];
    if let Some((key, _)) = &first {
        changes.push((key, "\"new\""));
    }
    let text = doc.patched(&changes).expect("a patch of valid values is rendered");
    let after = Document::parse(&text).expect("a patched document is a document");
    for (key, value) in changes.iter().copied() {
        assert_eq!(after.get(key).map(Raw::text), Some(value), "the patch is there");
    }
    let others = doc.members().filter(|(key, _)| changes.iter().all(|(k, _)| k != key));
    for (key, raw) in others {
        assert_eq!(after.get(key), Some(raw), "other members keep their bytes");
    }
    assert_eq!(after.members().count(), doc.members().count() + 1, "one member came");
}
