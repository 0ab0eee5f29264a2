//! The discovery documents. Their fields are in Kubernetes' order, because scripts search the documents as text.
//!
//! Documents of other servers are read leniently: Go writes an empty list as `null`.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};

/// Writes a document as JSON.
pub fn encoded(document: &impl Serialize) -> Bytes {
    // Strings and lists of strings can always be serialized.
    serde_json::to_vec(document).unwrap_or_default().into()
}

/// Writes a document as indented JSON, the form in which Kubernetes sends `/version`.
pub fn indented(document: &impl Serialize) -> Bytes {
    serde_json::to_vec_pretty(document).unwrap_or_default().into()
}

/// The document at `/api`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiVersions<'a> {
    pub kind: &'a str,
    pub versions: Vec<&'a str>,
    #[serde(rename = "serverAddressByClientCIDRs")]
    pub server_addresses: Vec<ServerAddress<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerAddress<'a> {
    #[serde(rename = "clientCIDR")]
    pub client_cidr: &'a str,
    pub server_address: &'a str,
}

/// The document at `/apis`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupList {
    pub kind: String,
    pub api_version: String,
    pub groups: Vec<GroupSummary>,
}

/// The document at `/apis/<group>`. If it is an item of the document at `/apis`, it has no `kind` and no `apiVersion`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSummary {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    pub name: String,
    pub versions: Vec<VersionSummary>,
    pub preferred_version: VersionSummary,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VersionSummary {
    pub group_version: String,
    pub version: String,
}

/// The document at `/api/v1` or `/apis/<group>/<version>`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceList {
    #[serde(default)]
    pub kind: String,
    /// The group and version. Kubernetes omits this field for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(default)]
    pub group_version: String,
    #[serde(default, deserialize_with = "or_nothing")]
    pub resources: Vec<Resource>,
}

/// A resource or a subresource (`pods/status`) in a [`ResourceList`].
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resource {
    pub name: String,
    pub singular_name: String,
    pub namespaced: bool,
    /// The group of the kind; empty if it is the group of the list.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    pub kind: String,
    #[serde(deserialize_with = "or_nothing")]
    pub verbs: Vec<String>,
    #[serde(deserialize_with = "or_nothing", skip_serializing_if = "Vec::is_empty")]
    pub short_names: Vec<String>,
    #[serde(deserialize_with = "or_nothing", skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub storage_version_hash: String,
}

/// The document at `/api` or `/apis` in the aggregated format.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryList {
    pub kind: String,
    pub api_version: String,
    #[serde(default)]
    pub metadata: Metadata,
    #[serde(default, deserialize_with = "or_nothing")]
    pub items: Vec<GroupDiscovery>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupDiscovery {
    pub metadata: Metadata,
    #[serde(deserialize_with = "or_nothing")]
    pub versions: Vec<VersionDiscovery>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VersionDiscovery {
    pub version: String,
    #[serde(deserialize_with = "or_nothing", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceDiscovery>,
    /// Whether the resources are up to date: `Current`, or `Stale` if the server that serves this version does not
    /// answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub freshness: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceDiscovery {
    pub resource: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<ResponseKind>,
    /// The scope of the resource: `Namespaced` or `Cluster`.
    pub scope: String,
    pub singular_resource: String,
    #[serde(deserialize_with = "or_nothing")]
    pub verbs: Vec<String>,
    #[serde(deserialize_with = "or_nothing", skip_serializing_if = "Vec::is_empty")]
    pub short_names: Vec<String>,
    #[serde(deserialize_with = "or_nothing", skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    #[serde(deserialize_with = "or_nothing", skip_serializing_if = "Vec::is_empty")]
    pub subresources: Vec<SubresourceDiscovery>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubresourceDiscovery {
    pub subresource: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<ResponseKind>,
    #[serde(deserialize_with = "or_nothing", skip_serializing_if = "Vec::is_empty")]
    pub accepted_types: Vec<ResponseKind>,
    #[serde(deserialize_with = "or_nothing")]
    pub verbs: Vec<String>,
}

/// The kind of the objects in a response. Group and version are empty if they are those of the version that contains
/// the resource.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResponseKind {
    pub group: String,
    pub version: String,
    pub kind: String,
}

/// The document at `/version`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo<'a> {
    pub major: &'a str,
    pub minor: &'a str,
    pub emulation_major: &'a str,
    pub emulation_minor: &'a str,
    pub min_compatibility_major: &'a str,
    pub min_compatibility_minor: &'a str,
    pub git_version: &'a str,
    pub git_commit: &'a str,
    pub git_tree_state: &'a str,
    pub build_date: &'a str,
    pub go_version: &'a str,
    pub compiler: &'a str,
    pub platform: &'a str,
}

fn or_nothing<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_reads_as_that_of_kubernetes() {
        let info = VersionInfo {
            major: "1",
            minor: "35",
            emulation_major: "1",
            emulation_minor: "35",
            min_compatibility_major: "1",
            min_compatibility_minor: "34",
            git_version: "v1.35.0",
            git_commit: "c",
            git_tree_state: "clean",
            build_date: "d",
            go_version: "g",
            compiler: "gc",
            platform: "linux/amd64",
        };
        let expected = "{\n  \"major\": \"1\",\n  \"minor\": \"35\",\n  \"emulationMajor\": \"1\",\n  \
            \"emulationMinor\": \"35\",\n  \"minCompatibilityMajor\": \"1\",\n  \"minCompatibilityMinor\": \"34\",\n  \
            \"gitVersion\": \"v1.35.0\",\n  \"gitCommit\": \"c\",\n  \"gitTreeState\": \"clean\",\n  \"buildDate\": \"d\",\n  \
            \"goVersion\": \"g\",\n  \"compiler\": \"gc\",\n  \"platform\": \"linux/amd64\"\n}";
        assert_eq!(indented(&info), expected);
    }
}
