//! The core group: pods and the kinds that they need.

pub mod columns;
mod connect;
pub mod defaults;
mod event;
mod measure;
mod namespace;
mod node;
mod pod;
mod secret;
mod service;
mod status;
pub(in crate::kinds) mod validate;
mod volume;
pub(crate) mod warnings;

use super::build::drop_from_spec;
use super::{ApiGroup, Gated, GatedRule, Kind, MetadataOnUpdate, Question};
use crate::authz::nodes::Relation;

pub use pod::qos_class;
pub use pod::{POD_GATED, POD_RULES};
pub use service::{ServiceClaim, ServiceRanges, held, port_claims};
pub use validate::privileged;

const PACKAGE: &str = "io.k8s.api.core";
const IMMUTABLE: &[Gated] = &[Gated::fields("ImmutableEphemeralVolumes", &["immutable"])];

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup = ApiGroup::new("", kinds, defaults::rules).prioritized(18_000, &[("v1", 1)]);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::namespaced("Binding", "bindings")
            .versions("", PACKAGE, ["v1"])
            .columns(columns::of("Binding"))
            .unstored(Question::Binding, ["create"]),
        Kind::cluster("ComponentStatus", "componentstatuses")
            .versions("", PACKAGE, ["v1"])
            .short(["cs"])
            .columns(columns::of("ComponentStatus"))
            .unstored(Question::ComponentStatus, ["get", "list"]),
        Kind::namespaced("ConfigMap", "configmaps")
            .versions("", PACKAGE, ["v1"])
            .short(["cm"])
            .columns(columns::of("ConfigMap"))
            .measured(&measure::CONFIG_MAP)
            .gated(IMMUTABLE)
            .validate(validate::config_map),
        Kind::namespaced("Endpoints", "endpoints")
            .versions("", PACKAGE, ["v1"])
            .short(["ep"])
            .storage("services/endpoints")
            .columns(columns::of("Endpoints"))
            .gated(const { &[Gated::fields("ServiceAppProtocol", &["subsets[].ports[].appProtocol"])] })
            .validate(validate::endpoints)
            .warnings(warnings::endpoints)
            .create_on_update(),
        event::kind(),
        Kind::namespaced("LimitRange", "limitranges")
            .versions("", PACKAGE, ["v1"])
            .short(["limits"])
            .columns(columns::of("LimitRange"))
            .named_by_server()
            .validate(validate::limit_range)
            .metadata_on_update(MetadataOnUpdate::New)
            .create_on_update(),
        namespace::kind(),
        node::kind(),
        Kind::cluster("PersistentVolume", "persistentvolumes")
            .versions("", PACKAGE, ["v1"])
            .short(["pv"])
            .columns(columns::of("PersistentVolume"))
            .leads_to_nodes(Relation::Volume)
            .return_deleted_object()
            .gated_rules(const { &[GatedRule { gates: &["MutablePVNodeAffinity"], judge: validate::free_affinity }] })
            .validate(validate::persistent_volume)
            .warnings(warnings::persistent_volume)
            .metadata_on_update(MetadataOnUpdate::New)
            .status()
            .prepare_create(volume::prepare_create)
            .note(volume::date_phase),
        Kind::namespaced("PersistentVolumeClaim", "persistentvolumeclaims")
            .versions("", PACKAGE, ["v1"])
            .short(["pvc"])
            .columns(columns::of("PersistentVolumeClaim"))
            .measured(&measure::VOLUME_CLAIM)
            .return_deleted_object()
            .validate(validate::claim)
            .warnings(warnings::claim)
            .status()
            .validate_part("status", validate::claim_status)
            .gated(volume::CLAIM_GATED)
            .prepare_create(volume::prepare_claim_create)
            .prepare_update(volume::prepare_claim_update)
            .export(|claim| drop_from_spec(claim, &["volumeName"])),
        pod::kind(),
        Kind::namespaced("PodTemplate", "podtemplates")
            .versions("", PACKAGE, ["v1"])
            .columns(columns::of("PodTemplate"))
            .pods_at("/template/spec")
            .return_deleted_object()
            .validate(validate::pod_template)
            .warnings(|_, object, old| warnings::template(object, old, "template"))
            .generation(),
        Kind::namespaced("ReplicationController", "replicationcontrollers")
            .versions("", PACKAGE, ["v1"])
            .short(["rc"])
            .category("all")
            .storage("controllers")
            .columns(columns::of("ReplicationController"))
            .measured(&measure::CONTROLLER)
            .pods_at("/spec/template/spec")
            .orphan_dependents(["v1"])
            .validate(super::apps::validate::replication_controller)
            .warnings(|_, object, old| warnings::workload(object, old, "spec.template"))
            .scale()
            .status()
            .validate_part("status", validate::controller_status)
            .prepare_create(status::controller)
            .generation()
            .select_or("status.replicas", "status.replicas", "0"),
        Kind::namespaced("ResourceQuota", "resourcequotas")
            .versions("", PACKAGE, ["v1"])
            .short(["quota"])
            .columns(columns::of("ResourceQuota"))
            .measured(&measure::QUOTA)
            .return_deleted_object()
            .validate(validate::resource_quota)
            .status()
            .validate_part("status", validate::resource_quota_status)
            .prepare_create(status::quota),
        Kind::namespaced("Secret", "secrets")
            .versions("", PACKAGE, ["v1"])
            .columns(columns::of("Secret"))
            .measured(&measure::SECRET)
            .gated(IMMUTABLE)
            .validate(validate::secret)
            .warnings(warnings::secret)
            .select("type")
            .agree(secret::encode_strings),
        service::kind(),
        Kind::namespaced("ServiceAccount", "serviceaccounts")
            .versions("", PACKAGE, ["v1"])
            .short(["sa"])
            .columns(columns::of("ServiceAccount"))
            .return_deleted_object()
            .warnings(warnings::service_account)
            .part("token", Some(["authentication.k8s.io", "v1", "TokenRequest"]), &["create"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The subresources equal the subresources in Kubernetes' discovery documents.
    #[test]
    fn subresources_are_those_of_discovery() {
        let mut shown = String::new();
        for kind in kinds() {
            for sub in &kind.subresources {
                let body = sub.body.as_ref().map_or(&kind.kind, |(_, _, body)| body);
                shown += &format!("{}/{} {body} {}\n", kind.resource, sub.name, sub.verbs.join(","));
            }
        }
        expect_test::expect![[r#"
            namespaces/finalize Namespace update
            namespaces/status Namespace get,patch,update
            nodes/proxy NodeProxyOptions create,delete,get,patch,update
            nodes/status Node get,patch,update
            persistentvolumes/status PersistentVolume get,patch,update
            persistentvolumeclaims/status PersistentVolumeClaim get,patch,update
            pods/attach PodAttachOptions create,get
            pods/binding Binding create
            pods/ephemeralcontainers Pod get,patch,update
            pods/eviction Eviction create
            pods/exec PodExecOptions create,get
            pods/log Pod get
            pods/portforward PodPortForwardOptions create,get
            pods/proxy PodProxyOptions create,delete,get,patch,update
            pods/resize Pod get,patch,update
            pods/status Pod get,patch,update
            replicationcontrollers/scale Scale get,patch,update
            replicationcontrollers/status ReplicationController get,patch,update
            resourcequotas/status ResourceQuota get,patch,update
            services/proxy ServiceProxyOptions create,delete,get,patch,update
            services/status Service get,patch,update
            serviceaccounts/token TokenRequest create
        "#]]
        .assert_eq(&shown);
    }
}
