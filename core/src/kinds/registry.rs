//! All served kinds, and how requests find them.
//!
//! [`registry`] contains the built-in kinds. The state starts with it and adds a kind for each
//! CustomResourceDefinition. A clone shares all data with the original. A change of a kind copies the data of its
//! group, and little else.

use super::{Deprecation, Kind, Known, Version, groups, known};
use imbl::{OrdMap, OrdSet, Vector};
use std::cmp::{Ordering, Reverse};
use std::sync::{Arc, LazyLock};

/// The built-in kinds.
pub fn registry() -> &'static Registry {
    static BUILT_IN: LazyLock<Registry> = LazyLock::new(built_in);
    &BUILT_IN
}

/// Identifies one definition of a kind, in a [`Registry`] and in registries derived from it. A number is never reused.
/// A changed definition gives its kind a new number, so that holders of the old number notice the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindId(pub u32);

#[derive(Clone, Default)]
pub struct Registry {
    /// All kinds that were ever added, indexed by [`KindId`].
    kinds: Vector<Slot>,
    groups: OrdMap<Arc<str>, Arc<Group>>,
    by_storage: OrdMap<Arc<str>, KindId>,
    /// The kinds that were removed last, with the oldest removal first.
    retired: Vector<KindId>,
    revision: u64,
    /// Versions of kinds that clients are not offered. The server itself still finds these versions.
    withheld: OrdSet<(KindId, usize)>,
    /// The older minor release that the server emulates, if any.
    release: Option<u32>,
}

/// The number of removed kinds that can still be read by their numbers.
const RETIRED_MAX: usize = 1024;

/// The served versions of one group.
#[derive(Clone)]
pub struct Group {
    name: Arc<str>,
    /// The versions, with the preferred version first.
    versions: Vec<ServedVersion>,
    /// A number that changes with each change in the group.
    pub revision: u64,
}

/// The served kinds of one version of a group.
#[derive(Clone)]
struct ServedVersion {
    name: String,
    /// The kinds, ordered by plural name.
    by_resource: Vec<Name>,
    /// The kinds, ordered by the kind's name.
    by_kind: Vec<Name>,
}

/// One group of the API with its versions, the preferred version first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupVersions {
    pub group: String,
    pub versions: Vec<String>,
    /// The value of [`Group::revision`].
    pub revision: u64,
}

#[derive(Clone)]
struct Slot {
    kind: Arc<Kind>,
    /// Whether the kind is served: false after its removal. Its number is not reused.
    served: bool,
}

#[derive(Clone)]
struct Name {
    name: String,
    id: KindId,
    /// The index into the kind's versions.
    version_index: usize,
}

impl Registry {
    /// The kind and version of a resource path.
    pub fn find(&self, group: &str, version: &str, resource: &str) -> Option<(KindId, usize)> {
        find(&self.version(group, version)?.by_resource, resource)
    }

