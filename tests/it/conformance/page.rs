//! The page of a report in a real browser: a person who reads it has a pointer or keys, ears or eyes, a wide or a narrow
//! screen, light or dark, and maybe no script.
//!
//! Theory of operation. The page of a report with every verdict in it is opened from a file in Chromium. What it asks of
//! the network and what its console says are read from the browser's own records. Without Chromium and
//! its driver each test says `SKIP`; where they are there and do not work, it fails.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::browser::{Browser, key};
use testkit::process::skip;

use super::reports::{mixed, shown};

/// The verdicts in the order of their filters.
const VERDICTS: [&str; 6] = ["fail", "non-strict", "inconclusive", "gap", "skipped", "pass"];
/// Rows that are there to be seen.
const ROWS: &str = "Array.from(document.querySelectorAll('.clause')).filter(r => r.offsetParent)";

/// A page of a report with every verdict and two levels, open in a browser.
struct Page {
    browser: Browser,
    report: Value,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Page {
    fn open(test: &str) -> Option<Self> {
        let browser = match Browser::start() {
            Ok(browser) => browser,
            Err(why) => {
                skip(test, &why);
                return None;
            }
        };
        let (dir, kept, mut report) = mixed();
        for check in report["checks"].as_array_mut().expect("checks").iter_mut().skip(4).step_by(3)
        {
            check["level"] = "L2".into();
        }
        let hostile =
            "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>";
        report["scenarios"][0]["trace"][0]["path"] = hostile.into();
        report["scenarios"][0]["files"][0]["text"] = hostile.into();
        fs::write(&kept, report.to_string()).expect("room");
        let path = dir.path().join("report.html");
        fs::write(&path, shown(&kept, "html")).expect("room");
        browser.open(&path);
        let page = Self { browser, report, path, _dir: dir };
        page.width(1280);
        Some(page)
    }

    fn number(&self, script: &str) -> usize {
        let said = self.browser.tell(&format!("return {script}"));
        usize::try_from(said.as_u64().unwrap_or_else(|| panic!("{script}: {said}"))).expect("small")
    }

    fn holds(&self, script: &str) -> bool {
        self.browser.tell(&format!("return {script}")) == true
    }

    /// Checks of the report with this member, and those that the page shows.
    fn checks(&self, key: &str, word: &str) -> (usize, usize, usize) {
        let all = self.report["checks"].as_array().expect("checks").iter();
        let visible = "document.querySelectorAll('.clause:not([hidden]) article:not([hidden])')";
        let others =
            format!("Array.from({visible}).filter(c => c.dataset.{key} !== '{word}').length");
        let shown = self.number(&format!("{visible}.length"));
        (all.filter(|check| check[key] == word).count(), shown, self.number(&others))
    }

    fn scheme(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.browser.tool("Emulation.setEmulatedMedia", &json!({"features": features}));
    }

    fn width(&self, width: u32) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.browser.tool("Emulation.setDeviceMetricsOverride", &size);
    }
}

#[test]
fn a_filter_shows_its_checks_alone_and_a_second_press_all_again() {
    let Some(page) = Page::open("filters of the page") else { return };
    let total = page.report["checks"].as_array().expect("checks").len();
    let of = |key: &str, words: &[&str]| {
        for word in words {
            let button = format!("button[data-key={key}][data-word={word}]");
            let pressed =
                format!("document.querySelector('{button}').getAttribute('aria-pressed')");
            page.browser.click(&button);
            let (wanted, shown, others) = page.checks(key, word);
            assert!(
                wanted > 0 && (shown, others) == (wanted, 0),
                "{word}: {shown} of {wanted}, {others}"
            );
            assert!(page.holds(&format!("{pressed} === 'true'")), "{word}");
            assert!(
                page.holds(&format!("{ROWS}.every(r => r.querySelector('article:not([hidden])'))"))
            );
            let said = format!(
                "document.getElementById('shown').textContent.startsWith('{wanted} of {total} ')"
            );
            assert!(page.holds(&said), "{word}: it is said how many");
            page.browser.click(&button);
            assert!(page.holds(&format!("{pressed} === 'false'")), "{word}");
            assert_eq!(page.checks(key, word).1, total, "{word}");
        }
    };
    of("verdict", &VERDICTS);
    of("level", &["L1", "L2"]);
    // Both at once show what fits both, and another verdict takes the place of the first.
    for button in ["[data-word=pass]", "[data-word=fail]", "[data-word=L2]"] {
        page.browser.click(&format!("button{button}"));
    }
    assert_eq!(page.number("document.querySelectorAll('button[aria-pressed=true]').length"), 2);
    let fits = |check: &&Value| check["verdict"] == "fail" && check["level"] == "L2";
    let wanted = page.report["checks"].as_array().expect("checks").iter().filter(fits).count();
    assert!(wanted > 0 && page.checks("verdict", "fail").1 == wanted);
    assert_eq!(page.browser.console(), Vec::<String>::new());
}

