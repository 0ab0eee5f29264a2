//! Merges the discovery and OpenAPI documents of this server with those of other servers.
//!
//! Each function takes this server's own document. The caller computes the merged document again only when the own
//! document, or what another server serves, changes.

use crate::apiservices::GroupVersion;
use crate::kinds::compare_versions;
use crate::wire::discovery::documents::{
    DiscoveryList, GroupDiscovery, GroupList, GroupSummary, Metadata, Resource, ResourceDiscovery, ResourceList,
    ResponseKind, SubresourceDiscovery, VersionDiscovery, VersionSummary, encoded,
};
use bytes::Bytes;
use holdfast_value::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A group version that another server serves.
#[derive(Debug, Clone, PartialEq)]
pub struct Remote {
    pub served: GroupVersion,
    /// The resources of the group version; if the other server no longer answers, the resources that it sent last.
    pub resources: Vec<ResourceDiscovery>,
    /// Whether the other server answers, so that `resources` is up to date.
    pub fresh: bool,
}

/// The group versions of the other servers, and the order of all group versions.
pub struct Merge<'a> {
    pub remotes: &'a [Remote],
    /// Returns the group priority and the version priority of a group version.
    pub priorities: &'a dyn Fn(&GroupVersion) -> (i64, i64),
}

impl Merge<'_> {
    /// The merged document at `/apis`, from this server's own document.
    pub fn group_list(&self, own: &[u8]) -> Option<Bytes> {
        self.groups_of(own).map(|list| encoded(&list))
    }

    /// The merged document at `/apis/<group>`, from this server's own document at `/apis`.
    pub fn api_group(&self, own: &[u8], name: &str) -> Option<Bytes> {
        let group = self.groups_of(own)?.groups.into_iter().find(|group| group.name == name)?;
        Some(encoded(&group.alone()))
    }

    fn groups_of(&self, own: &[u8]) -> Option<GroupList> {
        let mut list: GroupList = serde_json::from_slice(own).ok()?;
        list.groups = self.groups(list.groups);
        for group in &mut list.groups {
            group.preferred_version = group.versions.first().cloned().unwrap_or_default();
        }
        Some(list)
    }

    /// The merged document at `/apis` in the aggregated format.
    pub fn aggregated(&self, own: &[u8]) -> Option<Bytes> {
        let mut list: DiscoveryList = serde_json::from_slice(own).ok()?;
        list.items = self.groups(list.items);
        Some(encoded(&list))
    }

    /// Merges this server's groups with the groups of other servers, and puts them in the order of their priorities.
    fn groups<G: Group>(&self, own: Vec<G>) -> Vec<G> {
        let mut groups: BTreeMap<String, G> = own.into_iter().map(|group| (group.name().to_owned(), group)).collect();
        for remote in self.remotes {
            let GroupVersion { group, version } = &remote.served;
            let versions = groups.entry(group.clone()).or_insert_with(|| G::empty(group)).versions();
            versions.retain(|known| G::version_name(known) != version);
            versions.push(G::remote(remote));
        }
        let mut ordered: Vec<(i64, String, G)> = Vec::new();
        for (name, mut group) in groups {
            let priorities =
                |version: &G::Version| (self.priorities)(&GroupVersion::new(&name, G::version_name(version)));
            let versions = group.versions();
            let highest = versions.iter().map(|version| priorities(version).0).max().unwrap_or(0);
            versions.sort_by(|a, b| {
                let by_name = || compare_versions(G::version_name(a), G::version_name(b));
                priorities(b).1.cmp(&priorities(a).1).then_with(by_name)
            });
            ordered.push((highest, name, group));
        }
        ordered.sort_by(|a, b| (Reverse(a.0), &a.1).cmp(&(Reverse(b.0), &b.1)));
        ordered.into_iter().map(|(_, _, group)| group).collect()
    }
}

/// A group as one of the two discovery formats describes it.
trait Group {
    type Version;
    fn empty(name: &str) -> Self;
    fn name(&self) -> &str;
    fn versions(&mut self) -> &mut Vec<Self::Version>;
    fn version_name(version: &Self::Version) -> &str;
    fn remote(remote: &Remote) -> Self::Version;
}

impl Group for GroupSummary {
    type Version = VersionSummary;

    fn empty(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn versions(&mut self) -> &mut Vec<VersionSummary> {
        &mut self.versions
    }

    fn version_name(version: &VersionSummary) -> &str {
        &version.version
    }

    fn remote(remote: &Remote) -> VersionSummary {
        let GroupVersion { group, version } = &remote.served;
        VersionSummary { group_version: format!("{group}/{version}"), version: version.clone() }
    }
}

impl Group for GroupDiscovery {
    type Version = VersionDiscovery;

