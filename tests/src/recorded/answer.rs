//! The compared parts of an answer: code, message, object, warnings and headers, without values that differ between
//! servers.

use super::{list, texts};
use crate::scripts::Received;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use regex::Regex;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Headers that are compared in every answer.
const HEADERS: &[&str] = &["www-authenticate", "retry-after", "connection", "x-content-type-options", "location"];
/// The maximum number of bytes of a recorded text that is not JSON. Longer texts, such as metrics, were not recorded
/// completely.
const TEXT_MAX: usize = 4000;
const LONG: &str = "<long>";

/// The compared parts of an answer, by name.
pub type Parts = BTreeMap<&'static str, Value>;

/// Replaces values that differ between servers.
pub struct Masks {
    /// Actual values with their names; the longest first, because a value may be part of another.
    names: Vec<(String, String)>,
    generated: Option<(Regex, String)>,
    managed: bool,
}

impl Masks {
    pub fn new(names: &[(String, String)], step: &Value) -> Masks {
        let mut names: Vec<_> = names.iter().map(|(name, value)| (value.clone(), name.clone())).collect();
        names.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        let generated = step["body"]["metadata"]["generateName"].as_str().map(|base| {
            let pattern = Regex::new(&format!("{}[a-z0-9]{{5}}", regex::escape(base))).expect("a pattern");
            (pattern, format!("{base}<gen>"))
        });
        Masks { names, generated, managed: step["form"]["managed"] == true }
    }

    fn text(&self, text: &str) -> String {
        let masked = PATTERNS
            .iter()
            .fold(text.to_owned(), |text, (pattern, name)| pattern.replace_all(&text, *name).into_owned());
        let masked = self.names.iter().fold(masked, |text, (value, name)| text.replace(value.as_str(), name));
        match &self.generated {
            Some((pattern, name)) => pattern.replace_all(&masked, name.as_str()).into_owned(),
            None => masked,
        }
    }

    /// A server's value in the form of the recording.
    pub fn seen(&self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let kept = fields.iter().filter(|(name, _)| self.managed || *name != "managedFields");
                kept.map(|(name, value)| (self.text(name), self.field(name, value))).collect::<Map<_, _>>().into()
            }
            Value::Array(items) => items.iter().map(|item| self.seen(item)).collect(),
            Value::String(text) => self.text(text).into(),
            other => other.clone(),
        }
    }

    fn field(&self, name: &str, value: &Value) -> Value {
        match (name, value.as_str()) {
            ("resourceVersion", Some(version)) if version != "0" && version.parse::<u64>().is_ok() => "<rv>".into(),
            _ => self.seen(&key_masked(name, value)),
        }
    }

    /// A recorded value, with the numbers of UIDs removed.
    pub fn recorded(&self, value: &Value) -> Value {
        numberless(value)
    }

    /// The compared parts of a webhook call.
    pub fn call(&self, call: &Value, recorded: bool) -> Value {
        let (request, body) = (&call["body"]["request"], &call["body"]);
        let told = if request.is_object() {
            let mut object = request["object"].clone();
            object.as_object_mut().map(|object| object.remove("metadata"));
            json!({"operation": request["operation"], "kind": request["kind"], "object": object,
                "subResource": request["subResource"]})
        } else {
            json!({"apiVersion": body["apiVersion"], "kind": body["kind"], "spec": body["spec"],
                "authorization": call["authorization"]})
        };
        let told = if recorded { numberless(&told) } else { self.seen(&told) };
        json!({"path": call["path"], "query": call["query"].as_str().unwrap_or(""), "told": told})
    }
}

static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        ("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        (r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "<time>"),
        (r" on \d+\.\d+\.\d+\.\d+:53\b", " on <dns>"),
        (r"127\.0\.0\.1:\d{5}->", "<client>->"),
        (r"kube-api-access-[a-z0-9]{5}\b", "kube-api-access-<gen>"),
        (r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*", "<jwt>"),
        ("X509SHA256=[0-9a-f]{64}", "X509SHA256=<sha256>"),
    ]
    .map(|(pattern, name)| (Regex::new(pattern).expect("a pattern"), name))
    .into()
});

