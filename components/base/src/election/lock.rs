//! The lock object of an election: a Lease, or in older forms an annotation of an Endpoints object or of a ConfigMap.
//! During a migration from an older form, the lock is an object of the older form together with a Lease.

use super::elector::{Record, StepResult};
use crate::api::{Api, ApiError};
use holdfast_value::{Map, Value, json};
use jiff::{Timestamp, Unit};
use std::str::FromStr;

/// The annotation of a lock object that contains the record, if the lock object is not a Lease.
const ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";
/// The name that stands for the leader if the two objects of a lock name different leaders. No process has this name,
/// so all candidates wait until the lease expires.
const UNKNOWN_LEADER: &str = "leaderelection.k8s.io/unknown";

/// Which kinds of objects a lock consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    Leases,
    Endpoints,
    ConfigMaps,
    EndpointsLeases,
    ConfigMapsLeases,
}

impl FromStr for LockKind {
    type Err = String;

    fn from_str(text: &str) -> Result<LockKind, String> {
        Ok(match text {
            "leases" => LockKind::Leases,
            "endpoints" => LockKind::Endpoints,
            "configmaps" => LockKind::ConfigMaps,
            "endpointsleases" => LockKind::EndpointsLeases,
            "configmapsleases" => LockKind::ConfigMapsLeases,
            _ => return Err(format!("Invalid lock-type {text}")),
        })
    }
}

/// A kind whose objects can contain the record of an election.
#[derive(Debug)]
struct Holder {
    api_version: &'static str,
    kind: &'static str,
    /// The API path of the kind's group and version.
    base: &'static str,
    resource: &'static str,
}

const LEASE: Holder = Holder {
    api_version: "coordination.k8s.io/v1",
    kind: "Lease",
    base: "/apis/coordination.k8s.io/v1",
    resource: "leases",
};
const ENDPOINTS: Holder = Holder { api_version: "v1", kind: "Endpoints", base: "/api/v1", resource: "endpoints" };
const CONFIG_MAP: Holder = Holder { api_version: "v1", kind: "ConfigMap", base: "/api/v1", resource: "configmaps" };

impl LockKind {
    fn holders(self) -> (&'static Holder, Option<&'static Holder>) {
        match self {
            LockKind::Leases => (&LEASE, None),
            LockKind::Endpoints => (&ENDPOINTS, None),
            LockKind::ConfigMaps => (&CONFIG_MAP, None),
            LockKind::EndpointsLeases => (&ENDPOINTS, Some(&LEASE)),
            LockKind::ConfigMapsLeases => (&CONFIG_MAP, Some(&LEASE)),
        }
    }
}

impl Holder {
    /// The record in a lock object; an empty record if the object contains none.
    fn record(&self, object: &Value) -> Record {
        let (fields, transitions) = match self.kind {
            "Lease" => (object["spec"].clone(), "leaseTransitions"),
            _ => {
                let text = object["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or("{}");
                (serde_json::from_str(text).unwrap_or(Value::Null), "leaderTransitions")
            }
        };
        let time = |field: &str| fields[field].as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
        Record {
            holder: fields["holderIdentity"].as_str().unwrap_or("").to_owned(),
            lease_seconds: fields["leaseDurationSeconds"].as_i64().unwrap_or(0),
            acquired: time("acquireTime"),
            renewed: time("renewTime"),
            transitions: fields[transitions].as_i64().unwrap_or(0),
        }
    }

    /// Puts a record into a lock object.
    fn write_record(&self, object: &mut Value, record: &Record) {
        if self.kind == "Lease" {
            let spec = &mut object["spec"];
            if !spec.is_object() {
                *spec = json!({});
            }
            spec["holderIdentity"] = json!(record.holder);
            spec["leaseDurationSeconds"] = json!(record.lease_seconds);
            spec["acquireTime"] = json!(micro_time(record.acquired));
            spec["renewTime"] = json!(micro_time(record.renewed));
            spec["leaseTransitions"] = json!(record.transitions);
            return;
        }
        let time = |time: Timestamp| time.round(Unit::Second).unwrap_or(time).to_string();
        let fields = [
            ("holderIdentity", json!(record.holder)),
            ("leaseDurationSeconds", json!(record.lease_seconds)),
            ("acquireTime", json!(time(record.acquired))),
            ("renewTime", json!(time(record.renewed))),
            ("leaderTransitions", json!(record.transitions)),
        ];
        let fields: Map = fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
        let annotations = &mut object["metadata"]["annotations"];
        if !annotations.is_object() {
            *annotations = json!({});
        }
        annotations[ANNOTATION] = json!(Value::Object(fields).to_string());
    }
}

/// The text of a time with microseconds, as in Leases.
fn micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// One of the objects of which a lock consists, in the version that was last read.
#[derive(Debug)]
struct LockObject {
    holder: &'static Holder,
    seen: Option<Value>,
}

/// A lock with its namespace and name.
#[derive(Debug)]
pub struct Lock {
    pub namespace: String,
    pub name: String,
    first: LockObject,
    second: Option<LockObject>,
}

impl Lock {
    pub fn new(form: LockKind, namespace: impl Into<String>, name: impl Into<String>) -> Lock {
        let (first, second) = form.holders();
        let part = |holder| LockObject { holder, seen: None };
        Lock { namespace: namespace.into(), name: name.into(), first: part(first), second: second.map(part) }
    }

