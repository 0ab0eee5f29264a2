//! Values in refusals, as Kubernetes prints them.
//!
//! Kubernetes prints the Go struct that a document was decoded into: with Go field names in order of declaration, and
//! with unset fields as empty values. A rule reports a value as JSON. This module rewrites the value by the schema's
//! type of the field.

mod orders;

use super::unified::difference;
use crate::refusal::{Cause, SHOWN_BYTES_MAX, cut};
use crate::schema::{Field, Message, MessageId, Shape, Type, Zero, schema};
use holdfast_value::{CompactString, Map, Value};
use std::borrow::Cow;

/// Rewrites the values in causes whose fields belong to the message.
pub fn show(root: MessageId, causes: &mut [Cause]) {
    for cause in causes {
        let path = told_elsewhere(&cause.field).into_owned();
        if let Some(change) = cause.take_change() {
            let told = told_change(root, &path, &change);
            cause.message.push_str(&cut(told, SHOWN_BYTES_MAX));
        }
        let Some(value) = cause.value().cloned() else { continue };
        if let Some(place) = Place::of(root, &path, &value) {
            cause.show(place.text(&value, SHOWN_BYTES_MAX));
        }
    }
}

/// Output with a size limit that is checked while writing, because a list of many `{}` becomes a hundred times as long.
struct Out {
    text: String,
    bytes_max: usize,
}

impl Out {
    fn push(&mut self, c: char) {
        self.text.push(c);
    }

    fn push_str(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn is_full(&self) -> bool {
        self.text.len() > self.bytes_max
    }
}

/// The difference between two structs, line by line.
fn told_change(root: MessageId, path: &str, (old, new): &(Value, Value)) -> String {
    let (path, only_sources) = match path.strip_suffix(".persistentvolumesource") {
        Some(path) => (path, true),
        None => (path, false),
    };
    let Some(place) = Place::of(root, path, old) else { return String::new() };
    let text = |value: &Value| indented(&Place { only_sources, ..place }.text(value, usize::MAX));
    let difference = difference(&text(old), &text(new));
    if difference.is_empty() { difference } else { format!("\n{difference}") }
}

/// JSON with each field and item on its own line.
fn indented(json: &str) -> String {
    let (mut out, mut depth, mut in_text, mut escaped) = (String::new(), 0, false, false);
    let mut rest = json.chars().peekable();
    while let Some(c) = rest.next() {
        let line = |out: &mut String, depth: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', depth));
        };
        match c {
            _ if in_text => {
                in_text = escaped || c != '"';
                escaped = !escaped && c == '\\';
                out.push(c);
            }
            '"' => {
                in_text = true;
                out.push(c);
            }
            '{' | '[' if rest.peek().is_some_and(|next| matches!(next, '}' | ']')) => {
                out.push(c);
                out.extend(rest.next());
            }
            '{' | '[' => {
                depth += 1;
                out.push(c);
                line(&mut out, depth);
            }
            '}' | ']' => {
                depth -= 1;
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c => out.push(c),
        }
    }
    out.push('\n');
    out
}

/// The field's path in the document; Kubernetes reports some fields at another path.
fn told_elsewhere(path: &str) -> Cow<'_, str> {
    const NAMES: [(&str, &str); 3] =
        [("metadata.taints", "spec.taints"), ("nodeAffinity", "spec.nodeAffinity"), ("volumeMode", "spec.volumeMode")];
    let found = NAMES.iter().find_map(|(told, name)| path.strip_prefix(told).map(|rest| format!("{name}{rest}")));
    found.map_or(Cow::Borrowed(path), Cow::Owned)
}

/// The type of a value, and how Kubernetes prints it.
#[derive(Clone, Copy)]
struct Place<'a> {
    ty: Type,
    shape: Shape,
    /// Whether the field is a pointer in Go. For pointers, Kubernetes distinguishes unset from zero.
    is_pointer: bool,
    /// Whether the type is in apimachinery's meta package, which is printed as JSON.
    is_plain: bool,
    field: Option<&'a Field>,
    /// Whether to print only the fields of the embedded struct, such as a volume's source.
    only_sources: bool,
}

