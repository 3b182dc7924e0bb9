//! Answers as text. Strings from files are data: nothing in them reaches the terminal as a command.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use anstyle::{AnsiColor, Style};

pub(crate) use runstore::inspect::shell_word;
use runstore::inspect::{LeaseReport, ProblemReport, ResultReport, RunReport, SlotReport, Summary};

use super::exit_code::Code;

/// Makes control characters, and characters that reorder or hide text, visible.
/// Spec: RS-READ-10.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    let plain = |b: u8| (0x20..0x7f).contains(&b);
    // Without an early end, which takes a number of bytes at once.
    let is_plain = text.bytes().fold(true, |all, b| all & plain(b));
    if is_plain || !text.chars().any(harmful) {
        return text.into();
    }
    let escaped = text.chars().fold(String::with_capacity(text.len() + 16), |mut out, c| {
        if harmful(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
        out
    });
    escaped.into()
}

/// The same for a text of many lines, whose line ends and tabs stay.
pub(crate) fn escape_lines(text: &str) -> Cow<'_, str> {
    let kept = ['\n', '\t'];
    if escape(text) == text {
        return text.into();
    }
    let parts = text.split_inclusive(kept).map(|part| {
        let (rest, end) = match part.strip_suffix(kept) {
            Some(rest) => (rest, &part[rest.len()..]),
            None => (part, ""),
        };
        // A carriage return before a line end does nothing.
        let rest = if end == "\n" { rest.strip_suffix('\r').unwrap_or(rest) } else { rest };
        escape(rest) + end
    });
    parts.collect::<Vec<_>>().concat().into()
}

/// As much of one line as a person reads; JSON has the whole.
fn shown(line: &str) -> Cow<'_, str> {
    cut(line, 2000)
}

/// As much of a word as a table has room for.
fn word(text: &str) -> Cow<'_, str> {
    cut(text, 64)
}

fn cut(text: &str, chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars) {
        None => escape(text),
        Some((at, _)) => escape(&text[..at]) + "…",
    }
}

/// An instant and how long ago it was.
pub(crate) fn when(at_ms: i64, now_ms: i64) -> String {
    let stamp = u64::try_from(at_ms).ok().and_then(|ms| {
        let at = UNIX_EPOCH.checked_add(Duration::from_millis(ms))?;
        // The formatter panics after the year 9999.
        (ms < 253_402_300_800_000).then(|| humantime::format_rfc3339_seconds(at).to_string())
    });
    let Some(stamp) = stamp else { return format!("{at_ms} ms") };
    let distance = now_ms.saturating_sub(at_ms);
    if distance < 0 {
        format!("{stamp}, {} ahead", age(distance.saturating_neg()))
    } else {
        format!("{stamp}, {} ago", age(distance))
    }
}

/// A duration, with one unit.
pub(crate) fn age(ms: i64) -> String {
    let (count, unit) = in_one_unit(ms);
    format!("{count} {unit}")
}

fn in_one_unit(ms: i64) -> (i64, &'static str) {
    let s = ms / 1000;
    match s {
        0 => (ms, "ms"),
        1..=119 => (s, "s"),
        120..=7199 => (s / 60, "min"),
        7200..=172_799 => (s / 3600, "h"),
        _ => (s / 86_400, "d"),
    }
}

fn color(code: Code) -> Style {
    let color = match code {
        Code::DAMAGED | Code::IO | Code::INTERNAL => AnsiColor::Red,
        Code::ATTENTION | Code::NEWER => AnsiColor::Yellow,
        Code::UNDETERMINED => AnsiColor::Magenta,
        _ => AnsiColor::Green,
    };
    Style::new().bold().fg_color(Some(color.into()))
}

const DIM: Style = Style::new().dimmed();

/// A verdict, coloured and padded.
pub(crate) fn verdict(report: &RunReport, width: usize) -> String {
    let style = color(Code::of_report(report));
    format!("{style}{:<width$}{style:#}", report.verdict)
}

/// Whether a report needs no more than one line.
pub(crate) fn is_quiet(report: &RunReport) -> bool {
    Code::of_report(report) == Code::FINE
        && report.findings.iter().all(|f| f.severity == "note")
        && !matches!(report.verdict, "starting" | "settling" | "never-started")
}

