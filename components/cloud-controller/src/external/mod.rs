//! A cloud behind an external provider, called over gRPC with the protocol in `proto/cloud.proto`.
//!
//! `Hello` is called before any other call. It is called again after the provider was unreachable, because another
//! provider may answer at the address then. Every call has a deadline. A call that could not reach the provider is
//! retried a few times within its deadline.

mod config;
pub mod wire;

pub use config::{Configuration, ProviderAddress, ProviderTls};

use async_trait::async_trait;
use holdfast_grpc::{Failure, causes, connect_unix, unary};
use holdfast_runtime::Cloud;
use holdfast_world::cloud::{CloudAnswer, CloudCall, Fault, FaultReason, Offers};
use prost::Message;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint as Address, Identity};
use tonic::{Code, Status};

/// The version of the protocol that Holdfast uses.
pub const VERSION: &str = "v1";
const SERVICE: &str = "/holdfast.cloud.v1.Cloud/";
/// The longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// How many times a call is tried in all while the provider is unreachable. `WAIT` is the wait after the first try.
const TRIES: u32 = 4;
const WAIT: Duration = Duration::from_millis(100);
/// How long connecting to the provider may take.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest wait, in milliseconds, that a provider may request when it refuses a call because there are too many
/// calls.
const RETRY_MILLIS_MAX: i64 = 3_600_000;

/// A connected provider.
pub struct External {
    channel: Channel,
    deadline: Duration,
    name: String,
    offers: Offers,
    /// Whether the provider was unreachable, so that `Hello` must be called before the next call.
    is_strange: AtomicBool,
}

impl External {
    /// Connects to a provider, and reads its name and the parts that it offers.
    pub async fn connect(configuration: &Configuration) -> Result<External, String> {
        let channel = channel(&configuration.endpoint)?;
        let deadline = configuration.deadline;
        let mut external =
            External { channel, deadline, name: String::new(), offers: Offers::default(), is_strange: false.into() };
        let hello = external.hello().await.map_err(|fault| format!("{}: {fault}", configuration.endpoint))?;
        let valid = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '.';
        if hello.provider.is_empty() || hello.provider.len() > 63 || !hello.provider.chars().all(valid) {
            return Err(format!("{}: {:?} is not a name of a provider", configuration.endpoint, hello.provider));
        }
        external.offers = offers(&hello);
        external.name = hello.provider;
        Ok(external)
    }

    async fn hello(&self) -> Result<wire::HelloResponse, Fault> {
        let request = wire::HelloRequest { versions: vec![VERSION.to_owned()] };
        let hello: wire::HelloResponse = self.within("Hello", request).await?;
        if hello.version != VERSION {
            let message = format!("the provider speaks version {:?}, and {VERSION:?} is spoken here", hello.version);
            return Err(Fault::unavailable(message));
        }
        Ok(hello)
    }

    /// If the provider was unreachable, checks that the provider which answers now has the same name and offers the
    /// same parts. If it does not, every further call fails.
    async fn know(&self) -> Result<(), Fault> {
        if !self.is_strange.load(Ordering::Acquire) {
            return Ok(());
        }
        let hello = self.hello().await?;
        if hello.provider != self.name || offers(&hello) != self.offers {
            let message = format!("provider {} answers where {} did: restart the manager", hello.provider, self.name);
            return Err(Fault::unavailable(message));
        }
        self.is_strange.store(false, Ordering::Release);
        Ok(())
    }

    async fn call<R, A>(&self, method: &'static str, request: R) -> Result<A, Fault>
    where
        R: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.know().await?;
        self.within(method, request).await
    }

