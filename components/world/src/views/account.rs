//! Views of Namespaces, ServiceAccounts, Secrets, ConfigMaps and ResourceQuotas.

use crate::object::or_default;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Namespace {
    pub status: NamespaceStatus,
}

crate::resource!(Namespace, "", "v1", "namespaces", "Namespace", cluster);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NamespaceStatus {
    pub phase: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServiceAccount {
    #[serde(deserialize_with = "or_default")]
    pub secrets: Vec<SecretRef>,
}

crate::resource!(ServiceAccount, "", "v1", "serviceaccounts", "ServiceAccount", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SecretRef {
    pub name: String,
}

/// The view of a Secret without its data. A controller that needs the data reads the whole object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Secret {
    #[serde(rename = "type")]
    pub kind: String,
}

crate::resource!(Secret, "", "v1", "secrets", "Secret", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConfigMap {}

crate::resource!(ConfigMap, "", "v1", "configmaps", "ConfigMap", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceQuota {
    pub status: QuotaStatus,
}

crate::resource!(ResourceQuota, "", "v1", "resourcequotas", "ResourceQuota", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct QuotaStatus {
    #[serde(deserialize_with = "or_default")]
    pub hard: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub used: BTreeMap<String, String>,
}
