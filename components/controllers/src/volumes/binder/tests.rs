use super::*;
use crate::Settings;
use holdfast_world::Trial;

fn trial() -> Trial {
    Trial::new().with(Binder::new(&Settings { host_path_provisioner: true, ..Settings::default() }))
}

fn volume(name: &str, size: &str, more: Value) -> Value {
    let mut spec = json!({"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "slow",
        "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/tmp/none"}});
    for (field, value) in more.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": {"tier": name}}, "spec": spec})
}

fn claim(name: &str, size: &str, more: Value) -> Value {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "slow",
        "resources": {"requests": {"storage": size}}});
    for (field, value) in more.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec})
}

fn class(name: &str, provisioner: &str, mode: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": mode})
}

fn phase(trial: &Trial, kind: &str, name: &str) -> String {
    trial.get(kind, name)["status"]["phase"].as_str().unwrap_or_default().to_owned()
}

fn bound(trial: &Trial, claim: &str) -> String {
    let claim = trial.get("persistentvolumeclaims", claim);
    assert_eq!(claim["status"]["phase"], if claim["spec"]["volumeName"].is_null() { "Pending" } else { "Bound" });
    claim["spec"]["volumeName"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_claim_and_a_volume_meet_in_either_order() {
    for claim_first in [false, true] {
        let mut trial = trial();
        let objects = [volume("v", "1Gi", json!({})), claim("c", "1Gi", json!({}))];
        let order = if claim_first { [1, 0] } else { [0, 1] };
        for index in order {
            trial.create(objects[index].clone());
            trial.run();
        }
        let (volume, claim) = (trial.get("persistentvolumes", "v"), trial.get("persistentvolumeclaims", "c"));
        assert_eq!(volume["metadata"]["annotations"], json!({BOUND_BY_CONTROLLER: "yes"}));
        assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
        assert_eq!(volume["status"]["phase"], "Bound");
        assert_eq!(claim["metadata"]["annotations"], json!({BOUND_BY_CONTROLLER: "yes", BIND_COMPLETED: "yes"}));
        assert_eq!(
            claim["status"],
            json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}})
        );
        assert!(trial.take_refused().is_empty());
    }
}

#[test]
fn a_claim_may_name_its_volume_before_it_is_there() {
    for class in [json!(""), json!("slow"), Value::Null] {
        for volume_names_claim in [false, true] {
            let mut trial = trial();
            trial.create(claim("c", "1Gi", json!({"volumeName": "v", "storageClassName": class})));
            trial.create(claim("other", "1Gi", json!({"volumeName": "none", "storageClassName": class})));
            trial.run();
            assert_eq!(phase(&trial, "persistentvolumeclaims", "c"), "Pending");
            let named = json!({"namespace": "default", "name": "c"});
            let named = if volume_names_claim { named } else { Value::Null };
            let class = class.as_str().unwrap_or_default();
            trial.create(volume("v", "1Gi", json!({"storageClassName": class, "claimRef": named})));
            trial.run();
            assert_eq!(phase(&trial, "persistentvolumeclaims", "c"), "Bound", "{class} {volume_names_claim}");
            assert_eq!(phase(&trial, "persistentvolumes", "v"), "Bound");
            assert_eq!(phase(&trial, "persistentvolumeclaims", "other"), "Pending");
        }
    }
}

#[test]
fn a_volume_of_a_driver_waits_for_the_driver_to_delete_it() {
    for (source, left) in [
        (json!({"csi": {"driver": "example.com", "volumeHandle": "h"}}), "Released"),
        (json!({"nfs": {"server": "a", "path": "/b"}}), "Failed"),
    ] {
        let mut trial = trial();
        let mut more = source.clone();
        more["hostPath"] = Value::Null;
        more["persistentVolumeReclaimPolicy"] = "Delete".into();
        trial.create(volume("v", "1Gi", more));
        trial.create(claim("c", "1Gi", json!({"volumeName": "v"})));
        trial.run();
        trial.patch("persistentvolumeclaims", "c", json!({"metadata": {"finalizers": null}}));
        trial.delete("persistentvolumeclaims", "c");
        trial.run();
        let status = &trial.get("persistentvolumes", "v")["status"];
        assert_eq!((&status["phase"], status["message"].is_null()), (&json!(left), left == "Released"), "{source}");
    }
}

