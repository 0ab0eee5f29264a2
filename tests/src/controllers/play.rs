//! Plays a scenario once.

use super::Scenario;
use super::cluster::{Cluster, JSON, MERGE, STRATEGIC, concerns, name_of, version};
use super::names::{Names, observed};
use super::path::{at, get, holds};
use super::resources::{RESOURCES, ResourceInfo, now, running};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The default timeout of a step, in seconds.
const WAIT_MAX: f64 = 90.0;
/// How long objects of a scenario's namespace may keep changing before the results are compared nevertheless.
const BUSY_MAX: Duration = Duration::from_secs(25);
/// How long after the other changes a server may write Events.
const LATE_MAX: Duration = Duration::from_secs(20);

/// Plays a scenario in a namespace of its own. Returns the results, or the step that failed.
pub async fn play(cluster: &Arc<Cluster>, scenario: &Scenario, namespace: &str) -> Result<Value, String> {
    let mut play = Play {
        cluster,
        scenario,
        namespace,
        start: cluster.length(),
        variables: BTreeMap::from([("NS".to_owned(), namespace.to_owned())]),
        answers: Vec::new(),
        made: Vec::new(),
        nodes: Vec::new(),
        at: 0,
    };
    let result = play.run().await;
    play.clean().await;
    result
}

struct Play<'a> {
    cluster: &'a Arc<Cluster>,
    scenario: &'a Scenario,
    namespace: &'a str,
    start: usize,
    variables: BTreeMap<String, String>,
    answers: Vec<Value>,
    /// The paths of objects that the scenario has created outside of its namespace.
    made: Vec<String>,
    nodes: Vec<String>,
    at: usize,
}