impl Place<'static> {
    /// The type at a path. Kubernetes may report a struct at one of the struct's own fields.
    fn of(root: MessageId, path: &str, value: &Value) -> Option<Self> {
        let (mut parent, mut place) = (None, Self::structure(root));
        for step in (Steps { rest: path }) {
            let next = match (step, place.shape) {
                (Step::Field(name), Shape::Single) => {
                    let Type::Message(id) = place.ty else { return None };
                    Self::field(schema().message(id), schema().message(id).field(name)?)
                }
                (Step::Index, Shape::List) | (Step::Index, Shape::Map) => place.item(),
                _ => return None,
            };
            parent = Some(std::mem::replace(&mut place, next));
        }
        let is_scalar = matches!(place.ty, Type::String | Type::Bool | Type::Int32 | Type::Int64 | Type::Double);
        match value {
            // Kubernetes may also report an item at the path of its list.
            Value::Object(fields) if place.shape == Shape::List && place.item().has_all(fields) => Some(place.item()),
            Value::Object(_) if place.shape == Shape::List || (is_scalar && place.shape == Shape::Single) => parent,
            _ => Some(place),
        }
    }
}

impl<'a> Place<'a> {
    fn structure(id: MessageId) -> Self {
        Self {
            ty: Type::Message(id),
            shape: Shape::Single,
            is_pointer: false,
            is_plain: false,
            field: None,
            only_sources: false,
        }
    }

    fn field(message: &Message, field: &'a Field) -> Self {
        Self {
            ty: field.ty,
            shape: field.shape,
            is_pointer: is_pointer(message, field),
            is_plain: is_plain(message),
            field: Some(field),
            only_sources: false,
        }
    }

    fn item(self) -> Self {
        Self { shape: Shape::Single, is_pointer: false, ..self }
    }

    /// Whether the value is a struct that has all these fields.
    fn has_all(self, fields: &Map) -> bool {
        let Type::Message(id) = self.ty else { return false };
        !fields.is_empty() && fields.keys().all(|name| schema().message(id).field(name).is_some())
    }

    fn text(self, value: &Value, bytes_max: usize) -> String {
        let mut out = Out { text: String::new(), bytes_max };
        self.write(value, &mut out);
        out.text
    }

    fn write(self, value: &Value, out: &mut Out) {
        if out.is_full() {
            return;
        }
        match (self.shape, value) {
            (Shape::List, Value::Array(items)) => {
                list(items.iter(), |item, out| self.item().write(item, out), ['[', ']'], out);
            }
            (Shape::Map, Value::Object(map)) => {
                let entry = |(key, value): (&CompactString, &Value), out: &mut Out| {
                    json(&Value::from(key.as_str()), out);
                    out.push(':');
                    self.item().write(value, out);
                };
                list(map.iter(), entry, ['{', '}'], out);
            }
            (Shape::Single, Value::Object(_) | Value::Null) => self.write_single(value, out),
            _ => json(value, out),
        }
    }

    fn write_single(self, value: &Value, out: &mut Out) {
        match (self.ty, value) {
            (_, Value::Null) if self.is_pointer => out.push_str("null"),
            (Type::Message(id), _) => structure(schema().message(id), value, self.only_sources, out),
            (Type::String, Value::Null) => out.push_str("\"\""),
            (Type::Bool, Value::Null) => out.push_str("false"),
            (Type::Int32 | Type::Int64 | Type::IntOrString, Value::Null) => out.push('0'),
            (Type::Quantity, Value::Null) => out.push_str("\"0\""),
            _ => json(value, out),
        }
    }

