//! Writes the table as text. `core/src/schema/parse.rs` reads it.

use std::fmt::Write as _;

use super::{
    protobuf::FieldShape,
    table::{Field, Message, SchemaTable, Type},
    zero::Zero,
};

const HEADER: &str = "\
# The built-in API's types. Written by `cargo xtask schema`: do not edit.
#
# message NAME [typed] [atomic]
#     A message, by its OpenAPI name without `io.k8s.`. typed: JSON shows apiVersion and kind, Protobuf does not.
# @ GROUP VERSION KIND PLURAL cluster|namespaced
#     The message is this resource; `-` stands for the core group.
#   JSON-NAME NUMBER TYPE [OPTION…]
#     A field and its Protobuf number. `[]TYPE` is a list, `{}TYPE` a map by string. A type in small letters is a
#     scalar, one in capitals a special type, `.Name` a message of the same package, any other name a message.
# Options:
#   required            in OpenAPI
#   inline=1,2          Protobuf numbers of the nested messages that JSON flattens, outermost first
#   zero=kept|null|dropped|always
#                       a zero value from Protobuf is explicit, the same and shows as null when absent, shows as nothing,
#                       or shows even when absent
#   list=set|map:KEYS   list type for apply, if not atomic
#   atomic              apply takes the map or struct as a whole
#   granular            apply does not, though its type is atomic
#   merge[:KEY]         strategic merge merges the list, by this key
#   retainKeys          strategic merge keeps only the keys that the patch names
#   default=JSON        the rest of the line
";

pub const PREFIX: &str = "io.k8s.";

pub fn write(table: &SchemaTable) -> String {
    let mut text = HEADER.to_string();
    for (name, message) in table {
        write_message(&mut text, name, message).expect("writing to a string cannot fail");
    }
    text
}

fn write_message(text: &mut String, name: &str, message: &Message) -> std::fmt::Result {
    let short = name.strip_prefix(PREFIX).unwrap_or(name);
    let package = &short[..short.rfind('.').map_or(0, |dot| dot + 1)];
    write!(text, "message {short}")?;
    if message.typed {
        text.push_str(" typed");
    }
    if message.atomic {
        text.push_str(" atomic");
    }
    text.push('\n');
    if let Some(resource) = &message.resource {
        let group = if resource.group.is_empty() { "-" } else { &resource.group };
        let scope = if resource.namespaced { "namespaced" } else { "cluster" };
        writeln!(text, "@ {group} {} {} {} {scope}", resource.version, resource.kind, resource.plural)?;
    }
    for (json, field) in &message.fields {
        write_field(text, package, json, field)?;
    }
    Ok(())
}

fn write_field(text: &mut String, package: &str, json: &str, field: &Field) -> std::fmt::Result {
    let shape = match field.shape {
        FieldShape::Single => "",
        FieldShape::List => "[]",
        FieldShape::Map => "{}",
    };
    write!(text, "  {json} {} {shape}", field.number)?;
    match &field.ty {
        Type::Scalar(keyword) | Type::Special(keyword, _) => text.push_str(keyword),
        Type::Message(target) => {
            let short = target.strip_prefix(PREFIX).unwrap_or(target);
            match short.strip_prefix(package).filter(|rest| !rest.contains('.')) {
                Some(own) => write!(text, ".{own}")?,
                None => text.push_str(short),
            }
        }
    }
    if field.required {
        text.push_str(" required");
    }
    if !field.inline.is_empty() {
        let numbers: Vec<String> = field.inline.iter().map(u32::to_string).collect();
        write!(text, " inline={}", numbers.join(","))?;
    }
    match field.zero {
        None => {}
        Some(Zero::Kept) => text.push_str(" zero=kept"),
        Some(Zero::Null) => text.push_str(" zero=null"),
        Some(Zero::Dropped) => text.push_str(" zero=dropped"),
        Some(Zero::Always) => text.push_str(" zero=always"),
    }
    match field.list_type.as_deref() {
        None => {}
        Some("map") => write!(text, " list=map:{}", field.list_map_keys.join(","))?,
        Some(other) => write!(text, " list={other}")?,
    }
    if field.atomic {
        text.push_str(" atomic");
    }
    if field.granular {
        text.push_str(" granular");
    }
    if field.patch_merge {
        text.push_str(" merge");
        if let Some(key) = &field.patch_merge_key {
            write!(text, ":{key}")?;
        }
    }
    if field.patch_retain_keys {
        text.push_str(" retainKeys");
    }
    if let Some(default) = &field.default {
        write!(text, " default={default}")?;
    }
    text.push('\n');
    Ok(())
}
