//! What Kubernetes' scheduler decided, scenario by scenario, and what is decided here: which nodes are refused and why,
//! every score, the message, the victims.
//!
//! `FACTS=name cargo test -p holdfast-scheduler --test facts` plays the scenarios whose names contain `name` and prints
//! every difference.

mod cluster;
mod compare;

use cluster::{Cluster, key_of, merge};
use compare::Differences;
use flate2::read::GzDecoder;
use holdfast_scheduler::plan::{Nomination, Plan};
use holdfast_scheduler::plugin::{Cycle, Point};
use holdfast_scheduler::{Configuration, Key, Outcome, Profile, plan};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};

/// Scenarios that agree in everything. The number may only grow.
const AGREEING: usize = 0;

/// Scenarios in which this scheduler differs on purpose.
const DIFFERENT: &[&str] = &[];

#[test]
fn decisions_are_those_of_kubernetes() {
    let lines = lines();
    let only = std::env::var("FACTS").unwrap_or_default();
    let (mut agreeing, mut sums, mut plugins) = (0, BTreeMap::new(), BTreeMap::new());
    let scenarios: Vec<_> =
        lines[1..].iter().filter(|one| one["name"].as_str().unwrap().contains(&only)).collect();
    for scenario in &scenarios {
        let name = scenario["name"].as_str().unwrap();
        let differences = Player::new(&lines[0], scenario).play(scenario);
        let agrees = differences.is_empty() || DIFFERENT.contains(&name);
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
    assert!(!only.is_empty() || agreeing >= AGREEING, "{agreeing} scenarios agree, {AGREEING} did before");
}

fn lines() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/scheduling.jsonl.gz");
    let file = std::fs::File::open(path).expect("the recorded scenarios");
    let lines = BufReader::new(GzDecoder::new(file)).lines().map(|line| line.expect("a line of text"));
    lines.filter(|line| !line.is_empty()).map(|line| serde_json::from_str(&line).expect("JSON")).collect()
}

struct Player {
    cluster: Cluster,
    configuration: Configuration,
}

