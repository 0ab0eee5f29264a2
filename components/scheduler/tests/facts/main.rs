//! Compares the decisions of Kubernetes' scheduler, scenario by scenario, with the decisions of this scheduler: which
//! nodes are rejected and why, every score, the message, the victims.
//!
//! `FACTS=name cargo test -p holdfast-scheduler --test facts` plays the scenarios whose names contain `name` and prints
//! every difference.

mod cluster;
mod compare;

use cluster::{Cluster, key_of, merge};
use compare::Differences;
use flate2::read::GzDecoder;
use holdfast_scheduler::plan::Plan;
use holdfast_scheduler::queue::{AttemptFailure, QueueContext, Time};
use holdfast_scheduler::status::Nomination;
use holdfast_scheduler::{ClusterEvent, Configuration, Key, PlanOutcome, Profile, Queue, plan};
use holdfast_value::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};

#[test]
fn decisions_agree_with_kubernetes() {
    let lines = lines();
    let only = std::env::var("FACTS").unwrap_or_default();
    let (mut agreeing, mut sums, mut plugins) = (0, BTreeMap::new(), BTreeMap::new());
    let scenarios: Vec<_> = lines[1..].iter().filter(|one| one["name"].as_str().unwrap().contains(&only)).collect();
    for scenario in &scenarios {
        let name = scenario["name"].as_str().unwrap();
        let differences = Player::new(&lines[0], scenario).play(scenario);
        let agrees = differences.is_empty();
        agreeing += usize::from(agrees);
        for plugin in scenario["plugins"].as_array().into_iter().flatten() {
            let count: &mut (usize, usize) = plugins.entry(plugin.as_str().unwrap()).or_default();
            count.0 += usize::from(agrees);
            count.1 += 1;
        }
        for (what, detail) in differences.all() {
            *sums.entry(what.clone()).or_insert(0) += 1;
            println!("{name}: {what}: {detail}");
        }
    }
    for (plugin, (good, all)) in plugins {
        println!("{plugin:36} {good} of {all}");
    }
    println!("agree: {agreeing} of {}; differences: {sums:?}", scenarios.len());
    assert_eq!(agreeing, scenarios.len(), "scenarios that agree");
}

fn lines() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/scheduling.jsonl.gz");
    let file = std::fs::File::open(path).expect("the recorded scenarios");
    let lines = BufReader::new(GzDecoder::new(file)).lines().map(|line| line.expect("a line of text"));
    lines.filter(|line| !line.is_empty()).map(|line| serde_json::from_str(&line).expect("JSON")).collect()
}

struct Player {
    cluster: Cluster,
    configuration: Configuration,
    queue: Queue,
    now: Time,
}

/// The time between two steps of a scenario, in nanoseconds. This time is longer than every back-off.
const STEP: Time = 20_000_000_000;

