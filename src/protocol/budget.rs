//! Fan-out budgets: how many runs a tree of runs may launch in all.
//!
//! Theory of operation. A budget is a directory with a manifest; everything in the tree refers to it by a
//! [`BudgetRef`], in the configuration, in the recovery descriptor and in a file of the run directory. A reference
//! is checked against the manifest ([`BudgetRef::agrees`]), and its directory is a name below the directory of
//! budgets: a path of a record is compared and never opened. Who spends of a budget is the runner's business.
//!
//! A crash leaves a directory without a manifest, which is no budget. No error carries a value.
//! Spec: RS-START-90 to RS-START-92; facts K-40.

use super::document::{Document, object_text, string_text};
use super::error::DecodeError;
use super::layout;
use super::member;
use super::raw::Raw;
use super::written::one_line;

/// The file that says what a budget is.
pub const MANIFEST_FILE: &str = "manifest.json";
/// The directory of what was spent.
pub const CLAIMS_DIR: &str = "claims";
/// Longest part of the name of a budget that comes from its root.
const ROOT_MAX_CHARS: usize = 120;

/// What the manifest of a budget says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The root of the tree.
    pub root_run_id: String,
    /// How many runs it may launch.
    pub limit: u32,
    /// When it was made, in ms since the epoch.
    pub created_at_ms: i64,
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that is missing or wrong.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        member::version_one(doc)?;
        Ok(Self {
            root_run_id: member::filled_string(doc, "rootRunId")?,
            limit: limit(doc, "")?,
            created_at_ms: member::instant_ms(doc, "createdAt")?,
        })
    }

    /// The text of the file: one line with its end.
    pub fn text(&self) -> String {
        let members = [
            ("version", "1".to_owned()),
            ("rootRunId", string_text(&self.root_run_id)),
            ("limit", self.limit.to_string()),
            ("createdAt", self.created_at_ms.to_string()),
        ];
        one_line(&object_text(&members)) + "\n"
    }
}

fn limit(doc: &Document<'_>, at: &str) -> Result<u32, DecodeError> {
    let limit = doc.get("limit").and_then(Raw::integer).and_then(|n| u32::try_from(n).ok());
    let limit = limit.filter(|limit| *limit > 0);
    limit.ok_or_else(|| DecodeError::member(format!("{at}limit"), "a whole number above 0"))
}

/// The name of the directory of a new budget: what is unsafe in the id of its root is replaced.
pub fn dir_name(root_run_id: &str, unique: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let root = root_run_id.chars().map(|c| if safe(c) { c } else { '_' });
    // A name that begins with a dot is nobody's record.
    let root: String = root.take(ROOT_MAX_CHARS).collect();
    let root = root.trim_start_matches('.');
    if root.is_empty() { unique.to_owned() } else { format!("{root}-{unique}") }
}

/// A reference to a budget: the member `runFanoutBudget`, and `run-fanout-budget.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetRef {
    /// The root of the tree.
    pub root_run_id: String,
    /// Path of the directory. Only its [`BudgetRef::name`] may be opened.
    pub directory: String,
    /// How many runs the tree may launch.
    pub limit: u32,
    /// Where in the tree the run is that holds this reference.
    pub parent_path: Option<String>,
}

impl BudgetRef {
    /// Reads a reference.
    ///
    /// # Errors
    /// [`DecodeError::Member`] naming the first member that is missing or wrong, or a directory that leads
    /// elsewhere.
    pub fn read(doc: &Document<'_>) -> Result<Self, DecodeError> {
        let at = |key: &str| format!("runFanoutBudget.{key}");
        let text = |key: &str| doc.get(key).and_then(Raw::exact_string);
        let filled = |key: &str| {
            let text = text(key).filter(|text| !text.is_empty());
            text.ok_or_else(|| DecodeError::member(at(key), "a non-empty string"))
        };
        if doc.get("version").and_then(Raw::integer) != Some(1) {
            return Err(DecodeError::member(at("version"), "1"));
        }
        let budget = Self {
            root_run_id: filled("rootRunId")?,
            directory: filled("directory")?,
            limit: limit(doc, "runFanoutBudget.")?,
            parent_path: text("parentPath").filter(|path| !path.is_empty()),
        };
        match budget.name() {
            Some(_) => Ok(budget),
            None => Err(DecodeError::member(at("directory"), "a directory of the budgets")),
        }
    }