    fn is_omitted(self, value: &Value) -> bool {
        let always = self.field.is_some_and(|field| field.zero.is_shown());
        let empty = match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty() && self.shape == Shape::Map,
            _ => false,
        };
        empty && !always
    }
}

fn structure(message: &Message, value: &Value, only_sources: bool, out: &mut Out) {
    out.push('{');
    let mut fields = Fields { out, is_first: true, only_sources };
    fields.of(message, value);
    out.push('}');
}

/// Writes the fields of a struct as Go prints them.
struct Fields<'a> {
    out: &'a mut Out,
    is_first: bool,
    only_sources: bool,
}

impl Fields<'_> {
    fn of(&mut self, message: &Message, value: &Value) {
        let only_sources = std::mem::take(&mut self.only_sources);
        for field in in_order(message).into_iter().filter(|field| !only_sources || !field.inline.is_empty()) {
            let inner = &value[field.json.as_str()];
            let place = Place::field(message, field);
            match field.ty {
                // The field is embedded: its fields are written as fields of the struct itself.
                Type::Message(id) if field.json == "metadata" && is_plain(schema().message(id)) => {
                    self.of(schema().message(id), inner);
                }
                // Kubernetes prints the pod's host namespace fields inside its security context.
                Type::Message(id) if field.json == "securityContext" && short(message) == "PodSpec" => {
                    self.one("SecurityContext", |out| pod_security(message, value, schema().message(id), inner, out));
                }
                _ if place.is_plain && place.is_omitted(inner) => {}
                _ if place.is_plain => self.one(&field.json, |out| place.write(inner, out)),
                _ => self.one(&go_name(&field.json), |out| place.write(inner, out)),
            }
        }
    }

    fn one(&mut self, name: &str, write: impl FnOnce(&mut Out)) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(',');
        }
        json(&Value::from(name), self.out);
        self.out.push(':');
        write(self.out);
    }
}

const OF_THE_HOST: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];

fn pod_security(pod: &Message, spec: &Value, message: &Message, value: &Value, out: &mut Out) {
    out.push('{');
    let mut fields = Fields { out, is_first: true, only_sources: false };
    for field in OF_THE_HOST.iter().filter_map(|name| pod.field(name)) {
        let place = Place::field(pod, field);
        fields.one(&go_name(&field.json), |out| place.write(&spec[field.json.as_str()], out));
    }
    fields.of(message, value);
    out.push('}');
}

/// The fields in order of declaration. That is the order of the Protobuf numbers, except for a few structs.
pub(crate) fn in_order(message: &Message) -> Vec<&Field> {
    if let Some((_, order)) = orders::ORDERS.iter().find(|(name, _)| *name == short(message)) {
        return order.iter().filter_map(|name| message.field(name)).collect();
    }
    let mut fields: Vec<&Field> = message.fields.iter().collect();
    fields.sort_by_key(|field| (field.inline.first().copied().unwrap_or(field.number), field.number));
    fields
}

/// The name of a message without its package: `PodSpec`.
fn short(message: &Message) -> &str {
    message.name.rsplit('.').next().unwrap_or_default()
}

/// Whether the type is in apimachinery's meta package. Such types are printed as JSON, in one form for all versions.
fn is_plain(message: &Message) -> bool {
    message.name.contains(".apimachinery.pkg.apis.meta.")
}

/// Whether the field is a pointer in Go.
fn is_pointer(message: &Message, field: &Field) -> bool {
    if field.shape != Shape::Single {
        return true;
    }
    // The schema table does not record that `apiGroup` of these two types is a pointer.
    if field.json == "apiGroup" && matches!(short(message), "TypedLocalObjectReference" | "TypedObjectReference") {
        return true;
    }
    match field.ty {
        Type::String | Type::Bool | Type::Int32 | Type::Int64 | Type::Double => field.zero.is_explicit(),
        Type::Message(_) => {
            let is_part =
                ["Spec", "Status"].iter().any(|end| short_type(field).is_some_and(|name| name.ends_with(end)));
            !(field.zero == Zero::Always || (is_part && field.zero != Zero::Dropped && message.typed))
        }
        Type::IntOrString => field.zero != Zero::Always && field.json != "targetPort",
        Type::Quantity => field.zero != Zero::Always,
        _ => true,
    }
}