    fn empty(name: &str) -> Self {
        Self { metadata: Metadata { name: name.to_owned() }, versions: Vec::new() }
    }

    fn name(&self) -> &str {
        &self.metadata.name
    }

    fn versions(&mut self) -> &mut Vec<VersionDiscovery> {
        &mut self.versions
    }

    fn version_name(version: &VersionDiscovery) -> &str {
        &version.version
    }

    fn remote(remote: &Remote) -> VersionDiscovery {
        VersionDiscovery {
            version: remote.served.version.clone(),
            resources: remote.resources.clone(),
            freshness: if remote.fresh { "Current" } else { "Stale" }.into(),
        }
    }
}

/// The resources of a group version, read from another server's aggregated document.
pub fn of_aggregated(document: &[u8], served: &GroupVersion) -> Option<Vec<ResourceDiscovery>> {
    let list: DiscoveryList = serde_json::from_slice(document).ok()?;
    let group = list.items.into_iter().find(|group| group.metadata.name == served.group)?;
    let version = group.versions.into_iter().find(|version| version.version == served.version)?;
    Some(version.resources)
}

/// The resources of a group version, read from another server's APIResourceList.
pub fn of_resource_list(list: &[u8]) -> Option<Vec<ResourceDiscovery>> {
    let list: ResourceList = serde_json::from_slice(list).ok()?;
    let mut resources: Vec<ResourceDiscovery> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for entry in list.resources {
        let Resource { name, group, version, kind, verbs, .. } = entry;
        let response_kind = Some(ResponseKind { group, version, kind });
        let scope = if entry.namespaced { "Namespaced" } else { "Cluster" };
        let (main, sub) = name.split_once('/').map_or((name.as_str(), None), |(main, sub)| (main, Some(sub)));
        let place = *places.entry(main.to_owned()).or_insert_with(|| {
            let (resource, scope) = (main.to_owned(), scope.to_owned());
            resources.push(ResourceDiscovery { resource, scope, ..ResourceDiscovery::default() });
            resources.len() - 1
        });
        let resource = &mut resources[place];
        match sub {
            Some(sub) => {
                let subresource = sub.to_owned();
                resource.subresources.push(SubresourceDiscovery {
                    subresource,
                    response_kind,
                    accepted_types: Vec::new(),
                    verbs,
                });
            }
            None => {
                *resource = ResourceDiscovery {
                    resource: main.to_owned(),
                    response_kind,
                    scope: scope.into(),
                    singular_resource: entry.singular_name,
                    verbs,
                    short_names: entry.short_names,
                    categories: entry.categories,
                    subresources: std::mem::take(&mut resource.subresources),
                };
            }
        }
    }
    Some(resources)
}

/// The index at `/openapi/v3`, to which the group versions of other servers are added, with the hashes of their
/// documents.
pub fn openapi_v3_index<'a>(mut own: Value, others: impl IntoIterator<Item = (&'a GroupVersion, &'a str)>) -> Value {
    for (served, hash) in others {
        let path = served.path();
        let url = format!("/openapi/v3{path}?hash={hash}");
        own["paths"][path.trim_start_matches('/')] = json!({"serverRelativeURL": url});
    }
    own
}