#[test]
fn which_volume_fits() {
    let cases = [
        (json!({}), "3Gi", "mid"),
        (json!({}), "11Gi", ""),
        (json!({"selector": {"matchLabels": {"tier": "big"}}}), "1Gi", "big"),
        (json!({"volumeMode": "Block"}), "1Gi", ""),
        (json!({"accessModes": ["ReadWriteMany"]}), "1Gi", "many"),
        (json!({"storageClassName": "other"}), "1Gi", ""),
        (json!({"storageClassName": ""}), "1Gi", ""),
    ];
    for (more, size, expected) in cases {
        let mut trial = trial();
        for (name, size) in [("big", "10Gi"), ("mid", "5Gi"), ("small", "1Gi")] {
            trial.create(volume(name, size, json!({})));
        }
        trial.create(volume("many", "1Gi", json!({"accessModes": ["ReadWriteMany", "ReadWriteOnce"]})));
        trial.run();
        trial.create(claim("c", size, more.clone()));
        trial.run();
        assert_eq!(bound(&trial, "c"), expected, "{more}");
    }
}

#[test]
fn a_volume_may_be_promised_by_name() {
    let mut trial = trial();
    trial.create(volume("small", "1Gi", json!({})));
    trial.create(volume("kept", "5Gi", json!({"claimRef": {"namespace": "default", "name": "c"}})));
    trial.run();
    assert_eq!(phase(&trial, "persistentvolumes", "kept"), "Available");
    trial.create(claim("other", "2Gi", json!({})));
    trial.create(claim("c", "1Gi", json!({})));
    trial.run();
    assert_eq!((bound(&trial, "c").as_str(), bound(&trial, "other").as_str()), ("kept", ""));
    let kept = trial.get("persistentvolumes", "kept");
    assert_eq!(kept["metadata"]["annotations"], Value::Null, "it was not this controller that promised it");
    assert_eq!(kept["spec"]["claimRef"]["kind"], "PersistentVolumeClaim");
}

#[test]
fn what_claims_of_named_volumes_are_told() {
    let mut trial = trial();
    trial.create(volume("v", "1Gi", json!({})));
    trial.create(claim("big", "2Gi", json!({"volumeName": "v"})));
    trial.create(claim("absent", "1Gi", json!({"volumeName": "none"})));
    trial.run();
    assert_eq!(
        trial.take_event_texts().first().map(String::as_str),
        Some("Warning VolumeMismatch Cannot bind to requested volume \"v\": requested PV is too small")
    );
    trial.create(claim("c", "1Gi", json!({"volumeName": "v"})));
    trial.run();
    assert_eq!(phase(&trial, "persistentvolumeclaims", "c"), "Bound");
    assert_eq!(trial.get("persistentvolumeclaims", "c")["metadata"]["annotations"], json!({BIND_COMPLETED: "yes"}));
    trial.take_event_texts();
    trial.create(claim("late", "1Gi", json!({"volumeName": "v"})));
    trial.run();
    assert_eq!(trial.take_event_texts(), ["Warning FailedBinding volume \"v\" already bound to a different claim."]);
    assert_eq!(phase(&trial, "persistentvolumeclaims", "late"), "Pending");
}

#[test]
fn a_volume_whose_claim_goes_is_kept_or_deleted() {
    for (policy, path, left, note) in [
        ("Retain", "/tmp/none", "Released", None),
        ("Delete", "/tmp/none", "", None),
        (
            "Delete",
            "/data",
            "Failed",
            Some("Warning VolumeFailedDelete host_path deleter only supports /tmp/.+ but received provided /data"),
        ),
        (
            "Recycle",
            "/tmp/none",
            "Failed",
            Some("Warning VolumeFailedRecycle No recycler plugin found for the volume!"),
        ),
    ] {
        let mut trial = trial();
        let more = json!({"persistentVolumeReclaimPolicy": policy, "hostPath": {"path": path}});
        trial.create(volume("v", "1Gi", more));
        trial.create(claim("c", "1Gi", json!({})));
        trial.run();
        assert_eq!(phase(&trial, "persistentvolumes", "v"), "Bound");
        trial.take_event_texts();
        trial.patch("persistentvolumeclaims", "c", json!({"metadata": {"finalizers": null}}));
        trial.delete("persistentvolumeclaims", "c");
        trial.patch("persistentvolumes", "v", json!({"metadata": {"finalizers": null}}));
        trial.run();
        assert_eq!(phase(&trial, "persistentvolumes", "v"), left, "{policy} {path}");
        assert_eq!(trial.take_event_texts(), note.into_iter().collect::<Vec<_>>());
        trial.create(claim("c", "1Gi", json!({})));
        trial.run();
        assert_eq!(bound(&trial, "c"), "", "another claim of that name is another claim");
    }
}