#[test]
fn keys_alone_find_a_check_open_it_and_lead_to_its_timeline_and_back() {
    let Some(page) = Page::open("keys on the page") else { return };
    let browser = &page.browser;
    let total = page.checks("verdict", "fail").1;
    browser.press(&["/"]);
    assert!(
        page.holds("document.activeElement.id === 'find' && document.activeElement.value === ''")
    );
    browser.press(&["r", "s", "-", "s", "t", "a", "r", "t", "-", "4", "7"]);
    assert!(page.holds(&format!("{ROWS}.map(r => r.id).join() === 'clause-RS-START-47'")));
    // Past the two buttons and the words about keys to the one row that is left.
    browser.press(&[key::TAB; 4]);
    let row = "document.getElementById('clause-RS-START-47')";
    assert!(page.holds(&format!("document.activeElement === {row}.querySelector('summary')")));
    assert!(page.holds(&format!("!{row}.open")));
    browser.press(&[key::ENTER]);
    assert!(page.holds(&format!("{row}.open")));
    browser.press(&[key::SPACE]);
    assert!(page.holds(&format!("!{row}.open")));
    browser.press(&[key::SPACE, key::TAB]);
    assert!(
        page.holds("document.activeElement.getAttribute('href') === '#scenario-fresh-complete'")
    );
    browser.press(&[key::ENTER]);
    let scenario = "document.getElementById('scenario-fresh-complete')";
    browser.until(&format!(
        "return {scenario}.open && document.activeElement === {scenario}.querySelector('summary')"
    ));
    let drawing = format!("{scenario}.querySelector('svg').getBoundingClientRect()");
    assert!(
        page.holds(&format!("{drawing}.top < innerHeight && {drawing}.height > 60")),
        "it is in sight"
    );
    // The first link of a scenario leads to one of its checks, which no filter hides any longer.
    browser.press(&[key::TAB]);
    let target = browser.tell("return document.activeElement.getAttribute('href')");
    let id = target.as_str().and_then(|target| target.strip_prefix("#")).expect("a link");
    assert!(id.starts_with("check-fresh-complete/"), "{id}");
    browser.press(&["/", "q", "q", "q"]);
    assert_eq!(page.number(&format!("{ROWS}.length")), 0);
    browser.tell(&format!("document.querySelector('a[href=\"#{id}\"]').focus()"));
    browser.press(&[key::ENTER]);
    browser.until(&format!("return document.activeElement.id === '{id}'"));
    assert!(page.holds(
        "document.activeElement.offsetParent && document.activeElement.closest('.clause').open"
    ));
    assert_eq!(page.checks("verdict", "fail").1, total);
    // And a second time, to where one has just been.
    browser.tell(&format!(
        "{scenario}.open = true; document.querySelector('a[href=\"#{id}\"]').focus()"
    ));
    browser.press(&[key::ENTER]);
    browser.until(&format!("return document.activeElement.id === '{id}'"));
    browser.click("button[data-word=gap]");
    assert!(page.checks("verdict", "gap").1 < total);
    browser.press(&[key::ESCAPE]);
    assert_eq!(page.checks("verdict", "gap").1, total, "Escape shows everything");
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
fn a_row_opens_to_everything_that_is_known_of_its_checks() {
    let Some(page) = Page::open("rows of the page") else { return };
    let clauses: std::collections::BTreeSet<_> = page.report["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .map(|c| c["clause"].to_string())
        .collect();
    assert_eq!(page.number(&format!("{ROWS}.length")), clauses.len(), "one row for each clause");
    page.browser.click("#clause-RS-STEP-03 summary");
    let row = "document.getElementById('clause-RS-STEP-03')";
    let checks =
        format!("Array.from({row}.querySelectorAll('article')).filter(c => c.offsetParent)");
    assert!(page.number(&format!("{checks}.length")) > 1, "checks of one clause stand together");
    let words = format!("{row}.querySelector('.words').innerText.length");
    assert!(page.number(&words) > 30, "the words of the clause");
    for check in page.report["checks"].as_array().expect("checks") {
        if check["clause"] != "RS-STEP-03" {
            continue;
        }
        let id = format!("check-{}", check["id"].as_str().expect("text"));
        let text = page.browser.tell(&format!("return document.getElementById('{id}').innerText"));
        let text = text.as_str().expect("text");
        let expected = check["expected"].as_str().expect("text").replace('`', "");
        for needed in
            [check["verdict"].as_str().expect("text"), &expected, "files", "fresh-complete"]
        {
            assert!(text.contains(needed), "{id}: {needed}: {text}");
        }
    }
    let drawn = format!("{row}.querySelector('svg').getBoundingClientRect().height");
    assert!(page.holds(&format!("{drawn} > 60")), "the timeline is drawn");
    page.browser.click("button[data-open=yes]");
    assert!(page.holds(&format!("{ROWS}.every(r => r.open)")));
    page.browser.click("button[data-open=no]");
    assert!(page.holds(&format!("!{ROWS}.some(r => r.open)")));
    page.browser.tell("document.getElementById('scenario-fresh-complete').open = true");
    let scenario = "document.getElementById('scenario-fresh-complete')";
    let events = page.report["scenarios"][0]["trace"].as_array().expect("a trace").len();
    assert_eq!(page.number(&format!("{scenario}.querySelectorAll('.trace > li').length")), events);
    let files = page.report["scenarios"][0]["files"].as_array().expect("files").len();
    assert!(
        files > 0
            && page.number(&format!("{scenario}.querySelectorAll('.files > li').length")) == files
    );
    assert_eq!(page.browser.console(), Vec::<String>::new());
}

#[test]
fn the_page_asks_nobody_for_anything_and_obeys_no_subject() {
    let Some(page) = Page::open("network of the page") else { return };
    page.browser.click("button[data-open=yes]");
    page.browser.tell("document.querySelectorAll('details').forEach(d => { d.open = true })");
    page.browser.until("return document.readyState === 'complete'");
    let own = |path: &Path| format!("file://{}", path.display());
    assert_eq!(without_data(page.browser.requests()), [own(&page.path)], "the file itself");
    assert_eq!(page.number("performance.getEntriesByType('resource').length"), 0);
    assert_eq!(page.browser.console(), Vec::<String>::new());
    assert!(
        page.holds("document.title === 'Conformance of a runner'"),
        "what a subject said is text"
    );
    assert_eq!(
        page.number("document.querySelectorAll('img, script:not(:last-of-type)').length"),
        0
    );
    // The same records show a page that is not so quiet.
    let loud = page.path.with_file_name("loud.html");
    let text = "<!doctype html><title>loud</title><img src=\"other.png\"><script>console.error('loud')</script>";
    fs::write(&loud, text).expect("room");
    page.browser.open(&loud);
    page.browser.until("return document.readyState === 'complete'");
    let asked = without_data(page.browser.requests());
    assert_eq!(asked, [own(&loud), own(&loud.with_file_name("other.png"))]);
    assert!(page.browser.console().iter().any(|line| line.contains("loud")));
}

/// Requests that leave the page: `data:` holds what it is about.
fn without_data(requests: Vec<String>) -> Vec<String> {
    requests.into_iter().filter(|address| !address.starts_with("data:")).collect()
}

#[test]
fn without_scripts_rows_still_open_and_nothing_is_offered_that_does_not_work() {
    let Some(page) = Page::open("the page without scripts") else { return };
    page.browser.tool("Emulation.setScriptExecutionDisabled", &json!({"value": true}));
    page.browser.reload();
    assert!(page.holds("document.getElementById('shown').textContent === ''"), "no script has run");
    assert!(page.holds("document.getElementById('find').offsetParent === null"));
    let total = page.report["checks"].as_array().expect("checks").len();
    assert_eq!(page.checks("verdict", "fail").1, total);
    page.browser.click("#clause-RS-START-47 summary");
    assert!(page.holds("document.getElementById('clause-RS-START-47').open"));
    page.browser.press(&[key::ENTER]);
    assert!(page.holds("!document.getElementById('clause-RS-START-47').open"));
    page.browser.click("#scenario-fresh-complete > summary");
    assert!(page.holds(
        "document.querySelector('#scenario-fresh-complete .trace li').offsetParent !== null"
    ));
}

/// Texts that can be seen and stand out from what is behind them by less than 4.5 to 1, with the ratio; and how many
/// texts were looked at.
const FAINT: &str = "
function rgb(text) { return text.match(/[\\d.]+/g).map(Number); }
function light(c) {
  var p = c.slice(0, 3).map(function (v) { v /= 255; return v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); });
  return 0.2126 * p[0] + 0.7152 * p[1] + 0.0722 * p[2];
}
function behind(e) {
  for (; e; e = e.parentElement) { var c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; }
  return [255, 255, 255];
}
function ratio(a, b) { var x = light(a), y = light(b); return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); }
var faint = [], seen = 0, walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  var at = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || !at.getClientRects().length || at.closest('svg, script')) continue;
  seen += 1;
  var is = ratio(rgb(getComputedStyle(at).color), behind(at));
  if (is < 4.5) faint.push(at.className + ' ' + walk.currentNode.data.slice(0, 20) + ' ' + is.toFixed(2));
}
var card = behind(document.querySelector('.scroll'));
document.querySelectorAll('.d-label, .d-name').forEach(function (text) {
  seen += 1;
  var is = ratio(rgb(getComputedStyle(text).fill), card);
  if (is < 4.5) faint.push('drawing ' + text.textContent + ' ' + is.toFixed(2));
});
document.querySelectorAll('.by-suite, .by-subject').forEach(function (shape) {
  var is = ratio(rgb(getComputedStyle(shape).stroke), card);
  if (is < 3) faint.push('drawing ' + shape.className.baseVal + ' ' + is.toFixed(2));
});
return [faint, seen];";

