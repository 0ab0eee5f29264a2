//! Plays one script.

use super::client::{Received, ScriptClient, Sent};
use super::mask::Mask;
use super::{ExpectedCall, Script};
use bytes::Bytes;
use regex::{Captures, Regex};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, Mutex};

/// Cached descriptions of the API: they are long, and many scripts read them.
static DESCRIPTIONS: LazyLock<Mutex<HashMap<(String, String), Received>>> = LazyLock::new(Mutex::default);
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\$(RV|UID|NAME|CONT)(\d)").expect("a pattern"));

/// The answers of the `number`-th script, in the form in which they are compared.
pub async fn play(client: &mut ScriptClient, script: &Script, number: usize) -> Vec<Value> {
    let mut run = Run { client, mask: Mask::new(number), bodies: Vec::new(), documents: Vec::new(), made: Vec::new() };
    if script.says("$NS") {
        let metadata = json!({"name": run.mask.namespace});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        run.send("POST", "/api/v1/namespaces", Some(namespace.to_string())).await;
    }
    let mut answers = Vec::new();
    for asked in &script.requests {
        answers.push(run.ask(asked).await);
    }
    for path in std::mem::take(&mut run.made) {
        run.send("DELETE", &format!("{path}?gracePeriodSeconds=0"), None).await;
    }
    answers
}

struct Run<'a> {
    client: &'a mut ScriptClient,
    mask: Mask,
    bodies: Vec<Bytes>,
    documents: Vec<Value>,
    /// Objects that the script has created outside its namespace.
    made: Vec<String>,
}

impl Run<'_> {
    async fn send(&mut self, method: &str, path: &str, body: Option<String>) {
        let headers = BTreeMap::from([("content-type".to_owned(), Some("application/json".to_owned()))]);
        let body = body.map(Bytes::from);
        self.client.send(&Sent { method, path, headers: &headers, more: &[], body, events: None }).await;
    }

    async fn ask(&mut self, asked: &ExpectedCall) -> Value {
        let path = self.fill(&asked.path);
        let body = match asked.body_from {
            Some(number) => Some(self.bodies[number - 1].clone()),
            None => asked.body.as_ref().map(|body| self.fill(body).into()),
        };
        if let Some(body) = &body {
            self.mask.sent(&String::from_utf8_lossy(body));
        }
        self.mask.sent(&path);
        let mut headers = asked.headers.clone();
        if body.is_some() && !headers.keys().any(|name| name.eq_ignore_ascii_case("content-type")) {
            headers.insert("Content-Type".into(), Some("application/json".into()));
        }
        let sent =
            Sent { method: &asked.method, path: &path, headers: &headers, more: &[], body, events: asked.events };
        let received = self.receive(&sent).await;
        let document = document(asked, &received);
        self.mask.see(&document);
        let answer = self.answer(asked, &received, &document);
        if asked.method != "DELETE" && (200..300).contains(&received.code) && !path.contains("/namespaces/") {
            self.note_made(asked, &path, received.code, &document);
        }
        self.bodies.push(received.body);
        self.documents.push(document);
        answer
    }

    async fn receive(&mut self, sent: &Sent<'_>) -> Received {
        if !sent.path.starts_with("/openapi") {
            return self.client.send(sent).await;
        }
        let key = (format!("{} {}", sent.method, sent.path), format!("{:?}", sent.headers.get("Accept")));
        let known = DESCRIPTIONS.lock().unwrap().get(&key).cloned();
        match known {
            Some(received) => received,
            None => {
                let received = self.client.send(sent).await;
                DESCRIPTIONS.lock().unwrap().insert(key, received.clone());
                received
            }
        }
    }

    fn fill(&self, text: &str) -> String {
        let mask = &self.mask;
        let text = text.replace("$NS", &mask.namespace).replace("$O1", &mask.octets.0).replace("$O2", &mask.octets.1);
        let text = VARIABLE.replace_all(&text, |found: &Captures| {
            let number: usize = found[2].parse().expect("a digit");
            let metadata = self.documents.get(number - 1).map_or(&Value::Null, |document| &document["metadata"]);
            let field = |name: &str| metadata[name].as_str();
            match &found[1] {
                "RV" => field("resourceVersion").unwrap_or("None").to_owned(),
                "UID" => field("uid").unwrap_or("None").to_owned(),
                "NAME" => field("name").unwrap_or("None").to_owned(),
                _ => quoted(field("continue").filter(|token| !token.is_empty()).unwrap_or("none")),
            }
        });
        text.replace("$U", &mask.word)
    }

    fn answer(&self, asked: &ExpectedCall, received: &Received, document: &Value) -> Value {
        let mut answer = Map::new();
        answer.insert("code".into(), received.code.into());
        let form = header(received, "content-type");
        if !form.is_empty() && form != "application/json" {
            answer.insert("type".into(), form.as_str().into());
        }
        if document.is_null() {
            if !received.body.is_empty() && asked.method != "HEAD" {
                self.note_text(&mut answer, &form, &received.body);
            }
        } else {
            let part = compared_part(asked, document);
            let masked = self.mask.value(&part);
            if part["kind"] == "Status" && part["apiVersion"] == "v1" {
                note_status(&mut answer, masked);
            } else {
                answer.insert("object".into(), masked);
            }
        }
        let warnings = received.headers.get_all("warning").iter();
        let warnings: Vec<String> =
            warnings.map(|value| self.mask.text(&String::from_utf8_lossy(value.as_bytes()))).collect();
        if !warnings.is_empty() {
            answer.insert("warnings".into(), warnings.into());
        }
        super::mask::settle(answer.into())
    }

    fn note_text(&self, answer: &mut Map<String, Value>, form: &str, body: &[u8]) {
        if form.contains("protobuf") {
            let magic: String = body.iter().take(4).map(|&byte| char::from(byte)).collect();
            answer.insert("object".into(), json!({"magic": magic}));
        } else {
            answer.insert("text".into(), self.mask.document(&String::from_utf8_lossy(body)).into());
        }
    }

    fn note_made(&mut self, asked: &ExpectedCall, path: &str, code: u16, document: &Value) {
        let base = path.split('?').next().unwrap_or(path);
        let Some(name) = document["metadata"]["name"].as_str().filter(|name| !name.is_empty()) else { return };
        if asked.method == "POST" && !base.ends_with("reviews") {
            self.made.push(format!("{base}/{name}"));
        } else if code == 201 {
            self.made.push(base.to_owned());
        }
    }
}

