use holdfast_value::json;

use super::*;
use crate::merge::testing;
use crate::schema::{MessageId, Schema};

fn writer<'a>(schema: &'a Schema, manager: &'a str, now: &'a str) -> Writer<'a> {
    writer_of(schema, schema.id("test.Root").unwrap(), manager, now)
}

fn writer_of<'a>(schema: &'a Schema, message: MessageId, manager: &'a str, now: &'a str) -> Writer<'a> {
    Writer {
        layout: Layout::Table(schema, message),
        api_version: "test/v1",
        manager,
        subresource: "",
        now,
        reset: &[],
        convert: None,
    }
}

/// Performs writes on one object in order. Each write has a manager, a time and a document.
fn written(writes: &[(&str, &str, Value)]) -> Value {
    let schema = testing::schema();
    let mut live: Option<Value> = None;
    for (manager, now, document) in writes {
        let mut new = document.clone();
        track_update(live.as_ref(), &mut new, &writer(&schema, manager, now));
        live = Some(new);
    }
    live.unwrap()["metadata"]["managedFields"].take()
}

fn entry(manager: &str, time: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": "Update", "apiVersion": "test/v1", "time": time,
        "fieldsType": "FieldsV1", "fieldsV1": fields})
}

const ONE: &str = "2024-01-01T00:00:01Z";
const TWO: &str = "2024-01-01T00:00:02Z";
const THREE: &str = "2024-01-01T00:00:03Z";

fn document(data: Value) -> Value {
    json!({"apiVersion": "test/v1", "kind": "Root", "metadata": {"name": "x", "uid": "u", "resourceVersion": "1"}, "data": data})
}

#[test]
fn who_creates_owns_all_but_the_server_fields() {
    let mut whole = document(json!({"a": "1"}));
    whole["metadata"]["labels"] = json!({"l": "m"});
    whole["metadata"]["creationTimestamp"] = json!(ONE);
    assert_eq!(
        written(&[("creator", ONE, whole)]),
        json!([entry(
            "creator",
            ONE,
            json!({"f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:labels": {".": {}, "f:l": {}}}})
        )])
    );
}

#[test]
fn ownership_moves_with_change_and_ends_with_removal() {
    let fields = |names: &[&str]| {
        let mut data = json!({});
        for name in names {
            data[*name] = json!({});
        }
        json!({"f:data": data})
    };
    assert_eq!(
        written(&[
            ("one", ONE, document(json!({"a": "1", "b": "1", "c": "1"}))),
            ("two", TWO, document(json!({"a": "1", "b": "2", "d": "2"}))),
            // The third write changes nothing, so the entries and their times stay.
            ("three", THREE, document(json!({"a": "1", "b": "2", "d": "2"}))),
        ]),
        json!([entry("one", ONE, fields(&[".", "f:a"])), entry("two", TWO, fields(&["f:b", "f:d"]))])
    );
    assert_eq!(
        written(&[
            ("one", ONE, document(json!({"a": "1"}))),
            ("two", TWO, document(json!({"a": "1", "b": "2"}))),
            ("one", THREE, document(json!({"a": "3"}))),
        ]),
        json!([entry("one", THREE, fields(&[".", "f:a"]))])
    );
}

