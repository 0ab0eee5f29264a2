//! Reads the text of the schema table. The text's header explains its lines; `tools/xtask/src/schema/text.rs` writes
//! it.

use std::{collections::BTreeMap, fmt};

use super::{Field, ListType, Message, MessageId, Resource, Schema, Shape, Type, Zero};

const PREFIX: &str = "io.k8s.";

/// An error in the text of the table, with the number of its line.
#[derive(Debug, PartialEq, Eq)]
pub struct ParseError {
    pub line: usize,
    pub problem: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "schema table, line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ParseError {}

impl Schema {
    pub fn parse(text: &str) -> Result<Schema, ParseError> {
        let by_name = names(text)?;
        let mut schema = Schema { messages: Vec::with_capacity(by_name.len()), resources: Vec::new(), by_name };
        for (line, content) in lines(text) {
            schema.read(content).map_err(|problem| ParseError { line, problem })?;
        }
        schema.resources.sort_by(|a, b| (&a.group, &a.version, &a.plural).cmp(&(&b.group, &b.version, &b.plural)));
        Ok(schema)
    }

    fn read(&mut self, line: &str) -> Result<(), &'static str> {
        if let Some(rest) = line.strip_prefix("message ") {
            let mut words = rest.split(' ');
            let name = format!("{PREFIX}{}", words.next().unwrap_or_default());
            let mut message = Message { name, fields: Vec::new(), atomic: false, typed: false };
            for word in words {
                match word {
                    "atomic" => message.atomic = true,
                    "typed" => message.typed = true,
                    _ => return Err("an unknown mark on a message"),
                }
            }
            self.messages.push(message);
            return Ok(());
        }
        let last = self.messages.len().checked_sub(1).ok_or("a line before the first message")?;
        if let Some(rest) = line.strip_prefix("@ ") {
            self.resources.push(resource(rest, MessageId(last as u32))?);
            return Ok(());
        }
        let content = line.strip_prefix("  ").ok_or("an unknown line")?;
        let name = &self.messages[last].name;
        let package = &name[..name.rfind('.').map_or(0, |dot| dot + 1)];
        let field = field(content, package, &self.by_name)?;
        let fields = &mut self.messages[last].fields;
        if fields.last().is_some_and(|before| before.json >= field.json) {
            return Err("fields out of order");
        }
        fields.push(field);
        Ok(())
    }
}

/// The names of all messages, with their ids. They are collected first, because a field may refer to a message that
/// comes later in the text.
fn names(text: &str) -> Result<BTreeMap<String, MessageId>, ParseError> {
    let mut names: BTreeMap<String, MessageId> = BTreeMap::new();
    for (line, content) in lines(text) {
        let Some(rest) = content.strip_prefix("message ") else { continue };
        let name = format!("{PREFIX}{}", rest.split(' ').next().unwrap_or_default());
        if names.last_key_value().is_some_and(|(before, _)| *before >= name) {
            return Err(ParseError { line, problem: "messages out of order" });
        }
        let id = MessageId(names.len() as u32);
        names.insert(name, id);
    }
    Ok(names)
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn resource(line: &str, message: MessageId) -> Result<Resource, &'static str> {
    let words: Vec<&str> = line.split(' ').collect();
    let [group, version, kind, plural, scope] = words[..] else { return Err("a resource has five words") };
    Ok(Resource {
        group: if group == "-" { String::new() } else { group.to_string() },
        version: version.to_string(),
        kind: kind.to_string(),
        plural: plural.to_string(),
        namespaced: match scope {
            "namespaced" => true,
            "cluster" => false,
            _ => return Err("an unknown scope"),
        },
        message,
    })
}

fn field(line: &str, package: &str, names: &BTreeMap<String, MessageId>) -> Result<Field, &'static str> {
    let (line, default) = match line.split_once(" default=") {
        Some((line, default)) => (line, Some(default.to_string())),
        None => (line, None),
    };
    let mut words = line.split(' ');
    let (Some(json), Some(number), Some(ty)) = (words.next(), words.next(), words.next()) else {
        return Err("a field has at least three words");
    };
    let (shape, ty) = match ty.split_at_checked(2) {
        Some(("[]", ty)) => (Shape::List, ty),
        Some(("{}", ty)) => (Shape::Map, ty),
        _ => (Shape::Single, ty),
    };
    let mut field = Field {
        json: json.to_string(),
        number: self::number(number)?,
        inline: Vec::new(),
        ty: type_named(ty, package, names)?,
        shape,
        required: false,
        zero: Zero::Plain,
        list_type: ListType::Atomic,
        list_map_keys: Vec::new(),
        atomic: false,
        granular: false,
        patch_merge: false,
        patch_retain_keys: false,
        patch_merge_key: None,
        default,
    };
    for word in words {
        option(word, &mut field)?;
    }
    Ok(field)
}

