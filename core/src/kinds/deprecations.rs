//! Deprecated versions of the built-in API: the release that deprecated them, the release that removed them from
//! Kubernetes, and their replacement. Clients that use such a version get a warning.

/// A deprecated version of a group, or of some kinds of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deprecation {
    api_version: &'static str,
    /// The deprecated kinds. If the list is empty, these are all kinds of the version that no earlier row names.
    kinds: &'static [&'static str],
    /// The minor release that deprecated the version.
    since: u32,
    /// The first minor release that does not have the version; `None` if no removal is planned.
    until: Option<u32>,
    /// The replacement: a version, or a version and kind; empty if there is none.
    instead: &'static str,
}

/// The minor release of Kubernetes whose API this server implements.
const RELEASE: u32 = 35;

const fn all(api_version: &'static str, since: u32, until: u32, instead: &'static str) -> Deprecation {
    of(api_version, &[], since, until, instead)
}

const fn of(
    api_version: &'static str,
    kinds: &'static [&'static str],
    since: u32,
    until: u32,
    instead: &'static str,
) -> Deprecation {
    Deprecation { api_version, kinds, since, until: Some(until), instead }
}

const fn for_ever(
    api_version: &'static str,
    kinds: &'static [&'static str],
    since: u32,
    instead: &'static str,
) -> Deprecation {
    Deprecation { api_version, kinds, since, until: None, instead }
}