    /// The kind and version of a document.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<(KindId, usize)> {
        find(&self.version(group, version)?.by_kind, kind)
    }

    fn version(&self, group: &str, version: &str) -> Option<&ServedVersion> {
        self.groups.get(group)?.versions.iter().find(|served| served.name == version)
    }

    /// The kind with a storage path: `services/specs`.
    pub fn by_storage(&self, storage: &str) -> Option<KindId> {
        self.by_storage.get(storage).copied()
    }

    /// A kind that the server itself needs; `None` if the registry of a test lacks the kind.
    pub fn known(&self, known: Known) -> Option<(KindId, usize)> {
        self.find(known.group, known.version, known.resource)
    }

    /// The kind Namespace.
    pub fn namespaces(&self) -> KindId {
        static BUILT_IN: LazyLock<KindId> = LazyLock::new(|| {
            registry().known(known::NAMESPACE).expect("every registry starts from the built-in kinds").0
        });
        *BUILT_IN
    }

    /// The kind ResourceQuota, which limits what namespaces store.
    pub fn quotas(&self) -> KindId {
        static BUILT_IN: LazyLock<KindId> = LazyLock::new(|| {
            registry().known(known::RESOURCE_QUOTA).expect("every registry starts from the built-in kinds").0
        });
        *BUILT_IN
    }

    /// The kind CustomResourceDefinition; `None` if the registry of a test lacks it.
    pub fn definitions(&self) -> Option<KindId> {
        self.by_storage(super::apiextensions::STORAGE)
    }

    /// The kind with this number. A recently removed kind is still found.
    pub fn get(&self, id: KindId) -> &Kind {
        &self.kinds[id.0 as usize].kind
    }

    /// Like [`Self::get`], for callers that keep the kind longer than the registry.
    pub fn share(&self, id: KindId) -> Arc<Kind> {
        Arc::clone(&self.kinds[id.0 as usize].kind)
    }

    /// Whether a kind with this number is served now. A number from a newer registry is not served.
    pub fn serves(&self, id: KindId) -> bool {
        self.kinds.get(id.0 as usize).is_some_and(|slot| slot.served)
    }

    /// A number that changes whenever a kind is added, removed or changed.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The served kinds, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (KindId, &Kind)> {
        let numbered = (0u32..).zip(&self.kinds);
        numbered.filter(|(_, slot)| slot.served).map(|(number, slot)| (KindId(number), &*slot.kind))
    }

    /// The kinds of one group version, ordered by plural name.
    pub fn served(&self, group: &str, version: &str) -> impl Iterator<Item = (KindId, usize)> {
        let names = self.version(group, version).map(|version| version.by_resource.as_slice());
        let named = names.unwrap_or_default().iter().map(|name| (name.id, name.version_index));
        named.filter(|(id, version)| self.offers(*id, *version))
    }

    /// The groups in discovery order, each with its preferred version first.
    pub fn groups(&self) -> Vec<GroupVersions> {
        let mut groups: Vec<GroupVersions> = self.groups.values().filter_map(|group| self.summary(group)).collect();
        // All custom groups have the same rank, so they are ordered by name.
        groups.sort_by_cached_key(|group| (groups::rank(&group.group), group.group.clone()));
        groups
    }

    /// The group with this name, with its versions.
    pub fn group(&self, name: &str) -> Option<GroupVersions> {
        self.groups.get(name).and_then(|group| self.summary(group))
    }

    fn summary(&self, group: &Group) -> Option<GroupVersions> {
        let is_offered = |served: &&ServedVersion| {
            self.withheld.is_empty() || served.by_resource.iter().any(|name| self.offers(name.id, name.version_index))
        };
        let versions: Vec<String> =
            group.versions.iter().filter(is_offered).map(|served| served.name.clone()).collect();
        let summary = GroupVersions { group: group.name.to_string(), versions, revision: group.revision };
        (!summary.versions.is_empty()).then_some(summary)
    }

    /// Whether clients are offered a version of a kind.
    pub fn offers(&self, id: KindId, version: usize) -> bool {
        self.withheld.is_empty() || !self.withheld.contains(&(id, version))
    }

    /// The deprecation warning for this version of a kind, if the emulated release sends it.
    pub fn warning(&self, kind: &Kind, version: usize) -> Option<String> {
        let version = &kind.versions[version];
        let knows = |release| match version.deprecation {
            Some(deprecation) => deprecation.is_told_by(release),
            None => release >= Deprecation::TOLD_SINCE,
        };
        self.release.is_none_or(knows).then(|| version.warning(&kind.kind)).flatten()
    }

    /// Emulates a minor release: withholds versions that the release does not offer.
    pub(super) fn offer(&mut self, release: u32, offers: impl Fn(&Kind, &Version) -> bool) {
        self.release = Some(release);
        let mut withheld = OrdSet::new();
        for (id, kind) in self.iter() {
            let versions = kind.versions.iter().enumerate().filter(|(_, version)| !offers(kind, version));
            withheld.extend(versions.map(|(index, _)| (id, index)));
        }
        self.withheld = withheld;
    }

    /// Adds a kind. If an earlier kind has one of the new kind's names, the earlier kind keeps the name.
    pub fn add(&mut self, kind: Kind) -> KindId {
        let id = KindId(u32::try_from(self.kinds.len()).expect("fewer kinds than 2^32"));
        self.kinds.push_back(Slot { kind: Arc::new(kind), served: true });
        self.enter_names(id);
        id
    }

    /// Replaces a kind by a changed kind, which gets a new number.
    pub fn replace(&mut self, id: KindId, kind: Kind) -> KindId {
        self.remove(id);
        self.add(kind)
    }

    pub fn remove(&mut self, id: KindId) {
        let kind = self.share(id);
        self.revision += 1;
        let revision = self.revision;
        for version in &kind.versions {
            let Some(group) = self.groups.get_mut(version.group.as_str()) else { continue };
            let group = Arc::make_mut(group);
            group.revision = revision;
            for served in &mut group.versions {
                served.by_resource.retain(|name| name.id != id);
                served.by_kind.retain(|name| name.id != id);
            }
            group.versions.retain(|served| !served.by_resource.is_empty());
            if group.versions.is_empty() {
                self.groups.remove(version.group.as_str());
            }
        }
        if self.by_storage(&kind.storage.path) == Some(id) {
            self.by_storage.remove(kind.storage.path.as_str());
        }
        self.kinds[id.0 as usize] = Slot { kind: Arc::new(kind.retired()), served: false };
        self.retired.push_back(id);
        if self.retired.len() > RETIRED_MAX
            && let Some(oldest) = self.retired.pop_front()
        {
            self.kinds[oldest.0 as usize].kind = Kind::gone();
        }
    }

    fn enter_names(&mut self, id: KindId) {
        let kind = self.share(id);
        self.revision += 1;
        let revision = self.revision;
        for (version_index, Version { group, version, .. }) in kind.versions.iter().enumerate() {
            if !kind.versions[version_index].is_served() {
                continue;
            }
            let named = |name: &String| Name { name: name.clone(), id, version_index };
            let name: Arc<str> = group.as_str().into();
            let entry = self.groups.entry(name.clone());
            let group = entry.or_insert_with(|| Arc::new(Group { name, versions: Vec::new(), revision }));
            let group = Arc::make_mut(group);
            group.revision = revision;
            let served = group.version_mut(version);
            enter(&mut served.by_resource, named(&kind.resource));
            enter(&mut served.by_kind, named(&kind.kind));
        }
        if kind.stored && self.by_storage(&kind.storage.path).is_none() {
            self.by_storage.insert(kind.storage.path.as_str().into(), id);
        }
    }
}

