//! Priority: resolves a pod's PriorityClass into a number; pods without a class get the default class.

use crate::admission::{Attributes, Operation};
use crate::kinds::known::{POD, PRIORITY_CLASS};
use crate::object::meta::object_mut;
use crate::pipeline::effect::Stop;
use holdfast_value::Value;

const PREEMPT: &str = "PreemptLowerPriority";

pub(super) fn mutate(attributes: &mut Attributes) -> Result<(), Stop> {
    if !attributes.is_of(POD) {
        return Ok(());
    }
    match attributes.operation {
        Operation::Create => give(attributes),
        Operation::Update => {
            // An update keeps the existing values of fields that it omits; validation refuses any other change.
            let old = attributes.old;
            let spec = object_mut(attributes.fields_mut(), "spec");
            for field in ["priority", "preemptionPolicy"] {
                if spec.get(field).is_none_or(Value::is_null)
                    && let Some(before) = old["spec"].get(field)
                {
                    spec.insert(field, before.clone());
                }
            }
            Ok(())
        }
        Operation::Delete | Operation::Connect => Ok(()),
    }
}

fn give(attributes: &mut Attributes) -> Result<(), Stop> {
    let name = attributes.object["spec"]["priorityClassName"].as_str().unwrap_or("").to_owned();
    let class = match name.as_str() {
        "" => default_class(attributes),
        name => match attributes.find(PRIORITY_CLASS, "", name) {
            Some(class) => Some(class),
            None => return Err(attributes.forbidden(format!("no PriorityClass with name {name} was found"))),
        },
    };
    let class = class.unwrap_or_default();
    let priority = class["value"].as_i64().unwrap_or(0);
    let policy = class["preemptionPolicy"].as_str().unwrap_or(PREEMPT);
    let spec = &attributes.object["spec"];
    if let Some(given) = spec["priority"].as_i64().filter(|given| *given != priority) {
        return Err(attributes.forbidden(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        )));
    }
    if let Some(given) = spec["preemptionPolicy"].as_str().filter(|given| *given != policy) {
        return Err(attributes.forbidden(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        )));
    }
    let spec = object_mut(attributes.fields_mut(), "spec");
    if let Some(default) = class["metadata"]["name"].as_str().filter(|_| name.is_empty()) {
        spec.insert("priorityClassName", default.into());
    }
    spec.insert("priority", priority.into());
    spec.insert("preemptionPolicy", policy.into());
    Ok(())
}

/// The default PriorityClass. For a moment several classes may be marked as the default; then the class with the lowest
/// value counts.
fn default_class(attributes: &Attributes) -> Option<Value> {
    let classes = attributes
        .all_with(PRIORITY_CLASS, "\"globalDefault\":true")
        .into_iter()
        .filter(|class| class["globalDefault"] == true);
    classes.min_by_key(|class| class["value"].as_i64().unwrap_or(0))
}

pub(super) fn validate(attributes: &mut Attributes) -> Result<(), Stop> {
    let writes = attributes.creates(PRIORITY_CLASS) || attributes.updates(PRIORITY_CLASS);
    if !writes || attributes.object["globalDefault"] != true {
        return Ok(());
    }
    let Some(default) = default_class(attributes) else { return Ok(()) };
    let name = default["metadata"]["name"].as_str().unwrap_or("");
    if attributes.operation == Operation::Update && name == attributes.name() {
        return Ok(());
    }
    Err(attributes.forbidden(format!("PriorityClass {name} is already marked as default. Only one default can exist")))
}
