//! The definitions of OpenAPI: the schema of each type, made from the schema table or from the schema of a custom
//! resource.

use super::custom;
use super::descriptions;
use super::enums;
use super::operation::{Form, GroupVersionKind};
use crate::kinds::body_message;
use crate::schema::{Field, ListType, Message, Schema, Shape, Type, Zero};
use crate::wire::discovery::{Catalog, Served};
use holdfast_value::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The address to which Kubernetes refers in its descriptions.
const CONVENTIONS: &str = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// Groups of Kubernetes that have no served resource. Like every built-in group they have kinds DeleteOptions and
/// WatchEvent of their own. Groups of custom resources do not have these kinds, so that the definitions of
/// DeleteOptions and WatchEvent never change.
const UNSERVED: [(&str, &str); 3] =
    [("admission.k8s.io", "v1"), ("admission.k8s.io", "v1beta1"), ("imagepolicy.k8s.io", "v1alpha1")];

/// The fields that Kubernetes' documents list as required, although the schema table lists them as optional.
const REQUIRED: [(&str, &str); 2] =
    [("io.k8s.api.core.v1.EphemeralContainer", "name"), ("io.k8s.api.core.v1.Event", "metadata")];

/// Extensions that Kubernetes' documents have at single fields, and that have no effect on apply or patches: the
/// message, the field, the extension and its value.
const MARKERS: [(&str, &str, &str, &str); 4] = [
    ("APIServiceSpec", "caBundle", "x-kubernetes-list-type", "atomic"),
    ("PersistentVolumeClaimStatus", "allocatedResourceStatuses", "x-kubernetes-map-type", "granular"),
    ("PersistentVolumeSpec", "claimRef", "x-kubernetes-map-type", "granular"),
    ("PodDisruptionBudgetSpec", "selector", "x-kubernetes-patch-strategy", "replace"),
];

/// Writes the definitions of one document, in the form of one OpenAPI version.
pub(super) struct Definitions<'a> {
    form: Form,
    schema: &'a Schema,
    /// The schemas of the requested custom resources; `None` for a resource without a schema.
    custom: BTreeMap<String, Option<Value>>,
    /// The selectable fields of custom resources.
    selectable: BTreeMap<String, Vec<Value>>,
    /// For each definition, the kinds that it describes. Two versions of a kind may share a definition.
    kinds: BTreeMap<String, Vec<GroupVersionKind>>,
    /// For each definition of a list, what it is a list of.
    lists: BTreeMap<String, ListOf>,
}

/// What a list definition is a list of.
struct ListOf {
    /// The name of the definition of the items.
    item: String,
    /// The plural name of the items' resource: `pods`.
    plural: String,
}

impl<'a> Definitions<'a> {
    /// Prepares the definitions `roots`, which the caller will use, and all definitions to which they refer.
    pub(super) fn new(form: Form, schema: &'a Schema, catalog: &Catalog, roots: &BTreeSet<String>) -> Self {
        let mut kinds: BTreeMap<String, Vec<GroupVersionKind>> = BTreeMap::new();
        let mut lists = BTreeMap::new();
        let mut custom = BTreeMap::new();
        let mut selectable = BTreeMap::new();
        let mut built_in: BTreeSet<(&str, &str)> = UNSERVED.into_iter().collect();
        for gv in catalog.group_versions() {
            if gv.resources.iter().any(|served| schema.id(&served.version.message).is_some()) {
                built_in.insert((&gv.group, &gv.version));
            }
            for served in &gv.resources {
                if let Some(version) =
                    served.version.custom.as_ref().filter(|_| roots.contains(&served.version.message))
                {
                    custom.insert(served.version.message.clone(), version.openapi());
                    if !version.selectable.is_empty() {
                        let fields = version.selectable.iter().map(|path| json!({"fieldPath": path})).collect();
                        selectable.insert(served.version.message.clone(), fields);
                    }
                }
                let (kind, message) = (&served.kind.kind, &served.version.message);
                let own = GroupVersionKind::new(&gv.group, &gv.version, kind);
                kinds.entry(message.clone()).or_default().push(own);
                if served.kind.verbs.contains(&"list") {
                    let name = list_of(served);
                    let list = GroupVersionKind::new(&gv.group, &gv.version, &served.kind.list_kind());
                    kinds.entry(name.clone()).or_default().push(list);
                    lists.insert(name, ListOf { item: message.clone(), plural: served.kind.resource.clone() });
                }
                for (group, version, kind) in served.subresources().into_iter().filter_map(|sub| sub.body.as_ref()) {
                    if let Some(message) = body_definition(catalog, group, version, kind) {
                        let own = GroupVersionKind::new(group, version, kind);
                        let known = kinds.entry(message).or_default();
                        if !known.contains(&own) {
                            known.push(own);
                        }
                    }
                }
            }
        }
        for kind in ["DeleteOptions", "WatchEvent"] {
            let everywhere = built_in.iter().map(|(group, version)| GroupVersionKind::new(group, version, kind));
            kinds.insert(format!("{META}.{kind}"), everywhere.collect());
        }
        for kind in ["Status", "APIResourceList", "APIGroup", "APIGroupList", "APIVersions"] {
            kinds.insert(format!("{META}.{kind}"), vec![GroupVersionKind::new("", "v1", kind)]);
        }
        Self { form, schema, custom, selectable, kinds, lists }
    }

