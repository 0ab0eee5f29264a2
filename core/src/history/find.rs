//! Finds kinds by the names that kubectl accepts: plural, singular, short name or kind, each also with its group.

use crate::kinds::{Kind, KindId, Registry};
use std::fmt;

/// The error for a name that no kind has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKind {
    pub asked: String,
    /// Plural names with a similar spelling, the most similar first.
    pub similar: Vec<String>,
}

const SIMILAR_MAX: usize = 3;

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no kind {:?}", self.asked)?;
        match self.similar.as_slice() {
            [] => f.write_str(": give a plural (deployments), a short name (deploy), a kind or resource.group"),
            similar => write!(f, ": did you mean {}?", similar.join(" or ")),
        }
    }
}

impl std::error::Error for UnknownKind {}

/// The kind with this name. If several groups have such a kind, the first one in discovery order.
pub fn find(registry: &Registry, asked: &str) -> Result<KindId, UnknownKind> {
    let lower = asked.to_lowercase();
    let (name, suffix) = match lower.split_once('.') {
        Some((name, suffix)) => (name, Some(suffix)),
        None => (lower.as_str(), None),
    };
    // Plural names come first, so that a short name never hides a plural name.
    let ranks: [fn(&Kind, &str) -> bool; 3] = [
        |kind, name| kind.resource == name,
        |kind, name| kind.singular == name || kind.kind.to_lowercase() == name,
        |kind, name| kind.short_names.iter().any(|short| short == name),
    ];
    for matches in ranks {
        for id in in_order(registry) {
            let kind = registry.get(id);
            if matches(kind, name) && suffix.is_none_or(|suffix| has_group(kind, suffix)) {
                return Ok(id);
            }
        }
    }
    Err(UnknownKind { similar: similar(registry, name), asked: asked.to_owned() })
}

/// Kinds whose objects are stored, in discovery order.
fn in_order(registry: &Registry) -> impl Iterator<Item = KindId> + '_ {
    registry.groups().into_iter().flat_map(move |group| {
        let ids = group.versions.iter().flat_map(|version| registry.served(&group.group, version)).map(|(id, _)| id);
        ids.filter(|id| registry.get(*id).stored).collect::<Vec<_>>()
    })
}

/// Whether a kind is in the group that the suffix names: `apps` or `v1.apps`; for the core group `v1`.
fn has_group(kind: &Kind, suffix: &str) -> bool {
    kind.versions.iter().any(|version| {
        version.group == suffix
            || suffix.strip_prefix(version.version.as_str()).is_some_and(|rest| match rest.strip_prefix('.') {
                Some(group) => group == version.group,
                None => rest.is_empty() && version.group.is_empty(),
            })
    })
}

fn similar(registry: &Registry, asked: &str) -> Vec<String> {
    let far = asked.chars().count().div_ceil(4).min(3);
    let mut found = Vec::new();
    for (_, kind) in registry.iter().filter(|(_, kind)| kind.stored) {
        let lower = kind.kind.to_lowercase();
        let names = [&kind.resource, &kind.singular, &lower].into_iter().chain(&kind.short_names);
        // Names of two letters are left out, because they are similar to most short texts.
        let distance = names.filter(|name| name.len() > 2).filter_map(|name| distance(asked, name, far)).min();
        found.extend(distance.map(|distance| (distance, kind.resource.clone())));
    }
    found.sort();
    found.dedup_by(|a, b| a.1 == b.1);
    found.into_iter().take(SIMILAR_MAX).map(|(_, name)| name).collect()
}

/// The number of letters that must be inserted, deleted or changed to turn one name into the other; `None` if it is
/// more than `far`.
pub fn distance(a: &str, b: &str, far: usize) -> Option<usize> {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > far {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let changed = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().filter(|distance| *distance <= far)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::registry;

    #[test]
    fn kinds_have_the_names_that_kubectl_takes() {
        for (asked, storage) in [
            ("deployments", "deployments"),
            ("deployment", "deployments"),
            ("deploy", "deployments"),
            ("Deployment", "deployments"),
            ("deployments.apps", "deployments"),
            ("deployment.v1.apps", "deployments"),
            ("Deployment.extensions", "deployments"),
            ("cm", "configmaps"),
            ("cm.v1", "configmaps"),
            ("po", "pods"),
            ("ev", "events"),
            ("events.events.k8s.io", "events"),
            ("svc", "services/specs"),
            ("crd", "apiextensions.k8s.io/customresourcedefinitions"),
        ] {
            let found = find(registry(), asked).map(|id| registry().get(id).storage.path.as_str());
            assert_eq!(found, Ok(storage), "{asked}");
        }
    }

    #[test]
    fn a_kind_that_is_not_there_has_those_that_are_written_much_the_same() {
        for (asked, similar) in [
            ("deploymets", &["deployments"][..]),
            ("configmpa", &["configmaps"]),
            ("pods.apps", &["pods"]),
            ("subjectaccessreviews", &[]),
            ("x", &[]),
            ("", &[]),
        ] {
            let error = find(registry(), asked).expect_err(asked);
            assert_eq!(error.similar, similar, "{asked}");
            assert!(error.to_string().starts_with(&format!("there is no kind {asked:?}: ")), "{error}");
        }
    }

    #[test]
    fn distances_count_letters() {
        for (a, b, far, expected) in [
            ("pods", "pods", 0, Some(0)),
            ("pods", "pod", 1, Some(1)),
            ("kitten", "sitting", 3, Some(3)),
            ("kitten", "sitting", 2, None),
            ("", "ab", 2, Some(2)),
        ] {
            assert_eq!(distance(a, b, far), expected, "{a} {b}");
        }
    }
}
