//! One page that a person likes to read: a matrix of clauses, each row opening to its checks with what was expected,
//! what was seen, the files, and the ordered trace of the scenario as a drawing.
//!
//! Theory of operation. The page is one file, has its style and script inside and asks for nothing from elsewhere, which
//! its content policy says too. Rows are `details`, so that keyboard and screen reader work without the script; the
//! script filters, and opens what a link leads to. Traces stand once per scenario, in the second half of the page, and
//! checks lead to them; a drawing is shown at each check by reference. The words of a clause come from the registry
//! that is built in. Everything from a subject or a kept report is escaped or a number.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::drawing;
use super::machine::{escape, list, number, text};
use super::paths;
use crate::cases::Grade;
use crate::clauses::{self, Clause};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Verdicts with the mark that stands for one in the matrix, the worst first.
const MARKS: [(&str, &str); 6] = [
    ("fail", "✗"),
    ("non-strict", "~"),
    ("inconclusive", "?"),
    ("gap", "!"),
    ("skipped", "–"),
    ("pass", "✓"),
];

/// Files that a check names; its scenario has all of them.
const FILES: usize = 8;

const KEYS: &str = "\
<details class=\"keys\"><summary>Keys and marks</summary>\n\
<p>Tab goes from row to row, Enter or the space bar opens one. <code>/</code> goes to the search, Escape shows everything again.</p>\n\
<p>In a drawing time goes from left to right, in the order of events and not to scale. A circle: made, or found. A diamond: renamed \
into place. A bar: written into. A cross: removed. Filled is the subject, hollow the suite. Dotted lines are moments of the \
scenario, long waits stand below.</p>\n</details>\n";

/// The page of a report.
pub fn html(report: &Value) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n",
    );
    head(&mut out, report);
    let scenarios = by_id(report);
    out.push_str("<main>\n<h2 id=\"clauses\" tabindex=\"-1\">Clauses</h2>\n");
    filters(&mut out, report);
    out.push_str(KEYS);
    matrix(&mut out, report, &scenarios);
    out.push_str("<h2>Scenarios</h2>\n<section aria-label=\"Scenarios\">\n");
    for scenario in list(report, "scenarios") {
        played(&mut out, report, scenario);
    }
    out.push_str("</section>\n<svg class=\"defs\" aria-hidden=\"true\">\n");
    for scenario in list(report, "scenarios") {
        drawing::symbol(&mut out, scenario);
    }
    let summary = &report["summary"];
    out.push_str(&format!(
        "</svg>\n</main>\n<footer class=\"dim\">\n<p>{} of {} MUST clauses that bind {} have a check. Seed {}. {} ms.</p>\n</footer>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n",
        number(summary, "mustClausesWithCheck"),
        number(summary, "mustClauses"),
        one_role(report),
        escape(text(report, "seed")),
        number(report, "tookMs"),
    ));
    out
}

/// The role with its article.
fn one_role(report: &Value) -> String {
    let role = text(report, "role");
    let article = if role.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {}", escape(role))
}

fn head(out: &mut String, report: &Value) {
    let role = one_role(report);
    let reached = report.get("levelReached").and_then(Value::as_str).unwrap_or("none");
    let words: Vec<_> = list(report, "command").iter().filter_map(Value::as_str).collect();
    out.push_str(&format!(
        "<title>Conformance of {role}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#clauses\">To the clauses</a>\n\
         <header>\n<h1>Conformance of {role}: level reached {}</h1>\n<p><code>{}</code></p>\n<p class=\"dim\">{}</p>\n",
        escape(reached),
        escape(&words.join(" ")),
        escape(text(report, "smoke")),
    ));
    out.push_str("<ul class=\"levels\" aria-label=\"Levels\">\n");
    let (asked, reached) = (Grade::parse(text(report, "level")), Grade::parse(reached));
    for grade in Grade::ALL {
        let of = list(report, "checks").iter().filter(|one| text(one, "level") == grade.word());
        let counts = counts(of);
        let (class, word) = match () {
            () if asked.is_some_and(|asked| grade > asked) => ("dim", "not asked for"),
            () if reached.is_some_and(|reached| grade <= reached) => ("pass", "reached"),
            () => ("fail", "not reached"),
        };
        out.push_str(&format!("<li><b>{}</b> <span class=\"{class}\">{word}</span>", grade.word()));
        let counts = if counts.is_empty() { "no checks" } else { &counts };
        out.push_str(&format!(" <span class=\"dim\">{}</span></li>\n", escape(counts)));
    }
    out.push_str("</ul>\n</header>\n");
}

