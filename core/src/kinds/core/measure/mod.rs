//! The amounts that quotas count for services, storage claims ([`volume_claim`]) and pods ([`pod`]).

mod pod;

pub(super) use pod::{HUGE_PAGES, POD, is_pod_level, of_containers};

use crate::quota::{Measure, NOTHING_BUT_ITS_NUMBER, Selector, Usage};
use crate::schema::amount::Amount;
use holdfast_value::Value;

const STORAGE: &str = "requests.storage";
const CLAIMS: &str = "persistentvolumeclaims";
/// The part of a resource's name between the storage class and the limited resource.
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";

pub(super) const CONFIG_MAP: Measure = Measure { alias: Some("configmaps"), ..NOTHING_BUT_ITS_NUMBER };
pub(super) const CONTROLLER: Measure = Measure { alias: Some("replicationcontrollers"), ..NOTHING_BUT_ITS_NUMBER };
pub(super) const QUOTA: Measure = Measure { alias: Some("resourcequotas"), ..NOTHING_BUT_ITS_NUMBER };
pub(super) const SECRET: Measure = Measure { alias: Some("secrets"), ..NOTHING_BUT_ITS_NUMBER };

pub(super) const SERVICE: Measure = Measure {
    alias: Some("services"),
    answers: |name| matches!(name, "services.nodeports" | "services.loadbalancers"),
    usage: Some(service),
    grows_through: &[""],
    ..NOTHING_BUT_ITS_NUMBER
};

pub(super) const VOLUME_CLAIM: Measure = Measure {
    alias: Some(CLAIMS),
    answers: |name| {
        let of_class = name.split_once(OF_CLASS).map(|(_, rest)| rest);
        name == STORAGE || of_class.is_some_and(|rest| matches!(rest, STORAGE | CLAIMS))
    },
    usage: Some(|claim, _| volume_claim(claim)),
    within: claim_within,
    grows_through: &["", "status"],
    ..NOTHING_BUT_ITS_NUMBER
};

/// Counts node ports and load balancers. Node ports count before they are allocated, because a new Service has none
/// yet.
fn service(service: &Value, _: &str) -> Usage {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let asked = || ports.iter().filter(|port| port["nodePort"].as_i64().unwrap_or(0) != 0).count();
    let (node_ports, balancers) = match spec["type"].as_str() {
        Some("NodePort") => (ports.len(), 0),
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => (asked(), 1),
        Some("LoadBalancer") => (ports.len(), 1),
        _ => (0, 0),
    };
    let mut usage = Usage::default();
    usage.set("services.nodeports", Amount::whole(i64::try_from(node_ports).unwrap_or(i64::MAX)));
    usage.set("services.loadbalancers", Amount::whole(balancers));
    usage
}

/// Storage in whole bytes: the requested amount, or the allocated amount if that is larger because of an earlier
/// request.
fn volume_claim(claim: &Value) -> Usage {
    let asked = Amount::of(&claim["spec"]["resources"]["requests"]["storage"]);
    let given = Amount::of(&claim["status"]["allocatedResources"]["storage"]);
    let storage = asked.map(|asked| given.map_or(asked, |given| asked.or_more(given)).rounded_up());
    let annotated = &claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    let class = annotated.as_str().or_else(|| claim["spec"]["storageClassName"].as_str());
    let class = class.filter(|class| !class.is_empty());
    let mut usage = Usage::default();
    if let Some(storage) = storage {
        usage.set(STORAGE, storage);
    }
    if let Some(class) = class {
        usage.set(&format!("{class}{OF_CLASS}{CLAIMS}"), Amount::whole(1));
        if let Some(storage) = storage {
            usage.set(&format!("{class}{OF_CLASS}{STORAGE}"), storage);
        }
    }
    usage
}

