//! Measures scheduling: pods are created as fast as the server accepts them, and watched until each has a node.
//!
//! The server must have a scheduler and no nodes: each mode creates its own nodes. Creating pods has a cost of its own:
//! the same number of pods is first created for a scheduler that does not exist, and this cost is subtracted. Times are
//! from creation to binding.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdfast_value::{Value, json};
use http::Method;
use tokio::sync::Notify;

use crate::client::{Client, OperationFailure, Pool, next_chunk, text_field};
use crate::fan_out::{Events, Framing, net_of_writes};
use crate::ground::{PODS, json as body};
use crate::load::{self, LoadLimits, Operation, Tally};
use crate::report::ReportRow;
use crate::{Bench, Mode};

const NODES: &str = "/api/v1/nodes";
const PRIORITY_CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const HIGH: &str = "holdfast-bench-high";
const PODS_USUAL: u64 = 10_000;
/// How many low-priority pods fit on a node with 4 CPUs.
const LOW_PODS_A_NODE: u64 = 4;
/// If no pod is bound for this time, the benchmark stops waiting for the remaining pods.
const PATIENCE: Duration = Duration::from_secs(30);
const LIMIT: Duration = Duration::from_secs(600);

/// The fields of the pods' spec in addition to CPU and memory; `None` for modes that schedule nothing.
pub fn shape(mode: Mode) -> Option<Value> {
    let apart = |key: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "bench"}}});
    let spread = |action: &str| {
        json!({"topologySpreadConstraints": [{"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 5,
            "whenUnsatisfiable": action, "labelSelector": {"matchLabels": {"app": "bench"}}}]})
    };
    let required = |side: &str, key: &str| json!({"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": [apart(key)]}}});
    let preferred = |side: &str, key: &str| {
        let term = json!({"weight": 1, "podAffinityTerm": apart(key)});
        json!({"affinity": {side: {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    Some(match mode {
        Mode::Schedule => json!({}),
        Mode::ScheduleAffinity => required("podAffinity", "topology.kubernetes.io/region"),
        Mode::ScheduleAntiAffinity => required("podAntiAffinity", "kubernetes.io/hostname"),
        Mode::SchedulePreferred => preferred("podAffinity", "kubernetes.io/hostname"),
        Mode::ScheduleSpread => spread("DoNotSchedule"),
        Mode::SchedulePreempt => json!({"priorityClassName": HIGH, "priority": 10}),
        _ => return None,
    })
}

pub async fn measure(bench: &Bench<'_>, name: &'static str, mode: Mode, shape: Value) -> anyhow::Result<ReportRow> {
    let nodes = u64::from(bench.args.nodes);
    let preempts = mode == Mode::SchedulePreempt;
    make_nodes(bench, nodes).await?;
    let plain = Pods { prefix: "unseen", spec: json!({"schedulerName": "nobody"}), cpu: "100m" };
    if preempts {
        let low = Pods { prefix: "low", spec: json!({"terminationGracePeriodSeconds": 0}), cpu: "900m" };
        bind_all(bench, low, nodes * LOW_PODS_A_NODE).await?;
    }
    let usual = if preempts || mode == Mode::ScheduleAntiAffinity { nodes } else { PODS_USUAL };
    let count = bench.args.count.unwrap_or(usual);

    let before = bench.processes.usage()?;
    let alone = create_all(bench, &plain, count, Instant::now()).await;
    let alone_usage = bench.processes.since(before)?;
    anyhow::ensure!(alone.errors() == 0, "could not create pods: {}", alone.errors_text());

    let pods = Pods { prefix: name, spec: shape, cpu: if preempts { "3000m" } else { "100m" } };
    let before = bench.processes.usage()?;
    let (created, mut bound) = bind_all(bench, pods, count).await?;
    let usage = bench.processes.since(before)?;
    let missing = count.saturating_sub(bound.count());
    if missing > 0 {
        bound.failures.insert("was not bound".into(), missing);
    }
    remove(bench).await?;
    Ok(ReportRow::new(name, &bound, usage.map(|usage| net_of_writes(usage, &created, alone_usage, &alone))))
}

/// The pods that one mode creates.
#[derive(Clone)]
struct Pods {
    prefix: &'static str,
    spec: Value,
    cpu: &'static str,
}

impl Pods {
    fn document(&self, ticket: u64, opened: Instant) -> String {
        let resources = json!({"cpu": self.cpu, "memory": "500Mi"});
        let mut spec = json!({"containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10",
            "resources": {"requests": resources}}]});
        for (field, value) in self.spec.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let stamp = opened.elapsed().as_micros().to_string();
        let metadata = json!({"name": format!("{}-{ticket:06}", self.prefix), "labels": {"app": "bench"},
            "annotations": {"stamp": stamp}});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string()
    }
}

struct Create {
    client: Client,
    pods: Pods,
    opened: Instant,
}

impl Operation for Create {
    async fn run(&mut self, ticket: u64) -> Result<u64, OperationFailure> {
        let document = self.pods.document(ticket, self.opened);
        Ok(self.client.send(Method::POST, PODS, body(document)).await?.body_bytes)
    }
}

async fn create_all(bench: &Bench<'_>, pods: &Pods, count: u64, opened: Instant) -> Tally {
    let limits = LoadLimits { count: Some(count), duration: LIMIT };
    let make = |worker| Create { client: bench.pool.pick(worker), pods: pods.clone(), opened };
    load::drive(bench.args.workers, limits, make).await
}

/// Creates pods and waits until each has a node.
async fn bind_all(bench: &Bench<'_>, pods: Pods, count: u64) -> anyhow::Result<(Tally, Tally)> {
    let opened = Instant::now();
    let seen = Arc::new(BoundPods { opened, prefix: pods.prefix, bound: Mutex::default(), news: Notify::new() });
    let answer = bench.pool.pick(0).send(Method::GET, &format!("{PODS}?limit=1"), None).await?;
    let version = answer.metadata_text("resourceVersion").unwrap_or("0").to_owned();
    // Only pods with a node are watched, so a pod appears when it is bound.
    let path =
        format!("{PODS}?watch=true&resourceVersion={version}&fieldSelector=spec.nodeName%21%3D&timeoutSeconds=3600");
    let pool = Pool::connect(&bench.access, 1).await?;
    let stream = pool.pick(0).stream(&path).await.map_err(|failure| anyhow::anyhow!("cannot watch pods: {failure}"))?;
    let listening = tokio::spawn(listen(stream, seen.clone()));
    let created = create_all(bench, &pods, count, opened).await;
    anyhow::ensure!(created.errors() == 0, "could not create pods: {}", created.errors_text());
    while seen.count() < count {
        if tokio::time::timeout(PATIENCE, seen.news.notified()).await.is_err() {
            break;
        }
    }
    listening.abort();
    let mut bound = std::mem::take(&mut *seen.bound.lock().expect("no listener panics"));
    bound.elapsed = opened.elapsed();
    Ok((created, bound))
}

struct BoundPods {
    opened: Instant,
    prefix: &'static str,
    bound: Mutex<Tally>,
    news: Notify,
}

impl BoundPods {
    fn count(&self) -> u64 {
        self.bound.lock().expect("no listener panics").count()
    }

    fn take_in(&self, event: &[u8]) {
        if !event.starts_with(br#"{"type":"ADDED""#) || !text_field(event, "name").is_some_and(|name| self.is_own(name))
        {
            return;
        }
        let Some(stamp) = text_field(event, "stamp").and_then(|stamp| stamp.parse().ok()) else { return };
        let latency = self.opened.elapsed().saturating_sub(Duration::from_micros(stamp));
        self.bound.lock().expect("no listener panics").succeeded(latency, event.len() as u64);
        self.news.notify_one();
    }

    fn is_own(&self, name: &str) -> bool {
        name.strip_prefix(self.prefix).is_some_and(|rest| rest.starts_with('-'))
    }
}

async fn listen(mut stream: h2::RecvStream, seen: Arc<BoundPods>) {
    let mut events = Events::new(Framing::Lines);
    while let Ok(Some(chunk)) = next_chunk(&mut stream).await {
        events.push(&chunk, |event| seen.take_in(event));
    }
}

struct MakeNode(Client);

impl Operation for MakeNode {
    async fn run(&mut self, ticket: u64) -> Result<u64, OperationFailure> {
        let name = format!("holdfast-bench-{ticket:06}");
        let labels = json!({"kubernetes.io/hostname": name, "app": "holdfast-bench",
            "topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": format!("moon-{}", ticket % 3)});
        let there = json!({"cpu": "4", "memory": "32Gi", "pods": "110"});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"capacity": there, "allocatable": there, "conditions": [{"type": "Ready", "status": "True"}]}});
        made(self.0.send(Method::POST, NODES, body(node.to_string())).await)?;
        // A new node has a taint until a controller finds the node ready. No controller runs here, so the taint is
        // removed.
        let taints = json!({"spec": {"taints": null}}).to_string();
        let patch = Some((crate::operation::MERGE_PATCH, taints.into()));
        Ok(self.0.send(Method::PATCH, &format!("{NODES}/{name}"), patch).await?.body_bytes)
    }
}

