//! Discovery: which groups, versions and resources the server serves, in all the forms that clients ask for.
//!
//! [`Catalog`] orders the kinds by group and version; its methods write the documents. They are pure functions
//! of the kinds: the caller computes each once and keeps it until a custom resource changes the set.

use crate::kinds::{Kind, Scope, Subresource, Version};
use base64::Engine as _;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::cmp::Reverse;

/// The served API, ordered as discovery shows it.
pub struct Catalog<'a> {
    /// The core group (`""`) first, then by descending priority.
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
    pub fn new(kinds: impl IntoIterator<Item = &'a Kind>) -> Self {
        let mut served: Vec<Served> = kinds
            .into_iter()
            .flat_map(|kind| kind.versions.iter().map(move |version| Served { kind, version }))
            .collect();
        served.sort_by(|a, b| a.order().cmp(&b.order()));

        let mut groups: Vec<Group> = Vec::new();
        for entry in served {
            let (group, version) = (&entry.version.group, &entry.version.version);
            if groups.last().is_none_or(|last| last.name != *group) {
                groups.push(Group { name: group.clone(), versions: Vec::new() });
            }
            let Some(last) = groups.last_mut() else { continue };
            if last.versions.last().is_none_or(|last| last.version != *version) {
                let (group, version) = (group.clone(), version.clone());
                last.versions.push(GroupVersion { group, version, resources: Vec::new() });
            }
            if let Some(last) = last.versions.last_mut() {
                last.resources.push(entry);
            }
        }
        Self { groups }
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

    /// `/apis`: every group but the core one.
    pub fn group_list(&self) -> Bytes {
        let groups: Vec<Value> = self.groups.iter().filter(|g| !g.name.is_empty()).map(Group::summary).collect();
        document(&json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
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
            resources.extend(subresources(entry.kind).into_iter().map(|sub| subresource(entry, sub)));
        }
        Some(document(&json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": served.api_version(),
            "resources": resources,
        })))
    }

    /// The aggregated form of `/api` (`core`) or of `/apis`.
    pub fn aggregated(&self, core: bool, form: Aggregated) -> Bytes {
        let items: Vec<Value> =
            self.groups.iter().filter(|group| group.name.is_empty() == core).map(aggregated_group).collect();
        document(&json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": form.api_version(),
            "metadata": {},
            "items": items,
        }))
    }
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

impl Served<'_> {
    /// Sorting by this gives the order of discovery.
    fn order(&self) -> (Reverse<u32>, &str, Reverse<VersionRank<'_>>, &str) {
        let (group, version) = (self.version.group.as_str(), self.version.version.as_str());
        (Reverse(group_priority(group)), group, Reverse(version_rank(version)), &self.kind.resource)
    }
}

/// What a client may do with the main resource of `kind`.
pub fn main_verbs(kind: &Kind) -> &'static [&'static str] {
    const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    const NO_COLLECTION: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
    match kind.resource.as_str() {
        "componentstatuses" => &["get", "list"],
        _ if !kind.stored => &["create"],
        "namespaces" if kind.versions.first().is_some_and(|hub| hub.group.is_empty()) => NO_COLLECTION,
        _ => ALL,
    }
}

/// The subresources of `kind`, ordered by name.
pub(crate) fn subresources(kind: &Kind) -> Vec<&Subresource> {
    let mut all: Vec<&Subresource> = kind.subresources.iter().collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
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
        "verbs": main_verbs(kind),
    });
    insert_names(&mut entry, kind);
    if kind.stored && main_verbs(kind).contains(&"create") {
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
        "verbs": main_verbs(kind),
    });
    insert_names(&mut entry, kind);
    let subresources: Vec<Value> =
        subresources(kind).into_iter().map(|sub| aggregated_subresource(served, sub)).collect();
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

