//! Sets the initial status of new objects, which replaces the status that the client sent.

use holdfast_value::{Value, json};

/// Sets the status of a new service: no load balancer addresses.
pub fn service(object: &mut Value) {
    begin(object, json!({ "loadBalancer": {} }));
}

/// Sets the status of a new controller: no replicas.
pub fn controller(object: &mut Value) {
    begin(object, json!({ "replicas": 0 }));
}

/// Sets the status of a new quota: empty until the quota controller has counted.
pub fn quota(object: &mut Value) {
    begin(object, json!({}));
}

fn begin(object: &mut Value, status: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("status", status);
    }
}
