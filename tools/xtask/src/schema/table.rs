//! Makes the messages of the schema table from k8s-pb, k8s-openapi and the facts about zero values.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};

use super::{
    names::{Definitions, bare},
    protobuf::{self, FieldShape, markers},
    zero::{Facts, Zero},
};

/// The messages of the schema table, by their OpenAPI names.
pub type SchemaTable = BTreeMap<String, Message>;

#[derive(Debug, Clone)]
pub struct Message {
    /// Whether JSON shows `apiVersion` and `kind`; Protobuf carries them in the envelope.
    pub typed: bool,
    pub atomic: bool,
    pub resource: Option<protobuf::ServedMessage>,
    /// The fields by JSON name.
    pub fields: BTreeMap<String, Field>,
}

#[derive(Debug, Clone)]
pub struct Field {
    pub number: u32,
    pub inline: Vec<u32>,
    pub ty: Type,
    pub shape: FieldShape,
    pub required: bool,
    pub zero: Option<Zero>,
    /// The type of a list: `set` or `map`.
    pub list_type: Option<String>,
    pub list_map_keys: Vec<String>,
    pub atomic: bool,
    pub granular: bool,
    pub patch_merge: bool,
    pub patch_retain_keys: bool,
    pub patch_merge_key: Option<String>,
    pub default: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    Scalar(&'static str),
    Message(String),
    /// A message with a special form in JSON: the keyword in the table, and the name of the definition.
    Special(&'static str, String),
}

/// Messages with a special form in JSON.
const SPECIAL: [(&str, &str); 12] = [
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "IntOrString"),
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "Quantity"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "Time"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "MicroTime"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Duration", "Duration"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "FieldsV1"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "RawExtension"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.*.JSON", "Json"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.*.JSONSchemaPropsOrArray", "JsonSchemaPropsOrArray"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.*.JSONSchemaPropsOrBool", "JsonSchemaPropsOrBool"),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.*.JSONSchemaPropsOrStringArray",
        "JsonSchemaPropsOrStringArray",
    ),
    ("*", "StringList"),
];

/// Types with `apiVersion` and `kind` where neither a definition nor the metadata shows this.
const TYPED: [&str; 22] = [
    "AdmissionReview",
    "APIGroupDiscovery",
    "DeploymentRollback",
    "ExternalMetricValue",
    "ImageReview",
    "MetricValue",
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "NodeProxyOptions",
    "PatchOptions",
    "TableOptions",
    "UpdateOptions",
    "PodAttachOptions",
    "PodExecOptions",
    "PodLogOptions",
    "PodPortForwardOptions",
    "PodProxyOptions",
    "RangeAllocation",
    "SerializedReference",
    "ServiceProxyOptions",
];

/// Messages of a package that are the same as the messages of another package.
struct Alias {
    from: &'static str,
    to: &'static str,
    /// The names of the messages; an empty list means all messages.
    names: &'static [&'static str],
    /// The version of the resources among the messages; `None` if there are no resources among them.
    version: Option<&'static str>,
}

const ALIASES: [Alias; 2] = [
    // batch/v2alpha1 no longer has a descriptor. Its messages were the same as the messages of batch/v1beta1.
    Alias { from: "io.k8s.api.batch.v1beta1.", to: "io.k8s.api.batch.v2alpha1.", names: &[], version: None },
    // Version v1 of these kinds exists since Kubernetes 1.36, whose clients request it.
    Alias {
        from: "io.k8s.api.admissionregistration.v1beta1.",
        to: "io.k8s.api.admissionregistration.v1.",
        names: &[
            "ApplyConfiguration",
            "JSONPatch",
            "Mutation",
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingAdmissionPolicyBindingList",
            "MutatingAdmissionPolicyBindingSpec",
            "MutatingAdmissionPolicyList",
            "MutatingAdmissionPolicySpec",
        ],
        version: Some("v1"),
    },
];

impl Alias {
    fn add_to(&self, table: &mut SchemaTable) {
        for (name, mut message) in table.clone() {
            let Some(rest) = name.strip_prefix(self.from) else { continue };
            if !self.names.is_empty() && !self.names.contains(&rest) {
                continue;
            }
            for field in message.fields.values_mut() {
                if let Type::Message(target) = &mut field.ty {
                    *target = target.replace(self.from, self.to);
                }
            }
            message.resource = message
                .resource
                .zip(self.version)
                .map(|(resource, version)| protobuf::ServedMessage { version: version.to_string(), ..resource });
            table.insert(format!("{}{rest}", self.to), message);
        }
    }
}