    /// The names of `roots`, and of all definitions to which they refer, directly or through others.
    pub(super) fn closure(&self, roots: BTreeSet<String>) -> BTreeSet<String> {
        let mut waiting: Vec<String> = roots.iter().cloned().collect();
        let mut known = roots;
        while let Some(name) = waiting.pop() {
            let mut found = Vec::new();
            collect_references(&self.definition(&name), self.form.reference_prefix(), &mut found);
            for name in found {
                if known.insert(name.clone()) {
                    waiting.push(name);
                }
            }
        }
        known
    }

    /// Whether the definition describes a requested custom resource, or the list of such a resource.
    pub(super) fn is_custom(&self, name: &str) -> bool {
        let resource = self.lists.get(name).map_or(name, |list| &list.item);
        self.custom.contains_key(resource)
    }

    pub(super) fn definition(&self, name: &str) -> Value {
        let mut definition = if let Some(special) = special(name, self.form) {
            special
        } else if let Some(message) = self.schema.id(name).map(|id| self.schema.message(id)) {
            self.message(message)
        } else if let Some(list) = self.lists.get(name) {
            self.list(name, list)
        } else {
            self.custom_resource(self.custom.get(name).and_then(Option::as_ref))
        };
        if definition.get("description").is_none() {
            match (&*descriptions::of_type(name), self.lists.get(name)) {
                ("", Some(list)) => definition["description"] = json!(list_description(&list.item)),
                ("", None) => {}
                (text, _) => definition["description"] = json!(text),
            }
        }
        if let Some(kinds) = self.kinds.get(name) {
            let kinds = kinds.iter().map(GroupVersionKind::to_value).collect();
            definition["x-kubernetes-group-version-kind"] = Value::Array(kinds);
        }
        if let Some(fields) = self.selectable.get(name) {
            definition["x-kubernetes-selectable-fields"] = Value::Array(fields.clone());
        }
        definition
    }

    fn message(&self, message: &Message) -> Value {
        let mut properties = Map::new();
        if message.typed {
            insert_type_meta(&mut properties);
        }
        for field in &message.fields {
            properties.insert(field.json.clone(), self.property(message, field));
        }
        let mut definition = json!({"type": "object"});
        if !properties.is_empty() {
            definition["properties"] = Value::Object(properties);
        }
        let required: Vec<&str> = required(message).map(|field| field.json.as_str()).collect();
        if !required.is_empty() {
            definition["required"] = json!(required);
        }
        if message.atomic {
            definition["x-kubernetes-map-type"] = json!("atomic");
        }
        if let Some(unions) = enums::unions(&message.name) {
            definition["x-kubernetes-unions"] = unions;
        }
        definition
    }

    fn property(&self, message: &Message, field: &Field) -> Value {
        let bare = message.name.rsplit('.').next().unwrap_or_default();
        let values = enums::values(bare, &field.json);
        let mut beside = Map::new();
        let mut property = match field.shape {
            Shape::Single => {
                beside.extend(values.map(|values| ("enum".to_owned(), json!(values))));
                self.single(&message.name, &field.ty)
            }
            Shape::List => json!({"type": "array", "items": self.element(&message.name, &field.ty, values)}),
            Shape::Map => {
                json!({"type": "object", "additionalProperties": self.element(&message.name, &field.ty, values)})
            }
        };
        let text = descriptions::of_field(&message.name, &field.json);
        if !text.is_empty() {
            beside.insert("description", json!(text));
        }
        if let Some(default) = self.default_of(field) {
            beside.insert("default", default);
        }
        // Clients never apply a list of objects, so the field `items` of a list has no merge extensions.
        let is_list = message.typed && bare.ends_with("List") && field.json == "items";
        if !is_list {
            insert_extensions(field, &mut beside);
        }
        let markers = MARKERS.iter().filter(|(owner, name, ..)| (*owner, *name) == (bare, field.json.as_str()));
        beside.extend(markers.map(|(.., key, value)| ((*key).to_owned(), json!(value))));
        self.add_beside(&mut property, beside);
        property
    }

