//! Applies the value of a mutation's expression to the object: an apply configuration or JSON patch operations.

use super::super::Attributes;
use crate::cel::Value as CelValue;
use crate::cel::value::Made;
use crate::merge::json;
use crate::merge::typed::{Typed, atomic_parts, check, merge};
use crate::object::meta::{DEPTH_MAX, depth};
use crate::pipeline::effect::Stop;
use crate::refusal::{Internal, Refusal};
use crate::schema::layout::Layout;
use holdfast_value::{Map, Value};

/// The result of a mutation.
pub(super) enum MutationOutcome {
    /// The changed object, and the patch.
    Changed(Value, Value),
    /// A `test` operation failed. With such an operation a patch can decide to change nothing.
    Same,
    /// The mutation failed. The failure policy decides whether the write is refused.
    Fault(String),
}

/// Merges an apply configuration by the schema's list and map types. The fields that it sets have no owner.
pub(super) fn apply(
    attributes: &Attributes,
    value: &CelValue,
    shown: &Value,
    version: usize,
) -> Result<MutationOutcome, Stop> {
    let layout = attributes.layout(version).map_err(internal)?;
    Ok(match merged(layout, value, shown) {
        Ok((mut merged, configuration)) => {
            attributes.check(&mut merged, version).map_err(internal)?;
            MutationOutcome::Changed(merged, configuration)
        }
        Err(why) => MutationOutcome::Fault(why),
    })
}

fn merged(layout: Layout, value: &CelValue, shown: &Value) -> Result<(Value, Value), String> {
    let CelValue::Made(made) = value else {
        return Err("unsupported return type from ApplyConfiguration expression".into());
    };
    check_places(made)?;
    let mut configuration = value.written().map_err(|why| format!("invalid return type: {why}"))?;
    for field in ["apiVersion", "kind"] {
        configuration[field] = shown[field].clone();
    }
    let typed = Typed::new(layout);
    let failed = |why: String| format!("error applying patch: {why}");
    let faults = check(typed, &configuration).into_vec();
    let unfit = |faults: String| failed(format!("failed to convert patch object to typed object: {faults}"));
    match faults.as_slice() {
        [] => {}
        [one] => return Err(unfit(one.clone())),
        all => return Err(unfit(format!("errors:\n  {}", all.join("\n  ")))),
    }
    let whole = atomic_parts(typed, &configuration);
    if !whole.is_empty() {
        let why = format!("may not mutate atomic arrays, maps or structs: {}", whole.join(", "));
        return Err(failed(format!("invalid ApplyConfiguration: {why}")));
    }
    let merged = merge(typed, shown, &configuration);
    if depth(&merged) > DEPTH_MAX {
        return Err(failed(format!("it would be deeper than {DEPTH_MAX} levels")));
    }
    Ok((merged, configuration))
}

/// Applies the JSON patch operations that a mutation's expression returned.
pub(super) fn patch(
    attributes: &Attributes,
    value: &CelValue,
    shown: &Value,
    version: usize,
) -> Result<MutationOutcome, Stop> {
    let operations = match operations(value) {
        Ok(operations) => operations,
        Err(why) => return Ok(MutationOutcome::Fault(why)),
    };
    let mut patched = match json::patched(shown.clone(), &operations) {
        Ok(patched) => patched,
        Err(json::Fault::Test(_)) => return Ok(MutationOutcome::Same),
        Err(json::Fault::Other(why)) => return Ok(MutationOutcome::Fault(format!("JSON Patch: {why}"))),
    };
    let unknown = attributes.check(&mut patched, version).map_err(internal)?;
    if !unknown.is_empty() && attributes.kind.custom.is_none() {
        let told: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        return Err(internal(format!("strict decoding error: {}", told.join(", "))));
    }
    Ok(MutationOutcome::Changed(patched, operations))
}

fn operations(value: &CelValue) -> Result<Value, String> {
    const NO_LIST: &str = "type mismatch: JSONPatchType.expression should evaluate to array";
    if value.list_len().is_none() {
        return Err(NO_LIST.into());
    }
    // All operations are converted together, so that one size limit covers them.
    let written = value
        .written()
        .map_err(|why| format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}"))?;
    let Value::Array(mut operations) = written else { return Err(NO_LIST.into()) };
    for item in value.items() {
        let CelValue::Made(operation) = item.map_err(|error| error.to_string())? else {
            return Err(format!("{NO_LIST} of JSONPatch"));
        };
        if let Some(CelValue::Made(made)) = operation.fields.get("value") {
            check_places(made)?;
        }
    }
    for operation in &mut operations {
        let Value::Object(fields) = operation else { continue };
        complete(fields);
    }
    Ok(Value::Array(operations))
}

/// Sets the missing fields `op` and `path` of an operation to empty texts, and removes an empty field `from`.
fn complete(fields: &mut Map) {
    for field in ["op", "path"] {
        fields.entry(field).or_insert_with(|| Value::from(""));
    }
    if fields.get("from").is_some_and(|from| from == "") {
        fields.remove("from");
    }
}

fn check_places(made: &Made) -> Result<(), String> {
    match made.misplaced().as_slice() {
        [] => Ok(()),
        faults => Err(format!("type mismatch: {}", faults.join("\n"))),
    }
}

fn internal(why: String) -> Stop {
    Refusal::Internal(Internal::Fault(why)).into()
}