/// Whether the selector selects a claim. A claim counts under its requested, its current and its target attributes
/// class.
fn claim_within(claim: &Value, selector: &Selector) -> bool {
    let classes = [
        &claim["spec"]["volumeAttributesClassName"],
        &claim["status"]["currentVolumeAttributesClassName"],
        &claim["status"]["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
    ];
    let classes: Vec<&str> =
        classes.iter().filter_map(|class| class.as_str()).filter(|class| !class.is_empty()).collect();
    selector.scope == "VolumeAttributesClass"
        && if classes.is_empty() {
            selector.selects(None)
        } else {
            classes.iter().any(|class| selector.selects(Some(class)))
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{Counted, Quota};
    use holdfast_value::json;

    fn used(measure: &'static Measure, hard: Value, object: Value) -> Value {
        let amounts: holdfast_value::Map =
            hard.as_array().expect("names").iter().map(|name| (name.as_str().expect("a name"), json!("9"))).collect();
        let quota = Quota::of(&json!({"spec": {"hard": amounts}}));
        quota.usage(&Counted::new("things", "", measure), &object, "2026-11-22T17:00:00Z").document()
    }

    #[test]
    fn ports_and_balancers_of_services() {
        let hard = json!(["services", "services.nodeports", "services.loadbalancers", "count/things", "pods"]);
        let ports = json!([{"port": 1, "nodePort": 30000}, {"port": 2}]);
        for (spec, node_ports, balancers) in [
            (json!({"type": "ClusterIP", "ports": ports}), "0", "0"),
            (json!({"type": "NodePort", "ports": ports}), "2", "0"),
            (json!({"type": "LoadBalancer", "ports": ports}), "2", "1"),
            (json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false}), "1", "1"),
            (json!({"type": "ExternalName"}), "0", "0"),
        ] {
            let expected = json!({"services": "1", "services.nodeports": node_ports,
                "services.loadbalancers": balancers, "count/things": "1"});
            assert_eq!(used(&SERVICE, hard.clone(), json!({"spec": spec})), expected, "{spec}");
        }
    }

    #[test]
    fn storage_of_claims() {
        let hard = json!([
            "persistentvolumeclaims",
            "requests.storage",
            "gold.storageclass.storage.k8s.io/requests.storage",
            "gold.storageclass.storage.k8s.io/persistentvolumeclaims",
            "iron.storageclass.storage.k8s.io/requests.storage",
            "services"
        ]);
        let claim = json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1.5Gi"}}}});
        assert_eq!(
            used(&VOLUME_CLAIM, hard.clone(), claim.clone()),
            json!({"persistentvolumeclaims": "1", "requests.storage": "1536Mi",
                "gold.storageclass.storage.k8s.io/requests.storage": "1536Mi",
                "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1"})
        );
        let mut grown = claim;
        grown["status"] = json!({"allocatedResources": {"storage": "2Gi"}});
        assert_eq!(used(&VOLUME_CLAIM, json!(["requests.storage"]), grown), json!({"requests.storage": "2Gi"}));
        let uneven = json!({"spec": {"resources": {"requests": {"storage": "1500m"}}}});
        assert_eq!(used(&VOLUME_CLAIM, json!(["requests.storage"]), uneven), json!({"requests.storage": "2"}));
        assert!(!(VOLUME_CLAIM.answers)("services"));
    }

    #[test]
    fn any_class_of_attributes_of_a_claim_counts() {
        let selector = |operator: &str| {
            let spec = json!({"scopeSelector": {"matchExpressions": [
                {"scopeName": "VolumeAttributesClass", "operator": operator, "values": ["fast"]}]}});
            Selector::all(&spec).remove(0)
        };
        let none = json!({});
        let both = json!({"spec": {"volumeAttributesClassName": "slow"},
            "status": {"currentVolumeAttributesClassName": "fast"}});
        for (operator, of_none, of_both) in
            [("In", false, true), ("NotIn", true, true), ("Exists", false, true), ("DoesNotExist", true, false)]
        {
            assert_eq!(claim_within(&none, &selector(operator)), of_none, "{operator}");
            assert_eq!(claim_within(&both, &selector(operator)), of_both, "{operator}");
        }
    }
}
