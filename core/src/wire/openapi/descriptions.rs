//! What fields and types are for, in words: taken at run time from k8s-openapi, whose build carries the texts.
//!
//! Only the words come from here; the shape comes from the schema table. A type that k8s-openapi no longer has
//! (an old beta) takes the words of its newest namesake.

use crate::kinds::compare_versions;
use crate::schema::{Type, schema};
use holdfast_value::Value;
use k8s_openapi::schemars::generate::SchemaSettings;
use k8s_openapi::schemars::{JsonSchema, SchemaGenerator};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The texts of some kinds and of every type below them.
pub(in crate::wire) struct Descriptions {
    /// By definition name.
    types: BTreeMap<String, Described>,
}

struct Described {
    text: String,
    fields: BTreeMap<String, String>,
}

impl Descriptions {
    /// Collects what is needed to describe the definitions named by `messages`.
    /// Takes milliseconds, and memory: make one for a document and drop it.
    pub(in crate::wire) fn of<'m>(messages: impl IntoIterator<Item = &'m str>) -> Self {
        let mut generator = SchemaSettings::draft2020_12().into_generator();
        let mut wanted = vec![false; ROOTS.len()];
        for message in messages {
            let exact = ROOTS.iter().position(|root| (root.name)() == message);
            match exact {
                Some(index) => wanted[index] = true,
                None => mark_namesakes(message, &mut wanted),
            }
        }
        for (root, _) in ROOTS.iter().zip(&wanted).filter(|(_, wanted)| **wanted) {
            (root.add)(&mut generator);
        }
        let types =
            generator.take_definitions(false).into_iter().map(|(name, schema)| (name, described(schema.into())));
        Self { types: types.collect() }
    }

    /// What the type is for; empty when nothing is known.
    pub(super) fn of_type(&self, message: &str) -> &str {
        self.find(message).map_or("", |described| &described.text)
    }

    pub(in crate::wire) fn of_field(&self, message: &str, field: &str) -> &str {
        self.find(message).and_then(|described| described.fields.get(field)).map_or("", String::as_str)
    }

    /// Of the field at a dotted path below a message of the schema.
    pub(in crate::wire) fn at(&self, message: &str, path: &str) -> &str {
        let (parents, field) = path.rsplit_once('.').unwrap_or(("", path));
        let parents = parents.split('.').filter(|name| !name.is_empty());
        let holder =
            parents.fold(schema().id(message), |message, name| match schema().message(message?).field(name)?.ty {
                Type::Message(part) => Some(part),
                _ => None,
            });
        holder.map_or("", |holder| self.of_field(&schema().message(holder).name, field))
    }

    fn find(&self, message: &str) -> Option<&Described> {
        if let Some(described) = self.types.get(message) {
            return Some(described);
        }
        let (package, bare) = split(message);
        let namesakes = self.types.iter().filter(|(name, _)| split(name).1 == bare);
        // Of the same group before others, then the best version.
        let newest = namesakes.min_by(|(a, _), (b, _)| {
            let ((a_group, a_version), (b_group, b_version)) = (split(split(a).0), split(split(b).0));
            let group = split(package).0;
            (b_group == group).cmp(&(a_group == group)).then(compare_versions(a_version, b_version))
        });
        newest.map(|(_, described)| described)
    }
}

/// Package and bare name of `io.k8s.api.apps.v1.Deployment`; also group and version of a package.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("", name))
}

fn mark_namesakes(message: &str, wanted: &mut [bool]) {
    let bare = split(message).1;
    for (root, wanted) in ROOTS.iter().zip(wanted) {
        *wanted |= split(&(root.name)()).1 == bare;
    }
}

fn described(mut schema: Value) -> Described {
    let text = take_description(&mut schema);
    let mut fields = BTreeMap::new();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, property) in properties.iter_mut() {
            let text = take_description(property);
            if !text.is_empty() {
                fields.insert(name.to_string(), text);
            }
        }
    }
    Described { text, fields }
}

fn take_description(schema: &mut Value) -> String {
    match schema.get_mut("description").map(Value::take) {
        Some(Value::String(text)) => text.into(),
        _ => String::new(),
    }
}

struct Root {
    name: fn() -> Cow<'static, str>,
    add: fn(&mut SchemaGenerator),
}

fn add<T: JsonSchema>(generator: &mut SchemaGenerator) {
    generator.subschema_for::<T>();
}

