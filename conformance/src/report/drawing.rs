//! The ordered trace of a scenario as a drawing.
//!
//! Theory of operation. A lane for each name, from left to right in the order of events: most of a scenario is waiting,
//! and what happens within one millisecond is what matters, so the distance between two events says nothing. Long waits
//! are written below, marks of the script stand above. What happened to a temporary name stands in the lane of the
//! name that it became. A drawing is a `symbol` of the page, so that each check of a scenario shows it for a few bytes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::machine::{escape, list, number, text};
use super::paths;

/// Lanes with a name of their own; what is left shares one more.
const LANES: usize = 18;
/// Measures of the drawing, in its own units, of which it is 1000 wide.
const LEFT: f64 = 268.0;
const RIGHT: f64 = 985.0;
const LANE: usize = 20;
/// Room for three rows of labels of marks.
const TOP: usize = 52;
/// About the width of a character of a label.
const CHAR: f64 = 6.6;
/// Characters of a name that fit before its lane.
const NAME: usize = 36;

/// Where an event is drawn: in the lane of the name that it ends up with.
struct Lanes<'v> {
    /// New names by their old ones.
    became: BTreeMap<&'v str, &'v str>,
    names: Vec<&'v str>,
    shares_last: bool,
}

fn is_mark(event: &Value) -> bool {
    text(event, "what") == "mark"
}

impl<'v> Lanes<'v> {
    fn of(events: &'v [Value]) -> Self {
        let renames = events.iter().filter(|event| event.get("from").is_some());
        let became: BTreeMap<_, _> =
            renames.map(|event| (text(event, "from"), text(event, "path"))).collect();
        let mut lanes = Self { became, names: Vec::new(), shares_last: false };
        for event in events.iter().filter(|event| !is_mark(event)) {
            let name = lanes.name(event);
            if lanes.names.contains(&name) {
                continue;
            }
            if lanes.names.len() < LANES {
                lanes.names.push(name);
            } else {
                lanes.shares_last = true;
            }
        }
        lanes
    }

