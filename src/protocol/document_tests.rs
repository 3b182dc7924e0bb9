//! Tests of documents: what is read, what is kept, what is refused.

use super::*;

const ODD: &str =
    "{\n  \"a\": 1e400,\n  \"b\": \"\\ud800\",\n  \"c\": {\"x\":  12345678901234567890123}\n}";

#[test]
fn an_unpatched_document_renders_to_its_own_bytes() {
    let doc = Document::parse(ODD).expect("valid");
    assert_eq!(doc.patched(&[]).expect("no duplicate keys"), ODD);
}

#[test]
fn a_patch_touches_only_the_named_member() {
    let doc = Document::parse(ODD).expect("valid");
    let out = doc.patched(&[("b", "2"), ("new", "true")]).expect("patchable");
    assert_eq!(
        out,
        "{\n  \"a\": 1e400,\n  \"b\": 2,\n  \"c\": {\"x\":  12345678901234567890123},\n  \"new\": true\n}"
    );
}

#[test]
fn members_are_added_to_an_empty_object() {
    let doc = Document::parse("{}").expect("valid");
    let out = doc.patched(&[("a", "1"), ("b", "2")]).expect("patchable");
    assert_eq!(out, "{\"a\": 1,\"b\": 2}");
}

#[test]
fn the_last_duplicate_wins_and_patches_are_refused() {
    let doc = Document::parse(r#"{"a":1,"a":2}"#).expect("valid");
    assert_eq!(doc.get("a").and_then(Raw::integer), Some(2));
    assert!(doc.has_duplicate_keys());
    assert!(matches!(doc.patched(&[("a", "3")]), Err(DecodeError::ReadOnly { .. })));
}

#[test]
fn many_equal_keys_are_noticed_like_few() {
    for n in [1, 40, 60, 3000] {
        let keys: Vec<_> = (0..n).map(|i| format!("\"k{i}\":1")).collect();
        let once = format!("{{{}}}", keys.join(","));
        let twice = format!("{{{},\"k0\":2}}", keys.join(","));
        assert!(!Document::parse(&once).expect("is JSON").has_duplicate_keys(), "{n}");
        let doc = Document::parse(&twice).expect("is JSON");
        assert!(doc.has_duplicate_keys(), "{n}");
        assert_eq!(doc.get("k0").map(Raw::text), Some("2"), "the last one is read");
    }
}

#[test]
fn the_start_of_a_long_string_is_cut_between_characters() {
    let read = |text: &str| {
        let quoted = format!("\"{text}\"");
        Raw::parse(&quoted).expect("is JSON").string_start(8).map(Cow::into_owned)
    };
    assert_eq!(read("short").as_deref(), Some("short"));
    assert_eq!(read("longer text").as_deref(), Some("longer t"));
    assert_eq!(read("1234567\u{1f980}").as_deref(), Some("1234567"));
    assert_eq!(read("1234567\\n9").as_deref(), Some("1234567\u{fffd}"), "a cut escape");
    assert!(Raw::parse("[1,2,3,4,5,6]").expect("is JSON").string_start(2).is_none());
}

#[test]
fn depth_is_bounded_one_above_and_one_below() {
    let nest = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n - 1), "]".repeat(n - 1));
    assert!(Document::parse(&nest(limits::MAX_DEPTH)).is_ok());
    assert!(matches!(
        Document::parse(&nest(limits::MAX_DEPTH + 1)),
        Err(DecodeError::TooDeep { .. })
    ));
    let text = format!("{{\"a\":\"{}\"}}", "[".repeat(1000));
    assert!(Document::parse(&text).is_ok(), "brackets inside strings do not nest");
}

#[test]
fn each_damage_has_its_own_name() {
    let err = |b: &[u8]| Document::from_bytes(b).expect_err("damaged");
    assert!(matches!(err(b""), DecodeError::Empty));
    assert!(matches!(err(b"\0\0\0"), DecodeError::ZeroFilled { bytes: 3 }));
    assert!(matches!(err(b"\xef\xbb\xbf{}"), DecodeError::ByteOrderMark));
    assert!(matches!(err(b"{\"a\":\"\xff\"}"), DecodeError::NotUtf8 { offset: 6 }));
    assert!(matches!(err(b"{\"a\":\"\xc3"), DecodeError::Torn));
    assert!(matches!(err(b"{\"a\":"), DecodeError::Torn));
    assert!(matches!(err(b"{\"a\":}"), DecodeError::NotJson { .. }));
    assert!(matches!(err(b"[1]"), DecodeError::NotAnObject { found: "an array" }));
    assert!(matches!(err(b"{} x"), DecodeError::NotJson { .. }));
}

