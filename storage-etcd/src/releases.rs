//! Releases of etcd and their bugs.

use std::fmt;

/// A version as a member reports it, such as `3.6.16` or `3.7.0-rc.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl Release {
    const fn new(major: u32, minor: u32, patch: u32) -> Release {
        Release { major, minor, patch }
    }

    /// Returns `None` if the text is not a version. Suffixes after a dash or a plus are ignored.
    pub fn parse(text: &str) -> Option<Release> {
        let numbers = text.split(['-', '+']).next()?;
        let mut parts = numbers.split('.').map(|part| part.parse().ok());
        let mut part = || parts.next().flatten();
        let release = Release { major: part()?, minor: part()?, patch: part()? };
        parts.next().is_none().then_some(release)
    }

    /// Whether the progress notifications of a member of this release can be trusted. kube-apiserver has the same
    /// limits.
    pub fn tells_progress(self) -> bool {
        let is_below = |release| self < release;
        !(is_below(Release::new(3, 4, 31)) || (!is_below(Release::new(3, 5, 0)) && is_below(Release::new(3, 5, 13))))
    }

    /// The known bugs of a release.
    pub fn bugs(self) -> impl Iterator<Item = &'static Bug> {
        BUGS.iter().filter(move |bug| bug.is_in(self))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A bug of etcd that affects servers sharing a store.
#[derive(Debug, PartialEq, Eq)]
pub struct Bug {
    /// The number of the bug's issue in etcd's repository.
    pub issue: u32,
    pub what: &'static str,
    /// The first release with the bug; `None` if all releases before the fix have it.
    since: Option<Release>,
    /// The first release without the bug in each minor series. Later minor series do not have the bug.
    fixed: &'static [Release],
    pub gravity: Gravity,
}

/// How a server handles a bug of the etcd that it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gravity {
    /// No precaution helps, so the server does not start.
    Refused,
    /// Errors may occur that the server cannot detect, so the server logs a warning when it starts.
    Warned,
    /// The server does not use the affected feature, or does not trust it.
    Avoided,
}

impl Bug {
    fn is_in(&self, release: Release) -> bool {
        let line = |release: &Release| (release.major, release.minor);
        let is_too_old = self.since.is_some_and(|since| release < since);
        let is_behind = self.fixed.iter().all(|fixed| line(fixed) < line(&release));
        let is_fixed = self.fixed.iter().any(|fixed| line(fixed) == line(&release) && release >= *fixed);
        !(is_too_old || is_behind || is_fixed)
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fixed: Vec<String> = self.fixed.iter().map(ToString::to_string).collect();
        write!(f, "{} (etcd issue {}, corrected in {})", self.what, self.issue, fixed.join(", "))
    }
}

/// The verdict on the members of a cluster, before a server relies on them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Why the server does not start: a sentence for each member and bug.
    pub refused: Vec<String>,
    pub warned: Vec<String>,
    /// Whether the progress notifications of all members can be trusted.
    pub tells_progress: bool,
}

/// Judges the members of a cluster. Each member is given by its address and the version that it reports.
pub fn judge<'m>(members: impl IntoIterator<Item = (&'m str, &'m str)>) -> Judged {
    let mut judged = Judged { tells_progress: true, ..Judged::default() };
    for (address, version) in members {
        let Some(release) = Release::parse(version) else {
            judged.tells_progress = false;
            judged.warned.push(format!("{address} reports the version {version:?}, which this server does not know"));
            continue;
        };
        judged.tells_progress &= release.tells_progress();
        if release < OLDEST {
            judged.refused.push(format!("{address} is etcd {release}, and {OLDEST} is the oldest that works"));
        }
        for bug in release.bugs() {
            let told = format!("{address} is etcd {release}: {bug}");
            match bug.gravity {
                Gravity::Refused => judged.refused.push(told),
                Gravity::Warned => judged.warned.push(told),
                Gravity::Avoided => {}
            }
        }
    }
    judged
}

const OLDEST: Release = Release::new(3, 4, 0);