#[test]
fn the_client_may_write_the_list_itself_or_turn_it_off() {
    let with = |managed: Value| {
        let mut changed = document(json!({"a": "2"}));
        changed["metadata"]["managedFields"] = managed;
        written(&[("one", ONE, document(json!({"a": "1"}))), ("two", TWO, changed)])
    };
    let of_data = |fields: Value| json!({"f:data": fields});
    let kept = json!([entry("one", ONE, of_data(json!({}))), entry("two", TWO, of_data(json!({"f:a": {}})))]);
    let renamed = json!([entry("other", ONE, of_data(json!({})))]);
    assert_eq!(with(json!([])), Value::Null);
    assert_eq!(with(json!([{}])), Value::Null);
    // If the client sends an invalid list, the managers stay as if it had sent no list.
    assert_eq!(with(json!("x")), kept);
    assert_eq!(with(json!([{"manager": "m", "operation": "Frobnicate"}])), kept);
    assert_eq!(with(json!(null)), kept);
    assert_eq!(
        with(renamed),
        json!([entry("other", ONE, of_data(json!({}))), entry("two", TWO, of_data(json!({"f:a": {}})))])
    );
    // An empty list in a create does not turn tracking off. An existing object that has no list of managers gets none
    // by an update.
    let mut created = document(json!({"a": "1"}));
    created["metadata"]["managedFields"] = json!([]);
    assert_ne!(written(&[("one", ONE, created.clone())]), Value::Null);
    assert_eq!(
        written(&[
            ("one", ONE, document(json!({"a": "1"}))),
            ("two", TWO, created.clone()),
            ("two", THREE, document(json!({"a": "3"}))),
        ]),
        Value::Null
    );
}

#[test]
fn paths_written_in_a_way_of_the_clients_own_are_found_again() {
    let schema = testing::schema();
    let with = |image: &str, managed: Value| {
        let mut document = document(json!({}));
        document["spec"] = json!({"containers": [{"name": "x", "image": image}]});
        document["metadata"]["managedFields"] = managed;
        document
    };
    let container = |key: &str, fields: Value| json!({"f:spec": {"f:containers": {key: fields}}});
    let (canonical, own) = (r#"k:{"name":"x"}"#, r#"k:{ "name": "x" }"#);
    let whole = json!({".": {}, "f:image": {}, "f:name": {}});

    let live = with("1", json!([entry("zero", ONE, json!({"f:spec": {}}))]));
    let mut new = with("1", json!([entry("one", ONE, container(own, whole.clone()))]));
    track_update(Some(&live), &mut new, &writer(&schema, "two", TWO));
    assert_eq!(new["metadata"]["managedFields"], json!([entry("one", ONE, container(canonical, whole))]));

    let mut next = with("2", new["metadata"]["managedFields"].clone());
    track_update(Some(&new), &mut next, &writer(&schema, "three", THREE));
    let kept = container(canonical, json!({".": {}, "f:name": {}}));
    let taken = container(canonical, json!({"f:image": {}}));
    assert_eq!(next["metadata"]["managedFields"], json!([entry("one", ONE, kept), entry("three", THREE, taken)]));
}

#[test]
fn a_writer_who_owns_what_it_changes_keeps_its_paths_and_gets_a_time() {
    let own = json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}});
    let writes = |last: Value| {
        written(&[
            ("one", ONE, document(json!({"a": "1", "b": "1"}))),
            ("two", ONE, {
                let mut labelled = document(json!({"a": "1", "b": "1"}));
                labelled["metadata"]["labels"] = json!({"l": "m"});
                labelled
            }),
            ("one", TWO, last),
        ])
    };
    let of = |data: Value| {
        let mut document = document(data);
        document["metadata"]["labels"] = json!({"l": "m"});
        document
    };
    let label = entry("two", ONE, json!({"f:metadata": {"f:labels": {".": {}, "f:l": {}}}}));
    assert_eq!(writes(of(json!({"a": "2", "b": "1"}))), json!([label, entry("one", TWO, own)]));
    // The writer no longer owns the fields that it removes, and owns the fields that it adds.
    let less = json!({"f:data": {".": {}, "f:a": {}}});
    assert_eq!(writes(of(json!({"a": "2"}))), json!([label, entry("one", TWO, less.clone())]));
    assert_eq!(writes(of(json!({"a": "1"}))), json!([entry("one", ONE, less), label]));
    let more = json!({"f:data": {".": {}, "f:a": {}, "f:b": {}, "f:c": {}}});
    assert_eq!(writes(of(json!({"a": "2", "b": "1", "c": "1"}))), json!([label, entry("one", TWO, more)]));
}

