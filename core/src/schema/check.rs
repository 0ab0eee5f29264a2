//! Checks a document against the message that describes it: checks types as Go's decoder does, and removes unknown
//! fields.
//!
//! The check is a single walk that changes the document in place. A valid document needs no allocation: the path of the
//! walk is a chain of borrowed segments on the stack, and is printed only for errors.

use std::fmt;

use holdfast_value::{CompactString, Map, Value};

use crate::object::base64;
use crate::object::duration;
use crate::refusal::{Cut, PATH_BYTES_MAX, Texts};

use super::{Field, Message, MessageId, Schema, Shape, Type, Zero, go_names, quantity, timestamp};

/// A value has the wrong type. The text is the message of Kubernetes' decoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeError(pub String);

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TypeError {}

/// Checks `document` against `message`. Removes unknown fields and returns their paths
/// (`spec.template.spec.containers[0].foo`), up to a limit of text.
///
/// As in Go, a null field is removed, and a null item or map value becomes its type's zero. Empty values that Go would
/// not write are removed too. Times and numeric quantities are rewritten as Kubernetes shows them. After an error the
/// document is only partly processed.
pub fn check(schema: &Schema, message: MessageId, document: &mut Value) -> Result<Texts, TypeError> {
    check_change(schema, message, document, None)
}

/// Like [`check`], for a document that was made by changing a checked document. Parts that the two documents share are
/// skipped.
pub fn check_change(
    schema: &Schema,
    message: MessageId,
    document: &mut Value,
    checked: Option<&Value>,
) -> Result<Texts, TypeError> {
    let message = schema.message(message);
    let mut walk = Walk { schema, unknown: Texts::default(), lenient: 0 };
    match document {
        Value::Object(object) => walk.message(message, object, checked, None)?,
        Value::Null => *document = Value::Object(Map::new()),
        other => {
            let text = format!("json: cannot unmarshal {} into Go value of type {}", kind(other), go_name(message));
            return Err(TypeError(text));
        }
    }
    Ok(walk.unknown)
}

struct Walk<'a> {
    schema: &'a Schema,
    unknown: Texts,
    /// The number of enclosing values that Kubernetes decodes separately. Inside such values it does not look for
    /// unknown fields.
    lenient: usize,
}

/// The path of the value that is being checked.
#[derive(Clone, Copy)]
struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    segment: Segment<'a>,
}

#[derive(Clone, Copy)]
enum Segment<'a> {
    Field {
        message: &'a Message,
        name: &'a str,
    },
    /// A key of a map. Go's error text omits the key; the path of an unknown field contains it.
    Key(&'a str),
    Index(usize),
}

/// The field that contains a value, either directly or as an item of a list or map.
#[derive(Clone, Copy)]
struct Owner<'a> {
    message: &'a Message,
    field: &'a Field,
}

impl Owner<'_> {
    /// Whether the field maps resource names to quantities.
    fn is_resource_list(&self) -> bool {
        self.field.shape == Shape::Map
            && self.field.ty == Type::Quantity
            && self.message.name.starts_with("io.k8s.api.core.")
    }
}

impl<'a> Walk<'a> {
    fn message(
        &mut self,
        message: &'a Message,
        object: &mut Map,
        checked: Option<&Value>,
        parent: Option<&Path>,
    ) -> Result<(), TypeError> {
        let checked = checked.and_then(Value::as_object);
        if checked.is_some_and(|checked| checked.is_same(object)) {
            return Ok(());
        }
        let mut failure = None;
        object.retain(|key, value| {
            if failure.is_some() {
                return true;
            }
            let path = Path { parent, segment: Segment::Field { message, name: key } };
            let result = match message.field(key) {
                Some(_) if value.is_null() => return false,
                Some(field) => {
                    let checked = checked.and_then(|checked| checked.get(key));
                    self.field(Owner { message, field }, value, checked, &path)
                }
                None if message.typed && (key == "apiVersion" || key == "kind") => match &*value {
                    Value::Null => return false,
                    Value::String(_) => Ok(()),
                    other => Err(mismatch(other, message, &path, "string")),
                },
                None => {
                    if self.lenient == 0 {
                        self.unknown.push_with(|| path.with_indexes());
                    }
                    return false;
                }
            };
            failure = result.err();
            // A value that Kubernetes reads as empty has been replaced by null. It is removed like a null from the
            // client.
            let gone = value.is_null() || message.field(key).is_some_and(|field| vanishes(field, value));
            failure.is_some() || !gone
        });
        failure.map_or(Ok(()), Err)
    }