const BUGS: &[Bug] = &[
    Bug {
        issue: 13766,
        what: "members may come to hold different data after one was killed",
        since: Some(Release::new(3, 5, 0)),
        fixed: &[Release::new(3, 5, 3)],
        gravity: Gravity::Refused,
    },
    Bug {
        issue: 15271,
        what: "a watch may go back in time after a partition or a snapshot",
        since: None,
        fixed: &[Release::new(3, 4, 25), Release::new(3, 5, 8)],
        gravity: Gravity::Avoided,
    },
    Bug {
        issue: 15220,
        what: "a watch may be told of progress ahead of its events",
        since: None,
        fixed: &[Release::new(3, 4, 25), Release::new(3, 5, 8)],
        gravity: Gravity::Avoided,
    },
    Bug {
        issue: 15402,
        what: "large reads may hold up watches on one TLS connection",
        since: None,
        fixed: &[Release::new(3, 4, 25), Release::new(3, 5, 8)],
        gravity: Gravity::Avoided,
    },
    Bug {
        issue: 17507,
        what: "a watch without events is told of no progress",
        since: None,
        fixed: &[Release::new(3, 4, 31), Release::new(3, 5, 13)],
        gravity: Gravity::Avoided,
    },
    Bug {
        issue: 17529,
        what: "a watch that starves, or that compaction overtakes, may lose events",
        since: None,
        fixed: &[Release::new(3, 4, 31), Release::new(3, 5, 13)],
        gravity: Gravity::Warned,
    },
    Bug {
        issue: 17780,
        what: "the revision may fall after a crash while etcd compacts",
        since: None,
        fixed: &[Release::new(3, 4, 32), Release::new(3, 5, 14)],
        gravity: Gravity::Warned,
    },
    Bug {
        issue: 18089,
        what: "a watch may lose a deletion at the revision that is compacted",
        since: None,
        fixed: &[Release::new(3, 4, 34), Release::new(3, 5, 16)],
        gravity: Gravity::Warned,
    },
    Bug {
        issue: 19179,
        what: "a watch from the compacted revision on may miss a deletion",
        since: None,
        fixed: &[Release::new(3, 4, 36), Release::new(3, 5, 18)],
        gravity: Gravity::Avoided,
    },
    Bug {
        issue: 20221,
        what: "a watch from a future revision on may get older events",
        since: None,
        fixed: &[Release::new(3, 4, 38), Release::new(3, 5, 22), Release::new(3, 6, 2)],
        gravity: Gravity::Avoided,
    },
    Bug {
        issue: 20418,
        what: "a read may be stale after the process of a member was paused",
        since: None,
        fixed: &[Release::new(3, 4, 42), Release::new(3, 5, 28), Release::new(3, 6, 9)],
        gravity: Gravity::Warned,
    },
    Bug {
        issue: 18667,
        what: "members may come to differ by a read of an old revision within a transaction",
        since: None,
        fixed: &[Release::new(3, 7, 0)],
        gravity: Gravity::Avoided,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn issues(version: &str) -> Vec<u32> {
        Release::parse(version).expect(version).bugs().map(|bug| bug.issue).collect()
    }

    #[test]
    fn versions_are_read() {
        for (text, shown) in [("3.6.16", "3.6.16"), ("3.7.0-rc.0", "3.7.0"), ("3.4.23+debian", "3.4.23")] {
            assert_eq!(Release::parse(text).map(|release| release.to_string()).as_deref(), Some(shown));
        }
        for text in ["", "3", "3.6", "3.6.x", "v3.6.1", "3.6.1.2", "3.6.99999999999"] {
            assert_eq!(Release::parse(text), None, "{text}");
        }
    }

    #[test]
    fn each_release_has_the_bugs_that_were_not_corrected_in_its_line() {
        assert!(issues("3.7.3").is_empty());
        assert!(issues("3.8.0").is_empty());
        assert!(issues("4.0.0").is_empty());
        assert_eq!(issues("3.6.16"), [18667]);
        assert_eq!(issues("3.6.8"), [20418, 18667]);
        assert_eq!(issues("3.6.1"), [20221, 20418, 18667]);
        assert_eq!(issues("3.5.33"), [18667]);
        assert_eq!(issues("3.5.13"), [17780, 18089, 19179, 20221, 20418, 18667]);
        assert!(issues("3.5.2").contains(&13766) && !issues("3.5.3").contains(&13766));
        assert!(!issues("3.4.0").contains(&13766), "it came with 3.5");
        assert_eq!(issues("3.4.23").len(), BUGS.len() - 1, "Debian 12's has all of the others");
    }

    #[test]
    fn progress_is_believed_where_kube_apiserver_believes_it() {
        for (version, is_told) in [
            ("3.3.9", false),
            ("3.4.23", false),
            ("3.4.30", false),
            ("3.4.31", true),
            ("3.5.0", false),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.6.0", true),
            ("4.0.0", true),
        ] {
            assert_eq!(Release::parse(version).expect(version).tells_progress(), is_told, "{version}");
        }
    }

    #[test]
    fn members_are_judged_one_by_one() {
        let good = judge([("a:1", "3.6.16"), ("b:1", "3.7.3")]);
        assert_eq!(good, Judged { tells_progress: true, ..Judged::default() });
        let mixed = judge([("a:1", "3.6.16"), ("b:1", "3.5.1")]);
        assert_eq!(
            mixed.refused,
            ["b:1 is etcd 3.5.1: members may come to hold different data after one was killed (etcd issue 13766, \
              corrected in 3.5.3)"]
        );
        assert!(!mixed.tells_progress && mixed.warned.iter().all(|told| told.starts_with("b:1 is etcd 3.5.1: ")));
        let old = judge([("a:1", "3.3.10")]);
        assert_eq!(old.refused, ["a:1 is etcd 3.3.10, and 3.4.0 is the oldest that works"]);
        let strange = judge([("a:1", "\u{1b}[2J")]);
        assert_eq!(strange.warned, [r#"a:1 reports the version "\u{1b}[2J", which this server does not know"#]);
        assert!(!strange.tells_progress && strange.refused.is_empty());
        let debian = judge([("a:1", "3.4.23")]);
        assert!(debian.refused.is_empty() && !debian.warned.is_empty(), "it works, and is warned of");
    }
}