    pub async fn read(&mut self, api: &Api) -> Result<StepResult, ApiError> {
        let (namespace, name) = (&self.namespace, &self.name);
        let Some(first) = self.first.read(api, namespace, name).await? else { return Ok(StepResult::Missing) };
        let text = |record: &Record| format!("{record:?}");
        let Some(second) = &mut self.second else {
            let text = text(&first);
            return Ok(StepResult::Found(first, text));
        };
        // If only the second object of the lock is missing, the holder is a process that knows only the older form.
        let Some(second) = second.read(api, namespace, name).await? else {
            let text = text(&first);
            return Ok(StepResult::Found(first, text));
        };
        let texts = format!("{}{}", text(&first), text(&second));
        let holder = if first.holder == second.holder { first.holder } else { UNKNOWN_LEADER.into() };
        Ok(StepResult::Found(Record { holder, ..first }, texts))
    }

    pub async fn create(&mut self, api: &Api, record: &Record) -> Result<(), ApiError> {
        let created = self.first.create(api, &self.namespace, &self.name, record).await;
        let Some(second) = &mut self.second else { return created };
        match created {
            Err(error) if error.code != Some(409) => Err(error),
            _ => second.create(api, &self.namespace, &self.name, record).await,
        }
    }

    pub async fn update(&mut self, api: &Api, record: &Record) -> Result<(), ApiError> {
        let (namespace, name) = (&self.namespace, &self.name);
        self.first.update(api, namespace, name, record).await?;
        let Some(second) = &mut self.second else { return Ok(()) };
        match second.seen {
            None => second.create(api, namespace, name, record).await,
            Some(_) => second.update(api, namespace, name, record).await,
        }
    }

    /// The references by which Events name the objects of the lock, each with a name for an Event about its object.
    pub fn references(&self, now: Timestamp) -> impl Iterator<Item = (String, Value)> {
        let parts = [Some(&self.first), self.second.as_ref()].into_iter().flatten();
        parts.zip(now.as_nanosecond()..).map(|(part, unique)| {
            let metadata = part.seen.as_ref().map_or(&Value::Null, |object| &object["metadata"]);
            let reference = json!({
                "kind": part.holder.kind,
                "namespace": self.namespace,
                "name": self.name,
                "uid": metadata["uid"].as_str().unwrap_or(""),
                "apiVersion": part.holder.api_version,
                "resourceVersion": metadata["resourceVersion"].as_str().unwrap_or(""),
            });
            (format!("{}.{unique:x}", self.name), reference)
        })
    }
}

impl LockObject {
    fn collection(&self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", self.holder.base, self.holder.resource)
    }

    async fn read(&mut self, api: &Api, namespace: &str, name: &str) -> Result<Option<Record>, ApiError> {
        match api.get(&format!("{}/{name}", self.collection(namespace))).await {
            Ok(object) => {
                let record = self.holder.record(&object);
                self.seen = Some(object);
                Ok(Some(record))
            }
            Err(error) if error.code == Some(404) => {
                self.seen = None;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn create(&mut self, api: &Api, namespace: &str, name: &str, record: &Record) -> Result<(), ApiError> {
        let mut object = json!({
            "apiVersion": self.holder.api_version,
            "kind": self.holder.kind,
            "metadata": {"name": name, "namespace": namespace},
        });
        self.holder.write_record(&mut object, record);
        self.seen = Some(api.post(&self.collection(namespace), &object).await?);
        Ok(())
    }

    /// Updates the lock object only if it has not changed since it was last read.
    async fn update(&mut self, api: &Api, namespace: &str, name: &str, record: &Record) -> Result<(), ApiError> {
        let Some(mut object) = self.seen.clone() else { return Err(ApiError::local("the lock was never read")) };
        self.holder.write_record(&mut object, record);
        self.seen = Some(api.put(&format!("{}/{name}", self.collection(namespace)), &object).await?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_of_a_pair_has_an_event_of_its_own() {
        let lock = Lock::new(LockKind::EndpointsLeases, "ns", "lock");
        let about: Vec<(String, Value)> = lock.references(Timestamp::UNIX_EPOCH).collect();
        let shown: Vec<_> = about.iter().map(|(name, of)| (name.as_str(), of["kind"].as_str().unwrap())).collect();
        assert_eq!(shown, [("lock.0", "Endpoints"), ("lock.1", "Lease")]);
    }
}
