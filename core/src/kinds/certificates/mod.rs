//! `certificates.k8s.io`: certificate signing requests, trust bundles, pod certificates.

pub mod columns;
pub mod defaults;
mod pem;
mod pod_requests;
pub mod signers;
mod validate;

pub use pem::pool_fault;

use super::build::keep_old;
use super::{ApiGroup, Asking, Kind};
use crate::authz::nodes::{Object, Relation};
use crate::authz::user::User;
use crate::object::names::NameRule;
use crate::schema::defaults::{is_absent, set_absent};
use holdfast_value::{Value, json};

pub const GROUP: &str = "certificates.k8s.io";
const PACKAGE: &str = "io.k8s.api.certificates";

fn note(request: &mut Value, old: Option<&Value>, asking: &Asking) {
    match (old, asking.subresource) {
        (None, _) => sign(request, asking.user),
        (Some(old), "approval" | "status") => date_conditions(request, old, asking.now),
        _ => {}
    }
}

/// A condition without a time gets the current time; an old condition with the same status keeps its time.
fn date_conditions(request: &mut Value, old: &Value, now: &str) {
    let Some(Value::Array(conditions)) = request.pointer_mut("/status/conditions") else { return };
    for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
        set_absent(condition, "lastUpdateTime", now);
        if is_absent(condition, "lastTransitionTime") {
            let same = |old: &&Value| ["type", "status"].iter().all(|field| old.get(field) == condition.get(*field));
            let earlier = old["status"]["conditions"].as_array().into_iter().flatten().find(same);
            let since = earlier.and_then(|old| old["lastTransitionTime"].as_str()).unwrap_or(now);
            condition.insert("lastTransitionTime", since.into());
        }
    }
}

/// Records the requesting user, because signers rely on it. The client cannot set another user.
fn sign(request: &mut Value, user: &User) {
    let Value::Object(spec) = &mut request["spec"] else { return };
    let said = [
        ("username", Value::from(user.name.as_str())),
        ("uid", Value::from(user.uid.as_str())),
        ("groups", Value::from(user.groups.clone())),
        ("extra", json!(user.extra)),
    ];
    for (field, value) in said {
        let is_empty = value == json!("") || value == json!([]) || value == json!({});
        if is_empty {
            spec.remove(field)
        } else {
            spec.insert(field, value)
        };
    }
}

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup =
    ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(17_300, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("CertificateSigningRequest", "certificatesigningrequests")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .short(["csr"])
            .columns(columns::of("CertificateSigningRequest"))
            .names(NameRule::PathSegment)
            .resets(&[&["spec"], &["status"]])
            .note(note)
            .validate(validate::request)
            .view("approval")
            .validate_part("approval", validate::approval)
            .part_resets("approval", &[&["spec"]])
            .status()
            .status_resets(&[&["spec"], &["status", "conditions"]])
            .validate_part("status", validate::status)
            .select("spec.signerName")
            // The spec is immutable; the approval and the certificate are written through subresources.
            .prepare_update(|new, old| {
                keep_old(new, old, "spec");
                keep_old(new, old, "status");
            }),
        Kind::cluster("ClusterTrustBundle", "clustertrustbundles")
            .versions(GROUP, PACKAGE, ["v1beta1", "v1alpha1"])
            .columns(columns::of("ClusterTrustBundle"))
            .names(NameRule::PathSegment)
            .validate(validate::bundle)
            .conditional_update()
            .select("spec.signerName"),
        Kind::namespaced("PodCertificateRequest", "podcertificaterequests")
            .versions(GROUP, PACKAGE, ["v1beta1"])
            .columns(columns::of("PodCertificateRequest"))
            .leads_to_nodes(Relation::Named(Object::CertificateRequest))
            .validate(pod_requests::request)
            .authorize(signers::pod_request)
            .conditional_update()
            .status()
            .validate_part("status", pod_requests::status)
            .select("spec.signerName"),
    ]
}
