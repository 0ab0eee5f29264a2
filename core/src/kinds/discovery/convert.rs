//! Conversion of endpoint slices. An endpoint of `v1beta1` keeps zone and node in its topology; `v1` has fields for
//! them.

use crate::kinds::Convert;
use crate::kinds::convert::{Fields, ensure, items, within};
use holdfast_value::Value;

pub const TOPOLOGY: Convert = Convert { to_hub, from_hub };

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

fn to_hub(slice: &mut Fields) {
    for endpoint in items(slice, "endpoints") {
        let Some(Value::Object(mut topology)) = endpoint.remove("topology") else { continue };
        if let Some(zone) = topology.remove(ZONE) {
            endpoint.insert("zone", zone);
        }
        // The topology may name another host than `nodeName`. Then both names are kept.
        match (topology.get(HOSTNAME), endpoint.get("nodeName")) {
            (Some(host), None) => {
                endpoint.insert("nodeName", host.clone());
                topology.remove(HOSTNAME);
            }
            (Some(host), Some(node)) if host == node => {
                topology.remove(HOSTNAME);
            }
            _ => (),
        }
        if !topology.is_empty() {
            endpoint.insert("deprecatedTopology", topology.into());
        }
    }
}

fn from_hub(slice: &mut Fields) {
    for endpoint in items(slice, "endpoints") {
        if let Some(topology) = endpoint.remove("deprecatedTopology") {
            endpoint.insert("topology", topology);
        }
        if let Some(zone) = endpoint.remove("zone") {
            ensure(endpoint, "topology").insert(ZONE, zone);
        }
        let named = within(endpoint, &["topology"]).is_some_and(|topology| topology.contains_key(HOSTNAME));
        if let (false, Some(node)) = (named, endpoint.get("nodeName").cloned()) {
            ensure(endpoint, "topology").insert(HOSTNAME, node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::convert::{check_both_ways, check_to_hub};
    use holdfast_value::json;

    #[test]
    fn zone_and_node_are_fields_in_the_hub() {
        check_both_ways(
            TOPOLOGY,
            &json!({ "endpoints": [
                { "addresses": ["10.0.0.1"], "nodeName": "n", "topology": { ZONE: "z", HOSTNAME: "n" } },
                { "addresses": ["10.0.0.2"], "nodeName": "n", "topology": { HOSTNAME: "other", "rack": "r" } },
                { "addresses": ["10.0.0.3"] },
            ] }),
            &json!({ "endpoints": [
                { "addresses": ["10.0.0.1"], "nodeName": "n", "zone": "z" },
                {
                    "addresses": ["10.0.0.2"],
                    "nodeName": "n",
                    "deprecatedTopology": { HOSTNAME: "other", "rack": "r" },
                },
                { "addresses": ["10.0.0.3"] },
            ] }),
        );
        check_to_hub(
            TOPOLOGY,
            &json!({ "endpoints": [{ "topology": { HOSTNAME: "n" } }] }),
            &json!({ "endpoints": [{ "nodeName": "n" }] }),
        );
    }
}
