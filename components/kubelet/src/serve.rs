//! The listener of all simulated nodes: TLS, authentication, authorization and routing.

use crate::answers::{KubeletResponse, exposition, fault, json, plain};
use crate::cluster::Cluster;
use crate::containers::Containers;
use crate::remote::Sessions;
use crate::request::{ContainerTarget, NodePage, Query, verb};
use crate::{forward, logs, metrics, remote};
use holdfast_component::authorization::About;
use holdfast_component::serving::{self, Guard};
use holdfast_core::authz::User;
use holdfast_core::kinds::known;
use holdfast_nodes::BehaviourSettings;
use holdfast_tls::bounds::Bounds;
use holdfast_tls::guests::ConnectionSlot;
use holdfast_tls::peer::Peer;
use holdfast_tls::server::LiveTls;
use holdfast_value::{Value, json as document};
use http::{Method, Request, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::UnixTime;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpListener, TcpStream};

/// The maximum number of connections at a time.
const CONNECTIONS_MAX: usize = 4_000;

/// The server of all simulated nodes in a process.
#[derive(Clone)]
pub struct NodeServer {
    cluster: Cluster,
    containers: Containers,
    sessions: Sessions,
    tls: Arc<LiveTls>,
    guard: Arc<Guard>,
    bounds: Bounds,
}

impl NodeServer {
    pub fn new(cluster: Cluster, tls: Arc<LiveTls>, guard: Guard) -> NodeServer {
        let containers = Containers::new(cluster.clone());
        let bounds = Bounds::of_connections(CONNECTIONS_MAX);
        NodeServer { cluster, containers, sessions: Sessions::default(), tls, guard: Arc::new(guard), bounds }
    }

    /// Accepts and serves connections for ever.
    pub async fn serve(self, listener: TcpListener) {
        let bounds = self.bounds;
        serving::accept(listener, bounds, move |stream, place| {
            let server = self.clone();
            async move { server.connection(stream, &place).await }
        })
        .await;
    }

    /// Serves a connection that another part of this process has opened as the user `user`, without TLS.
    pub fn connect(&self, socket: DuplexStream, user: Arc<User>) {
        let server = self.clone();
        tokio::spawn(async move {
            if let Err(error) = server.talk(socket, move || Peer::Internal(user.clone())).await {
                tracing::debug!(error, "a connection to a simulated node ended");
            }
        });
    }

    async fn connection(self, stream: TcpStream, place: &ConnectionSlot) -> Result<(), String> {
        let (stream, presented) = serving::shake_hands(stream, &self.tls, self.bounds, place).await?;
        self.talk(stream, move || presented.peer(UnixTime::now())).await
    }

