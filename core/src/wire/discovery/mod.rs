//! Discovery: the groups, versions and resources that the server serves, in all formats that clients request.
//!
//! [`Catalog`] orders the kinds by group and version; its methods write the documents. The documents depend only on the
//! kinds. The caller computes each document once, and again when a custom resource changes the set of kinds.

pub mod documents;

use crate::kinds::offered::NEWEST;
use crate::kinds::{GroupVersions, Kind, Registry, Scope, Subresource, Version};
use base64::Engine as _;
use bytes::Bytes;
use documents::{
    ApiVersions, GroupDiscovery, GroupSummary, Metadata, Resource, ResourceDiscovery, ResourceList, ResponseKind,
    ServerAddress, SubresourceDiscovery, VersionDiscovery, VersionSummary, encoded,
};
use sha2::{Digest, Sha256};

/// The API that the server serves, in the order of the discovery documents.
pub struct Catalog<'a> {
    /// The groups in the order of the registry. The order matters: if two groups have a resource of the same name,
    /// clients take the first.
    pub groups: Vec<Group<'a>>,
}

pub struct Group<'a> {
    /// The name of the group; empty for the core group.
    pub name: String,
    /// The versions of the group, the preferred version first.
    pub versions: Vec<GroupVersion<'a>>,
}

pub struct GroupVersion<'a> {
    pub group: String,
    pub version: String,
    /// The resources of the version, ordered by name.
    pub resources: Vec<Served<'a>>,
}

/// A kind that is served in one of its versions.
#[derive(Clone, Copy)]
pub struct Served<'a> {
    pub kind: &'a Kind,
    pub version: &'a Version,
}

/// The two versions of the aggregated format, which differ only in their names.
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

    /// The catalog of these groups and versions.
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

    /// The document at `/api`: the versions of the core group, and the address of the server (`host:port`).
    pub fn api_versions(&self, server_address: &str) -> Bytes {
        let versions: Vec<&str> = self.group("").map(Group::version_names).unwrap_or_default();
        encoded(&ApiVersions {
            kind: "APIVersions",
            versions,
            server_addresses: vec![ServerAddress { client_cidr: "0.0.0.0/0", server_address }],
        })
    }

    /// The document at `/apis/<group>`.
    pub fn api_group(&self, name: &str) -> Option<Bytes> {
        let group = self.group(name).filter(|group| !group.name.is_empty())?;
        Some(encoded(&group.summary().alone()))
    }

    /// The document at `/api/v1` or `/apis/<group>/<version>`.
    pub fn resource_list(&self, group: &str, version: &str) -> Option<Bytes> {
        let served = self.group_version(group, version)?;
        let mut resources: Vec<Resource> = Vec::new();
        for entry in &served.resources {
            resources.push(main_resource(entry));
            resources.extend(entry.subresources().into_iter().map(|sub| subresource(entry, sub)));
        }
        Some(encoded(&ResourceList {
            kind: "APIResourceList".into(),
            api_version: if group.is_empty() { String::new() } else { "v1".into() },
            group_version: served.api_version(),
            resources,
        }))
    }

    /// The item about a group for the document at `/apis`. [`group_list`] joins such items.
    pub fn group_item(&self, name: &str) -> Option<Bytes> {
        self.group(name).map(|group| encoded(&group.summary()))
    }

    /// The item about a group for the aggregated documents. [`aggregated`] joins such items.
    pub fn aggregated_item(&self, name: &str) -> Option<Bytes> {
        self.group(name).map(|group| encoded(&aggregated_group(group)))
    }
}

/// The document at `/apis`, made of one item for every group except the core group (see [`Catalog::group_item`]).
pub fn group_list<'i>(items: impl IntoIterator<Item = &'i [u8]>) -> Bytes {
    list(r#"{"kind":"APIGroupList","apiVersion":"v1","groups":["#, items)
}

/// The document at `/api` or `/apis` in the aggregated format, made of one item for each group (see
/// [`Catalog::aggregated_item`]).
pub fn aggregated<'i>(form: Aggregated, items: impl IntoIterator<Item = &'i [u8]>) -> Bytes {
    let api_version = form.api_version();
    let head = format!(r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"{api_version}","metadata":{{}},"items":["#);
    list(&head, items)
}

/// Writes a document that begins with `head` and ends with a list of `items`.
fn list<'i>(head: &str, items: impl IntoIterator<Item = &'i [u8]>) -> Bytes {
    let mut out = head.as_bytes().to_vec();
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(item);
    }
    out.extend_from_slice(b"]}");
    out.into()
}

