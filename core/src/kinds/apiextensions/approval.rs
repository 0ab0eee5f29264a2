//! Groups of Kubernetes itself need an approval to define kinds in them: an annotation says where it was given.

use serde_json::Value;

pub const ANNOTATION: &str = "api-approved.kubernetes.io";

/// What the annotation says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    Missing,
    Invalid,
    /// Somebody goes without, knowingly.
    Bypassed(String),
    Approved(String),
}

/// The approval of a group's definition; `None` where none is needed.
pub fn of(group: &str, annotations: Option<&Value>) -> Option<Approval> {
    let is_within = |domain: &str| group == domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    if !["k8s.io", "kubernetes.io"].iter().any(|domain| is_within(domain)) {
        return None;
    }
    let text = annotations.and_then(|annotations| annotations[ANNOTATION].as_str()).unwrap_or_default();
    Some(match text {
        "" => Approval::Missing,
        text if text.starts_with("unapproved") => Approval::Bypassed(text.to_owned()),
        text if is_url(text) => Approval::Approved(text.to_owned()),
        _ => Approval::Invalid,
    })
}

fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, rest)| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !host.is_empty()
    })
}

impl Approval {
    /// What is wrong with it, if it stands in the way.
    pub fn fault(&self) -> Option<String> {
        const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
        match self {
            Self::Missing => Some(format!("protected groups must have approval annotation \"{ANNOTATION}\", {SEE}")),
            Self::Invalid => Some(format!(
                "protected groups must have approval annotation \"{ANNOTATION}\" with either a URL or a reason starting \
                 with \"unapproved\", {SEE}"
            )),
            Self::Bypassed(_) | Self::Approved(_) => None,
        }
    }
}

/// The condition that tells of it: whether it holds, its reason and message.
pub fn condition(group: &str, annotations: Option<&Value>) -> Option<(bool, &'static str, String)> {
    let approval = of(group, annotations)?;
    let fault = approval.fault().unwrap_or_default();
    Some(match approval {
        Approval::Missing => (false, "MissingAnnotation", fault),
        Approval::Invalid => (false, "InvalidAnnotation", fault),
        Approval::Bypassed(text) => (false, "UnapprovedAnnotation", format!("not approved: \"{text}\"")),
        Approval::Approved(text) => (true, "ApprovedAnnotation", format!("approved in {text}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn protected_groups() {
        for (group, annotation, expected) in [
            ("example.com", "", None),
            ("notk8s.io", "", None),
            ("k8s.io", "", Some((false, "MissingAnnotation"))),
            ("x.kubernetes.io", "because", Some((false, "InvalidAnnotation"))),
            ("x.k8s.io", "unapproved, experimental", Some((false, "UnapprovedAnnotation"))),
            ("x.k8s.io", "https://github.com/kubernetes/kubernetes/pull/1", Some((true, "ApprovedAnnotation"))),
        ] {
            let annotations = json!({ ANNOTATION: annotation });
            let found = condition(group, Some(&annotations)).map(|(holds, reason, _)| (holds, reason));
            assert_eq!(found, expected, "{group} {annotation}");
        }
    }
}
