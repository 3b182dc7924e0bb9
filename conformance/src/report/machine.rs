//! Reports for build systems: JUnit XML, TAP 14, a badge; and what changed between two reports.
//!
//! Theory of operation. Each form is made from a report in JSON, so a kept report can be shown again in any of them.
//! A member that is not there counts as empty. A missed SHOULD, a gap and what was skipped or is inconclusive fail nothing.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A text member.
pub(super) fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A member that counts something.
pub(super) fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// A list member.
pub(super) fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A text as XML or HTML content: what would be markup is escaped, and what XML does not allow is replaced.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn seconds(value: &Value, key: &str) -> f64 {
    value.get(key).and_then(Value::as_f64).unwrap_or_default() / 1000.0
}

/// JUnit XML: a suite for each scenario, a case for each check.
pub fn junit(report: &Value) -> String {
    let (checks, name) = (list(report, "checks"), text(report, "role"));
    let is = |word: &'static str| move |check: &&Value| text(check, "verdict") == word;
    let failures = checks.iter().filter(is("fail")).count();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    out.push_str(&format!(
        "<testsuites name=\"runstore conformance {}\" tests=\"{}\" failures=\"{failures}\" errors=\"0\" time=\"{:.3}\">\n",
        escape(name),
        checks.len(),
        seconds(report, "tookMs")
    ));
    for scenario in list(report, "scenarios") {
        let id = text(scenario, "id");
        let own: Vec<_> = checks.iter().filter(|check| text(check, "scenario") == id).collect();
        suite(&mut out, id, &own, seconds(scenario, "tookMs"));
    }
    // Scenarios that were not played have checks that were skipped.
    let played = |id: &str| list(report, "scenarios").iter().any(|one| text(one, "id") == id);
    let mut rest: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for check in checks.iter().filter(|check| !played(text(check, "scenario"))) {
        rest.entry(text(check, "scenario")).or_default().push(check);
    }
    for (id, own) in rest {
        suite(&mut out, id, &own, 0.0);
    }
    out.push_str("</testsuites>\n");
    out
}

fn suite(out: &mut String, id: &str, checks: &[&Value], seconds: f64) {
    let count = |words: &[&str]| {
        checks.iter().filter(|check| words.contains(&text(check, "verdict"))).count()
    };
    out.push_str(&format!(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{seconds:.3}\">\n",
        escape(id),
        checks.len(),
        count(&["fail"]),
        count(&["skipped", "gap", "inconclusive"]),
    ));
    for check in checks {
        let (verdict, seen) = (text(check, "verdict"), escape(text(check, "seen")));
        out.push_str(&format!(
            "    <testcase name=\"{}\" classname=\"{}\" time=\"0.000\">",
            escape(text(check, "id")),
            escape(text(check, "clause"))
        ));
        let expected = escape(text(check, "expected"));
        match verdict {
            "fail" => out.push_str(&format!(
                "<failure message=\"{expected}\" type=\"{}\">{seen}</failure>",
                escape(text(check, "strength"))
            )),
            "skipped" | "gap" | "inconclusive" => {
                out.push_str(&format!("<skipped message=\"{verdict}: {seen}\"/>"));
            }
            "non-strict" => {
                out.push_str(&format!("<system-out>non-strict: {expected} {seen}</system-out>"));
            }
            _ => {}
        }
        out.push_str("</testcase>\n");
    }
    out.push_str("  </testsuite>\n");
}

/// A text in a TAP line: what would begin a directive or a new line is escaped.
fn tap_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    line.replace('\\', "\\\\").replace('#', "\\#")
}

/// TAP version 14: a test point for each check.
pub fn tap(report: &Value) -> String {
    let checks = list(report, "checks");
    let mut out = format!("TAP version 14\n1..{}\n", checks.len());
    for (i, check) in checks.iter().enumerate() {
        let verdict = text(check, "verdict");
        let ok = if matches!(verdict, "fail" | "gap") { "not ok" } else { "ok" };
        let seen = tap_line(text(check, "seen"));
        let name = format!("{} {}", text(check, "clause"), tap_line(text(check, "id")));
        let directive = match verdict {
            "skipped" | "inconclusive" => format!(" # SKIP {verdict}: {seen}"),
            "gap" => format!(" # TODO {seen}"),
            _ => String::new(),
        };
        out.push_str(&format!("{ok} {} - {name}{directive}\n", i + 1));
        if matches!(verdict, "fail" | "non-strict") {
            let quoted = |key: &str| json!(text(check, key)).to_string();
            out.push_str(&format!(
                "  ---\n  verdict: {verdict}\n  expected: {}\n  seen: {}\n  ...\n",
                quoted("expected"),
                quoted("seen")
            ));
        }
    }
    out
}

/// A badge, in the form that shields.io reads.
pub fn badge(report: &Value) -> Value {
    let level = report.get("levelReached").and_then(Value::as_str);
    let color = match level {
        Some("L3") => "brightgreen",
        Some("L2") => "green",
        Some(_) => "yellowgreen",
        None => "red",
    };
    json!({
        "schemaVersion": 1, "label": format!("run store {}", text(report, "role")),
        "message": level.unwrap_or("none"), "color": color,
    })
}

/// Checks whose verdict differs between two reports, as `(id, old, new)`; a check that is not there has none.
pub fn diff<'v>(old: &'v Value, new: &'v Value) -> Vec<(&'v str, &'v str, &'v str)> {
    let verdicts = |report: &'v Value| -> BTreeMap<&'v str, &'v str> {
        list(report, "checks").iter().map(|c| (text(c, "id"), text(c, "verdict"))).collect()
    };
    let (old, new) = (verdicts(old), verdicts(new));
    let ids: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).copied().collect();
    let of = |map: &BTreeMap<&'v str, &'v str>, id: &str| map.get(id).copied().unwrap_or("none");
    ids.into_iter()
        .map(|id| (id, of(&old, id), of(&new, id)))
        .filter(|(_, old, new)| old != new)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_directives_from_a_subject_stay_text() {
        assert_eq!(escape("<a b=\"c\">&\u{1b}"), "&lt;a b=&quot;c&quot;&gt;&amp;\u{fffd}");
        assert_eq!(tap_line("a # TODO\nok 1"), "a \\# TODO ok 1");
    }

    #[test]
    fn a_diff_names_what_changed_came_and_went() {
        let report = |checks: &[(&str, &str)]| {
            let checks: Vec<_> =
                checks.iter().map(|(id, word)| json!({"id": id, "verdict": word})).collect();
            json!({"checks": checks})
        };
        let old = report(&[("a", "pass"), ("b", "fail"), ("c", "pass")]);
        let new = report(&[("a", "pass"), ("b", "pass"), ("d", "fail")]);
        let expected = [("b", "fail", "pass"), ("c", "pass", "none"), ("d", "none", "fail")];
        assert_eq!(diff(&old, &new), expected);
    }
}