const POLICIES: &[&str] = &["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];

const DEPRECATIONS: &[Deprecation] = &[
    for_ever("v1", &["ComponentStatus"], 19, ""),
    for_ever("v1", &["Endpoints"], 33, "discovery.k8s.io/v1 EndpointSlice"),
    of("admissionregistration.k8s.io/v1beta1", POLICIES, 31, 34, "admissionregistration.k8s.io/v1"),
    of("admissionregistration.k8s.io/v1alpha1", POLICIES, 29, 32, "admissionregistration.k8s.io/v1"),
    of("admissionregistration.k8s.io/v1beta1", WEBHOOKS, 16, 22, "admissionregistration.k8s.io/v1"),
    all("admissionregistration.k8s.io/v1alpha1", 35, 38, "admissionregistration.k8s.io/v1beta1"),
    all("apiextensions.k8s.io/v1beta1", 16, 22, "apiextensions.k8s.io/v1"),
    all("apiregistration.k8s.io/v1beta1", 19, 22, "apiregistration.k8s.io/v1"),
    all("apps/v1beta1", 8, 16, "apps/v1"),
    all("apps/v1beta2", 9, 16, "apps/v1"),
    of("authentication.k8s.io/v1beta1", &["SelfSubjectReview"], 30, 33, "authentication.k8s.io/v1"),
    all("authentication.k8s.io/v1alpha1", 29, 32, "authentication.k8s.io/v1"),
    all("authentication.k8s.io/v1beta1", 19, 22, "authentication.k8s.io/v1"),
    all("authorization.k8s.io/v1beta1", 19, 22, "authorization.k8s.io/v1"),
    all("autoscaling/v2beta1", 22, 25, "autoscaling/v2"),
    all("autoscaling/v2beta2", 23, 26, "autoscaling/v2"),
    all("batch/v1beta1", 21, 25, "batch/v1"),
    all("batch/v2alpha1", 8, 21, "batch/v1"),
    of("certificates.k8s.io/v1beta1", &["CertificateSigningRequest"], 19, 22, "certificates.k8s.io/v1"),
    all("certificates.k8s.io/v1alpha1", 34, 37, "certificates.k8s.io/v1beta1"),
    of("coordination.k8s.io/v1beta1", &["Lease"], 19, 22, "coordination.k8s.io/v1"),
    all("coordination.k8s.io/v1alpha2", 35, 38, "coordination.k8s.io/v1beta1"),
    all("discovery.k8s.io/v1beta1", 21, 25, "discovery.k8s.io/v1"),
    all("events.k8s.io/v1beta1", 19, 25, "events.k8s.io/v1"),
    of("extensions/v1beta1", &["Ingress"], 14, 22, "networking.k8s.io/v1"),
    of("extensions/v1beta1", &["NetworkPolicy"], 9, 16, "networking.k8s.io/v1"),
    all("extensions/v1beta1", 8, 16, "apps/v1"),
    all("flowcontrol.apiserver.k8s.io/v1beta1", 23, 26, "flowcontrol.apiserver.k8s.io/v1"),
    all("flowcontrol.apiserver.k8s.io/v1beta2", 26, 29, "flowcontrol.apiserver.k8s.io/v1"),
    all("flowcontrol.apiserver.k8s.io/v1beta3", 29, 32, "flowcontrol.apiserver.k8s.io/v1"),
    of("networking.k8s.io/v1beta1", &["IPAddress", "ServiceCIDR"], 34, 37, "networking.k8s.io/v1"),
    all("networking.k8s.io/v1beta1", 19, 22, "networking.k8s.io/v1"),
    all("node.k8s.io/v1alpha1", 20, 24, "node.k8s.io/v1"),
    all("node.k8s.io/v1beta1", 22, 25, "node.k8s.io/v1"),
    all("policy/v1beta1", 21, 25, "policy/v1"),
    all("rbac.authorization.k8s.io/v1alpha1", 17, 22, "rbac.authorization.k8s.io/v1"),
    all("rbac.authorization.k8s.io/v1beta1", 17, 22, "rbac.authorization.k8s.io/v1"),
    all("resource.k8s.io/v1beta1", 35, 38, "resource.k8s.io/v1"),
    all("scheduling.k8s.io/v1beta1", 14, 22, "scheduling.k8s.io/v1"),
    of("scheduling.k8s.io/v1alpha1", &["PriorityClass"], 14, 22, "scheduling.k8s.io/v1"),
    of("storage.k8s.io/v1beta1", &["CSIStorageCapacity"], 24, 27, "storage.k8s.io/v1"),
    of("storage.k8s.io/v1alpha1", &["CSIStorageCapacity"], 21, 24, "storage.k8s.io/v1"),
    of("storage.k8s.io/v1beta1", &["VolumeAttributesClass"], 34, 37, "storage.k8s.io/v1"),
    of("storage.k8s.io/v1alpha1", &["VolumeAttributesClass"], 32, 35, "storage.k8s.io/v1"),
    all("storage.k8s.io/v1alpha1", 19, 24, "storage.k8s.io/v1"),
    all("storage.k8s.io/v1beta1", 19, 22, "storage.k8s.io/v1"),
];

const WEBHOOKS: &[&str] = &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

impl Deprecation {
    /// The row for a kind in a version; `None` if the version of the kind is not deprecated.
    pub(super) fn find(group: &str, version: &str, kind: &str) -> Option<&'static Deprecation> {
        let api_version = super::api_version(group, version);
        DEPRECATIONS
            .iter()
            .find(|row| row.api_version == api_version && (row.kinds.is_empty() || row.kinds.contains(&kind)))
    }

    /// The first minor release that sends deprecation warnings.
    pub const TOLD_SINCE: u32 = 19;

    /// Whether a minor release warns of this deprecation.
    pub fn is_told_by(&self, release: u32) -> bool {
        release >= self.since.max(Self::TOLD_SINCE)
    }

    /// Whether Kubernetes no longer serves the version, so that only clients for older servers use it.
    pub fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= RELEASE)
    }

    /// The warning for clients that use the version of this kind.
    pub fn warning(&self, kind: &str) -> String {
        let mut warning = format!("{} {kind} is deprecated in v1.{}+", self.api_version, self.since);
        if let Some(until) = self.until {
            warning.push_str(&format!(", unavailable in v1.{until}+"));
        }
        match self.instead {
            "" => {}
            other if other.contains(' ') => warning.push_str(&format!("; use {other}")),
            api_version => warning.push_str(&format!("; use {api_version} {kind}")),
        }
        warning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_name_the_version_to_use() {
        let cases = [
            ("", "v1", "Endpoints", "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
            ("", "v1", "ComponentStatus", "v1 ComponentStatus is deprecated in v1.19+"),
            ("", "v1", "Pod", ""),
            (
                "extensions",
                "v1beta1",
                "Ingress",
                "extensions/v1beta1 Ingress is deprecated in v1.14+, unavailable in v1.22+; use networking.k8s.io/v1 \
                 Ingress",
            ),
            (
                "extensions",
                "v1beta1",
                "DaemonSet",
                "extensions/v1beta1 DaemonSet is deprecated in v1.8+, unavailable in v1.16+; use apps/v1 DaemonSet",
            ),
        ];
        for (group, version, kind, expected) in cases {
            let found = Deprecation::find(group, version, kind).map(|found| found.warning(kind));
            assert_eq!(found.unwrap_or_default(), expected);
        }
    }

    #[test]
    fn every_row_is_of_a_version_that_is_served_and_points_to_one() {
        let registry = crate::kinds::registry();
        let served: Vec<_> =
            registry.iter().flat_map(|(_, kind)| kind.versions.iter().map(move |v| (kind, v))).collect();
        for row in DEPRECATIONS {
            let of_row = |(_, version): &&(&crate::kinds::Kind, &crate::kinds::Version)| {
                version.deprecation.is_some_and(|found| found == row)
            };
            assert!(served.iter().any(|found| of_row(&found)), "{row:?} is of no kind");
            let instead = row.instead.split(' ').next().unwrap_or_default();
            let known = served.iter().any(|(_, version)| version.api_version() == instead);
            assert!(instead.is_empty() || known, "{row:?} points nowhere");
        }
    }
}