macro_rules! roots {
    (@one [$($module:ident)::+] $name:ident) => {
        Root {
            name: <k8s_openapi::$($module)::+::$name as JsonSchema>::schema_name,
            add: add::<k8s_openapi::$($module)::+::$name>,
        }
    };
    ($($module:tt $($name:ident)+;)+) => {
        &[$($(roots!(@one $module $name),)+)+]
    };
}

/// Every type that k8s-openapi describes and that no other type contains; and the metadata of all, which is also described
/// alone.
#[rustfmt::skip]
const ROOTS: &[Root] = roots! {
    [api::admissionregistration::v1] MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration;
    [api::admissionregistration::v1alpha1] MutatingAdmissionPolicy MutatingAdmissionPolicyBinding;
    [api::admissionregistration::v1beta1] MutatingAdmissionPolicy MutatingAdmissionPolicyBinding;
    [api::apiserverinternal::v1alpha1] StorageVersion;
    [api::apps::v1] ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet;
    [api::authentication::v1] SelfSubjectReview TokenRequest TokenReview;
    [api::authorization::v1] LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview;
    [api::autoscaling::v1] HorizontalPodAutoscaler Scale;
    [api::autoscaling::v2] HorizontalPodAutoscaler;
    [api::batch::v1] CronJob Job;
    [api::certificates::v1] CertificateSigningRequest;
    [api::certificates::v1alpha1] ClusterTrustBundle;
    [api::certificates::v1beta1] ClusterTrustBundle PodCertificateRequest;
    [api::coordination::v1] Lease;
    [api::coordination::v1alpha2] LeaseCandidate;
    [api::coordination::v1beta1] LeaseCandidate;
    [api::core::v1] Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount;
    [api::discovery::v1] EndpointSlice;
    [api::events::v1] Event;
    [api::flowcontrol::v1] FlowSchema PriorityLevelConfiguration;
    [api::networking::v1] IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR;
    [api::networking::v1beta1] IPAddress ServiceCIDR;
    [api::node::v1] RuntimeClass;
    [api::policy::v1] Eviction PodDisruptionBudget;
    [api::rbac::v1] ClusterRole ClusterRoleBinding Role RoleBinding;
    [api::resource::v1] DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice;
    [api::resource::v1alpha3] DeviceTaintRule;
    [api::resource::v1beta1] DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice;
    [api::resource::v1beta2] DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice;
    [api::scheduling::v1] PriorityClass;
    [api::scheduling::v1alpha1] Workload;
    [api::storage::v1] CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass;
    [api::storage::v1beta1] VolumeAttributesClass;
    [api::storagemigration::v1beta1] StorageVersionMigration;
    [apiextensions_apiserver::pkg::apis::apiextensions::v1] CustomResourceDefinition;
    [apimachinery::pkg::apis::meta::v1] APIGroup APIGroupList APIResourceList APIVersions DeleteOptions ObjectMeta Patch Status;
    [apimachinery::pkg::version] Info;
    [kube_aggregator::pkg::apis::apiregistration::v1] APIService;
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_brings_its_parts() {
        let descriptions = Descriptions::of(["io.k8s.api.core.v1.ConfigMap"]);
        assert!(descriptions.of_type("io.k8s.api.core.v1.ConfigMap").starts_with("ConfigMap holds"));
        assert!(!descriptions.of_field("io.k8s.api.core.v1.ConfigMap", "data").is_empty());
        assert!(!descriptions.of_field("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "labels").is_empty());
        assert_eq!(descriptions.of_type("io.k8s.api.core.v1.PodSpec"), "");
    }

    #[test]
    fn an_old_beta_takes_the_words_of_its_newest_namesake() {
        let descriptions = Descriptions::of(["io.k8s.api.extensions.v1beta1.Deployment"]);
        let newest = descriptions.of_type("io.k8s.api.apps.v1.DeploymentSpec");
        assert!(!newest.is_empty());
        assert_eq!(descriptions.of_type("io.k8s.api.extensions.v1beta1.DeploymentSpec"), newest);
    }

    #[test]
    fn a_namesake_of_the_same_group_goes_first() {
        let descriptions = Descriptions::of(["io.k8s.api.core.v1.Event", "io.k8s.api.events.v1.Event"]);
        let own = descriptions.of_field("io.k8s.api.events.v1.Event", "regarding");
        assert!(!own.is_empty());
        assert_eq!(descriptions.of_field("io.k8s.api.events.v1beta1.Event", "regarding"), own);
    }
}
