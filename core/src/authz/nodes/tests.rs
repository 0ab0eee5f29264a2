//! Tests of the Node authorizer. Each row has one request and its expected decision. The graph is compared with a naive
//! implementation that walks the whole cluster for each answer.

use super::*;
use crate::authz::Selected;
use holdfast_value::{Value, json};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn pod(name: &str, node: &str, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec});
    if !node.is_empty() {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}

fn graph() -> NodeGraph {
    let mut graph = NodeGraph::default();
    let spec = json!({
        "serviceAccountName": "account",
        "imagePullSecrets": [{"name": "pull"}],
        "containers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "env"}}}], "envFrom": [{"secretRef": {"name": "from"}}]}],
        "initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "init"}}}]}],
        "ephemeralContainers": [{"envFrom": [{"configMapRef": {"name": "debug"}}]}],
        "resourceClaims": [{"name": "r", "resourceClaimName": "device"}, {"name": "t", "resourceClaimTemplateName": "x"}],
        "volumes": [
            {"name": "s", "secret": {"secretName": "volume"}},
            {"name": "c", "configMap": {"name": "files"}},
            {"name": "m", "persistentVolumeClaim": {"claimName": "claim"}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "d", "csi": {"nodePublishSecretRef": {"name": "publish"}}},
            {"name": "p", "projected": {"sources": [{"secret": {"name": "projected"}}, {"configMap": {"name": "shown"}}]}},
        ],
    });
    let mut first = pod("web", "one", spec);
    first["status"] = json!({"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "made"}]});
    graph.note(Relation::Pod, "n/web", None, Some(&first));
    let other = json!({"serviceAccountName": "other", "volumes": [{"secret": {"secretName": "theirs"}}]});
    graph.note(Relation::Pod, "n/other", None, Some(&pod("other", "two", other.clone())));
    graph.note(Relation::Pod, "n/waiting", None, Some(&pod("waiting", "", other.clone())));
    let mut mirror = pod("mirror", "one", other);
    mirror["metadata"]["annotations"] = json!({(references::MIRROR): "x"});
    graph.note(Relation::Pod, "n/mirror", None, Some(&mirror));
    let secret = |name: &str| json!({"name": name, "namespace": "storage"});
    let volume = json!({"spec": {
        "claimRef": {"namespace": "n", "name": "claim"},
        "csi": {"nodeStageSecretRef": secret("stage"), "controllerPublishSecretRef": secret("controller")},
        "azureFile": {"secretName": "azure"},
    }});
    graph.note(Relation::Volume, "volume", None, Some(&volume));
    let attachment = json!({"spec": {"nodeName": "one"}});
    graph.note(Relation::Named(Object::Attachment), "attached", None, Some(&attachment));
    graph.note(Relation::Named(Object::Slice), "devices", None, Some(&attachment));
    graph.note(Relation::Named(Object::CertificateRequest), "n/request", None, Some(&attachment));
    graph
}

const NONE: &str = "no relationship found between node 'one' and this object";

#[test]
fn a_node_does_what_its_pods_need() {
    let graph = graph();
    let node = User::new("system:node:one", &["system:nodes", "system:authenticated"]);
    let mine = Selected::parse("spec.nodeName=one", "");
    let theirs = Selected::parse("spec.nodeName=two", "");
    let check = |row: &str, selected: Option<&Selected>, expected: Result<(), &str>| {
        let [verb, group, resource, subresource, namespace, name] = row.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{row} has six words")
        };
        let word = |word: &'static str| if word == "-" { "" } else { word };
        let row: &'static str = Box::leak(row.to_owned().into_boxed_str());
        let words: Vec<&'static str> = row.split(' ').map(word).collect();
        let _ = (verb, group, resource, subresource, namespace, name);
        let target = ResourceTarget {
            group: words[1],
            resource: words[2],
            subresource: words[3],
            namespace: words[4],
            name: words[5],
            selected,
            version: "v1",
        };
        let verdict = authorize(Some(&graph), &node, &Attributes::resource(words[0], target));
        let found = if verdict.is_allowed() { Ok(()) } else { Err(verdict.reason()) };
        assert_eq!(found, expected, "{row}");
    };
    for name in ["pull", "from", "init", "volume", "publish", "projected", "azure"] {
        check(&format!("get - secrets - n {name}"), None, Ok(()));
        check(&format!("watch - secrets - n {name}"), None, Ok(()));
    }
    check("get - secrets - storage stage", None, Ok(()));
    for name in ["env", "debug", "files", "shown"] {
        check(&format!("list - configmaps - n {name}"), None, Ok(()));
    }
    for row in [
        "get - persistentvolumeclaims - n claim",
        "patch - persistentvolumeclaims status n claim",
        "get - persistentvolumeclaims - n web-e",
        "get - persistentvolumes - - volume",
        "get resource.k8s.io resourceclaims - n device",
        "get resource.k8s.io resourceclaims - n made",
        "get storage.k8s.io volumeattachments - - attached",
        "create - serviceaccounts token n account",
        "get - serviceaccounts - n account",
        "get - pods - n web",
        "get - pods - n mirror",
        "list - pods - n web",
        "create - pods - n -",
        "delete - pods - n other",
        "patch - pods status n other",
        "create - pods eviction n other",
        "create - nodes - - -",
        "get - nodes - - one",
        "watch - nodes - - one",
        "patch - nodes status - two",
        "create coordination.k8s.io leases - kube-node-lease -",
        "update coordination.k8s.io leases - kube-node-lease one",
        "delete storage.k8s.io csinodes - - one",
        "create resource.k8s.io resourceslices - - -",
        "update resource.k8s.io resourceslices - - devices",
        "create certificates.k8s.io podcertificaterequests - n -",
        "get certificates.k8s.io podcertificaterequests - n request",
        "list - services - - -",
        "get - endpoints - n x",
        "create authorization.k8s.io subjectaccessreviews - - -",
        "create certificates.k8s.io certificatesigningrequests - - -",
    ] {
        check(row, None, Ok(()));
    }
    for (row, why) in [
        ("get - secrets - n theirs", NONE),
        ("get - secrets - m volume", NONE),
        ("get - secrets - storage controller", NONE),
        ("get - secrets - n -", "No Object name found"),
        ("update - secrets - n volume", "can only read resources of this type"),
        ("get - secrets status n volume", "cannot read subresource"),
        ("list - configmaps - - -", "can only read namespaced object of this type"),
        ("list - persistentvolumeclaims - n claim", "can only get individual resources of this type"),
        ("get - persistentvolumeclaims - n other", NONE),
        ("get - persistentvolumeclaims status n claim", "can only get/update/patch this type"),
        ("get - persistentvolumes - - other", NONE),
        ("get - persistentvolumes status - volume", "cannot get subresource"),
        ("create - serviceaccounts token n other", NONE),
        ("create - serviceaccounts - n account", "can only create token subresource of serviceaccount"),
        ("list - serviceaccounts - n -", "can only create tokens for individual service accounts"),
        ("get - pods - n other", NONE),
        ("list - pods - n -", "can only list/watch pods with spec.nodeName field selector"),
        ("get - pods log n web", ""),
        ("get - nodes - - two", "node 'one' cannot read 'two', only its own Node object"),
        ("list - nodes - - -", "node 'one' cannot read all nodes, only its own Node object"),
        ("delete - nodes - - one", ""),
        (
            "list coordination.k8s.io leases - kube-node-lease -",
            "can only get, create, update, patch, or delete a node lease",
        ),
        (
            "get coordination.k8s.io leases - n one",
            "can only access leases in the \"kube-node-lease\" system namespace",
        ),
        (
            "get coordination.k8s.io leases - kube-node-lease two",
            "can only access node lease with the same name as the requesting node",
        ),
        ("list storage.k8s.io csinodes - - -", "can only get, create, update, patch, or delete a CSINode"),
        ("get storage.k8s.io csinodes - - two", "can only access CSINode with the same name as the requesting node"),
        ("get resource.k8s.io resourceslices - - others", NONE),
        (
            "list resource.k8s.io resourceslices - - -",
            "can only list/watch/deletecollection resourceslices with nodeName field selector",
        ),
        ("get apps deployments - n x", ""),
        ("list - endpoints - n -", ""),
    ] {
        check(row, None, Err(why));
    }
    check("list - pods - - -", Some(&mine), Ok(()));
    check("list - pods - - -", Some(&theirs), Err("can only list/watch pods with spec.nodeName field selector"));
    check("deletecollection resource.k8s.io resourceslices - - -", Some(&mine), Ok(()));
}

#[test]
fn only_nodes_are_nodes() {
    let graph = graph();
    let target = ResourceTarget { resource: "secrets", namespace: "n", name: "volume", ..Default::default() };
    for (name, group, why) in [
        ("system:node:one", "system:authenticated", ""),
        ("bob", "system:nodes", ""),
        ("system:node:", "system:nodes", "unknown node for user \"system:node:\""),
        ("system:node:none", "system:nodes", "no relationship found between node 'none' and this object"),
    ] {
        let verdict = authorize(Some(&graph), &User::new(name, &[group]), &Attributes::resource("get", target));
        assert_eq!((verdict.is_allowed(), verdict.reason()), (false, why), "{name}");
    }
    // A name that contains the separator of digests, a zero byte, is never found. Otherwise it could stand for another
    // object.
    for (namespace, name, node) in [("n\0s", "x", "one"), ("n", "volume", "one\0s"), ("", "n\0volume", "one")] {
        assert!(!graph.leads(Object::Secret, namespace, name, node));
    }
    assert!(!graph.leads(Object::Claim, "", "n/claim", "one") && graph.leads(Object::Claim, "n", "claim", "one"));
}

/// A small cluster for the naive implementation: its objects by key.
#[derive(Default)]
struct Twin(BTreeMap<(bool, String), Value>);

impl Twin {
    /// Whether an object leads to the node, found by a search through all objects of the cluster.
    fn leads(&self, what: Object, namespace: &str, name: &str, node: &str) -> bool {
        let on_node = |pod: &&Value| pod["spec"]["nodeName"] == node;
        let pods = || self.0.iter().filter(|((is_pod, _), _)| *is_pod).map(|(_, pod)| pod).filter(on_node);
        let names = |pod: &Value, wanted: Reference<'_>| {
            let mut found = false;
            references::of_pod(pod, |reference| found |= reference == wanted);
            found
        };
        let named =
            |wanted: &dyn Fn() -> Reference<'static>| namespace == "n" && pods().any(|pod| names(pod, wanted()));
        let has_claim = |namespace: &str, name: &str| {
            let wanted = || Reference::Claim(name.to_owned().into());
            namespace == "n" && pods().any(|pod| names(pod, wanted()))
        };
        let mounted = |volume: &Value| {
            let claim = &volume["spec"]["claimRef"];
            let text = |field: &str| claim[field].as_str().unwrap_or("").to_owned();
            !text("name").is_empty() && has_claim(&text("namespace"), &text("name"))
        };
        let volumes = || self.0.iter().filter(|((is_pod, _), _)| !*is_pod);
        match what {
            Object::Pod => self.0.get(&(true, format!("{namespace}/{name}"))).as_ref().is_some_and(on_node),
            Object::Volume => volumes().any(|((_, key), volume)| key == name && mounted(volume)),
            Object::Claim => has_claim(namespace, name),
            Object::Secret => {
                let by_volume = |volume: &Value| {
                    let mut found = false;
                    references::of_volume(volume, |own, secret| found |= own == namespace && secret == name);
                    found && mounted(volume)
                };
                named(&|| Reference::Secret(name.to_owned().into())) || volumes().any(|(_, volume)| by_volume(volume))
            }
            Object::ConfigMap => named(&|| Reference::ConfigMap(name.to_owned().into())),
            Object::Account => named(&|| Reference::Account(name.to_owned().into())),
            _ => false,
        }
    }
}

