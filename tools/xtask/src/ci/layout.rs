//! Checks where packages and modules are: a package is in the folder of its owner, and a module with parts is
//! `foo/mod.rs`. `docs/decisions` has the plan.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, bail};

/// Packages outside of an owner's folder: packages on the path of a request, and the package with the tests of the
/// whole system.
const TOP: [&str; 10] = [
    "api",
    "core",
    "engine",
    "server",
    "sim",
    "storage-etcd",
    "storage-rocks",
    "storage-rocks/library",
    "tests",
    "transport-http",
];
const OWNERS: [&str; 5] = ["clients", "components", "edge", "lib", "tools"];

pub fn check() -> anyhow::Result<()> {
    let members = super::members()?;
    let mut faults: Vec<String> = members.iter().filter(|member| !has_owner(member)).cloned().collect();
    faults.iter_mut().for_each(|member| member.push_str(": a package in no owner's folder"));
    for member in &members {
        for part in ["src", "tests"] {
            let mut files = BTreeSet::new();
            collect(&crate::root().join(member).join(part), "", &mut files)?;
            faults.extend(
                beside(&files, part == "tests").map(|file| format!("{member}/{part}/{file}: beside its folder")),
            );
        }
    }
    if !faults.is_empty() {
        bail!("layout (tools/xtask/src/ci/layout.rs):\n{}", faults.join("\n"));
    }
    Ok(())
}

fn has_owner(member: &str) -> bool {
    let owner = member.split_once('/').filter(|(_, name)| !name.contains('/')).map(|(owner, _)| owner);
    TOP.contains(&member) || owner.is_some_and(|owner| OWNERS.contains(&owner))
}

/// Collects the Rust files below a folder, by their paths from there. A missing folder has no files.
fn collect(folder: &Path, path: &str, files: &mut BTreeSet<String>) -> anyhow::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        let name = format!("{path}{}", entry.file_name().display());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), files)?;
        } else if name.ends_with(".rs") {
            files.insert(name);
        }
    }
    Ok(())
}

/// Files such as `foo.rs` with a folder `foo/` beside them, where the layout demands `foo/mod.rs`. Root files of tests
/// are exempt, because Cargo finds tests by these paths.
fn beside(files: &BTreeSet<String>, are_tests: bool) -> impl Iterator<Item = &String> {
    files.iter().filter(move |file| {
        let folder = format!("{}/", file.trim_end_matches(".rs"));
        let has_parts = files.range(folder.clone()..).next().is_some_and(|next| next.starts_with(&folder));
        has_parts && (!are_tests || file.contains('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_has_an_owner() {
        assert!(has_owner("core") && has_owner("lib/value"));
        assert!(!has_owner("value") && !has_owner("lib") && !has_owner("lib/value/deep"));
    }

    #[test]
    fn a_module_with_parts_lies_in_its_folder() {
        let files = ["a.rs", "a/b.rs", "c/mod.rs", "c/d.rs", "e/f.rs", "e/f/g.rs", "e2.rs"].map(str::to_owned).into();
        assert_eq!(beside(&files, false).collect::<Vec<_>>(), ["a.rs", "e/f.rs"]);
        assert_eq!(beside(&files, true).collect::<Vec<_>>(), ["e/f.rs"]);
    }

    #[test]
    fn this_checkout_is_laid_out_by_the_plan() {
        check().expect("the folders of this checkout");
    }
}
