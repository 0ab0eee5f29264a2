//! Converts an event to the requests that repeat it.
//!
//! An event contains the whole object. So the request is found by comparing the object with its previous event: the
//! status changed, another part changed, or a deletion began. The plan keeps only digests of each object.

use holdfast_core::event::Record;
use holdfast_core::history::settable;
use holdfast_core::kinds::known;
use holdfast_value::Value;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The user of a server's own writes. They are not replayed, because the target makes such writes by itself.
const SERVER: &str = "system:apiserver";

/// The requests that repeat one event, before they are sent.
#[derive(Debug, Clone, PartialEq)]
pub struct EventReplay {
    pub offset: u64,
    pub time_ms: i64,
    /// The object's path: `configmaps/default/web`.
    pub object: String,
    /// The object after the event; for a deletion, its last state. Fields that only a server sets are removed.
    pub document: Value,
    /// The uid of the object in the recorded cluster.
    pub uid: String,
    pub deed: ReplayVerb,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ReplayVerb {
    Create,
    /// The parts of the object that changed.
    Change {
        main: bool,
        status: bool,
        bind: bool,
    },
    /// A deletion begins, or is complete at once.
    Delete {
        grace_seconds: Option<i64>,
        propagation: Option<&'static str>,
    },
    /// A deletion that began earlier is complete.
    Finish,
}

/// The result of converting an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Planned {
    Work(Box<EventReplay>),
    /// The recorded server made this write by itself.
    ServersOwn,
    /// The event changed no field that a client sets.
    Nothing,
}

#[derive(Default)]
pub struct ReplayPlan {
    /// The known objects by resource and key.
    known: HashMap<(String, String), KnownObject>,
}

struct KnownObject {
    main: u64,
    status: u64,
    is_deleting: bool,
    is_bound: bool,
}

impl ReplayPlan {
    pub fn next(&mut self, record: Record) -> Result<Planned, serde_json::Error> {
        let document: Value = serde_json::from_slice(&record.object)?;
        let id = (record.resource.clone(), record.key.clone());
        let metadata = &document["metadata"];
        let is_deleting = !metadata["deletionTimestamp"].is_null();
        let finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
        let has_finalizer = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
        let grace_seconds = metadata["deletionGracePeriodSeconds"].as_i64();
        let uid = metadata["uid"].as_str().unwrap_or_default().to_owned();
        let is_bound = document["kind"] == known::POD.kind && document["spec"]["nodeName"].is_string();
        let document = settable(document);
        let status = digest(&document["status"]);
        let mut rest = document.clone();
        if let Some(rest) = rest.as_object_mut() {
            rest.remove("status");
        }
        let now = KnownObject { main: digest(&rest), status, is_deleting, is_bound };
        let before = if record.is_delete() { self.known.remove(&id) } else { self.known.insert(id, now) };
        if record.actor.user == SERVER {
            return Ok(Planned::ServersOwn);
        }
        let deed = match before {
            before if record.is_delete() => match before {
                Some(before) if before.is_deleting => ReplayVerb::Finish,
                _ => ReplayVerb::Delete { grace_seconds: Some(0), propagation: None },
            },
            Some(before) if is_deleting && !before.is_deleting => {
                let propagation = match (has_finalizer("foregroundDeletion"), has_finalizer("orphan")) {
                    (true, _) => Some("Foreground"),
                    (_, true) => Some("Orphan"),
                    _ => None,
                };
                ReplayVerb::Delete { grace_seconds: grace_seconds.filter(|seconds| *seconds > 0), propagation }
            }
            _ if record.replaces == 0 => ReplayVerb::Create,
            Some(before) => {
                let bind = is_bound && !before.is_bound;
                let (main, status) = (before.main != digest(&rest), before.status != status);
                if !main && !status {
                    return Ok(Planned::Nothing);
                }
                ReplayVerb::Change { main: main && !bind, status, bind }
            }
            // The object's state before the first event of the replay is unknown.
            None => ReplayVerb::Change { main: true, status: true, bind: false },
        };
        let object = format!("{}/{}", record.resource, record.key);
        let work = EventReplay { offset: record.offset, time_ms: record.time_ms, object, document, uid, deed };
        Ok(Planned::Work(Box::new(work)))
    }
}