/// The answer as JSON, with events as a list; null for an answer that is not JSON.
fn document(asked: &ExpectedCall, received: &Received) -> Value {
    if asked.events.is_some() && received.code == 200 {
        let lines = received.body.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let text = |line: &[u8]| Value::from(String::from_utf8_lossy(line).into_owned());
        let event = |line: &[u8]| serde_json::from_slice::<Value>(line).unwrap_or_else(|_| text(line));
        lines.map(event).collect::<Vec<Value>>().into()
    } else if header(received, "content-type").contains("json") {
        serde_json::from_slice(&received.body).unwrap_or_default()
    } else {
        Value::Null
    }
}

fn compared_part<'a>(asked: &ExpectedCall, document: &'a Value) -> Cow<'a, Value> {
    if let Some(pointers) = &asked.pick {
        let found = |pointer: &String| {
            let pointer = pointer.trim_matches('/');
            let pointer = if pointer.is_empty() { String::new() } else { format!("/{pointer}") };
            undescribed(document.pointer(&pointer).unwrap_or(&Value::Null), false)
        };
        let parts: Map<_, _> = pointers.iter().map(|pointer| (pointer.clone(), found(pointer))).collect();
        Cow::Owned(parts.into())
    } else if asked.names {
        let items = document["items"].as_array();
        let names: Vec<&Value> = items.into_iter().flatten().map(|item| &item["metadata"]["name"]).collect();
        Cow::Owned(json!({"names": names}))
    } else {
        Cow::Borrowed(document)
    }
}

/// A schema without descriptions. Up to Kubernetes 1.35, items and map values have meaningless defaults, which are
/// removed as well.
fn undescribed(value: &Value, inner: bool) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| undescribed(item, false)).collect(),
        Value::Object(fields) => {
            let told = |(key, value): &(&String, &Value)| {
                !(matches!(key.as_str(), "description" | "example") && value.is_string())
            };
            let within = |key: &str| matches!(key, "items" | "additionalProperties");
            let mut fields: Map<String, Value> =
                fields.iter().filter(told).map(|(key, value)| (key.clone(), undescribed(value, within(key)))).collect();
            if let Some(Value::Array(required)) = fields.get_mut("required") {
                required.sort_by_cached_key(Value::to_string);
            }
            if inner {
                if fields.get("default").is_some_and(|default| *default == json!({}) || *default == json!("")) {
                    fields.remove("default");
                }
                if fields.len() == 1
                    && let Some([only]) = fields.get("allOf").and_then(Value::as_array).map(Vec::as_slice)
                {
                    return only.clone();
                }
            }
            fields.into()
        }
        other => other.clone(),
    }
}

fn note_status(answer: &mut Map<String, Value>, mut status: Value) {
    let Some(fields) = status.as_object_mut() else { return };
    for name in ["reason", "message"] {
        if let Some(said) = fields.remove(name).filter(|said| said.as_str().is_some_and(|said| !said.is_empty())) {
            answer.insert(name.into(), said);
        }
    }
    if fields.get("status").is_some_and(|status| status == "Success") {
        fields.remove("code");
        answer.insert("object".into(), status);
        return;
    }
    let Some(Value::Object(mut details)) = fields.remove("details") else { return };
    if let Some(Value::Array(causes)) = details.remove("causes")
        && !causes.is_empty()
    {
        answer.insert("causes".into(), causes.into());
    }
    if !details.is_empty() {
        answer.insert("details".into(), details.into());
    }
}

fn header(received: &Received, name: &str) -> String {
    received.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

/// Percent-encodes all bytes except letters, digits and the characters `_.-~/`.
fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-~/".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
