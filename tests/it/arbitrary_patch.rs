//! Any document in, an unrelated patch, and the rest out byte for byte.

use proptest::prelude::*;
use runstore::protocol::Document;

/// Members that the patches below set.
const PATCHED: [&str; 2] = ["state", "lastUpdate"];

/// White space as any writer may leave it.
fn white() -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(vec![" ", "\n", "\t", "\r\n", "  "]), 0..3)
        .prop_map(|parts| parts.concat())
}

/// A string as it is spelled, quotes included: escapes, surrogates alone and in pairs, any character.
fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => any::<char>().prop_filter_map("must be escaped", |c| {
            (c >= ' ' && c != '"' && c != '\\').then(|| c.to_string())
        }),
        2 => proptest::sample::select(vec![
            r#"\""#, r"\\", r"\/", r"\b", r"\n", r"\u0000", r"\u00e9", r"\ud83d\ude00", r"\uD83D",
            "}", "{", "]", ",", ":", "'",
        ])
        .prop_map(str::to_owned),
    ];
    proptest::collection::vec(piece, 0..8).prop_map(|parts| format!("\"{}\"", parts.concat()))
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?",
        Just("1e400".to_owned()),
        Just("-0".to_owned()),
        Just("9007199254740993".to_owned()),
    ]
}

/// Any value as it is spelled; duplicate keys inside a value are somebody else's affair and kept.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        string(),
        number(),
        proptest::sample::select(vec!["true", "false", "null", "[]", "{}", "{ }"])
            .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        let pair = (white(), string(), white(), white(), inner.clone(), white())
            .prop_map(|(a, key, b, c, value, d)| format!("{a}{key}{b}:{c}{value}{d}"));
        let element = (white(), inner, white()).prop_map(|(a, value, b)| format!("{a}{value}{b}"));
        prop_oneof![
            proptest::collection::vec(element, 1..5).prop_map(|v| format!("[{}]", v.join(","))),
            proptest::collection::vec(pair, 1..5).prop_map(|v| format!("{{{}}}", v.join(","))),
        ]
    })
}

/// One member of a document: what stands before the value, the value, what stands after it.
#[derive(Clone, Debug)]
struct Member {
    key: String,
    before: String,
    value: String,
    after: String,
}

/// A member under a key of ours or a foreign one.
fn member() -> impl Strategy<Value = Member> {
    let key = prop_oneof![
        4 => "[a-zA-Z0-9_ .é/-]{0,12}",
        1 => proptest::sample::select(PATCHED.to_vec()).prop_map(str::to_owned),
    ];
    (key, white(), white(), white(), value(), white()).prop_map(|(key, a, b, c, value, after)| {
        Member { before: format!("{a}\"{key}\"{b}:{c}"), key, value, after }
    })
}

/// Members of a document, each key once.
fn members() -> impl Strategy<Value = Vec<Member>> {
    proptest::collection::vec(member(), 0..8).prop_map(|members| {
        let mut kept: Vec<Member> = Vec::new();
        for member in members {
            if kept.iter().all(|other| other.key != member.key) {
                kept.push(member);
            }
        }
        kept
    })
}

fn spelled(head: &str, members: &[Member], tail: &str) -> String {
    let members: Vec<_> =
        members.iter().map(|m| format!("{}{}{}", m.before, m.value, m.after)).collect();
    format!("{head}{{{}}}{tail}", members.join(","))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Spec: RS-RMW-01.
    #[test]
    fn a_patch_leaves_every_other_byte_of_any_document(
        head in white(), members in members(), tail in white(),
        state in string(), update in number(), both in any::<bool>(),
    ) {
        let text = spelled(&head, &members, &tail);
        let doc = Document::from_bytes(text.as_bytes()).expect("a document");
        let patch = [(PATCHED[0], state.as_str()), (PATCHED[1], update.as_str())];
        let patch = if both { &patch[..] } else { &patch[..1] };
        let out = doc.patched(patch).expect("a patch of values");

        // What was there is spelled as before, with the patched values in their places.
        let mut expected = members.clone();
        for member in &mut expected {
            if let Some((_, new)) = patch.iter().find(|(key, _)| *key == member.key) {
                (*new).clone_into(&mut member.value);
            }
        }
        let expected = spelled(&head, &expected, &tail);
        let added: Vec<_> =
            patch.iter().filter(|(key, _)| members.iter().all(|m| m.key != *key)).collect();
        if added.is_empty() {
            prop_assert_eq!(&out, &expected);
        } else {
            // New members stand right behind the last one, before the white space of the brace.
            let close = expected.rfind('}').expect("an object");
            let body = expected[..close].trim_end_matches([' ', '\n', '\t', '\r']).len();
            prop_assert!(out.starts_with(&expected[..body]), "{:?} from {:?}", out, expected);
            prop_assert!(out.ends_with(&expected[body..]), "{:?} from {:?}", out, expected);
        }

        // And it reads: the patched values, and all others as they were.
        let again = Document::from_bytes(out.as_bytes()).expect("still a document");
        for (key, new) in patch {
            prop_assert_eq!(again.get(key).map(|raw| raw.text()), Some(*new));
        }
        for member in members.iter().filter(|m| patch.iter().all(|(key, _)| *key != m.key)) {
            prop_assert_eq!(again.get(&member.key).map(|raw| raw.text()), Some(&*member.value));
        }
        prop_assert_eq!(again.members().count(), members.len() + added.len());
        // The same patch once more changes nothing.
        prop_assert_eq!(again.patched(patch).expect("a patch of values"), out.clone());
    }
}
