//! Validation of values that claims, classes and slices share.

use crate::kinds::expressions::device_selector;
use crate::kinds::rules::{At, named};
use crate::kinds::shapes::{at_most, driver_name, identifier, need_one_of, not_longer, qualified};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;

pub(super) const LIST_MAX: usize = 32;
const EXPRESSION_BYTES_MAX: usize = 10 * 1024;
const PARAMETERS_BYTES_MAX: usize = 10 * 1024;
const POOL_BYTES_MAX: usize = 253;
const IDENTIFIER_BYTES_MAX: usize = 32;
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// Checks a required name. Kubernetes reports an absent name as invalid.
fn must(at: At, check: fn(&str) -> Vec<String>, causes: &mut Causes) {
    let text = Value::from(at.text());
    named(at.holding(&text), check, causes);
}

pub(super) fn device_name(at: At, causes: &mut Causes) {
    must(at, names::label, causes);
}

pub(super) fn device_class(at: At, causes: &mut Causes) {
    if at.is_empty() { causes.push(at.required("")) } else { named(at, names::subdomain, causes) }
}

/// Validates the name of a pool: DNS names separated by slashes.
pub(super) fn pool_name(at: At, causes: &mut Causes) {
    if at.is_empty() {
        causes.push(at.required(""));
        return;
    }
    not_longer(at, POOL_BYTES_MAX, causes);
    for part in at.text().split('/') {
        let messages = names::subdomain(part);
        causes.extend(messages.iter().map(|message| Cause::invalid(at.path(), &part.into(), message)));
    }
}

/// Validates the name of an attribute, which may have a domain.
pub(super) fn attribute_name(at: At, causes: &mut Causes) {
    let part = |text: &str| Value::from(text);
    match at.text().split('/').collect::<Vec<_>>()[..] {
        [""] => causes.push(at.required("name required")),
        [name] => word(at.holding(&part(name)), causes),
        [domain, name] => {
            if domain.is_empty() {
                causes.push(at.required("the domain must not be empty"));
            } else {
                driver_name(at.holding(&part(domain)), causes);
            }
            if name.is_empty() {
                causes.push(at.required("the name must not be empty"));
            } else {
                word(at.holding(&part(name)), causes);
            }
        }
        _ => {}
    }
}

pub(super) fn word(at: At, causes: &mut Causes) {
    not_longer(at, IDENTIFIER_BYTES_MAX, causes);
    for message in identifier(at.text()) {
        causes.push(Cause::type_invalid(at.path(), at.value, &message));
    }
}

pub(super) fn cel_selectors(list: At, causes: &mut Causes) {
    for selector in list.items() {
        let cel = selector.get("cel");
        if cel.is_set() {
            let expression = cel.get("expression");
            if expression.text().len() > EXPRESSION_BYTES_MAX {
                not_longer(expression, EXPRESSION_BYTES_MAX, causes);
            } else {
                device_selector(expression, causes);
            }
        } else {
            causes.push(cel.required(""));
        }
    }
    at_most(list, LIST_MAX, causes);
}

/// Validates a driver's own configuration, whose content is not interpreted.
pub(super) fn configuration(config: At, causes: &mut Causes) {
    let opaque = config.get("opaque");
    if !opaque.is_set() {
        causes.push(opaque.required(""));
        return;
    }
    driver_name(opaque.get("driver"), causes);
    parameters(opaque.get("parameters"), PARAMETERS_BYTES_MAX, causes);
}

pub(super) fn parameters(at: At, bytes_max: usize, causes: &mut Causes) {
    if !at.is_set() {
        causes.push(at.required(""));
    } else if at.value.to_string().len() > bytes_max {
        causes.push(Cause::too_long(at.path(), bytes_max));
    } else if !at.value.is_object() {
        let hidden = Value::from("<value omitted>");
        causes.push(at.holding(&hidden).invalid("must be a valid JSON object"));
    }
}

pub(super) fn taint(taint: At, causes: &mut Causes) {
    let (key, effect) = (taint.get("key"), taint.get("effect"));
    must(key, names::qualified_name, causes);
    named(taint.get("value"), names::label_value, causes);
    need_one_of(effect, EFFECTS, causes);
}

pub(super) fn toleration(toleration: At, causes: &mut Causes) {
    let (key, operator, value) = (toleration.get("key"), toleration.get("operator"), toleration.get("value"));
    if !key.is_empty() {
        qualified(key, causes);
    }
    match operator.text() {
        "Exists" if !value.is_empty() => causes.push(value.invalid("must be empty for operator `Exists`")),
        "Exists" => {}
        "Equal" => named(value, names::label_value, causes),
        _ => need_one_of(operator, &["Equal", "Exists"], causes),
    }
    crate::kinds::rules::one_of(toleration.get("effect"), EFFECTS, causes);
}
