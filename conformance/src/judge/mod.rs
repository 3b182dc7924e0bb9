//! Checks held against what was seen.
//!
//! Theory of operation. A judge is a function of the evidence and of what the check tells it, and nothing else: it
//! reads no file and asks no clock, so the same evidence always gets the same verdict. It fails only on something that
//! was seen, and says what; what was not seen, because the scenario did not come so far or the system tells no order,
//! is *unsure*. The words are documented in `checks/README.md`.

mod calls;
mod ends;
mod records;
mod trace;
mod value;

use serde_json::Value;

use crate::cases::Check;
use crate::cell::numbers;
use crate::evidence::{Evidence, Said, fill_value};

/// What a judge found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// As expected; what was seen.
    Good(String),
    /// Not as expected; what was seen.
    Bad(String),
    /// Nothing can be said; why.
    Unsure(String),
}

/// A judge: it is given what was seen, and the check as it stands in its file.
pub(crate) type Judge = fn(&Evidence, &Value) -> Found;

/// The judge that a check names.
pub(crate) fn judge_of(name: &str) -> Option<Judge> {
    Some(match name {
        "absent" => ends::absent,
        "after-torn" => records::after_torn,
        "answer" => records::answer,
        "calls" => calls::calls,
        "candidate" => records::candidate,
        "event" => records::event,
        "exits" => ends::exits,
        "flushed" => calls::flushed,
        "form" => ends::form,
        "gone" => ends::gone,
        "index" => records::index,
        "json" => records::json,
        "kept" => trace::kept,
        "lines" => records::lines,
        "mode-of" => ends::mode_of,
        "modes" => ends::modes,
        "never" => trace::never,
        "order" => trace::order,
        "outside" => trace::outside,
        "present" => ends::present,
        "replaced" => trace::replaced,
        "result" => records::result,
        "same" => ends::same,
        "says" => ends::says,
        "size" => ends::size,
        "stamped" => records::stamped,
        "states" => trace::states,
        "took" => ends::took,
        "untouched" => trace::untouched,
        _ => return None,
    })
}

/// Judges one check.
pub(crate) fn judge(seen: &Evidence, check: &Check) -> Found {
    match &seen.broken {
        Some(why) => Found::Unsure(why.clone()),
        None => (check.judge)(seen, &numbers(&fill_value(&seen.names, &check.args))),
    }
}

/// A text that a check says.
fn text<'a>(args: &'a Value, key: &str) -> Option<&'a str> {
    args.get(key).and_then(Value::as_str)
}

/// Texts that a check lists; one text counts as a list.
fn texts<'a>(args: &'a Value, key: &str) -> Vec<&'a str> {
    match args.get(key) {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// What came of the call that a check names with `of`, else of the last one.
fn said<'e>(seen: &'e Evidence, args: &Value) -> Result<&'e Said, Found> {
    let of = text(args, "of");
    seen.said_by(of).ok_or_else(|| not_reached(seen, of.unwrap_or("exit")))
}

/// Why a moment is not there.
fn not_reached(seen: &Evidence, mark: &str) -> Found {
    let why = seen.missed.as_deref().unwrap_or("the script has no such moment");
    Found::Unsure(format!("the scenario did not come to `{mark}`: {why}"))
}
