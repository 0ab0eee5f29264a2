use super::*;
use holdfast_world::Trial;

fn config_map(name: &str, owners: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}})
}

/// An owner reference to an object.
fn owner(object: &Value, blocks: bool) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "blockOwnerDeletion": blocks,
    })
}

fn trial() -> Trial {
    Trial::new().with(GarbageCollector)
}

fn config_maps(trial: &Trial) -> Vec<String> {
    trial.names("configmaps")
}

#[test]
fn what_has_lost_its_owner_goes_with_all_that_it_owns() {
    let mut trial = trial();
    let top = trial.create(config_map("top", &[]));
    let middle = trial.create(config_map("middle", &[owner(&top, true)]));
    trial.create(config_map("bottom", &[owner(&middle, true)]));
    trial.run();
    assert_eq!(config_maps(&trial).len(), 3);
    trial.delete("configmaps", "top");
    trial.run();
    assert_eq!(config_maps(&trial), Vec::<String>::new());
}

#[test]
fn one_owner_that_is_there_is_enough() {
    let mut trial = trial();
    let (one, other) = (trial.create(config_map("one", &[])), trial.create(config_map("other", &[])));
    trial.create(config_map("owned", &[owner(&one, false), owner(&other, false)]));
    trial.delete("configmaps", "one");
    trial.run();
    assert_eq!(config_maps(&trial), ["other", "owned"]);
    let references = &trial.get("configmaps", "owned")["metadata"]["ownerReferences"];
    assert_eq!(*references, json!([owner(&other, false)]));
}

#[test]
fn an_owner_of_the_same_name_and_another_uid_is_none() {
    let mut trial = trial();
    let first = trial.create(config_map("top", &[]));
    trial.delete("configmaps", "top");
    trial.create(config_map("top", &[]));
    trial.create(config_map("owned", &[owner(&first, true)]));
    trial.run();
    assert_eq!(config_maps(&trial), ["top"]);
}

#[test]
fn in_the_foreground_the_owner_goes_last() {
    let mut trial = trial();
    let top = trial.create(config_map("top", &[]));
    let mut held = config_map("held", &[owner(&top, true)]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    trial.create(held);
    trial.create(config_map("free", &[owner(&top, true)]));
    let mut slow = config_map("slow", &[owner(&top, false)]);
    slow["metadata"]["finalizers"] = json!(["example.com/hold"]);
    trial.create(slow);
    trial.delete_as("configmaps", "top", Some(Propagation::Foreground), None);
    trial.run();
    assert_eq!(config_maps(&trial), ["held", "slow", "top"]);
    trial.patch("configmaps", "held", json!({"metadata": {"finalizers": null}}));
    trial.run();
    assert_eq!(config_maps(&trial), ["slow"], "what does not block is deleted all the same, and not waited for");
}

#[test]
fn orphans_lose_the_reference_and_stay() {
    let mut trial = trial();
    let top = trial.create(config_map("top", &[]));
    trial.create(config_map("a", &[owner(&top, true)]));
    trial.create(config_map("b", &[owner(&top, true)]));
    trial.delete_as("configmaps", "top", Some(Propagation::Orphan), None);
    trial.run();
    assert_eq!(config_maps(&trial), ["a", "b"]);
    assert_eq!(trial.get("configmaps", "a")["metadata"]["ownerReferences"], Value::Null);
}

#[test]
fn objects_that_own_one_another_go() {
    let mut trial = trial();
    let one = trial.create(config_map("one", &[]));
    let other = trial.create(config_map("other", &[owner(&one, true)]));
    trial.patch("configmaps", "one", json!({"metadata": {"ownerReferences": [owner(&other, true)]}}));
    trial.delete_as("configmaps", "one", Some(Propagation::Foreground), None);
    trial.run();
    assert_eq!(config_maps(&trial), Vec::<String>::new());
}

#[test]
fn three_that_own_one_another_in_a_circle_go() {
    let mut trial = trial();
    let a = trial.create(config_map("a", &[]));
    let b = trial.create(config_map("b", &[owner(&a, true)]));
    let c = trial.create(config_map("c", &[owner(&b, true)]));
    trial.patch("configmaps", "a", json!({"metadata": {"ownerReferences": [owner(&c, true)]}}));
    trial.delete_as("configmaps", "a", Some(Propagation::Foreground), None);
    trial.run();
    assert_eq!(config_maps(&trial), Vec::<String>::new());
}

#[test]
fn an_owner_of_another_namespace_is_none_and_people_are_told() {
    let mut trial = trial();
    let mut far = config_map("far", &[]);
    far["metadata"]["namespace"] = json!("kube-system");
    let far = trial.create(far);
    trial.create(config_map("owned", &[owner(&far, true)]));
    trial.run();
    assert_eq!(config_maps(&trial), ["far"]);
    let uid = far["metadata"]["uid"].as_str().expect("a uid");
    let said = format!(
        "Warning OwnerRefInvalidNamespace ownerRef [v1/ConfigMap, namespace: default, name: far, uid: {uid}] does not exist \
         in namespace \"default\""
    );
    assert!(trial.take_event_texts().contains(&said));
}

#[test]
fn what_is_in_another_namespace_neither_holds_up_an_owner_nor_is_let_go() {
    for propagation in [Propagation::Foreground, Propagation::Orphan] {
        let mut trial = trial();
        let mut far = config_map("far", &[]);
        far["metadata"]["namespace"] = json!("kube-system");
        far["metadata"]["finalizers"] = json!(["example.com/hold"]);
        let top = trial.create(config_map("top", &[]));
        far["metadata"]["ownerReferences"] = json!([owner(&top, true)]);
        trial.create(far);
        trial.create(config_map("near", &[owner(&top, true)]));
        trial.delete_as("configmaps", "top", Some(propagation), None);
        trial.run();
        let near = if propagation == Propagation::Orphan { vec!["near"] } else { Vec::new() };
        let left: Vec<String> = config_maps(&trial).into_iter().filter(|name| name != "far").collect();
        assert_eq!(left, near);
        let far = trial.list("configmaps").into_iter().find(|found| found["metadata"]["name"] == "far");
        assert_eq!(far.expect("it is held")["metadata"]["ownerReferences"], json!([owner(&top, true)]));
    }
}

#[test]
fn an_owner_of_the_whole_cluster_waits_for_what_it_owns_in_namespaces() {
    let mut trial = trial();
    let top = trial.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "top"}}));
    let mut held = config_map("held", &[owner(&top, true)]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    trial.create(held);
    trial.delete_as("nodes", "top", Some(Propagation::Foreground), None);
    trial.run();
    assert_eq!((config_maps(&trial), trial.names("nodes")), (vec!["held".to_owned()], vec!["top".to_owned()]));
    trial.patch("configmaps", "held", json!({"metadata": {"finalizers": null}}));
    trial.run();
    assert_eq!((config_maps(&trial), trial.names("nodes")), (Vec::new(), Vec::new()));
}