use super::references::Reference;

fn some_pod() -> impl Strategy<Value = Value> {
    let letter = || prop::sample::select(vec!["a", "b", "c"]);
    let node = prop::sample::select(vec!["", "one", "two"]);
    (node, prop::collection::vec((0..5, letter()), 0..4), any::<bool>(), letter()).prop_map(|(node, named, mirror, account)| {
        let volume = |(sort, name): &(i32, &str)| match sort {
            0 => json!({"name": "v", "secret": {"secretName": name}}),
            1 => json!({"name": "v", "configMap": {"name": name}}),
            2 => json!({"name": "v", "persistentVolumeClaim": {"claimName": name}}),
            3 => json!({"name": name, "ephemeral": {"volumeClaimTemplate": {}}}),
            _ => json!({"name": "v", "projected": {"sources": [{"secret": {"name": name}}, {"configMap": {"name": name}}]}}),
        };
        let volumes: Vec<Value> = named.iter().map(volume).collect();
        let mut pod = pod("a", node, json!({"volumes": volumes, "serviceAccountName": account}));
        if mirror && account == "c" {
            pod["metadata"]["annotations"] = json!({(references::MIRROR): ""});
        }
        pod
    })
}

fn some_volume() -> impl Strategy<Value = Value> {
    let letter = || prop::sample::select(vec!["", "a", "b", "c", "a-a"]);
    (letter(), letter(), letter()).prop_map(|(claim, secret, other)| {
        let claim = json!({"namespace": "n", "name": claim});
        let csi =
            json!({"nodeStageSecretRef": {"name": secret, "namespace": "n"}, "nodePublishSecretRef": {"name": other}});
        json!({"spec": {"claimRef": claim, "csi": csi}})
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_graph_agrees_with_a_walk_over_the_cluster(
        events in prop::collection::vec(
            (any::<bool>(), 0..5usize, prop::option::weighted(0.8, some_pod()), prop::option::weighted(0.8, some_volume())),
            0..40,
        )
    ) {
        let (mut graph, mut twin) = (NodeGraph::default(), Twin::default());
        for (is_pod, number, pod, volume) in events {
            let (relation, key) = match is_pod {
                true => (Relation::Pod, format!("n/p{number}")),
                false => (Relation::Volume, format!("v{number}")),
            };
            let after = if is_pod { pod } else { volume };
            let before = match &after {
                Some(after) => twin.0.insert((is_pod, key.clone()), after.clone()),
                None => twin.0.remove(&(is_pod, key.clone())),
            };
            graph.note(relation, &key, before.as_ref(), after.as_ref());
        }
        for node in ["one", "two", "three"] {
            for name in ["a", "b", "c", "a-a", "a-b", "p0", "p1", "v0", "v1", "v2"] {
                for what in [Object::Pod, Object::Volume, Object::Claim, Object::Secret, Object::ConfigMap, Object::Account] {
                    let namespace = if what == Object::Volume { "" } else { "n" };
                    prop_assert_eq!(
                        graph.leads(what, namespace, name, node), twin.leads(what, namespace, name, node),
                        "{:?} {} {}", what, name, node
                    );
                }
            }
        }
        let all: Vec<_> = std::mem::take(&mut twin.0).into_iter().collect();
        for ((is_pod, key), document) in all {
            graph.note(if is_pod { Relation::Pod } else { Relation::Volume }, &key, Some(&document), None);
        }
        prop_assert!(graph.is_empty(), "what is gone leaves nothing behind");
    }
}
