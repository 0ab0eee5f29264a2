//! Checks the sources and licences of dependencies against `deny.toml`, without an installed tool, and that some
//! dependencies have only one user among the packages of the workspace.
//!
//! If `cargo deny` is installed, it runs as well; it also recognizes licences by their texts. Advisories need a
//! database from the network: `cargo deny check advisories` is run by hand before a release.

use anyhow::{Context, bail};
use serde_json::Value;

/// The allowed licences, the same as in `deny.toml`.
const LICENCES: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MPL-2.0+",
    "Unicode-3.0",
    "Zlib",
];
/// Dependencies that only one package may name, its tests included; all others use that package. So a library for a
/// format can be exchanged in one place.
const ONE_USER: [(&str, &str); 3] = [
    ("serde_yaml_ng", "holdfast-core"),
    ("jsonwebtoken", "holdfast-tls"),
    ("serde-saphyr", "nobody: `kube` brings it for itself"),
];
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub fn check() -> anyhow::Result<()> {
    let mut faults = Vec::new();
    for lock in ["Cargo.lock", "tools/fuzz/Cargo.lock"] {
        let text = std::fs::read_to_string(crate::root().join(lock)).with_context(|| format!("read {lock}"))?;
        faults.extend(strange_sources(&text).map(|source| format!("{lock}: {source} is not crates.io")));
    }
    let tree = super::arrows::output(&[
        "tree",
        "--locked",
        "--workspace",
        "--edges=normal,build,dev",
        "--prefix=none",
        "--format={l}|{p}",
    ])?;
    let mut lines: Vec<&str> = tree.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    lines.dedup();
    for line in lines {
        let (licence, package) = line.split_once('|').context("cargo tree answers as it is asked")?;
        if !is_allowed(licence) {
            faults.push(format!("{package} has the licence {licence:?}"));
        }
    }
    faults.extend(further_users()?);
    if !faults.is_empty() {
        bail!("dependencies that must not be:\n{}", faults.join("\n"));
    }
    if super::command(&["deny", "--version"]).output().is_ok_and(|output| output.status.success()) {
        return super::cargo(&["deny", "check", "bans", "licenses", "sources"]);
    }
    println!("cargo deny is not installed: sources and licences were checked without it, advisories were not");
    Ok(())
}

/// The packages that name one of the dependencies in [`ONE_USER`] and are not its one user.
fn further_users() -> anyhow::Result<Vec<String>> {
    let metadata = super::arrows::output(&["metadata", "--locked", "--no-deps", "--format-version=1"])?;
    let metadata: Value = serde_json::from_str(&metadata).context("read the answer of cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let mut faults = Vec::new();
    for package in packages {
        let user = package["name"].as_str().unwrap_or_default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let of_another = |(name, own): &&(&str, &str)| dependency["name"] == *name && *own != user;
            if let Some((name, own)) = ONE_USER.iter().find(of_another) {
                faults.push(format!("{user} depends on {name}, which is for {own}"));
            }
        }
    }
    Ok(faults)
}

/// The sources in a lock file other than crates.io. Packages of this repository have no source.
fn strange_sources(lock: &str) -> impl Iterator<Item = &str> {
    lock.lines()
        .filter_map(|line| line.strip_prefix("source = "))
        .filter(|source| source.trim_matches('"') != CRATES_IO)
}

/// Whether an expression such as `(MIT OR Apache-2.0) AND Unicode-3.0` can be satisfied by allowed licences.
fn is_allowed(expression: &str) -> bool {
    // Older packages write a slash instead of `OR`.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    any_of(&mut words) && words.peek().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words) -> bool {
    let mut fits = all_of(words);
    while words.next_if_eq(&"OR").is_some() {
        fits |= all_of(words);
    }
    fits
}

fn all_of(words: &mut Words) -> bool {
    let mut fits = one(words);
    while words.next_if_eq(&"AND").is_some() {
        fits &= one(words);
    }
    fits
}

fn one(words: &mut Words) -> bool {
    match words.next() {
        Some("(") => any_of(words) & words.next_if_eq(&")").is_some(),
        Some(licence) => match words.next_if_eq(&"WITH").and_then(|_| words.next()) {
            Some(exception) => LICENCES.contains(&format!("{licence} WITH {exception}").as_str()),
            None => LICENCES.contains(&licence),
        },
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_allowed, strange_sources};

    #[test]
    fn licences() {
        for (expression, expected) in [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("MIT OR LGPL-2.1-or-later", true),
            ("GPL-3.0", false),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND GPL-3.0", false),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
            ("GPL-2.0 WITH Classpath-exception", false),
            ("(MIT", false),
            ("", false),
        ] {
            assert_eq!(is_allowed(expression), expected, "{expression}");
        }
    }

    #[test]
    fn sources() {
        let lock = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\nsource = \"git+https://x\"\n";
        assert_eq!(strange_sources(lock).collect::<Vec<_>>(), ["\"git+https://x\""]);
    }
}