/// How many of each verdict, the worst first.
fn counts<'v>(checks: impl Iterator<Item = &'v Value>) -> String {
    let mut counts: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    for check in checks {
        let verdict = text(check, "verdict");
        *counts.entry((rank(verdict), verdict)).or_default() += 1;
    }
    let words = counts.into_iter().map(|((_, verdict), count)| format!("{count} {verdict}"));
    words.collect::<Vec<_>>().join(", ")
}

fn rank(verdict: &str) -> usize {
    MARKS.iter().position(|(word, _)| *word == verdict).unwrap_or(0)
}

fn sign(verdict: &str) -> &'static str {
    MARKS.iter().find(|(word, _)| *word == verdict).map_or("·", |(_, sign)| sign)
}

/// Hidden until the script is there that makes them work.
fn filters(out: &mut String, report: &Value) {
    out.push_str("<div id=\"tools\" role=\"search\" hidden>\n<div class=\"tools\">\n");
    let checks = list(report, "checks");
    let group = |out: &mut String, key: &str, legend: &str, words: &[&str]| {
        out.push_str(&format!("<fieldset><legend>{legend}</legend>\n"));
        for word in words {
            let count = checks.iter().filter(|check| text(check, key) == *word).count();
            // Where there is one level, it filters nothing; a verdict also tells how many there are.
            if count > 0 && (key == "verdict" || count < checks.len()) {
                out.push_str(&format!(
                    "<button type=\"button\" data-key=\"{key}\" data-word=\"{word}\" aria-pressed=\"false\" class=\"{word}\">{count} {word}</button>\n"
                ));
            }
        }
        out.push_str("</fieldset>\n");
    };
    group(out, "verdict", "Show one verdict", &MARKS.map(|(word, _)| word));
    group(out, "level", "Show one level", &Grade::ALL.map(Grade::word));
    out.push_str(
        "</div>\n<div class=\"tools\">\n<label>Find <input id=\"find\" type=\"search\" autocomplete=\"off\"></label>\n\
         <button type=\"button\" data-open=\"yes\">Open all shown</button>\n\
         <button type=\"button\" data-open=\"no\">Close all</button>\n\
         </div>\n<p id=\"shown\" role=\"status\" class=\"dim\"></p>\n</div>\n",
    );
}

fn by_id(report: &Value) -> BTreeMap<&str, &Value> {
    list(report, "scenarios").iter().map(|scenario| (text(scenario, "id"), scenario)).collect()
}

/// Clauses in the order of their ids, those of one area below one heading.
fn matrix(out: &mut String, report: &Value, scenarios: &BTreeMap<&str, &Value>) {
    let mut areas: BTreeMap<&str, BTreeMap<&str, Vec<&Value>>> = BTreeMap::new();
    for check in list(report, "checks") {
        let clause = text(check, "clause");
        let area = clause.split('-').nth(1).unwrap_or("other");
        areas.entry(area).or_default().entry(clause).or_default().push(check);
    }
    for (area, clauses) in areas {
        let area = escape(area);
        out.push_str(&format!(
            "<section class=\"area\" aria-labelledby=\"area-{area}\">\n<h3 id=\"area-{area}\">{area}</h3>\n"
        ));
        for (clause, checks) in clauses {
            row(out, clause, &checks, scenarios);
        }
        out.push_str("</section>\n");
    }
}

