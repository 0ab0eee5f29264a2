//! A Kubernetes cluster for every test, in the process of the test: no socket, no file, no other program.
//!
//! ```no_run
//! # use holdfast_testing::Cluster;
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use kube::Api;
//! #[tokio::test]
//! async fn it_works() {
//!     let cluster = Cluster::start().await;
//!     let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
//!     assert!(maps.get_opt("mine").await.unwrap().is_none());
//! }
//! ```
//!
//! [`Cluster::start`] makes an empty cluster, and [`Cluster::fork`] makes a cluster that begins with the content of
//! another one. So a slow preparation is done once, and every test continues from it independently. Both take
//! milliseconds, except for the first cluster of the process. A cluster and its watches end when its last clone is
//! dropped.
//!
//! A cluster is the whole API server: roles, custom resources, server-side apply, watches, history, service account
//! tokens. It has no controller of workloads and no scheduler: pods stay pending, as with envtest.

use holdfast_core::authz::bootstrap::bootstrap_policy;
use holdfast_core::authz::bootstrap_objects::{bootstrap_objects, kubernetes_service};
use holdfast_core::authz::chain::Way;
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_core::kinds::registry;
use holdfast_core::pipeline::Settings;
use holdfast_core::stamp::Stamp;
use holdfast_engine::forked::Room;
use holdfast_engine::volatile::VolatileLog;
use holdfast_engine::{Clock, Engine, Options};
use holdfast_service::housekeeping::{self, bootstrap};
use holdfast_transport_http::authenticate::{Anonymous, Authenticator};
use holdfast_transport_http::tokens::ServiceAccountTokens;
use holdfast_transport_http::{Builder, ServerInfoSettings, Transport, memory};
use http::Uri;
use http::uri::PathAndQuery;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tower::ServiceExt;

/// The issuer of service account tokens.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const SERVICE_RANGE: &str = "10.0.0.0/24";
/// How long Events are kept: the default of a server.
const EVENT_TTL: Duration = Duration::from_secs(60 * 60);
/// The address that the cluster reports as its own, from a range reserved for documentation.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const PORT: u16 = 6443;

/// Runs the background work of all clusters. The runtime of a test would not be enough: it ends with the test, and
/// other tests may share the cluster.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).thread_name("holdfast").enable_all().build().expect("threads for clusters")
});

/// The cluster that [`Cluster::start`] forks. Only its own background work writes to it.
static EMPTY: OnceCell<Cluster> = OnceCell::const_new();

/// One cluster. Clones of this value are handles of one and the same cluster.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<RunningCluster>,
}

struct RunningCluster {
    transport: Arc<Transport>,
    /// The background work of the cluster. Dropping the cluster ends this work.
    _tasks: JoinSet<()>,
}

impl Cluster {
    /// Makes an empty cluster.
    ///
    /// # Panics
    ///
    /// If the first cluster of the process cannot be made.
    pub async fn start() -> Cluster {
        let make = || async { RUNTIME.spawn(Cluster::empty()).await.expect("the first cluster") };
        EMPTY.get_or_init(make).await.fork().await
    }

    /// Makes another cluster, which begins with the content of this one. From then on the two clusters are independent.
    /// A fork takes very little time, because the two clusters share the data that they have in common.
    pub async fn fork(&self) -> Cluster {
        self.fork_at(None).await
    }

    /// Makes a cluster that begins with the state of this one at a version (`"42"`), at a time
    /// (`"2026-11-21T10:00:00Z"`) or at a duration before now (`"-15m"`).
    ///
    /// # Panics
    ///
    /// If the cluster did not exist yet at that moment.
    pub async fn fork_of(&self, moment: &str) -> Cluster {
        let found = self.engine().moment(moment).await;
        let at = found.unwrap_or_else(|refusal| panic!("{moment} is not a moment of this cluster: {refusal:?}"));
        self.fork_at(Some(at)).await
    }

