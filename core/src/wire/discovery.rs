//! Discovery: which groups, versions and resources the server serves, in all the forms that clients ask for.
//!
//! [`Catalog`] orders the kinds by group and version; its methods write the documents. They are pure functions
//! of the kinds: the caller computes each once and keeps it until a custom resource changes the set.

use crate::kinds::{GroupVersions, Kind, Registry, Scope, Subresource, Version};
use base64::Engine as _;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// The served API, ordered as discovery shows it.
pub struct Catalog<'a> {
    /// In the registry's order: a client that meets one resource name in two groups takes the first.
    pub groups: Vec<Group<'a>>,
}

pub struct Group<'a> {
    /// Empty for the core group.
    pub name: String,
    /// The preferred version first.
    pub versions: Vec<GroupVersion<'a>>,
}

pub struct GroupVersion<'a> {
    pub group: String,
    pub version: String,
    /// Ordered by resource.
    pub resources: Vec<Served<'a>>,
}

/// A kind as one of its versions shows it.
#[derive(Clone, Copy)]
pub struct Served<'a> {
    pub kind: &'a Kind,
    pub version: &'a Version,
}

/// The two versions of the aggregated form; they differ in name only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregated {
    V2,
    V2beta1,
}

impl Aggregated {
    pub fn content_type(self) -> &'static str {
        match self {
            Self::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Self::V2beta1 => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V2 => "apidiscovery.k8s.io/v2",
            Self::V2beta1 => "apidiscovery.k8s.io/v2beta1",
        }
    }
}

impl<'a> Catalog<'a> {
    pub fn new(registry: &'a Registry) -> Self {
        Self::of(registry, &registry.groups())
    }

    /// A part of the served API.
    pub fn of(registry: &'a Registry, groups: &[GroupVersions]) -> Self {
        let groups = groups.iter().map(|group| {
            let versions = group.versions.iter().map(|version| {
                let served = registry.served(&group.group, version).map(|(id, index)| {
                    let kind = registry.get(id);
                    Served { kind, version: &kind.versions[index] }
                });
                GroupVersion { group: group.group.clone(), version: version.clone(), resources: served.collect() }
            });
            Group { name: group.group.clone(), versions: versions.collect() }
        });
        Self { groups: groups.collect() }
    }

    pub fn group(&self, name: &str) -> Option<&Group<'a>> {
        self.groups.iter().find(|group| group.name == name)
    }

    pub fn group_version(&self, group: &str, version: &str) -> Option<&GroupVersion<'a>> {
        self.group(group)?.versions.iter().find(|gv| gv.version == version)
    }

    pub fn group_versions(&self) -> impl Iterator<Item = &GroupVersion<'a>> {
        self.groups.iter().flat_map(|group| &group.versions)
    }

    /// `/api`: the versions of the core group, and where clients reach the server (`host:port`).
    pub fn api_versions(&self, server_address: &str) -> Bytes {
        let versions: Vec<&str> = self.group("").map(Group::version_names).unwrap_or_default();
        document(&json!({
            "kind": "APIVersions",
            "versions": versions,
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
        }))
    }

    /// `/apis/<group>`.
    pub fn api_group(&self, name: &str) -> Option<Bytes> {
        let mut summary = self.group(name).filter(|group| !group.name.is_empty())?.summary();
        summary["kind"] = json!("APIGroup");
        summary["apiVersion"] = json!("v1");
        Some(document(&summary))
    }

    /// `/api/v1` and `/apis/<group>/<version>`.
    pub fn resource_list(&self, group: &str, version: &str) -> Option<Bytes> {
        let served = self.group_version(group, version)?;
        let mut resources: Vec<Value> = Vec::new();
        for entry in &served.resources {
            resources.push(main_resource(entry));
            resources.extend(entry.subresources().into_iter().map(|sub| subresource(entry, sub)));
        }
        Some(document(&json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": served.api_version(),
            "resources": resources,
        })))
    }

    /// What `/apis` says of a group, for [`group_list`].
    pub fn group_item(&self, name: &str) -> Option<Bytes> {
        self.group(name).map(|group| document(&group.summary()))
    }

    /// What the aggregated form says of a group, for [`aggregated`].
    pub fn aggregated_item(&self, name: &str) -> Option<Bytes> {
        self.group(name).map(|group| document(&aggregated_group(group)))
    }
}

/// `/apis`: every group but the core one, each as [`Catalog::group_item`] has it.
pub fn group_list<'i>(items: impl IntoIterator<Item = &'i [u8]>) -> Bytes {
    list(r#"{"apiVersion":"v1","groups":["#, items, r#"],"kind":"APIGroupList"}"#)
}

/// The aggregated form of `/api` or of `/apis`, of groups as [`Catalog::aggregated_item`] has them.
pub fn aggregated<'i>(form: Aggregated, items: impl IntoIterator<Item = &'i [u8]>) -> Bytes {
    let head = format!(r#"{{"apiVersion":"{}","items":["#, form.api_version());
    list(&head, items, r#"],"kind":"APIGroupDiscoveryList","metadata":{}}"#)
}

fn list<'i>(head: &str, items: impl IntoIterator<Item = &'i [u8]>, tail: &str) -> Bytes {
    let mut out = head.as_bytes().to_vec();
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(item);
    }
    out.extend_from_slice(tail.as_bytes());
    out.into()
}

