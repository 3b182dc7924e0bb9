//! What a member is expected to be.
//!
//! Theory of operation. A plain value is compared. An object with one of these keys is a question: `is` (a kind of
//! value, `absent`, or `nonempty`), `oneOf`, `not`, `atLeast` (a number, or the pointer to one), `each` (of every
//! element: pointers to what is expected), `length`, `same` (the value at a pointer), `keys` (no other members than
//! these), `shorter` (a text of fewer characters), `has` and `lacks` (a list with and without an element that holds a
//! map of pointers), `contains` (a text that stands in it, or an element of it).

use serde_json::Value;

/// Holds a document against a map of pointers; `Err` says what is not so.
pub(crate) fn hold(doc: &Value, want: &Value) -> Result<(), String> {
    let Some(members) = want.as_object() else { return Ok(()) };
    members.iter().try_for_each(|(pointer, wanted)| one(doc, pointer, wanted))
}

fn one(doc: &Value, pointer: &str, want: &Value) -> Result<(), String> {
    let found = doc.pointer(pointer);
    let shown =
        found.map_or_else(|| "nothing".to_owned(), |v| crate::raw::brief(&v.to_string(), 160));
    let fail = |what: String| Err(format!("{pointer} is {shown}, not {what}"));
    let Some((question, answer)) = question(want) else {
        let same = found.is_some_and(|found| equal(found, want));
        return if same { Ok(()) } else { fail(want.to_string()) };
    };
    let word = answer.as_str().unwrap_or_default();
    match question {
        "is" if is(found, word) => Ok(()),
        "is" => fail(word.to_owned()),
        "oneOf" => {
            let wanted = answer.as_array().map(Vec::as_slice).unwrap_or_default();
            let hit = found.is_some_and(|found| wanted.iter().any(|w| equal(found, w)));
            if hit { Ok(()) } else { fail(format!("one of {answer}")) }
        }
        "not" if found.is_some_and(|found| equal(found, answer)) => fail("something else".into()),
        "not" => Ok(()),
        "atLeast" => {
            let other = answer.as_str().map_or(Some(answer), |pointer| doc.pointer(pointer));
            let numbers = (found.and_then(Value::as_f64), other.and_then(Value::as_f64));
            match numbers {
                (Some(found), Some(other)) if found >= other => Ok(()),
                _ => fail(format!("a number of at least {answer}")),
            }
        }
        "length" => {
            let length = found.and_then(Value::as_array).map(Vec::len);
            if length.map(|n| n as u64) == answer.as_u64() {
                Ok(())
            } else {
                fail(format!("a list of {answer}"))
            }
        }
        "each" => {
            let Some(items) = found.and_then(Value::as_array) else { return fail("a list".into()) };
            let told = |(i, item)| hold(item, answer).map_err(|e| format!("{pointer}/{i}{e}"));
            items.iter().enumerate().try_for_each(told)
        }
        "same" => {
            let other = doc.pointer(word);
            if found.is_some() && found == other {
                Ok(())
            } else {
                fail(format!("the value of {word}"))
            }
        }
        "keys" => {
            let known = answer.as_array().map(Vec::as_slice).unwrap_or_default();
            let members = found.and_then(Value::as_object);
            let other =
                members.and_then(|m| m.keys().find(|key| !known.iter().any(|k| k == key.as_str())));
            match (members, other) {
                (None, _) => fail("an object".into()),
                (_, Some(key)) => Err(format!("there is a member `{key}`")),
                _ => Ok(()),
            }
        }
        "shorter" => {
            let length = found.and_then(Value::as_str).map(|text| text.chars().count() as u64);
            let most = answer.as_u64().unwrap_or(0);
            if length.is_some_and(|n| n < most) {
                Ok(())
            } else {
                fail(format!("a text of fewer than {most} characters"))
            }
        }
        "has" | "lacks" => {
            let items = found.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let hit = items.iter().any(|item| hold(item, answer).is_ok());
            if hit == (question == "has") {
                Ok(())
            } else {
                fail(format!("a list that {question} {answer}"))
            }
        }
        "contains" => {
            let hit = match found {
                Some(Value::String(text)) => text.contains(word),
                Some(Value::Array(items)) => items.iter().any(|item| equal(item, answer)),
                _ => false,
            };
            if hit { Ok(()) } else { fail(format!("something with {answer} in it")) }
        }
        _ => Err(format!("the check asks `{question}`, which nobody knows")),
    }
}

fn question(want: &Value) -> Option<(&str, &Value)> {
    let members = want.as_object().filter(|members| members.len() == 1)?;
    let (key, answer) = members.iter().next()?;
    let known = [
        "is", "oneOf", "not", "atLeast", "each", "length", "same", "keys", "shorter", "has",
        "lacks", "contains",
    ];
    known.contains(&key.as_str()).then_some((key, answer))
}

/// Two values are equal; numbers by what they are worth.
fn equal(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b).is_eq(),
        _ => a == b,
    }
}

fn is(found: Option<&Value>, word: &str) -> bool {
    match (word, found) {
        ("absent", None) => true,
        ("nonempty", Some(Value::String(text))) => !text.is_empty(),
        ("string", Some(Value::String(_)))
        | ("boolean", Some(Value::Bool(_)))
        | ("object", Some(Value::Object(_)))
        | ("array", Some(Value::Array(_)))
        | ("null", Some(Value::Null))
        | ("number", Some(Value::Number(_)))
        | ("present", Some(_)) => true,
        ("integer", Some(Value::Number(n))) => n.is_i64() || n.is_u64(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn questions_are_answered() {
        let doc = json!({"a": 1, "t": "x", "l": [{"b": true}, {"b": false}], "n": null, "z": 5.0});
        for (want, good) in [
            (json!({"/a": 1, "/t": "x"}), true),
            (json!({"/a": 2}), false),
            (json!({"/z": 5}), true),
            (json!({"/a": {"is": "integer"}, "/q": {"is": "absent"}, "/n": {"is": "null"}}), true),
            (json!({"/t": {"is": "number"}}), false),
            (json!({"/q": {"is": "present"}}), false),
            (json!({"/t": {"oneOf": ["y", "x"]}}), true),
            (json!({"/t": {"not": "x"}}), false),
            (json!({"/z": {"atLeast": "/a"}}), true),
            (json!({"/a": {"atLeast": "/z"}}), false),
            (json!({"/l": {"length": 2}}), true),
            (json!({"/l": {"each": {"/b": {"is": "boolean"}}}}), true),
            (json!({"/l": {"each": {"/b": true}}}), false),
            (json!({"/a": {"same": "/a"}}), true),
            (json!({"/a": {"same": "/t"}}), false),
            (json!({"": {"keys": ["a", "t", "l", "n", "z"]}}), true),
            (json!({"": {"keys": ["a", "t"]}}), false),
            (json!({"/t": {"shorter": 2}}), true),
            (json!({"/t": {"shorter": 1}}), false),
            (json!({"/l": {"has": {"/b": false}}}), true),
            (json!({"/l": {"has": {"/b": 1}}}), false),
            (json!({"/l": {"lacks": {"/b": 1}}, "/q": {"lacks": {"/b": 1}}}), true),
            (json!({"/l": {"lacks": {"/b": true}}}), false),
            (json!({"/t": {"contains": "x"}, "/l": {"contains": {"b": true}}}), true),
            (json!({"/q": {"contains": "x"}}), false),
        ] {
            assert_eq!(hold(&doc, &want).is_ok(), good, "{want}: {:?}", hold(&doc, &want));
        }
    }
}
