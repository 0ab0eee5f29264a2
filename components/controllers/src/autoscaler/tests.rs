use super::*;
use holdfast_value::json;
use holdfast_world::trial::Trial;

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3Da";

fn started(replicas: i64, spec: Value) -> Trial {
    let mut trial = Trial::new().with(Autoscalers::default());
    trial.create(json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "a"}}, "template": {
            "metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    }));
    for number in 0..replicas {
        add_pod(&mut trial, &format!("p{number}"));
    }
    trial.patch_status("replicasets", "r", json!({"replicas": replicas}));
    trial.create(autoscaler("h", spec));
    trial
}

fn autoscaler(name: &str, more: Value) -> Value {
    let mut spec = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r"},
        "minReplicas": 1, "maxReplicas": 10, "metrics": [utilization(50)]});
    for (field, value) in more.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}, "spec": spec})
}

fn utilization(percent: i64) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": percent}}})
}

fn add_pod(trial: &mut Trial, name: &str) {
    trial.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]}}));
    let conditions = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T08:00:00Z"}]);
    let status = json!({"phase": "Running", "startTime": "2026-11-21T08:00:00Z", "conditions": conditions});
    trial.patch_status("pods", name, status);
}

/// Sets the usage of as many pods as `pods` has items, beginning with the first pod.
fn used(trial: &mut Trial, pods: &[&str]) {
    let now = trial.now();
    let item = |(number, cpu): (usize, &&str)| {
        json!({"metadata": {"name": format!("p{number}")}, "timestamp": now, "window": "30s",
            "containers": [{"name": "c", "usage": {"cpu": cpu}}]})
    };
    let items: Vec<Value> = pods.iter().enumerate().map(item).collect();
    trial.answers.insert(METRICS.into(), json!({"items": items}));
}

fn replicas(trial: &Trial) -> i64 {
    trial.get("replicasets", "r")["spec"]["replicas"].as_i64().expect("a number")
}

fn condition(trial: &Trial, kind: &str) -> String {
    let status = trial.get("horizontalpodautoscalers", "h")["status"].clone();
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let found = conditions.into_iter().find(|condition| condition["type"] == kind).cloned().unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    format!("{} {} {}", text("status"), text("reason"), text("message"))
}

#[test]
fn sizes_beyond_the_bounds_are_brought_back() {
    let mut trial = started(4, json!({"maxReplicas": 2}));
    trial.run();
    assert_eq!(replicas(&trial), 2);
    let status = trial.get("horizontalpodautoscalers", "h")["status"].clone();
    assert_eq!((&status["currentReplicas"], &status["desiredReplicas"]), (&json!(4), &json!(2)));
    assert!(status["lastScaleTime"].is_string());
    let able = "True SucceededRescale the HPA controller was able to update the target scale to 2";
    assert_eq!(condition(&trial, "AbleToScale"), able);
    assert_eq!(condition(&trial, "ScalingActive"), "  ");
    let note = "Normal SuccessfulRescale New size: 2; reason: Current number of replicas above Spec.MaxReplicas";
    assert_eq!(trial.take_event_texts(), [note]);
}

#[test]
fn a_target_that_is_absent_or_empty() {
    let mut trial = started(0, json!({}));
    trial.run();
    let disabled = "False ScalingDisabled scaling is disabled since the replica count of the target is zero";
    assert_eq!(condition(&trial, "ScalingActive"), disabled);
    trial.delete("replicasets", "r");
    trial.run_for(15);
    let gone = "False FailedGetScale the HPA controller was unable to get the target's current scale: replicasets.apps \
                \"r\" not found";
    assert_eq!(condition(&trial, "AbleToScale"), gone);
    assert_eq!(trial.take_event_texts(), ["Warning FailedGetScale replicasets.apps \"r\" not found"]);
}

