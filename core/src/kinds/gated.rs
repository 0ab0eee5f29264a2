//! Fields that hang on gates: while its gate is off nobody begins with a field, and an object that uses it keeps it.

use super::core::POD_GATED;
use super::{Kind, registry};
use crate::object::meta::Document;
use serde_json::Value;
use std::collections::BTreeSet;

/// Says which generation of an object the server has seen, or that it does not say it.
pub type Observe = fn(&mut Document, Option<i64>);

/// A gate, and the fields that hang on it.
#[derive(Clone, Copy)]
pub struct Gated {
    pub gate: &'static str,
    fields: Fields,
}

#[derive(Clone, Copy)]
enum Fields {
    /// `spec.ports[].appProtocol`.
    At(&'static [&'static str]),
    /// Takes away what a new object begins with: `(new, old)`.
    By(fn(&mut Value, Option<&Value>)),
}

impl Gated {
    /// The fields at these places, each for itself; `[]` stands for every item of a list.
    pub const fn fields(gate: &'static str, at: &'static [&'static str]) -> Gated {
        Gated { gate, fields: Fields::At(at) }
    }

    pub const fn by(gate: &'static str, drop: fn(&mut Value, Option<&Value>)) -> Gated {
        Gated { gate, fields: Fields::By(drop) }
    }

    fn drop(&self, new: &mut Value, old: Option<&Value>) {
        match self.fields {
            Fields::By(drop) => drop(new, old),
            Fields::At(places) => {
                let is_used = |place: &&str| old.is_some_and(|old| is_set(old, place));
                places.iter().filter(|place| !is_used(place)).for_each(|place| remove(new, place));
            }
        }
    }
}

impl Kind {
    /// Takes the fields away whose gates are off, unless the old object uses them.
    pub fn drop_gated(&self, new: &mut Value, old: Option<&Value>, off: &BTreeSet<&'static str>) {
        let is_off = |gated: &&Gated| off.contains(gated.gate);
        self.hooks.gated.iter().filter(is_off).for_each(|gated| gated.drop(new, old));
        let Some(at) = self.pods_at else { return };
        let old = old.and_then(|old| old.pointer(at));
        if let Some(spec) = new.pointer_mut(at) {
            POD_GATED.iter().filter(is_off).for_each(|gated| gated.drop(spec, old));
        }
    }
}

/// The gates that fields of built-in kinds hang on.
pub fn field_gates() -> BTreeSet<&'static str> {
    let of_kinds = registry().iter().flat_map(|(_, kind)| kind.hooks.gated);
    let observed = registry().iter().filter_map(|(_, kind)| kind.hooks.observe);
    let fields = of_kinds.chain(POD_GATED).map(|gated| gated.gate);
    fields.chain(observed.map(|(gate, _)| gate)).collect()
}

/// The first step of a path, and the rest of it.
fn split(path: &str) -> (&str, Option<&str>) {
    path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)))
}

/// Whether there is something at a place.
fn is_set(value: &Value, path: &str) -> bool {
    let (step, rest) = split(path);
    let deeper = |value: &Value| rest.is_none_or(|rest| is_set(value, rest));
    match step.strip_suffix("[]") {
        Some(list) => value[list].as_array().is_some_and(|items| items.iter().any(deeper)),
        None => !value[step].is_null() && deeper(&value[step]),
    }
}

fn remove(value: &mut Value, path: &str) {
    let (step, rest) = split(path);
    match (step.strip_suffix("[]"), rest) {
        (Some(list), Some(rest)) => {
            let items = value.get_mut(list).and_then(Value::as_array_mut);
            items.into_iter().flatten().for_each(|item| remove(item, rest));
        }
        (None, Some(rest)) => {
            if let Some(value) = value.get_mut(step) {
                remove(value, rest);
            }
        }
        (_, None) => {
            if let Some(fields) = value.as_object_mut() {
                fields.remove(step);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{MessageId, Shape, Type, schema};
    use serde_json::json;

    #[test]
    fn fields_go_where_nobody_uses_them_yet() {
        let gated = Gated::fields("G", &["spec.ports[].appProtocol", "spec.one"]);
        let service = |protocol: Value, one: Value| {
            let mut service = json!({"spec": {"ports": [{"port": 1}, {"port": 2}], "two": 2}});
            if !protocol.is_null() {
                service["spec"]["ports"][1]["appProtocol"] = protocol;
            }
            if !one.is_null() {
                service["spec"]["one"] = one;
            }
            service
        };
        let after = |old: Option<&Value>| {
            let mut new = service(json!("http"), json!(1));
            gated.drop(&mut new, old);
            new
        };
        assert_eq!(after(None), service(Value::Null, Value::Null));
        assert_eq!(after(Some(&service(Value::Null, json!(3)))), service(Value::Null, json!(1)));
        assert_eq!(after(Some(&service(json!("h2"), Value::Null))), service(json!("http"), Value::Null));
    }

    fn leads(message: MessageId, path: &str) -> bool {
        let (step, rest) = split(path);
        let (name, shape) = step.strip_suffix("[]").map_or((step, Shape::Single), |list| (list, Shape::List));
        let Some(field) = schema().message(message).field(name) else { return false };
        match (rest, field.ty) {
            (None, _) => true,
            (Some(rest), Type::Message(message)) => field.shape == shape && leads(message, rest),
            (Some(_), _) => false,
        }
    }

    /// A path that no object has would drop nothing.
    #[test]
    fn every_path_leads_to_a_field() {
        for (_, kind) in registry().iter() {
            let message = schema().id(&kind.hub().message);
            for gated in kind.hooks.gated {
                let Fields::At(places) = gated.fields else { continue };
                for place in places {
                    let message = message.expect("built-in kinds have a type");
                    assert!(leads(message, place), "{} {place}", kind.kind);
                }
            }
        }
        let pod = schema().id("io.k8s.api.core.v1.PodSpec").expect("pods");
        for gated in POD_GATED {
            let Fields::At(places) = gated.fields else { continue };
            for place in places {
                assert!(leads(pod, place), "pod {place}");
            }
        }
    }
}