fn short_type(field: &Field) -> Option<&'static str> {
    match field.ty {
        Type::Message(id) => Some(short(schema().message(id))),
        _ => None,
    }
}

/// The Go name of a field: `apiGroup` is `APIGroup`; `podIP` only gets an upper-case first letter.
fn go_name(json: &str) -> String {
    const OTHERWISE: &[(&str, &str)] = &[
        ("cephfs", "CephFS"),
        ("diskURI", "DataDiskURI"),
        ("storageos", "StorageOS"),
        ("scaleIO", "ScaleIO"),
        ("wwids", "WWIDs"),
        ("$ref", "Ref"),
        ("$schema", "Schema"),
    ];
    const SHORT_FORMS: &[&str] = &[
        "api", "aws", "ca", "cel", "chap", "cidr", "cpu", "csi", "dns", "fc", "fs", "gce", "grpc", "http", "https",
        "id", "ip", "iqn", "iscsi", "json", "lun", "nfs", "oom", "os", "pd", "qos", "rbd", "se", "ssl", "tcp", "tls",
        "tty", "ttl", "udp", "uid", "url", "uri",
    ];
    if let Some(extension) = json.strip_prefix("x-kubernetes-") {
        return extension.split('-').fold("X".to_owned(), |name, word| name + &go_name(word));
    }
    if let Some((_, name)) = OTHERWISE.iter().find(|(name, _)| *name == json) {
        return (*name).to_owned();
    }
    let end = json.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(json.len());
    let (head, rest) = json.split_at(end);
    if SHORT_FORMS.contains(&head) {
        return head.to_uppercase() + rest;
    }
    if let Some(one) = head.strip_suffix('s').filter(|one| SHORT_FORMS.contains(one)) {
        return one.to_uppercase() + "s" + rest;
    }
    let (first, after) = json.split_at(json.chars().next().map_or(0, char::len_utf8));
    first.to_uppercase() + after
}

fn list<T>(
    items: impl Iterator<Item = T>,
    mut write: impl FnMut(T, &mut Out),
    [open, close]: [char; 2],
    out: &mut Out,
) {
    out.push(open);
    for (at, item) in items.enumerate() {
        if out.is_full() {
            break;
        }
        if at > 0 {
            out.push(',');
        }
        write(item, out);
    }
    out.push(close);
}

/// Writes JSON as Go does, with HTML characters escaped.
fn json(value: &Value, out: &mut Out) {
    for c in value.to_string().chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            c => out.push(c),
        }
    }
}

enum Step<'a> {
    Field(&'a str),
    /// An item of a list or an entry of a map.
    Index,
}

