//! DefaultIngressClass and DenyServiceExternalIPs.

use super::pods::{has_annotation, list};
use super::storage::newest_marked;
use crate::admission::Attributes;
use crate::kinds::known::{INGRESS, INGRESS_CLASS, SERVICE};
use crate::object::meta::object_mut;
use crate::pipeline::effect::Stop;
use holdfast_value::Value;

/// DefaultIngressClass: gives a new Ingress without a class the newest of the default IngressClasses.
pub(super) fn default_ingress_class(attributes: &mut Attributes) -> Result<(), Stop> {
    if !attributes.creates(INGRESS)
        || attributes.object["spec"]["ingressClassName"].is_string()
        || has_annotation(&attributes.object, "kubernetes.io/ingress.class")
    {
        return Ok(());
    }
    let classes = attributes.all_with(INGRESS_CLASS, "is-default-class");
    if let Some(name) = newest_marked(classes, &["ingressclass.kubernetes.io/is-default-class"]) {
        object_mut(attributes.fields_mut(), "spec").insert("ingressClassName", name.into());
    }
    Ok(())
}

/// DenyServiceExternalIPs: refuses new external IPs; existing external IPs may stay.
pub(super) fn deny_external_addresses(attributes: &mut Attributes) -> Result<(), Stop> {
    if !(attributes.creates(SERVICE) || attributes.updates(SERVICE)) {
        return Ok(());
    }
    let old: Vec<&Value> = list(&attributes.old["spec"]["externalIPs"]).collect();
    if list(&attributes.object["spec"]["externalIPs"]).all(|address| old.contains(&address)) {
        return Ok(());
    }
    Err(attributes.forbidden("Use of external IPs is denied by admission control"))
}
