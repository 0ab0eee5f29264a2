//! Protected groups (`*.k8s.io`, `*.kubernetes.io`): a definition in such a group must have an annotation. Its value is
//! the URL of the approval, or a reason that starts with `unapproved`.

use crate::cel::functions::kubernetes::url;
use crate::kinds::rules::At;
use crate::refusal::Causes;
use holdfast_value::Value;

const ANNOTATION: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Missing,
    Invalid,
    /// The annotation marks the definition as unapproved, which is allowed.
    Bypassed,
    Approved,
}

impl State {
    /// The reason of the condition `KubernetesAPIApprovalPolicyConformant`, which is true only if approved.
    pub fn reason(self) -> &'static str {
        match self {
            State::Missing => "MissingAnnotation",
            State::Invalid => "InvalidAnnotation",
            State::Bypassed => "UnapprovedAnnotation",
            State::Approved => "ApprovedAnnotation",
        }
    }
}

/// State, reason and message for a definition; `None` if its group needs no approval.
pub fn approval(group: &str, annotations: &Value) -> Option<(State, &'static str, String)> {
    let is_within =
        |domain: &str| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if !["k8s.io", "kubernetes.io"].into_iter().any(is_within) {
        return None;
    }
    let text = annotations[ANNOTATION].as_str().unwrap_or_default();
    let is_url = || url::check_request_uri(text).is_ok_and(|url| !url.host.is_empty() && !url.scheme.is_empty());
    let (state, message) = if text.is_empty() {
        (State::Missing, format!("protected groups must have approval annotation \"{ANNOTATION}\", {SEE}"))
    } else if text.starts_with("unapproved") {
        (State::Bypassed, format!("not approved: {}", url::quoted(text)))
    } else if is_url() {
        (State::Approved, format!("approved in {text}"))
    } else {
        let how = "with either a URL or a reason starting with \"unapproved\"";
        (State::Invalid, format!("protected groups must have approval annotation \"{ANNOTATION}\" {how}, {SEE}"))
    };
    Some((state, state.reason(), message))
}

/// Checks the annotation of a definition. An update may keep an old violation.
pub(super) fn check(metadata: At, group: &str, old: Option<&Value>, causes: &mut Causes) {
    let annotations = metadata.get("annotations");
    let at = annotations.key(ANNOTATION);
    let Some((state, _, message)) = approval(group, annotations.value) else { return };
    let before = old.and_then(|old| approval(group, &old["metadata"]["annotations"]));
    if before.is_some_and(|(before, ..)| before == state) {
        return;
    }
    match state {
        State::Missing => causes.push(at.required(&message)),
        State::Invalid => causes.push(at.invalid(&message)),
        State::Bypassed | State::Approved => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{ANNOTATION, approval};
    use holdfast_value::json;

    #[test]
    fn states() {
        for (group, annotation, expected) in [
            ("example.test", "", None),
            ("notk8s.io", "", None),
            ("k8s.io", "", Some("MissingAnnotation")),
            ("a.k8s.io", "https://github.com/kubernetes/kubernetes/pull/1", Some("ApprovedAnnotation")),
            ("a.kubernetes.io", "unapproved, experimental", Some("UnapprovedAnnotation")),
            ("a.k8s.io", "/path", Some("InvalidAnnotation")),
            ("a.k8s.io", "yes", Some("InvalidAnnotation")),
        ] {
            let found = approval(group, &json!({ANNOTATION: annotation})).map(|(_, reason, _)| reason);
            assert_eq!(found, expected, "{group} {annotation}");
        }
    }
}