    fn name(&self, event: &'v Value) -> &'v str {
        let path = text(event, "path");
        self.became.get(path).copied().unwrap_or(path)
    }

    fn count(&self) -> usize {
        self.names.len() + usize::from(self.shares_last)
    }

    /// The middle of the lane of an event.
    fn y(&self, event: &'v Value) -> usize {
        let name = self.name(event);
        let lane = self.names.iter().position(|one| *one == name).unwrap_or(self.names.len());
        TOP + lane * LANE + LANE / 2
    }
}

/// Labels in a row that do not touch one another; what finds no room is left out, as the list below has it.
struct Row {
    free_from: f64,
}

impl Row {
    /// Where a label of so many characters begins that is best centred at `x`.
    fn place(&mut self, x: f64, characters: usize) -> Option<f64> {
        let width = CHAR * f64::from(u32::try_from(characters).unwrap_or(u32::MAX));
        let begin = (x - width / 2.0).min(998.0 - width).max(LEFT - 20.0);
        (begin >= self.free_from && width < RIGHT).then(|| {
            self.free_from = begin + width + CHAR;
            begin
        })
    }
}

/// The last part of a name that fits, from a slash on where there is one, with the ids in it cut.
fn tail(name: &str) -> String {
    let name = paths::plain(name);
    let count = name.chars().count();
    if count <= NAME {
        return name;
    }
    let tail: String = name.chars().skip(count + 1 - NAME).collect();
    format!("…{}", tail.find('/').map_or(tail.as_str(), |at| &tail[at..]))
}

fn shape(what: &str, x: f64, y: usize) -> String {
    let y = i64::try_from(y).unwrap_or_default();
    match what {
        "renamed into place" => format!("d=\"M{x:.1} {}l6 6-6 6-6-6z\"", y - 6),
        "written into" => format!("d=\"M{:.1} {}h3v12h-3z\"", x - 1.5, y - 6),
        "removed" => format!("d=\"M{:.1} {}l9 9m0-9l-9 9\"", x - 4.5, y - 4),
        // A circle: what was made, or found.
        _ => format!("d=\"M{:.1} {y}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z\"", x - 4.5),
    }
}

/// The height of the drawing of a trace.
fn height(lanes: &Lanes<'_>) -> usize {
    TOP + lanes.count() * LANE + 28
}

/// What a listener hears of a drawing, and what stands where it is shown.
pub(super) fn shown(scenario: &Value) -> String {
    let events = list(scenario, "trace");
    let by = |who: &str| events.iter().filter(|event| text(event, "by") == who).count();
    let id = escape(text(scenario, "id"));
    format!(
        "<div class=\"scroll\"><svg viewBox=\"0 0 1000 {}\" role=\"img\" aria-label=\"Timeline of {id}, {} ms: {} events of the suite, \
         {} of the subject\"><use href=\"#drawing-{id}\"/></svg></div>\n",
        height(&Lanes::of(events)),
        number(scenario, "tookMs"),
        by("suite"),
        by("subject"),
    )
}

/// The drawing of a scenario as a symbol.
pub(super) fn symbol(out: &mut String, scenario: &Value) {
    let events = list(scenario, "trace");
    let lanes = Lanes::of(events);
    let height = height(&lanes);
    out.push_str(&format!(
        "<symbol id=\"drawing-{}\" viewBox=\"0 0 1000 {height}\">",
        escape(text(scenario, "id"))
    ));
    names(out, &lanes);
    let step = (RIGHT - LEFT) / f64::from(u32::try_from(events.len().max(1)).unwrap_or(u32::MAX));
    let mut marks = [0.0, 0.0, 0.0].map(|free_from| Row { free_from });
    let mut x = LEFT - step / 2.0;
    for event in events {
        x += step;
        if is_mark(event) {
            mark(out, text(event, "path"), x, height, &mut marks);
            continue;
        }
        // Half of a rename: the name that it became has the other one.
        let what = text(event, "what");
        if what == "removed" && lanes.became.contains_key(text(event, "path")) {
            continue;
        }
        let who = if text(event, "by") == "suite" { "suite" } else { "subject" };
        out.push_str(&format!("<path class=\"by-{who}\" {}/>", shape(what, x, lanes.y(event))));
    }
    waits(out, scenario, events, step, height);
    out.push_str("</symbol>\n");
}

fn names(out: &mut String, lanes: &Lanes<'_>) {
    let own = lanes.names.iter().map(|name| tail(name));
    let last = lanes.shares_last.then(|| "other names".to_owned());
    for (at, name) in own.chain(last).enumerate() {
        let y = TOP + at * LANE + LANE / 2;
        out.push_str(&format!(
            "<path class=\"d-lane\" d=\"M{LEFT} {y}H{RIGHT}\"/><text class=\"d-name\" x=\"6\" y=\"{}\">{}</text>",
            y + 4,
            escape(&name)
        ));
    }
}

fn mark(out: &mut String, name: &str, x: f64, height: usize, rows: &mut [Row; 3]) {
    let name: String = name.chars().take(24).collect();
    let characters = name.chars().count();
    let placed =
        rows.iter_mut().enumerate().find_map(|(at, row)| Some((at, row.place(x, characters)?)));
    let from = placed.map_or(TOP - 4, |(at, _)| 16 + at * 16);
    out.push_str(&format!("<path class=\"d-mark\" d=\"M{x:.1} {from}V{}\"/>", height - 20));
    if let Some((at, begin)) = placed {
        out.push_str(&format!(
            "<text class=\"d-label\" x=\"{begin:.1}\" y=\"{}\">{}</text>",
            12 + at * 16,
            escape(&name)
        ));
    }
}

/// The waits that are a tenth of the whole or more, and how long all of it took.
fn waits(out: &mut String, scenario: &Value, events: &[Value], step: f64, height: usize) {
    let took = number(scenario, "tookMs");
    let y = height - 7;
    out.push_str(&format!("<text class=\"d-label\" x=\"6\" y=\"{y}\">{took} ms in all</text>"));
    let mut row = Row { free_from: LEFT - 20.0 };
    let mut x = LEFT;
    for pair in events.windows(2) {
        x += step;
        let [before, after] = pair else { continue };
        let wait = number(after, "atMs").saturating_sub(number(before, "atMs"));
        if wait < 10 || wait < took / 10 {
            continue;
        }
        let label = format!("{wait} ms");
        if let Some(begin) = row.place(x, label.len()) {
            out.push_str(&format!(
                "<text class=\"d-label\" x=\"{begin:.1}\" y=\"{y}\">{label}</text>"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_temporary_name_stands_in_the_lane_of_what_it_became() {
        let events = [
            json!({"what": "made", "path": "a/.tmp", "by": "subject", "atMs": 1}),
            json!({"what": "removed", "path": "a/.tmp", "by": "subject", "atMs": 1}),
            json!({"what": "renamed into place", "path": "a/b", "from": "a/.tmp", "by": "subject", "atMs": 1}),
            json!({"what": "mark", "path": "over", "by": "suite", "atMs": 900}),
        ];
        let lanes = Lanes::of(&events);
        assert_eq!(lanes.names, ["a/b"]);
        let mut out = String::new();
        symbol(&mut out, &json!({"id": "x", "tookMs": 1000, "trace": events}));
        assert_eq!(out.matches("class=\"by-subject\"").count(), 2, "a rename is one thing: {out}");
        assert!(out.contains(">over</text>") && out.contains(">899 ms</text>"), "{out}");
    }

    #[test]
    fn a_long_name_begins_at_a_slash() {
        let id = "f9d52581-212c-4b32-8d97-e85260af5570";
        assert_eq!(
            tail(&format!("async-subagent-runs/{id}/runner-startup-proceed.json")),
            "…/runner-startup-proceed.json"
        );
        assert_eq!(tail("a/short.json"), "a/short.json");
        assert_eq!(tail(&"é".repeat(50)), format!("…{}", "é".repeat(NAME - 1)));
    }

    #[test]
    fn labels_never_touch_and_names_beyond_the_last_lane_share_one() {
        let event =
            |n: usize| json!({"what": "made", "path": format!("f{n}"), "by": "suite", "atMs": n});
        let events: Vec<_> = (0..LANES + 5).map(event).collect();
        let lanes = Lanes::of(&events);
        assert_eq!(lanes.count(), LANES + 1);
        assert_eq!(lanes.y(&events[LANES]), lanes.y(&events[LANES + 4]));
        let mut row = Row { free_from: 0.0 };
        let first = row.place(500.0, 10).expect("room");
        assert!(row.place(510.0, 10).is_none() && row.place(600.0, 10) > Some(first + 10.0 * CHAR));
    }
}