/// One clause: its words, a mark for each of its checks, and, once it is open, the checks.
fn row(out: &mut String, id: &str, checks: &[&Value], scenarios: &BTreeMap<&str, &Value>) {
    let known = clauses::find(id);
    let worst = checks.iter().map(|check| text(check, "verdict")).min_by_key(|word| rank(word));
    let worst = escape(worst.unwrap_or_default());
    let strength =
        known.map_or_else(|| checks.first().map_or("", |c| text(c, "strength")), |c| c.level);
    out.push_str(&format!(
        "<details class=\"clause\" id=\"clause-{id}\">\n<summary><span class=\"{worst}\">{worst}</span> <span class=\"id\">{id}</span> \
         <span class=\"dim\">{}</span> <span class=\"strip\" role=\"img\" aria-label=\"{}\">",
        escape(strength),
        escape(&counts(checks.iter().copied())),
        id = escape(id),
    ));
    for check in checks {
        let verdict = text(check, "verdict");
        out.push_str(&format!("<span class=\"{}\">{}</span>", escape(verdict), sign(verdict)));
    }
    out.push_str(&format!(
        "</span> <span class=\"words\">{}</span></summary>\n<div class=\"body\">\n",
        known.map_or_else(|| "No clause of this specification.".to_owned(), words)
    ));
    let mut drawn = BTreeSet::new();
    for check in checks {
        let scenario = scenarios.get(text(check, "scenario")).copied();
        one(out, check, scenario, drawn.insert(text(check, "scenario")));
    }
    out.push_str("</div>\n</details>\n");
}

