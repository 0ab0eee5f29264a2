//! Checks the profiles of `make test` and `make watch`. The profiles list Holdfast's own crates one by one, so that all
//! other crates are compiled once for both profiles.

use anyhow::{Context, bail};

const PROFILES: [&str; 2] = ["scripts/test-profile.toml", "scripts/watch-profile.toml"];

/// Crates that the profiles omit, so that they are compiled in the same way everywhere: they have no code, contain C++,
/// or spend their time waiting for servers.
const ALIKE: [&str; 5] =
    ["holdfast-features", "holdfast-rocksdb-library", "holdfast-testing", "holdfast-tests", "xtask"];

pub fn check() -> anyhow::Result<()> {
    let packages = super::arrows::members()?;
    for path in PROFILES {
        let profile = std::fs::read_to_string(crate::root().join(path)).with_context(|| format!("read {path}"))?;
        let missing = missing(&profile, &packages);
        if !missing.is_empty() {
            bail!("{path} does not name {}", missing.join(", "));
        }
        if profile.contains("package.\"*\"") || profile.contains("[profile.release]\nopt-level") {
            bail!("{path} changes how dependencies are compiled: they would be compiled twice");
        }
    }
    Ok(())
}

fn missing<'p>(profile: &str, packages: &'p [String]) -> Vec<&'p str> {
    let named = |package: &str| profile.lines().any(|line| line == format!("[profile.release.package.{package}]"));
    packages.iter().map(String::as_str).filter(|package| !ALIKE.contains(package) && !named(package)).collect()
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn every_crate_is_named() {
        let packages = ["holdfast-core", "holdfast-value", "xtask"].map(str::to_owned);
        let profile = "[profile.release.package.holdfast-core]\nopt-level = 1\n";
        assert_eq!(missing(profile, &packages), ["holdfast-value"]);
    }
}