fn insert_names(entry: &mut Value, kind: &Kind) {
    let Some(entry) = entry.as_object_mut() else { return };
    let mut insert = |key: &str, names: &[String]| {
        if !names.is_empty() {
            Map::insert(entry, key.to_owned(), json!(names));
        }
    };
    insert("shortNames", &kind.short_names);
    insert("categories", &kind.categories);
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

/// Clients that meet one resource name in two groups take the group of higher priority.
///
/// The numbers are Kubernetes' own, except `extensions`: its kinds have moved to `apps`, `networking.k8s.io` and
/// `policy`, and those must win.
fn group_priority(group: &str) -> u32 {
    const PRIORITIES: &[(&str, u32)] = &[
        ("", 30_000),
        ("apiregistration.k8s.io", 20_000),
        ("apps", 17_800),
        ("events.k8s.io", 17_750),
        ("authentication.k8s.io", 17_700),
        ("authorization.k8s.io", 17_600),
        ("autoscaling", 17_500),
        ("batch", 17_400),
        ("certificates.k8s.io", 17_300),
        ("networking.k8s.io", 17_200),
        ("policy", 17_100),
        ("rbac.authorization.k8s.io", 17_000),
        ("storage.k8s.io", 16_800),
        ("apiextensions.k8s.io", 16_700),
        ("admissionregistration.k8s.io", 16_700),
        ("scheduling.k8s.io", 16_600),
        ("coordination.k8s.io", 16_500),
        ("node.k8s.io", 16_300),
        ("discovery.k8s.io", 16_200),
        ("flowcontrol.apiserver.k8s.io", 16_100),
        ("internal.apiserver.k8s.io", 16_000),
        ("resource.k8s.io", 15_900),
        ("storagemigration.k8s.io", 15_800),
        ("extensions", 15_000),
    ];
    const CUSTOM: u32 = 1_000;
    PRIORITIES.iter().find(|(name, _)| *name == group).map_or(CUSTOM, |(_, priority)| *priority)
}

/// Stability, major number, minor number, and the name itself for versions that follow no pattern.
pub(crate) type VersionRank<'a> = (u8, u64, u64, Reverse<&'a str>);

