//! What of a long run is done, on disk: a run that was ended goes on where it was, unless what is tested has changed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::table::{Group, Row};

/// Groups that are done, one line of JSON each behind a first line that says of what.
pub(super) struct Journal {
    done: BTreeMap<Group, Row>,
    file: File,
}

impl Journal {
    /// The journal of `of`; one of something else is begun anew.
    pub(super) fn open(path: &Path, of: &str) -> Result<Self> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut lines = text.lines();
        let context = || format!("cannot write {}", path.display());
        if lines.next() != Some(of) {
            fs::write(path, format!("{of}\n")).with_context(context)?;
            lines = "".lines();
        }
        Ok(Self {
            // The last line of a run that was ended may be cut.
            done: lines.filter_map(|line| serde_json::from_str(line).ok()).collect(),
            file: File::options().append(true).open(path).with_context(context)?,
        })
    }

    pub(super) fn done(&self, group: &Group) -> Option<&Row> {
        self.done.get(group)
    }

    pub(super) fn add(&mut self, group: &Group, row: &Row) -> Result<()> {
        // The line's end goes before it, so that it begins a line also behind one that was cut.
        Ok(write!(self.file, "\n{}", serde_json::to_string(&(group, row))?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_but_not_of_something_else() {
        let path = std::env::temp_dir().join(format!("hexloom-journal-{}", std::process::id()));
        let group = ("ADD".to_owned(), "f32".to_owned());
        let row = Row {
            passed: 3,
            ..Row::default()
        };
        Journal::open(&path, "one").unwrap().add(&group, &row).unwrap();
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("\n[[\"SUB\",");
        fs::write(&path, text).unwrap();
        let mut again = Journal::open(&path, "one").unwrap();
        assert_eq!(again.done(&group).map(|row| row.passed), Some(3));
        let other = ("MUL".to_owned(), String::new());
        again.add(&other, &row).unwrap();
        assert!(Journal::open(&path, "one").unwrap().done(&other).is_some());
        assert!(Journal::open(&path, "two").unwrap().done(&group).is_none());
        fs::remove_file(&path).unwrap();
    }
}