impl Group {
    fn version_mut(&mut self, name: &str) -> &mut ServedVersion {
        let place = self.versions.binary_search_by(|served| compare_versions(&served.name, name));
        let place = place.unwrap_or_else(|place| {
            let served = ServedVersion { name: name.to_owned(), by_resource: Vec::new(), by_kind: Vec::new() };
            self.versions.insert(place, served);
            place
        });
        &mut self.versions[place]
    }
}

fn find(names: &[Name], name: &str) -> Option<(KindId, usize)> {
    let found = names.binary_search_by(|entry| entry.name.as_str().cmp(name)).ok()?;
    Some((names[found].id, names[found].version_index))
}

fn enter(names: &mut Vec<Name>, name: Name) {
    if let Err(place) = names.binary_search_by(|entry| entry.name.cmp(&name.name)) {
        names.insert(place, name);
    }
}

/// Orders versions as Kubernetes does, best first: stable, beta, alpha, then by descending number. Names that are not
/// versions come last, alphabetically.
pub(crate) fn compare_versions(a: &str, b: &str) -> Ordering {
    match (version_rank(a), version_rank(b)) {
        (Some(a), Some(b)) => Reverse(a).cmp(&Reverse(b)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Stage (2 stable, 1 beta, 0 alpha), major and minor number of `v1`, `v2beta1`, `v1alpha3`.
fn version_rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest[..digits].parse().ok()?;
    let rest = &rest[digits..];
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    let (stage, minor) = match rest.strip_prefix("beta") {
        Some(minor) => (1, minor),
        None => (0, rest.strip_prefix("alpha")?),
    };
    if !minor.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((stage, major, minor.parse().ok()?))
}

fn built_in() -> Registry {
    let mut registry = Registry::default();
    for kind in groups::GROUPS.iter().flat_map(|group| (group.kinds)()) {
        registry.add(kind);
    }
    registry
}

#[cfg(test)]
mod tests {
    use super::super::{Read, Scope};
    use super::*;

    #[test]
    fn every_resource_of_the_published_api_is_found() {
        for line in PUBLISHED.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split(' ').collect();
            let [group, version, kind, resource, scope, message] = words[..] else { panic!("{line}") };
            let group = if group == "-" { "" } else { group };
            let (id, index) = registry().find(group, version, resource).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(registry().find_kind(group, version, kind), Some((id, index)), "{line}");
            let found = registry().get(id);
            assert_eq!(found.versions[index].message, format!("io.k8s.{message}"));
            assert_eq!(found.scope == Scope::Namespaced, scope == "namespaced", "{line}");
        }
    }

    #[test]
    fn older_versions_share_the_object_of_the_newest() {
        for (group, version, resource, hub) in [
            ("extensions", "v1beta1", "deployments", "apps/v1"),
            ("extensions", "v1beta1", "daemonsets", "apps/v1"),
            ("extensions", "v1beta1", "replicasets", "apps/v1"),
            ("extensions", "v1beta1", "ingresses", "networking.k8s.io/v1"),
            ("extensions", "v1beta1", "networkpolicies", "networking.k8s.io/v1"),
            ("apps", "v1beta1", "statefulsets", "apps/v1"),
            ("batch", "v2alpha1", "cronjobs", "batch/v1"),
            ("events.k8s.io", "v1beta1", "events", "v1"),
            ("autoscaling", "v1", "horizontalpodautoscalers", "autoscaling/v2"),
            ("apiextensions.k8s.io", "v1beta1", "customresourcedefinitions", "apiextensions.k8s.io/v1"),
            ("rbac.authorization.k8s.io", "v1alpha1", "roles", "rbac.authorization.k8s.io/v1"),
        ] {
            let (id, index) = registry().find(group, version, resource).expect(resource);
            let kind = registry().get(id);
            assert_eq!(kind.hub().api_version(), hub);
            assert_eq!((kind.versions[index].group.as_str(), kind.versions[index].version.as_str()), (group, version));
        }
    }

    #[test]
    fn no_two_kinds_share_a_name_or_a_place_in_storage() {
        let stored = registry().iter().filter(|(_, kind)| kind.stored);
        stored.for_each(|(id, kind)| assert_eq!(registry().by_storage(&kind.storage.path), Some(id), "{}", kind.kind));
        let names: usize = registry().iter().map(|(_, kind)| kind.versions.len()).sum();
        let versions = || registry().groups.values().flat_map(|group| &group.versions);
        assert_eq!(versions().map(|version| version.by_resource.len()).sum::<usize>(), names);
        assert_eq!(versions().map(|version| version.by_kind.len()).sum::<usize>(), names);
    }

    #[test]
    fn only_old_versions_leave_what_an_object_owns() {
        for (group, version, resource, expected) in [
            ("apps", "v1", "deployments", false),
            ("extensions", "v1beta1", "deployments", true),
            ("batch", "v1", "jobs", true),
            ("batch", "v1", "cronjobs", false),
            ("", "v1", "replicationcontrollers", true),
        ] {
            let (id, index) = registry().find(group, version, resource).expect(resource);
            let kind = registry().get(id);
            assert_eq!(kind.versions[index].orphans_dependents, expected, "{resource}");
        }
    }

    #[test]
    fn an_event_is_selected_by_the_names_of_the_group() {
        let (id, _) = registry().find("events.k8s.io", "v1", "events").expect("events");
        let kind = registry().get(id);
        let event =
            holdfast_value::json!({ "involvedObject": { "name": "web" }, "source": { "component": "kubelet" } });
        for (group, field, expected) in [
            ("", "involvedObject.name", Some("web")),
            ("", "source", Some("kubelet")),
            ("", "regarding.name", None),
            ("events.k8s.io", "regarding.name", Some("web")),
            ("events.k8s.io", "involvedObject.name", None),
            ("events.k8s.io", "reason", Some("")),
        ] {
            let version = kind.versions.iter().position(|version| version.group == group).expect("a version");
            let found = kind.selectable_in(version, field).map(|index| kind.selectors.fields[index].read.of(&event));
            assert_eq!(found.as_deref(), expected, "{group} {field}");
        }
    }

    /// Loading the log parses only the indexed fields of a kind, so these must include all fields that selectors read.
    #[test]
    fn a_start_reads_all_that_selectors_look_at() {
        use holdfast_value::{Value, json};
        fn put(document: &mut Value, path: &[&str], text: &str) {
            match path {
                [last] => document[*last] = text.into(),
                [first, rest @ ..] => put(&mut document[*first], rest, text),
                [] => {}
            }
        }
        let mut seen = 0;
        for kind in registry().iter().map(|(_, kind)| kind) {
            let mut document = json!({"metadata": {"labels": {"app": "web"}, "name": "a"}});
            // Functions compute some selectable fields of these kinds, so the fields that the functions read are set.
            match kind.kind.as_str() {
                "Pod" => document["status"] = json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.2"}]}),
                "Event" => document["source"] = json!({"component": "kubelet"}),
                _ => {}
            }
            for field in &kind.selectors.fields {
                if let Read::At { path, .. } = &field.read {
                    let path: Vec<&str> = path.iter().map(String::as_str).collect();
                    put(&mut document, &path, &format!("at {}", path.join(".")));
                }
            }
            let glanced = kind.selectors.indexed.look(document.to_string().as_bytes()).document;
            assert_eq!(glanced["metadata"]["labels"], document["metadata"]["labels"], "{}", kind.kind);
            for field in &kind.selectors.fields {
                let text = field.read.of(&document);
                assert_eq!(field.read.of(&glanced), text, "{} {}", kind.kind, field.field);
                seen += usize::from(!text.is_empty());
            }
            if kind.claims.are_possible() {
                assert_eq!(glanced, document, "{}: claims may look at all of it", kind.kind);
            }
        }
        assert!(seen > 40, "{seen}");
    }

    #[test]
    fn what_is_not_served_is_not_found() {
        for (group, version, resource) in
            [("", "v1", "scales"), ("apps", "v2", "deployments"), ("admission.k8s.io", "v1", "admissionreviews")]
        {
            assert_eq!(registry().find(group, version, resource), None);
        }
    }

    #[test]
    fn groups_come_in_the_order_of_discovery() {
        let served = registry().groups();
        let line = |g: &GroupVersions| format!("{}: {}", g.group, g.versions.join(" "));
        let shown: Vec<String> = served.iter().map(line).collect();
        assert_eq!(
            shown[..4],
            [": v1", "apiregistration.k8s.io: v1 v1beta1", "apps: v1 v1beta2 v1beta1", "events.k8s.io: v1 v1beta1"]
        );
        assert_eq!(shown[6], "autoscaling: v2 v1 v2beta2 v2beta1");
        assert_eq!(shown.last().expect("groups"), "extensions: v1beta1");
        assert_eq!(served.len(), groups::GROUPS.len());
    }

    #[test]
    fn versions_are_ordered_by_maturity_and_number() {
        let mut versions = ["v1alpha1", "foo", "v1", "v11beta2", "v10", "v1beta1", "v2", "v11alpha2", "v3beta1", "bar"];
        versions.sort_by(|a, b| compare_versions(a, b));
        let expected = ["v10", "v2", "v1", "v11beta2", "v3beta1", "v1beta1", "v11alpha2", "v1alpha1", "bar", "foo"];
        assert_eq!(versions, expected);
    }

    #[test]
    fn kinds_come_and_go_at_run_time() {
        let mut registry = registry().clone();
        let widget =
            || Kind::namespaced("Widget", "widgets").versions("example.com", "com.example", ["v1", "v1alpha1"]);
        let id = registry.add(widget());
        assert_eq!(registry.find("example.com", "v1alpha1", "widgets"), Some((id, 1)));
        assert_eq!(registry.find_kind("example.com", "v1", "Widget"), Some((id, 0)));
        assert_eq!(registry.served("example.com", "v1").collect::<Vec<_>>(), [(id, 0)]);
        assert_eq!(registry.by_storage("widgets"), Some(id));
        // Custom groups come before `extensions`, which is always last.
        assert_eq!(registry.groups()[registry.groups().len() - 2].group, "example.com");

        let smaller = Kind::namespaced("Widget", "widgets").versions("example.com", "com.example", ["v1"]);
        let before = (id, registry.revision());
        let id = registry.replace(id, smaller);
        assert_eq!(registry.find("example.com", "v1alpha1", "widgets"), None);
        assert!(id != before.0 && !registry.serves(before.0) && registry.serves(id) && registry.revision() > before.1);
        assert_eq!(registry.group("example.com").expect("the group").revision, registry.revision());

        registry.remove(id);
        assert_eq!(registry.find("example.com", "v1", "widgets"), None);
        assert!(registry.iter().all(|(_, kind)| kind.kind != "Widget"));
        assert_eq!(registry.by_storage("widgets"), None);
        assert_eq!(registry.get(id).kind, "Widget");
        assert_ne!(registry.add(widget()), id);
    }

    /// Group, version, kind, plural name, scope and message of every resource of Kubernetes 1.35.
    const PUBLISHED: &str = "
        - v1 Binding bindings namespaced api.core.v1.Binding
        - v1 ComponentStatus componentstatuses cluster api.core.v1.ComponentStatus
        - v1 ConfigMap configmaps namespaced api.core.v1.ConfigMap
        - v1 Endpoints endpoints namespaced api.core.v1.Endpoints
        - v1 Event events namespaced api.core.v1.Event
        - v1 LimitRange limitranges namespaced api.core.v1.LimitRange
        - v1 Namespace namespaces cluster api.core.v1.Namespace
        - v1 Node nodes cluster api.core.v1.Node
        - v1 PersistentVolume persistentvolumes cluster api.core.v1.PersistentVolume
        - v1 PersistentVolumeClaim persistentvolumeclaims namespaced api.core.v1.PersistentVolumeClaim
        - v1 Pod pods namespaced api.core.v1.Pod
        - v1 PodTemplate podtemplates namespaced api.core.v1.PodTemplate
        - v1 ReplicationController replicationcontrollers namespaced api.core.v1.ReplicationController
        - v1 ResourceQuota resourcequotas namespaced api.core.v1.ResourceQuota
        - v1 Secret secrets namespaced api.core.v1.Secret
        - v1 Service services namespaced api.core.v1.Service
        - v1 ServiceAccount serviceaccounts namespaced api.core.v1.ServiceAccount
        admissionregistration.k8s.io v1 MutatingWebhookConfiguration mutatingwebhookconfigurations cluster api.admissionregistration.v1.MutatingWebhookConfiguration
        admissionregistration.k8s.io v1 ValidatingAdmissionPolicy validatingadmissionpolicies cluster api.admissionregistration.v1.ValidatingAdmissionPolicy
        admissionregistration.k8s.io v1 ValidatingAdmissionPolicyBinding validatingadmissionpolicybindings cluster api.admissionregistration.v1.ValidatingAdmissionPolicyBinding
        admissionregistration.k8s.io v1 ValidatingWebhookConfiguration validatingwebhookconfigurations cluster api.admissionregistration.v1.ValidatingWebhookConfiguration
        admissionregistration.k8s.io v1alpha1 MutatingAdmissionPolicy mutatingadmissionpolicies cluster api.admissionregistration.v1alpha1.MutatingAdmissionPolicy
        admissionregistration.k8s.io v1alpha1 MutatingAdmissionPolicyBinding mutatingadmissionpolicybindings cluster api.admissionregistration.v1alpha1.MutatingAdmissionPolicyBinding
        admissionregistration.k8s.io v1beta1 MutatingAdmissionPolicy mutatingadmissionpolicies cluster api.admissionregistration.v1beta1.MutatingAdmissionPolicy
        admissionregistration.k8s.io v1beta1 MutatingAdmissionPolicyBinding mutatingadmissionpolicybindings cluster api.admissionregistration.v1beta1.MutatingAdmissionPolicyBinding
        apiextensions.k8s.io v1 CustomResourceDefinition customresourcedefinitions cluster apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition
        apiregistration.k8s.io v1 APIService apiservices cluster kube-aggregator.pkg.apis.apiregistration.v1.APIService
        apps v1 ControllerRevision controllerrevisions namespaced api.apps.v1.ControllerRevision
        apps v1 DaemonSet daemonsets namespaced api.apps.v1.DaemonSet
        apps v1 Deployment deployments namespaced api.apps.v1.Deployment
        apps v1 ReplicaSet replicasets namespaced api.apps.v1.ReplicaSet
        apps v1 StatefulSet statefulsets namespaced api.apps.v1.StatefulSet
        authentication.k8s.io v1 SelfSubjectReview selfsubjectreviews cluster api.authentication.v1.SelfSubjectReview
        authentication.k8s.io v1 TokenReview tokenreviews cluster api.authentication.v1.TokenReview
        authorization.k8s.io v1 LocalSubjectAccessReview localsubjectaccessreviews namespaced api.authorization.v1.LocalSubjectAccessReview
        authorization.k8s.io v1 SelfSubjectAccessReview selfsubjectaccessreviews cluster api.authorization.v1.SelfSubjectAccessReview
        authorization.k8s.io v1 SelfSubjectRulesReview selfsubjectrulesreviews cluster api.authorization.v1.SelfSubjectRulesReview
        authorization.k8s.io v1 SubjectAccessReview subjectaccessreviews cluster api.authorization.v1.SubjectAccessReview
        autoscaling v1 HorizontalPodAutoscaler horizontalpodautoscalers namespaced api.autoscaling.v1.HorizontalPodAutoscaler
        autoscaling v2 HorizontalPodAutoscaler horizontalpodautoscalers namespaced api.autoscaling.v2.HorizontalPodAutoscaler
        batch v1 CronJob cronjobs namespaced api.batch.v1.CronJob
        batch v1 Job jobs namespaced api.batch.v1.Job
        certificates.k8s.io v1 CertificateSigningRequest certificatesigningrequests cluster api.certificates.v1.CertificateSigningRequest
        certificates.k8s.io v1alpha1 ClusterTrustBundle clustertrustbundles cluster api.certificates.v1alpha1.ClusterTrustBundle
        certificates.k8s.io v1beta1 ClusterTrustBundle clustertrustbundles cluster api.certificates.v1beta1.ClusterTrustBundle
        certificates.k8s.io v1beta1 PodCertificateRequest podcertificaterequests namespaced api.certificates.v1beta1.PodCertificateRequest
        coordination.k8s.io v1 Lease leases namespaced api.coordination.v1.Lease
        coordination.k8s.io v1alpha2 LeaseCandidate leasecandidates namespaced api.coordination.v1alpha2.LeaseCandidate
        coordination.k8s.io v1beta1 LeaseCandidate leasecandidates namespaced api.coordination.v1beta1.LeaseCandidate
        discovery.k8s.io v1 EndpointSlice endpointslices namespaced api.discovery.v1.EndpointSlice
        events.k8s.io v1 Event events namespaced api.events.v1.Event
        flowcontrol.apiserver.k8s.io v1 FlowSchema flowschemas cluster api.flowcontrol.v1.FlowSchema
        flowcontrol.apiserver.k8s.io v1 PriorityLevelConfiguration prioritylevelconfigurations cluster api.flowcontrol.v1.PriorityLevelConfiguration
        internal.apiserver.k8s.io v1alpha1 StorageVersion storageversions cluster api.apiserverinternal.v1alpha1.StorageVersion
        networking.k8s.io v1 IPAddress ipaddresses cluster api.networking.v1.IPAddress
        networking.k8s.io v1 Ingress ingresses namespaced api.networking.v1.Ingress
        networking.k8s.io v1 IngressClass ingressclasses cluster api.networking.v1.IngressClass
        networking.k8s.io v1 NetworkPolicy networkpolicies namespaced api.networking.v1.NetworkPolicy
        networking.k8s.io v1 ServiceCIDR servicecidrs cluster api.networking.v1.ServiceCIDR
        networking.k8s.io v1beta1 IPAddress ipaddresses cluster api.networking.v1beta1.IPAddress
        networking.k8s.io v1beta1 ServiceCIDR servicecidrs cluster api.networking.v1beta1.ServiceCIDR
        node.k8s.io v1 RuntimeClass runtimeclasses cluster api.node.v1.RuntimeClass
        policy v1 PodDisruptionBudget poddisruptionbudgets namespaced api.policy.v1.PodDisruptionBudget
        rbac.authorization.k8s.io v1 ClusterRole clusterroles cluster api.rbac.v1.ClusterRole
        rbac.authorization.k8s.io v1 ClusterRoleBinding clusterrolebindings cluster api.rbac.v1.ClusterRoleBinding
        rbac.authorization.k8s.io v1 Role roles namespaced api.rbac.v1.Role
        rbac.authorization.k8s.io v1 RoleBinding rolebindings namespaced api.rbac.v1.RoleBinding
        resource.k8s.io v1 DeviceClass deviceclasses cluster api.resource.v1.DeviceClass
        resource.k8s.io v1 ResourceClaim resourceclaims namespaced api.resource.v1.ResourceClaim
        resource.k8s.io v1 ResourceClaimTemplate resourceclaimtemplates namespaced api.resource.v1.ResourceClaimTemplate
        resource.k8s.io v1 ResourceSlice resourceslices cluster api.resource.v1.ResourceSlice
        resource.k8s.io v1alpha3 DeviceTaintRule devicetaintrules cluster api.resource.v1alpha3.DeviceTaintRule
        resource.k8s.io v1beta1 DeviceClass deviceclasses cluster api.resource.v1beta1.DeviceClass
        resource.k8s.io v1beta1 ResourceClaim resourceclaims namespaced api.resource.v1beta1.ResourceClaim
        resource.k8s.io v1beta1 ResourceClaimTemplate resourceclaimtemplates namespaced api.resource.v1beta1.ResourceClaimTemplate
        resource.k8s.io v1beta1 ResourceSlice resourceslices cluster api.resource.v1beta1.ResourceSlice
        resource.k8s.io v1beta2 DeviceClass deviceclasses cluster api.resource.v1beta2.DeviceClass
        resource.k8s.io v1beta2 ResourceClaim resourceclaims namespaced api.resource.v1beta2.ResourceClaim
        resource.k8s.io v1beta2 ResourceClaimTemplate resourceclaimtemplates namespaced api.resource.v1beta2.ResourceClaimTemplate
        resource.k8s.io v1beta2 ResourceSlice resourceslices cluster api.resource.v1beta2.ResourceSlice
        scheduling.k8s.io v1 PriorityClass priorityclasses cluster api.scheduling.v1.PriorityClass
        scheduling.k8s.io v1alpha1 Workload workloads namespaced api.scheduling.v1alpha1.Workload
        storage.k8s.io v1 CSIDriver csidrivers cluster api.storage.v1.CSIDriver
        storage.k8s.io v1 CSINode csinodes cluster api.storage.v1.CSINode
        storage.k8s.io v1 CSIStorageCapacity csistoragecapacities namespaced api.storage.v1.CSIStorageCapacity
        storage.k8s.io v1 StorageClass storageclasses cluster api.storage.v1.StorageClass
        storage.k8s.io v1 VolumeAttachment volumeattachments cluster api.storage.v1.VolumeAttachment
        storage.k8s.io v1 VolumeAttributesClass volumeattributesclasses cluster api.storage.v1.VolumeAttributesClass
        storage.k8s.io v1beta1 VolumeAttributesClass volumeattributesclasses cluster api.storage.v1beta1.VolumeAttributesClass
        storagemigration.k8s.io v1beta1 StorageVersionMigration storageversionmigrations cluster api.storagemigration.v1beta1.StorageVersionMigration
    ";
}
