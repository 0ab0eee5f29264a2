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
    ("Answer", 6),
    ("Cluster", 7),
    ("Condition", 5),
    ("Configuration", 6),
    ("Event", 8),
    ("Fault", 9),
    ("Level", 4),
    ("Metrics", 6),
    ("Node", 4),
    ("Options", 4),
    ("Read", 4),
    ("Settings", 9),
    ("Shown", 5),
    ("Source", 8),
    ("Status", 6),
    ("Way", 4),
    ("Webhook", 5),
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