#[test]
fn lone_surrogates_are_shown_and_kept() {
    let doc = Document::parse(r#"{"\ud800k":"a\ud800\n\ud83d\ude00"}"#).expect("valid");
    let (key, value) = doc.members().next().expect("one member");
    assert_eq!(key, "\u{fffd}k");
    assert_eq!(value.string().as_deref(), Some("a\u{fffd}\n\u{1f600}"));
    assert!(doc.read_only_reason().is_some());
}

#[test]
fn numbers_are_read_only_as_far_as_they_are_exact() {
    let n = |t| Raw::parse(t).expect("valid");
    assert_eq!(n("1795972795915.7954").instant_ms(), Some(1_795_972_795_915));
    assert_eq!(n("1795972795915.7954").integer(), None);
    assert_eq!(n("1e400").number(), None);
    assert_eq!(n("9007199254740993000").integer(), None);
    assert_eq!(n("\"5\"").integer(), None);
}

#[test]
fn of_many_members_the_last_of_a_key_is_found_too() {
    let mut text: String = (0..500).map(|i| format!("\"k{i}\":{i},")).collect();
    text.pop();
    let unique = format!("{{{text}}}");
    let doc = Document::parse(&unique).expect("an object");
    assert!(!doc.has_duplicate_keys());
    for i in 0..500 {
        let value = doc.get(&format!("k{i}")).and_then(Raw::integer);
        assert_eq!(value, Some(i), "each of many members is found");
    }
    for absent in ["", "a", "k", "k500", "z"] {
        assert!(doc.get(absent).is_none(), "'{absent}' is not there");
    }
    let twice = format!("{{{text},\"k7\":-7,\"k0\":-1,\"k7\":-8}}");
    let doc = Document::parse(&twice).expect("an object");
    assert!(doc.has_duplicate_keys());
    assert_eq!(doc.get("k7").and_then(Raw::integer), Some(-8), "the last one wins");
    assert_eq!(doc.get("k0").and_then(Raw::integer), Some(-1), "the last one wins");
    assert_eq!(doc.get("k8").and_then(Raw::integer), Some(8), "its neighbour stays");
}

/// Everything that can be asked of a document, at every depth.
fn told(doc: &Document<'_>) -> String {
    let mut out = format!("{:?} {:?}", doc.has_duplicate_keys(), doc.read_only_reason());
    for (key, raw) in doc.members() {
        assert!(doc.get(key).is_some(), "{key} is there");
        out += &format!("\n{key} {raw:?} {:?} {:?}", raw.string(), raw.number());
        for inner in raw.array().unwrap_or_default().into_iter().chain([raw]) {
            out += &inner.object().map_or_else(String::new, |inner| told(&inner));
        }
    }
    out
}

#[test]
fn an_outline_changes_nothing_but_the_time_it_takes() {
    let many: Vec<String> = (0..200).map(|i| format!("\"k{}\":{i}", i % 190)).collect();
    for text in [
        ODD,
        "{}",
        r#"{"a":1,"a":2}"#,
        r#"{"a":[{"b":"x"},[],{"c":{"c":null}},7],"d":{"a":1,"a":{"z":[1]}}}"#,
        r#"{"\u0061":1,"k\n":{"plain":"a\"b","plain":2},"o":{"\ud800":1}}"#,
        &format!("{{{}}}", many.join(",")),
    ] {
        let mut room = Outline::default();
        let outlined = Document::outlined(text.as_bytes(), &mut room).expect("valid");
        let first = outlined.get("a").map(|raw| raw.text().to_owned());
        let parsed = Document::parse(text).expect("valid");
        assert_eq!(first.as_deref(), parsed.get("a").map(Raw::text), "before anything is listed");
        assert_eq!(told(&outlined), told(&parsed), "{text}");
        assert_eq!(outlined.source(), text);
    }
}

#[test]
fn picked_members_are_those_that_get_finds() {
    static KEYS: Keys<4> = Keys::new(["a", "b", "missing", "k\n"]);
    let strangers = |most: usize| {
        let all: Vec<String> = (0..20).map(|i| format!("\"s{}\":{i}", i.min(most))).collect();
        format!("{{\"a\":1,{}}}", all.join(","))
    };
    for text in [
        r#"{"b":{"x":1},"a":1,"a":[2]}"#,
        r#"{"k\n":1,"\u0061":"x"}"#,
        r#"{"x":1,"b":2,"y":3,"x":4}"#,
        r#"{"x":1,"b":2,"y":3}"#,
        &strangers(19),
        &strangers(18),
        &strangers(3),
        "{}",
    ] {
        let mut room = Outline::default();
        let outlined = Document::outlined(text.as_bytes(), &mut room).expect("valid");
        let parsed = Document::parse(text).expect("valid");
        for doc in [outlined, parsed.clone()] {
            let (picked, repeats) = doc.pick_noting_repeats(&KEYS);
            assert_eq!(repeats, parsed.has_duplicate_keys(), "{text}");
            for key in KEYS.words {
                assert_eq!(picked.get(key), parsed.get(key), "{key} of {text}");
            }
        }
    }
}
