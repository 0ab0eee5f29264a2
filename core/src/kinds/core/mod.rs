//! The core group: pods and what they need.

pub mod columns;
pub mod defaults;
mod event;
mod namespace;
mod pod;
mod volume;

use super::Kind;
use super::build::{text, text_or};

const PACKAGE: &str = "io.k8s.api.core";

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::namespaced("Binding", "bindings")
            .versions("", PACKAGE, ["v1"])
            .columns(columns::of("Binding"))
            .unstored(["create"]),
        Kind::cluster("ComponentStatus", "componentstatuses")
            .versions("", PACKAGE, ["v1"])
            .short(["cs"])
            .columns(columns::of("ComponentStatus"))
            .unstored(["get", "list"]),
        Kind::namespaced("ConfigMap", "configmaps")
            .versions("", PACKAGE, ["v1"])
            .short(["cm"])
            .columns(columns::of("ConfigMap")),
        Kind::namespaced("Endpoints", "endpoints")
            .versions("", PACKAGE, ["v1"])
            .short(["ep"])
            .storage("services/endpoints")
            .columns(columns::of("Endpoints")),
        event::kind(),
        Kind::namespaced("LimitRange", "limitranges")
            .versions("", PACKAGE, ["v1"])
            .short(["limits"])
            .columns(columns::of("LimitRange")),
        namespace::kind(),
        Kind::cluster("Node", "nodes")
            .versions("", PACKAGE, ["v1"])
            .short(["no"])
            .storage("minions")
            .columns(columns::of("Node"))
            .proxy("NodeProxyOptions")
            .status()
            .select("spec.unschedulable", |object| text_or(object, "/spec/unschedulable", "false"))
            // A kubelet registers its node together with what it knows of it.
            .prepare_create(|_| ()),
        Kind::cluster("PersistentVolume", "persistentvolumes")
            .versions("", PACKAGE, ["v1"])
            .short(["pv"])
            .columns(columns::of("PersistentVolume"))
            .status()
            .prepare_create(volume::prepare_create),
        Kind::namespaced("PersistentVolumeClaim", "persistentvolumeclaims")
            .versions("", PACKAGE, ["v1"])
            .short(["pvc"])
            .columns(columns::of("PersistentVolumeClaim"))
            .status()
            .prepare_create(volume::prepare_claim_create)
            .prepare_update(volume::prepare_claim_update),
        pod::kind(),
        Kind::namespaced("PodTemplate", "podtemplates")
            .versions("", PACKAGE, ["v1"])
            .columns(columns::of("PodTemplate"))
            .generation(),
        Kind::namespaced("ReplicationController", "replicationcontrollers")
            .versions("", PACKAGE, ["v1"])
            .short(["rc"])
            .category("all")
            .storage("controllers")
            .columns(columns::of("ReplicationController"))
            .scale()
            .status()
            .generation()
            .select("status.replicas", |object| text_or(object, "/status/replicas", "0")),
        Kind::namespaced("ResourceQuota", "resourcequotas")
            .versions("", PACKAGE, ["v1"])
            .short(["quota"])
            .columns(columns::of("ResourceQuota"))
            .status(),
        Kind::namespaced("Secret", "secrets")
            .versions("", PACKAGE, ["v1"])
            .columns(columns::of("Secret"))
            .select("type", |object| text(object, "/type")),
        Kind::namespaced("Service", "services")
            .versions("", PACKAGE, ["v1"])
            .short(["svc"])
            .category("all")
            .storage("services/specs")
            .columns(columns::of("Service"))
            .claims(crate::decide::service_claims)
            .proxy("ServiceProxyOptions")
            .status()
            .select("spec.clusterIP", |object| text(object, "/spec/clusterIP"))
            .select("spec.type", |object| text(object, "/spec/type")),
        Kind::namespaced("ServiceAccount", "serviceaccounts")
            .versions("", PACKAGE, ["v1"])
            .short(["sa"])
            .columns(columns::of("ServiceAccount"))
            .subresource("token", Some(["authentication.k8s.io", "v1", "TokenRequest"]), &["create"]),
    ]
}