/// Greater is preferred: `v2` > `v1` > `v2beta1` > `v1beta2` > `v1alpha1` > anything else, alphabetically.
pub(crate) fn version_rank(version: &str) -> VersionRank<'_> {
    let odd = (0, 0, 0, Reverse(version));
    let Some(rest) = version.strip_prefix('v') else { return odd };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (major, rest) = rest.split_at(digits);
    let Ok(major) = major.parse() else { return odd };
    let (stability, minor) = match (rest, rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
        ("", _, _) => return (3, major, 0, Reverse("")),
        (_, Some(minor), _) => (2, minor),
        (_, _, Some(minor)) => (1, minor),
        _ => return odd,
    };
    match minor.parse() {
        Ok(minor) => (stability, major, minor, Reverse("")),
        Err(_) => odd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Hooks;

    fn kind(kind: &str, resource: &str, versions: &[(&str, &str)]) -> Kind {
        Kind {
            kind: kind.into(),
            resource: resource.into(),
            singular: kind.to_lowercase(),
            short_names: vec![],
            categories: vec![],
            scope: Scope::Namespaced,
            storage: resource.into(),
            versions: versions
                .iter()
                .map(|(group, version)| Version {
                    group: (*group).into(),
                    version: (*version).into(),
                    message: format!("test.{version}.{kind}"),
                    convert: None,
                })
                .collect(),
            stored: true,
            subresources: vec![],
            selectable: vec![],
            columns: vec![],
            generation: true,
            hooks: Hooks::default(),
        }
    }

    fn sample() -> Vec<Kind> {
        let mut pod = kind("Pod", "pods", &[("", "v1")]);
        pod.short_names = vec!["po".into()];
        pod.categories = vec!["all".into()];
        let body = |group: &str, version: &str, kind: &str| Some((group.into(), version.into(), kind.into()));
        let sub = |name: &str, body, verbs: &[&'static str]| Subresource {
            name: name.into(),
            body,
            verbs: verbs.to_vec(),
            scale: None,
        };
        pod.subresources = vec![
            sub("status", None, &["get", "patch", "update"]),
            sub("binding", body("", "v1", "Binding"), &["create"]),
            sub("eviction", body("policy", "v1", "Eviction"), &["create"]),
        ];
        let deployment = kind(
            "Deployment",
            "deployments",
            &[("apps", "v1"), ("apps", "v1beta1"), ("apps", "v1beta2"), ("extensions", "v1beta1")],
        );
        let mut namespace = kind("Namespace", "namespaces", &[("", "v1")]);
        namespace.scope = Scope::Cluster;
        let mut review = kind("TokenReview", "tokenreviews", &[("authentication.k8s.io", "v1")]);
        review.stored = false;
        let tab = kind("CronTab", "crontabs", &[("stable.example.com", "v1"), ("stable.example.com", "v2alpha1")]);
        vec![tab, deployment, pod, namespace, review]
    }

    fn parsed(bytes: &Bytes) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn groups_and_versions_stand_in_order_of_preference() {
        let kinds = sample();
        let catalog = Catalog::new(&kinds);
        let shown: Vec<String> = catalog.group_versions().map(GroupVersion::api_version).collect();
        let expected = [
            "v1",
            "apps/v1",
            "apps/v1beta2",
            "apps/v1beta1",
            "authentication.k8s.io/v1",
            "extensions/v1beta1",
            "stable.example.com/v1",
            "stable.example.com/v2alpha1",
        ];
        assert_eq!(shown, expected);
        let list = parsed(&catalog.group_list());
        assert_eq!(list["groups"][0]["name"], "apps");
        assert_eq!(list["groups"][0]["preferredVersion"], json!({"groupVersion": "apps/v1", "version": "v1"}));
        assert_eq!(list["groups"].as_array().unwrap().len(), 4);
        assert_eq!(parsed(&catalog.api_group("apps").unwrap())["kind"], "APIGroup");
        assert_eq!(catalog.api_group(""), None);
        assert_eq!(catalog.api_group("nosuch"), None);
    }

    #[test]
    fn resource_lists_name_subresources_and_their_bodies() {
        let kinds = sample();
        let catalog = Catalog::new(&kinds);
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
    fn verbs_follow_what_a_kind_is() {
        let kinds = sample();
        let verbs = |resource: &str| main_verbs(kinds.iter().find(|k| k.resource == resource).unwrap());
        assert_eq!(verbs("tokenreviews"), ["create"]);
        assert!(!verbs("namespaces").contains(&"deletecollection"));
        assert!(verbs("deployments").contains(&"deletecollection"));
    }

    #[test]
    fn aggregated_splits_core_from_the_rest() {
        let kinds = sample();
        let catalog = Catalog::new(&kinds);
        let core = parsed(&catalog.aggregated(true, Aggregated::V2));
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
        let rest = parsed(&catalog.aggregated(false, Aggregated::V2beta1));
        assert_eq!(rest["apiVersion"], "apidiscovery.k8s.io/v2beta1");
        assert_eq!(rest["items"].as_array().unwrap().len(), 4);
    }

    #[test]
    fn api_versions_carry_the_address() {
        let kinds = sample();
        let document = parsed(&Catalog::new(&kinds).api_versions("10.0.0.1:6443"));
        assert_eq!(document["versions"], json!(["v1"]));
        assert_eq!(document["serverAddressByClientCIDRs"][0]["serverAddress"], "10.0.0.1:6443");
    }

    #[test]
    fn versions_rank_by_stability_then_number() {
        let mut versions = vec!["v1alpha1", "foo10", "v1", "v11beta2", "v10", "v3beta1", "foo1", "v12alpha1", "v2"];
        versions.sort_by_key(|v| Reverse(version_rank(v)));
        assert_eq!(versions, ["v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "v1alpha1", "foo1", "foo10"]);
    }
}
