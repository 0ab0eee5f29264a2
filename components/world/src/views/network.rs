//! Views of Services, Endpoints and EndpointSlices.

use crate::Selector;
use crate::object::or_default;
use holdfast_value::Value;
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Service {
    pub spec: ServiceSpec,
}

crate::resource!(Service, "", "v1", "services", "Service", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(deserialize_with = "crate::selector::of_labels")]
    pub selector: Selector,
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<ServicePort>,
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    #[serde(deserialize_with = "or_default")]
    pub ip_families: Vec<String>,
    pub publish_not_ready_addresses: bool,
    pub traffic_distribution: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    pub name: String,
    pub protocol: String,
    pub app_protocol: Option<String>,
    pub port: i64,
    /// The port of the pods to which the Service's port leads: a number, or the name of a container's port.
    pub target_port: Value,
}

impl Service {
    pub fn is_headless(&self) -> bool {
        self.spec.cluster_ip == "None"
    }

    /// Whether the Service's endpoints are the addresses of the pods that it selects.
    pub fn selects_pods(&self) -> bool {
        self.spec.kind != "ExternalName" && !self.spec.selector.is_nothing()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Endpoints {
    #[serde(deserialize_with = "or_default")]
    pub subsets: Vec<Subset>,
}

crate::resource!(Endpoints, "", "v1", "endpoints", "Endpoints", namespaced);

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subset {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<EndpointAddress>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub not_ready_addresses: Vec<EndpointAddress>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<SubsetPort>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointAddress {
    pub ip: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
}

/// The object to which an address belongs, such as a pod.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetRef {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubsetPort {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub port: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    pub address_type: String,
    #[serde(deserialize_with = "or_default")]
    pub endpoints: Vec<Endpoint>,
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<EndpointPort>,
}

crate::resource!(EndpointSlice, "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", namespaced);

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<String>,
    pub conditions: EndpointConditions,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<Hints>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct EndpointConditions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<bool>,
}

/// The zones and nodes whose clients should send traffic to this endpoint.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hints {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub for_zones: Vec<ZoneHint>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub for_nodes: Vec<ZoneHint>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ZoneHint {
    pub name: String,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointPort {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
}
