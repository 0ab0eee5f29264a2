//! One event of `audit.k8s.io/v1`. The order of fields is the order in Kubernetes, because people search the files as
//! text.

use holdfast_core::authz::User;
use holdfast_core::object::encode::string;
use holdfast_core::refusal::quoted;
use holdfast_core::stamp::rfc3339_micros;
use holdfast_value::Value;
use jiff::Timestamp;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

/// How much of a request is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Level {
    None,
    Metadata,
    Request,
    RequestResponse,
}

/// The stage of a request at which an event is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Stage {
    RequestReceived,
    /// The response has begun and continues. Only long-running requests, and requests that are refused before the
    /// service handles them, have this stage.
    ResponseStarted,
    ResponseComplete,
    Panic,
}

impl Level {
    pub const TOLD: [Level; 3] = [Level::Metadata, Level::Request, Level::RequestResponse];

    pub fn as_str(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

impl Stage {
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

/// A field's name in JSON, with quotes and a colon.
macro_rules! field {
    ($name:literal) => {
        concat!("\"", $name, "\":")
    };
}

/// The usual number of bytes of a line without objects, for which the buffer of a line is made.
const LINE_BYTES: usize = 1 << 10;

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub kind: &'static str,
    pub api_version: &'static str,
    pub level: Level,
    pub audit_id: String,
    pub stage: Stage,
    pub request_uri: String,
    pub verb: &'static str,
    pub user: Arc<User>,
    pub impersonated_user: Option<Arc<User>>,
    pub authentication_metadata: Option<Impersonation>,
    pub source_ips: Vec<IpAddr>,
    pub user_agent: String,
    pub object_ref: Option<ObjectReference>,
    pub response_status: Option<ResponseStatus>,
    pub request_object: Option<Arc<Value>>,
    pub response_object: Option<Arc<Value>>,
    pub request_received_timestamp: Timestamp,
    pub stage_timestamp: Timestamp,
    pub annotations: BTreeMap<String, String>,
    pub(crate) known: RequestFields,
}

/// The part that all lines of a request share; it is serialized once.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RequestFields(OnceLock<(Vec<u8>, String)>);

/// The status of the response to a request, as events show it.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseStatus {
    pub code: u16,
    /// The `Status` in the response, if there is one.
    pub status: Option<Value>,
}

impl ResponseStatus {
    fn write_json(&self, out: &mut Vec<u8>) {
        let told = |field: &str| self.status.as_ref().and_then(|status| status.get(field));
        let mut fields = JsonFields::begin(out);
        match told("metadata") {
            Some(metadata) => fields.value(field!("metadata"), metadata),
            None => fields.field(field!("metadata")).extend_from_slice(b"{}"),
        }
        for (name, field) in [
            ("status", field!("status")),
            ("message", field!("message")),
            ("reason", field!("reason")),
            ("details", field!("details")),
        ] {
            if let Some(value) = told(name) {
                fields.value(field, value);
            }
        }
        _ = write!(fields.field(field!("code")), "{}", self.code);
        fields.end();
    }
}

/// The verb that allowed a constrained impersonation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impersonation {
    pub constraint: &'static str,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectReference {
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub api_group: String,
    pub api_version: String,
    pub resource_version: String,
    pub subresource: String,
}

impl ObjectReference {
    fn write_json(&self, out: &mut Vec<u8>) {
        let mut fields = JsonFields::begin(out);
        fields.text_if_any(field!("resource"), &self.resource);
        fields.text_if_any(field!("namespace"), &self.namespace);
        fields.text_if_any(field!("name"), &self.name);
        fields.text_if_any(field!("uid"), &self.uid);
        fields.text_if_any(field!("apiGroup"), &self.api_group);
        fields.text_if_any(field!("apiVersion"), &self.api_version);
        fields.text_if_any(field!("resourceVersion"), &self.resource_version);
        fields.text_if_any(field!("subresource"), &self.subresource);
        fields.end();
    }
}