    fn field(
        &mut self,
        owner: Owner<'a>,
        value: &mut Value,
        checked: Option<&Value>,
        path: &Path,
    ) -> Result<(), TypeError> {
        match (owner.field.shape, value) {
            (Shape::Single, value) => self.value(owner, value, checked, path),
            (Shape::List, Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    let checked = checked.and_then(|checked| checked.get(index));
                    self.item(owner, item, checked, &Path { parent: Some(path), segment: Segment::Index(index) })?;
                }
                Ok(())
            }
            (Shape::Map, Value::Object(values)) => {
                let checked = checked.and_then(Value::as_object);
                if checked.is_some_and(|checked| checked.is_same(values)) {
                    return Ok(());
                }
                for (key, value) in values.iter_mut() {
                    let checked = checked.and_then(|checked| checked.get(key));
                    self.item(owner, value, checked, &Path { parent: Some(path), segment: Segment::Key(key) })?;
                }
                Ok(())
            }
            (_, value) => Err(mismatch(value, owner.message, path, &self.go_field_type(owner))),
        }
    }

    /// Checks an item of a list, or a value of a map.
    fn item(
        &mut self,
        owner: Owner<'a>,
        value: &mut Value,
        checked: Option<&Value>,
        path: &Path,
    ) -> Result<(), TypeError> {
        if value.is_null() {
            *value = zero(owner.field.ty);
            return Ok(());
        }
        self.value(owner, value, checked, path)
    }

    fn value(
        &mut self,
        owner: Owner<'a>,
        value: &mut Value,
        checked: Option<&Value>,
        path: &Path,
    ) -> Result<(), TypeError> {
        let wrong = |value: &Value, ty: &str| Err(mismatch(value, owner.message, path, ty));
        match (owner.field.ty, value) {
            (Type::String, Value::String(_))
            | (Type::Bool, Value::Bool(_))
            | (Type::Double, Value::Number(_))
            | (Type::IntOrString, Value::String(_))
            | (Type::RawExtension | Type::FieldsV1 | Type::Json, _) => Ok(()),
            (Type::Message(id), Value::Object(object)) => {
                self.message(self.schema.message(id), object, checked, Some(path))
            }
            (Type::Int32 | Type::IntOrString, value) => match value.as_i64() {
                Some(number) if i32::try_from(number).is_ok() => Ok(()),
                _ => wrong(value, "int32"),
            },
            (Type::Int64, value) => match value.as_i64() {
                Some(_) => Ok(()),
                None => wrong(value, "int64"),
            },
            (Type::Quantity, value) => {
                check_quantity(value)?;
                if owner.is_resource_list() {
                    raise_to_thousandths(value);
                }
                Ok(())
            }
            (Type::Bytes, Value::String(text)) => rewrite(base64::check(text), text),
            (Type::Time, Value::String(text)) => rewrite(timestamp::seconds(text), text),
            (Type::MicroTime, Value::String(text)) => rewrite(timestamp::micros(text), text),
            (Type::Duration, Value::String(text)) => duration::check(text).map_err(TypeError),
            (Type::StringList, Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    match item {
                        Value::String(_) => {}
                        Value::Null => *item = Value::from(""),
                        other => {
                            let path = Path { parent: Some(path), segment: Segment::Index(index) };
                            return Err(mismatch(other, owner.message, &path, "string"));
                        }
                    }
                }
                Ok(())
            }
            (
                ty @ (Type::JsonSchemaPropsOrArray | Type::JsonSchemaPropsOrBool | Type::JsonSchemaPropsOrStringArray),
                value,
            ) => {
                self.lenient += 1;
                let result = self.schema_or(ty, owner, value, path);
                self.lenient -= 1;
                result
            }
            (_, value) => wrong(value, &self.go_type(owner)),
        }
    }

    /// Checks a field that contains either a JSON schema or a simpler value, such as a boolean. Only JSONSchemaProps
    /// has such fields.
    fn schema_or(&mut self, ty: Type, owner: Owner<'a>, value: &mut Value, path: &Path) -> Result<(), TypeError> {
        match (ty, value) {
            (_, Value::Object(object)) => self.message(owner.message, object, None, Some(path)),
            (Type::JsonSchemaPropsOrBool, Value::Bool(_)) => Ok(()),
            (Type::JsonSchemaPropsOrBool, _) => Err(TypeError("boolean or JSON schema expected".to_string())),
            (Type::JsonSchemaPropsOrArray, Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    let path = Path { parent: Some(path), segment: Segment::Index(index) };
                    match item {
                        Value::Object(object) => self.message(owner.message, object, None, Some(&path))?,
                        Value::Null => *item = Value::Object(Map::new()),
                        other => return Err(mismatch(other, owner.message, &path, &go_name(owner.message))),
                    }
                }
                Ok(())
            }
            (Type::JsonSchemaPropsOrStringArray, Value::Array(items)) => {
                match items.iter().find(|item| !item.is_string()) {
                    Some(item) => Err(mismatch(item, owner.message, path, "string")),
                    None => Ok(()),
                }
            }
            // Kubernetes' decoder reads a value of any other type as empty.
            (_, value) => {
                *value = Value::Null;
                Ok(())
            }
        }
    }

    fn go_field_type(&self, owner: Owner) -> String {
        if let Some(name) = go_names::whole(owner.message, &owner.field.json) {
            return name;
        }
        let item = self.go_type(owner);
        match owner.field.shape {
            Shape::Single => item,
            Shape::List => format!("[]{item}"),
            Shape::Map if owner.is_resource_list() => "v1.ResourceList".to_string(),
            Shape::Map => {
                let key = go_names::key(owner.message, &owner.field.json);
                format!("map[{}]{item}", key.as_deref().unwrap_or("string"))
            }
        }
    }

    /// The Go type of the values of a field, for error messages.
    fn go_type(&self, owner: Owner) -> String {
        if let Some(name) = go_names::item(owner.message, &owner.field.json) {
            return name;
        }
        let name = match owner.field.ty {
            Type::String | Type::Time | Type::MicroTime | Type::Duration => "string",
            Type::Bool => "bool",
            Type::Int32 => "int32",
            Type::Int64 => "int64",
            Type::Double => "float64",
            Type::Bytes => "[]uint8",
            Type::Message(id) => return go_name(self.schema.message(id)),
            Type::IntOrString => "intstr.IntOrString",
            Type::Quantity => "resource.Quantity",
            Type::RawExtension => "runtime.RawExtension",
            Type::FieldsV1 => "v1.FieldsV1",
            Type::Json => "v1.JSON",
            Type::JsonSchemaPropsOrArray => "v1.JSONSchemaPropsOrArray",
            Type::JsonSchemaPropsOrBool => "v1.JSONSchemaPropsOrBool",
            Type::JsonSchemaPropsOrStringArray => "v1.JSONSchemaPropsOrStringArray",
            Type::StringList => "[]string",
        };
        name.to_string()
    }
}