#[test]
fn what_belongs_to_the_whole_cluster_is_never_owned_by_a_namespace() {
    let mut trial = trial();
    let near = trial.create(config_map("near", &[]));
    let metadata = json!({"name": "owned", "ownerReferences": [owner(&near, true)]});
    trial.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
    trial.run();
    trial.delete("configmaps", "near");
    trial.run();
    assert!(trial.names("namespaces").contains(&"owned".to_owned()));
}

#[test]
fn the_owner_of_an_unknown_kind_is_not_taken_for_absent() {
    let mut trial = trial();
    let widget = json!({"apiVersion": "shop.example.com/v1", "kind": "Widget", "name": "w", "uid": "u"});
    trial.create(config_map("owned", &[widget]));
    trial.run_for(10_000);
    assert_eq!(config_maps(&trial), ["owned"]);
}

#[test]
fn custom_resources_own_and_are_owned_at_once() {
    let mut trial = trial();
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    trial.create(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.shop.example.com"},
        "spec": {
            "group": "shop.example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "kind": "Widget"},
        },
    }));
    trial.run();
    let widget = json!({"apiVersion": "shop.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let widget = trial.create(widget);
    trial.create(config_map("owned", &[owner(&widget, true)]));
    let top = trial.create(config_map("top", &[]));
    let metadata = json!({"name": "v", "ownerReferences": [owner(&top, true)]});
    trial.create(json!({"apiVersion": "shop.example.com/v1", "kind": "Widget", "metadata": metadata}));
    trial.run();
    trial.delete("widgets.shop.example.com", "w");
    trial.delete("configmaps", "top");
    trial.run();
    assert_eq!((config_maps(&trial), trial.names("widgets.shop.example.com")), (Vec::new(), Vec::new()));
}

#[test]
fn a_collector_that_starts_late_finds_what_is_left() {
    let mut trial = Trial::new();
    let top = trial.create(config_map("top", &[]));
    trial.create(config_map("owned", &[owner(&top, true)]));
    trial.create(config_map("kept", &[]));
    trial.delete("configmaps", "top");
    let mut trial = trial.with(GarbageCollector);
    trial.run();
    assert_eq!(config_maps(&trial), ["kept"]);
}

#[test]
fn an_owner_of_a_version_that_is_not_served_is_not_known_to_be_gone() {
    let mut trial = trial();
    let boss = trial.create(config_map("boss", &[]));
    let mut odd = owner(&boss, false);
    odd["apiVersion"] = json!("v9");
    trial.create(config_map("child", &[odd]));
    trial.delete("configmaps", "boss");
    trial.run_for(60);
    assert_eq!(config_maps(&trial), ["child"]);
}