#[test]
fn a_bound_claim_that_loses_its_volume_is_lost() {
    let mut trial = trial();
    trial.create(volume("v", "1Gi", json!({})));
    trial.create(claim("c", "1Gi", json!({})));
    trial.run();
    trial.patch("persistentvolumes", "v", json!({"metadata": {"finalizers": null}}));
    trial.delete("persistentvolumes", "v");
    trial.run();
    assert_eq!(trial.get("persistentvolumeclaims", "c")["status"], json!({"phase": "Lost"}));
    assert_eq!(
        trial.take_event_texts(),
        ["Warning ClaimLost Bound claim has lost its PersistentVolume. Data on the volume is lost!"]
    );
}

#[test]
fn what_claims_without_a_volume_are_told() {
    let mut trial = trial();
    trial.create(class("none", "kubernetes.io/no-provisioner", "Immediate"));
    trial.create(class("theirs", "example.com/disks", "Immediate"));
    trial.create(class("later", "example.com/disks", "WaitForFirstConsumer"));
    for (class, expected) in [
        (json!("absent"), "Warning ProvisioningFailed storageclass.storage.k8s.io \"absent\" not found"),
        (json!("none"), "Warning ProvisioningFailed no volume plugin matched name: kubernetes.io/no-provisioner"),
        (
            json!("theirs"),
            "Normal ExternalProvisioning Waiting for a volume to be created either by the external provisioner 'example.com/disks' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.",
        ),
        (json!("later"), "Normal WaitForFirstConsumer waiting for first consumer to be created before binding"),
        (json!(""), "Normal FailedBinding no persistent volumes available for this claim and no storage class is set"),
    ] {
        trial.create(claim("c", "1Gi", json!({"storageClassName": class})));
        trial.run();
        assert_eq!(trial.take_event_texts().first().map(String::as_str), Some(expected));
        assert_eq!(phase(&trial, "persistentvolumeclaims", "c"), "Pending");
        trial.run_for(15);
        assert_eq!(trial.take_event_texts().first().map(String::as_str), Some(expected), "it is told again");
        trial.patch("persistentvolumeclaims", "c", json!({"metadata": {"finalizers": null}}));
        trial.delete("persistentvolumeclaims", "c");
        trial.run();
    }
}

#[test]
fn a_default_class_is_given_to_claims_that_name_none() {
    let mut trial = trial();
    let mut bare = claim("c", "1Gi", json!({}));
    bare["spec"]["storageClassName"] = Value::Null;
    trial.create(bare);
    trial.run();
    let mut default = class("standard", provision::HOST_PATH, "Immediate");
    default["metadata"]["annotations"] = json!({DEFAULT_CLASS: "true"});
    trial.create(default);
    trial.run();
    let claim = trial.get("persistentvolumeclaims", "c");
    assert_eq!(claim["spec"]["storageClassName"], "standard");
    let name = format!("pvc-{}", claim["metadata"]["uid"].as_str().expect("a uid"));
    assert_eq!(bound(&trial, "c"), name);
    let volume = trial.get("persistentvolumes", &name);
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    let notes = trial.take_event_texts();
    assert_eq!(
        notes.last(),
        Some(&format!(
            "Normal ProvisioningSucceeded Successfully provisioned volume {name} using kubernetes.io/host-path"
        ))
    );
    trial.patch("persistentvolumeclaims", "c", json!({"metadata": {"finalizers": null}}));
    trial.delete("persistentvolumeclaims", "c");
    trial.run();
    assert!(trial.list("persistentvolumes").is_empty(), "it is deleted with its claim");
}