/// Ignores the error that an object exists, because an earlier mode has created it.
fn made(answer: Result<crate::client::Answer, OperationFailure>) -> Result<(), OperationFailure> {
    match answer {
        Ok(_) | Err(OperationFailure::Refused { code: 409, .. }) => Ok(()),
        Err(failure) => Err(failure),
    }
}

async fn make_nodes(bench: &Bench<'_>, count: u64) -> anyhow::Result<()> {
    bench.prepare(count, MakeNode).await?;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": HIGH},
        "value": 10});
    made(bench.pool.pick(0).send(Method::POST, PRIORITY_CLASSES, body(class.to_string())).await)?;
    Ok(())
}

/// Deletes everything, so that the next mode finds empty nodes.
async fn remove(bench: &Bench<'_>) -> anyhow::Result<()> {
    let client = bench.pool.pick(0);
    let nodes = format!("{NODES}?labelSelector=app%3Dholdfast-bench");
    let class = format!("{PRIORITY_CLASSES}/{HIGH}");
    for path in [&format!("{PODS}?gracePeriodSeconds=0"), &nodes, &class] {
        if let Err(failure) = client.send(Method::DELETE, path, None).await {
            anyhow::bail!("cannot delete {path}: {failure}");
        }
    }
    Ok(())
}