/// One run in full: the verdict first, then evidence, because, you may, must not.
pub(crate) fn run(out: &mut impl Write, r: &RunReport, now_ms: i64) -> io::Result<()> {
    let state = r
        .recorded_state
        .as_deref()
        .map_or("no state recorded".to_owned(), |s| format!("recorded '{}'", word(s)));
    writeln!(out, "{}  {}", verdict(r, 0), escape(&r.run_id))?;
    write!(out, "  {state} · process {} · proof {}", r.liveness, word(r.proof.state))?;
    if r.proof.counts {
        write!(out, " (counts)")?;
    }
    if let Some(stage) = r.stage {
        write!(out, " · stage {stage}")?;
    }
    if let Some(preferred) = r.preferred {
        write!(out, " · preferred {preferred}")?;
    }
    writeln!(out)?;
    if !r.flags.is_empty() {
        writeln!(out, "  flags     {}", r.flags.join(", "))?;
    }
    line(out, "path", &r.path)?;
    if let Some(session) = &r.session_id {
        line(out, "session", session)?;
    }
    if !r.children.is_empty() {
        line(out, "children", &r.children.join(", "))?;
    }
    for e in &r.evidence {
        let mut source = String::new();
        if let Some(file) = &e.file {
            source.push_str(&escape(file));
        }
        if let Some(at) = e.at_ms.filter(|at| *at != now_ms) {
            if !source.is_empty() {
                source.push_str(", ");
            }
            source.push_str(&when(at, now_ms));
        }
        text_lines(out, &format!("  {:<9} ", e.kind), &e.text, &source)?;
    }
    for f in &r.findings {
        let mut source = f.id.to_owned();
        if let Some(file) = &f.file {
            source.push_str(": ");
            source.push_str(&escape(file));
        }
        if let Some(line) = f.line {
            source.push_str(&format!(":{line}"));
        }
        text_lines(out, &format!("  {:<9} ", f.severity), &f.text, &source)?;
    }
    line(out, "because", &r.because)?;
    if let (Some(can), Some(why)) = (r.resumable, &r.resumable_because) {
        line(out, "resumable", &format!("{}: {why}", if can { "yes" } else { "no" }))?;
    }
    for n in &r.next {
        line(out, "you may", &format!("{}: {}", n.action, n.why))?;
        if let Some(command) = &n.command {
            line(out, "", command)?;
        }
    }
    for not in &r.must_not {
        line(out, "must not", not)?;
    }
    writeln!(out)
}

/// A word in front and a text.
pub(crate) fn line(out: &mut impl Write, key: &str, text: &str) -> io::Result<()> {
    text_lines(out, &format!("  {key:<9} "), text, "")
}

/// A text that may have several lines, each escaped; the source stands behind the first.
fn text_lines(out: &mut impl Write, head: &str, text: &str, source: &str) -> io::Result<()> {
    let mut lines = text.lines();
    write!(out, "{head}{}", shown(lines.next().unwrap_or_default()))?;
    if !source.is_empty() {
        write!(out, "  {DIM}[{source}]{DIM:#}")?;
    }
    writeln!(out)?;
    for more in lines {
        writeln!(out, "            | {}", shown(more))?;
    }
    Ok(())
}

/// One run in one line.
pub(crate) fn row(
    out: &mut impl Write,
    r: &RunReport,
    now_ms: i64,
    colored: bool,
) -> io::Result<()> {
    // Column by column: one format of all of them takes as long as a good part of the judgement.
    if colored {
        let style = color(Code::of_report(r));
        write!(out, "{style}{:<18}{style:#}", r.verdict)?;
    } else {
        padded(out, r.verdict, 18)?;
    }
    out.write_all(b"  ")?;
    padded(out, &r.recorded_state.as_deref().map_or("-".into(), word), 9)?;
    out.write_all(b" ")?;
    padded(out, r.liveness, 12)?;
    match r.last_evidence_ms {
        Some(at) => {
            let (count, unit) = in_one_unit(now_ms.saturating_sub(at).max(0));
            // Both and the space between them fill eight characters.
            write!(out, " {count:>0$} {unit}  ", 7_usize.saturating_sub(unit.len()))?;
        }
        None => out.write_all(b"        -  ")?,
    }
    out.write_all(escape(&r.run_id).as_bytes())?;
    for (i, flag) in r.flags.iter().enumerate() {
        out.write_all(if i == 0 { b"  " } else { b"," })?;
        out.write_all(flag.as_bytes())?;
    }
    out.write_all(b"\n")
}