/// If a claim is deleted, the volume that was provisioned for it must be deleted, too: at whichever step of the
/// binding, even before the claim names its volume.
#[test]
fn no_volume_outlives_the_claim_that_it_was_made_for() {
    for steps in 0..12 {
        let mut trial = trial();
        trial.create(class("slow", provision::HOST_PATH, "Immediate"));
        trial.create(claim("c", "1Gi", json!({})));
        for _ in 0..steps {
            trial.step();
        }
        trial.patch("persistentvolumeclaims", "c", json!({"metadata": {"finalizers": null}}));
        trial.delete("persistentvolumeclaims", "c");
        trial.run();
        assert!(trial.list("persistentvolumes").is_empty(), "after {steps} steps");
    }
}

#[test]
fn a_claim_that_waits_for_its_consumer_takes_what_the_scheduler_promises() {
    let mut trial = trial();
    trial.create(class("slow", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"));
    trial.create(volume("v", "1Gi", json!({})));
    let uid = trial.create(claim("c", "1Gi", json!({})))["metadata"]["uid"].clone();
    trial.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}));
    trial.run();
    assert_eq!(bound(&trial, "c"), "");
    assert_eq!(
        trial.take_event_texts().last().map(String::as_str),
        Some("Normal WaitForPodScheduled waiting for pod p to be scheduled")
    );
    trial.patch(
        "persistentvolumes",
        "v",
        json!({"spec": {"claimRef": {"namespace": "default", "name": "c", "uid": uid}}}),
    );
    trial.run();
    assert_eq!(bound(&trial, "c"), "v");
}

