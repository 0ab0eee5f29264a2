//! `/healthz`, `/livez` and `/readyz`: named checks, and their combined result.

use std::fmt::Write;
use std::sync::{Arc, RwLock};

/// A health check. The error says why the checked part is not healthy.
pub type HealthCheckFn = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The paths of health checks.
pub const PATHS: [&str; 3] = ["healthz", "livez", "readyz"];

#[derive(Default)]
pub struct Health {
    checks: RwLock<Vec<NamedCheck>>,
}

struct NamedCheck {
    name: &'static str,
    /// The paths whose result includes this check: some of [`PATHS`].
    paths: &'static [&'static str],
    check: HealthCheckFn,
}

/// The result of health checks: whether all of them passed, and the text of the response.
#[derive(Debug, PartialEq, Eq)]
pub struct HealthReport {
    pub healthy: bool,
    pub text: String,
}

impl Health {
    /// Adds a health check to some of the paths.
    pub fn add(
        &self,
        name: &'static str,
        paths: &'static [&'static str],
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let mut checks = self.checks.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        checks.push(NamedCheck { name, paths, check: Arc::new(check) });
    }

    /// The checks of a path. A path without checks has the check `ping`, which always passes.
    fn of(&self, path: &str) -> Vec<(&'static str, HealthCheckFn)> {
        let checks = self.checks.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let own = checks.iter().filter(|named| named.paths.contains(&path));
        let own: Vec<(&str, HealthCheckFn)> = own.map(|named| (named.name, named.check.clone())).collect();
        if own.is_empty() { vec![("ping", Arc::new(|| Ok(())))] } else { own }
    }

    /// Each check of each path: its name, the path, and whether it passes.
    pub fn states(&self) -> Vec<(&'static str, &'static str, bool)> {
        let all = PATHS.into_iter().map(|path| (path, self.of(path)));
        all.flat_map(|(path, checks)| checks.into_iter().map(move |(name, check)| (name, path, check().is_ok())))
            .collect()
    }

    /// The result of one check of a path; `None` if there is no such check.
    pub fn check_one(&self, path: &str, name: &str) -> Option<HealthReport> {
        let (_, check) = self.of(path).into_iter().find(|(own, _)| *own == name)?;
        Some(match check() {
            Ok(()) => HealthReport { healthy: true, text: "ok".into() },
            Err(why) => HealthReport { healthy: false, text: format!("internal server error: {why}\n") },
        })
    }

    /// The combined result of all checks of a path.
    pub fn all(&self, path: &str, verbose: bool, excluded: &[&str]) -> HealthReport {
        let (mut text, mut failed) = (String::new(), false);
        let mut unknown: Vec<&str> = excluded.to_vec();
        for (name, check) in self.of(path) {
            let line = if excluded.contains(&name) {
                unknown.retain(|one| *one != name);
                format!("[+]{name} excluded: ok\n")
            } else {
                match check() {
                    Ok(()) => format!("[+]{name} ok\n"),
                    Err(why) => {
                        failed = true;
                        tracing::debug!(check = name, why, "a health check of /{path} failed");
                        format!("[-]{name} failed: reason withheld\n")
                    }
                }
            };
            text.push_str(&line);
        }
        if !unknown.is_empty() {
            let names: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
            _ = writeln!(text, "warn: some health checks cannot be excluded: no matches for {}", names.join(","));
        }
        match (failed, verbose) {
            (true, _) => HealthReport { healthy: false, text: format!("{text}{path} check failed\n") },
            (false, true) => HealthReport { healthy: true, text: format!("{text}{path} check passed\n") },
            (false, false) => HealthReport { healthy: true, text: "ok".into() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_name_what_was_asked() {
        let health = Health::default();
        health.add("leaderElection", &["healthz", "readyz"], || Err("the lease is lost".into()));
        health.add("shutdown", &["readyz"], || Ok(()));
        let all = |path, verbose, excluded: &[&str]| {
            let verdict = health.all(path, verbose, excluded);
            (verdict.healthy, verdict.text)
        };
        assert_eq!(all("livez", false, &[]), (true, "ok".into()));
        assert_eq!(all("livez", true, &[]), (true, "[+]ping ok\nlivez check passed\n".into()));
        let failed = "[-]leaderElection failed: reason withheld\nhealthz check failed\n";
        assert_eq!(all("healthz", false, &[]), (false, failed.into()));
        let excluded = "[+]leaderElection excluded: ok\n[+]shutdown ok\n\
                        warn: some health checks cannot be excluded: no matches for \"x\"\nreadyz check passed\n";
        assert_eq!(all("readyz", true, &["leaderElection", "x"]), (true, excluded.into()));
        assert_eq!(health.check_one("livez", "leaderElection"), None);
        assert_eq!(health.check_one("healthz", "ping"), None);
        assert!(!health.check_one("healthz", "leaderElection").unwrap().healthy);
        assert_eq!(health.states().iter().filter(|(.., healthy)| !healthy).count(), 2);
    }
}