/// A word and the spaces that fill its column.
fn padded(out: &mut impl Write, word: &str, width: usize) -> io::Result<()> {
    const SPACES: &[u8] = &[b' '; 32];
    out.write_all(word.as_bytes())?;
    let missing = width.saturating_sub(word.chars().count());
    out.write_all(SPACES.get(..missing).unwrap_or(SPACES))
}

/// The head of a table of rows.
pub(crate) fn row_head(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{DIM}{:<18}  {:<9} {:<12} {:>8}  RUN{DIM:#}",
        "VERDICT", "RECORDED", "PROCESS", "LAST"
    )
}

/// Slots, leases, results and problems of a store.
pub(crate) fn store_end(
    out: &mut impl Write,
    slots: &[SlotReport],
    leases: &[LeaseReport],
    results: &[ResultReport],
    problems: &[ProblemReport],
) -> io::Result<()> {
    for s in slots {
        let word = if s.releasable { "releasable" } else { "held" };
        let run = s.run_id.as_deref().map_or("unknown run".into(), escape);
        writeln!(
            out,
            "slot      {word:<11} {run}: {}  {DIM}[{}]{DIM:#}",
            escape(&s.reason),
            escape(&s.path)
        )?;
    }
    for l in leases {
        let run = l.run_id.as_deref().map_or("unknown run".into(), escape);
        let writer =
            l.writer_state.as_deref().map_or(String::new(), |w| format!(" (writer {})", escape(w)));
        let (reason, path) = (escape(&l.reason), escape(&l.path));
        writeln!(out, "lease     {:<11} {run}{writer}: {reason}  {DIM}[{path}]{DIM:#}", l.state)?;
    }
    for r in results {
        let outcome = r.outcome.unwrap_or("no outcome");
        let session = r.session_id.as_deref().map_or("no session".into(), escape);
        let waits = r.age_ms.map_or(String::new(), |ms| format!(", waiting {}", age(ms)));
        let problem = r.problem.as_deref().map_or(String::new(), |p| format!(": {}", escape(p)));
        let (run, path) = (escape(&r.run_id), escape(&r.path));
        writeln!(
            out,
            "result    {:<11} {run} ({outcome}, {session}{waits}){problem}  {DIM}[{path}]{DIM:#}",
            r.place
        )?;
    }
    for p in problems {
        let (text, source) = (escape(&p.text), source(p));
        writeln!(out, "problem   {:<11} {text}  {DIM}[{source}]{DIM:#}", p.severity)?;
    }
    Ok(())
}

/// A problem of a store as talk beside an answer.
pub(crate) fn problem(p: &ProblemReport) -> String {
    format!("{}: {} [{}]", p.severity, escape(&p.text), source(p))
}

/// The word that explains a problem, and where it is.
fn source(p: &ProblemReport) -> String {
    if p.path.is_empty() { p.id.to_owned() } else { format!("{}: {}", p.id, escape(&p.path)) }
}

/// The last line: how many of each.
pub(crate) fn summary(out: &mut impl Write, summary: &Summary) -> io::Result<()> {
    let parts: Vec<String> =
        summary.by_verdict.iter().map(|(verdict, n)| format!("{n} {verdict}")).collect();
    let what = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    let runs = if summary.total == 1 { "run" } else { "runs" };
    write!(out, "{} {runs}{what}", summary.total)?;
    if summary.temp_files > 0 {
        let files = if summary.temp_files == 1 { "file" } else { "files" };
        write!(out, "; {} leftover temp {files}", summary.temp_files)?;
    }
    if summary.lock_litter > 0 {
        write!(out, "; {} tombstones of locks", summary.lock_litter)?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_string_reaches_the_terminal_as_a_command() {
        assert_eq!(escape("a\x1b[31mb\u{202e}c\u{9b}d\r"), "a\\u{1b}[31mb\\u{202e}c\\u{9b}d\\u{d}");
        assert_eq!(escape("plain ünïcode"), "plain ünïcode");
    }

    #[test]
    fn instants_of_any_size_are_shown() {
        assert_eq!(when(1_790_000_000_000, 1_790_000_060_000), "2026-09-21T14:13:20Z, 60 s ago");
        assert_eq!(when(-5, 0), "-5 ms");
        assert!(when(i64::MAX, 0).ends_with(" ms"));
    }
}
