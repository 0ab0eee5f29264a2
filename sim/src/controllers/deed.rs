//! The requests of simulated users.

use holdfast_value::{Value, json};
use holdfast_world::Action;

/// A request of a simulated user.
pub enum UserRequest {
    Create(Value),
    Act(Box<Action>),
}

/// A workload whose pods have one container. The image of the container contains the number `image`.
pub fn workload(kind: &str, name: &str, spec: Value, image: usize) -> Value {
    let mut object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    object["spec"]["selector"] = json!({"matchLabels": {"app": name}});
    object["spec"]["template"] = json!({
        "metadata": {"labels": {"app": name, "service": "all"}},
        "spec": {"terminationGracePeriodSeconds": 5, "containers": [{"name": "c", "image": format!("i{image}")}]},
    });
    object
}