pub fn build(
    messages: &BTreeMap<String, protobuf::Message>,
    definitions: &Definitions,
    facts: &Facts,
) -> anyhow::Result<SchemaTable> {
    let names: BTreeMap<&str, String> =
        messages.iter().map(|(key, message)| (key.as_str(), definitions.message_name(message))).collect();
    let mut builder = Builder { messages, definitions, facts, names, used: BTreeSet::new(), inline: BTreeSet::new() };
    builder.find_inlined();
    let mut table = SchemaTable::new();
    for (key, message) in messages {
        let name = builder.names[key.as_str()].clone();
        let message = builder.message(&name, message).with_context(|| name.clone())?;
        if table.insert(name.clone(), message).is_some() {
            bail!("two messages are called {name}");
        }
    }
    let unused = facts.keys().filter(|fact| !builder.used.contains(fact));
    let unused: Vec<String> = unused.map(|(message, field)| format!("{message} {field}")).collect();
    if !unused.is_empty() {
        bail!("facts about zero values find no field:\n{}", unused.join("\n"));
    }
    for alias in &ALIASES {
        alias.add_to(&mut table);
    }
    Ok(table)
}

struct Builder<'a> {
    messages: &'a BTreeMap<String, protobuf::Message>,
    definitions: &'a Definitions<'a>,
    facts: &'a Facts,
    /// The OpenAPI names of messages, by k8s-pb's names.
    names: BTreeMap<&'a str, String>,
    used: BTreeSet<&'a (String, String)>,
    /// The fields that JSON flattens, each with its type's name without package.
    inline: BTreeSet<(String, String)>,
}

impl<'a> Builder<'a> {
    /// A field with a single message is flattened in JSON if its restored name is missing in the type's own definition.
    /// A type without a definition is treated like the same type in another version.
    fn find_inlined(&mut self) {
        for (key, message) in self.messages {
            let name = &self.names[key.as_str()];
            let Some(definition) = self.definitions.own(name) else { continue };
            for field in message.fields.iter().filter(|field| single_message(field)) {
                if !definition.properties.contains_key(&self.definitions.field_name(name, field)) {
                    self.inline.insert((bare(name).to_string(), field.rust.clone()));
                }
            }
        }
        // The envelope of Protobuf bodies, `Unknown`, has no OpenAPI definition.
        self.inline.insert(("Unknown".to_string(), "type_meta".to_string()));
    }

    fn is_inlined(&self, name: &str, field: &protobuf::Field) -> bool {
        if !single_message(field) || !self.inline.contains(&(bare(name).to_string(), field.rust.clone())) {
            return false;
        }
        let json = self.definitions.field_name(name, field);
        self.definitions.own(name).is_none_or(|definition| !definition.properties.contains_key(&json))
    }

    fn message(&mut self, name: &str, message: &protobuf::Message) -> anyhow::Result<Message> {
        let atomic = markers(&message.comment).get("structType").is_some_and(|values| values[0] == "atomic");
        let fields = self.fields(name, message)?;
        let typed = !fields.contains_key("apiVersion") && self.is_typed(name, message);
        Ok(Message { typed, atomic, resource: message.resource.clone(), fields })
    }

    fn is_typed(&self, name: &str, message: &protobuf::Message) -> bool {
        if let Some(typed) = self.definitions.shows_type(name) {
            return typed;
        }
        let metadata = message.fields.first().filter(|field| field.rust == "metadata").map(|field| &field.ty);
        let is = |module: &str| matches!(metadata, Some(protobuf::Type::Message(key)) if key.ends_with(module));
        let template = name.ends_with("Template") || name.ends_with("TemplateSpec");
        message.resource.is_some()
            || is("meta.v1.ListMeta")
            || (is("meta.v1.ObjectMeta") && (!template || bare(name) == "PodTemplate"))
            || TYPED.contains(&bare(name))
    }

    fn fields(&mut self, name: &str, message: &protobuf::Message) -> anyhow::Result<BTreeMap<String, Field>> {
        let mut fields = BTreeMap::new();
        let required = self.definitions.own_or_sibling(name).map(|definition| definition.required.as_slice());
        for field in &message.fields {
            if self.is_inlined(name, field) {
                let protobuf::Type::Message(key) = &field.ty else { bail!("{} is no message", field.rust) };
                let inner_message = self.messages.get(key).with_context(|| key.clone())?;
                let inner_name = self.names[key.as_str()].clone();
                for (json, mut inner) in self.fields(&inner_name, inner_message)? {
                    inner.inline.insert(0, field.number);
                    inner.required &= required.is_none_or(|required| required.contains(&json));
                    if fields.insert(json.clone(), inner).is_some() {
                        bail!("{json} stands twice");
                    }
                }
                continue;
            }
            let json = self.definitions.field_name(name, field);
            let built = self.field(name, &json, field, required).with_context(|| json.clone())?;
            if fields.insert(json.clone(), built).is_some() {
                bail!("{json} stands twice");
            }
        }
        Ok(fields)
    }