/// The words of a clause. The registry is TOML, so a quote and a backslash have a backslash before them.
fn words(clause: &Clause) -> String {
    prose(&clause.text.replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// One check. The drawing of its scenario is open at the first of several.
fn one(out: &mut String, check: &Value, scenario: Option<&Value>, is_first: bool) {
    let of = |key: &str| escape(text(check, key));
    let (id, verdict, level) = (of("id"), of("verdict"), of("level"));
    out.push_str(&format!(
        "<article class=\"is-{verdict}\" id=\"check-{id}\" data-verdict=\"{verdict}\" data-level=\"{level}\" tabindex=\"-1\" aria-labelledby=\"name-{id}\">\n\
         <h4 id=\"name-{id}\"><span class=\"{verdict}\"><span aria-hidden=\"true\">{}</span> {verdict}</span> <span class=\"id\">{id}</span> \
         <span class=\"dim\">{level} {}</span></h4>\n<dl><dt>expected</dt><dd>{}</dd><dt>seen</dt><dd>{}</dd>",
        sign(text(check, "verdict")),
        of("strength"),
        prose(text(check, "expected")),
        paths::prose(text(check, "seen")),
    ));
    let name = of("scenario");
    let Some(scenario) = scenario else {
        out.push_str(&format!(
            "<dt>scenario</dt><dd>{name}, which was not played</dd></dl>\n</article>\n"
        ));
        return;
    };
    out.push_str(&format!(
        "<dt>files</dt><dd>{}</dd><dt>scenario</dt><dd><a href=\"#scenario-{name}\">{name}</a>: {}</dd></dl>\n",
        touched(scenario, text(check, "seen")),
        prose(text(scenario, "about")),
    ));
    out.push_str(&format!(
        "<details class=\"line\"{}><summary>Timeline</summary>{}</details>\n</article>\n",
        if is_first { " open" } else { "" },
        drawing::shown(scenario),
    ));
}

/// The files that the subject touched, those first that the check speaks of.
fn touched(scenario: &Value, seen: &str) -> String {
    let (files, trace) = (list(scenario, "files"), list(scenario, "trace"));
    let is_file = |path: &str| {
        !files.iter().any(|file| text(file, "path") == path && text(file, "kind") == "directory")
    };
    let changed = |file: &&Value| text(file, "became") != "same" && text(file, "by") != "suite";
    // What came and went is in the trace alone. Temporary names are known by what became of them.
    let is_old_name = |path: &str| trace.iter().any(|event| text(event, "from") == path);
    let own = |event: &&Value| text(event, "by") == "subject" && text(event, "what") != "mark";
    let mut paths: Vec<&str> = (files.iter().filter(changed))
        .chain(trace.iter().filter(own))
        .map(|one| text(one, "path"))
        .filter(|path| is_file(path) && !is_old_name(path))
        .collect();
    paths.sort_unstable();
    paths.dedup();
    if paths.is_empty() {
        return "the subject touched none".to_owned();
    }
    paths.sort_by_key(|path| !seen.contains(path));
    let shown = paths.iter().take(FILES).map(|path| format!("<li>{}</li>", paths::html(path)));
    let shown: String = shown.collect();
    let more = paths.len().saturating_sub(FILES);
    let more = if more > 0 { format!("<li>and {more} more</li>") } else { String::new() };
    format!("<ul class=\"names\">{shown}{more}</ul>")
}

/// A sentence of ours, in which backticks mark names.
fn prose(text: &str) -> String {
    let escaped = escape(text);
    let pieces: Vec<_> = escaped.split('`').collect();
    if pieces.len() % 2 == 0 {
        return escaped;
    }
    let piece = |(at, piece): (usize, &&str)| match at % 2 {
        0 => (*piece).to_owned(),
        _ => format!("<code>{piece}</code>"),
    };
    pieces.iter().enumerate().map(piece).collect()
}

/// One scenario: what happens in it, the drawing, its checks, the files, the trace, what the subject said.
fn played(out: &mut String, report: &Value, scenario: &Value) {
    let of = |key: &str| escape(text(scenario, key));
    let id = of("id");
    out.push_str(&format!(
        "<details class=\"scenario\" id=\"scenario-{id}\">\n<summary><span class=\"id\">{id}</span> <span>{}</span> \
         <span class=\"dim\">{}, {} ms</span></summary>\n<div class=\"body\">\n",
        prose(text(scenario, "about")),
        of("ended"),
        number(scenario, "tookMs"),
    ));
    if let Some(missed) = scenario.get("missed").and_then(Value::as_str) {
        out.push_str(&format!("<p class=\"fail\">{}</p>\n", escape(missed)));
    }
    out.push_str(&drawing::shown(scenario));
    out.push_str("<h3>Checks</h3>\n<ul class=\"links\">\n");
    let own = |check: &&Value| text(check, "scenario") == text(scenario, "id");
    for check in list(report, "checks").iter().filter(own) {
        let (check, verdict) = (escape(text(check, "id")), escape(text(check, "verdict")));
        out.push_str(&format!(
            "<li><span class=\"{verdict}\">{verdict}</span> <a class=\"id\" href=\"#check-{check}\">{check}</a></li>\n"
        ));
    }
    out.push_str("</ul>\n");
    files(out, scenario);
    trace(out, scenario);
    for (key, place) in [("stdout", "On standard output"), ("stderr", "On standard error")] {
        let said = of(key);
        if !said.trim().is_empty() {
            out.push_str(&format!("<h3>{place}</h3>\n<pre>{said}</pre>\n"));
        }
    }
    out.push_str("</div>\n</details>\n");
}

/// What stood in the store at the end, and what is gone.
fn files(out: &mut String, scenario: &Value) {
    let files = list(scenario, "files");
    if files.is_empty() {
        return;
    }
    out.push_str("<h3>Files</h3>\n<ul class=\"files\">\n");
    for file in files {
        out.push_str(&format!(
            "<li>{} <span class=\"dim\">{}: {}, {} bytes, mode {}</span>{}</li>\n",
            paths::html(text(file, "path")),
            escape(text(file, "became")),
            escape(text(file, "kind")),
            number(file, "bytes"),
            escape(text(file, "mode")),
            content(file),
        ));
    }
    out.push_str("</ul>\n");
    if scenario.get("filesAreWhole") == Some(&Value::Bool(false)) {
        out.push_str("<p class=\"dim\">There were more.</p>\n");
    }
}

/// The text of a file or of an event, to be opened.
fn content(of: &Value) -> String {
    let Some(text) = of.get("text").and_then(Value::as_str).filter(|text| !text.is_empty()) else {
        return String::new();
    };
    format!(" <details class=\"text\"><summary>text</summary><pre>{}</pre></details>", escape(text))
}

fn trace(out: &mut String, scenario: &Value) {
    out.push_str("<h3>Trace</h3>\n<ol class=\"trace\">\n");
    for event in list(scenario, "trace") {
        let from = event.get("from").and_then(Value::as_str);
        let from = from.map(|from| format!(" from {}", paths::html(from))).unwrap_or_default();
        out.push_str(&format!(
            "<li><span class=\"dim\">{} ms, {}:</span> {} {}{from}{}</li>\n",
            number(event, "atMs"),
            escape(text(event, "by")),
            escape(text(event, "what")),
            paths::html(text(event, "path")),
            content(event),
        ));
    }
    out.push_str("</ol>\n");
    if scenario.get("traceIsWhole") == Some(&Value::Bool(false)) {
        out.push_str("<p class=\"dim\">There was more.</p>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backticks_mark_names_and_one_too_many_is_a_character() {
        assert_eq!(prose("a `b<` c"), "a <code>b&lt;</code> c");
        assert_eq!(prose("a ` b"), "a ` b");
    }

    #[test]
    fn a_check_names_what_its_subject_touched_and_first_what_it_speaks_of() {
        let event =
            |by: &str, path: &str| serde_json::json!({"by": by, "what": "removed", "path": path});
        let file = |became: &str, kind: &str, path: &str| serde_json::json!({"became": became, "kind": kind, "path": path});
        let renamed = serde_json::json!({"by": "subject", "what": "renamed into place", "path": "b", "from": ".b"});
        let scenario = serde_json::json!({
            "files": [file("same", "file", "kept"), file("made", "file", "a"), file("made", "directory", "d")],
            "trace": [event("subject", "came"), event("suite", "planted"), event("subject", ".b"), renamed, event("subject", "d")],
        });
        let of = |names: &[&str]| {
            let items: String =
                names.iter().map(|n| format!("<li><code>{n}</code></li>")).collect();
            format!("<ul class=\"names\">{items}</ul>")
        };
        assert_eq!(touched(&scenario, "b is gone"), of(&["b", "a", "came"]));
        assert_eq!(touched(&serde_json::json!({}), ""), "the subject touched none");
    }

    #[test]
    fn a_page_names_its_role_and_shows_what_was_said() {
        let scenario = serde_json::json!({"id": "x", "stdout": "<out>", "stderr": " "});
        let page = html(&serde_json::json!({"role": "observer", "scenarios": [scenario]}));
        assert!(page.contains("<title>Conformance of an observer</title>"), "{page}");
        assert!(page.contains("<h3>On standard output</h3>\n<pre>&lt;out&gt;</pre>"), "{page}");
        assert!(!page.contains("On standard error"), "{page}");
    }

    #[test]
    fn the_words_of_a_clause_are_those_of_its_chapter() {
        let of = |id: &str| words(clauses::find(id).expect("registered"));
        let all = clauses::all().iter().map(words);
        assert!(all.filter(|words| words.contains("\\\"") || words.contains("\\\\")).count() == 0);
        let quoted =
            clauses::all().iter().find(|clause| clause.text.contains("\\\"")).expect("one");
        assert!(of(quoted.id).contains("&quot;"), "{}", of(quoted.id));
    }

    #[test]
    fn the_worst_verdict_comes_first_and_an_unknown_one_is_no_better() {
        let check = |word: &str| serde_json::json!({"verdict": word});
        let checks = [check("pass"), check("fail"), check("pass"), check("odd")];
        assert_eq!(counts(checks.iter()), "1 fail, 1 odd, 2 pass");
        assert_eq!(sign("odd"), "·");
    }
}
