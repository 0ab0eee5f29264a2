//! The kind Node. A kubelet creates its Node together with the status. `podCIDR` is the older form of `podCIDRs`.

use super::{PACKAGE, columns, validate, warnings};
use crate::kinds::build::drop_from_spec;
use crate::kinds::{Asking, Destination, Gated, Kind, Leading, Machine, Named};
use crate::refusal::{BadRequest, Refusal};
use holdfast_value::{Value, json};

pub fn kind() -> Kind {
    Kind::cluster("Node", "nodes")
        .versions("", PACKAGE, ["v1"])
        .short(["no"])
        .storage("minions")
        .columns(columns::of("Node"))
        .proxy("NodeProxyOptions")
        .status()
        .gated(const { &[Gated::fields("NodeDeclaredFeatures", &["status.declaredFeatures"])] })
        .validate(validate::node)
        .warnings(warnings::node)
        .validate_part("status", validate::node_status)
        .select_or("spec.unschedulable", "spec.unschedulable", "false")
        .agree(pair_addresses)
        .note(drop_configuration)
        // The server keeps the status that a kubelet sends with the create request.
        .prepare_create(|_| ())
        .leads(leads)
        .export(|node| drop_from_spec(node, &["podCIDR", "podCIDRs", "providerID"]))
}

fn leads(node: &Value, leading: &Leading<'_>) -> Result<Destination, Refusal> {
    let Named { is_secure, port, .. } = *leading.way;
    let port = match port {
        "" => None,
        port => Some(port.parse().map_err(|_| Refusal::BadRequest(BadRequest::NoAddress))?),
    };
    Ok(Destination::Node { machine: Machine::of(node), is_secure, port })
}

/// Removes kubelet configuration, which kubelets no longer read from the API: old fields stay, but they cannot be newly
/// set.
fn drop_configuration(node: &mut Value, old: Option<&Value>, _: &Asking) {
    for [part, field] in [["spec", "configSource"], ["status", "config"]] {
        let is_used = old.is_some_and(|old| !old[part][field].is_null());
        if let (false, Some(part)) = (is_used, node.get_mut(part).and_then(Value::as_object_mut)) {
            part.remove(field);
        }
    }
}

/// Makes `podCIDR` the first of `podCIDRs`. If they differ, the older field has precedence, because older clients write
/// only that field.
fn pair_addresses(node: &mut Value) {
    let Some(spec) = node.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let single = spec.get("podCIDR").filter(|cidr| cidr.as_str().is_some_and(|cidr| !cidr.is_empty())).cloned();
    let first = spec.get("podCIDRs").and_then(|all| all.get(0)).cloned();
    match (single, first) {
        (Some(single), first) if first.as_ref() != Some(&single) => {
            spec.insert("podCIDRs", json!([single]));
        }
        (None, Some(first)) => {
            spec.insert("podCIDR", first);
        }
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_pods_are_known_by_both_names() {
        let (a, b) = ("10.0.1.0/24", "fd00::/64");
        for (given, expected) in [
            (json!({ "podCIDR": a }), json!({ "podCIDR": a, "podCIDRs": [a] })),
            (json!({ "podCIDRs": [a, b] }), json!({ "podCIDR": a, "podCIDRs": [a, b] })),
            (json!({ "podCIDR": a, "podCIDRs": [a, b] }), json!({ "podCIDR": a, "podCIDRs": [a, b] })),
            (json!({ "podCIDR": b, "podCIDRs": [a] }), json!({ "podCIDR": b, "podCIDRs": [b] })),
            (json!({}), json!({})),
        ] {
            let mut node = json!({ "spec": given, "status": { "capacity": {} } });
            pair_addresses(&mut node);
            assert_eq!(node, json!({ "spec": expected, "status": { "capacity": {} } }));
        }
    }
}