    fn field(
        &mut self,
        name: &str,
        json: &str,
        field: &protobuf::Field,
        required: Option<&[String]>,
    ) -> anyhow::Result<Field> {
        let markers = markers(&field.comment);
        let first = |key: &str| markers.get(key).map(|values| values[0].trim_matches('"'));
        let strategies: Vec<&str> = first("patchStrategy").unwrap_or_default().split(',').map(str::trim).collect();
        // k8s-openapi marks every `metadata` as required, and `name` depending on its type, so the markers decide.
        let required = match json {
            "metadata" => false,
            "name" => !markers.contains_key("optional") && required.is_some_and(|r| r.iter().any(|r| r == json)),
            "eventTime" => name == "io.k8s.api.events.v1.Event",
            "items" if name.ends_with("List") => required.is_none_or(|r| r.iter().any(|r| r == json)),
            _ => required.is_some_and(|required| required.iter().any(|required| required == json)),
        };
        let ty = self.ty(&field.ty)?;
        Ok(Field {
            number: field.number,
            inline: Vec::new(),
            zero: self.zero(name, json, field, &ty),
            ty,
            shape: field.shape,
            required,
            list_type: first("listType").filter(|ty| *ty != "atomic").map(str::to_string),
            list_map_keys: markers
                .get("listMapKey")
                .into_iter()
                .flatten()
                .map(|k| k.trim_matches('"').to_string())
                .collect(),
            atomic: first("mapType") == Some("atomic") || first("structType") == Some("atomic"),
            granular: first("structType") == Some("granular"),
            patch_merge: strategies.contains(&"merge"),
            patch_retain_keys: strategies.contains(&"retainKeys"),
            patch_merge_key: first("patchMergeKey").map(str::to_string),
            default: markers.get("default").map(|values| default(&values[0])).transpose()?,
        })
    }

    fn ty(&self, ty: &protobuf::Type) -> anyhow::Result<Type> {
        let key = match ty {
            protobuf::Type::String => return Ok(Type::Scalar("string")),
            protobuf::Type::Bool => return Ok(Type::Scalar("bool")),
            protobuf::Type::Int32 => return Ok(Type::Scalar("int32")),
            protobuf::Type::Int64 => return Ok(Type::Scalar("int64")),
            protobuf::Type::Double => return Ok(Type::Scalar("double")),
            protobuf::Type::Bytes => return Ok(Type::Scalar("bytes")),
            protobuf::Type::Message(key) => key.as_str(),
        };
        let name = self.names.get(key).with_context(|| format!("no message {key}"))?.clone();
        // Structs that wrap a plain list of strings have the marker `protobuf.nullable` on the type.
        let wrapper = markers(&self.messages[key].comment).contains_key("protobuf.nullable");
        let special = SPECIAL.iter().find(|(pattern, _)| match pattern.split_once('*') {
            Some(("", "")) => wrapper,
            Some((start, end)) => {
                let version = name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
                version.is_some_and(|version| !version.contains('.'))
            }
            None => *pattern == name,
        });
        Ok(match special {
            Some((_, keyword)) => Type::Special(keyword, name),
            None => Type::Message(name),
        })
    }

    fn zero(&mut self, name: &str, json: &str, field: &protobuf::Field, ty: &Type) -> Option<Zero> {
        let message = name.strip_prefix("io.k8s.").unwrap_or(name);
        if let Some((fact, zero)) = self.facts.get_key_value(&(message.to_string(), json.to_string())) {
            self.used.insert(fact);
            return Some(*zero);
        }
        // The rule below applies only to structs, so this optional quantity without a fact has a rule of its own.
        if message == "api.core.v1.ResourceFieldSelector" && json == "divisor" {
            return Some(Zero::Always);
        }
        match ty {
            Type::Message(target) if field.shape == FieldShape::Single => {
                ["Spec", "Status", "Meta"].iter().any(|end| target.ends_with(end)).then_some(Zero::Always)
            }
            _ => None,
        }
    }
}

/// A default as JSON. Markers may name a Go constant instead.
fn default(marker: &str) -> anyhow::Result<String> {
    let json = match marker {
        "ref(AzureDataDiskCachingReadWrite)" => r#""ReadWrite""#,
        "ref(AzureSharedBlobDisk)" => r#""Shared""#,
        other => other,
    };
    serde_json::from_str::<serde_json::Value>(json).with_context(|| format!("a default is not JSON: {json}"))?;
    Ok(json.to_string())
}

fn single_message(field: &protobuf::Field) -> bool {
    field.shape == FieldShape::Single && matches!(field.ty, protobuf::Type::Message(_))
}