    /// Serves HTTP/1.1 on a connection. `peer` identifies the client at each request.
    async fn talk(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: impl Fn() -> Peer,
    ) -> Result<(), String> {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(self.bounds.head)
            .max_buf_size(self.bounds.head_bytes_max as usize);
        let service = service_fn(move |request| {
            let (server, peer) = (self.clone(), peer());
            async move { Ok::<_, Infallible>(server.answer(request, peer).await) }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
        connection.await.map_err(|error| error.to_string())
    }

    async fn answer(&self, request: Request<Incoming>, peer: Peer) -> KubeletResponse {
        let node = node_of(&request);
        let Some(user) = self.guard.authenticator.authenticate(&peer, request.headers()).await else {
            return plain(StatusCode::UNAUTHORIZED, "Unauthorized");
        };
        let asked = NodePage::of(request.uri().path());
        let subresources = asked.as_ref().map_or(&["proxy"][..], NodePage::subresources);
        if let Some(refusal) = self.refusal(&user, request.method(), node.as_deref(), subresources).await {
            return refusal;
        }
        let Some(asked) = asked else { return plain(StatusCode::NOT_FOUND, "404 page not found\n") };
        if !asked.allows(request.method()) {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
        }
        self.allowed(asked, node, request).await
    }

    /// The refusal of a request; `None` if the user may access one of the subresources that stand for the page.
    async fn refusal(
        &self,
        user: &User,
        method: &Method,
        node: Option<&str>,
        subresources: &[&str],
    ) -> Option<KubeletResponse> {
        let verb = verb(method);
        for subresource in subresources {
            let (name, subresource) = (node.unwrap_or_default().to_owned(), (*subresource).to_owned());
            let about = About::Object { of: known::NODE, name, subresource };
            match self.guard.authorizer.allows_with(user, verb, about).await {
                Ok(true) => return None,
                Ok(false) => {}
                Err(error) => {
                    let resources = subresources.join(" ");
                    let name = &user.name;
                    tracing::error!(%error, "the API server could not be asked whether a request to a node is allowed");
                    let text = format!(
                        "Authorization error (user={name}, verb={verb}, resource=nodes, subresource(s)=[{resources}])"
                    );
                    return Some(plain(StatusCode::INTERNAL_SERVER_ERROR, text));
                }
            }
        }
        let (name, resources) = (&user.name, subresources.join(" "));
        let text = format!("Forbidden (user={name}, verb={verb}, resource=nodes, subresource(s)=[{resources}])");
        Some(plain(StatusCode::FORBIDDEN, text))
    }

    fn behaviour_settings(&self) -> &BehaviourSettings {
        &self.cluster.template.pods
    }

    async fn allowed(&self, asked: NodePage, node: Option<String>, request: Request<Incoming>) -> KubeletResponse {
        match asked {
            NodePage::Healthz => plain(StatusCode::OK, "ok"),
            NodePage::Configz => json(configuration(&node).to_string()),
            NodePage::Pods | NodePage::RunningPods | NodePage::Metrics(_) | NodePage::Stats => {
                let pods = match self.cluster.pods(node.as_deref()).await {
                    Ok(pods) => pods,
                    Err(error) => return fault(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
                };
                self.about(&asked, pods, node.as_deref().unwrap_or_default())
            }
            NodePage::Logs(target) => match self.pod(&target, node.as_deref()).await {
                Ok(pod) => match logs::LogOptions::of(&Query::of(request.uri().query())) {
                    Ok(options) => {
                        logs::answer(&self.containers, self.behaviour_settings(), &pod, &target, options).await
                    }
                    Err((code, text)) => fault(code, text),
                },
                Err(Some(answer)) => answer,
                Err(None) => fault(StatusCode::NOT_FOUND, &format!("pod {:?} does not exist\n", target.pod)),
            },
            NodePage::Exec(target) => {
                let command = Query::of(request.uri().query()).all("command").to_vec();
                self.command(&target, node.as_deref(), Some(command), request).await
            }
            NodePage::Attach(target) => self.command(&target, node.as_deref(), None, request).await,
            NodePage::Run(target) => match self.pod(&target, node.as_deref()).await {
                Ok(pod) => {
                    let query = Query::of(request.uri().query());
                    remote::run_whole(&self.containers, &self.sessions, &pod, &target, &query).await
                }
                Err(answer) => answer.unwrap_or_else(missing),
            },
            NodePage::Forward(target) => match self.pod(&target, node.as_deref()).await {
                Ok(pod) => forward::answer(&self.sessions, self.behaviour_settings(), &pod, request).await,
                Err(answer) => answer.unwrap_or_else(missing),
            },
        }
    }

    async fn command(
        &self,
        target: &ContainerTarget,
        node: Option<&str>,
        command: Option<Vec<String>>,
        request: Request<Incoming>,
    ) -> KubeletResponse {
        match self.pod(target, node).await {
            Ok(pod) => remote::answer(&self.containers, &self.sessions, &pod, target, command, request).await,
            Err(answer) => answer.unwrap_or_else(missing),
        }
    }

    /// The pod that a request names, if it is on this node. Returns `Err(None)` if the pod is on another node.
    async fn pod(&self, target: &ContainerTarget, node: Option<&str>) -> Result<Value, Option<KubeletResponse>> {
        let pod = match self.cluster.pod(&target.namespace, &target.pod).await {
            Ok(pod) => pod.ok_or(None)?,
            Err(error) => return Err(Some(fault(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()))),
        };
        let is_it = target.uid.as_ref().is_none_or(|uid| pod["metadata"]["uid"] == uid.as_str());
        let is_here = match node {
            Some(node) => pod["spec"]["nodeName"] == node,
            None => pod["spec"]["nodeName"].is_string(),
        };
        if is_it && is_here { Ok(pod) } else { Err(None) }
    }

    fn about(&self, asked: &NodePage, pods: Vec<Value>, node: &str) -> KubeletResponse {
        let told = self.behaviour_settings();
        match asked {
            NodePage::Metrics(what) => match what.as_str() {
                "resource" => exposition(metrics::resource(&pods, told)),
                "cadvisor" => exposition(metrics::cadvisor(&pods, told)),
                "" => exposition(metrics::process_metrics(&pods, told)),
                _ => exposition(String::new()),
            },
            NodePage::Stats => json(metrics::summary(&pods, told, node).to_string()),
            _ => {
                let runs = |pod: &Value| pod["status"]["phase"] == "Running";
                let all = matches!(asked, NodePage::Pods);
                let items: Vec<Value> = pods.into_iter().filter(|pod| all || runs(pod)).collect();
                let list = document!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items});
                json(list.to_string())
            }
        }
    }
}

fn missing() -> KubeletResponse {
    fault(StatusCode::NOT_FOUND, "pod does not exist")
}

/// The node to which a request is made, from the request's Host header, because several nodes may share an address.
fn node_of<B>(request: &Request<B>) -> Option<String> {
    let host = request.headers().get(header::HOST)?.to_str().ok()?;
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let is_address = name.parse::<IpAddr>().is_ok() || name.starts_with('[') || name == "localhost";
    (!name.is_empty() && !is_address).then(|| name.to_owned())
}

/// The document of the page `/configz`.
fn configuration(node: &Option<String>) -> Value {
    document!({"kubeletconfig": {
        "kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true}},
        "authorization": {"mode": "Webhook"}, "clusterDomain": "cluster.local", "maxPods": 110,
        "enableDebuggingHandlers": true, "enableServer": true, "streamingConnectionIdleTimeout": "4h0m0s",
        "containerRuntimeEndpoint": "simulated: no container runs here",
        "providerID": node.as_deref().map(|node| format!("simulated://{node}")).unwrap_or_default(),
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_told_by_its_name() {
        for (host, expected) in [
            ("node-0:10250", Some("node-0")),
            ("node-0", Some("node-0")),
            ("172.16.0.1:10250", None),
            ("[::1]:10250", None),
            ("localhost:1", None),
        ] {
            let request = Request::get("/").header(header::HOST, host).body(()).expect("a request");
            assert_eq!(node_of(&request).as_deref(), expected, "{host}");
        }
    }
}
