//! `runstore spec [CLAUSE|AREA|CHAPTER]`: the text of the spec, out of the program itself.
//!
//! Theory of operation. The registry says which clauses there are, the pages what they say; both are built in, so
//! the answer is about the protocol that this very program keeps. A word is looked for in this order: a clause, an
//! area, a page by its number or name, a page by a part of its title. The order is from the strict to the loose,
//! because an id that were taken for a part of a title would answer another question. A word that is none of them
//! is a mistake of the caller, who is told the nearest names, by the letters that have to be changed. No file is opened.

use std::io::{self, Write};

use runstore::inspect::{Clause, clauses, spec_version};
use serde_json::{Value, json};

use crate::cli::args::{Format, SpecArgs};
use crate::cli::chapters::{self, Chapter, Place};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};

/// What was asked for.
enum Found<'a> {
    Contents,
    Page(&'static Chapter),
    Clauses(Vec<&'a Clause>),
}

/// Answers.
pub(crate) fn run(args: &SpecArgs, output: &mut Output) -> Result<Code, Failure> {
    let all = clauses();
    let found = match &args.name {
        None => Found::Contents,
        Some(name) => find(name, &all)?,
    };
    let out = output.writer();
    match args.format {
        Format::Text => text(out, &found, &all)?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &answer(&found, &all))?;
            writeln!(out)?;
        }
        Format::Jsonl => {
            let whole = answer(&found, &all);
            let lines = match found {
                Found::Clauses(_) => &whole["clauses"],
                Found::Contents | Found::Page(_) => &whole["chapters"],
            };
            for line in lines.as_array().into_iter().flatten() {
                serde_json::to_writer(&mut *out, line)?;
                writeln!(out)?;
            }
        }
    }
    Ok(Code::FINE)
}

fn find<'a>(name: &str, all: &'a [Clause]) -> Result<Found<'a>, Failure> {
    let name = name.trim();
    let is = |other: &str| other.eq_ignore_ascii_case(name);
    let chosen: Vec<_> = all.iter().filter(|clause| is(clause.id) || is(clause.area())).collect();
    if !chosen.is_empty() {
        return Ok(Found::Clauses(chosen));
    }
    let is_page = |page: &&Chapter| {
        let number = page.number();
        is(page.stem)
            || is(&format!("{}.md", page.stem))
            || is(&page.file())
            || number.is_some_and(|number| is(number) || is(number.trim_start_matches('0')))
    };
    if let Some(page) = chapters::ALL.iter().find(is_page) {
        return Ok(Found::Page(page));
    }
    let part = name.to_lowercase();
    let titled = |page: &&Chapter| !part.is_empty() && page.title().to_lowercase().contains(&part);
    match chapters::ALL.iter().filter(titled).collect::<Vec<_>>()[..] {
        [page] => Ok(Found::Page(page)),
        [] => Err(unknown(name, all)),
        ref several => Err(ambiguous(name, several)),
    }
}

fn ambiguous(name: &str, pages: &[&Chapter]) -> Failure {
    let what = format!("'{name}' is a part of {} titles", pages.len());
    let hint = |page: &&Chapter| format!("runstore spec {} ({})", page.name(), page.title());
    pages.iter().map(hint).fold(Failure::user(Code::USAGE, what), Failure::hint)
}

fn unknown(name: &str, all: &[Clause]) -> Failure {
    let failure = Failure::user(Code::USAGE, format!("nothing in the spec is named '{name}'"));
    let near = nearest(name, all);
    let failure = match &near[..] {
        [] => failure,
        near => failure.hint(format!("the nearest names: {}", near.join(", "))),
    };
    failure.hint("runstore spec lists the chapters and areas")
}

/// At most three names that are few letters away: of clauses, areas, and words of titles.
fn nearest(name: &str, all: &[Clause]) -> Vec<&'static str> {
    // Nothing is as long as this, and the comparison of two texts takes as long as their product.
    const LONGEST: usize = 40;
    let wanted = name.to_lowercase();
    let letters = wanted.chars().take(LONGEST + 1).count();
    if !(1..=LONGEST).contains(&letters) {
        return Vec::new();
    }
    let mut names: Vec<(&str, &str)> = all.iter().map(|clause| (clause.id, clause.id)).collect();
    names.extend(all.iter().map(|clause| (clause.area(), clause.area())));
    for page in &chapters::ALL {
        names.push((page.stem, page.stem));
        let words = page.title().split(|c: char| !c.is_alphanumeric());
        names.extend(words.map(|word| (word, page.stem)));
    }
    let bound = (letters / 3).max(1);
    let mut near: Vec<(usize, &str)> = names
        .into_iter()
        .map(|(name, shown)| (strsim::levenshtein(&wanted, &name.to_lowercase()), shown))
        .filter(|(letters, _)| *letters <= bound)
        .collect();
    near.sort_by_key(|(letters, _)| *letters);
    let mut shown = Vec::new();
    for (_, name) in near {
        if !shown.contains(&name) {
            shown.push(name);
        }
    }
    shown.truncate(3);
    shown
}

