//! Tests of pods' inline volumes, and on which nodes they can be used.

use super::*;

fn brings(volume: Value) -> Value {
    let mut spec = asks("1");
    let mut volume = volume;
    volume["name"] = "v".into();
    spec["volumes"] = json!([volume]);
    spec
}

/// A scheduler with one node, which limits how many volumes of a driver it can attach and has a pod with a disk; and a
/// second pod with this inline volume.
fn beside_a_disk(driver: &str, limit: u32, volume: Value) -> Scene {
    let mut scene = Scene::new();
    scene.node("n", "4");
    let driver = json!({"name": driver, "nodeID": "n", "allocatable": {"count": limit}});
    scene.apply_object(Kind::CsiNode, Key::cluster("n"), json!({"spec": {"drivers": [driver]}}));
    let mut there = brings(json!({"awsElasticBlockStore": {"volumeID": "vol-1"}}));
    there["nodeName"] = "n".into();
    scene.pod("there", there);
    scene.pod("p", brings(volume));
    scene.run();
    scene
}

#[test]
fn in_tree_volumes_count_for_their_csi_drivers() {
    const EBS: &str = "ebs.csi.aws.com";
    let disk = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id}});
    let (_, told) = beside_a_disk(EBS, 1, disk("vol-2")).refusal_of("p");
    assert!(told.starts_with("0/1 nodes are available: 1 node(s) exceed max volume count."), "{told}");
    beside_a_disk(EBS, 2, disk("vol-2")).take("create pods/p/binding");
    beside_a_disk(EBS, 1, disk("aws://zone/vol-1")).take("create pods/p/binding");
    let (_, told) = beside_a_disk("pxd.portworx.com", 0, json!({"portworxVolume": {"volumeID": "x"}})).refusal_of("p");
    assert!(told.contains("1 node(s) exceed max volume count"), "{told}");
    let path = json!({"vsphereVolume": {"volumePath": "x"}});
    beside_a_disk("csi.vsphere.vmware.com", 0, path).take("create pods/p/binding");
    let share = json!({"azureFile": {"shareName": "x", "secretName": "s"}});
    beside_a_disk("file.csi.azure.com", 0, share).take("create pods/p/binding");
}

#[test]
fn node_affinity_of_volumes_matches_labels_only() {
    for (operator, found) in [("In", false), ("NotIn", true)] {
        let mut scene = Scene::new();
        scene.node("n", "4");
        let name = json!({"key": "metadata.name", "operator": operator, "values": ["n"]});
        let affinity = json!({"required": {"nodeSelectorTerms": [{"matchFields": [name]}]}});
        scene.apply_object(Kind::PersistentVolume, Key::cluster("v"), json!({"spec": {"nodeAffinity": affinity}}));
        scene.apply_object(Kind::PersistentVolumeClaim, Key::new("default", "c"), claim(None, Some("v")));
        scene.pod("p", brings(json!({"persistentVolumeClaim": {"claimName": "c"}})));
        scene.run();
        if found {
            scene.take("create pods/p/binding");
        } else {
            let (_, told) = scene.refusal_of("p");
            assert!(told.contains("1 node(s) didn't match PersistentVolume's node affinity"), "{told}");
        }
    }
}

#[test]
fn unprovisioned_volumes_count_for_their_provisioner() {
    for (provisioner, driver, fits) in [
        ("d", "d", false),
        ("d", "e", true),
        ("kubernetes.io/aws-ebs", "ebs.csi.aws.com", false),
        ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", true),
    ] {
        let mut scene = Scene::new();
        scene.node("n", "4");
        let driver = json!({"name": driver, "nodeID": "n", "allocatable": {"count": 0}});
        scene.apply_object(Kind::CsiNode, Key::cluster("n"), json!({"spec": {"drivers": [driver]}}));
        let class = json!({"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"});
        scene.apply_object(Kind::StorageClass, Key::cluster("late"), class);
        scene.apply_object(Kind::PersistentVolumeClaim, Key::new("default", "c"), claim(None, None));
        scene.pod("p", brings(json!({"persistentVolumeClaim": {"claimName": "c"}})));
        scene.run();
        let has_place = scene.shown().iter().any(|request| request.contains("nominatedNodeName"));
        assert_eq!(has_place, fits, "{provisioner}");
        if !fits {
            let (_, told) = scene.refusal_of("p");
            assert!(told.starts_with("0/1 nodes are available: 1 node(s) exceed max volume count."), "{told}");
        }
    }
}

#[test]
fn attached_volumes_count_without_a_pod() {
    for (attached, used, fits) in
        [(None, false, true), (Some("n"), false, false), (Some("m"), false, true), (Some("n"), true, true)]
    {
        let mut scene = Scene::new();
        scene.node("n", "4");
        let driver = json!({"name": "d", "nodeID": "n", "allocatable": {"count": 1}});
        scene.apply_object(Kind::CsiNode, Key::cluster("n"), json!({"spec": {"drivers": [driver]}}));
        let volume = json!({"spec": {"csi": {"driver": "d", "volumeHandle": "h"}}});
        scene.apply_object(Kind::PersistentVolume, Key::cluster("v"), volume);
        scene.apply_object(Kind::PersistentVolumeClaim, Key::new("default", "c"), claim(None, Some("v")));
        if let Some(node) = attached {
            let attachment =
                json!({"spec": {"attacher": "d", "nodeName": node, "source": {"persistentVolumeName": "v"}}});
            scene.apply_object(Kind::VolumeAttachment, Key::cluster("a"), attachment);
        }
        let spec = brings(json!({"persistentVolumeClaim": {"claimName": "c"}}));
        if used {
            let mut there = spec.clone();
            there["nodeName"] = "n".into();
            scene.pod("there", there);
        }
        scene.pod("p", spec);
        scene.run();
        if fits {
            scene.take("create pods/p/binding");
        } else {
            let (_, told) = scene.refusal_of("p");
            assert!(told.starts_with("0/1 nodes are available: 1 node(s) exceed max volume count."), "{told}");
        }
    }
}

#[test]
fn a_read_write_once_pod_claim_counts_once_per_pod() {
    let mut scene = Scene::new();
    scene.node("n", "4");
    scene.apply_object(Kind::PersistentVolume, Key::cluster("v"), json!({"spec": {}}));
    let mut exclusive = claim(None, Some("v"));
    exclusive["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    scene.apply_object(Kind::PersistentVolumeClaim, Key::new("default", "c"), exclusive);
    let volume = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": "c"}});
    let mut spec = asks("1");
    (spec["nodeName"], spec["volumes"]) = ("n".into(), json!([volume("a")]));
    scene.pod("there", spec);
    let mut spec = asks("1");
    (spec["priority"], spec["volumes"]) = (7.into(), json!([volume("a"), volume("b")]));
    scene.pod("p", spec);
    scene.run();
    let told = scene.take("patch pods/p/status");
    assert_eq!(body(&told)["status"]["nominatedNodeName"], "n", "who uses it goes");
}