    fn single(&self, owner: &str, ty: &Type) -> Value {
        match primitive(ty) {
            Some(value) => value,
            None => self.form.reference(&self.referred(owner, ty)),
        }
    }

    /// The schema of a list item or a map value.
    fn element(&self, owner: &str, ty: &Type, values: Option<&[&str]>) -> Value {
        let mut element = self.single(owner, ty);
        let mut beside = Map::new();
        beside.extend(values.map(|values| ("enum".to_owned(), json!(values))));
        beside.extend(self.zero_of(ty).map(|zero| ("default".to_owned(), zero)));
        self.add_beside(&mut element, beside);
        element
    }

    /// The default that OpenAPI version 3 shows for a field: the field's own default, or a zero if Go always writes the
    /// field. In OpenAPI version 2, Kubernetes shows no defaults.
    fn default_of(&self, field: &Field) -> Option<Value> {
        if let Some(default) = field.default.as_ref().filter(|_| self.form == Form::V3) {
            return serde_json::from_str(default).ok();
        }
        let always = field.shape == Shape::Single && field.zero == Zero::Always;
        if always { self.zero_of(&field.ty) } else { None }
    }

    /// The zero that Go writes for a type, even if the type does not allow it. In OpenAPI version 2, Kubernetes shows
    /// no zeros.
    fn zero_of(&self, ty: &Type) -> Option<Value> {
        if self.form == Form::V2 {
            return None;
        }
        match ty {
            Type::String => Some(json!("")),
            Type::Bool => Some(json!(false)),
            Type::Int32 | Type::Int64 | Type::Double => Some(json!(0)),
            Type::Message(_) => Some(json!({})),
            _ => None,
        }
    }

    /// Adds fields to a schema. OpenAPI version 3 allows no fields next to a reference, so a reference first moves into
    /// `allOf`.
    fn add_beside(&self, value: &mut Value, beside: Map) {
        if beside.is_empty() {
            return;
        }
        if self.form == Form::V3 && value.get("$ref").is_some() {
            *value = json!({"allOf": [value.take()]});
        }
        if let Some(value) = value.as_object_mut() {
            value.extend(beside);
        }
    }

    fn referred(&self, owner: &str, ty: &Type) -> String {
        // Each of the two versions of the group apiextensions.k8s.io has its own type JSON.
        let beside_owner = |name: &str| match owner.rsplit_once('.') {
            Some((package, _)) => format!("{package}.{name}"),
            None => name.to_owned(),
        };
        match ty {
            Type::Message(id) => self.schema.message(*id).name.clone(),
            Type::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString".into(),
            Type::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity".into(),
            Type::Time => format!("{META}.Time"),
            Type::MicroTime => format!("{META}.MicroTime"),
            Type::Duration => format!("{META}.Duration"),
            Type::FieldsV1 => format!("{META}.FieldsV1"),
            Type::RawExtension => "io.k8s.apimachinery.pkg.runtime.RawExtension".into(),
            Type::Json => beside_owner("JSON"),
            Type::JsonSchemaPropsOrArray => beside_owner("JSONSchemaPropsOrArray"),
            Type::JsonSchemaPropsOrBool => beside_owner("JSONSchemaPropsOrBool"),
            Type::JsonSchemaPropsOrStringArray => beside_owner("JSONSchemaPropsOrStringArray"),
            Type::String | Type::Bool | Type::Int32 | Type::Int64 | Type::Double | Type::Bytes | Type::StringList => {
                unreachable!("primitive types refer to nothing")
            }
        }
    }

    /// The definition of the list of a custom resource. The schema table does not have this list.
    fn list(&self, name: &str, list: &ListOf) -> Value {
        let (name, kind) = (bare(name), bare(&list.item));
        let items = json!({
            "type": "array",
            "items": self.form.reference(&list.item),
            "description": format!("List of {}. More info: {CONVENTIONS}", list.plural),
        });
        let mut properties = Map::new();
        insert_type_meta(&mut properties);
        properties.insert("items", items);
        let text = descriptions::of_field(concat_meta!("Status"), "metadata");
        properties.insert("metadata", self.described_reference(concat_meta!("ListMeta"), &text));
        json!({
            "type": "object",
            "description": format!("{name} is a list of {kind}"),
            "properties": properties,
            "required": ["items"],
        })
    }