/// The placeholders that are treated as equal: UIDs, and flow schemas and priority levels, whose names are unknown
/// where only UIDs are shown.
static UIDS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("<(uid-[0-9]+|(flowschema|prioritylevel):[a-z-]+)>").expect("a pattern"));

fn numberless(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let masked = fields.iter().map(|(name, value)| (name.clone(), numberless(&key_masked(name, value))));
            masked.collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(numberless).collect(),
        Value::String(text) => UIDS.replace_all(text, "<uid>").into_owned().into(),
        other => other.clone(),
    }
}

/// Replaces the parts of a public key, which differ between servers.
fn key_masked(name: &str, value: &Value) -> Value {
    match (name, value) {
        ("kid" | "n", Value::String(_)) => "<key>".into(),
        _ => value.clone(),
    }
}

/// The parts of an answer, in the form of the recording.
pub fn parts_of(answer: &Received, step: &Value, masks: &Masks) -> Parts {
    let document: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let mut parts = Parts::from([("code", answer.code.into()), ("warnings", warnings(answer, masks))]);
    parts.insert("headers", headers(answer, step, masks));
    let refused = answer.code >= 400 && document.as_ref().is_some_and(|document| document["kind"] == "Status");
    let mut told = Map::new();
    if refused {
        for field in ["reason", "message", "details"] {
            let value = document.as_ref().and_then(|document| document.get(field));
            let value = value.filter(|value| **value != json!({}));
            told.extend(value.map(|value| (field.to_owned(), masks.seen(value))));
        }
    } else if document.is_none() && !answer.body.is_empty() {
        let text = String::from_utf8_lossy(&answer.body);
        told.insert("text".into(), if text.len() < TEXT_MAX { masks.text(&text) } else { LONG.to_owned() }.into());
    }
    parts.insert("message", told.into());
    let object = document.filter(|_| !refused).map(|document| object(document, step, masks));
    parts.insert("object", object.unwrap_or_default());
    parts
}

/// The parts of a recorded answer.
pub fn recorded_parts(answer: &Value) -> Parts {
    let answer = &numberless(answer);
    let of = |fields: &[&str]| {
        let there = fields.iter().filter_map(|field| Some(((*field).to_owned(), answer.get(field)?.clone())));
        there.collect::<Map<_, _>>()
    };
    let mut message = of(&["reason", "message", "details", "text"]);
    if let Some(text) = message.get_mut("text").filter(|text| text.as_str().is_some_and(|text| text.len() > TEXT_MAX)) {
        *text = LONG.into();
    }
    let headers = answer["headers"].as_object().into_iter().flatten();
    let object = of(&["diff", "body", "picked", "items"]);
    Parts::from([
        ("code", answer["code"].clone()),
        ("message", message.into()),
        ("object", if object.is_empty() { Value::Null } else { object.into() }),
        ("warnings", list(&answer["warnings"]).cloned().collect()),
        ("headers", headers.map(|(name, value)| (name.to_lowercase(), value.clone())).collect::<Map<_, _>>().into()),
    ])
}

fn warnings(answer: &Received, masks: &Masks) -> Value {
    let all = answer.headers.get_all("warning").iter();
    all.map(|warning| Value::from(masks.text(&String::from_utf8_lossy(warning.as_bytes())))).collect()
}

fn headers(answer: &Received, step: &Value, masks: &Masks) -> Value {
    let wanted = texts(&step["form"]["keepHeaders"]).map(str::to_lowercase);
    let names: Vec<String> = wanted.chain(HEADERS.iter().map(|name| (*name).to_owned())).collect();
    let mut found = Map::new();
    for name in names {
        let values = answer.headers.get_all(&name).iter();
        let values: Vec<Value> =
            values.map(|value| masks.text(&String::from_utf8_lossy(value.as_bytes())).into()).collect();
        if !values.is_empty() {
            found.insert(name, values.into());
        }
    }
    found.into()
}

