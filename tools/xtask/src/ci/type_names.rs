//! Proves that a name means one thing: no type name is declared in more than three crates.
//!
//! The remaining exceptions are in [`LEFT`] with their number of crates. The list may only shrink.

use super::sources::sources;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use syn::visit::{self, Visit};

const CRATES_MAX: usize = 3;

/// Names of types, each with the number of crates that declare it.
const LEFT: &[(&str, usize)] = &[
    ("Address", 6),
    ("Amount", 4),
    ("Answer", 10),
    ("Answers", 4),
    ("Args", 4),
    ("Backend", 4),
    ("Body", 5),
    ("Call", 5),
    ("Check", 4),
    ("Claim", 4),
    ("Client", 5),
    ("Clock", 5),
    ("Cluster", 9),
    ("Command", 6),
    ("Condition", 5),
    ("Configuration", 6),
    ("Connection", 5),
    ("Container", 4),
    ("Counted", 5),
    ("Counts", 6),
    ("Done", 5),
    ("End", 6),
    ("Ended", 4),
    ("Endpoint", 5),
    ("Entry", 8),
    ("Event", 9),
    ("Failure", 9),
    ("Fault", 9),
    ("Field", 4),
    ("Fields", 5),
    ("Files", 5),
    ("Form", 8),
    ("Found", 10),
    ("Held", 8),
    ("Inner", 6),
    ("Kept", 5),
    ("Key", 5),
    ("Keys", 4),
    ("Kind", 7),
    ("Known", 6),
    ("Level", 4),
    ("Limits", 6),
    ("Line", 6),
    ("List", 5),
    ("Made", 4),
    ("Member", 6),
    ("Memory", 4),
    ("Metrics", 6),
    ("Mode", 5),
    ("Name", 5),
    ("Next", 4),
    ("Node", 4),
    ("Object", 7),
    ("Operation", 5),
    ("Options", 7),
    ("Outcome", 13),
    ("Page", 4),
    ("Part", 7),
    ("Plan", 5),
    ("Progress", 5),
    ("Queue", 5),
    ("Read", 7),
    ("TypeReader", 6),
    ("Request", 5),
    ("Resource", 7),
    ("Room", 7),
    ("Row", 6),
    ("Scene", 4),
    ("Seen", 6),
    ("Selector", 4),
    ("Server", 7),
    ("Settings", 9),
    ("Shape", 5),
    ("Shared", 10),
    ("Shown", 8),
    ("Socket", 4),
    ("Source", 12),
    ("Stage", 7),
    ("State", 11),
    ("Status", 7),
    ("Step", 10),
    ("Stream", 6),
    ("Subject", 4),
    ("Table", 7),
    ("Target", 6),
    ("Tls", 4),
    ("Turn", 5),
    ("Usage", 5),
    ("Value", 4),
    ("Verdict", 6),
    ("Version", 9),
    ("Volume", 4),
    ("Waiting", 5),
    ("Wanted", 7),
    ("Watch", 5),
    ("Way", 8),
    ("Webhook", 5),
    ("What", 4),
    ("Wire", 5),
    ("Work", 7),
    ("Writer", 5),
    ("Writing", 5),
];

pub fn check() -> anyhow::Result<()> {
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for folder in super::members()? {
        let mut files = Vec::new();
        sources(&crate::root().join(&folder).join("src"), &mut files)?;
        for file in files {
            let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            for name in types(&text).with_context(|| format!("parse {}", file.display()))? {
                crates.entry(name).or_default().insert(folder.clone());
            }
        }
    }
    let faults = faults(&crates, LEFT);
    if !faults.is_empty() {
        bail!("names of types (tools/xtask/src/ci/type_names.rs):\n{}", faults.join("\n"));
    }
    Ok(())
}

fn faults(crates: &BTreeMap<String, BTreeSet<String>>, left: &[(&str, usize)]) -> Vec<String> {
    let allowed: BTreeMap<&str, usize> = left.iter().copied().collect();
    let mut faults = Vec::new();
    for (name, found) in crates.iter().filter(|(_, found)| found.len() > CRATES_MAX) {
        let folders: Vec<&str> = found.iter().map(String::as_str).collect();
        match allowed.get(name.as_str()) {
            Some(count) if *count == found.len() => {}
            Some(count) => faults.push(format!("{name} stands in {} crates, and LEFT says {count}", found.len())),
            None => faults.push(format!("{name} is a type in {} crates: {}", found.len(), folders.join(", "))),
        }
    }
    let is_gone = |name: &str| crates.get(name).is_none_or(|found| found.len() <= CRATES_MAX);
    faults
        .extend(left.iter().filter(|(name, _)| is_gone(name)).map(|(name, _)| format!("{name}: take it out of LEFT")));
    faults
}

/// The structs, enums, traits and type aliases that a file declares outside of tests.
fn types(text: &str) -> anyhow::Result<BTreeSet<String>> {
    let mut reader = TypeReader::default();
    reader.visit_file(&syn::parse_file(text)?);
    Ok(reader.found)
}

#[derive(Default)]
struct TypeReader {
    found: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for TypeReader {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !super::imports::is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.found.insert(item.ident.to_string());
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.found.insert(item.ident.to_string());
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.found.insert(item.ident.to_string());
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.found.insert(item.ident.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_tests_do_not_count() {
        let text =
            "pub struct A; enum B {} trait C {} type D = u8; #[cfg(test)] mod tests { struct E; } mod f { struct G; }";
        let found: Vec<String> = types(text).expect("Rust").into_iter().collect();
        assert_eq!(found, ["A", "B", "C", "D", "G"]);
    }

    #[test]
    fn a_name_in_too_many_crates_is_told_and_so_is_one_that_no_longer_is() {
        let crates = |count: usize| (0..count).map(|nth| format!("crate{nth}")).collect::<BTreeSet<_>>();
        let found = BTreeMap::from([("Place".to_owned(), crates(4)), ("Offset".to_owned(), crates(3))]);
        assert_eq!(faults(&found, &[]).len(), 1);
        assert!(faults(&found, &[("Place", 4)]).is_empty());
        assert_eq!(faults(&found, &[("Place", 5), ("Offset", 4)]).len(), 2);
    }

    #[test]
    fn the_names_of_this_checkout_are_known() {
        check().expect("the sources of this checkout");
    }
}
