//! `networking.k8s.io`: ingresses, network policies, and service addresses.

mod addresses;
pub mod columns;
mod convert;
pub mod defaults;
mod validate;

pub use addresses::{AddressOwner, given_address, holder, is_given};

use super::build::STATUS_RESETS_METADATA;
use super::core::warnings::addresses::of_network;
use super::core::warnings::{list, of_each};
use super::{ApiGroup, Kind};
use crate::object::meta::{Document, metadata};
use crate::object::names::NameRule;
use crate::refusal::Texts;
use holdfast_value::Value;

pub const GROUP: &str = "networking.k8s.io";
const PACKAGE: &str = "io.k8s.api.networking";
const EXTENSIONS: &str = "io.k8s.api.extensions";

/// The definition of this group, for the list of all built-in groups.
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
            .warnings(policy_warnings)
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

/// Warns of a new ingress that names its class only in the older annotation.
fn ingress_warnings(_: &Kind, ingress: &Document, old: Option<&Document>) -> Texts {
    let annotations = metadata(ingress).get("annotations");
    let has_class = ingress.get("spec").is_some_and(|spec| !spec["ingressClassName"].is_null());
    let is_named = annotations.is_some_and(|annotations| !annotations["kubernetes.io/ingress.class"].is_null());
    if old.is_some() || has_class || !is_named {
        return Texts::default();
    }
    let told = "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead";
    told.to_owned().into()
}

/// Warns of peer networks in a non-standard form.
fn policy_warnings(_: &Kind, policy: &Document, _: Option<&Document>) -> Texts {
    let mut warnings = Texts::default();
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in list(&spec[direction]).iter().enumerate() {
            for (nth, peer) in list(&rule[peers]).iter().enumerate() {
                let at = format!("spec.{direction}[{index}].{peers}[{nth}].ipBlock");
                let block = &peer["ipBlock"];
                of_network(block["cidr"].as_str().unwrap_or_default(), &format!("{at}.cidr"), &mut warnings);
                of_each(&block["except"], &format!("{at}.except"), of_network, &mut warnings);
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn a_class_in_an_annotation_is_told_of_where_no_field_says_it() {
        let kind = kinds().into_iter().find(|kind| kind.kind == "Ingress").expect("a kind");
        let is_told = |spec: Value, is_new: bool| {
            let annotations = json!({"kubernetes.io/ingress.class": "x"});
            let ingress = json!({"metadata": {"annotations": annotations}, "spec": spec});
            let ingress = ingress.as_object().expect("an object");
            !ingress_warnings(&kind, ingress, Some(ingress).filter(|_| !is_new)).is_empty()
        };
        assert!(is_told(json!({}), true));
        assert!(!is_told(json!({"ingressClassName": "x"}), true));
        assert!(!is_told(json!({}), false));
    }

    #[test]
    fn networks_of_peers_are_told_of_where_they_stand() {
        let peers =
            json!([{"podSelector": {}}, {"ipBlock": {"cidr": "10.1.0.0/8", "except": ["10.2.0.0/16", "10.3.0.1/16"]}}]);
        let Value::Object(policy) = json!({"spec": {"egress": [{"to": peers}]}}) else { unreachable!() };
        let kind = kinds().into_iter().find(|kind| kind.kind == "NetworkPolicy").expect("a kind");
        let at = "spec.egress[0].to[1].ipBlock";
        let is = "is ambiguous in this context";
        let expected = [
            format!("{at}.cidr: CIDR value \"10.1.0.0/8\" {is} (should be \"10.0.0.0/8\" or \"10.1.0.0/32\"?)"),
            format!("{at}.except[1]: CIDR value \"10.3.0.1/16\" {is} (should be \"10.3.0.0/16\" or \"10.3.0.1/32\"?)"),
        ];
        assert_eq!(policy_warnings(&kind, &policy, None).into_vec(), expected);
    }
}