    /// The definition of a custom resource with this schema. If the schema preserves unknown fields, OpenAPI version 2
    /// shows no properties, not even the metadata, because kubectl would reject every property that is not shown.
    /// OpenAPI version 3 can express that there may be more properties.
    fn custom_resource(&self, schema: Option<&Value>) -> Value {
        let v2 = self.form == Form::V2;
        let Some(schema) = schema.filter(|schema| !(v2 && custom::keeps_unknown(schema))) else {
            return json!({"type": "object"});
        };
        let mut definition = if v2 { custom::to_v2(schema) } else { schema.clone() };
        if let Some(root) = definition.as_object_mut()
            && let Some(properties) = root.entry("properties").or_insert_with(|| json!({})).as_object_mut()
        {
            insert_type_meta(properties);
            properties.insert("metadata", self.standard_metadata());
        }
        self.complete_embedded(&mut definition);
        definition
    }

    /// Adds the fields that every object has wherever `schema` embeds an object.
    fn complete_embedded(&self, schema: &mut Value) {
        custom::each_child(schema, &mut |child| self.complete_embedded(child));
        let is_embedded = schema["x-kubernetes-embedded-resource"] == true;
        let says_all = self.form == Form::V3 || !custom::keeps_unknown(schema);
        let Some(schema) = schema.as_object_mut().filter(|_| is_embedded && says_all) else { return };
        if let Some(properties) = schema.entry("properties").or_insert_with(|| json!({})).as_object_mut() {
            let texts = [
                (
                    "apiVersion",
                    "apiVersion defines the versioned schema of this representation of an object.",
                    "resources",
                ),
                ("kind", "kind is a string value representing the type of this object. In CamelCase.", "types-kinds"),
            ];
            for (name, text, anchor) in texts {
                let text = format!("{text} More info: {CONVENTIONS}#{anchor}");
                properties.insert(name, json!({"type": "string", "description": text}));
            }
            properties.insert("metadata", self.standard_metadata());
        }
        if let Some(required) = schema.entry("required").or_insert_with(|| json!([])).as_array_mut() {
            let missing = ["kind", "apiVersion"].into_iter().filter(|name| !required.iter().any(|known| known == name));
            let missing: Vec<Value> = missing.map(Value::from).collect();
            required.extend(missing);
        }
    }

    /// The schema of the metadata of a custom resource.
    fn standard_metadata(&self) -> Value {
        let text = format!("Standard object's metadata. More info: {CONVENTIONS}#metadata");
        self.described_reference(concat_meta!("ObjectMeta"), &text)
    }

    fn described_reference(&self, definition: &str, text: &str) -> Value {
        let mut reference = self.form.reference(definition);
        self.add_beside(&mut reference, Map::from_iter([("description".to_owned(), json!(text))]));
        reference
    }
}

fn required(message: &Message) -> impl Iterator<Item = &Field> {
    message.fields.iter().filter(|field| field.required || REQUIRED.contains(&(&message.name, &field.json)))
}

fn insert_type_meta(properties: &mut Map) {
    for name in ["apiVersion", "kind"] {
        let text = descriptions::of_field(concat_meta!("Status"), name);
        properties.insert(name, json!({"type": "string", "description": text}));
    }
}

/// The description of a list definition.
fn list_description(item: &str) -> String {
    let kind = bare(item);
    format!("{kind}List is a list of objects of kind {kind}.")
}

/// The name of the definition of a kind's list. The list of a custom kind is named in its CustomResourceDefinition.
pub(super) fn list_of(served: &Served) -> String {
    let message = &served.version.message;
    match (message.rsplit_once('.'), &served.version.custom) {
        (Some((before, _)), Some(_)) => format!("{before}.{}", served.kind.list_kind()),
        _ => format!("{message}List"),
    }
}

fn bare(definition: &str) -> &str {
    definition.rsplit_once('.').map_or(definition, |(_, bare)| bare)
}

