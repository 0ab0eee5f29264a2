//! Volumes of pods, and claims of volumes.

use crate::kinds::rules::{At, is_less, need, need_name, one_of, same, selector};
use crate::object::names;
use crate::refusal::Cause;
use serde_json::Value;
use std::collections::BTreeSet;

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const FIXED: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                     bound claims";
/// What names the object that a volume is made from.
const NAMES: &[(&str, &str)] =
    &[("secret", "secretName"), ("configMap", "name"), ("persistentVolumeClaim", "claimName"), ("hostPath", "path")];

/// Collects the volumes' names for the mounts to refer to.
pub(super) fn volumes(list: At, seen: &mut BTreeSet<String>, causes: &mut Vec<Cause>) {
    for volume in list.items() {
        let name = volume.get("name");
        need_name(name, names::label, causes);
        if !name.is_empty() && !seen.insert(name.text().to_owned()) {
            causes.push(name.duplicate());
        }
        let sources = volume.value.as_object().into_iter().flatten();
        let sources = sources.filter(|(field, value)| *field != "name" && !value.is_null());
        for (field, _) in sources.skip(1) {
            causes.push(volume.get(field).forbidden("may not specify more than 1 volume type"));
        }
        for (source, named) in NAMES {
            let source = volume.get(source);
            if source.is_set() {
                need(source.get(named), causes);
                file_mode(source.get("defaultMode"), causes);
                items(source.get("items"), causes);
            }
        }
    }
}

fn items(list: At, causes: &mut Vec<Cause>) {
    for item in list.items() {
        need(item.get("key"), causes);
        need(item.get("path"), causes);
        file_mode(item.get("mode"), causes);
    }
}

fn file_mode(mode: At, causes: &mut Vec<Cause>) {
    if mode.number().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        causes.push(mode.invalid("must be a number between 0 and 0777 (octal), both inclusive"));
    }
}

/// A PersistentVolumeClaim.
pub fn claim(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let spec = root.get("spec");
    match old {
        None => claim_spec(spec, &mut causes),
        Some(old) => {
            let old = &old["spec"];
            let mut kept = spec.value.clone();
            for field in ["resources", "volumeAttributesClassName"] {
                kept[field] = old[field].clone();
            }
            for field in ["volumeName", "storageClassName"] {
                // A controller binds a claim, and gives one without a class the default one.
                if old[field].as_str().is_none_or(str::is_empty) {
                    kept[field] = old[field].clone();
                }
            }
            if !same(&kept, old) {
                causes.push(spec.forbidden(FIXED));
            }
        }
    }
    causes
}

fn claim_spec(spec: At, causes: &mut Vec<Cause>) {
    let modes = spec.get("accessModes");
    if modes.is_empty() {
        causes.push(modes.required("at least 1 access mode is required"));
    }
    for mode in modes.items() {
        one_of(mode, ACCESS_MODES, causes);
    }
    selector(spec.get("selector"), causes);
    let resources = spec.get("resources");
    let path = resources.key("storage").path();
    match resources.value["requests"].get("storage") {
        None | Some(Value::Null) => causes.push(Cause::required(path, "")),
        Some(size) if !is_less(&Value::from("0"), size) => {
            causes.push(Cause::invalid(path, size, "must be greater than zero"));
        }
        Some(_) => {}
    }
    one_of(spec.get("volumeMode"), &["Block", "Filesystem"], causes);
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use serde_json::{Value, json};

    #[test]
    fn each_rule_of_a_claim() {
        let good = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        check_rows(
            &good,
            &[
                ("/spec/accessModes", json!([]), "spec.accessModes: Required value: at least 1 access mode"),
                ("/spec/accessModes/0", json!("Write"), "spec.accessModes[0]: Unsupported value: \"Write\""),
                ("/spec/resources", Value::Null, "spec.resources[storage]: Required value"),
                ("/spec/resources/requests/storage", json!("0"), "spec.resources[storage]: Invalid value: \"0\""),
                ("/spec/volumeMode", json!("Tape"), "spec.volumeMode: Unsupported value: \"Tape\""),
            ],
        );
        check_updates(
            &good,
            &[
                ("/spec/resources/requests/storage", json!("2Gi"), ""),
                ("/spec/volumeName", json!("v"), ""),
                ("/spec/accessModes/0", json!("ReadOnlyMany"), "spec: Forbidden: spec is immutable after creation"),
            ],
        );
    }
}
