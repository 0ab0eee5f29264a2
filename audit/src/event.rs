//! One event, as `audit.k8s.io/v1` has it. The order of fields is Kubernetes': people search the files as text.

use holdfast_core::authz::User;
use holdfast_core::refusal::quoted;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How much is told of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    None,
    Metadata,
    Request,
    RequestResponse,
}

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    RequestReceived,
    /// The answer has begun, and its end is not near: watches alone have this stage.
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

/// What a line without objects mostly has.
const LINE_BYTES: usize = 1 << 10;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub kind: &'static str,
    pub api_version: &'static str,
    pub level: Level,
    #[serde(rename = "auditID")]
    pub audit_id: String,
    pub stage: Stage,
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    pub verb: String,
    pub user: Account,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated_user: Option<Account>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication_metadata: Option<Impersonation>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_status: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "shared")]
    pub request_object: Option<Arc<Value>>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "shared")]
    pub response_object: Option<Arc<Value>>,
    #[serde(serialize_with = "micros")]
    pub request_received_timestamp: Timestamp,
    #[serde(serialize_with = "micros")]
    pub stage_timestamp: Timestamp,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// By which verb somebody acts in another's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Impersonation {
    #[serde(rename = "impersonationConstraint")]
    pub constraint: &'static str,
}

/// A user, as events tell it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Account {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl From<&User> for Account {
    fn from(user: &User) -> Account {
        let extra = user.extra.iter().map(|(key, values)| (key.clone(), values.clone())).collect();
        Account { username: user.name.clone(), uid: user.uid.clone(), groups: user.groups.clone(), extra }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

fn shared<S: serde::Serializer>(object: &Option<Arc<Value>>, serializer: S) -> Result<S::Ok, S::Error> {
    object.as_deref().serialize(serializer)
}

fn micros<S: serde::Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}

impl Event {
    /// One line of JSON, with its end.
    pub fn json_line(&self) -> Vec<u8> {
        let mut line = Vec::with_capacity(LINE_BYTES);
        if serde_json::to_writer(&mut line, self).is_err() {
            line.clear();
        }
        line.push(b'\n');
        line
    }

    /// One line of text, as Kubernetes wrote it before it wrote JSON.
    pub fn legacy_line(&self) -> String {
        let or = |text: &str, otherwise: &str| if text.is_empty() { otherwise.to_owned() } else { text.to_owned() };
        // A list is quoted one by one, and the whole of it as well.
        let listed = |groups: &[String]| groups.iter().map(|group| quoted(group)).collect::<Vec<_>>().join(",");
        let groups = match &self.user {
            user if user.username.is_empty() || user.groups.is_empty() => "<none>".to_owned(),
            user => listed(&user.groups),
        };
        let (other, other_groups) = match &self.impersonated_user {
            Some(other) if other.groups.is_empty() => (other.username.as_str(), "<lookup>".to_owned()),
            Some(other) => (other.username.as_str(), listed(&other.groups)),
            None => ("<self>", "<lookup>".to_owned()),
        };
        let code = self.response_status.as_ref().and_then(|status| status["code"].as_u64());
        let namespace = self.object_ref.as_ref().map_or("", |object| object.namespace.as_str());
        let told = [
            ("id", self.audit_id.clone()),
            ("stage", self.stage.as_str().to_owned()),
            ("ip", self.source_ips.first().map_or("<unknown>", String::as_str).to_owned()),
            ("method", self.verb.clone()),
            ("user", or(&self.user.username, "<none>")),
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
mod tests {
    use super::*;
    use serde_json::json;

    fn event() -> Event {
        Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: Level::Metadata,
            audit_id: "i".into(),
            stage: Stage::ResponseComplete,
            request_uri: "/api?a=\"b\"".into(),
            verb: "get".into(),
            user: Account { username: "jane".into(), groups: vec!["a".into(), "b".into()], ..Account::default() },
            impersonated_user: None,
            authentication_metadata: None,
            source_ips: vec!["10.0.0.1".into()],
            user_agent: String::new(),
            object_ref: None,
            response_status: Some(json!({"code": 200})),
            request_object: None,
            response_object: None,
            request_received_timestamp: "2026-11-26T12:00:00.120Z".parse().expect("a time"),
            stage_timestamp: "2026-11-26T12:00:00.120Z".parse().expect("a time"),
            annotations: BTreeMap::new(),
        }
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
        let acting = |groups: &[&str]| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            Some(Account { username: "joe".into(), groups, ..Account::default() })
        };
        let told = |user: Account, other: Option<Account>| {
            let line = line(Event { user, impersonated_user: other, response_status: None, ..event() });
            let (_, rest) = line.split_once(" user=").expect("a user");
            rest.split_once(" user-agent=").expect("an agent").0.to_owned()
        };
        let nobody = told(Account { groups: vec!["a".into()], ..Account::default() }, acting(&["c"]));
        assert_eq!(nobody, "\"<none>\" groups=\"<none>\" as=\"joe\" asgroups=\"\\\"c\\\"\"");
        let alone = told(Account { username: "jane".into(), ..Account::default() }, acting(&[]));
        assert_eq!(alone, "\"jane\" groups=\"<none>\" as=\"joe\" asgroups=\"<lookup>\"");
    }
}