    /// Calls a method of the provider within the deadline.
    async fn within<R, A>(&self, method: &'static str, request: R) -> Result<A, Fault>
    where
        R: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let tried = tokio::time::timeout(self.deadline, self.tries(method, request)).await;
        let status = match tried {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) => status,
            Err(_) => Status::deadline_exceeded(format!("no answer within {:?}", self.deadline)),
        };
        if matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Unknown) {
            self.is_strange.store(true, Ordering::Release);
        }
        Err(fault(method, &status))
    }

    async fn tries<R, A>(&self, method: &'static str, request: R) -> Result<A, Status>
    where
        R: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut wait = WAIT;
        for _ in 1..TRIES {
            match self.once(method, request.clone()).await {
                Err(status) if status.code() == Code::Unavailable => {
                    tracing::debug!(method, why = status.message(), "the provider is not there");
                }
                answer => return answer,
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        self.once(method, request).await
    }

    async fn once<R, A>(&self, method: &'static str, request: R) -> Result<A, Status>
    where
        R: Message + 'static,
        A: Message + Default + 'static,
    {
        unary(&self.channel, &format!("{SERVICE}{method}"), request, ANSWER_BYTES_MAX).await
    }
}

#[async_trait]
impl Cloud for External {
    fn name(&self) -> &str {
        &self.name
    }

    fn offers(&self) -> Offers {
        self.offers
    }

    async fn call(&self, call: &CloudCall) -> Result<CloudAnswer, Fault> {
        let done = |_: wire::Done| CloudAnswer::Done;
        match call {
            CloudCall::Instance { cluster, node } => {
                let answer: wire::Instance = self.call("GetInstance", node_request(cluster, node)).await?;
                Ok(CloudAnswer::Instance(answer.into()))
            }
            CloudCall::Zone { cluster, node } => {
                let answer: wire::Zone = self.call("GetZone", node_request(cluster, node)).await?;
                Ok(CloudAnswer::Zone(answer.into()))
            }
            CloudCall::EnsureBalancer { cluster, wanted, hosts } => {
                let answer: wire::Balancer =
                    self.call("EnsureBalancer", wire::balancer(cluster, wanted, hosts)).await?;
                Ok(CloudAnswer::Balancer(answer.into()))
            }
            CloudCall::UpdateHosts { cluster, wanted, hosts } => {
                self.call("UpdateHosts", wire::balancer(cluster, wanted, hosts)).await.map(done)
            }
            CloudCall::DeleteBalancer { cluster, name, service } => {
                let request = wire::DeleteBalancerRequest {
                    cluster: Some(cluster.into()),
                    name: name.clone(),
                    service: Some(service.into()),
                };
                self.call("DeleteBalancer", request).await.map(done)
            }
            CloudCall::Routes { cluster } => {
                let request = wire::ListRoutesRequest { cluster: Some(cluster.into()) };
                let answer: wire::ListRoutesResponse = self.call("ListRoutes", request).await?;
                Ok(CloudAnswer::Routes(answer.routes.into_iter().map(Into::into).collect()))
            }
            CloudCall::CreateRoute { cluster, route } => {
                self.call("CreateRoute", route_request(cluster, route)).await.map(done)
            }
            CloudCall::DeleteRoute { cluster, route } => {
                self.call("DeleteRoute", route_request(cluster, route)).await.map(done)
            }
            CloudCall::Clusters => {
                let answer: wire::ListClustersResponse =
                    self.call("ListClusters", wire::ListClustersRequest {}).await?;
                let cluster = |cluster| wire::NamedCluster::from(Some(cluster)).0;
                Ok(CloudAnswer::Clusters(answer.clusters.into_iter().map(cluster).collect()))
            }
        }
    }
}

fn offers(hello: &wire::HelloResponse) -> Offers {
    Offers {
        instances: hello.instances,
        zones: hello.zones,
        balancers: hello.balancers,
        routes: hello.routes,
        clusters: hello.clusters,
    }
}

fn node_request(
    cluster: &holdfast_world::cloud::ClusterRef,
    node: &holdfast_world::cloud::NodeRef,
) -> wire::NodeRequest {
    wire::NodeRequest { cluster: Some(cluster.into()), node: Some(node.into()) }
}

fn route_request(
    cluster: &holdfast_world::cloud::ClusterRef,
    route: &holdfast_world::cloud::Route,
) -> wire::RouteRequest {
    wire::RouteRequest { cluster: Some(cluster.into()), route: Some(route.into()) }
}

/// A channel to the provider. It connects when the first call is made.
fn channel(endpoint: &ProviderAddress) -> Result<Channel, String> {
    let address = |url: &str| Address::from_shared(url.to_owned()).map_err(|error| format!("{url}: {error}"));
    match endpoint {
        ProviderAddress::Unix(path) => {
            let path = path.clone();
            let connect = move || {
                let path = path.clone();
                async move { connect_unix(&path).await }
            };
            Ok(holdfast_grpc::channel(&holdfast_grpc::local().connect_timeout(CONNECT), connect))
        }
        ProviderAddress::Plain(url) => Ok(address(url)?.connect_timeout(CONNECT).connect_lazy()),
        ProviderAddress::Tls(tls) => {
            let read = |path: &PathBuf| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
            let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&tls.authority)?));
            if let Some((certificate, key)) = &tls.identity {
                config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
            }
            if let Some(name) = &tls.server_name {
                config = config.domain_name(name);
            }
            let address = address(&tls.url)?.connect_timeout(CONNECT).tls_config(config);
            Ok(address.map_err(|error| format!("{}: {}", tls.url, causes(&error)))?.connect_lazy())
        }
    }
}

/// The fault that stands for a gRPC status of a call.
fn fault(method: &str, status: &Status) -> Fault {
    let why = match status.code() {
        Code::NotFound => FaultReason::NotFound,
        Code::Unimplemented => FaultReason::NotOffered,
        Code::FailedPrecondition => FaultReason::Elsewhere,
        Code::InvalidArgument => FaultReason::Invalid,
        Code::AlreadyExists => FaultReason::Conflict,
        Code::ResourceExhausted => FaultReason::Exhausted,
        _ => FaultReason::Unavailable,
    };
    let asked = status.metadata().get("retry-after-ms").and_then(|value| value.to_str().ok()?.parse::<i64>().ok());
    let retry_millis = asked.filter(|_| why == FaultReason::Exhausted).map(|millis| millis.clamp(1, RETRY_MILLIS_MAX));
    // The provider's message may be long, so it is cut before it reaches Events and logs.
    let message: String = status.message().chars().take(1024).collect();
    let message = Failure::new(status.code(), message).of_method(method);
    Fault { retry_millis, ..Fault::new(why, message) }
}

impl std::fmt::Display for ProviderAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProviderAddress::Unix(path) => write!(f, "unix://{}", path.display()),
            ProviderAddress::Plain(url) => f.write_str(url),
            ProviderAddress::Tls(tls) => f.write_str(&tls.url),
        }
    }
}
