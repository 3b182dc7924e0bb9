//! One page that a person likes to read: a matrix of checks, each row opening to what was expected, what was seen, and
//! the ordered trace of its scenario as a drawing and a list.
//!
//! Theory of operation. The page is one file, has its style and script inside and asks for nothing from elsewhere, which
//! its content policy says too. Rows are `details`, so that keyboard and screen reader work without the script; the
//! script only filters. Traces stand once per scenario, and rows lead to them. Everything from a subject or
//! a kept report is escaped or a number.

use serde_json::Value;

use super::machine::{escape, list, number, text};

const STYLE: &str = "\
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1b1f;--dim:#5b5b66;--line:#d8d8de;--pass:#1a7f37;--fail:#c4122f;--other:#8a5a00;--card:#f6f6f8}\
@media(prefers-color-scheme:dark){:root{--bg:#151518;--fg:#ececf0;--dim:#a3a3ad;--line:#34343b;--pass:#4cc26b;--fail:#ff6b7d;--other:#e0b04a;--card:#1e1e23}}\
*{box-sizing:border-box}body{margin:0 auto;max-width:72rem;padding:1.5rem;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}\
h1{font-size:1.5rem;margin:0 0 .5rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}p{margin:.25rem 0}code,pre,.id{font-family:ui-monospace,monospace;font-size:.875em}\
.dim{color:var(--dim)}.counts{display:flex;flex-wrap:wrap;gap:.5rem;margin:1rem 0;padding:0;border:0}\
button,input{font:inherit;color:inherit;background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.35rem .7rem}\
button[aria-pressed=true]{border-color:currentColor;font-weight:600}:focus-visible{outline:3px solid #4c8dff;outline-offset:2px}\
details{border-bottom:1px solid var(--line)}summary{display:grid;grid-template-columns:7rem 8.5rem 3rem 1fr;gap:.75rem;padding:.4rem .25rem;cursor:pointer}\
summary::marker{content:''}details[open]>summary{background:var(--card)}.body{padding:.5rem 1rem 1rem}\
.pass{color:var(--pass)}.fail{color:var(--fail);font-weight:700}.non-strict,.inconclusive,.skipped,.gap{color:var(--other)}\
dl{display:grid;grid-template-columns:6rem 1fr;gap:.25rem .75rem;margin:0}dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}\
ol{padding-left:2.5rem;overflow-wrap:anywhere}li{margin:.1rem 0}svg{width:100%;height:auto;background:var(--card);border-radius:.5rem}svg text{fill:var(--dim);font-size:11px}\
.suite{fill:#4c8dff}.subject{fill:var(--pass)}[hidden]{display:none}\
@media(max-width:40rem){body{padding:1rem}summary{grid-template-columns:1fr 1fr;gap:.25rem}summary .id{grid-column:1/-1;overflow-wrap:anywhere}dl{grid-template-columns:1fr}}";

const SCRIPT: &str = "\
(function(){var on='',rows=document.querySelectorAll('details[data-verdict]'),say=document.getElementById('shown'),find=document.getElementById('find');\
function show(){var n=0,words=find.value.toLowerCase();rows.forEach(function(r){var hit=(!on||r.dataset.verdict===on)&&r.textContent.toLowerCase().indexOf(words)>=0;r.hidden=!hit;if(hit)n++});say.textContent=n+' of '+rows.length+' checks shown'}\
document.querySelectorAll('button[data-filter]').forEach(function(b){b.addEventListener('click',function(){on=on===b.dataset.filter?'':b.dataset.filter;\
document.querySelectorAll('button[data-filter]').forEach(function(o){o.setAttribute('aria-pressed',String(o.dataset.filter===on))});show()})});\
find.addEventListener('input',show);\
function open(){var t=location.hash&&document.getElementById(decodeURIComponent(location.hash.slice(1)));if(t&&t.tagName==='DETAILS')t.open=true}\
addEventListener('hashchange',open);open();show()})();";

/// The page of a report.
pub fn html(report: &Value) -> String {
    let role = escape(text(report, "role"));
    let level = report.get("levelReached").and_then(Value::as_str).unwrap_or("none");
    let level = escape(level);
    let words: Vec<_> = list(report, "command").iter().filter_map(Value::as_str).collect();
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>Conformance of a {role}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <header>\n<h1>Conformance of a {role}: level reached {level}</h1>\n<p><code>{}</code></p>\n<p class=\"dim\">{}</p>\n</header>\n<main>\n",
        escape(&words.join(" ")),
        escape(text(report, "smoke")),
    );
    filters(&mut out, report);
    out.push_str("<section aria-label=\"Checks\">\n");
    for check in list(report, "checks") {
        row(&mut out, check);
    }
    out.push_str("</section>\n<h2>Scenarios</h2>\n<section aria-label=\"Scenarios\">\n");
    for scenario in list(report, "scenarios") {
        trace(&mut out, scenario);
    }
    let summary = &report["summary"];
    out.push_str(&format!(
        "</section>\n</main>\n<footer class=\"dim\">\n<p>{} of {} MUST clauses that bind a {role} have a check. Seed {}. {} ms.</p>\n</footer>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        number(summary, "mustClausesWithCheck"),
        number(summary, "mustClauses"),
        escape(text(report, "seed")),
        number(report, "tookMs"),
    ));
    out
}

