//! A small test schema with one field for each case that the merges distinguish, and documents that match the schema.

use holdfast_value::{Value, json};
use proptest::prelude::*;

use crate::schema::{Field, ListType, Message, MessageId, Schema, Shape, Type, Zero};

const ROOT: Type = Type::Message(MessageId(0));
const META: Type = Type::Message(MessageId(1));
const SPEC: Type = Type::Message(MessageId(2));
const CONTAINER: Type = Type::Message(MessageId(3));
const PORT: Type = Type::Message(MessageId(4));
const STRATEGY: Type = Type::Message(MessageId(5));
const ROLLING: Type = Type::Message(MessageId(6));
const SELECTOR: Type = Type::Message(MessageId(7));

/// The test schema. Its message `test.Root` is like a Deployment that has the fields of its pod directly in `spec`.
pub(super) fn schema() -> Schema {
    let Type::Message(root) = ROOT else { unreachable!() };
    assert_eq!(root.0, 0);
    let messages = vec![
        message(
            "test.Root",
            vec![
                field("data", Type::String).map(),
                field("metadata", META).always(),
                field("spec", SPEC).always(),
                field("status", STRATEGY).always(),
            ],
        ),
        message(
            "test.Meta",
            vec![
                field("annotations", Type::String).map(),
                field("creationTimestamp", Type::Time),
                field("finalizers", Type::String).set().merges(None),
                field("generation", Type::Int64),
                field("labels", Type::String).map(),
                field("managedFields", STRATEGY).list(),
                field("name", Type::String),
                field("namespace", Type::String),
                field("resourceVersion", Type::String),
                field("uid", Type::String),
            ],
        ),
        message(
            "test.Spec",
            vec![
                field("containers", CONTAINER).keyed(&["name"]).merges(Some("name")).always(),
                field("raw", Type::RawExtension),
                field("replicas", Type::Int32),
                Field { atomic: true, ..field("selector", SELECTOR) },
                Field { patch_retain_keys: true, ..field("strategy", STRATEGY).always() },
                field("tolerations", STRATEGY).list(),
            ],
        ),
        message(
            "test.Container",
            vec![
                field("args", Type::String).list(),
                field("image", Type::String),
                Field { zero: Zero::Always, ..field("name", Type::String) },
                field("ports", PORT).keyed(&["containerPort", "protocol"]).merges(Some("containerPort")),
            ],
        ),
        message(
            "test.Port",
            vec![
                Field { zero: Zero::Always, ..field("containerPort", Type::Int32) },
                field("name", Type::String),
                Field { default: Some("\"TCP\"".into()), ..field("protocol", Type::String) },
            ],
        ),
        message(
            "test.Strategy",
            vec![
                field("key", Type::String),
                field("other", Type::String),
                field("rollingUpdate", ROLLING),
                field("type", Type::String),
            ],
        ),
        message("test.Rolling", vec![field("maxSurge", Type::IntOrString), field("maxUnavailable", Type::IntOrString)]),
        message("test.Selector", vec![field("matchLabels", Type::String).map()]),
    ];
    let by_name = messages.iter().enumerate().map(|(at, m)| (m.name.clone(), MessageId(at as u32))).collect();
    Schema { messages, by_name, resources: Default::default() }
}

/// A document that matches `test.Root`, without duplicate keys in lists.
pub(super) fn any_document() -> impl Strategy<Value = Value> {
    let strings = || prop::collection::btree_map("[a-c]", "[x-z]", 1..3);
    let port = prop::collection::btree_map(80..83u32, "[a-b]", 0..3).prop_map(|ports| {
        let ports =
            ports.into_iter().map(|(port, name)| json!({"containerPort": port, "name": name, "protocol": "TCP"}));
        Value::Array(ports.collect())
    });
    let containers = prop::collection::btree_map("[a-c]", ("[x-z]", port), 0..3).prop_map(|containers| {
        let containers = containers.into_iter().map(|(name, (image, ports))| {
            let mut container = json!({"name": name, "image": image});
            if ports.as_array().is_some_and(|ports| !ports.is_empty()) {
                container["ports"] = ports;
            }
            container
        });
        Value::Array(containers.collect())
    });
    (
        prop::option::of(strings()),
        prop::option::of(strings()),
        prop::option::of(prop::collection::btree_set("[f-h]", 1..3)),
        prop::option::of(1..4u32),
        prop::option::of(containers),
        prop::option::of(strings()),
    )
        .prop_map(|(data, labels, finalizers, replicas, containers, match_labels)| {
            let mut document = json!({"apiVersion": "test/v1", "kind": "Root", "metadata": {"name": "x"}, "spec": {}});
            if let Some(data) = data {
                document["data"] = json!(data);
            }
            if let Some(labels) = labels {
                document["metadata"]["labels"] = json!(labels);
            }
            if let Some(finalizers) = finalizers {
                document["metadata"]["finalizers"] = json!(finalizers);
            }
            if let Some(replicas) = replicas {
                document["spec"]["replicas"] = json!(replicas);
            }
            if let Some(containers) = containers.filter(|c| c.as_array().is_some_and(|c| !c.is_empty())) {
                document["spec"]["containers"] = containers;
            }
            if let Some(labels) = match_labels {
                document["spec"]["selector"] = json!({"matchLabels": labels});
            }
            document
        })
}

fn message(name: &str, fields: Vec<Field>) -> Message {
    assert!(fields.is_sorted_by(|a, b| a.json < b.json), "{name}: fields are looked up by binary search");
    Message { name: name.into(), typed: name == "test.Root", fields, atomic: false }
}

fn field(json: &str, ty: Type) -> Field {
    Field {
        json: json.into(),
        number: 1,
        inline: Vec::new(),
        ty,
        shape: Shape::Single,
        required: false,
        zero: Zero::Plain,
        list_type: ListType::Atomic,
        list_map_keys: Vec::new(),
        atomic: false,
        granular: false,
        patch_merge: false,
        patch_retain_keys: false,
        patch_merge_key: None,
        default: None,
    }
}

/// Short methods that set the merge markers of a schema field, such as its list type.
trait Marked: Sized {
    fn marked(self, mark: impl FnOnce(&mut Field)) -> Self;

    fn map(self) -> Self {
        self.marked(|field| field.shape = Shape::Map)
    }

    fn list(self) -> Self {
        self.marked(|field| field.shape = Shape::List)
    }

    fn set(self) -> Self {
        self.list().marked(|field| field.list_type = ListType::Set)
    }

    fn keyed(self, keys: &[&str]) -> Self {
        self.list().marked(|field| {
            field.list_type = ListType::Map;
            field.list_map_keys = keys.iter().map(|key| key.to_string()).collect();
        })
    }

    fn merges(self, key: Option<&str>) -> Self {
        self.marked(|field| {
            field.patch_merge = true;
            field.patch_merge_key = key.map(Into::into);
        })
    }

    fn always(self) -> Self {
        self.marked(|field| field.zero = Zero::Always)
    }
}

impl Marked for Field {
    fn marked(mut self, mark: impl FnOnce(&mut Field)) -> Self {
        mark(&mut self);
        self
    }
}
