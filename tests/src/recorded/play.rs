//! Plays a scenario and reports the differences.

use super::answer::{Masks, issued, parts_of, recorded_parts};
use super::{RecordedSetup, fields, filled, list, texts};
use crate::scripts::{Received, Sent};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The pause between retries.
const AGAIN: Duration = Duration::from_millis(100);
/// How long a server may take after its start to fetch an issuer's keys. Before that it rejects the issuer's tokens.
const INTRODUCED: Duration = Duration::from_secs(20);

/// The names in a scenario with their values: values of the run, the scenario's token, and saved parts of answers.
pub(super) type Variables = Vec<(String, String)>;

impl RecordedSetup {
    /// Plays a scenario, and returns the differences from the recorded answers.
    pub async fn play(&mut self, scenario: &Value) -> Vec<Value> {
        let mut variables = self.names.clone();
        if scenario["claims"].is_object() {
            let claims = filled(&scenario["claims"].to_string(), &variables);
            let claims = serde_json::from_str(&claims).expect("claims");
            variables.push(("<jwt>".to_owned(), self.issuer.token(&claims, &scenario["signedBy"])));
        }
        self.behave(&scenario["hooks"]);
        for prior in list(&scenario["prior"]).filter(|prior| prior["path"].is_string()) {
            let answer = self.ask(prior, &variables).await;
            save(prior, &answer, &mut variables);
        }
        let mut differences = Vec::new();
        for (index, step) in list(&scenario["steps"]).enumerate().filter(|(_, step)| step["answer"].is_object()) {
            for (part, want, got) in self.step(scenario, step, &mut variables).await {
                differences.push(json!({"scenario": scenario["id"], "area": scenario["area"],
                    "title": scenario["title"], "step": index, "path": step["path"], "part": part, "want": want, "got": got}));
            }
        }
        for path in texts(&scenario["cleanup"]) {
            self.ask(&json!({"method": "DELETE", "path": path}), &variables).await;
        }
        differences
    }

    fn behave(&self, behaviours: &Value) {
        for (path, behaviour) in fields(behaviours) {
            self.hooks.behave(path, behaviour.clone());
        }
    }

    /// The differing parts of one step: name, recorded value, actual value.
    async fn step(
        &mut self,
        scenario: &Value,
        step: &Value,
        variables: &mut Variables,
    ) -> Vec<(&'static str, Value, Value)> {
        self.behave(&step["rebeh"]);
        let masks = Masks::new(&self.names, step);
        let answers = [&step["answer"], &step["alsoSeen"]["answer"]];
        let wanted: Vec<_> = answers.into_iter().filter(|answer| answer.is_object()).map(recorded_parts).collect();
        let wait = Duration::from_secs_f64(step["wait"].as_f64().unwrap_or(0.0));
        // Webhook calls are recorded for single requests, so such a request is not repeated.
        let reads = step["method"] == "GET" && !step["webhookCalls"].is_array();
        if !reads {
            tokio::time::sleep(wait).await;
        }
        let introduces = scenario["claims"].is_object() && step["answer"]["code"] != 401;
        let began = Instant::now();
        let (received, parts) = loop {
            self.hooks.take_calls();
            let received = self.ask(step, variables).await;
            if introduces && received.code == 401 && began.elapsed() < INTRODUCED {
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            let parts = parts_of(&received, step, &masks);
            if !reads || wanted.contains(&parts) || began.elapsed() >= wait {
                break (received, parts);
            }
            tokio::time::sleep(AGAIN).await;
        };
        save(step, &received, variables);
        let mut differing = Vec::new();
        for (name, got) in &parts {
            // If recordings differed from each other, only the code is compared.
            let may_differ = scenario["unstable"] == true && *name != "code";
            // The text of metrics differs between servers, so it is not compared.
            let may_differ = may_differ || step["path"] == "/metrics" && received.code == 200 && *name == "message";
            if !may_differ && !wanted.iter().any(|wanted| wanted[name] == *got) {
                differing.push((*name, wanted[0][name].clone(), got.clone()));
            }
        }
        // While recording, tokens of an issuer were retried until the issuer was known, so the webhook may already have
        // been called.
        if step["webhookCalls"].is_array() && !scenario["claims"].is_object() {
            let want = sorted(list(&step["webhookCalls"]).map(|call| masks.call(call, true)));
            let got = sorted(self.hooks.take_calls().iter().map(|call| masks.call(call, false)));
            if want != got {
                differing.push(("calls", want, got));
            }
        }
        if step["issuedToken"].is_object() {
            let (want, got) = (masks.recorded(&step["issuedToken"]), masks.seen(&issued(&received)));
            if want != got {
                differing.push(("token", want, got));
            }
        }
        differing
    }

    pub(super) async fn ask(&mut self, step: &Value, variables: &Variables) -> Received {
        let user = &step["user"];
        let fill = |text: &str| filled(text, variables);
        let mut headers: BTreeMap<String, Option<String>> = BTreeMap::new();
        headers.insert("user-agent".into(), Some("admf".into()));
        let content_type = step["ctype"].as_str().unwrap_or("application/json");
        headers.insert("content-type".into(), Some(content_type.to_owned()));
        let nobody = user["anonymous"] == true || user["cert"].is_object();
        let token = user["token"].as_str().or(if nobody { None } else { Some("tok") });
        headers.insert("authorization".into(), token.map(|token| format!("Bearer {}", fill(token))));
        let mut more = Vec::new();
        if let Some(name) = user["as"].as_str() {
            headers.insert("impersonate-user".into(), Some(fill(name)));
            more.extend(user["uid"].as_str().map(|uid| ("impersonate-uid".to_owned(), fill(uid))));
            more.extend(texts(&user["groups"]).map(|group| ("impersonate-group".to_owned(), fill(group))));
            for (key, values) in fields(&user["extra"]) {
                more.extend(texts(values).map(|value| (format!("impersonate-extra-{key}"), fill(value))));
            }
        }
        for (name, value) in fields(&step["headers"]) {
            match value.as_str() {
                Some(value) => _ = headers.insert(name.to_lowercase(), Some(fill(value))),
                None => more.extend(texts(value).map(|value| (name.to_lowercase(), fill(value)))),
            }
        }
        let raw = step["raw"].as_str().map(str::to_owned);
        let body = raw.or_else(|| step.get("body").filter(|body| !body.is_null()).map(Value::to_string));
        let sent = Sent {
            method: step["method"].as_str().expect("a method"),
            path: &fill(step["path"].as_str().expect("a path")),
            headers: &headers,
            more: &more,
            body: body.map(|body| fill(&body).into()),
            events: None,
        };
        self.client(&user["cert"]).send(&sent).await
    }
}

/// Saves values of an answer for later steps.
fn save(step: &Value, answer: &Received, variables: &mut Variables) {
    let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    for (name, pointer) in fields(&step["save"]) {
        let value = document.pointer(pointer.as_str().unwrap_or_default());
        if let Some(value) = value.and_then(Value::as_str) {
            let name = format!("<{name}>");
            variables.retain(|(known, _)| *known != name);
            variables.push((name, value.to_owned()));
        }
    }
}

fn sorted(values: impl Iterator<Item = Value>) -> Value {
    let mut values: Vec<Value> = values.collect();
    values.sort_by_key(Value::to_string);
    values.into()
}