/// The steps of a path: `spec.containers[0].name`.
struct Steps<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Steps<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        if let Some(rest) = self.rest.strip_prefix('[') {
            self.rest = rest.split_once(']').map_or("", |(_, rest)| rest);
            return Some(Step::Index);
        }
        let rest = self.rest.strip_prefix('.').unwrap_or(self.rest);
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        self.rest = rest;
        (!name.is_empty()).then_some(Step::Field(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    fn shown(message: &str, path: &str, value: Value) -> String {
        let mut causes = [Cause::invalid(path, &value, "wrong")];
        show(schema().id(&format!("io.k8s.api.{message}")).expect("a message"), &mut causes);
        let [cause] = causes;
        let text = cause.message.strip_prefix("Invalid value: ").and_then(|text| text.strip_suffix(": wrong"));
        text.expect("a value").to_owned()
    }

    #[test]
    fn structures_have_all_their_fields_in_the_order_of_their_declaration() {
        for (message, path, value, expected) in [
            (
                "rbac.v1.RoleBinding",
                "roleRef",
                json!({"name": "x", "kind": "Role", "apiGroup": "g"}),
                r#"{"APIGroup":"g","Kind":"Role","Name":"x"}"#,
            ),
            (
                "batch.v1.Job",
                "spec.successPolicy",
                json!({"rules": [{}]}),
                r#"{"Rules":[{"SucceededIndexes":null,"SucceededCount":null}]}"#,
            ),
            (
                "core.v1.Service",
                "spec.ports[1]",
                json!({"port": 80, "protocol": "TCP"}),
                r#"{"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#,
            ),
            // Types of the meta package are printed as JSON. An object's metadata is printed as a field of the object's
            // struct.
            (
                "apps.v1.Deployment",
                "spec.selector",
                json!({"matchExpressions": [{"operator": "In", "key": "a"}], "matchLabels": {}}),
                r#"{"matchExpressions":[{"key":"a","operator":"In"}]}"#,
            ),
            (
                "core.v1.Pod",
                "metadata.ownerReferences",
                json!([{"uid": "u", "kind": "K", "controller": true}]),
                r#"[{"apiVersion":"","kind":"K","name":"","uid":"u","controller":true}]"#,
            ),
            // Kubernetes reports the struct at one of its fields, or under another name.
            ("flowcontrol.v1.FlowSchema", "spec.distinguisherMethod.type", json!({"type": "x"}), r#"{"Type":"x"}"#),
            (
                "core.v1.Node",
                "metadata.taints[0]",
                json!({"key": "a", "effect": "NoSchedule"}),
                r#"{"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}"#,
            ),
            (
                "storage.v1.CSINode",
                "spec.drivers",
                json!({"name": "d", "nodeID": "n", "allocatable": null}),
                r#"{"Name":"d","NodeID":"n","TopologyKeys":null,"Allocatable":null}"#,
            ),
            // A null is printed as the zero of its type.
            ("core.v1.Pod", "spec.containers[0].image", json!(null), r#""""#),
            ("core.v1.Pod", "spec.priority", json!(null), "null"),
            ("core.v1.Pod", "spec.nosuch", json!({"a": 1}), r#"{"a":1}"#),
            ("core.v1.ConfigMap", "data", json!({"a": "<b>"}), r#"{"a":"\u003cb\u003e"}"#),
        ] {
            assert_eq!(shown(message, path, value), expected, "{path}");
        }
    }

    #[test]
    fn a_pod_has_the_namespaces_of_the_host_with_what_is_about_security() {
        let spec = shown("core.v1.Pod", "spec", json!({"hostNetwork": true, "securityContext": {"runAsUser": 1}}));
        let expected = r#""NodeName":"","SecurityContext":{"HostNetwork":true,"HostPID":false,"HostIPC":false,"ShareProcessNamespace":null,"HostUsers":null,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":1,"#;
        assert!(spec.contains(expected), "{spec}");
    }

    #[test]
    fn a_change_is_told_line_by_line() {
        let (old, new) = (json!({"hostPath": {"path": "/x"}}), json!({"hostPath": {"path": "/y"}}));
        let mut causes = [Cause::changed("spec.persistentvolumesource", "fixed", &old, &new)];
        show(schema().id("io.k8s.api.core.v1.PersistentVolume").expect("a message"), &mut causes);
        assert_eq!(
            causes[0].message,
            "Forbidden: fixed\n@@ -2,7 +2,7 @@\n  \"GCEPersistentDisk\": null,\n  \"AWSElasticBlockStore\": null,\n  \
             \"HostPath\": {\n-  \"Path\": \"/x\",\n+  \"Path\": \"/y\",\n   \"Type\": null\n  },\n  \"Glusterfs\": null,\n"
        );
    }
}
