//! Validation of paths to fields in a version: printer columns, selectable fields, scale.

use crate::kinds::rules::At;
use crate::refusal::{Cause, Causes};
use crate::schema::structural::field_path::FieldPath;
use crate::schema::structural::{Structural, Type};
use holdfast_value::Value;
use std::collections::BTreeSet;

const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];

pub(super) fn columns(list: At, causes: &mut Causes) {
    for column in list.items() {
        let (name, ty) = (column.get("name"), column.get("type"));
        let written = column.get("jsonPath");
        let path = column.get("JSONPath").holding(written.value);
        if name.is_empty() {
            causes.push(name.required(""));
        }
        if path.is_empty() {
            causes.push(path.required(""));
        } else {
            simple_path(path, causes);
        }
        if ty.is_empty() {
            causes.push(ty.required(&format!("must be one of {}", COLUMN_TYPES.join(","))));
        } else if !COLUMN_TYPES.contains(&ty.text()) {
            causes.push(ty.invalid(&format!("must be one of {}", COLUMN_TYPES.join(","))));
        }
        let format = column.get("format");
        let known = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
        if !format.is_empty() && !known.contains(&format.text()) {
            causes.push(format.invalid(&format!("must be one of {}", known.join(","))));
        }
    }
}

/// Checks that a path begins with a dot. Kubernetes checks nothing else.
fn simple_path(path: At, causes: &mut Causes) -> bool {
    let is_simple = path.text().starts_with('.');
    if !is_simple {
        causes.push(path.invalid("must be a simple json path starting with ."));
    }
    is_simple
}

/// Validates selectable fields: their number is limited, and their values must be scalars.
pub(super) fn selectable_fields(list: At, schema: &Value, causes: &mut Causes) {
    const FIELDS_MAX: usize = 8;
    if list.is_empty() {
        return;
    }
    if !schema.is_object() {
        let detail = "selectableFields may only be set when version.schema.openAPIV3Schema is not included";
        causes.push(list.invalid_unshown(detail));
        return;
    }
    // Validation of the schema itself reports an invalid schema.
    let Ok(schema) = Structural::parse(schema) else { return };
    let mut seen = BTreeSet::new();
    for field in list.items() {
        let path = field.get("jsonPath");
        if path.is_empty() {
            causes.push(path.required(""));
            continue;
        }
        let found = match FieldPath::parse(path.text(), &schema, false) {
            Ok(found) => found,
            Err(error) => {
                causes.push(path.invalid(&format!("is an invalid path: {error}")));
                continue;
            }
        };
        if found.text.split('.').next() == Some("metadata") {
            causes.push(path.invalid("must not point to fields in metadata"));
        }
        if !matches!(found.schema.ty, Some(Type::String | Type::Boolean | Type::Integer)) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                          with formats are allowed.";
            causes.push(path.invalid(detail));
        }
        if !seen.insert(found.text) {
            causes.push(path.duplicate());
        }
    }
    if seen.len() > FIELDS_MAX {
        causes.push(Cause::too_many(list.path(), seen.len(), FIELDS_MAX));
    }
}

pub(super) fn scale(scale: At, causes: &mut Causes) {
    if !scale.is_set() {
        return;
    }
    for (field, parents, required) in [
        ("specReplicasPath", &[".spec."][..], true),
        ("statusReplicasPath", &[".status."], true),
        ("labelSelectorPath", &[".spec.", ".status."], false),
    ] {
        let path = scale.get(field);
        if path.is_empty() {
            if required {
                causes.push(path.required(""));
            }
        } else if simple_path(path, causes) && !parents.iter().any(|parent| path.text().starts_with(parent)) {
            let parents: Vec<&str> = parents.iter().map(|parent| parent.trim_end_matches('.')).collect();
            let either = if parents.len() > 1 { "either " } else { "" };
            causes.push(path.invalid(&format!("should be a json path under {either}{}", parents.join(" or "))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::selectable_fields;
    use crate::kinds::rules::At;
    use crate::refusal::{Cause, Causes};
    use holdfast_value::json;

    #[test]
    fn fields_to_select_by() {
        let at = "selectableFields";
        let plain = json!({"type": "string"});
        let schema = json!({"type": "object", "properties": {
            "metadata": {"type": "object", "properties": {"name": plain}},
            "a": plain, "list": {"type": "array", "items": plain}, "map": {"type": "object", "additionalProperties": plain}}});
        for (fields, expected) in [
            (json!([{"jsonPath": ".a"}]), String::new()),
            (json!([{"jsonPath": ""}]), format!("{at}[0].jsonPath: Required value")),
            (
                json!([{"jsonPath": ".list"}]),
                format!(
                    "{at}[0].jsonPath: Invalid value: \".list\": must point to a field of type string, boolean or int"
                ),
            ),
            (
                json!([{"jsonPath": ".map['a']"}]),
                format!(
                    "{at}[0].jsonPath: Invalid value: \".map['a']\": is an invalid path: array notation is not allo"
                ),
            ),
            (
                json!([{"jsonPath": ".metadata.name"}]),
                format!("{at}[0].jsonPath: Invalid value: \".metadata.name\": must not point to fields in metadata"),
            ),
            (json!([{"jsonPath": ".a"}, {"jsonPath": ".a"}]), format!("{at}[1].jsonPath: Duplicate value: \".a\"")),
        ] {
            let mut causes = Causes::default();
            let definition = json!({"selectableFields": fields});
            selectable_fields(At::root(&definition).get("selectableFields"), &schema, &mut causes);
            let found = causes.iter().map(Cause::to_string).collect::<Vec<_>>().join("\n");
            assert!(if expected.is_empty() { found.is_empty() } else { found.starts_with(&expected) }, "{found}");
        }
    }
}