impl Path<'_> {
    /// The path with indexes: `spec.containers[0].image`.
    fn with_indexes(&self) -> String {
        self.join(|segment, path| match segment {
            Segment::Field { name, .. } | Segment::Key(name) => add_name(path, name),
            Segment::Index(index) => _ = path.add(&format!("[{index}]")),
        })
    }

    /// The path as Go's decoder prints it: `spec.volumes.VolumeSource.secret`.
    fn fields_only(&self) -> String {
        self.join(|segment, path| {
            let Segment::Field { message, name } = segment else { return };
            let embedded = message.field(name).map(|field| go_names::embedded(message, field)).unwrap_or_default();
            embedded.into_iter().chain([name]).for_each(|name| add_name(path, name));
        })
    }

    fn join(&self, write: impl Fn(Segment, &mut Cut)) -> String {
        let mut segments = Vec::new();
        let mut at = Some(self);
        while let Some(path) = at {
            segments.push(path.segment);
            at = path.parent;
        }
        let mut path = Cut::at(PATH_BYTES_MAX);
        segments.into_iter().rev().for_each(|segment| write(segment, &mut path));
        path.text
    }
}

fn add_name(path: &mut Cut, name: &str) {
    if !path.text.is_empty() {
        path.add(".");
    }
    path.add(name);
}