/// A JSON object that is being written. Field names and constants of the server need no escaping.
struct JsonFields<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> JsonFields<'a> {
    fn begin(out: &'a mut Vec<u8>) -> JsonFields<'a> {
        out.push(b'{');
        JsonFields { out, first: true }
    }

    /// Begins a field, and returns the buffer for its value.
    fn field(&mut self, field: &str) -> &mut Vec<u8> {
        self.comma();
        self.out.extend_from_slice(field.as_bytes());
        self.out
    }

    /// Begins a field whose name needs escaping, and returns the buffer for its value.
    fn named(&mut self, name: &str) -> &mut Vec<u8> {
        self.comma();
        string(self.out, name);
        self.out.push(b':');
        self.out
    }

    fn comma(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
    }

    fn text(&mut self, field: &str, text: &str) {
        string(self.field(field), text);
    }

    fn word(&mut self, field: &str, word: &str) {
        let out = self.field(field);
        out.push(b'"');
        out.extend_from_slice(word.as_bytes());
        out.push(b'"');
    }

    fn text_if_any(&mut self, field: &str, text: &str) {
        if !text.is_empty() {
            self.text(field, text);
        }
    }

    fn texts_if_any(&mut self, field: &str, texts: &[String]) {
        if !texts.is_empty() {
            list(self.field(field), texts, |out, text| string(out, text));
        }
    }

    fn value(&mut self, field: &str, value: &Value) {
        let out = self.field(field);
        // Serializing a parsed value to a Vec cannot fail.
        _ = serde_json::to_writer(out, value);
    }

    fn end(self) {
        self.out.push(b'}');
    }
}