impl EventReplay {
    pub fn kind(&self) -> &str {
        self.document["kind"].as_str().unwrap_or_default()
    }

    pub fn api_version(&self) -> &str {
        self.document["apiVersion"].as_str().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.document["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub fn namespace(&self) -> Option<&str> {
        self.document["metadata"]["namespace"].as_str()
    }

    /// Whether the work must run alone, because later events depend on the work. The result is true for creations and
    /// deletions of cluster-scoped objects (namespaces, definitions, roles) and of ServiceAccounts.
    pub fn stands_alone(&self) -> bool {
        let comes_or_goes = !matches!(self.deed, ReplayVerb::Change { .. });
        comes_or_goes && (self.namespace().is_none() || self.kind() == known::SERVICE_ACCOUNT.kind)
    }
}

fn digest(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::event::{Actor, Operation};
    use holdfast_value::json;

    fn told(events: &[(u64, Value)]) -> Vec<String> {
        let mut plan = ReplayPlan::default();
        let mut lines = Vec::new();
        for (offset, (replaces, document)) in (1..).zip(events) {
            let operation = if document["deleted"] == true { Operation::Delete } else { Operation::Put };
            let user = document["by"].as_str().unwrap_or("jane").to_owned();
            let record = Record {
                offset,
                resource: "pods".into(),
                key: "default/a".into(),
                replaces: *replaces,
                operation: operation as i32,
                actor: Actor { user, ..Actor::default() },
                object: document["object"].to_string().into(),
                ..Record::default()
            };
            lines.push(match plan.next(record).expect("JSON") {
                Planned::Work(work) => format!("{:?}", work.deed),
                other => format!("{other:?}"),
            });
        }
        lines
    }

    #[test]
    fn events_become_what_somebody_asked_for() {
        let pod = |metadata: Value, spec: Value, status: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status});
        let (plain, spec) = (json!({"name": "a"}), json!({"x": 1}));
        let put = |object: &Value| json!({"object": object});
        let deleted = |object: &Value| json!({"object": object, "deleted": true});
        let created = pod(plain.clone(), spec.clone(), json!({"phase": "Pending"}));
        let bound = pod(plain.clone(), json!({"x": 1, "nodeName": "n"}), json!({"phase": "Pending"}));
        let running = pod(plain.clone(), json!({"x": 1, "nodeName": "n"}), json!({"phase": "Running"}));
        let ending = pod(
            json!({"name": "a", "deletionTimestamp": "t", "deletionGracePeriodSeconds": 30}),
            json!({"x": 1, "nodeName": "n"}),
            json!({"phase": "Running"}),
        );
        assert_eq!(
            told(&[
                (0, put(&created)),
                (1, put(&bound)),
                (2, put(&running)),
                (3, put(&running)),
                (4, put(&ending)),
                (5, deleted(&ending)),
                (0, put(&created)),
                (7, deleted(&created)),
            ]),
            [
                "Create",
                "Change { main: false, status: false, bind: true }",
                "Change { main: false, status: true, bind: false }",
                "Nothing",
                "Delete { grace_seconds: Some(30), propagation: None }",
                "Finish",
                "Create",
                "Delete { grace_seconds: Some(0), propagation: None }",
            ]
        );
        // Before its first event the object is unknown, so all its parts count as changed.
        assert_eq!(told(&[(7, put(&running))]), ["Change { main: true, status: true, bind: false }"]);
        let foreground = pod(
            json!({"name": "a", "deletionTimestamp": "t", "finalizers": ["foregroundDeletion"]}),
            spec,
            json!({"phase": "Pending"}),
        );
        assert_eq!(
            told(&[(0, put(&created)), (1, put(&foreground))])[1],
            "Delete { grace_seconds: None, propagation: Some(\"Foreground\") }"
        );
        let own = json!({"object": created, "by": "system:apiserver"});
        assert_eq!(told(&[(0, own), (1, put(&running))])[0], "ServersOwn");
    }
}
