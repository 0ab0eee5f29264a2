//! Conversion of Ingresses. In `v1beta1` of `networking.k8s.io` and of `extensions`, a backend names its service in
//! flat fields.

use crate::kinds::Convert;
use crate::kinds::convert::{Fields, items, rename, within};
use holdfast_value::{Value, json};

pub const INGRESS: Convert = Convert { to_hub, from_hub };

fn to_hub(ingress: &mut Fields) {
    let Some(spec) = within(ingress, &["spec"]) else { return };
    rename(spec, "backend", "defaultBackend");
    each_backend(spec, nest_service);
    for path in paths(spec) {
        // The hub version requires a path type. In older versions an absent type means `ImplementationSpecific`.
        path.entry("pathType").or_insert_with(|| "ImplementationSpecific".into());
    }
}

fn from_hub(ingress: &mut Fields) {
    let Some(spec) = within(ingress, &["spec"]) else { return };
    each_backend(spec, flatten_service);
    rename(spec, "defaultBackend", "backend");
}

fn each_backend(spec: &mut Fields, change: fn(&mut Fields)) {
    if let Some(backend) = within(spec, &["defaultBackend"]) {
        change(backend);
    }
    paths(spec).filter_map(|path| within(path, &["backend"])).for_each(change);
}

fn paths(spec: &mut Fields) -> impl Iterator<Item = &mut Fields> {
    items(spec, "rules").filter_map(|rule| within(rule, &["http"])).flat_map(|http| items(http, "paths"))
}

fn nest_service(backend: &mut Fields) {
    let (name, port) = (backend.remove("serviceName"), backend.remove("servicePort"));
    if name.is_none() && port.is_none() {
        return;
    }
    let mut service = Fields::new();
    service.insert("name", name.unwrap_or_else(|| "".into()));
    let port = match port {
        Some(Value::String(name)) => json!({ "name": name }),
        Some(Value::Number(number)) if number.as_i64() != Some(0) => json!({ "number": number }),
        _ => json!({}),
    };
    service.insert("port", port);
    backend.insert("service", service.into());
}

fn flatten_service(backend: &mut Fields) {
    let Some(Value::Object(mut service)) = backend.remove("service") else { return };
    let mut port = service.remove("port").unwrap_or_default();
    let name = port.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    let port = port.get_mut(if name { "name" } else { "number" }).map_or(json!(0), Value::take);
    backend.insert("serviceName", service.remove("name").unwrap_or_else(|| "".into()));
    backend.insert("servicePort", port);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::convert::{check_both_ways, check_to_hub};

    #[test]
    fn backends_are_nested_in_the_hub() {
        check_both_ways(
            INGRESS,
            &json!({ "spec": {
                "ingressClassName": "nginx",
                "backend": { "serviceName": "main", "servicePort": 80 },
                "rules": [
                    { "host": "a.example", "http": { "paths": [
                        { "path": "/", "pathType": "Prefix", "backend": { "serviceName": "web", "servicePort": "http" } },
                        { "pathType": "Exact", "backend": { "resource": { "kind": "Bucket", "name": "b" } } },
                    ] } },
                    { "host": "b.example" },
                ],
            } }),
            &json!({ "spec": {
                "ingressClassName": "nginx",
                "defaultBackend": { "service": { "name": "main", "port": { "number": 80 } } },
                "rules": [
                    { "host": "a.example", "http": { "paths": [
                        {
                            "path": "/",
                            "pathType": "Prefix",
                            "backend": { "service": { "name": "web", "port": { "name": "http" } } },
                        },
                        { "pathType": "Exact", "backend": { "resource": { "kind": "Bucket", "name": "b" } } },
                    ] } },
                    { "host": "b.example" },
                ],
            } }),
        );
    }

    #[test]
    fn a_path_without_type_gets_the_old_meaning() {
        check_to_hub(
            INGRESS,
            &json!({ "spec": { "rules": [{ "http": { "paths": [{ "path": "/a" }] } }] } }),
            &json!({ "spec": {
                "rules": [{ "http": { "paths": [{ "path": "/a", "pathType": "ImplementationSpecific" }] } }],
            } }),
        );
    }
}