/// Checks a quantity and rewrites it into its canonical form: `0.5` becomes `500m`. A client may send a quantity as a
/// number.
fn check_quantity(value: &mut Value) -> Result<(), TypeError> {
    let problem = |problem: quantity::Problem| TypeError(problem.to_string());
    let sent = match value {
        Value::String(text) => std::mem::take(text),
        Value::Number(number) => number.to_string().into(),
        _ => return Err(problem(quantity::Problem::Format)),
    };
    let mut shown = quantity::canonical(&sent).map_err(problem)?;
    if shown != sent {
        // An amount in a binary notation that is no multiple of a binary suffix is parsed again as a decimal amount.
        shown = quantity::canonical(&shown).map_err(problem)?;
    }
    *value = Value::from(shown);
    Ok(())
}

/// Rounds a resource amount up to thousandths.
pub fn raise_to_thousandths(value: &mut Value) {
    const THOUSANDTH: i128 = 1_000_000;
    let Some(text) = value.as_str() else { return };
    let is_exponent = text.contains('e');
    if !is_exponent && !text.ends_with(['n', 'u']) {
        return;
    }
    let Some(nanos) = quantity::nanos(text).filter(|nanos| nanos % THOUSANDTH != 0) else { return };
    let raised = format!("{}{}", nanos.div_euclid(THOUSANDTH) + 1, if is_exponent { "e-3" } else { "m" });
    *value = Value::from(quantity::canonical(&raised).unwrap_or(raised));
}

/// Replaces `text` by the canonical form that a check has returned, if it returned one.
fn rewrite(result: Result<Option<String>, String>, text: &mut CompactString) -> Result<(), TypeError> {
    if let Some(better) = result.map_err(TypeError)? {
        *text = better.into();
    }
    Ok(())
}

/// Whether an empty value counts as absent because Go omits it: a list, a map, or a scalar that is not a pointer. Two
/// kinds of lists are kept: an empty `managedFields` is a request to reset them, and some lists must not be empty.
fn vanishes(field: &Field, value: &Value) -> bool {
    match (field.shape, value) {
        (Shape::List, Value::Array(items)) => {
            items.is_empty() && !matches!(field.zero, Zero::Always | Zero::Kept) && field.json != "managedFields"
        }
        (Shape::Map, Value::Object(values)) => values.is_empty() && !matches!(field.zero, Zero::Always | Zero::Kept),
        (Shape::Single, value) => matches!(field.zero, Zero::Plain | Zero::Dropped) && is_plain_zero(field.ty, value),
        _ => false,
    }
}

