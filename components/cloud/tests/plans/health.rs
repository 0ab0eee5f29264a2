//! Tests which backends of a simulated cloud's balancers are healthy.

use crate::common::{Shared, beside, cloud, node, ready, service, settings};
use holdfast_cloud::service::Services;
use holdfast_cloud::simulated::{Description, InstanceEvent};
use holdfast_value::json;
use holdfast_world::Trial;

fn told(cloud: &Shared, trial: &Trial) -> Vec<String> {
    let mut lines = Vec::new();
    for backends in cloud.borrow_mut().backends(trial.now()) {
        for (health, count) in &backends.counts {
            lines.push(format!("{} {count} {}", backends.service.name, health.as_str()));
        }
    }
    lines.sort();
    lines
}

fn local(name: &str) -> holdfast_value::Value {
    let mut local = service(name);
    local["spec"]["externalTrafficPolicy"] = "Local".into();
    local["spec"]["healthCheckNodePort"] = 32000.into();
    local
}

#[test]
fn a_backend_is_as_healthy_as_its_instance() {
    let cloud = cloud(
        "{instances: [{name: a}, {name: b}], script: [{at: 60s, instance: b, do: shutDown}, {at: 120s, instance: b, do: start}]}",
    );
    let mut trial = beside(&cloud).with(Services::new(&settings()));
    trial.create(service("web"));
    trial.run();
    assert_eq!(told(&cloud, &trial), ["web 0 healthy"], "it has no node yet");
    node(&mut trial, "a");
    node(&mut trial, "b");
    trial.run_for(2);
    assert_eq!(told(&cloud, &trial), ["web 2 healthy"]);
    // Reading the health of backends makes no calls to the cloud. A node that is not ready stays a host of the
    // balancer.
    ready(&mut trial, "b", "Unknown");
    trial.run_for(60);
    assert_eq!(told(&cloud, &trial), ["web 1 healthy", "web 1 shutDown"]);
    trial.run_for(60);
    assert_eq!(told(&cloud, &trial), ["web 2 healthy"]);
    for (what, expected) in [
        (InstanceEvent::Fail, &["web 1 failing", "web 1 healthy"][..]),
        (InstanceEvent::Heal, &["web 2 healthy"]),
        (InstanceEvent::Vanish, &["web 1 gone", "web 1 healthy"]),
    ] {
        cloud.borrow_mut().change("a", what);
        assert_eq!(told(&cloud, &trial), expected, "{what:?}");
    }
    trial.delete("services", "web");
    trial.run();
    assert_eq!(told(&cloud, &trial), [""; 0]);
}

#[test]
fn where_traffic_stays_on_its_node_the_health_check_node_port_is_asked() {
    let described =
        |checks: &str| format!("instances: [{{name: one, id: a, healthChecks: {{{checks}}}}}, {{name: b}}]");
    let checks = "default/near: 503, default/other: 503, default/web: 503";
    let cloud = cloud(&described(checks));
    let mut trial = beside(&cloud).with(Services::new(&settings()));
    node(&mut trial, "a");
    node(&mut trial, "b");
    trial.create(service("web"));
    trial.create(local("near"));
    trial.run();
    // The Service `web` has no health-check node port, because every node forwards its traffic. So its backends do not
    // fail this check.
    let ended = ["near 1 checkFailed", "near 1 healthy", "web 2 healthy"];
    assert_eq!(told(&cloud, &trial), ended);
    cloud.borrow_mut().change("one", InstanceEvent::ShutDown);
    assert_eq!(told(&cloud, &trial), ["near 1 healthy", "near 1 shutDown", "web 1 healthy", "web 1 shutDown"]);
    let description = Description::parse(&described("default/near: 200")).expect("a description");
    cloud.borrow_mut().describe(description);
    assert_eq!(told(&cloud, &trial), ["near 2 healthy", "web 2 healthy"]);
    // After the Service `near` has switched to `externalTrafficPolicy: Cluster`, its health-check node port is no
    // longer read.
    cloud.borrow_mut().describe(Description::parse(&described(checks)).expect("a description"));
    let patch = json!({"spec": {"externalTrafficPolicy": "Cluster", "healthCheckNodePort": null}});
    trial.patch("services", "near", patch);
    trial.run();
    assert_eq!(told(&cloud, &trial), ["near 2 healthy", "web 2 healthy"]);
}
