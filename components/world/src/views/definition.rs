//! Views of CustomResourceDefinitions.

use crate::object::or_default;
use holdfast_value::Value;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Definition {
    pub spec: DefinitionSpec,
}

crate::resource!(
    Definition,
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    cluster
);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DefinitionSpec {
    pub group: String,
    pub names: DefinitionNames,
    #[serde(deserialize_with = "or_default")]
    pub versions: Vec<DefinitionVersion>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DefinitionNames {
    pub kind: String,
    pub plural: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DefinitionVersion {
    pub name: String,
    pub served: bool,
    #[serde(deserialize_with = "or_default")]
    pub subresources: Subresources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Subresources {
    pub scale: Option<Value>,
}

impl Definition {
    /// Whether the objects of a version of the kind have the subresource `scale`.
    pub fn has_scale(&self, version: &str) -> bool {
        self.spec.versions.iter().any(|known| known.name == version && known.subresources.scale.is_some())
    }
}

impl DefinitionSpec {
    /// The named version if the server serves it, otherwise the first version that the server serves; `None` if it
    /// serves none.
    pub fn served(&self, version: &str) -> Option<&str> {
        let served = || self.versions.iter().filter(|known| known.served).map(|known| known.name.as_str());
        served().find(|name| *name == version).or_else(|| served().next())
    }
}
