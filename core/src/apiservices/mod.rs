//! Determines which server serves a group version: reads APIServices, and plans the writes that follow from them.
//!
//! This module only makes plans, as data. `local` maintains the APIServices of this server's own group versions,
//! `available` determines whether another server is available, `resolve` finds its address, and `trust` publishes the
//! certificates by which other servers trust this server.

pub mod available;
pub mod local;
pub mod resolve;
pub mod trust;

use crate::authz::{PRIVILEGED_GROUP, User};
use crate::kinds::{KindId, known};
use crate::namespace::Step;
use crate::object::encode;
use crate::object::meta::Document;
use crate::request::{Body, Format, Options, Request, Target, Verb};
use crate::state::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_value::Value;
use std::sync::Arc;

/// The name of the user as whom the server writes APIServices and the ConfigMap of [`trust`].
pub const USER: &str = "system:apiserver";
/// The field manager with which the server writes these objects.
const MANAGER: &str = "kube-apiserver";
pub const GROUP: &str = "apiregistration.k8s.io";

/// A version of an API group. The core group's name is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupVersion {
    pub group: String,
    pub version: String,
}

/// The fields of an APIService that the server acts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiService {
    pub served: GroupVersion,
    pub group_priority: i64,
    pub version_priority: i64,
    /// `None` if this server serves the group version itself.
    pub backend: Option<Backend>,
    /// Whether the APIService's condition `Available` is true.
    pub available: bool,
}

/// Another API server, behind a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    pub namespace: String,
    pub name: String,
    pub port: u16,
    /// PEM certificates of the CAs that sign the server's certificate; if empty, the CAs of this machine are used.
    pub ca_bundle: Vec<u8>,
    pub insecure: bool,
}

impl GroupVersion {
    pub fn new(group: impl Into<String>, version: impl Into<String>) -> GroupVersion {
        GroupVersion { group: group.into(), version: version.into() }
    }

    /// Parses the name of an APIService: `v1.apps`, and `v1.` for the core group.
    pub fn of_name(name: &str) -> Option<GroupVersion> {
        let (version, group) = name.split_once('.')?;
        Some(GroupVersion::new(group, version))
    }

    /// The name of the group version's APIService.
    pub fn name(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }

    /// The path of the group version's discovery document.
    pub fn path(&self) -> String {
        match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }
}

impl ApiService {
    pub fn read(document: &Value) -> Option<ApiService> {
        let name = document.pointer("/metadata/name")?.as_str()?;
        let spec = &document["spec"];
        let number = |value: &Value| value.as_i64().unwrap_or(0);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let service = &spec["service"];
        let backend = service.is_object().then(|| Backend {
            namespace: text(&service["namespace"]),
            name: text(&service["name"]),
            port: u16::try_from(service["port"].as_i64().unwrap_or(443)).unwrap_or(443),
            ca_bundle: STANDARD.decode(spec["caBundle"].as_str().unwrap_or_default()).unwrap_or_default(),
            insecure: spec["insecureSkipTLSVerify"].as_bool().unwrap_or(false),
        });
        let conditions = document.pointer("/status/conditions").and_then(Value::as_array);
        let condition = conditions.into_iter().flatten().find(|condition| condition["type"] == available::TYPE);
        Some(ApiService {
            served: GroupVersion::of_name(name)?,
            group_priority: number(&spec["groupPriorityMinimum"]),
            version_priority: number(&spec["versionPriority"]),
            backend,
            available: condition.is_some_and(|condition| condition["status"] == "True"),
        })
    }
}

/// The kind APIService, and the index of the version that the server uses; `None` if the registry of a test lacks the
/// kind.
pub fn kind(state: &State) -> Option<(KindId, usize)> {
    state.registry.known(known::API_SERVICE)
}

/// A step that writes an object as the user [`USER`].
pub(crate) fn write(target: Target, verb: Verb, document: Option<&Document>) -> Step {
    let bytes = document.map(encode::document).unwrap_or_default();
    let user = Arc::new(User::new(USER, &[PRIVILEGED_GROUP]));
    let options = Options { field_manager: Some(MANAGER.into()), ..Options::default() };
    let body = Body { content: bytes.into(), format: Format::Json };
    Step { request: Request { user, verb, target, options, body, id: USER.into() } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn names_say_group_and_version() {
        for (name, group, version, path) in [
            ("v1.", "", "v1", "/api/v1"),
            ("v1.apps", "apps", "v1", "/apis/apps/v1"),
            ("v1beta1.metrics.k8s.io", "metrics.k8s.io", "v1beta1", "/apis/metrics.k8s.io/v1beta1"),
        ] {
            let read = GroupVersion::of_name(name).expect(name);
            assert_eq!(read, GroupVersion::new(group, version));
            assert_eq!((read.name(), read.path()), (name.to_owned(), path.to_owned()));
        }
        assert_eq!(GroupVersion::of_name("v1"), None);
    }

    #[test]
    fn api_services_are_read() {
        let mut document = json!({
            "metadata": {"name": "v1.a.io"},
            "spec": {"group": "a.io", "version": "v1", "groupPriorityMinimum": 7, "versionPriority": 3},
        });
        let local = ApiService::read(&document).unwrap();
        assert_eq!((local.group_priority, local.version_priority), (7, 3));
        assert_eq!((local.backend, local.available), (None, false));
        document["spec"]["service"] = json!({"namespace": "n", "name": "s", "port": 8443});
        document["spec"]["caBundle"] = json!("aGk=");
        document["status"] = json!({"conditions": [{"type": "Available", "status": "True"}]});
        let remote = ApiService::read(&document).unwrap();
        let backend = remote.backend.unwrap();
        assert_eq!((backend.namespace.as_str(), backend.name.as_str(), backend.port), ("n", "s", 8443));
        assert_eq!((backend.ca_bundle.as_slice(), backend.insecure, remote.available), (&b"hi"[..], false, true));
    }
}