/// ReplicationController is the only kind of the core group with a scale.
#[test]
fn a_replication_controller_is_a_target() {
    let target = json!({"apiVersion": "v1", "kind": "ReplicationController", "name": "old"});
    let mut trial = started(1, json!({"scaleTargetRef": target, "minReplicas": 3}));
    trial.create(json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "old"},
        "spec": {"replicas": 1, "selector": {"app": "old"}, "template": {
            "metadata": {"labels": {"app": "old"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}));
    trial.run();
    assert_eq!(trial.get("replicationcontrollers", "old")["spec"]["replicas"], 3);
    let able = "True SucceededRescale the HPA controller was able to update the target scale to 3";
    assert_eq!(condition(&trial, "AbleToScale"), able);
    assert_eq!(replicas(&trial), 1);
}

/// If the server's answer is a Status, its message is used unchanged. Only for other answers, such as the answer for a
/// group that is not served, client-go appends the request to the message.
#[test]
fn a_target_that_has_no_scale() {
    let target = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d"});
    let mut trial = started(1, json!({"scaleTargetRef": target}));
    let resources = json!([{"name": "daemonsets", "kind": "DaemonSet"}]);
    trial.answers.insert("/apis/apps/v1".into(), json!({"resources": resources}));
    trial.create(json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": {
            "metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}));
    trial.run();
    let fault = "the server could not find the requested resource";
    let gone = format!("False FailedGetScale the HPA controller was unable to get the target's current scale: {fault}");
    assert_eq!(condition(&trial, "AbleToScale"), gone);
    assert_eq!(trial.take_event_texts(), [format!("Warning FailedGetScale {fault}")]);
}

#[test]
fn nobody_serves_metrics() {
    let mut trial = started(1, json!({}));
    trial.run();
    let fault = "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from \
                 resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)";
    let inactive = format!("False FailedGetResourceMetric the HPA was unable to compute the replica count: {fault}");
    assert_eq!(condition(&trial, "ScalingActive"), inactive);
    let first = "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value";
    assert_eq!(
        trial.take_event_texts(),
        [
            format!("Warning FailedGetResourceMetric {fault}"),
            format!("Warning FailedComputeMetricsReplicas {first}: {fault}"),
        ]
    );
    let status = trial.get("horizontalpodautoscalers", "h")["status"].clone();
    assert_eq!(status["currentMetrics"], json!([{"type": ""}]));
    assert_eq!((&status["currentReplicas"], &status["desiredReplicas"]), (&json!(1), &json!(0)));

    let external = json!({"type": "External", "external": {"metric": {"name": "q"},
        "target": {"type": "Value", "value": "5"}}});
    let mut trial = started(1, json!({"metrics": [external]}));
    trial.run();
    let fault = "unable to get external metric default/q/nil: unable to fetch metrics from external metrics API: the \
                 server could not find the requested resource (get q.external.metrics.k8s.io)";
    let first = "invalid metrics (1 invalid out of 1), first error is: failed to get q external metric value: failed to \
                 get external metric q";
    assert_eq!(
        trial.take_event_texts(),
        [
            format!("Warning FailedGetExternalMetric {fault}"),
            format!("Warning FailedComputeMetricsReplicas {first}: {fault}"),
        ]
    );
}

#[test]
fn usage_above_and_below_its_target() {
    let mut trial = started(2, json!({}));
    used(&mut trial, &["100m", "80m"]);
    trial.run();
    assert_eq!(replicas(&trial), 4, "90 % of what is requested, where it should be 50 %");
    let name = "cpu resource utilization (percentage of request)";
    assert_eq!(
        trial.take_event_texts(),
        [format!("Normal SuccessfulRescale New size: 4; reason: {name} above target")]
    );
    let found = format!("True ValidMetricFound the HPA was able to successfully calculate a replica count from {name}");
    assert_eq!(condition(&trial, "ScalingActive"), found);
    let current = trial.get("horizontalpodautoscalers", "h")["status"]["currentMetrics"].clone();
    assert_eq!(current[0]["resource"]["current"], json!({"averageUtilization": 90, "averageValue": "90m"}));
    ["p2", "p3"].into_iter().for_each(|name| add_pod(&mut trial, name));
    used(&mut trial, &["52m", "50m", "48m", "53m"]);
    trial.run_for(15);
    assert_eq!(replicas(&trial), 4, "within what is tolerated");
    used(&mut trial, &["10m", "10m", "10m", "10m"]);
    trial.run_for(285);
    assert_eq!(replicas(&trial), 4, "what was recommended lately holds it");
    assert!(condition(&trial, "AbleToScale").starts_with("True ScaleDownStabilized"));
    trial.run_for(60);
    assert_eq!(replicas(&trial), 1);
}

#[test]
fn rules_of_speed() {
    let behavior = json!({"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
        "scaleDown": {"selectPolicy": "Disabled"}});
    let mut trial = started(2, json!({"behavior": behavior}));
    used(&mut trial, &["100m", "100m"]);
    trial.run();
    assert_eq!(replicas(&trial), 3);
    let limit = "True ScaleUpLimit the desired replica count is increasing faster than the maximum scale rate";
    assert_eq!(condition(&trial, "ScalingLimited"), limit);
    trial.run_for(45);
    assert_eq!(replicas(&trial), 3);
    trial.run_for(15);
    assert_eq!(replicas(&trial), 4);
    used(&mut trial, &["1m", "1m"]);
    trial.run_for(900);
    assert_eq!(replicas(&trial), 4);
    assert!(condition(&trial, "ScalingLimited").starts_with("True ScaleDownLimit"));
}

#[test]
fn two_for_the_same_pods() {
    let mut trial = started(2, json!({}));
    used(&mut trial, &["50m", "50m"]);
    trial.create(autoscaler("i", json!({})));
    trial.run_for(15);
    let ambiguous = "False AmbiguousSelector pods by selector app=a are controlled by multiple HPAs: [{h default} {i \
                     default}]";
    assert_eq!(condition(&trial, "ScalingActive"), ambiguous);
}

/// The autoscaler's condition, and the Events, if the metric's API is not served.
fn unserved(metric: Value) -> (String, Vec<String>) {
    let mut trial = started(1, json!({"metrics": [metric]}));
    trial.run();
    (condition(&trial, "ScalingActive"), trial.take_event_texts())
}

#[test]
fn what_is_said_of_metrics_that_nobody_serves() {
    let none =
        "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered";
    let of_cpu = "unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server \
                  could not find the requested resource (get pods.metrics.k8s.io)";
    let of = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "name": name});
    let average = json!({"type": "AverageValue", "averageValue": "5"});
    let value = json!({"type": "Value", "value": "5"});
    let metric = json!({"name": "qps"});
    for (metric, reason, fault, prefix) in [
        (
            json!({"type": "Resource", "resource": {"name": "cpu", "target": average}}),
            "FailedGetResourceMetric",
            format!("failed to get cpu usage: {of_cpu}"),
            "failed to get cpu resource metric value: ",
        ),
        (
            json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "target": average}}),
            "FailedGetContainerResourceMetric",
            format!("failed to get cpu usage: {of_cpu}"),
            "failed to get c container metric value: ",
        ),
        (
            json!({"type": "Pods", "pods": {"metric": metric, "target": average}}),
            "FailedGetPodsMetric",
            format!("unable to get metric qps: {none}"),
            "failed to get pods metric value: ",
        ),
        (
            json!({"type": "Object", "object": {"metric": metric, "describedObject": of("Service", "web"), "target": value}}),
            "FailedGetObjectMetric",
            format!("unable to get metric qps: Service on default web/{none}"),
            "failed to get object metric value: ",
        ),
        (
            json!({"type": "Object", "object": {"metric": metric, "describedObject": of("Service", "web"), "target": average}}),
            "FailedGetObjectMetric",
            format!("unable to get metric qps: Service on default web/{none}"),
            "failed to get object metric value: failed to get qps object metric: ",
        ),
    ] {
        let (inactive, events) = unserved(metric);
        assert_eq!(inactive, format!("False {reason} the HPA was unable to compute the replica count: {fault}"),);
        let first = "invalid metrics (1 invalid out of 1), first error is";
        assert_eq!(
            events,
            [
                format!("Warning {reason} {fault}"),
                format!("Warning FailedComputeMetricsReplicas {first}: {prefix}{fault}")
            ]
        );
    }
}

#[test]
fn a_target_is_found_whatever_version_names_it() {
    let target = json!({"apiVersion": "apps/v9", "kind": "ReplicaSet", "name": "r"});
    let mut trial = started(4, json!({"scaleTargetRef": target, "maxReplicas": 2}));
    trial.run();
    assert_eq!(replicas(&trial), 2);
}