    async fn fork_at(&self, at: Option<holdfast_core::event::Offset>) -> Cluster {
        // Only the memory of the process limits the size of a fork.
        let room = Room::new(u64::MAX);
        let (_, transport) = self.inner.transport.fork(at, &room).await.expect("what is in memory can be read");
        let mut tasks = JoinSet::new();
        let entered = RUNTIME.enter();
        transport.keep_fork(&mut tasks);
        drop(entered);
        Cluster { inner: Arc::new(RunningCluster { transport, _tasks: tasks }) }
    }

    /// A client with the rights of the administrator. The client belongs to the async runtime in which this function is
    /// called, so each test makes its own client.
    pub fn client(&self) -> kube::Client {
        self.client_as("kubernetes-admin", &[PRIVILEGED_GROUP])
    }

    /// A client that acts as this user and needs no credential. The user's roles decide what it may do: `("jane",
    /// &["developers"])`, or `("system:serviceaccount:shop:clerk", &[])`.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> kube::Client {
        kube::Client::new(memory::service(self.inner.transport.clone(), user_of(user, groups)), "default")
    }

    /// A client of the administrator that reads the cluster as it was at a version, at a time or at a duration before
    /// now.
    pub fn client_at(&self, moment: &str) -> kube::Client {
        let user = user_of("kubernetes-admin", &[PRIVILEGED_GROUP]);
        let service = memory::service(self.inner.transport.clone(), user);
        let before = format!("/at/{}", moment.replace('%', "%25").replace('/', "%2F").replace('+', "%2B"));
        let past = service.map_request(move |mut request: http::Request<kube::client::Body>| {
            let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
            // If the joined path is not valid, the request gets an empty path, and the server answers 404.
            *request.uri_mut() = format!("{before}{path}").parse::<Uri>().unwrap_or_default();
            request
        });
        kube::Client::new(past, "default")
    }

    /// The newest version of the cluster, in the numbers that objects show in `resourceVersion`.
    pub fn version(&self) -> u64 {
        self.engine().snapshot().offset.0
    }

    fn engine(&self) -> &Arc<Engine> {
        self.inner.transport.service().engine()
    }

    async fn empty() -> Cluster {
        let settings = Settings { event_ttl: Some(EVENT_TTL), ..Settings::default() };
        let options = Options::new(settings, Arc::new(SystemClock)).authorized_by(Way::Rbac);
        let log = Arc::new(VolatileLog::default());
        let engine = Engine::open(log, Arc::new(registry().clone()), options).expect("an empty log in memory");
        let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        let tokens = ServiceAccountTokens::new(vec![ISSUER.into()], Vec::new(), Some(&key), &[]);
        let authenticator = Authenticator {
            anonymous: Anonymous::Always,
            service_accounts: Some(Arc::new(tokens.expect("a key that signs"))),
            ..Authenticator::default()
        };
        let address = format!("{ADDRESS}:{PORT}");
        let server_info = ServerInfoSettings { address, ..ServerInfoSettings::default() };
        let transport = Builder { authenticator, server_info, ..Builder::new(engine) }.build();
        let service = transport.service();
        let mut tasks = JoinSet::new();
        let mut objects = bootstrap_objects();
        objects.extend(kubernetes_service(&SERVICE_RANGE.parse().expect("a range of addresses"), ADDRESS, PORT));
        bootstrap::ensure(service, objects, bootstrap_policy()).await.expect("the objects that every cluster has");
        tasks.spawn(housekeeping::run(service.clone()));
        transport.keep_registered(&mut tasks).await.expect("the APIServices of what is served");
        transport.set_ready();
        Cluster { inner: Arc::new(RunningCluster { transport, _tasks: tasks }) }
    }
}

impl Drop for RunningCluster {
    fn drop(&mut self) {
        self.transport.stop();
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster at version {}", self.version())
    }
}

fn user_of(name: &str, groups: &[&str]) -> Arc<User> {
    let account = name.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    let mut user = match account {
        Some((namespace, account)) => User::service_account(namespace, account, ""),
        None => User::new(name, &["system:authenticated"]),
    };
    user.groups.extend(groups.iter().map(|group| (*group).to_owned()));
    Arc::new(user)
}

struct SystemClock;

impl Clock for SystemClock {
    fn stamp(&self) -> Stamp {
        Stamp { time: jiff::Timestamp::now(), seed: rand::random() }
    }
}
