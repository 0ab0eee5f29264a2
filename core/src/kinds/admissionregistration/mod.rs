//! `admissionregistration.k8s.io`: webhooks and policies that change or refuse requests.

pub mod columns;
pub mod defaults;
mod matching;
mod parameters;
mod policies;
pub mod type_checks;
mod validate;

use super::build::STATUS_RESETS_METADATA;
use super::{ApiGroup, Kind, MetadataOnUpdate, Registers};

pub const GROUP: &str = "admissionregistration.k8s.io";
const PACKAGE: &str = "io.k8s.api.admissionregistration";

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup =
    ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(16_700, &[("v1", 15), ("v1beta1", 12), ("v1alpha1", 9)]);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .category("api-extensions")
            .columns(columns::of("MutatingWebhookConfiguration"))
            .registers(Registers::MutatingWebhooks)
            .validate(validate::mutating)
            .conditional_update()
            .any_finalizers()
            .metadata_on_update(MetadataOnUpdate::New)
            .generation(),
        Kind::cluster("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .category("api-extensions")
            .columns(columns::of("ValidatingWebhookConfiguration"))
            .registers(Registers::ValidatingWebhooks)
            .validate(validate::validating)
            .conditional_update()
            .any_finalizers()
            .metadata_on_update(MetadataOnUpdate::New)
            .generation(),
        Kind::cluster("ValidatingAdmissionPolicy", "validatingadmissionpolicies")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .category("api-extensions")
            .columns(columns::of("ValidatingAdmissionPolicy"))
            .registers(Registers::ValidatingPolicy)
            .validate(policies::validating)
            .authorize(parameters::policy)
            .conditional_update()
            .any_finalizers()
            .metadata_on_update(MetadataOnUpdate::New)
            .status()
            .status_resets(STATUS_RESETS_METADATA)
            .validate_part("status", policies::status)
            .generation(),
        Kind::cluster("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .category("api-extensions")
            .columns(columns::of("ValidatingAdmissionPolicyBinding"))
            .registers(Registers::ValidatingBinding)
            .validate(policies::validating_binding)
            .authorize(parameters::validating_binding)
            .conditional_update()
            .any_finalizers()
            .metadata_on_update(MetadataOnUpdate::New)
            .generation(),
        Kind::cluster("MutatingAdmissionPolicy", "mutatingadmissionpolicies")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .category("api-extensions")
            .columns(columns::of("MutatingAdmissionPolicy"))
            .registers(Registers::MutatingPolicy)
            .validate(policies::mutating)
            .authorize(parameters::policy)
            .conditional_update()
            .any_finalizers()
            .metadata_on_update(MetadataOnUpdate::New)
            .generation(),
        Kind::cluster("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .category("api-extensions")
            .columns(columns::of("MutatingAdmissionPolicyBinding"))
            .registers(Registers::MutatingBinding)
            .validate(policies::mutating_binding)
            .authorize(parameters::mutating_binding)
            .conditional_update()
            .any_finalizers()
            .metadata_on_update(MetadataOnUpdate::New)
            .generation(),
    ]
}
