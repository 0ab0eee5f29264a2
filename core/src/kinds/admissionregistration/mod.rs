//! `admissionregistration.k8s.io`: who may change or refuse a request before it is stored.

pub mod columns;
pub mod defaults;

use super::Kind;

const GROUP: &str = "admissionregistration.k8s.io";
const PACKAGE: &str = "io.k8s.api.admissionregistration";

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .category("api-extensions")
            .columns(columns::of("MutatingWebhookConfiguration"))
            .conditional_update()
            .generation(),
        Kind::cluster("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .category("api-extensions")
            .columns(columns::of("ValidatingWebhookConfiguration"))
            .conditional_update()
            .generation(),
        Kind::cluster("ValidatingAdmissionPolicy", "validatingadmissionpolicies")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .category("api-extensions")
            .columns(columns::of("ValidatingAdmissionPolicy"))
            .conditional_update()
            .status()
            .generation(),
        Kind::cluster("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .category("api-extensions")
            .columns(columns::of("ValidatingAdmissionPolicyBinding"))
            .conditional_update()
            .generation(),
        Kind::cluster("MutatingAdmissionPolicy", "mutatingadmissionpolicies")
            .versions(GROUP, PACKAGE, ["v1beta1", "v1alpha1"])
            .category("api-extensions")
            .columns(columns::of("MutatingAdmissionPolicy"))
            .conditional_update()
            .generation(),
        Kind::cluster("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings")
            .versions(GROUP, PACKAGE, ["v1beta1", "v1alpha1"])
            .category("api-extensions")
            .columns(columns::of("MutatingAdmissionPolicyBinding"))
            .conditional_update()
            .generation(),
    ]
}
