//! Requests of simulated kubelets to the API server, made to answer a client's request.

use holdfast_component::api::{Api, ApiError};
use holdfast_nodes::Template;
use holdfast_nodes::environment::{Sources, audiences, sources};
use holdfast_value::{Value, json};
use http::{Request, header};
use kube::client::Body;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a request to the API server may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long a token that is mounted in a container is valid, in seconds. As with kubelets, a new token is requested
/// after four fifths of this time.
const TOKEN_SECONDS: u64 = 3607;
pub const TOKENS_PERIOD: Duration = Duration::from_secs(TOKEN_SECONDS * 4 / 5);

/// The cluster to which the simulated nodes belong.
#[derive(Clone)]
pub struct Cluster {
    pub api: Api,
    /// The template of the simulated nodes. It has the behaviour of pods whose annotations do not specify any.
    pub template: Arc<Template>,
}

pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Whether a name needs no escaping in a path.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
}

impl Cluster {
    /// A pod; `None` if it does not exist.
    pub async fn pod(&self, namespace: &str, name: &str) -> Result<Option<Value>, ApiError> {
        if !is_plain(namespace) || !is_plain(name) {
            return Ok(None);
        }
        match self.api.get(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await {
            Ok(pod) => Ok(Some(pod)),
            Err(ApiError { code: Some(404), .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All pods of a node; if `node` is `None`, all pods of all nodes.
    pub async fn pods(&self, node: Option<&str>) -> Result<Vec<Value>, ApiError> {
        let selector = node.filter(|node| is_plain(node)).map(|node| format!("?fieldSelector=spec.nodeName={node}"));
        let list = self.api.get(&format!("/api/v1/pods{}", selector.unwrap_or_default())).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Reads the ConfigMaps, Secrets and Services that a container mounts or has in its environment. With `with_tokens`
    /// it also requests new tokens for the container. An object is left out if it does not exist, or if the account of
    /// the simulated nodes may not read it.
    pub async fn sources(&self, pod: &Value, container: &Value, with_tokens: bool) -> Sources {
        let mut found = Sources::default();
        for path in sources(pod, container) {
            match self.api.get(&path).await {
                Ok(object) => _ = found.objects.insert(path, object),
                Err(error) => tracing::debug!(%error, path, "a container's files lack an object"),
            }
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let meta = &pod["metadata"];
        let account = match text(&pod["spec"]["serviceAccountName"]) {
            name if name.is_empty() => "default".to_owned(),
            name => name,
        };
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", text(&meta["namespace"]));
        for audience in audiences(pod, container).into_iter().filter(|_| with_tokens) {
            let wanted: Vec<&str> =
                Some(audience.as_str()).filter(|audience| !audience.is_empty()).into_iter().collect();
            let request = json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": {"audiences": wanted, "expirationSeconds": TOKEN_SECONDS, "boundObjectRef": {
                    "apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}},
            });
            match self.api.post(&path, &request).await {
                Ok(made) => _ = found.tokens.insert(audience, text(&made["status"]["token"])),
                Err(error) => tracing::debug!(%error, path, "a container's token was not made"),
            }
        }
        found
    }

    /// Writes the status of a container that ended otherwise than its node had predicted.
    pub async fn report_end(&self, pod: &Value, patch: &Value) -> Result<(), String> {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let path =
            format!("/api/v1/namespaces/{}/pods/{}/status?fieldManager=kubelet", text("namespace"), text("name"));
        let request = Request::patch(path)
            .header(header::CONTENT_TYPE, "application/strategic-merge-patch+json")
            .body(Body::from(patch.to_string().into_bytes()))
            .map_err(|error| error.to_string())?;
        let sent = tokio::time::timeout(ANSWER_MAX, self.api.client().send(request)).await;
        let answer = sent.map_err(|_| "the API server did not answer")?.map_err(|error| error.to_string())?;
        if answer.status().is_success() { Ok(()) } else { Err(format!("the API server answered {}", answer.status())) }
    }
}