/// The part of another server's document at `/openapi/v2` that belongs to a group version: its paths, and everything to
/// which they refer.
pub fn openapi_v2_part(document: &Value, served: &GroupVersion) -> Value {
    let root = served.path();
    let within = |path: &str| path.strip_prefix(&root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let empty = Map::new();
    let their = |field: &str| document[field].as_object().unwrap_or(&empty);
    let paths = their("paths").iter().filter(|(path, _)| within(path));
    let paths: Map = paths.map(|(path, item)| (path.clone(), item.clone())).collect();
    let mut open: Vec<Reference> = Vec::new();
    paths.values().for_each(|item| references(item, &mut open));
    let mut part = json!({"paths": paths});
    while let Some(Reference { section, name }) = open.pop() {
        let section = SECTIONS[section];
        if let Some(found) = their(section).get(&name)
            && part[section].get(&name).is_none()
        {
            part[section][&name] = found.clone();
            references(found, &mut open);
        }
    }
    part
}

/// The document at `/openapi/v2`, to which the parts of other servers are added. If a part has a definition or
/// parameter whose name already belongs to a different one, a number is appended to its name.
pub fn openapi_v2<'a>(mut own: Value, parts: impl IntoIterator<Item = &'a Value>) -> Value {
    let mut paths = take(&mut own, "paths");
    let mut sections = SECTIONS.map(|section| take(&mut own, section));
    let empty = Map::new();
    for part in parts {
        let their = |field: &str| part[field].as_object().unwrap_or(&empty);
        let mut names: BTreeMap<Reference, String> = BTreeMap::new();
        for (section, taken) in sections.iter().enumerate() {
            for (name, found) in their(SECTIONS[section]) {
                let fits = |wanted: &String| taken.get(wanted).is_none_or(|taken| taken == found);
                let numbered = (2..).map(|number| format!("{name}_v{number}"));
                let free = std::iter::once(name.to_string()).chain(numbered).find(fits);
                names.insert(Reference { section, name: name.to_string() }, free.unwrap_or_default());
            }
        }
        let renamed = |value: &Value| {
            let mut value = value.clone();
            rename(&mut value, &names);
            value
        };
        for (Reference { section, name }, new) in &names {
            sections[*section].insert(new.clone(), renamed(&their(SECTIONS[*section])[name]));
        }
        paths.extend(their("paths").iter().map(|(path, item)| (path.clone(), renamed(item))));
    }
    own["paths"] = paths.into();
    for (section, members) in SECTIONS.into_iter().zip(sections) {
        own[section] = members.into();
    }
    own
}

/// The sections of the document to which references may point.
const SECTIONS: [&str; 2] = ["definitions", "parameters"];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Reference {
    section: usize,
    name: String,
}

impl Reference {
    /// The reference in the fields of a value, which looks like `#/definitions/NAME`; `None` if there is none.
    fn of(fields: &Map) -> Option<Reference> {
        let (section, name) = fields.get("$ref")?.as_str()?.strip_prefix("#/")?.split_once('/')?;
        let section = SECTIONS.iter().position(|known| *known == section)?;
        Some(Reference { section, name: name.to_owned() })
    }
}

fn take(document: &mut Value, field: &str) -> Map {
    document.get_mut(field).and_then(Value::as_object_mut).map(std::mem::take).unwrap_or_default()
}

