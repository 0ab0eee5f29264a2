//! API aggregation: parts of the API that other servers serve. Their APIServices are followed, their availability is
//! checked, requests are forwarded to them, and discovery shows their resources together with the resources of this
//! server.
//!
//! Start at [`Aggregator`]. `keeper` follows and checks, `proxy` forwards requests, `documents` merges discovery and
//! OpenAPI documents.

mod documents;
mod keeper;
mod proxy;

use crate::route::Route;
use arc_swap::ArcSwap;
use bytes::Bytes;
pub(crate) use documents::answer;
use holdfast_core::apiservices::resolve::{Routing, Slices};
use holdfast_core::apiservices::{ApiService, Backend, GroupVersion, local};
use holdfast_core::wire::discovery::documents::ResourceDiscovery;
use holdfast_core::wire::merged::Remote;
use holdfast_engine::Engine;
use holdfast_outbound::{CallTarget, Egress, Identity, InProcessServices, Outbound, TlsTrust};
use holdfast_value::Value;
pub(crate) use proxy::{forward, passed_on, say_client, strip};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, RwLock};

/// The operator's settings of how aggregated API servers are reached.
#[derive(Clone)]
pub struct Settings {
    pub routing: Routing,
    /// Whether redirects of other servers are refused instead of passed on.
    pub reject_redirects: bool,
    /// The client certificate with which this server proves that it may act for users.
    pub identity: Option<Arc<Identity>>,
    /// The servers that run in this process and are called without a socket.
    pub inside: InProcessServices,
    /// The proxies through which this server opens outgoing connections.
    pub egress: Egress,
}

impl Default for Settings {
    fn default() -> Settings {
        let (routing, inside, egress) = (Routing::Service, InProcessServices::new(), Egress::default());
        Settings { routing, reject_redirects: true, identity: None, inside, egress }
    }
}

pub struct Aggregator {
    outbound: Arc<Outbound>,
    slices: Arc<RwLock<Slices>>,
    settings: Settings,
    table: ArcSwap<Table>,
    /// The lock that is held while the table of other servers changes.
    changing: Mutex<()>,
    merged: Mutex<HashMap<String, documents::Merged>>,
}

/// The known parts of the API that other servers serve. The table is replaced as a whole when something changes.
#[derive(Clone, Default)]
struct Table {
    servers: BTreeMap<GroupVersion, Arc<Server>>,
    /// The priorities of group versions whose APIServices do not have the usual priorities.
    priorities: BTreeMap<GroupVersion, (i64, i64)>,
    /// A number that increases with every change of the table and shows which merged documents are outdated.
    generation: u64,
}

/// The server that serves a group version instead of this server.
#[derive(Clone)]
pub(crate) struct Server {
    service: ApiService,
    backend: Backend,
    told: Discovered,
}

/// The discovery documents that a server last returned.
#[derive(Clone, Default, PartialEq)]
struct Discovered {
    resources: Vec<ResourceDiscovery>,
    fresh: bool,
    openapi_v2: Option<Arc<Document>>,
    /// The hash of the server's OpenAPI v3 description.
    openapi_v3: Option<String>,
}

/// The part of a server's document that this server uses, and the document's ETag.
#[derive(PartialEq)]
struct Document {
    tag: String,
    part: Value,
}

impl Aggregator {
    pub fn new(engine: Arc<Engine>, settings: Settings) -> Aggregator {
        let slices = Arc::new(RwLock::new(Slices::default()));
        let Settings { routing, identity, inside, egress, .. } = settings.clone();
        let outbound = Outbound::new(engine, slices.clone(), routing, identity, inside).through(egress);
        Aggregator {
            outbound: Arc::new(outbound),
            slices,
            settings,
            table: ArcSwap::default(),
            changing: Mutex::default(),
            merged: Mutex::default(),
        }
    }

    /// The aggregator of a fork. It reaches other servers in the same way, and starts with the same table.
    pub fn beside(&self, engine: Arc<Engine>) -> Aggregator {
        let aggregator = Aggregator::new(engine, self.settings.clone());
        aggregator.table.store(self.table.load_full());
        aggregator
    }

    /// The client for all outgoing calls, including calls to webhooks.
    pub fn outbound(&self) -> &Arc<Outbound> {
        &self.outbound
    }

    /// The other server that serves this route; `None` if this server serves it.
    pub(crate) fn server(&self, route: &Route) -> Option<Arc<Server>> {
        let table = self.table.load();
        if table.servers.is_empty() {
            return None;
        }
        let (group, version) = route.group_version()?;
        table.servers.get(&GroupVersion::new(group, version)).cloned()
    }
}

impl Table {
    fn remotes(&self) -> Vec<Remote> {
        let remote = |(served, server): (&GroupVersion, &Arc<Server>)| Remote {
            served: served.clone(),
            resources: server.told.resources.clone(),
            fresh: server.told.fresh,
        };
        self.servers.iter().map(remote).collect()
    }

    fn priorities(&self, served: &GroupVersion) -> (i64, i64) {
        self.priorities.get(served).copied().unwrap_or_else(|| local::priorities(served))
    }
}

impl Server {
    fn endpoint(&self, path: &str) -> CallTarget {
        let Backend { namespace, name, port, ca_bundle, insecure } = &self.backend;
        let trust = TlsTrust { authorities: ca_bundle.clone(), insecure: *insecure, identified: true };
        CallTarget::service(namespace, name, *port, path, trust)
    }
}

/// Reads the whole body of a response that this server has made.
async fn whole(response: crate::respond::Response) -> Option<Bytes> {
    use http_body_util::BodyExt;
    response.into_body().collect().await.ok().map(|body| body.to_bytes())
}