impl Group<'_> {
    fn version_names(&self) -> Vec<&str> {
        self.versions.iter().map(|gv| gv.version.as_str()).collect()
    }

    fn summary(&self) -> GroupSummary {
        let version =
            |gv: &GroupVersion| VersionSummary { group_version: gv.api_version(), version: gv.version.clone() };
        let versions: Vec<VersionSummary> = self.versions.iter().map(version).collect();
        let preferred_version = versions.first().cloned().unwrap_or_default();
        GroupSummary { name: self.name.clone(), versions, preferred_version, ..GroupSummary::default() }
    }
}

impl GroupSummary {
    /// The summary as a document of its own, with `kind` and `apiVersion`.
    pub(crate) fn alone(self) -> Self {
        Self { kind: "APIGroup".into(), api_version: "v1".into(), ..self }
    }
}

impl GroupVersion<'_> {
    /// The group and version as text: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// The path of the version without its leading slash, as the OpenAPI index shows it: `api/v1`, `apis/apps/v1`.
    pub fn path(&self) -> String {
        if self.group.is_empty() {
            format!("api/{}", self.version)
        } else {
            format!("apis/{}/{}", self.group, self.version)
        }
    }
}

impl<'a> Served<'a> {
    /// The subresources of the resource in this version, ordered by name.
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

fn main_resource(served: &Served) -> Resource {
    let kind = served.kind;
    let hashed = kind.stored && kind.verbs.contains(&"create");
    let (short_names, categories) = listed_names(served);
    Resource {
        name: kind.resource.clone(),
        singular_name: kind.singular.clone(),
        namespaced: kind.scope == Scope::Namespaced,
        kind: kind.kind.clone(),
        verbs: owned(&kind.verbs),
        short_names,
        categories,
        storage_version_hash: if hashed { storage_version_hash(kind) } else { String::new() },
        ..Resource::default()
    }
}

fn subresource(served: &Served, sub: &Subresource) -> Resource {
    let kind = served.kind;
    let body = body_kind(served, sub);
    Resource {
        name: format!("{}/{}", kind.resource, sub.name),
        namespaced: kind.scope == Scope::Namespaced,
        group: body.group,
        version: body.version,
        kind: body.kind,
        verbs: sorted_verbs(sub),
        ..Resource::default()
    }
}

/// The kind of a subresource's body. Its group and version are empty if the resource has the same group and version.
fn body_kind(served: &Served, sub: &Subresource) -> ResponseKind {
    match &sub.body {
        Some((group, version, body)) if (group, version) != (&served.version.group, &served.version.version) => {
            ResponseKind { group: group.clone(), version: version.clone(), kind: body.clone() }
        }
        Some((_, _, body)) => ResponseKind { kind: body.clone(), ..ResponseKind::default() },
        None => ResponseKind { kind: served.kind.kind.clone(), ..ResponseKind::default() },
    }
}

fn aggregated_group(group: &Group) -> GroupDiscovery {
    let version = |gv: &GroupVersion| VersionDiscovery {
        version: gv.version.clone(),
        resources: gv.resources.iter().map(aggregated_resource).collect(),
        freshness: "Current".into(),
    };
    GroupDiscovery {
        metadata: Metadata { name: group.name.clone() },
        versions: group.versions.iter().map(version).collect(),
    }
}

fn aggregated_resource(served: &Served) -> ResourceDiscovery {
    let kind = served.kind;
    let scope = match kind.scope {
        Scope::Namespaced => "Namespaced",
        Scope::Cluster => "Cluster",
    };
    let (short_names, categories) = listed_names(served);
    let subresource = |sub: &Subresource| SubresourceDiscovery {
        subresource: sub.name.clone(),
        response_kind: Some(body_kind(served, sub)),
        accepted_types: Vec::new(),
        verbs: sorted_verbs(sub),
    };
    ResourceDiscovery {
        resource: kind.resource.clone(),
        response_kind: Some(ResponseKind { kind: kind.kind.clone(), ..ResponseKind::default() }),
        scope: scope.into(),
        singular_resource: kind.singular.clone(),
        verbs: owned(&kind.verbs),
        short_names,
        categories,
        subresources: served.subresources().into_iter().map(subresource).collect(),
    }
}

/// The short names and categories that discovery lists for a kind.
///
/// The old group `extensions` serves kinds that other groups serve too. If it listed their short names and categories,
/// clients would find each of the names twice.
fn listed_names(served: &Served) -> (Vec<String>, Vec<String>) {
    if served.version.group == "extensions" {
        return (Vec::new(), Vec::new());
    }
    (served.kind.short_names.clone(), served.kind.categories.clone())
}

fn sorted_verbs(sub: &Subresource) -> Vec<String> {
    let mut verbs = owned(&sub.verbs);
    verbs.sort_unstable();
    verbs
}

fn owned(verbs: &[&str]) -> Vec<String> {
    verbs.iter().map(|verb| (*verb).to_owned()).collect()
}

/// A hash that identifies the version in which objects are stored; clients cannot interpret it. Equal hashes mean that
/// two versions share their storage. The hash is computed as in Kubernetes, so that tools that compare clusters find no
/// difference.
fn storage_version_hash(kind: &Kind) -> String {
    let Some(stored) = kind.versions.get(kind.stored_version(NEWEST)) else { return String::new() };
    let digest = Sha256::digest(format!("{}/{}/{}", stored.group, stored.version, kind.kind));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Question;
    use holdfast_value::{Value, json};

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
                .unstored(Question::TokenReview, ["create"]),
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

    /// A registry with one kind of each sort, such as namespaced and cluster-scoped. It is small enough to compare
    /// whole documents.
    fn small() -> Registry {
        let mut registry = Registry::default();
        registry.add(Kind::namespaced("Pod", "pods").versions("", "test", ["v1"]).short(["po"]).category("all").part(
            "eviction",
            Some(["policy", "v1", "Eviction"]),
            &["create"],
        ));
        registry.add(Kind::cluster("Knob", "knobs").versions("b.io", "test", ["v1", "v1beta1"]).status());
        registry
    }

    #[test]
    fn fields_stand_in_kubernetes_order() {
        let registry = small();
        let catalog = Catalog::new(&registry);
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let verbs = r#"["create","delete","deletecollection","get","list","patch","update","watch"]"#;
        let knob = r#"{"name":"b.io","versions":[{"groupVersion":"b.io/v1","version":"v1"},{"groupVersion":"b.io/v1beta1","version":"v1beta1"}],"preferredVersion":{"groupVersion":"b.io/v1","version":"v1"}}"#;
        assert_eq!(
            text(catalog.api_versions("10.0.0.1:6443")),
            r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"10.0.0.1:6443"}]}"#
        );
        assert_eq!(
            text(group_list(catalog.group_item("b.io").as_deref())),
            format!(r#"{{"kind":"APIGroupList","apiVersion":"v1","groups":[{knob}]}}"#)
        );
        assert_eq!(
            text(catalog.api_group("b.io").unwrap()),
            format!(r#"{{"kind":"APIGroup","apiVersion":"v1",{}"#, &knob[1..])
        );
        assert_eq!(
            text(catalog.resource_list("", "v1").unwrap()),
            format!(
                r#"{{"kind":"APIResourceList","groupVersion":"v1","resources":[{{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":{verbs},"shortNames":["po"],"categories":["all"],"storageVersionHash":"xPOwRZ+Yhw8="}},{{"name":"pods/eviction","singularName":"","namespaced":true,"group":"policy","version":"v1","kind":"Eviction","verbs":["create"]}}]}}"#
            )
        );
        let list = text(catalog.resource_list("b.io", "v1").unwrap());
        let head =
            r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"b.io/v1","resources":[{"name":"knobs","#;
        assert!(list.starts_with(head), "{list}");
        assert_eq!(
            text(aggregated(Aggregated::V2, catalog.aggregated_item("").as_deref())),
            format!(
                r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{{}},"items":[{{"metadata":{{}},"versions":[{{"version":"v1","resources":[{{"resource":"pods","responseKind":{{"group":"","version":"","kind":"Pod"}},"scope":"Namespaced","singularResource":"pod","verbs":{verbs},"shortNames":["po"],"categories":["all"],"subresources":[{{"subresource":"eviction","responseKind":{{"group":"policy","version":"v1","kind":"Eviction"}},"verbs":["create"]}}]}}],"freshness":"Current"}}]}}]}}"#
            )
        );
    }

    #[test]
    fn api_versions_carry_the_address() {
        let registry = sample();
        let document = parsed(&Catalog::new(&registry).api_versions("10.0.0.1:6443"));
        assert_eq!(document["versions"], json!(["v1"]));
        assert_eq!(document["serverAddressByClientCIDRs"][0]["serverAddress"], "10.0.0.1:6443");
    }
}