fn filters(out: &mut String, report: &Value) {
    out.push_str("<fieldset class=\"counts\">\n<legend class=\"dim\">Show only</legend>\n");
    for word in ["fail", "non-strict", "inconclusive", "gap", "skipped", "pass"] {
        let count = number(&report["summary"]["verdicts"], word);
        if count > 0 {
            out.push_str(&format!(
                "<button type=\"button\" data-filter=\"{word}\" aria-pressed=\"false\" class=\"{word}\">{count} {word}</button>\n"
            ));
        }
    }
    out.push_str(
        "<label>Find <input id=\"find\" type=\"search\" autocomplete=\"off\"></label>\n</fieldset>\n\
         <p id=\"shown\" role=\"status\" class=\"dim\"></p>\n",
    );
}

fn row(out: &mut String, check: &Value) {
    let of = |key: &str| escape(text(check, key));
    let (id, verdict, scenario) = (of("id"), of("verdict"), of("scenario"));
    out.push_str(&format!(
        "<details id=\"check-{id}\" data-verdict=\"{verdict}\"><summary><span class=\"{verdict}\">{verdict}</span>\
         <span>{}</span><span>{}</span><span class=\"id\">{id}</span></summary><div class=\"body\"><dl>\
         <dt>expected</dt><dd>{}</dd><dt>seen</dt><dd>{}</dd><dt>strength</dt><dd>{}</dd>\
         <dt>scenario</dt><dd><a href=\"#scenario-{scenario}\">{scenario}</a></dd></dl></div></details>\n",
        of("clause"),
        of("level"),
        of("expected"),
        of("seen"),
        of("strength"),
    ));
}

fn trace(out: &mut String, scenario: &Value) {
    let of = |key: &str| escape(text(scenario, key));
    let id = of("id");
    let events = list(scenario, "trace");
    out.push_str(&format!(
        "<details id=\"scenario-{id}\"><summary><span class=\"id\">{id}</span><span>{} ms</span><span></span><span>{}</span></summary><div class=\"body\"><p>{}</p>\n",
        number(scenario, "tookMs"),
        of("ended"),
        of("about"),
    ));
    if let Some(missed) = scenario.get("missed").and_then(Value::as_str) {
        out.push_str(&format!("<p class=\"fail\">{}</p>\n", escape(missed)));
    }
    drawing(out, scenario, events);
    out.push_str("<ol>\n");
    for event in events {
        let from = event.get("from").and_then(Value::as_str);
        let from =
            from.map(|from| format!(" from <code>{}</code>", escape(from))).unwrap_or_default();
        out.push_str(&format!(
            "<li><span class=\"dim\">{} ms, {}:</span> <code>{}</code> {}{from}</li>\n",
            number(event, "atMs"),
            escape(text(event, "by")),
            escape(text(event, "path")),
            escape(text(event, "what")),
        ));
    }
    out.push_str("</ol>\n");
    let said = of("stderr");
    if !said.trim().is_empty() {
        out.push_str(&format!("<p class=\"dim\">On standard error:</p><pre>{said}</pre>\n"));
    }
    out.push_str("</div></details>\n");
}

/// Two lanes over the time of the scenario: what the suite did, and what the subject did.
fn drawing(out: &mut String, scenario: &Value, events: &[Value]) {
    let whole = scenario["tookMs"].as_f64().unwrap_or(1.0).max(1.0);
    let by = |who: &str| events.iter().filter(|event| text(event, "by") == who).count();
    out.push_str(&format!(
        "<svg viewBox=\"0 0 1000 90\" role=\"img\" aria-label=\"Timeline of {} ms: {} events of the suite, {} of the subject\">\
         <text x=\"4\" y=\"28\">suite</text><text x=\"4\" y=\"62\">subject</text><text x=\"60\" y=\"85\">0 ms</text>\
         <text x=\"990\" y=\"85\" text-anchor=\"end\">{whole} ms</text>",
        number(scenario, "tookMs"),
        by("suite"),
        by("subject"),
    ));
    for event in events {
        let at = event["atMs"].as_f64().unwrap_or_default() / whole;
        let who = if text(event, "by") == "suite" { "suite" } else { "subject" };
        let y = if who == "suite" { 12 } else { 46 };
        out.push_str(&format!(
            "<rect class=\"{who}\" x=\"{:.1}\" y=\"{y}\" width=\"3\" height=\"22\"/>",
            60.0 + at.min(1.0) * 925.0
        ));
    }
    out.push_str("</svg>\n");
}