impl Player {
    fn new(head: &Value, scenario: &Value) -> Self {
        let mut cluster = Cluster::default();
        let objects = |value: &Value| value.as_array().cloned().unwrap_or_default();
        for object in objects(&head["fixtures"]).iter().chain(&objects(&scenario["objects"])) {
            cluster.create(object);
        }
        let mut document = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "percentageOfNodesToScore": 100,
        });
        merge(&mut document, &scenario["config"].as_object().map_or(json!({}), |own| Value::Object(own.clone())));
        let configuration = Configuration::of(&document).unwrap_or_else(|faults| panic!("{faults:?}"));
        Player { cluster, configuration }
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

    /// Does what a step says. The pod whose decision is waited for.
    fn step(&mut self, step: &Value) -> Option<Key> {
        match step["op"].as_str()? {
            "schedule" => {
                self.cluster.create(&step["object"]);
                return Some(key_of("Pod", &step["object"]));
            }
            "create" => {
                self.cluster.create(&step["object"]);
            }
            "delete" => {
                let kind = step["kind"].as_str()?;
                let key = key_of(kind, step);
                // Without a grace the object goes at once; otherwise somebody must end it, and nobody is there who would.
                if step["grace"].is_null() && step.as_object()?.contains_key("grace") {
                    self.cluster.change(kind, &key, |object| {
                        object["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z".into();
                    });
                } else {
                    self.cluster.delete(kind, &key);
                }
            }
            "patch" => {
                let kind = step["kind"].as_str()?;
                self.cluster.change(kind, &key_of(kind, step), |object| merge(object, &step["patch"]));
            }
            other => panic!("no such step: {other}"),
        }
        let pod = step["pod"].as_str()?;
        Some(pod.split_once('/').map_or(Key::new("default", pod), |(namespace, name)| Key::new(namespace, name)))
    }

    fn decide(&mut self, key: &Key, wanted: &Value, differences: &mut Differences) {
        let pod = self.cluster.snapshot.pod(key).expect("the pod").clone();
        let cycles: Vec<&Value> = wanted["cycles"].as_array().into_iter().flatten().collect();
        let Some(profile) = self.configuration.profile(&pod.template.scheduler_name).cloned() else {
            return differences.unless("profile", cycles.is_empty(), || "no profile".into());
        };
        let cycle = Cycle { snapshot: &self.cluster.snapshot, pod: &pod };
        let gates = profile.at(Point::PreEnqueue).iter().find_map(|enabled| enabled.plugin.pre_enqueue(cycle));
        if let Some(refusal) = gates {
            return differences.unless("gates", cycles.is_empty(), || format!("{refusal:?}"));
        }
        if pod.node_name.is_some() {
            return;
        }
        let plan = plan(&self.cluster.snapshot, &profile, &pod);
        if cycles.is_empty() && wanted["condition"]["message"] != "no nodes available to schedule pods" {
            // Nothing woke the pod; it stays where it was.
            return differences.unless("message", message(&plan) == wanted["condition"]["message"], || {
                format!("{:?}", message(&plan))
            });
        }
        if let Some(first) = cycles.first() {
            compare::cycle(first, &plan, differences);
        }
        self.carry_out(key, &profile, plan, wanted, &cycles, differences);
    }

    fn carry_out(
        &mut self,
        key: &Key,
        profile: &Profile,
        plan: Plan,
        wanted: &Value,
        cycles: &[&Value],
        differences: &mut Differences,
    ) {
        match &plan.outcome {
            Outcome::Bind { node, promise } => {
                compare::bound(wanted, &plan, differences);
                // What follows was recorded with the node that Kubernetes took.
                let node = wanted["node"].as_str().unwrap_or(node);
                let promise = promise.clone();
                compare::promise(wanted, &promise, differences);
                self.cluster.change("Pod", key, |pod| pod["spec"]["nodeName"] = node.into());
                for (claim, allocation) in &promise.devices {
                    let devices = allocation.devices.iter();
                    let results: Vec<_> = devices
                        .map(|one| json!({"request": &*one.request, "driver": &*one.driver, "pool": &*one.pool, "device": &*one.device}))
                        .collect();
                    self.cluster.change("ResourceClaim", claim, |object| {
                        object["status"]["allocation"] = json!({"devices": {"results": results}});
                    });
                }
            }
            Outcome::Unschedulable(why) => {
                if let Some(claim) = &why.deallocate {
                    self.cluster.change("ResourceClaim", claim, |object| object["status"] = json!({}));
                    let again = self.plan(key, profile);
                    return self.carry_out(key, profile, again, wanted, &[], differences);
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

    /// Lets the victims go that were recorded, and asks again.
    fn preempted(
        &mut self,
        key: &Key,
        profile: &Profile,
        wanted: &Value,
        node: &str,
        cycles: &[&Value],
        differences: &mut Differences,
    ) {
        self.cluster.change("Pod", key, |pod| pod["status"]["nominatedNodeName"] = node.into());
        for victim in wanted["victims"].as_array().into_iter().flatten() {
            let (namespace, name) = victim["pod"].as_str().and_then(|key| key.split_once('/')).expect("a key");
            self.cluster.delete("Pod", &Key::new(namespace, name));
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
            self.cluster.change("Pod", key, |pod| pod["spec"]["nodeName"] = node.into());
        }
    }

    fn plan(&self, key: &Key, profile: &Profile) -> Plan {
        plan(&self.cluster.snapshot, profile, self.cluster.snapshot.pod(key).expect("the pod"))
    }
}

fn message(plan: &Plan) -> Value {
    match &plan.outcome {
        Outcome::Bind { .. } => Value::Null,
        Outcome::Unschedulable(why) => why.message.clone().into(),
    }
}
