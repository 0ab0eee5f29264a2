//! `networking.k8s.io`: ways into the cluster, walls inside it, and addresses of services.

mod addresses;
pub mod columns;
mod convert;
pub mod defaults;
mod validate;

use super::build::STATUS_RESETS_METADATA;
use super::{ApiGroup, Kind};
use crate::object::meta::{Document, metadata};
use crate::object::names::NameRule;

pub const GROUP: &str = "networking.k8s.io";
const PACKAGE: &str = "io.k8s.api.networking";
const EXTENSIONS: &str = "io.k8s.api.extensions";

/// This group, for the list of all.
pub const API_GROUP: ApiGroup =
    ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(17_200, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::namespaced("Ingress", "ingresses")
            .versions(GROUP, PACKAGE, ["v1"])
            .converted(GROUP, PACKAGE, "v1beta1", convert::INGRESS)
            .converted("extensions", EXTENSIONS, "v1beta1", convert::INGRESS)
            .short(["ing"])
            .storage("ingress")
            .columns(columns::of("Ingress"))
            .validate(validate::ingress)
            .warnings(ingress_warnings)
            .status()
            .validate_part("status", validate::ingress_status)
            .generation(),
        Kind::cluster("IngressClass", "ingressclasses")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .columns(columns::of("IngressClass"))
            .validate(validate::ingress_class)
            .generation(),
        Kind::namespaced("NetworkPolicy", "networkpolicies")
            .versions(GROUP, PACKAGE, ["v1"])
            .versions("extensions", EXTENSIONS, ["v1beta1"])
            .short(["netpol"])
            .columns(columns::of("NetworkPolicy"))
            .validate(validate::network_policy)
            .generation(),
        Kind::cluster("IPAddress", "ipaddresses")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .short(["ip"])
            .columns(columns::of("IPAddress"))
            .names(NameRule::IpAddress)
            .validate(addresses::ip_address),
        Kind::cluster("ServiceCIDR", "servicecidrs")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .columns(columns::of("ServiceCIDR"))
            .validate(addresses::service_cidr)
            .status()
            .status_resets(STATUS_RESETS_METADATA),
    ]
}

/// The class of a new ingress was an annotation once.
fn ingress_warnings(_: &Kind, ingress: &Document, old: Option<&Document>) -> Vec<String> {
    let annotations = metadata(ingress).get("annotations");
    if old.is_some() || annotations.is_none_or(|annotations| annotations["kubernetes.io/ingress.class"].is_null()) {
        return Vec::new();
    }
    vec![
        "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
            .to_owned(),
    ]
}
