//! The namespace of a run. The namespace is created before the run, and, without `--keep`, emptied and deleted after
//! the run.

use std::time::{Duration, Instant};

use anyhow::bail;
use bytes::Bytes;
use http::Method;

use crate::client::{Client, OperationFailure, Pool};

pub const NAMESPACE: &str = "holdfast-bench";
const CONFIG_MAPS: &str = "/api/v1/namespaces/holdfast-bench/configmaps";
const ITEMS: &str = "/apis/bench.holdfast.example/v1/namespaces/holdfast-bench/items";
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The label of the definitions that a run creates.
const DEFINITION_LABEL: &str = "holdfast-bench";
pub const PODS: &str = "/api/v1/namespaces/holdfast-bench/pods";
pub const JSON: &str = "application/json";
const NAMESPACE_PATH: &str = "/api/v1/namespaces/holdfast-bench";

const EMPTYING_TIME_MAX: Duration = Duration::from_secs(600);
/// The maximum time for deletions. A server without a namespace controller never finishes them, so a longer wait would
/// not help.
const REMOVAL_TIME_MAX: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

pub struct Ground {
    pool: Pool,
    objects: u64,
    resource: ObjectKind,
}

/// The kind of the objects that a run creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    ConfigMap,
    /// Custom objects with the same shape and size as a ConfigMap.
    Custom,
}

impl ObjectKind {
    pub fn collection(self) -> &'static str {
        match self {
            ObjectKind::ConfigMap => CONFIG_MAPS,
            ObjectKind::Custom => ITEMS,
        }
    }

    pub fn kind(self) -> (&'static str, &'static str) {
        match self {
            ObjectKind::ConfigMap => ("v1", "ConfigMap"),
            ObjectKind::Custom => ("bench.holdfast.example/v1", "Item"),
        }
    }
}

