//! Proves that docs/ARCHITECTURE.md agrees with the source: every file that the page names and every module in its
//! tables exists, and the section about a crate names all top modules of the crate.

use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::path::Path;

/// A quoted text on the page is the path of a file only if it has one of these endings.
const ENDINGS: [&str; 7] = [".rs", ".md", ".txt", ".toml", ".proto", ".py", ".sh"];

pub fn check() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(crate::root().join("docs/ARCHITECTURE.md")).context("read the page")?;
    let mut faults = missing_files(&page, &|path| crate::root().join(path).exists());
    for (folder, section) in sections(&page) {
        let src = crate::root().join(folder).join("src");
        let mut modules = BTreeSet::new();
        collect(&src, "", &mut modules).with_context(|| format!("the modules of {folder}"))?;
        faults.extend(faults_of_section(folder, section, &modules));
    }
    if !faults.is_empty() {
        bail!("docs/ARCHITECTURE.md:\n{}", faults.join("\n"));
    }
    Ok(())
}

/// The sections about crates: the crate's folder, which the heading names, and the text up to the next heading.
fn sections(page: &str) -> Vec<(&str, &str)> {
    let parts = page.split("\n### `").skip(1);
    parts
        .filter_map(|part| {
            let (folder, rest) = part.split_once('`')?;
            Some((folder, rest.split("\n#").next().unwrap_or_default()))
        })
        .collect()
}

/// The texts in backticks on the page.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn is_module(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'/'))
}

/// Collects the paths of the modules below a folder, such as `ci/architecture`.
fn collect(folder: &Path, prefix: &str, modules: &mut BTreeSet<String>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            modules.insert(format!("{prefix}{name}"));
            collect(&entry.path(), &format!("{prefix}{name}/"), modules)?;
        } else if let Some(name) = name.strip_suffix(".rs").filter(|name| !["lib", "main"].contains(name)) {
            modules.insert(format!("{prefix}{name}"));
        }
    }
    Ok(())
}

fn faults_of_section(folder: &str, section: &str, modules: &BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    for name in rows.flat_map(|cell| cell.split('`').step_by(2)).filter(|name| is_module(name)) {
        let own = name.strip_prefix(&format!("{folder}/")).unwrap_or(name);
        let is_there = modules.iter().any(|module| module == own || module.ends_with(&format!("/{own}")));
        if !is_there {
            faults.push(format!("the section about {folder} names {name}, and no such module exists"));
        }
    }
    let named: BTreeSet<&str> =
        quoted(section).filter(|name| is_module(name)).flat_map(|name| name.split('/')).collect();
    let top = modules.iter().filter(|module| !module.contains('/') && !module.ends_with("tests"));
    faults.extend(
        top.filter(|module| !named.contains(module.as_str()))
            .map(|module| format!("the section about {folder} does not name the module {module}")),
    );
    faults
}

/// Files that the page names and that do not exist. A path is checked only if its first folder exists in the
/// repository, so a path that begins below a crate's `src` is not checked.
fn missing_files(page: &str, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let is_path = |text: &&str| {
        text.contains('/')
            && ENDINGS.iter().any(|ending| text.ends_with(ending))
            && !text.contains(['*', ' ', '<', '{'])
            && !text.chars().any(char::is_uppercase)
            && text.split('/').next().is_some_and(exists)
    };
    let missing = quoted(page).filter(is_path).filter(|path| !exists(path));
    missing.map(|path| format!("{path} does not exist")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Page\n\n### `lib/a`: a crate\n\n| module | purpose |\n| --- | --- |\n\
        | `one`, `two/parts` | something with `other_text()` |\n\nIt has `three`.\n\n## Other\n\nSee `lib/a/src/one.rs`.\n";

    fn faults(modules: &[&str]) -> Vec<String> {
        let modules = modules.iter().map(|module| (*module).to_owned()).collect();
        sections(PAGE).into_iter().flat_map(|(folder, section)| faults_of_section(folder, section, &modules)).collect()
    }

    #[test]
    fn a_section_names_the_modules_of_its_crate() {
        assert_eq!(faults(&["one", "two", "two/parts", "three", "one_tests"]), [""; 0]);
        assert_eq!(
            faults(&["one", "two", "three", "four"]),
            [
                "the section about lib/a names two/parts, and no such module exists",
                "the section about lib/a does not name the module four"
            ]
        );
    }

    #[test]
    fn files_exist() {
        assert_eq!(missing_files(PAGE, &|path| path.starts_with("lib")), [""; 0]);
        assert_eq!(missing_files(PAGE, &|path| path == "lib"), ["lib/a/src/one.rs does not exist"]);
    }
}