/// Collects all references that a value contains at any depth.
fn references(value: &Value, found: &mut Vec<Reference>) {
    match value {
        Value::Object(fields) => {
            found.extend(Reference::of(fields));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

fn rename(value: &mut Value, names: &BTreeMap<Reference, String>) {
    match value {
        Value::Object(fields) => {
            if let Some(reference) = Reference::of(fields)
                && let Some(new) = names.get(&reference)
            {
                let new = format!("#/{}/{new}", SECTIONS[reference.section]);
                fields.insert("$ref", new.into());
            }
            fields.values_mut().for_each(|value| rename(value, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| rename(value, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(group: &str, version: &str) -> Remote {
        let resources = vec![ResourceDiscovery { resource: "things".into(), ..ResourceDiscovery::default() }];
        Remote { served: GroupVersion::new(group, version), resources, fresh: true }
    }

    fn priorities(served: &GroupVersion) -> (i64, i64) {
        match (served.group.as_str(), served.version.as_str()) {
            ("apps", _) => (17800, 15),
            ("high.io", _) => (18000, 1),
            ("b.io", "v1") => (1000, 200),
            _ => (1000, 100),
        }
    }

    #[test]
    fn groups_are_merged_in_the_order_of_priorities() {
        let version = |group: &str, name: &str| json!({"groupVersion": format!("{group}/{name}"), "version": name});
        let group = |name: &str, versions: &[&str]| {
            let versions: Vec<Value> = versions.iter().map(|one| version(name, one)).collect();
            json!({"name": name, "preferredVersion": versions[0], "versions": versions})
        };
        let own = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group("apps", &["v1"]), group("b.io", &["v2", "v1beta1"])]});
        let remotes = [remote("high.io", "v1"), remote("b.io", "v1"), remote("a.io", "v1"), remote("apps", "v1")];
        let merge = Merge { remotes: &remotes, priorities: &priorities };
        let own = own.to_string();
        let text = merge.group_list(own.as_bytes()).unwrap();
        let merged: Value = serde_json::from_slice(&text).unwrap();
        let expected = json!([
            group("high.io", &["v1"]),
            group("apps", &["v1"]),
            group("a.io", &["v1"]),
            group("b.io", &["v1", "v2", "v1beta1"]),
        ]);
        assert_eq!(merged["groups"], expected);
        // The merged document has its fields in the order in which Kubernetes writes them, as a document without other
        // servers has.
        let head = br#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"high.io","versions":["#;
        assert!(text.starts_with(head), "{text:?}");
        let alone = merge.api_group(own.as_bytes(), "a.io").unwrap();
        assert!(alone.starts_with(br#"{"kind":"APIGroup","apiVersion":"v1","name":"a.io","versions":["#), "{alone:?}");
        assert_eq!(merge.api_group(own.as_bytes(), "c.io"), None);
    }

    #[test]
    fn aggregated_documents_tell_what_is_stale() {
        let own = json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
            "items": [{"metadata": {"name": "apps"}, "versions": [{"version": "v1"}]}],
        });
        let gone = Remote { fresh: false, resources: Vec::new(), ..remote("a.io", "v1") };
        let remotes = [gone, remote("a.io", "v2")];
        let own = own.to_string();
        let text = Merge { remotes: &remotes, priorities: &priorities }.aggregated(own.as_bytes()).unwrap();
        let merged: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(merged["items"][0]["metadata"]["name"], "apps");
        let versions = json!([
            {
                "version": "v2", "freshness": "Current",
                "resources": [{"resource": "things", "scope": "", "singularResource": "", "verbs": []}],
            },
            {"version": "v1", "freshness": "Stale"},
        ]);
        assert_eq!(merged["items"][1]["versions"], versions);
    }

    #[test]
    fn plain_lists_become_aggregated() {
        let list = json!({"resources": [
            {"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": ["get"], "shortNames": ["po"]},
            {"name": "pods/scale", "namespaced": true, "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get"]},
            {"name": "others/status", "namespaced": false, "kind": "Other", "verbs": ["update"], "shortNames": null},
        ]});
        let pod = json!({"group": "", "version": "", "kind": "Pod"});
        let scale = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
        let other = json!({"group": "", "version": "", "kind": "Other"});
        let resources = of_resource_list(list.to_string().as_bytes()).unwrap();
        let expected = json!([
            {
                "resource": "pods", "scope": "Namespaced", "singularResource": "pod", "verbs": ["get"],
                "responseKind": pod, "shortNames": ["po"],
                "subresources": [{"subresource": "scale", "responseKind": scale, "verbs": ["get"]}],
            },
            {
                "resource": "others", "scope": "Cluster", "singularResource": "", "verbs": [],
                "subresources": [{"subresource": "status", "responseKind": other, "verbs": ["update"]}],
            },
        ]);
        assert_eq!(holdfast_value::to_value(resources).unwrap(), expected);
    }

    #[test]
    fn openapi_takes_what_belongs_to_the_version() {
        let to = |name: &str| json!({"$ref": format!("#/definitions/{name}")});
        let own = json!({
            "paths": {"/api/": {}}, "parameters": {"own": {"in": "path"}},
            "definitions": {"Meta": {"type": "object"}, "Same": {"type": "string"}},
        });
        let theirs = json!({
            "paths": {
                "/apis/a.io/v1/things": {"get": to("Thing"), "parameters": [{"$ref": "#/parameters/own"}]},
                "/apis/a.io/v10/": {}, "/version": to("Version"),
            },
            "parameters": {"own": {"in": "query"}, "other": {}},
            "definitions": {
                "Thing": {"properties": {"metadata": to("Meta"), "same": to("Same"), "self": to("Thing")}},
                "Meta": {"type": "array"}, "Same": {"type": "string"}, "Version": {},
            },
        });
        let served = GroupVersion::new("a.io", "v1");
        let merged = openapi_v2(own, [&openapi_v2_part(&theirs, &served)]);
        let item = json!({"get": to("Thing"), "parameters": [{"$ref": "#/parameters/own_v2"}]});
        assert_eq!(merged["paths"], json!({"/api/": {}, "/apis/a.io/v1/things": item}));
        assert_eq!(merged["parameters"], json!({"own": {"in": "path"}, "own_v2": {"in": "query"}}));
        let expected = json!({
            "Meta": {"type": "object"}, "Meta_v2": {"type": "array"}, "Same": {"type": "string"},
            "Thing": {"properties": {"metadata": to("Meta_v2"), "same": to("Same"), "self": to("Thing")}},
        });
        assert_eq!(merged["definitions"], expected);
        let index = openapi_v3_index(json!({"paths": {}}), [(&served, "X")]);
        let url = "/openapi/v3/apis/a.io/v1?hash=X";
        assert_eq!(index, json!({"paths": {"apis/a.io/v1": {"serverRelativeURL": url}}}));
    }
}