#[test]
fn subresources_and_versions_have_entries_of_their_own() {
    let schema = testing::schema();
    let mut live = document(json!({"a": "1"}));
    track_update(None, &mut live, &writer(&schema, "m", ONE));
    let mut new = live.clone();
    new["status"] = json!({"type": "x"});
    new["metadata"]["managedFields"] = json!([]);
    track_update(Some(&live), &mut new, &Writer { subresource: "status", ..writer(&schema, "m", TWO) });
    let mut status = entry("m", TWO, json!({"f:status": {"f:type": {}}}));
    status["subresource"] = json!("status");
    let list = json!([entry("m", ONE, json!({"f:data": {".": {}, "f:a": {}}})), status]);
    assert_eq!(new["metadata"]["managedFields"], list);

    // No manager becomes the owner of a path that the endpoint resets.
    let mut reset = new.clone();
    reset["status"]["type"] = json!("y");
    track_update(Some(&new), &mut reset, &Writer { reset: &[&["status"]], ..writer(&schema, "m", THREE) });
    assert_eq!(reset["metadata"]["managedFields"], list);

    // Entries of a version that is no longer served are dropped.
    new["apiVersion"] = json!("test/v2");
    let mut other = new.clone();
    other["data"]["a"] = json!("2");
    let gone = |_: &Value, _: &str| None;
    let later = Writer { api_version: "test/v2", convert: Some(&gone), ..writer(&schema, "m", THREE) };
    track_update(Some(&new), &mut other, &later);
    let mut expected = entry("m", THREE, json!({"f:data": {"f:a": {}}}));
    expected["apiVersion"] = json!("test/v2");
    assert_eq!(other["metadata"]["managedFields"], json!([expected]));
}

#[test]
fn many_updaters_become_ancient_changes() {
    let mut data = json!({});
    let mut writes = Vec::new();
    let names: Vec<(String, String)> = (10..23).map(|n| (format!("m{n}"), format!("2024-01-01T00:00:{n}Z"))).collect();
    for (name, time) in &names {
        data[name] = json!("x");
        writes.push((name.as_str(), time.as_str(), document(data.clone())));
    }
    let managed = written(&writes);
    let list = managed.as_array().unwrap();
    assert_eq!(list.len(), 10);
    assert_eq!(list[0]["manager"], "ancient-changes");
    assert_eq!(list[0]["time"], "2024-01-01T00:00:13Z");
    assert_eq!(list[0]["fieldsV1"]["f:data"], json!({".": {}, "f:m10": {}, "f:m11": {}, "f:m12": {}, "f:m13": {}}));
    assert_eq!(list[1]["manager"], "m14");
}

#[test]
fn manager_names_are_checked() {
    let refused = |manager: &str, is_apply| -> Vec<String> {
        field_manager_faults(manager, is_apply).iter().map(ToString::to_string).collect()
    };
    assert_eq!(refused("", false), Vec::<String>::new());
    assert_eq!(refused("kubectl-edit (über) ✓", true), Vec::<String>::new());
    assert_eq!(refused("", true), ["fieldManager: Required value: is required for apply patch"]);
    assert_eq!(refused(&"x".repeat(129), false), ["fieldManager: Too long: may not be more than 128 bytes"]);
    assert_eq!(
        refused("a\nb", false),
        ["fieldManager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)"]
    );
}

/// The fields that a Kubernetes API server records for this Deployment.
#[test]
fn a_deployment_is_tracked_by_the_built_in_schema() {
    let schema = crate::schema::schema();
    let mut deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
        "spec": {
            "replicas": 1, "progressDeadlineSeconds": 600, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [{"name": "nginx", "image": "nginx", "resources": {},
                        "ports": [{"containerPort": 80, "protocol": "TCP"}]}],
                    "restartPolicy": "Always", "securityContext": {},
                    "tolerations": [{"key": "a"}],
                },
            },
        },
        "status": {},
    });
    let message = schema.id("io.k8s.api.apps.v1.Deployment").unwrap();
    let writer = Writer { api_version: "apps/v1", ..writer_of(schema, message, "kubectl-create", ONE) };
    track_update(None, &mut deployment, &writer);
    assert_eq!(
        deployment["metadata"]["managedFields"][0]["fieldsV1"],
        json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {
                "f:progressDeadlineSeconds": {},
                "f:replicas": {},
                "f:selector": {},
                "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}, "f:type": {}},
                "f:template": {
                    "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                    "f:spec": {
                        "f:containers": {"k:{\"name\":\"nginx\"}": {".": {}, "f:image": {}, "f:name": {},
                            "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                                ".": {}, "f:containerPort": {}, "f:protocol": {}}},
                            "f:resources": {}}},
                        "f:restartPolicy": {},
                        "f:securityContext": {},
                        "f:tolerations": {},
                    },
                },
            },
        })
    );
}