fn option(word: &str, field: &mut Field) -> Result<(), &'static str> {
    match word {
        "required" => field.required = true,
        "zero=kept" => field.zero = Zero::Kept,
        "zero=null" => field.zero = Zero::Null,
        "zero=dropped" => field.zero = Zero::Dropped,
        "zero=always" => field.zero = Zero::Always,
        "list=set" => field.list_type = ListType::Set,
        "atomic" => field.atomic = true,
        "granular" => field.granular = true,
        "merge" => field.patch_merge = true,
        "retainKeys" => field.patch_retain_keys = true,
        _ => {
            if let Some(keys) = word.strip_prefix("list=map:") {
                field.list_type = ListType::Map;
                field.list_map_keys = keys.split(',').map(str::to_string).collect();
            } else if let Some(key) = word.strip_prefix("merge:") {
                field.patch_merge = true;
                field.patch_merge_key = Some(key.to_string());
            } else if let Some(numbers) = word.strip_prefix("inline=") {
                field.inline = numbers.split(',').map(number).collect::<Result<_, _>>()?;
            } else {
                return Err("an unknown option on a field");
            }
        }
    }
    Ok(())
}

fn number(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "not a number")
}

fn type_named(text: &str, package: &str, names: &BTreeMap<String, MessageId>) -> Result<Type, &'static str> {
    let name = match text {
        "string" => return Ok(Type::String),
        "bool" => return Ok(Type::Bool),
        "int32" => return Ok(Type::Int32),
        "int64" => return Ok(Type::Int64),
        "double" => return Ok(Type::Double),
        "bytes" => return Ok(Type::Bytes),
        "IntOrString" => return Ok(Type::IntOrString),
        "Quantity" => return Ok(Type::Quantity),
        "Time" => return Ok(Type::Time),
        "MicroTime" => return Ok(Type::MicroTime),
        "Duration" => return Ok(Type::Duration),
        "RawExtension" => return Ok(Type::RawExtension),
        "FieldsV1" => return Ok(Type::FieldsV1),
        "Json" => return Ok(Type::Json),
        "JsonSchemaPropsOrArray" => return Ok(Type::JsonSchemaPropsOrArray),
        "JsonSchemaPropsOrBool" => return Ok(Type::JsonSchemaPropsOrBool),
        "JsonSchemaPropsOrStringArray" => return Ok(Type::JsonSchemaPropsOrStringArray),
        "StringList" => return Ok(Type::StringList),
        _ => match text.strip_prefix('.') {
            Some(own) => format!("{package}{own}"),
            None => format!("{PREFIX}{text}"),
        },
    };
    names.get(&name).copied().map(Type::Message).ok_or("an unknown type")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;

    #[test]
    fn the_table_in_the_repository_parses() {
        let schema = schema();
        assert!(schema.messages.len() > 1_200, "{}", schema.messages.len());
        assert!(schema.resources.len() >= 90, "{}", schema.resources.len());
        for resource in &schema.resources {
            assert!(schema.message(resource.message).typed, "{}", resource.kind);
        }
        for (index, message) in schema.messages.iter().enumerate() {
            assert_eq!(schema.id(&message.name), Some(MessageId(index as u32)));
        }
    }

    #[test]
    fn facts_of_the_api() {
        let schema = schema();
        let find = |message: &str, field: &str| {
            let id = schema.id(&format!("io.k8s.{message}")).unwrap_or_else(|| panic!("{message}"));
            schema.message(id).field(field).unwrap_or_else(|| panic!("{message}.{field}")).clone()
        };
        let port = find("api.core.v1.ContainerPort", "protocol");
        assert_eq!(port.default.as_deref(), Some("\"TCP\""));
        let ports = find("api.core.v1.ServiceSpec", "ports");
        assert_eq!((ports.list_type, ports.list_map_keys.join(",")), (ListType::Map, "port,protocol".to_string()));
        assert_eq!((ports.patch_merge, ports.patch_merge_key.as_deref()), (true, Some("port")));
        assert!(find("api.core.v1.PodSpec", "volumes").patch_retain_keys);
        assert_eq!(find("api.core.v1.Volume", "hostPath").inline, [2]);
        assert_eq!(find("api.admissionregistration.v1.NamedRuleWithOperations", "resources").inline, [2, 2]);
        assert_eq!(find("api.core.v1.PodStatus", "podIPs").number, 12);
        assert_eq!(find("api.core.v1.ConfigMap", "binaryData").shape, Shape::Map);
        assert_eq!(find("api.apps.v1.DeploymentSpec", "replicas").zero, Zero::Kept);
        assert_eq!(find("api.core.v1.DaemonEndpoint", "Port").ty, Type::Int32);
        assert_eq!(find("apimachinery.pkg.apis.meta.v1.ObjectMeta", "creationTimestamp").ty, Type::Time);
        assert_eq!(find("api.rbac.v1.PolicyRule", "nonResourceURLs").shape, Shape::List);
        let old = schema.id("io.k8s.api.batch.v2alpha1.CronJobSpec").expect("an alias");
        assert_eq!(find("api.batch.v2alpha1.CronJob", "spec").ty, Type::Message(old));
    }

    #[test]
    fn bad_tables_are_refused() {
        let refused = |text: &str| Schema::parse(text).map(|_| ()).unwrap_err();
        assert_eq!(refused("  name 1 string").problem, "a line before the first message");
        assert_eq!(refused("message a.B\n  name 1 strin").problem, "an unknown type");
        assert_eq!(refused("message a.B\n  b 1 string\n  a 2 string").problem, "fields out of order");
        assert_eq!(refused("message a.B\nmessage a.A"), ParseError { line: 2, problem: "messages out of order" });
        assert_eq!(refused("message a.B\n  b 1 string unknown").problem, "an unknown option on a field");
    }
}