/// The name of the definition of a subresource's body, which is a served kind, or a message that only subresources use.
/// `None` for the options of a connection, which are not in the body.
pub(super) fn body_definition(catalog: &Catalog, group: &str, version: &str, kind: &str) -> Option<String> {
    let gv = catalog.group_version(group, version);
    let served = gv.and_then(|gv| gv.resources.iter().find(|served| served.kind.kind == kind));
    match served {
        Some(served) => Some(served.version.message.clone()),
        None => body_message(group, version, kind).map(str::to_owned),
    }
}

fn insert_extensions(field: &Field, into: &mut Map) {
    let mut insert = |key: &str, value: Value| into.insert(key, value);
    if field.shape == Shape::List {
        let list_type = match field.list_type {
            ListType::Atomic => "atomic",
            ListType::Set => "set",
            ListType::Map => "map",
        };
        insert("x-kubernetes-list-type", json!(list_type));
        if field.list_type == ListType::Map {
            insert("x-kubernetes-list-map-keys", json!(field.list_map_keys));
        }
    } else if field.atomic {
        insert("x-kubernetes-map-type", json!("atomic"));
    }
    let strategy = match (field.patch_merge, field.patch_retain_keys) {
        (true, true) => "merge,retainKeys",
        (true, false) => "merge",
        (false, true) => "retainKeys",
        (false, false) => "",
    };
    if !strategy.is_empty() {
        insert("x-kubernetes-patch-strategy", json!(strategy));
    }
    if let Some(key) = &field.patch_merge_key {
        insert("x-kubernetes-patch-merge-key", json!(key));
    }
}

fn primitive(ty: &Type) -> Option<Value> {
    Some(match ty {
        Type::String => json!({"type": "string"}),
        Type::Bool => json!({"type": "boolean"}),
        Type::Int32 => json!({"type": "integer", "format": "int32"}),
        Type::Int64 => json!({"type": "integer", "format": "int64"}),
        Type::Double => json!({"type": "number", "format": "double"}),
        Type::Bytes => json!({"type": "string", "format": "byte"}),
        Type::StringList => json!({"type": "array", "items": {"type": "string"}}),
        _ => return None,
    })
}

/// The definition of a type whose JSON has another form than its message; `None` for all other types.
fn special(name: &str, form: Form) -> Option<Value> {
    let v2 = form == Form::V2;
    let (package, bare) = name.rsplit_once('.')?;
    if package.starts_with("io.k8s.apiextensions-apiserver.") {
        let any = matches!(
            bare,
            "JSON" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray"
        );
        return any.then(|| json!({}));
    }
    if !package.starts_with("io.k8s.apimachinery.") {
        return None;
    }
    Some(match bare {
        "IntOrString" if v2 => json!({"type": "string", "format": "int-or-string"}),
        "IntOrString" => json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
        "Quantity" if v2 => json!({"type": "string"}),
        "Quantity" => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        "Time" | "MicroTime" => json!({"type": "string", "format": "date-time"}),
        "Duration" => json!({"type": "string"}),
        "RawExtension" | "FieldsV1" => json!({"type": "object"}),
        "Info" => version_info(form),
        _ => return None,
    })
}

/// The definition of the response of `/version`, which is not in the schema table.
fn version_info(form: Form) -> Value {
    const REQUIRED: [&str; 9] =
        ["major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"];
    const OPTIONAL: [&str; 4] = ["emulationMajor", "emulationMinor", "minCompatibilityMajor", "minCompatibilityMinor"];
    let always = match form {
        Form::V2 => json!({"type": "string"}),
        Form::V3 => json!({"type": "string", "default": ""}),
    };
    let always = REQUIRED.iter().map(|name| ((*name).to_owned(), always.clone()));
    let optional = OPTIONAL.iter().map(|name| ((*name).to_owned(), json!({"type": "string"})));
    let properties: Map = always.chain(optional).collect();
    json!({"type": "object", "properties": properties, "required": REQUIRED})
}

/// Collects the names of the definitions to which a value refers. A `$ref` is a reference only if it is a string,
/// because a property may also be called `$ref`.
fn collect_references(value: &Value, prefix: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if let Some(name) = map.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix(prefix)) {
                found.push(name.to_owned());
            }
            map.values().for_each(|value| collect_references(value, prefix, found));
        }
        Value::Array(items) => items.iter().for_each(|value| collect_references(value, prefix, found)),
        _ => {}
    }
}

macro_rules! concat_meta {
    ($name:literal) => {
        concat!("io.k8s.apimachinery.pkg.apis.meta.v1.", $name)
    };
}
use concat_meta;
