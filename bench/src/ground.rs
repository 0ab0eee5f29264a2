//! The namespace that a run works in: made before, emptied and removed after.

use std::time::{Duration, Instant};

use anyhow::bail;
use bytes::Bytes;
use http::Method;

use crate::client::{Client, Failure, Pool};

pub const NAMESPACE: &str = "holdfast-bench";
pub const COLLECTION: &str = "/api/v1/namespaces/holdfast-bench/configmaps";
pub const PODS: &str = "/api/v1/namespaces/holdfast-bench/pods";
pub const JSON: &str = "application/json";
const NAMESPACE_PATH: &str = "/api/v1/namespaces/holdfast-bench";

const EMPTYING_TIME_MAX: Duration = Duration::from_secs(600);
/// A server without a namespace controller never finishes the deletion; waiting longer would not help.
const REMOVAL_TIME_MAX: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

pub struct Ground {
    pool: Pool,
    objects: u64,
}

/// Names of the objects made so far; the next ones follow without a gap.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    pub existing: u64,
}

impl Names {
    pub fn path(number: u64) -> String {
        format!("{COLLECTION}/{}", Self::name(number))
    }

    pub fn name(number: u64) -> String {
        format!("item-{number:08}")
    }
}

impl Ground {
    /// Makes the namespace; what an earlier run left in it is removed first.
    pub async fn prepare(pool: Pool) -> anyhow::Result<Self> {
        let ground = Self { pool, objects: 0 };
        let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{NAMESPACE}"}}}}"#);
        let until = Instant::now() + REMOVAL_TIME_MAX;
        loop {
            let create = ground.client().send(Method::POST, "/api/v1/namespaces", json(body.clone())).await;
            match create {
                Ok(_) => break,
                Err(Failure::Refused { code: 409, .. }) => {
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

    pub fn objects(&self) -> u64 {
        self.objects
    }

    pub fn names(&self) -> Names {
        Names { existing: self.objects }
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
                Err(Failure::Refused { code: 404, .. }) => return Ok(()),
                // A conflict says that the deletion is under way.
                Ok(_) | Err(Failure::Refused { code: 409, .. }) => tokio::time::sleep(PAUSE).await,
                Err(failure) => bail!("cannot delete namespace {NAMESPACE}: {failure}"),
            }
        }
        eprintln!("namespace {NAMESPACE} is empty but still terminating: no namespace controller?");
        Ok(())
    }

    /// Removes all objects. A server that gives up half-way through so many is asked again.
    async fn empty(&self) -> anyhow::Result<()> {
        let until = Instant::now() + EMPTYING_TIME_MAX;
        loop {
            let emptied = match self.client().send(Method::DELETE, COLLECTION, None).await {
                Ok(_) => self.client().send(Method::DELETE, PODS, None).await,
                refused => refused,
            };
            match emptied {
                Ok(_) => return Ok(()),
                Err(failure) if Instant::now() > until => bail!("cannot empty namespace {NAMESPACE}: {failure}"),
                Err(Failure::Refused { code, .. }) if !matches!(code, 429 | 500 | 503 | 504) => {
                    bail!("cannot empty namespace {NAMESPACE}: HTTP {code}")
                }
                Err(Failure::Broken(why)) => bail!("cannot empty namespace {NAMESPACE}: {why}"),
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
