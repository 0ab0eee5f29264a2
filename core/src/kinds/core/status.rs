//! Statuses that new objects begin with, whatever the client sent.

use holdfast_value::{Value, json};

/// Nothing is known of a balancer yet.
pub fn service(object: &mut Value) {
    begin(object, json!({ "loadBalancer": {} }));
}

/// No pod has been made yet.
pub fn controller(object: &mut Value) {
    begin(object, json!({ "replicas": 0 }));
}

/// Nothing has been counted yet.
pub fn quota(object: &mut Value) {
    begin(object, json!({}));
}

fn begin(object: &mut Value, status: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("status", status);
    }
}