    /// The name of the directory below that of the budgets; `None` when it leads elsewhere.
    pub fn name(&self) -> Option<&str> {
        let mut parts = self.directory.rsplit(['/', '\\']);
        let name = parts.next().filter(|name| !name.is_empty() && !name.starts_with('.'))?;
        (parts.next() == Some(layout::FANOUT_BUDGETS_DIR)).then_some(name)
    }

    /// Whether a manifest is the one that is referred to.
    pub fn agrees(&self, manifest: &Manifest) -> bool {
        self.root_run_id == manifest.root_run_id && self.limit == manifest.limit
    }

    /// The text of the member.
    pub fn text(&self) -> String {
        let mut members = vec![
            ("version", "1".to_owned()),
            ("rootRunId", string_text(&self.root_run_id)),
            ("directory", string_text(&self.directory)),
            ("limit", self.limit.to_string()),
        ];
        members.extend(self.parent_path.as_deref().map(|path| ("parentPath", string_text(path))));
        object_text(&members)
    }

    /// The text of `run-fanout-budget.json`: one line with its end.
    pub fn file_text(&self) -> String {
        one_line(&self.text()) + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> BudgetRef {
        BudgetRef {
            root_run_id: "root".to_owned(),
            directory: "/t/run-fanout-budgets/root-u".to_owned(),
            limit: 3,
            parent_path: None,
        }
    }

    #[test]
    fn a_reference_reads_back_and_names_what_is_wrong_and_no_value() {
        let full = BudgetRef { parent_path: Some("a/b".to_owned()), ..budget() };
        for budget in [budget(), full] {
            let text = budget.text();
            assert_eq!(BudgetRef::read(&Document::parse(&text).expect("JSON")), Ok(budget.clone()));
            assert!(budget.file_text().ends_with("}\n") && budget.file_text().lines().count() == 1);
        }
        let text = budget().text();
        for (from, to, member) in [
            ("\"version\": 1", "\"version\": 2", "version"),
            ("\"root\"", "\"\"", "rootRunId"),
            ("run-fanout-budgets", "elsewhere", "directory"),
            ("root-u", "..", "directory"),
            ("root-u", "x/", "directory"),
            ("3", "0", "limit"),
            ("3", "1.5", "limit"),
        ] {
            let text = text.replace(from, to);
            let e = BudgetRef::read(&Document::parse(&text).expect("JSON")).expect_err(to);
            assert!(e.to_string().contains(&format!("runFanoutBudget.{member} ")), "{text}: {e}");
        }
    }

    #[test]
    fn a_manifest_is_one_line_and_only_the_same_tree_and_limit_agree() {
        let manifest = Manifest { root_run_id: "root".to_owned(), limit: 3, created_at_ms: 5 };
        let text = manifest.text();
        assert!(text.ends_with("}\n") && text.lines().count() == 1, "{text}");
        assert_eq!(Manifest::read(&Document::parse(&text).expect("JSON")).as_ref(), Ok(&manifest));
        assert!(budget().agrees(&manifest));
        assert!(!budget().agrees(&Manifest { limit: 4, ..manifest.clone() }));
        assert!(!budget().agrees(&Manifest { root_run_id: "r".to_owned(), ..manifest }));
        let zero = text.replace('3', "0");
        assert!(Manifest::read(&Document::parse(&zero).expect("JSON")).is_err());
    }

    #[test]
    fn a_name_is_safe_and_short() {
        assert_eq!(dir_name("run 1/é", "u"), "run_1__-u");
        assert_eq!(dir_name("..", "u"), "u");
        assert_eq!(dir_name(&"r".repeat(500), "u").len(), 122);
    }
}