/// Where a clause stands. One that is withdrawn need not stand anywhere but in the registry.
fn place(clause: &Clause) -> Option<Place> {
    chapters::of_file(clause.chapter)?.place(clause.id)
}

/// The clauses of a page.
fn of_page<'a>(page: &Chapter, all: &'a [Clause]) -> Vec<&'a Clause> {
    let is_here = |clause: &&Clause| clause.chapter.strip_suffix(".md") == Some(page.stem);
    all.iter().filter(is_here).collect()
}

/// The areas of some clauses, in their order, each with how many there are.
fn areas(clauses: &[&Clause]) -> Vec<(&'static str, usize)> {
    let mut areas: Vec<(&str, usize)> = Vec::new();
    for clause in clauses {
        match areas.iter_mut().find(|(area, _)| *area == clause.area()) {
            Some((_, count)) => *count += 1,
            None => areas.push((clause.area(), 1)),
        }
    }
    areas
}

fn text(out: &mut impl Write, found: &Found<'_>, all: &[Clause]) -> io::Result<()> {
    match found {
        Found::Contents => contents(out, all),
        Found::Page(page) => write!(out, "{}", page.text),
        Found::Clauses(chosen) => {
            for (i, clause) in chosen.iter().enumerate() {
                if i > 0 {
                    writeln!(out)?;
                }
                one_clause(out, clause)?;
            }
            Ok(())
        }
    }
}

fn contents(out: &mut impl Write, all: &[Clause]) -> io::Result<()> {
    writeln!(out, "spec {}, {} clauses", spec_version(), all.len())?;
    writeln!(out)?;
    for page in &chapters::ALL {
        let here = of_page(page, all);
        let areas: Vec<_> = areas(&here).iter().map(|(area, n)| format!("{area} ({n})")).collect();
        let line = match here.len() {
            0 => format!("{:<10}  {}", page.name(), page.title()),
            n => format!("{:<10}  {:<44} {n:>3}  {}", page.name(), page.title(), areas.join(", ")),
        };
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "runstore spec 14            a chapter, also by its name or a part of its title"
    )?;
    writeln!(out, "runstore spec RS-START      the clauses of an area")?;
    writeln!(out, "runstore spec RS-START-47   one clause")
}

fn one_clause(out: &mut impl Write, clause: &Clause) -> io::Result<()> {
    let place = place(clause);
    let file = clause.chapter;
    writeln!(out, "{} ({}; {})", clause.id, clause.level, clause.roles.join(", "))?;
    match &place {
        Some(place) => writeln!(out, "  in        {}, spec/{file}", place.section)?,
        None => writeln!(out, "  in        spec/{file}")?,
    }
    if !clause.facts.is_empty() {
        writeln!(out, "  facts     {}", clause.facts.join(", "))?;
    }
    writeln!(out, "  since     {}", clause.since)?;
    if let Some(version) = clause.deprecated {
        writeln!(out, "  avoid     since {version}")?;
    }
    if clause.withdrawn {
        writeln!(out, "  withdrawn; its id stays taken")?;
    }
    writeln!(out)?;
    writeln!(out, "{}", place.map_or(&*clause.text, |place| place.text))
}

/// The whole answer as JSON.
fn answer(found: &Found<'_>, all: &[Clause]) -> Value {
    let (pages, chosen): (Vec<Value>, Vec<&Clause>) = match found {
        Found::Contents => {
            (chapters::ALL.iter().map(|page| page_json(page, all)).collect(), Vec::new())
        }
        Found::Page(page) => {
            let mut one = page_json(page, all);
            one["text"] = page.text.into();
            (vec![one], of_page(page, all))
        }
        Found::Clauses(chosen) => {
            let is_named = |page: &&Chapter| {
                chosen.iter().any(|clause| clause.chapter.strip_suffix(".md") == Some(page.stem))
            };
            let pages = chapters::ALL.iter().filter(is_named);
            (pages.map(|page| page_json(page, all)).collect(), chosen.clone())
        }
    };
    let chosen: Vec<_> = chosen.into_iter().map(clause_json).collect();
    json!({ "schema": "runstore.spec/1", "spec": spec_version(), "chapters": pages, "clauses": chosen })
}

fn page_json(page: &Chapter, all: &[Clause]) -> Value {
    let here = of_page(page, all);
    let areas: Vec<_> = areas(&here)
        .into_iter()
        .map(|(area, clauses)| json!({ "area": area, "clauses": clauses }))
        .collect();
    json!({
        "name": page.name(), "title": page.title(), "file": page.file(), "clauses": here.len(),
        "areas": areas,
    })
}

fn clause_json(clause: &Clause) -> Value {
    let place = place(clause);
    let mut one = json!({
        "id": clause.id,
        "level": clause.level,
        "roles": clause.roles,
        "file": format!("spec/{}", clause.chapter),
        "facts": clause.facts,
        "since": clause.since,
        "text": place.as_ref().map_or(&*clause.text, |place| place.text),
    });
    if let Some(place) = place {
        one["section"] = place.section.into();
    }
    if let Some(version) = clause.deprecated {
        one["deprecated"] = version.into();
    }
    if clause.withdrawn {
        one["withdrawn"] = true.into();
    }
    one
}