fn is_plain_zero(ty: Type, value: &Value) -> bool {
    match (ty, value) {
        (Type::String, Value::String(text)) => text.is_empty(),
        (Type::Bool, Value::Bool(set)) => !set,
        (Type::Int32 | Type::Int64 | Type::Double, Value::Number(number)) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

/// The value into which Go's decoder turns a null item of this type.
fn zero(ty: Type) -> Value {
    match ty {
        Type::String | Type::Bytes | Type::Duration => Value::from(""),
        Type::Bool => Value::Bool(false),
        Type::Int32 | Type::Int64 | Type::IntOrString => Value::from(0),
        Type::Double => Value::from(0.0),
        Type::Message(_) => Value::Object(Map::new()),
        Type::Quantity => Value::from("0"),
        Type::StringList => Value::Array(Vec::new()),
        _ => Value::Null,
    }
}

fn mismatch(value: &Value, message: &Message, path: &Path, ty: &str) -> TypeError {
    let what = match value {
        // Go's messages show a number only if the field is an integer.
        Value::Number(number) if ty.starts_with("int") => format!("number {number}"),
        other => kind(other).to_string(),
    };
    let name = bare(&message.name);
    TypeError(format!("json: cannot unmarshal {what} into Go struct field {name}.{} of type {ty}", path.fields_only()))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The Go name of a message's type, with its package: `v1.Deployment`.
fn go_name(message: &Message) -> String {
    let mut parts = message.name.rsplit('.');
    let (name, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    format!("{package}.{name}")
}

fn bare(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use holdfast_value::json;

    use super::*;
    use crate::schema::schema;

    fn run(kind: &str, mut document: Value) -> (Value, Result<Vec<String>, String>) {
        let schema = schema();
        let id = schema.id(&format!("io.k8s.{kind}")).unwrap_or_else(|| panic!("{kind}"));
        let result = check(schema, id, &mut document).map(Texts::into_vec).map_err(|e| e.0);
        (document, result)
    }

    const DEPLOYMENT: &str = "api.apps.v1.Deployment";
    const CONFIG_MAP: &str = "api.core.v1.ConfigMap";

    #[test]
    fn a_good_document_is_left_alone() {
        let document = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "labels": {"x": "y"}, "creationTimestamp": "2024-01-01T00:00:00Z",
                "managedFields": [{"fieldsV1": {"f:anything": null}}]},
            "spec": {"replicas": 3, "template": {"spec": {
                "containers": [{"name": "c", "resources": {"limits": {"cpu": "500m"}},
                    "livenessProbe": {"httpGet": {"port": "http"}},
                    "ports": [{"containerPort": 80}]}],
                "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}},
        });
        assert_eq!(run(DEPLOYMENT, document.clone()), (document, Ok(vec![])));
    }

    #[test]
    fn wrong_types() {
        let field = |text: &str| Err(format!("json: cannot unmarshal {text}"));
        let pod = |container: Value| json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        let cases = [
            (DEPLOYMENT, json!([]), field("array into Go value of type v1.Deployment")),
            (
                DEPLOYMENT,
                json!({"spec": {"replicas": "3"}}),
                field("string into Go struct field DeploymentSpec.spec.replicas of type int32"),
            ),
            (
                DEPLOYMENT,
                json!({"spec": {"replicas": 1.5}}),
                field("number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32"),
            ),
            (
                DEPLOYMENT,
                json!({"spec": {"replicas": 3_000_000_000_u64}}),
                field("number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32"),
            ),
            (
                DEPLOYMENT,
                json!({"metadata": {"labels": {"a": 1}}}),
                field("number into Go struct field ObjectMeta.metadata.labels of type string"),
            ),
            (
                DEPLOYMENT,
                json!({"metadata": {"labels": ["a"]}}),
                field("array into Go struct field ObjectMeta.metadata.labels of type map[string]string"),
            ),
            (DEPLOYMENT, json!({"kind": 1}), field("number into Go struct field Deployment.kind of type string")),
            (
                DEPLOYMENT,
                pod(json!("c")),
                field("string into Go struct field PodSpec.spec.template.spec.containers of type v1.Container"),
            ),
            (
                DEPLOYMENT,
                pod(json!({"env": [{"value": 1}]})),
                field("number into Go struct field EnvVar.spec.template.spec.containers.env.value of type string"),
            ),
            (
                DEPLOYMENT,
                pod(json!({"ports": {}})),
                field(
                    "object into Go struct field Container.spec.template.spec.containers.ports \
                     of type []v1.ContainerPort",
                ),
            ),
            (
                DEPLOYMENT,
                pod(json!({"livenessProbe": {"tcpSocket": {"port": true}}})),
                field(
                    "bool into Go struct field TCPSocketAction.spec.template.spec.containers.livenessProbe.\
                     ProbeHandler.tcpSocket.port of type int32",
                ),
            ),
            (
                DEPLOYMENT,
                pod(json!({"resources": {"limits": {"cpu": "x"}}})),
                Err(quantity::Problem::Format.to_string()),
            ),
            (
                CONFIG_MAP,
                json!({"data": {"a": {}}}),
                field("object into Go struct field ConfigMap.data of type string"),
            ),
            (
                CONFIG_MAP,
                json!({"immutable": "yes"}),
                field("string into Go struct field ConfigMap.immutable of type bool"),
            ),
            (CONFIG_MAP, json!({"binaryData": {"a": "YQ"}}), Err("illegal base64 data at input byte 0".to_string())),
        ];
        for (kind, document, expected) in cases {
            assert_eq!(run(kind, document.clone()).1, expected, "{document}");
        }
    }

    #[test]
    fn unknown_fields_go_and_are_named() {
        let (document, unknown) = run(
            DEPLOYMENT,
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c"}, {"name": "d", "foo": 1, "Image": "x"}]}}},
                "metadata": {"managedFields": [{"a": 1}]}, "zzz": {}}),
        );
        let mut unknown = unknown.expect("no type is wrong");
        unknown.sort();
        assert_eq!(
            unknown,
            [
                "metadata.managedFields[0].a",
                "spec.template.spec.containers[1].Image",
                "spec.template.spec.containers[1].foo",
                "zzz"
            ]
        );
        assert_eq!(document["spec"]["template"]["spec"]["containers"][1], json!({"name": "d"}));
        assert!(document.get("zzz").is_none());
        // The value is in a map, so the path contains its key.
        let (_, unknown) = run(
            "api.resource.v1.ResourceSliceSpec",
            json!({"devices": [{"attributes": {"a.b/c": {"x": 1, "string": "s"}}}]}),
        );
        assert_eq!(unknown, Ok(vec!["devices[0].attributes.a.b/c.x".to_string()]));
    }

    #[test]
    fn nulls_vanish() {
        let (document, unknown) = run(
            CONFIG_MAP,
            json!({"metadata": {"creationTimestamp": null, "labels": null, "finalizers": ["a", null]},
                "data": {"a": null}, "kind": null}),
        );
        assert_eq!(unknown, Ok(vec![]));
        assert_eq!(document, json!({"metadata": {"finalizers": ["a", ""]}, "data": {"a": ""}}));
        assert_eq!(run(CONFIG_MAP, Value::Null), (json!({}), Ok(vec![])));
        let (document, _) = run("api.core.v1.LimitRangeItem", json!({"max": {"cpu": null, "memory": 1000}}));
        assert_eq!(document, json!({"max": {"cpu": "0", "memory": "1k"}}));
    }

    #[test]
    fn raw_values_stay_raw() {
        let revision = json!({"data": {"spec": {"x": null}, "anything": [1, "a"]}, "revision": 1});
        assert_eq!(run("api.apps.v1.ControllerRevision", revision.clone()), (revision, Ok(vec![])));
    }

    #[test]
    fn json_schemas_nest() {
        let kind = "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        let document = json!({
            "$ref": "#/x", "type": "object", "default": {"a": null}, "enum": [null, 1],
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"a": {"items": {"type": "string", "minLength": 1}}},
            "additionalProperties": false,
            "dependencies": {"b": ["c"]},
        });
        assert_eq!(run(kind, document.clone()), (document, Ok(vec![])));
        assert_eq!(run(kind, json!({"properties": {"a": {"b": 1}}})).1, Ok(vec!["properties.a.b".to_string()]));
        assert_eq!(run(kind, json!({"items": {"b": 1}})), (json!({"items": {}}), Ok(vec![])));
        assert_eq!(run(kind, json!({"additionalProperties": 1})).1, Err("boolean or JSON schema expected".to_string()));
        assert_eq!(
            run(kind, json!({"items": {"minLength": "1"}})).1,
            Err("json: cannot unmarshal string into Go struct field JSONSchemaProps.items.minLength of type int64"
                .to_string())
        );
    }

    #[test]
    fn quantities_are_rewritten() {
        for (sent, kept) in [
            (json!("0.5"), "500m"),
            (json!("1000m"), "1"),
            (json!("1024Mi"), "1Gi"),
            (json!(2), "2"),
            (json!("2.9296875Ki"), "3k"),
            (json!("500m"), "500m"),
        ] {
            let (document, _) = run("api.core.v1.ResourceRequirements", json!({"limits": {"cpu": sent}}));
            assert_eq!(document["limits"]["cpu"], kept, "{sent}");
        }
    }

    #[test]
    fn times_are_rewritten() {
        let (document, _) = run(CONFIG_MAP, json!({"metadata": {"creationTimestamp": "2024-01-01T01:00:00.5+01:00"}}));
        assert_eq!(document["metadata"]["creationTimestamp"], "2024-01-01T00:00:00Z");
        let (_, result) = run("api.coordination.v1.LeaseSpec", json!({"renewTime": 1}));
        assert_eq!(
            result,
            Err("json: cannot unmarshal number into Go struct field LeaseSpec.renewTime of type string".to_string())
        );
    }
}