#[test]
fn a_volume_of_a_claim_that_is_bound_elsewhere_is_free_again() {
    let mut trial = trial();
    trial.create(volume("a", "1Gi", json!({})));
    let claim = trial.create(claim("c", "1Gi", json!({})));
    trial.run();
    let named = json!({"namespace": "default", "name": "c", "uid": claim["metadata"]["uid"]});
    trial.create(volume("kept", "1Gi", json!({"claimRef": named})));
    trial.run();
    let kept = trial.get("persistentvolumes", "kept");
    assert_eq!(kept["spec"]["claimRef"]["uid"], Value::Null);
    assert_eq!(kept["status"]["phase"], "Available");
    let mut other = volume("other", "1Gi", json!({"claimRef": named}));
    other["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
    trial.create(other);
    trial.run();
    assert_eq!(trial.get("persistentvolumes", "other")["spec"]["claimRef"], Value::Null);
}

#[test]
fn a_claim_with_a_chosen_node_is_provisioned_and_takes_no_volume_by_chance() {
    let mut trial = trial();
    trial.create(class("slow", "example.com/disks", "WaitForFirstConsumer"));
    trial.create(volume("v", "1Gi", json!({})));
    let mut chosen = claim("c", "1Gi", json!({}));
    chosen["metadata"]["annotations"] = json!({SELECTED_NODE: "n"});
    trial.create(chosen);
    trial.run();
    assert_eq!(bound(&trial, "c"), "");
    assert!(trial.take_event_texts()[0].starts_with("Normal ExternalProvisioning Waiting for a volume"));
    trial.create(volume("later", "1Gi", json!({})));
    trial.run_for(15);
    assert_eq!(bound(&trial, "c"), "");
}

#[test]
fn a_volume_that_is_going_away_is_not_taken_by_name() {
    let mut trial = trial();
    let mut going = volume("going", "1Gi", json!({}));
    going["metadata"]["finalizers"] = json!(["example.com/hold"]);
    trial.create(going);
    trial.run();
    trial.delete("persistentvolumes", "going");
    trial.create(claim("c", "9Gi", json!({"volumeName": "going"})));
    trial.run();
    assert_eq!(phase(&trial, "persistentvolumeclaims", "c"), "Pending");
    let told =
        "Warning VolumeMismatch Cannot bind to requested volume \"going\": the volume is marked for deletion \"going\"";
    assert_eq!(trial.take_event_texts(), [told]);
}

#[test]
fn a_promised_volume_of_other_attributes_is_not_taken() {
    let mut trial = trial();
    let promised = json!({"claimRef": {"namespace": "default", "name": "c"}, "volumeAttributesClassName": "gold",
        "hostPath": null, "csi": {"driver": "example.com", "volumeHandle": "h"}});
    trial.create(volume("v", "1Gi", promised));
    trial.create(claim("c", "1Gi", json!({})));
    trial.run();
    assert_eq!(bound(&trial, "c"), "");
}

#[test]
fn what_a_driver_has_taken_over_is_left_to_it() {
    let mut trial = trial();
    trial.create(class("slow", "kubernetes.io/aws-ebs", "Immediate"));
    let mut older = claim("c", "1Gi", json!({}));
    older["metadata"]["annotations"] = json!({PROVISIONER: "kubernetes.io/aws-ebs", MIGRATED_TO: "ebs.csi.aws.com"});
    trial.create(older);
    trial.run();
    let driver = "ebs.csi.aws.com";
    assert_eq!(
        trial.get("persistentvolumeclaims", "c")["metadata"]["annotations"],
        json!({PROVISIONER: driver, BETA_PROVISIONER: driver})
    );
    let note = trial.take_event_texts().pop().expect("a note");
    let told = format!(
        "Normal ExternalProvisioning Waiting for a volume to be created either by the external provisioner '{driver}'"
    );
    assert!(note.starts_with(&told), "{note}");

    let mut made = volume(
        "v",
        "1Gi",
        json!({"persistentVolumeReclaimPolicy": "Delete",
        "claimRef": {"namespace": "default", "name": "gone", "uid": "u"}}),
    );
    made["metadata"]["annotations"] = json!({PROVISIONED_BY: "kubernetes.io/aws-ebs"});
    made["metadata"]["finalizers"] = json!(["kubernetes.io/pv-controller"]);
    trial.create(made);
    trial.run();
    let made = trial.get("persistentvolumes", "v");
    assert_eq!(made["status"]["phase"], "Released");
    assert_eq!(made["metadata"]["annotations"][MIGRATED_TO], driver);
    assert!(made["metadata"]["finalizers"].is_null(), "{made}");
}

#[test]
fn what_no_plug_in_deletes_has_failed() {
    let mut trial = trial();
    let mut made = volume(
        "v",
        "1Gi",
        json!({"persistentVolumeReclaimPolicy": "Delete",
        "claimRef": {"namespace": "default", "name": "gone", "uid": "u"}}),
    );
    made["metadata"]["annotations"] = json!({PROVISIONED_BY: "kubernetes.io/x"});
    trial.create(made);
    trial.run();
    let made = trial.get("persistentvolumes", "v");
    assert_eq!(made["status"]["phase"], "Failed");
    assert_eq!(made["status"]["message"], "no volume plugin matched name: kubernetes.io/x");
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pv-controller"]));
}

#[test]
fn a_provisioned_folder_that_is_to_be_kept_can_be_let_go_by_hand() {
    let mut trial = trial();
    trial.create(class("slow", provision::HOST_PATH, "Immediate"));
    trial.create(claim("c", "1Gi", json!({})));
    trial.run();
    let name = bound(&trial, "c");
    let finalizers = |trial: &Trial| trial.get("persistentvolumes", &name)["metadata"]["finalizers"].clone();
    assert!(finalizers(&trial).as_array().is_some_and(|all| all.contains(&json!("kubernetes.io/pv-controller"))));
    trial.patch("persistentvolumes", &name, json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
    trial.run();
    assert!(finalizers(&trial).as_array().is_none_or(|all| !all.contains(&json!("kubernetes.io/pv-controller"))));
}

#[test]
fn why_no_folder_is_made() {
    let options = |mut class: Value| {
        class["mountOptions"] = json!(["ro", "soft"]);
        class
    };
    let folders = || class("slow", provision::HOST_PATH, "Immediate");
    let copied = json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "other"}});
    for (is_on, class, more, why) in [
        (
            false,
            folders(),
            json!({}),
            "Failed to create provisioner: provisioning in volume plugin \"kubernetes.io/host-path\" is disabled",
        ),
        (
            true,
            options(folders()),
            json!({}),
            "Mount options are not supported by the provisioner but StorageClass \"slow\" has mount options [ro soft]",
        ),
        (
            true,
            folders(),
            copied,
            "plugin \"kubernetes.io/host-path\" is not a CSI plugin. Only CSI plugin can provision a claim with a datasource",
        ),
    ] {
        let settings = Settings { host_path_provisioner: is_on, ..Settings::default() };
        let mut trial = Trial::new().with(Binder::new(&settings));
        trial.create(class);
        trial.create(claim("c", "1Gi", more));
        trial.run();
        assert_eq!(bound(&trial, "c"), "");
        assert_eq!(trial.take_event_texts().last(), Some(&format!("Warning ProvisioningFailed {why}")));
    }
}
