//! A consistency check: k8s-pb and k8s-openapi must have the same fields with the same types for the current version.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;

use super::{
    openapi::{Definition, Property},
    protobuf::FieldShape,
    table::{Field, Message, SchemaTable, Type},
};

pub fn check(table: &SchemaTable, definitions: &BTreeMap<String, Definition>) -> anyhow::Result<()> {
    let mut complaints = Vec::new();
    let mut compared = 0;
    for (name, definition) in definitions.iter().filter(|(_, definition)| !definition.properties.is_empty()) {
        match table.get(name) {
            Some(message) => compared += compare(name, message, definition, &mut complaints),
            None if NOT_IN_PROTOBUF.contains(&name.as_str()) => {}
            None => complaints.push(format!("{name}: only in k8s-openapi")),
        }
    }
    if !complaints.is_empty() {
        bail!("k8s-pb and k8s-openapi disagree:\n{}", complaints.join("\n"));
    }
    // Both crates have more than 2,000 common properties, so a smaller number means that a source was misread.
    if compared < 2_000 {
        bail!("only {compared} properties could be compared");
    }
    Ok(())
}

/// Types that exist only in JSON: the code that serves them writes the JSON itself.
const NOT_IN_PROTOBUF: [&str; 1] = ["io.k8s.apimachinery.pkg.version.Info"];

fn compare(name: &str, message: &Message, definition: &Definition, complaints: &mut Vec<String>) -> usize {
    let typed = if message.typed { ["apiVersion", "kind"].as_slice() } else { &[] };
    let here: BTreeSet<&str> = message.fields.keys().map(String::as_str).chain(typed.iter().copied()).collect();
    let there: BTreeSet<&str> = definition.properties.keys().map(String::as_str).collect();
    complaints.extend(here.difference(&there).map(|field| format!("{name}.{field}: only in k8s-pb")));
    complaints.extend(there.difference(&here).map(|field| format!("{name}.{field}: only in k8s-openapi")));
    for (json, field) in &message.fields {
        if let Some(property) = definition.properties.get(json)
            && *property != as_property(field)
        {
            complaints.push(format!("{name}.{json}: {:?} in k8s-pb, {property:?} in k8s-openapi", as_property(field)));
        }
    }
    here.intersection(&there).count()
}

fn as_property(field: &Field) -> Property {
    let plain = |ty: &str| Property::Plain(ty.to_string());
    let item = match &field.ty {
        Type::Scalar("bool") => plain("boolean"),
        Type::Scalar("int32") => plain("integer/int32"),
        Type::Scalar("int64") => plain("integer/int64"),
        Type::Scalar("double") => plain("number/double"),
        Type::Scalar("bytes") => plain("string/byte"),
        Type::Scalar(other) => plain(other),
        Type::Special("StringList", _) => Property::List(Box::new(plain("string"))),
        Type::Special(_, name) | Type::Message(name) => Property::Reference(name.clone()),
    };
    match field.shape {
        FieldShape::Single => item,
        FieldShape::List => Property::List(Box::new(item)),
        FieldShape::Map => Property::Map(Box::new(item)),
    }
}