#[test]
fn both_schemes_can_be_read_and_no_width_makes_one_scroll_sideways() {
    let Some(page) = Page::open("colours and widths of the page") else { return };
    let background = "return getComputedStyle(document.body).backgroundColor";
    let mut grounds = Vec::new();
    page.browser.tell("document.querySelectorAll('details').forEach(d => { d.open = true })");
    for scheme in ["light", "dark"] {
        page.scheme(scheme);
        for width in [1280, 390] {
            page.width(width);
            let told = page.browser.tell(FAINT);
            assert_eq!(told[0], json!([]), "{scheme}, {width}");
            assert!(told[1].as_u64() > Some(500), "texts were looked at: {}", told[1]);
            let over =
                "document.documentElement.scrollWidth - document.documentElement.clientWidth";
            assert_eq!(page.number(over), 0, "{scheme}, {width}");
        }
        grounds.push(page.browser.tell(background));
    }
    assert_ne!(grounds[0], grounds[1]);
    for verdict in VERDICTS {
        let seen =
            format!("document.querySelector('article .{verdict}').getClientRects().length > 0");
        assert!(page.holds(&seen), "the colour of {verdict} was looked at");
    }
    // A drawing keeps its size where it has no room, and is moved below the finger instead.
    page.width(390);
    assert!(
        page.holds("document.querySelector('.scroll svg').getBoundingClientRect().width > 800")
    );
}

