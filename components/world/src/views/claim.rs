//! Views of PersistentVolumeClaims.

use crate::object::or_default;
use crate::{Meta, Selector};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeClaim {
    pub spec: ClaimSpec,
    pub status: ClaimStatus,
}

crate::resource!(PersistentVolumeClaim, "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    pub volume_name: String,
    pub storage_class_name: Option<String>,
    pub volume_attributes_class_name: Option<String>,
    pub volume_mode: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub access_modes: Vec<String>,
    pub selector: Option<Selector>,
    pub resources: ClaimResources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimResources {
    #[serde(deserialize_with = "or_default")]
    pub requests: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimStatus {
    pub phase: String,
    #[serde(deserialize_with = "or_default")]
    pub capacity: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub access_modes: Vec<String>,
    pub current_volume_attributes_class_name: Option<String>,
}

impl PersistentVolumeClaim {
    /// The name of the claim's storage class; `None` means the default class. An empty name means that the claim uses
    /// volumes without a class.
    pub fn class<'a>(&'a self, meta: &'a Meta) -> Option<&'a str> {
        let annotated = meta.annotation("volume.beta.kubernetes.io/storage-class");
        annotated.or(self.spec.storage_class_name.as_deref())
    }
}