impl Group<'_> {
    fn version_names(&self) -> Vec<&str> {
        self.versions.iter().map(|gv| gv.version.as_str()).collect()
    }

    fn summary(&self) -> Value {
        let versions: Vec<Value> =
            self.versions.iter().map(|gv| json!({"groupVersion": gv.api_version(), "version": gv.version})).collect();
        json!({"name": self.name, "preferredVersion": versions.first(), "versions": versions})
    }
}

impl GroupVersion<'_> {
    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// `api/v1`, `apis/apps/v1`: the path without its first slash, as the OpenAPI index names it.
    pub fn path(&self) -> String {
        if self.group.is_empty() {
            format!("api/{}", self.version)
        } else {
            format!("apis/{}/{}", self.group, self.version)
        }
    }
}

impl<'a> Served<'a> {
    /// The subresources, ordered by name.
    pub(crate) fn subresources(&self) -> Vec<&'a Subresource> {
        let own = self.version.custom.as_ref().map_or(&self.kind.subresources, |custom| &custom.subresources);
        let mut all: Vec<&Subresource> = own.iter().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn document(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

fn main_resource(served: &Served) -> Value {
    let kind = served.kind;
    let mut entry = json!({
        "name": kind.resource,
        "singularName": kind.singular,
        "namespaced": kind.scope == Scope::Namespaced,
        "kind": kind.kind,
        "verbs": kind.verbs,
    });
    insert_names(&mut entry, kind, &served.version.group);
    if kind.stored && kind.verbs.contains(&"create") {
        entry["storageVersionHash"] = json!(storage_version_hash(kind));
    }
    entry
}

fn subresource(served: &Served, sub: &Subresource) -> Value {
    let kind = served.kind;
    let mut entry = json!({
        "name": format!("{}/{}", kind.resource, sub.name),
        "singularName": "",
        "namespaced": kind.scope == Scope::Namespaced,
        "kind": kind.kind,
        "verbs": sorted_verbs(sub),
    });
    if let Some((group, version, body)) = &sub.body {
        entry["kind"] = json!(body);
        // A body of the same group and version goes without saying.
        if (group, version) != (&served.version.group, &served.version.version) {
            entry["group"] = json!(group);
            entry["version"] = json!(version);
        }
    }
    entry
}

fn aggregated_group(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|gv| {
            let resources: Vec<Value> = gv.resources.iter().map(aggregated_resource).collect();
            json!({"version": gv.version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    json!({"metadata": {"name": group.name, "creationTimestamp": null}, "versions": versions})
}

fn aggregated_resource(served: &Served) -> Value {
    let kind = served.kind;
    let scope = match kind.scope {
        Scope::Namespaced => "Namespaced",
        Scope::Cluster => "Cluster",
    };
    let mut entry = json!({
        "resource": kind.resource,
        "responseKind": {"group": "", "version": "", "kind": kind.kind},
        "scope": scope,
        "singularResource": kind.singular,
        "verbs": kind.verbs,
    });
    insert_names(&mut entry, kind, &served.version.group);
    let subresources: Vec<Value> =
        served.subresources().into_iter().map(|sub| aggregated_subresource(served, sub)).collect();
    if !subresources.is_empty() {
        entry["subresources"] = Value::Array(subresources);
    }
    entry
}

fn aggregated_subresource(served: &Served, sub: &Subresource) -> Value {
    let flat = subresource(served, sub);
    let text = |key: &str| flat.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    json!({
        "subresource": sub.name,
        "responseKind": {"group": text("group"), "version": text("version"), "kind": text("kind")},
        "verbs": sorted_verbs(sub),
    })
}

fn insert_names(entry: &mut Value, kind: &Kind, group: &str) {
    let Some(entry) = entry.as_object_mut() else { return };
    let mut insert = |key: &str, names: &[String]| {
        if !names.is_empty() {
            Map::insert(entry, key.to_owned(), json!(names));
        }
    };
    // The old group shows kinds that live in others: were it to list their short names and categories too, clients
    // would find each twice.
    if group != "extensions" {
        insert("shortNames", &kind.short_names);
        insert("categories", &kind.categories);
    }
}

fn sorted_verbs(sub: &Subresource) -> Vec<&'static str> {
    let mut verbs = sub.verbs.clone();
    verbs.sort_unstable();
    verbs
}

/// Opaque to clients; equal hashes mean that two versions share their storage.
/// Computed as Kubernetes does, so that tools which compare clusters see no difference.
fn storage_version_hash(kind: &Kind) -> String {
    let Some(hub) = kind.versions.first() else { return String::new() };
    let digest = Sha256::digest(format!("{}/{}/{}", hub.group, hub.version, kind.kind));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Unstored;

    fn sample() -> Registry {
        let mut registry = Registry::default();
        let kinds = [
            Kind::namespaced("CronTab", "crontabs").versions("stable.example.com", "test", ["v1", "v2alpha1"]),
            Kind::namespaced("Deployment", "deployments")
                .versions("apps", "test", ["v1", "v1beta1", "v1beta2"])
                .versions("extensions", "test", ["v1beta1"]),
            Kind::namespaced("Pod", "pods")
                .versions("", "test", ["v1"])
                .short(["po"])
                .category("all")
                .status()
                .part("binding", Some(["", "v1", "Binding"]), &["create"])
                .part("eviction", Some(["policy", "v1", "Eviction"]), &["create"]),
            Kind::cluster("Namespace", "namespaces").versions("", "test", ["v1"]),
            Kind::cluster("TokenReview", "tokenreviews")
                .versions("authentication.k8s.io", "test", ["v1"])
                .unstored(Unstored::TokenReview, ["create"]),
        ];
        for kind in kinds {
            registry.add(kind);
        }
        registry
    }

    fn parsed(bytes: &Bytes) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn groups_and_versions_stand_in_order_of_preference() {
        let registry = sample();
        let catalog = Catalog::new(&registry);
        let shown: Vec<String> = catalog.group_versions().map(GroupVersion::api_version).collect();
        let expected = [
            "v1",
            "apps/v1",
            "apps/v1beta2",
            "apps/v1beta1",
            "authentication.k8s.io/v1",
            "stable.example.com/v1",
            "stable.example.com/v2alpha1",
            "extensions/v1beta1",
        ];
        assert_eq!(shown, expected);
        let items: Vec<Bytes> =
            catalog.groups[1..].iter().filter_map(|group| catalog.group_item(&group.name)).collect();
        let list = parsed(&group_list(items.iter().map(Bytes::as_ref)));
        assert_eq!(list["groups"][0]["name"], "apps");
        assert_eq!(list["groups"][0]["preferredVersion"], json!({"groupVersion": "apps/v1", "version": "v1"}));
        assert_eq!(list["groups"].as_array().unwrap().len(), 4);
        assert_eq!(parsed(&catalog.api_group("apps").unwrap())["kind"], "APIGroup");
        assert_eq!(catalog.api_group(""), None);
        assert_eq!(catalog.api_group("nosuch"), None);
    }

    #[test]
    fn resource_lists_name_subresources_and_their_bodies() {
        let registry = sample();
        let catalog = Catalog::new(&registry);
        let list = parsed(&catalog.resource_list("", "v1").unwrap());
        assert_eq!(list["groupVersion"], "v1");
        let names: Vec<&str> =
            list["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["namespaces", "pods", "pods/binding", "pods/eviction", "pods/status"]);
        let expected = json!({
            "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod",
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "shortNames": ["po"], "categories": ["all"], "storageVersionHash": "xPOwRZ+Yhw8=",
        });
        assert_eq!(list["resources"][1], expected);
        let binding = &list["resources"][2];
        assert_eq!((&binding["kind"], binding.get("group")), (&json!("Binding"), None));
        let eviction = &list["resources"][3];
        assert_eq!(
            (&eviction["group"], &eviction["version"], &eviction["kind"]),
            (&json!("policy"), &json!("v1"), &json!("Eviction"))
        );
        assert_eq!(catalog.resource_list("apps", "v3"), None);
    }

    #[test]
    fn aggregated_splits_core_from_the_rest() {
        let registry = sample();
        let catalog = Catalog::new(&registry);
        let core = parsed(&aggregated(Aggregated::V2, catalog.aggregated_item("").as_deref()));
        assert_eq!(core["apiVersion"], "apidiscovery.k8s.io/v2");
        assert_eq!(core["items"].as_array().unwrap().len(), 1);
        let version = &core["items"][0]["versions"][0];
        assert_eq!(version["freshness"], "Current");
        assert_eq!(version["resources"][0]["scope"], "Cluster");
        let pods = &version["resources"][1];
        assert_eq!(pods["responseKind"], json!({"group": "", "version": "", "kind": "Pod"}));
        let bodies: Vec<&Value> = pods["subresources"].as_array().unwrap().iter().map(|s| &s["responseKind"]).collect();
        assert_eq!(
            bodies,
            [
                &json!({"group": "", "version": "", "kind": "Binding"}),
                &json!({"group": "policy", "version": "v1", "kind": "Eviction"}),
                &json!({"group": "", "version": "", "kind": "Pod"}),
            ]
        );
        let items: Vec<Bytes> =
            catalog.groups[1..].iter().filter_map(|group| catalog.aggregated_item(&group.name)).collect();
        let rest = parsed(&aggregated(Aggregated::V2beta1, items.iter().map(Bytes::as_ref)));
        assert_eq!(rest["apiVersion"], "apidiscovery.k8s.io/v2beta1");
        assert_eq!(rest["items"].as_array().unwrap().len(), 4);
    }

    #[test]
    fn api_versions_carry_the_address() {
        let registry = sample();
        let document = parsed(&Catalog::new(&registry).api_versions("10.0.0.1:6443"));
        assert_eq!(document["versions"], json!(["v1"]));
        assert_eq!(document["serverAddressByClientCIDRs"][0]["serverAddress"], "10.0.0.1:6443");
    }
}