#[test]
fn whoever_hears_the_page_is_told_the_same() {
    let Some(page) = Page::open("the page for a screen reader") else { return };
    let browser = &page.browser;
    let count = |word: &str| {
        let checks = page.report["checks"].as_array().expect("checks").iter();
        checks.filter(|check| check["verdict"] == word).count()
    };
    for verdict in VERDICTS {
        let heard = browser.heard(&format!("button[data-word={verdict}]"));
        assert_eq!(heard, ("button".to_owned(), format!("{} {verdict}", count(verdict))));
    }
    browser.click("#clause-RS-START-47 summary");
    for (selector, role, name) in [
        ("header", "banner", ""),
        ("main", "main", ""),
        ("footer", "contentinfo", ""),
        ("h1", "heading", "Conformance of a runner: level reached none"),
        ("#clauses", "heading", "Clauses"),
        ("#tools", "search", ""),
        ("#find", "searchbox", "Find"),
        ("#shown", "status", ""),
        (".levels", "list", "Levels"),
        ("fieldset", "group", "Show one verdict"),
        (".area", "region", "ATOM"),
    ] {
        assert_eq!(browser.heard(selector), (role.to_owned(), name.to_owned()), "{selector}");
    }
    let (_, row) = browser.heard("#clause-RS-START-47 > summary");
    for needed in ["fail", "RS-START-47", "MUST", "1 fail", "In a revival"] {
        assert!(row.contains(needed), "{needed}: {row}");
    }
    let (role, name) = browser.heard("#clause-RS-START-47 svg");
    assert!(matches!(role.as_str(), "img" | "image"), "{role}");
    assert!(
        name.starts_with("Timeline of fresh-complete, ") && name.contains(" events of the suite"),
        "{name}"
    );
    let (role, name) = browser.heard("#clause-RS-START-47 article");
    assert!(role == "article" && name.contains("fresh-complete/quiet"), "{role} {name}");
    // Headings leave no step out, and every id stands once.
    let levels =
        "Array.from(document.querySelectorAll('h1,h2,h3,h4,h5,h6')).map(h => +h.tagName[1])";
    assert!(
        page.holds(&format!("{levels}.every((n, i, all) => i ? n <= all[i - 1] + 1 : n === 1)"))
    );
    let ids = "Array.from(document.querySelectorAll('[id]')).map(e => e.id)";
    assert!(page.holds(&format!("new Set({ids}).size === {ids}.length")));
    let lost = "Array.from(document.querySelectorAll('a[href], use')).filter(a => !document.getElementById(a.getAttribute('href').slice(1))).length";
    assert_eq!(page.number(lost), 0, "every link leads somewhere");
    assert_eq!(browser.console(), Vec::<String>::new());
}
