//! The recorded cases in which Holdfast answers differently from Kubernetes on purpose.
//!
//! `tests/data/differ/NAME.txt` lists them. A heading `# TEXT` is the first cell of a row in docs/DIFFERENCES.md. Each
//! line below it is a case that this row explains: the name of the case, a tab, and the parts of the answer that
//! differ. The last word `sometimes` marks a case that agrees in some runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The parts of an answer that differ, by the name of the case.
pub type Parts = BTreeMap<String, BTreeSet<String>>;

#[derive(Debug, PartialEq)]
struct Case {
    parts: BTreeSet<String>,
    /// Whether the case agrees in some runs.
    sometimes: bool,
}

/// The cases that the list of one recording names.
#[derive(Debug)]
pub struct Differences {
    file: String,
    cases: BTreeMap<String, Case>,
}

impl Differences {
    /// The list of a recording. Panics if a heading is not the first cell of a row in docs/DIFFERENCES.md.
    pub fn of(recording: &str) -> Differences {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let path = tests.join(format!("data/differ/{recording}.txt"));
        let page = read(&tests.join("../docs/DIFFERENCES.md"));
        let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        parse(&path.display().to_string(), &read(&path), &rows.collect()).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// Whether the list has the case with all parts that differ. A case without differing parts needs no explanation.
    pub fn explains(&self, case: &str, parts: &BTreeSet<String>) -> bool {
        parts.is_empty() || self.cases.get(case).is_some_and(|known| parts.is_subset(&known.parts))
    }

    /// One line for each case that differs and is not listed with the same parts, and for each listed case that agrees.
    /// A case with the word `sometimes` may agree, or differ in some of its parts. `played` are all cases of the run.
    pub fn faults(&self, played: &BTreeSet<String>, found: &Parts) -> Vec<String> {
        let file = &self.file;
        let none = BTreeSet::new();
        let fault = |name: &String| {
            let parts = found.get(name).unwrap_or(&none);
            let words = |parts: &BTreeSet<String>| parts.iter().cloned().collect::<Vec<_>>().join(" ");
            match self.cases.get(name) {
                None if parts.is_empty() => None,
                None => Some(format!("{name} differs in {}, and {file} does not list it", words(parts))),
                Some(known) if known.sometimes && parts.is_subset(&known.parts) => None,
                Some(known) if *parts == known.parts => None,
                Some(_) if parts.is_empty() => Some(format!("{name} agrees: take it out of {file}")),
                Some(known) => {
                    Some(format!("{name} differs in {}, and {file} says {}", words(parts), words(&known.parts)))
                }
            }
        };
        played.iter().filter_map(fault).collect()
    }

    /// Panics if a run has faults, with the faults and the path of the file that has the full answers.
    pub fn check(&self, played: &BTreeSet<String>, found: &Parts, details: &Path) {
        let faults = self.faults(played, found);
        assert!(faults.is_empty(), "{}\nfull answers: {}", faults.join("\n"), details.display());
    }
}

fn parse(file: &str, text: &str, rows: &BTreeSet<&str>) -> Result<Differences, String> {
    let (mut cases, mut heading) = (BTreeMap::new(), None);
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(row) = line.strip_prefix("# ") {
            if !rows.contains(row) {
                return Err(format!("{file}: no row of docs/DIFFERENCES.md begins with {row:?}"));
            }
            heading = Some(row);
            continue;
        }
        let (name, parts) = line.split_once('\t').ok_or_else(|| format!("{file}: no tab in {line:?}"))?;
        if heading.is_none() {
            return Err(format!("{file}: {name} has no heading"));
        }
        let mut parts: BTreeSet<String> = parts.split(' ').map(str::to_owned).collect();
        let sometimes = parts.remove("sometimes");
        if cases.insert(name.to_owned(), Case { parts, sometimes }).is_some() {
            return Err(format!("{file}: {name} is listed twice"));
        }
    }
    Ok(Differences { file: file.to_owned(), cases })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [&str; 2] = ["`/version`", "columns"];

    fn list(text: &str) -> Result<Differences, String> {
        parse("list.txt", text, &BTreeSet::from(ROWS))
    }

    fn parts(cases: &[(&str, &str)]) -> Parts {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        cases.iter().map(|(name, text)| ((*name).to_owned(), words(text))).collect()
    }

    #[test]
    fn a_list_names_rows_that_exist_and_each_case_once() {
        let refused = |text: &str| list(text).expect_err("a faulty list");
        assert_eq!(refused("a\twords"), "list.txt: a has no heading");
        assert_eq!(refused("# rows"), "list.txt: no row of docs/DIFFERENCES.md begins with \"rows\"");
        assert_eq!(refused("# columns\na"), "list.txt: no tab in \"a\"");
        assert_eq!(refused("# columns\na\twords\n# `/version`\na\tcodes"), "list.txt: a is listed twice");
    }

    #[test]
    fn a_run_differs_exactly_where_the_list_says() {
        let list = list("# columns\na\twords objects\n\n# `/version`\nb\tcodes sometimes\n").expect("a list");
        let played = ["a", "b", "c"].map(str::to_owned).into();
        let faults = |found: &[(&str, &str)]| list.faults(&played, &parts(found));
        assert_eq!(faults(&[("a", "objects words"), ("b", "codes")]), [""; 0]);
        assert_eq!(faults(&[("a", "objects words")]), [""; 0], "b agrees in some runs");
        assert_eq!(faults(&[]), ["a agrees: take it out of list.txt"]);
        assert_eq!(faults(&[("a", "words")]), ["a differs in words, and list.txt says objects words"]);
        assert_eq!(
            faults(&[("a", "objects words"), ("b", "codes words"), ("c", "codes")]),
            ["b differs in codes words, and list.txt says codes", "c differs in codes, and list.txt does not list it"]
        );
    }
}