/// A document in the form of the recording: the fields that the step names, the names of a list, the difference to the
/// request's body, or the whole document.
fn object(mut document: Value, step: &Value, masks: &Masks) -> Value {
    let form = &step["form"];
    let whole = form["full"] == true;
    if form["pick"].is_array() {
        let picked = texts(&form["pick"]).map(|pointer| {
            (pointer.to_owned(), document.pointer(pointer).map(|value| masks.seen(value)).unwrap_or_default())
        });
        return json!({"picked": picked.collect::<Map<_, _>>()});
    }
    if !whole && document.get("items").is_some() {
        let name = |item: &Value| {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            let namespace = item["metadata"]["namespace"].as_str();
            masks.text(&namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}")))
        };
        return json!({"items": list(&document["items"]).map(name).collect::<Vec<_>>()});
    }
    let mut sent = step["body"].clone();
    for document in [&mut document, &mut sent] {
        let metadata = document.get_mut("metadata").and_then(Value::as_object_mut);
        if let Some(metadata) = metadata {
            metadata.retain(|name, _| match name.as_str() {
                "uid" | "resourceVersion" | "creationTimestamp" => false,
                "managedFields" => masks.managed,
                _ => true,
            });
        }
    }
    let seen = masks.seen(&document);
    let creates = step["method"] == "POST" || step["method"] == "PUT";
    if !creates || whole || !sent.is_object() || seen["kind"] != sent["kind"] {
        return json!({"body": seen});
    }
    let mut difference = Difference::default();
    difference.find(&masks.seen(&sent), &seen, "");
    let mut told = json!({"set": difference.set});
    if !difference.removed.is_empty() {
        told["removed"] = difference.removed.into();
    }
    json!({"diff": told})
}

/// The fields that only the answer has, or has with another value, and the fields that only the request had.
#[derive(Default)]
struct Difference {
    set: Map<String, Value>,
    removed: Vec<String>,
}

impl Difference {
    fn find(&mut self, sent: &Value, seen: &Value, at: &str) {
        match (sent, seen) {
            (Value::Object(sent), Value::Object(seen)) => {
                let place = |name: &str| format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                for (name, value) in sent {
                    match seen.get(name) {
                        Some(now) => self.find(value, now, &place(name)),
                        None if value.is_null() => {}
                        None => self.removed.push(place(name)),
                    }
                }
                let new = seen.iter().filter(|(name, _)| !sent.contains_key(*name));
                self.set.extend(new.map(|(name, value)| (place(name), value.clone())));
            }
            (Value::Array(sent), Value::Array(seen)) => {
                for (index, value) in seen.iter().enumerate() {
                    match sent.get(index) {
                        Some(before) => self.find(before, value, &format!("{at}/{index}")),
                        None => _ = self.set.insert(format!("{at}/{index}"), value.clone()),
                    }
                }
                self.removed.extend((seen.len()..sent.len()).map(|index| format!("{at}/{index}")));
            }
            _ if sent != seen => _ = self.set.insert(if at.is_empty() { "/" } else { at }.to_owned(), seen.clone()),
            _ => {}
        }
    }
}

/// The header and the claims of a token in an answer; times are relative to the time at which the token was issued.
pub fn issued(answer: &Received) -> Value {
    let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let token = document["status"]["token"].as_str().unwrap_or_default();
    let mut parts = token.split('.').map(|part| {
        let bytes = URL_SAFE_NO_PAD.decode(part).unwrap_or_default();
        serde_json::from_slice::<Value>(&bytes).unwrap_or_default()
    });
    let (header, mut claims) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let since = claims["iat"].as_i64().unwrap_or_default();
    for pointer in ["/iat", "/exp", "/nbf", "/kubernetes.io/warnafter"] {
        if let Some(time) = claims.pointer_mut(pointer) {
            *time = format!("iat+{}", time.as_i64().unwrap_or_default() - since).into();
        }
    }
    json!({"header": header, "claims": claims})
}
