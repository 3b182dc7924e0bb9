//! The text of the spec, as it is built in: every page of `spec/`, and where in it a clause stands.
//!
//! Theory of operation. A page begins with one line `# TITLE`, in a chapter with its number. A clause is a paragraph
//! that begins with its id in bold, and ends at the next empty line; a table that follows at once belongs to it.
//! Both are so in every page, which tests of the repository hold it to. Nothing else of the Markdown is understood:
//! what is printed is what stands there.

/// One page of the spec.
#[derive(Debug)]
pub(crate) struct Chapter {
    /// Its file without the ending, such as `14-start-up`.
    pub(crate) stem: &'static str,
    /// The whole page.
    pub(crate) text: &'static str,
}

/// Where a clause stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The heading above it.
    pub(crate) section: &'static str,
    /// All that it says, without its id.
    pub(crate) text: &'static str,
}

macro_rules! pages {
    ($($stem:literal),* $(,)?) => {
        [$(Chapter { stem: $stem, text: include_str!(concat!("../../spec/", $stem, ".md")) }),*]
    };
}

/// Every page: the chapters in order, then the rest.
pub(crate) static ALL: [Chapter; 21] = pages![
    "01-roles-and-versions",
    "02-layout",
    "03-json-and-unknown-data",
    "04-status",
    "05-startup",
    "06-candidate-and-proof",
    "07-events-and-control",
    "08-indexes",
    "09-leases-and-slots",
    "10-nested-runs",
    "11-diagnosis",
    "12-writing",
    "13-locks-and-proof",
    "14-start-up",
    "15-observing-and-running",
    "16-recovery",
    "17-checking-and-retention",
    "README",
    "durability",
    "glossary",
    "rationale",
];

impl Chapter {
    /// The path in the repository.
    pub(crate) fn file(&self) -> String {
        format!("spec/{}.md", self.stem)
    }

    /// Its number, `07`, if it is a chapter.
    pub(crate) fn number(&self) -> Option<&'static str> {
        let (number, _) = self.stem.split_once('-')?;
        number.bytes().all(|b| b.is_ascii_digit()).then_some(number)
    }

    /// What to call it by: its number, else its name.
    pub(crate) fn name(&self) -> &'static str {
        self.number().unwrap_or(self.stem)
    }

    /// Its title without the number.
    pub(crate) fn title(&self) -> &'static str {
        let first = self.text.lines().next().unwrap_or_default();
        first.trim_start_matches(|c: char| c == '#' || c == ' ' || c.is_ascii_digit())
    }

    /// Where a clause stands in it.
    pub(crate) fn place(&self, id: &str) -> Option<Place> {
        let mark = format!("**{id}** ");
        let head = format!("\n{mark}");
        let at = self.text.find(&head)? + 1;
        let (before, rest) = (&self.text[..at], &self.text[at + mark.len()..]);
        let section = before.lines().rev().find(|line| line.starts_with('#'));
        let mut end = end_of_block(rest);
        let next = rest[end..].trim_start_matches('\n');
        if next.starts_with('|') {
            end = rest.len() - next.len() + end_of_block(next);
        }
        let section = section.unwrap_or_default().trim_start_matches(['#', ' ']);
        Some(Place { section, text: rest[..end].trim_end() })
    }
}

/// The page of a file, such as `14-start-up.md`.
pub(crate) fn of_file(file: &str) -> Option<&'static Chapter> {
    ALL.iter().find(|chapter| file.strip_suffix(".md") == Some(chapter.stem))
}

fn end_of_block(text: &str) -> usize {
    text.find("\n\n").unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clause_ends_where_its_paragraph_or_its_table_does() {
        let text = "# 7 One\n\n## 7.1 Two\n\n**RS-ROLE-01** A MUST. Why.\n\n| a |\n|---|\n\n**RS-ROLE-02** B.\n";
        let chapter = Chapter { stem: "07-one", text };
        let place = |id| chapter.place(id).expect("it stands there");
        assert_eq!(
            place("RS-ROLE-01"),
            Place { section: "7.1 Two", text: "A MUST. Why.\n\n| a |\n|---|" }
        );
        assert_eq!(place("RS-ROLE-02").text, "B.");
        assert_eq!(chapter.place("RS-ROLE-0"), None);
        assert_eq!((chapter.number(), chapter.title()), (Some("07"), "One"));
    }

    #[test]
    fn a_page_without_a_number_is_called_by_its_name() {
        let page = of_file("glossary.md").expect("it is built in");
        assert_eq!((page.number(), page.name(), page.title()), (None, "glossary", "Glossary"));
        assert!(of_file("glossary").is_none() && of_file("no-such.md").is_none());
    }
}
