//! What keeps a number of pods going.

use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Deployment {
    pub spec: Replicated,
}

crate::resource!(Deployment, "apps", "v1", "deployments", "Deployment", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReplicaSet {
    pub spec: Replicated,
}

crate::resource!(ReplicaSet, "apps", "v1", "replicasets", "ReplicaSet", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct StatefulSet {
    pub spec: Replicated,
}

crate::resource!(StatefulSet, "apps", "v1", "statefulsets", "StatefulSet", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReplicationController {
    pub spec: Replicated,
}

crate::resource!(ReplicationController, "", "v1", "replicationcontrollers", "ReplicationController", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Replicated {
    pub replicas: Option<i64>,
}
