//! The names of a StatefulSet's pods and of the pods' claims.

pub fn pod(set: &str, ordinal: i64) -> String {
    format!("{set}-{ordinal}")
}

/// The ordinal at the end of a pod's name; `None` if no pod of this set can have the name.
pub fn ordinal_of(pod: &str, set: &str) -> Option<i64> {
    let ordinal = pod.strip_prefix(set)?.strip_prefix('-')?.parse::<i64>().ok()?;
    (ordinal >= 0 && self::pod(set, ordinal) == pod).then_some(ordinal)
}

pub fn claim(template: &str, set: &str, ordinal: i64) -> String {
    format!("{template}-{}", pod(set, ordinal))
}

/// The name of the pod to which a claim of this name belongs; `None` if no claim of this set can have the name.
pub fn pod_of(claim: &str, set: &str) -> Option<String> {
    let (rest, ordinal) = claim.rsplit_once('-')?;
    let pod = format!("{set}-{ordinal}");
    ordinal_of(&pod, set)?;
    rest.strip_suffix(set)?.strip_suffix('-').map(|_| pod)
}

/// The names of all sets to which a claim of this name may belong. There may be several, because names of sets and of
/// templates may contain hyphens.
pub fn sets_of(claim: &str) -> impl Iterator<Item = &str> {
    let rest = claim.rsplit_once('-').map_or("", |(rest, _)| rest);
    let sets = rest.match_indices('-').map(|(at, _)| &rest[at + 1..]);
    sets.filter(|set| pod_of(claim, set).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_named_after_its_pod() {
        assert_eq!(claim("data", "db", 3), "data-db-3");
        assert_eq!(pod_of("data-db-3", "db").as_deref(), Some("db-3"));
        assert_eq!(pod_of("data-db-03", "db"), None);
        assert_eq!(pod_of("data-db-x", "db"), None);
        assert_eq!(pod_of("db-3", "db"), None);
        assert_eq!(pod_of("data-other-3", "db"), None);
        assert_eq!(sets_of("data-my-db-3").collect::<Vec<_>>(), ["my-db", "db"]);
        assert_eq!(sets_of("data-db-03").count() + sets_of("db-3").count() + sets_of("").count(), 0);
    }
}
