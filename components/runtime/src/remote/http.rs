//! One request to an API server, and its answer.

use ::http::{Method, Request, StatusCode, header};
use bytes::Bytes;
use holdfast_world::{Key, Refusal, Resource};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;

/// The largest answer that is read as a whole, in bytes.
const ANSWER_BYTES_MAX: usize = 256 << 20;
pub(super) const JSON: &str = "application/json";

/// The refusal that stands for a request without a usable answer.
pub fn fault(error: impl std::fmt::Display) -> Refusal {
    Refusal { message: error.to_string(), ..Refusal::default() }
}

/// The path of the objects of a resource: of one namespace, or of all namespaces if `namespace` is empty.
pub(super) fn collection(resource: &Resource, namespace: &str) -> String {
    let (group, version, plural) = (resource.group(), resource.version(), resource.plural());
    let root = match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    match resource.namespaced() && !namespace.is_empty() {
        true => format!("{root}/namespaces/{namespace}/{plural}"),
        false => format!("{root}/{plural}"),
    }
}

pub(super) fn object(resource: &Resource, key: &Key) -> String {
    format!("{}/{}", collection(resource, &key.namespace), key.name)
}

/// Sends a request, and returns the answer. The caller reads the answer's body.
pub(super) async fn send(
    client: &Client,
    (method, path): (Method, &str),
    accept: &str,
    body: Option<(&str, Vec<u8>)>,
) -> Result<::http::Response<Body>, Refusal> {
    let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
    let bytes = body.map(|(content_type, bytes)| {
        let headers = request.headers_mut();
        if let (Some(headers), Ok(value)) = (headers, content_type.parse()) {
            headers.insert(header::CONTENT_TYPE, value);
        }
        bytes
    });
    let request = request.body(Body::from(bytes.unwrap_or_default())).map_err(fault)?;
    let answer = client.send(request).await.map_err(fault)?;
    match answer.status() {
        status if status.is_success() => Ok(answer),
        status => {
            let bytes = read(answer).await.unwrap_or_default();
            Err(refusal(status, &bytes))
        }
    }
}

/// Reads the whole body of an answer.
pub(super) async fn read(answer: ::http::Response<Body>) -> Result<Bytes, Refusal> {
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    Ok(body.map_err(fault)?.to_bytes())
}

pub(super) async fn get(client: &Client, path: &str, accept: &str) -> Result<Bytes, Refusal> {
    read(send(client, (Method::GET, path), accept, None).await?).await
}

/// The refusal in an answer that reports a failure. If the body has no message, the message is in the wording of Go's
/// client.
pub fn refusal(status: StatusCode, bytes: &[u8]) -> Refusal {
    let said = serde_json::from_slice::<StatusBody>(bytes).unwrap_or_default();
    let message = match said.message.as_str() {
        "" if status == StatusCode::NOT_FOUND => "the server could not find the requested resource".to_owned(),
        "" => format!("the server answered {status}"),
        _ => said.message,
    };
    let causes = said.details.unwrap_or_default().causes.into_iter().map(|cause| cause.reason).collect();
    Refusal::of_status(&said.reason, status.as_u16(), message, causes)
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct StatusBody {
    pub code: u16,
    pub reason: String,
    pub message: String,
    pub details: Option<Details>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Details {
    pub uid: String,
    causes: Vec<StatusCause>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusCause {
    reason: String,
}

/// The fields of an object's metadata that identify the object and its version.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ObjectIdentity {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
}

impl ObjectIdentity {
    pub fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    pub fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct PartialObject {
    pub kind: String,
    pub metadata: ObjectIdentity,
    pub details: Option<Details>,
}