#[test]
fn a_write_that_changes_times_alone_changes_nothing() {
    let with = |entries: Value, data: &str| {
        let mut whole = document(json!({"a": data}));
        whole["metadata"]["managedFields"] = entries;
        whole.as_object().cloned().unwrap()
    };
    let fields = json!({"f:data": {"f:a": {}}});
    let (early, late) = (entry("m", ONE, fields.clone()), entry("m", TWO, fields));
    let old = with(json!([early]), "1");
    let mut same = with(json!([late]), "1");
    keep_times(&old, &mut same);
    assert_eq!(same, old);
    for changed in [with(json!([late]), "2"), with(json!([late, entry("n", TWO, json!({"f:data": {}}))]), "1")] {
        let mut kept = changed.clone();
        keep_times(&old, &mut kept);
        assert_eq!(kept, changed);
    }
}

#[test]
fn a_scale_shows_who_owns_the_replicas_and_gives_them_back() {
    let replicas = ["spec", "count"];
    let served = |version: &str| version == "test/v1";
    let both = json!({"f:spec": {"f:count": {}, "f:other": {}}});
    let parent = json!([entry("a", ONE, both), entry("b", ONE, json!({"f:data": {}}))]);
    let mut shown = entry("a", ONE, json!({"f:spec": {"f:replicas": {}}}));
    shown["apiVersion"] = json!("autoscaling/v1");
    assert_eq!(scale_entries(Some(&parent), &replicas), Some(json!([shown])));
    let back = |scale: Value| with_scale_entries(Some(&parent), Some(&scale), &replicas, "test/v1", &served).unwrap();
    assert_eq!(back(json!([shown])), parent);
    // The manager that becomes the owner of the replicas has an entry without a time, so this entry comes first.
    let mut owner = shown.clone();
    owner["manager"] = json!("c");
    owner["subresource"] = json!("scale");
    let list = back(json!([owner]));
    assert_eq!(list[0]["manager"], "c");
    assert_eq!(list[0]["apiVersion"], "test/v1");
    assert_eq!(list[0]["time"], Value::Null);
    assert_eq!(list[0]["fieldsV1"], json!({"f:spec": {"f:count": {}}}));
    assert_eq!(list[1]["fieldsV1"], json!({"f:spec": {"f:other": {}}}));
    let gone = with_scale_entries(Some(&parent), Some(&json!([])), &replicas, "test/v1", &|_: &str| false);
    assert_eq!(gone, Some(json!([])));
}

#[test]
fn lists_that_nobody_can_read_are_told_of() {
    let entry = |more: Value| {
        let mut entry = json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {}}});
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([entry])
    };
    for (list, expected) in [
        (Value::Null, None),
        (json!([]), None),
        (entry(json!({})), None),
        (json!({}), Some("metadata.managedFields is not a list")),
        (entry(json!({"operation": "Delete"})), Some("operation must be `Apply` or `Update`")),
        (entry(json!({"apiVersion": ""})), Some("apiVersion must not be empty")),
        (entry(json!({"fieldsType": null})), Some("missing fieldsType in managed fields entry 0")),
        (entry(json!({"fieldsType": "V2"})), Some("invalid fieldsType \"V2\" in managed fields entry 0")),
    ] {
        assert_eq!(fault(&list).as_deref(), expected, "{list}");
    }
}
