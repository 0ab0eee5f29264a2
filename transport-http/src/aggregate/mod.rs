//! Parts of the API that other servers answer for: their APIServices followed, their health checked, requests sent
//! on, and what they serve told as if it were served here.
//!
//! Start at [`Aggregator`]. `keeper` follows and checks, `proxy` sends requests on, `documents` merges descriptions.

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
use holdfast_outbound::{Egress, Endpoint, Identity, Insiders, Outbound, TlsTrust};
use holdfast_value::Value;
pub(crate) use proxy::{forward, passed_on, say_client, strip};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, RwLock};

/// How other servers are reached.
#[derive(Clone)]
pub struct Settings {
    pub routing: Routing,
    /// Redirects of other servers are not passed on.
    pub reject_redirects: bool,
    /// How this server proves to them that it may speak for others.
    pub identity: Option<Arc<Identity>>,
    /// Servers in this process.
    pub inside: Insiders,
    /// By way of which proxies.
    pub egress: Egress,
}

impl Default for Settings {
    fn default() -> Settings {
        let (routing, inside, egress) = (Routing::Service, Insiders::new(), Egress::default());
        Settings { routing, reject_redirects: true, identity: None, inside, egress }
    }
}

pub struct Aggregator {
    outbound: Arc<Outbound>,
    slices: Arc<RwLock<Slices>>,
    settings: Settings,
    table: ArcSwap<Table>,
    /// Held while the table is changed.
    changing: Mutex<()>,
    merged: Mutex<HashMap<String, documents::Merged>>,
}

/// What is known of other servers' parts of the API. Replaced as a whole when something changes.
#[derive(Clone, Default)]
struct Table {
    servers: BTreeMap<GroupVersion, Arc<Server>>,
    /// Of group versions whose APIServices say otherwise than is usual.
    priorities: BTreeMap<GroupVersion, (i64, i64)>,
    /// Goes up with every change that descriptions show.
    generation: u64,
}

/// The server behind a group version.
#[derive(Clone)]
pub(crate) struct Server {
    service: ApiService,
    backend: Backend,
    told: Told,
}

/// What a server last told about its resources.
#[derive(Clone, Default, PartialEq)]
struct Told {
    resources: Vec<ResourceDiscovery>,
    fresh: bool,
    openapi_v2: Option<Arc<Document>>,
    /// The hash that stands for its description of version 3.
    openapi_v3: Option<String>,
}

/// The part of a document that matters, with the tag that the document came under.
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

    /// That of a fork, which reaches other servers in the same way, and begins with what they have told.
    pub fn beside(&self, engine: Arc<Engine>) -> Aggregator {
        let aggregator = Aggregator::new(engine, self.settings.clone());
        aggregator.table.store(self.table.load_full());
        aggregator
    }

    /// The client for calls of all sorts: webhooks use it, too.
    pub fn outbound(&self) -> &Arc<Outbound> {
        &self.outbound
    }

    /// The other server that a request is for.
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
    fn endpoint(&self, path: &str) -> Endpoint {
        let Backend { namespace, name, port, ca_bundle, insecure } = &self.backend;
        let trust = TlsTrust { authorities: ca_bundle.clone(), insecure: *insecure, identified: true };
        Endpoint::service(namespace, name, *port, path, trust)
    }
}

/// The body of an answer that is made here, whole.
async fn whole(response: crate::respond::Response) -> Option<Bytes> {
    use http_body_util::BodyExt;
    response.into_body().collect().await.ok().map(|body| body.to_bytes())
}