/// A definition of a custom resource in a group of its own, with a schema of usual size.
pub fn definition(group: &str, kind: &str) -> String {
    let plural = format!("{}s", kind.to_lowercase());
    let text = r#"{"type":"string","maxLength":4096}"#;
    let fields: String = (0..24)
        .map(|n| {
            format!(
                r#","field{n}":{{"type":"object","description":"One of the many parts of a specification.","properties":{{"name":{text},"count":{{"type":"integer","minimum":0}},"labels":{{"type":"object","additionalProperties":{text}}}}}}}"#
            )
        })
        .collect();
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"{plural}.{group}","labels":{{"{DEFINITION_LABEL}":"true"}}}},"spec":{{"group":"{group}","scope":"Namespaced","names":{{"kind":"{kind}","plural":"{plural}"}},"versions":[{{"name":"v1","served":true,"storage":true,"subresources":{{"status":{{}}}},"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"data":{{"type":"object","maxProperties":64,"additionalProperties":{text},"x-kubernetes-validations":[{{"rule":"self.all(key, key.size() <= 63)","message":"keys are short"}}]}},"spec":{{"type":"object","properties":{{"name":{text}{fields}}}}},"status":{{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}}}}}}]}}}}"#
    )
}

/// The names of the created objects, which are numbered without gaps.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    pub existing: u64,
    pub resource: ObjectKind,
}

impl Names {
    pub fn path(self, number: u64) -> String {
        format!("{}/{}", self.resource.collection(), Self::name(number))
    }

    pub fn name(number: u64) -> String {
        format!("item-{number:08}")
    }
}

impl Ground {
    /// Creates the namespace; objects that an earlier run has left there are deleted first.
    pub async fn prepare(pool: Pool, resource: ObjectKind) -> anyhow::Result<Self> {
        let ground = Self { pool, objects: 0, resource };
        if resource == ObjectKind::Custom {
            let body = definition("bench.holdfast.example", "Item");
            match ground.client().send(Method::POST, DEFINITIONS, json(body)).await {
                Ok(_) | Err(OperationFailure::Refused { code: 409, .. }) => {}
                Err(failure) => bail!("cannot define the custom resource: {failure}"),
            }
            ground.wait_until_served().await?;
        }
        let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{NAMESPACE}"}}}}"#);
        let until = Instant::now() + REMOVAL_TIME_MAX;
        loop {
            let create = ground.client().send(Method::POST, "/api/v1/namespaces", json(body.clone())).await;
            match create {
                Ok(_) => break,
                Err(OperationFailure::Refused { code: 409, .. }) => {
                    let namespace = ground.client().send(Method::GET, NAMESPACE_PATH, None).await;
                    let leaving = matches!(&namespace, Ok(n) if n.metadata_text("deletionTimestamp").is_some());
                    if namespace.is_ok() && !leaving {
                        ground.empty().await?;
                        break;
                    }
                    if Instant::now() > until {
                        bail!("namespace {NAMESPACE} is being deleted and does not go away");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                Err(failure) => bail!("cannot create namespace {NAMESPACE}: {failure}"),
            }
        }
        Ok(ground)
    }

    /// Waits until the custom resource is served, which may take the server a moment.
    async fn wait_until_served(&self) -> anyhow::Result<()> {
        let until = Instant::now() + REMOVAL_TIME_MAX;
        while let Err(failure) = self.client().send(Method::GET, ITEMS, None).await {
            if Instant::now() > until {
                bail!("the custom resource is not served: {failure}");
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    pub fn resource(&self) -> ObjectKind {
        self.resource
    }

    pub fn objects(&self) -> u64 {
        self.objects
    }

    pub fn names(&self) -> Names {
        Names { existing: self.objects, resource: self.resource }
    }

    pub fn created(&mut self, count: u64) {
        self.objects += count;
    }

    pub async fn remove(&self) -> anyhow::Result<()> {
        eprintln!("removing namespace {NAMESPACE} ...");
        self.empty().await?;
        let until = Instant::now() + REMOVAL_TIME_MAX;
        while Instant::now() < until {
            match self.client().send(Method::DELETE, NAMESPACE_PATH, None).await {
                Err(OperationFailure::Refused { code: 404, .. }) => return Ok(()),
                // A conflict means that the deletion is in progress.
                Ok(_) | Err(OperationFailure::Refused { code: 409, .. }) => tokio::time::sleep(PAUSE).await,
                Err(failure) => bail!("cannot delete namespace {NAMESPACE}: {failure}"),
            }
        }
        eprintln!("namespace {NAMESPACE} is empty but still terminating: no namespace controller?");
        Ok(())
    }

    /// Deletes all objects. Repeats the requests if the server refuses one for the moment, or does not answer in time.
    async fn empty(&self) -> anyhow::Result<()> {
        let until = Instant::now() + EMPTYING_TIME_MAX;
        loop {
            let definitions = format!("{DEFINITIONS}?labelSelector={DEFINITION_LABEL}%3Dtrue");
            let mut emptied = self.client().send(Method::DELETE, self.resource.collection(), None).await;
            for rest in [PODS, &definitions] {
                if emptied.is_ok() {
                    emptied = self.client().send(Method::DELETE, rest, None).await;
                }
            }
            match emptied {
                Ok(_) => return Ok(()),
                Err(failure) if Instant::now() > until => bail!("cannot empty namespace {NAMESPACE}: {failure}"),
                Err(OperationFailure::Refused { code, .. }) if !matches!(code, 429 | 500 | 503 | 504) => {
                    bail!("cannot empty namespace {NAMESPACE}: HTTP {code}")
                }
                Err(OperationFailure::Broken(why)) => bail!("cannot empty namespace {NAMESPACE}: {why}"),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn client(&self) -> Client {
        self.pool.pick(0)
    }
}

pub fn json(document: String) -> Option<(&'static str, Bytes)> {
    Some((JSON, Bytes::from(document)))
}