impl Play<'_> {
    async fn run(&mut self) -> Result<Value, String> {
        let labels = if self.scenario.nslabels.is_object() { self.scenario.nslabels.clone() } else { json!({}) };
        let body =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": labels}});
        let (code, answer) = self.cluster.call("POST", "/api/v1/namespaces", Some(&body), JSON, &Value::Null).await;
        if code != 201 {
            return Err(format!("namespace: {code} {}", answer["message"]));
        }
        for on in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            self.wait(&json!({"on": on})).await?;
        }
        let mut nodes: Vec<String> = self
            .cluster
            .real_nodes()
            .iter()
            .filter(|node| is_free(node))
            .map(|node| name_of(node).to_owned())
            .collect();
        nodes.sort();
        for (number, node) in nodes.into_iter().take(3).enumerate() {
            self.variables.insert(format!("N{}", number + 1), node);
        }
        for (place, step) in self.scenario.steps.iter().enumerate() {
            self.at = place;
            let step = fill(step, &self.variables);
            self.step(&step).await?;
        }
        self.settle().await;
        let (mut got, began) = (self.observe().await, Instant::now());
        // A busy server writes Events late, so wait for the expected Events.
        while !self.has_all_events(&got) && began.elapsed() < LATE_MAX {
            sleep(Duration::from_secs(1)).await;
            got = self.observe().await;
        }
        Ok(got)
    }

    fn has_all_events(&self, got: &Value) -> bool {
        let key = |event: &Value| {
            let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            format!("{}/{} {} {}", text("kind"), text("name"), text("reason"), text("message"))
        };
        let have: BTreeMap<String, i64> = got["events"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|event| (key(event), event["count"].as_i64().unwrap_or(0)))
            .collect();
        self.scenario.seen["events"].as_array().into_iter().flatten().all(|event| {
            let name = key(event);
            let unstable = |field: &str| {
                self.scenario.unstable.iter().any(|known| known.0 == "events" && known.1 == name && known.2 == field)
            };
            let wanted = if unstable("count") { 1 } else { event["count"].as_i64().unwrap_or(1) };
            unstable("") || have.get(&name).is_some_and(|count| *count >= wanted)
        })
    }

    /// Waits until nothing has changed for a while.
    async fn settle(&self) {
        let quiet = Duration::from_secs_f64(self.scenario.quiet);
        let (began, mut last, mut length) = (Instant::now(), Instant::now(), self.cluster.length());
        while began.elapsed() < BUSY_MAX && last.elapsed() < quiet {
            sleep(Duration::from_millis(200)).await;
            let news = self.cluster.history(length, self.namespace);
            length = self.cluster.length();
            if news.iter().any(|seen| concerns(&seen.place, self.namespace)) {
                last = Instant::now();
            }
        }
    }

    async fn observe(&self) -> Value {
        let history = self.cluster.history(self.start, self.namespace);
        let mut objects = observed(self.scenario, self.cluster, self.namespace);
        for path in &self.scenario.observe {
            let path = fill(&path.as_str().into(), &self.variables);
            let (_, list) = self.cluster.call("GET", path.as_str().unwrap_or_default(), None, "", &Value::Null).await;
            for object in list["items"].as_array().into_iter().flatten() {
                let mut object = object.clone();
                if object["kind"].is_null() {
                    object["kind"] = list["kind"].as_str().unwrap_or_default().replace("List", "").into();
                    object["apiVersion"] = list["apiVersion"].clone();
                }
                let kind = object["kind"].as_str().unwrap_or_default().to_owned();
                objects.insert((super::cluster::place(&object), kind), object.into());
            }
        }
        let names = Names::new(self.scenario, self.namespace, self.cluster, history, objects);
        let mut got = names.result(&self.cluster.objects(ResourceInfo::named("events"), self.namespace));
        got["answers"] = self.answers.clone().into();
        got
    }

    async fn step(&mut self, step: &Value) -> Result<(), String> {
        let name = || step["name"].as_str().unwrap_or_default();
        match step["op"].as_str().unwrap_or_default() {
            "sleep" => sleep(Duration::from_secs_f64(step["s"].as_f64().unwrap_or(0.0))).await,
            "wait" => self.wait(step).await?,
            "node" => {
                self.nodes.push(name().to_owned());
                let code = self.cluster.add_node(self.namespace, step).await;
                self.answers.push(code.into());
            }
            "node-silent" => self.cluster.set_alive(name(), false),
            "node-back" => {
                self.cluster.set_alive(name(), true);
                self.cluster.renew(name()).await;
            }
            "capture" => {
                let (plural, of) = split(&step["from"]);
                let object = self.cluster.object(ResourceInfo::named(plural), self.namespace, of);
                let value = shown(get(object.as_deref().unwrap_or(&Value::Null), &step["path"]));
                self.variables.insert(step["as"].as_str().unwrap_or_default().to_owned(), value);
            }
            "read" => {
                let (_, object) =
                    self.cluster.call("GET", step["path"].as_str().unwrap_or_default(), None, "", &Value::Null).await;
                self.variables
                    .insert(step["as"].as_str().unwrap_or_default().to_owned(), shown(get(&object, &step["field"])));
            }
            "repeat" => {
                let times = step["times"].as_u64().unwrap_or(0);
                for number in 0..times {
                    let one = fill(&step["step"], &BTreeMap::from([("I".to_owned(), number.to_string())]));
                    self.request(&one, false).await?;
                }
                self.answers.push(format!("x{times}").into());
            }
            "poll" => self.poll(step).await?,
            "each" => self.each(step).await?,
            "req" => self.request(step, true).await?,
            other => panic!("the step {other} is not known"),
        }
        Ok(())
    }

    async fn poll(&self, step: &Value) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let path = step["path"].as_str().unwrap_or_default();
            let (code, object) = self.cluster.call("GET", path, None, "", &Value::Null).await;
            if u64::from(code) == step["code"].as_u64().unwrap_or(200) && holds(&object, &step["if"]) {
                return Ok(());
            }
            if began.elapsed().as_secs_f64() > step["for"].as_f64().unwrap_or(60.0) {
                return Err(format!("step {}: poll {path}: {code}", self.at));
            }
            sleep(Duration::from_millis(300)).await;
        }
    }

    async fn request(&mut self, step: &Value, record: bool) -> Result<(), String> {
        let (method, path) = (step["method"].as_str().unwrap_or_default(), step["path"].as_str().unwrap_or_default());
        let body = step.get("body").filter(|body| !body.is_null());
        let content = match step["type"].as_str() {
            Some("strategic") => STRATEGIC,
            Some("merge") => MERGE,
            Some("json") => "application/json-patch+json",
            Some("apply") => "application/apply-patch+yaml",
            _ => JSON,
        };
        let has = |list: &str, code: u16| step[list].as_array().is_some_and(|codes| codes.contains(&code.into()));
        let (mut code, mut answer) = (0, Value::Null);
        for again in 0..40 {
            (code, answer) = self.cluster.call(method, path, body, content, &step["headers"]).await;
            if !has("retry", code) || again == 39 {
                break;
            }
            sleep(Duration::from_millis(250)).await;
        }
        if record {
            self.answers.push(code.into());
        }
        let name = answer["metadata"]["name"].as_str().unwrap_or_default();
        if method == "POST"
            && code == 201
            && !name.is_empty()
            && !path.contains(&format!("/namespaces/{}", self.namespace))
        {
            self.made.push(format!("{}/{name}", path.split('?').next().unwrap_or_default()));
        }
        let bad = code >= 500 || code == 0 || (matches!(code, 400 | 401 | 404 | 422) && step["may"].is_null());
        if bad && !has("codes", code) && (method != "DELETE" || step["codes"].is_array()) {
            return Err(format!("step {}: {method} {path}: {code} {}", self.at, answer["message"]));
        }
        if code < 300 && !name.is_empty() && method != "DELETE" {
            self.see(&answer).await;
        }
        Ok(())
    }

    /// Waits until the watches show an object that the scenario has written.
    async fn see(&self, object: &Value) {
        let Some(resource) = object["kind"].as_str().and_then(ResourceInfo::of_kind) else { return };
        let (namespace, name) = super::cluster::place(object);
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5) {
            match self.cluster.object(resource, &namespace, &name) {
                Some(shown) if version(&shown) >= version(object) => return,
                None if began.elapsed() > Duration::from_millis(300) => return,
                _ => sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// The objects that a step selects, in the order that the step asks for.
    fn pick(&self, step: &Value, tests: &Value) -> Vec<Arc<Value>> {
        let (plural, name) = split(&step["on"]);
        let mut picked = self.cluster.objects(ResourceInfo::named(plural), self.namespace);
        picked.retain(|object| {
            let labels = step["where"].as_object().into_iter().flatten();
            let mut labelled = labels.map(|(label, value)| object["metadata"]["labels"][label] == *value);
            (name.is_empty() || name_of(object) == name) && labelled.all(|is| is) && holds(object, tests)
        });
        let by = step["sort"].as_str().unwrap_or("metadata.name");
        picked.sort_by_key(|object| {
            let value = shown(at(object, by));
            let numeric = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            (if numeric { value.len() } else { 0 }, value, name_of(object).to_owned())
        });
        picked
    }

    async fn wait(&self, step: &Value) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let count = self.pick(step, &step["if"]).len() as u64;
            let come = match (step["gone"] == true, step["count"].as_u64()) {
                (true, _) => count == 0,
                (false, Some(wanted)) => count == wanted,
                (false, None) => count >= step["atleast"].as_u64().unwrap_or(1),
            };
            if come
                || (began.elapsed().as_secs_f64() > step["for"].as_f64().unwrap_or(WAIT_MAX) && step["soft"] == true)
            {
                return Ok(());
            }
            if began.elapsed().as_secs_f64() > step["for"].as_f64().unwrap_or(WAIT_MAX) {
                let seen: Vec<Value> =
                    self.pick(step, &Value::Null).iter().take(3).map(|object| object["status"].clone()).collect();
                let seen: String = Value::from(seen).to_string().chars().take(600).collect();
                return Err(format!("step {}: wait {step}: seen {seen}", self.at));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn each(&mut self, step: &Value) -> Result<(), String> {
        let (skip, began) = (step["skip"].as_u64().unwrap_or(0) as usize, Instant::now());
        let least = step["take"].as_u64().unwrap_or(1) as usize;
        let mut picked = self.pick(step, &step["if"]);
        while picked.len() < skip + least && began.elapsed() < Duration::from_secs(60) {
            sleep(Duration::from_millis(50)).await;
            picked = self.pick(step, &step["if"]);
        }
        if picked.len() < skip + least {
            return Err(format!("step {}: each {}: only {}", self.at, step["on"], picked.len()));
        }
        let most = step["take"].as_u64().map_or(usize::MAX, |most| most as usize);
        let picked: Vec<_> = picked.into_iter().skip(skip).take(most).collect();
        for (place, object) in picked.iter().enumerate() {
            let request = self.one_of_each(step, place, object);
            self.request(&request, false).await?;
        }
        self.answers.push(format!("x{}", picked.len()).into());
        Ok(())
    }

    fn one_of_each(&self, step: &Value, place: usize, object: &Value) -> Value {
        let time = now();
        let meta = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let variables = BTreeMap::from([
            ("NAME".to_owned(), meta("name")),
            ("UID".to_owned(), meta("uid")),
            ("RV".to_owned(), meta("resourceVersion")),
            ("I".to_owned(), place.to_string()),
            ("NOW".to_owned(), time.clone()),
        ]);
        let mut body = fill(&step["body"], &variables);
        if body == "RUNNING" {
            let ip = step["ip"].as_str().unwrap_or("10.9.0.%d");
            let number = step["base"].as_u64().unwrap_or(1) + place as u64;
            body = running(object, &ip.replace("%d", &number.to_string()), step["unready"] != true, &time);
            if step["unready"] == true {
                // The kubelet reports that the pod's containers have started, and that they are not ready.
                for status in body["status"]["containerStatuses"].as_array_mut().into_iter().flatten() {
                    status["ready"] = false.into();
                }
            }
        }
        let resource = ResourceInfo::named(split(&step["on"]).0);
        let path =
            format!("{}/{}{}", resource.path(self.namespace), meta("name"), step["sub"].as_str().unwrap_or_default());
        let mut request = json!({"method": step["method"], "path": path, "body": body, "codes": step["codes"]});
        if step["method"] == "PATCH" {
            request["type"] = step["type"].as_str().unwrap_or("strategic").into();
        }
        request
    }

    /// Deletes everything that the scenario has created.
    async fn clean(&self) {
        for node in &self.nodes {
            self.cluster.drop_node(node).await;
        }
        let background = json!({"propagationPolicy": "Background"});
        let namespace = format!("/api/v1/namespaces/{}", self.namespace);
        self.cluster.call("DELETE", &namespace, Some(&background), JSON, &Value::Null).await;
        let free = json!({"metadata": {"finalizers": null}});
        for path in self.made.iter().rev() {
            let now = json!({"propagationPolicy": "Background", "gracePeriodSeconds": 0});
            self.cluster.call("DELETE", path, Some(&now), JSON, &Value::Null).await;
            self.cluster.call("PATCH", path, Some(&free), MERGE, &Value::Null).await;
        }
        for resource in RESOURCES.iter().filter(|resource| resource.namespaced) {
            for object in self.cluster.objects(*resource, self.namespace) {
                if object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty()) {
                    let path = format!("{}/{}", resource.path(self.namespace), name_of(&object));
                    self.cluster.call("PATCH", &path, Some(&free), MERGE, &Value::Null).await;
                }
            }
        }
    }
}

/// Whether pods can be scheduled to a node.
fn is_free(node: &Value) -> bool {
    let tainted = node["spec"]["taints"].as_array().is_some_and(|taints| !taints.is_empty());
    !tainted && at(node, "status.conditions[type=Ready].status") == "True"
}

fn split(reference: &Value) -> (&str, &str) {
    let reference = reference.as_str().unwrap_or_default();
    reference.split_once('/').unwrap_or((reference, ""))
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "None".into(),
        other => other.to_string(),
    }
}

/// Replaces `$NAME` and `${NAME}` in a value, also in names of fields.
fn fill(value: &Value, variables: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) => filled(text, variables).into(),
        Value::Array(items) => items.iter().map(|item| fill(item, variables)).collect(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| (filled(name, variables), fill(value, variables));
            fields.iter().map(field).collect::<Map<_, _>>().into()
        }
        scalar => scalar.clone(),
    }
}

fn filled(text: &str, variables: &BTreeMap<String, String>) -> String {
    static NAME: std::sync::LazyLock<regex::Regex> =
        std::sync::LazyLock::new(|| regex::Regex::new(r"\$\{?([A-Z][A-Z0-9]*)\}?").expect("a pattern"));
    let replaced = NAME.replace_all(text, |found: &regex::Captures<'_>| {
        variables.get(&found[1]).cloned().unwrap_or_else(|| found[0].to_owned())
    });
    replaced.into_owned()
}