impl Player {
    fn new(head: &Value, scenario: &Value) -> Self {
        let mut document = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "percentageOfNodesToScore": 100,
        });
        merge(&mut document, &scenario["config"].as_object().map_or(json!({}), |own| Value::Object(own.clone())));
        let configuration = Configuration::of(&document).unwrap_or_else(|faults| panic!("{faults:?}"));
        let queue = Queue::new(&configuration);
        let mut player = Player { cluster: Cluster::default(), configuration, queue, now: 0 };
        let objects = |value: &Value| value.as_array().cloned().unwrap_or_default();
        for object in objects(&head["fixtures"]).iter().chain(&objects(&scenario["objects"])) {
            let events = player.cluster.create(object);
            player.handle_events(events);
        }
        player
    }

    fn handle_events(&mut self, events: Vec<ClusterEvent>) {
        for event in events {
            let context = QueueContext { snapshot: &self.cluster.snapshot, configuration: &self.configuration };
            self.queue.handle_event(context, event, self.now);
        }
    }

    fn change(&mut self, kind: &str, key: &Key, change: impl FnOnce(&mut Value)) {
        let events = self.cluster.change(kind, key, change);
        self.handle_events(events);
    }

    fn delete(&mut self, kind: &str, key: &Key) {
        let events = self.cluster.delete(kind, key);
        self.handle_events(events);
    }

    fn play(mut self, scenario: &Value) -> Differences {
        let mut differences = Differences::default();
        let mut outcomes = scenario["outcomes"].as_array().into_iter().flatten();
        for step in scenario["steps"].as_array().into_iter().flatten() {
            let pod = self.step(step);
            if let Some(pod) = pod {
                let wanted = outcomes.next().expect("an outcome");
                self.decide(&pod, wanted, &mut differences);
            }
        }
        differences
    }

    /// Carries out one step of a scenario. Returns the pod whose decision is to be compared, if the step schedules a
    /// pod.
    fn step(&mut self, step: &Value) -> Option<Key> {
        self.now += STEP;
        match step["op"].as_str()? {
            "schedule" => {
                let events = self.cluster.create(&step["object"]);
                self.handle_events(events);
                return Some(key_of("Pod", &step["object"]));
            }
            "create" => {
                let events = self.cluster.create(&step["object"]);
                self.handle_events(events);
            }
            "delete" => {
                let kind = step["kind"].as_str()?;
                let key = key_of(kind, step);
                // A deletion with the default grace period (`"grace": null`) only sets a deletion timestamp, because no
                // kubelet ends the pod. Any other deletion removes the object at once.
                if step["grace"].is_null() && step.as_object()?.contains_key("grace") {
                    self.change(kind, &key, |object| {
                        object["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z".into();
                    });
                } else {
                    self.delete(kind, &key);
                }
            }
            "patch" => {
                let kind = step["kind"].as_str()?;
                self.change(kind, &key_of(kind, step), |object| merge(object, &step["patch"]));
            }
            other => panic!("no such step: {other}"),
        }
        let pod = step["pod"].as_str()?;
        Some(pod.split_once('/').map_or(Key::new("default", pod), |(namespace, name)| Key::new(namespace, name)))
    }

    fn decide(&mut self, key: &Key, wanted: &Value, differences: &mut Differences) {
        let pod = self.cluster.snapshot.pod(key).expect("the pod").clone();
        let cycles: Vec<&Value> = wanted["cycles"].as_array().into_iter().flatten().collect();
        let no_nodes = wanted["condition"]["message"] == "no nodes available to schedule pods";
        if !self.is_next(key) {
            return differences.unless("attempt", cycles.is_empty() && !no_nodes, || "the pod was not tried".into());
        }
        if cycles.is_empty() && !no_nodes {
            return differences.unless("attempt", false, || "nothing should have woken the pod".into());
        }
        let profile = self.configuration.profile(&pod.template.scheduler_name).cloned().expect("a profile");
        let plan = plan(&self.cluster.snapshot, &profile, &pod);
        if let Some(first) = cycles.first() {
            compare::cycle(first, &plan, differences);
        }
        self.apply_plan(key, &profile, plan, wanted, &cycles, differences);
    }

    /// Pops pods from the queue until this pod is popped, and puts the other pods back.
    fn is_next(&mut self, key: &Key) -> bool {
        self.now += STEP;
        let context = QueueContext { snapshot: &self.cluster.snapshot, configuration: &self.configuration };
        self.queue.flush(context, self.now);
        let mut others = Vec::new();
        let found = loop {
            match self.queue.pop(self.now) {
                Some((next, _)) if next == *key => break true,
                Some((next, _)) => others.push(next),
                None => break false,
            }
        };
        for other in others {
            self.requeue_failed(&other, vec![holdfast_scheduler::plugins::node_resources_fit::NAME]);
        }
        found
    }

    fn requeue_failed(&mut self, key: &Key, rejectors: Vec<&'static str>) {
        let context = QueueContext { snapshot: &self.cluster.snapshot, configuration: &self.configuration };
        let failure = if rejectors.is_empty() { AttemptFailure::Error } else { AttemptFailure::Rejected(rejectors) };
        self.queue.requeue_failed(context, key, failure, self.now);
    }

    #[allow(clippy::too_many_arguments)]
    fn apply_plan(
        &mut self,
        key: &Key,
        profile: &Profile,
        plan: Plan,
        wanted: &Value,
        cycles: &[&Value],
        differences: &mut Differences,
    ) {
        match &plan.outcome {
            PlanOutcome::Bind { node, reservation } => {
                compare::bound(wanted, &plan, differences);
                // The steps that follow were recorded with the node that Kubernetes chose, so the pod is bound to that
                // node.
                let node = wanted["node"].as_str().unwrap_or(node);
                let reservation = reservation.clone();
                compare::reservation(wanted, &reservation, differences);
                self.change("Pod", key, |pod| pod["spec"]["nodeName"] = node.into());
                self.bind_volumes(wanted);
                for (claim, allocation) in &reservation.devices {
                    let devices = allocation.devices.iter();
                    let results: Vec<_> = devices
                        .map(|one| json!({"request": &*one.request, "driver": &*one.driver, "pool": &*one.pool, "device": &*one.device}))
                        .collect();
                    self.change("ResourceClaim", claim, |object| {
                        object["status"]["allocation"] = json!({"devices": {"results": results}});
                    });
                }
            }
            PlanOutcome::Unschedulable(why) => {
                self.requeue_failed(key, why.rejectors.clone());
                if let Some(claim) = &why.deallocate {
                    self.change("ResourceClaim", claim, |object| object["status"] = json!({}));
                    let again = self.plan(key, profile);
                    return self.apply_plan(key, profile, again, wanted, &[], differences);
                }
                compare::unschedulable(wanted, &plan, differences);
                let node = match (wanted["nominated"].as_str(), &why.nomination) {
                    (Some(recorded), _) => recorded.to_owned(),
                    (None, Nomination::Set(node)) => node.to_string(),
                    _ => return,
                };
                self.preempted(key, profile, wanted, &node, cycles, differences);
            }
        }
    }

    /// Acts as the volume controller: binds each of the pod's claims to the volume in the recording.
    fn bind_volumes(&mut self, wanted: &Value) {
        for (claim, recorded) in wanted["claims"].as_object().into_iter().flatten() {
            let (namespace, name) = claim.split_once('/').expect("a key");
            let Some(volume) = recorded["volume"].as_str() else { continue };
            self.change("PersistentVolumeClaim", &Key::new(namespace, name), |claim| {
                claim["spec"]["volumeName"] = volume.into();
                claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes".into();
            });
            self.change("PersistentVolume", &Key::cluster(volume), |volume| {
                volume["spec"]["claimRef"] = json!({"namespace": namespace, "name": name});
                volume["status"]["phase"] = "Bound".into();
            });
        }
    }

    /// Deletes the victims in the recording, and plans the pod again.
    fn preempted(
        &mut self,
        key: &Key,
        profile: &Profile,
        wanted: &Value,
        node: &str,
        cycles: &[&Value],
        differences: &mut Differences,
    ) {
        self.change("Pod", key, |pod| pod["status"]["nominatedNodeName"] = node.into());
        for victim in wanted["victims"].as_array().into_iter().flatten() {
            let (namespace, name) = victim["pod"].as_str().and_then(|key| key.split_once('/')).expect("a key");
            self.delete("Pod", &Key::new(namespace, name));
        }
        if wanted["then"].is_null() {
            return;
        }
        let then = self.plan(key, profile);
        if let Some(last) = cycles.last().filter(|_| cycles.len() > 1) {
            compare::cycle(last, &then, differences);
        }
        differences.unless("then", then.node().map(|node| &**node) == wanted["then"]["node"].as_str(), || {
            format!("{:?}", then.node())
        });
        if let Some(node) = wanted["then"]["node"].as_str() {
            self.change("Pod", key, |pod| pod["spec"]["nodeName"] = node.into());
        }
    }

    fn plan(&self, key: &Key, profile: &Profile) -> Plan {
        plan(&self.cluster.snapshot, profile, self.cluster.snapshot.pod(key).expect("the pod"))
    }
}