fn list<T>(out: &mut Vec<u8>, items: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

/// Writes a user as a JSON object.
fn write_user(out: &mut Vec<u8>, user: &User) {
    let mut fields = JsonFields::begin(out);
    fields.text_if_any(field!("username"), &user.name);
    fields.text_if_any(field!("uid"), &user.uid);
    fields.texts_if_any(field!("groups"), &user.groups);
    if !user.extra.is_empty() {
        let mut extra = JsonFields::begin(fields.field(field!("extra")));
        for (key, values) in &user.extra {
            list(extra.named(key), values, |out, value| string(out, value));
        }
        extra.end();
    }
    fields.end();
}

impl Event {
    /// One line of JSON, with its newline.
    pub fn json_line(&self) -> Vec<u8> {
        let mut line = Vec::with_capacity(LINE_BYTES);
        self.write_json(&mut line);
        line.push(b'\n');
        line
    }

    /// Writes the event as JSON. The code is written by hand, because every request has two events, and derived code
    /// would take three times as long.
    fn write_json(&self, out: &mut Vec<u8>) {
        let mut fields = JsonFields::begin(out);
        fields.word(field!("kind"), self.kind);
        fields.word(field!("apiVersion"), self.api_version);
        fields.word(field!("level"), self.level.as_str());
        fields.text(field!("auditID"), &self.audit_id);
        fields.word(field!("stage"), self.stage.as_str());
        let (request, received) = self.known.0.get_or_init(|| {
            let mut request = Vec::with_capacity(LINE_BYTES / 2);
            self.write_request(&mut request);
            (request, rfc3339_micros(self.request_received_timestamp))
        });
        // `request` begins with an opening brace, which is left out, because the fields of `request` become fields of
        // the event.
        fields.comma();
        fields.out.extend_from_slice(&request[1..]);
        if let Some(object) = &self.object_ref {
            object.write_json(fields.field(field!("objectRef")));
        }
        if let Some(status) = &self.response_status {
            status.write_json(fields.field(field!("responseStatus")));
        }
        if let Some(object) = &self.request_object {
            fields.value(field!("requestObject"), object);
        }
        if let Some(object) = &self.response_object {
            fields.value(field!("responseObject"), object);
        }
        fields.word(field!("requestReceivedTimestamp"), received);
        match self.stage_timestamp == self.request_received_timestamp {
            true => fields.word(field!("stageTimestamp"), received),
            false => fields.word(field!("stageTimestamp"), &rfc3339_micros(self.stage_timestamp)),
        }
        if !self.annotations.is_empty() {
            let mut annotations = JsonFields::begin(fields.field(field!("annotations")));
            for (key, value) in &self.annotations {
                string(annotations.named(key), value);
            }
            annotations.end();
        }
        fields.end();
    }

    /// The fields about the request, its user and its origin: a JSON object without its closing brace.
    fn write_request(&self, out: &mut Vec<u8>) {
        let mut fields = JsonFields::begin(out);
        fields.text(field!("requestURI"), &self.request_uri);
        fields.word(field!("verb"), self.verb);
        write_user(fields.field(field!("user")), &self.user);
        if let Some(user) = &self.impersonated_user {
            write_user(fields.field(field!("impersonatedUser")), user);
        }
        if let Some(by) = &self.authentication_metadata {
            let mut inner = JsonFields::begin(fields.field(field!("authenticationMetadata")));
            inner.word(field!("impersonationConstraint"), by.constraint);
            inner.end();
        }
        if !self.source_ips.is_empty() {
            list(fields.field(field!("sourceIPs")), &self.source_ips, |out, address| {
                _ = write!(out, "\"{address}\"");
            });
        }
        fields.text_if_any(field!("userAgent"), &self.user_agent);
    }

    /// One line in the legacy text format, which Kubernetes wrote before JSON.
    pub fn legacy_line(&self) -> String {
        let or = |text: &str, otherwise: &str| if text.is_empty() { otherwise.to_owned() } else { text.to_owned() };
        // Each group is quoted, and the whole list is quoted again.
        let listed = |groups: &[String]| groups.iter().map(|group| quoted(group)).collect::<Vec<_>>().join(",");
        let groups = match &self.user {
            user if user.name.is_empty() || user.groups.is_empty() => "<none>".to_owned(),
            user => listed(&user.groups),
        };
        let (other, other_groups) = match &self.impersonated_user {
            Some(other) if other.groups.is_empty() => (other.name.as_str(), "<lookup>".to_owned()),
            Some(other) => (other.name.as_str(), listed(&other.groups)),
            None => ("<self>", "<lookup>".to_owned()),
        };
        let code = self.response_status.as_ref().map(|status| status.code);
        let namespace = self.object_ref.as_ref().map_or("", |object| object.namespace.as_str());
        let told = [
            ("id", self.audit_id.clone()),
            ("stage", self.stage.as_str().to_owned()),
            ("ip", self.source_ips.first().map_or("<unknown>".to_owned(), IpAddr::to_string)),
            ("method", self.verb.to_owned()),
            ("user", or(&self.user.name, "<none>")),
            ("groups", groups),
            ("as", other.to_owned()),
            ("asgroups", other_groups),
            ("user-agent", self.user_agent.clone()),
            ("namespace", or(namespace, "<none>")),
            ("uri", self.request_uri.clone()),
            ("response", code.map_or("<deferred>".to_owned(), |code| code.to_string())),
        ];
        let told = told.map(|(name, value)| format!("{name}={}", quoted(&value)));
        format!("{} AUDIT: {}\n", self.request_received_timestamp, told.join(" "))
    }
}

#[cfg(test)]
impl Event {
    /// An event with few known fields, for tests.
    pub(crate) fn nothing() -> Event {
        Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: Level::Metadata,
            audit_id: "a".into(),
            stage: Stage::RequestReceived,
            request_uri: "/".into(),
            verb: "get",
            user: Arc::default(),
            impersonated_user: None,
            authentication_metadata: None,
            source_ips: Vec::new(),
            user_agent: String::new(),
            object_ref: None,
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: Timestamp::UNIX_EPOCH,
            stage_timestamp: Timestamp::UNIX_EPOCH,
            annotations: BTreeMap::new(),
            known: RequestFields::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    fn event() -> Event {
        let time = "2026-11-26T12:00:00.120Z".parse().expect("a time");
        Event {
            audit_id: "i".into(),
            stage: Stage::ResponseComplete,
            request_uri: "/api?a=\"b\"".into(),
            user: Arc::new(User::new("jane", &["a", "b"])),
            source_ips: vec![IpAddr::from([10, 0, 0, 1])],
            response_status: Some(ResponseStatus { code: 200, status: None }),
            request_received_timestamp: time,
            stage_timestamp: time,
            ..Event::nothing()
        }
    }

    #[test]
    fn lines_of_json() {
        let line = |event: Event| String::from_utf8(event.json_line()).expect("UTF-8");
        assert_eq!(
            line(event()),
            "{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",\"level\":\"Metadata\",\"auditID\":\"i\",\
             \"stage\":\"ResponseComplete\",\"requestURI\":\"/api?a=\\\"b\\\"\",\"verb\":\"get\",\
             \"user\":{\"username\":\"jane\",\"groups\":[\"a\",\"b\"]},\"sourceIPs\":[\"10.0.0.1\"],\
             \"responseStatus\":{\"metadata\":{},\"code\":200},\"requestReceivedTimestamp\":\"2026-11-26T12:00:00.120000Z\",\
             \"stageTimestamp\":\"2026-11-26T12:00:00.120000Z\"}\n"
        );
        let other = User { uid: "u".into(), extra: [("k\n".into(), vec!["v".into()])].into(), ..User::default() };
        let object = ObjectReference { name: "n".into(), subresource: "s".into(), ..ObjectReference::default() };
        let status = json!({"apiVersion": "v1", "code": 404, "details": {"name": "n"}, "kind": "Status", "message": "m",
            "metadata": {}, "reason": "NotFound", "status": "Failure"});
        let whole = Event {
            user: Arc::default(),
            impersonated_user: Some(Arc::new(other)),
            authentication_metadata: Some(Impersonation { constraint: "c" }),
            source_ips: Vec::new(),
            user_agent: "agent \u{1f980}".into(),
            object_ref: Some(object),
            response_status: Some(ResponseStatus { code: 404, status: Some(status) }),
            request_object: Some(Arc::new(json!([1.5, null]))),
            response_object: Some(Arc::new(json!({"a": "\u{1}"}))),
            annotations: [("x".into(), "y".into()), ("z".into(), String::new())].into(),
            ..event()
        };
        let whole = line(whole);
        let told = "\"responseStatus\":{\"metadata\":{},\"status\":\"Failure\",\"message\":\"m\",\
                    \"reason\":\"NotFound\",\"details\":{\"name\":\"n\"},\"code\":404},";
        assert!(whole.contains(told), "{whole}");
        let mut read: Value = serde_json::from_str(&whole).expect("JSON");
        read.as_object_mut().expect("an object").remove("responseStatus");
        let time = "2026-11-26T12:00:00.120000Z";
        let expected = json!({"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "i",
            "stage": "ResponseComplete", "requestURI": "/api?a=\"b\"", "verb": "get", "user": {},
            "impersonatedUser": {"uid": "u", "extra": {"k\n": ["v"]}},
            "authenticationMetadata": {"impersonationConstraint": "c"}, "userAgent": "agent \u{1f980}",
            "objectRef": {"name": "n", "subresource": "s"}, "requestObject": [1.5, null],
            "responseObject": {"a": "\u{1}"}, "requestReceivedTimestamp": time, "stageTimestamp": time,
            "annotations": {"x": "y", "z": ""}});
        assert_eq!(read, expected);
    }

    #[test]
    fn lines_of_old() {
        let line = |event: Event| event.legacy_line();
        assert_eq!(
            line(event()),
            "2026-11-26T12:00:00.12Z AUDIT: id=\"i\" stage=\"ResponseComplete\" ip=\"10.0.0.1\" method=\"get\" \
             user=\"jane\" groups=\"\\\"a\\\",\\\"b\\\"\" as=\"<self>\" asgroups=\"<lookup>\" user-agent=\"\" \
             namespace=\"<none>\" uri=\"/api?a=\\\"b\\\"\" response=\"200\"\n"
        );
        let told = |name: &str, groups: &[&str], other_groups: &[&str]| {
            let user = Arc::new(User::new(name, groups));
            let other = Some(Arc::new(User::new("joe", other_groups)));
            let line = line(Event { user, impersonated_user: other, response_status: None, ..event() });
            let (_, rest) = line.split_once(" user=").expect("a user");
            rest.split_once(" user-agent=").expect("an agent").0.to_owned()
        };
        assert_eq!(told("", &["a"], &["c"]), "\"<none>\" groups=\"<none>\" as=\"joe\" asgroups=\"\\\"c\\\"\"");
        assert_eq!(told("jane", &[], &[]), "\"jane\" groups=\"<none>\" as=\"joe\" asgroups=\"<lookup>\"");
    }
}
