//! The log of a container, as its kubelet sends it: as a plain answer, or over a WebSocket.

use super::client::upgraded;
use super::{Answered, Kept, Outing, beginning, failed, not_upgraded, request, ruled, unreached};
use crate::respond::Response;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};
use holdfast_core::Refusal;
use holdfast_core::kinds::Destination;
use holdfast_core::refusal::{GivenCode, Ruling, RulingKind};
use holdfast_outbound::kubelets::{Unreached, send};
use holdfast_streams::ConnectionLimits;
use holdfast_streams::upgrade::{self, UpgradeProtocol};
use holdfast_streams::websocket::{MessageForm, send_all};
use holdfast_value::json;
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LOCATION, USER_AGENT};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio_util::io::StreamReader;
use warp::Reply as _;

/// The maximum number of bytes of a kubelet's error text that are passed on.
const WORDS_BYTES_MAX: usize = 50_000;

pub async fn answer(mut outing: Outing<'_>) -> Result<Answered, Refusal> {
    let Destination::Kubelet { machine, path, query } = &outing.way.destination else {
        return Err(Refusal::NoSuchPath);
    };
    let socket = match upgrade::wire(&outing.head.headers) {
        Some(UpgradeProtocol::WebSocket) if outing.head.upgrade.is_some() => {
            match upgrade::agree(&outing.head.headers, &[], upgrade::LOG_WEBSOCKET) {
                Ok(agreed) => Some(agreed),
                Err(refusal) => return Ok(Answered::now(not_upgraded(refusal))),
            }
        }
        _ => None,
    };
    let is_asked = outing.way.options.flag("insecureSkipTLSVerifyBackend");
    let is_insecure = is_asked && outing.connections.gates.may_trust_any;
    let target = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
    let kubelet = outing.kubelets().find(machine).map_err(unreached)?;
    let url = format!("{}://{}{target}", kubelet.scheme(), kubelet.authority());
    let told = |why: Unreached| match why {
        Unreached::NotDialled(why) | Unreached::Unanswered(why) => failed(format!("Get {url:?}: {why}")),
        why => unreached(why),
    };
    outing.counts().log(is_asked, is_insecure);
    let link = kubelet.dial(is_insecure).await.map_err(told)?;
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static("kube-apiserver"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let answered = send(link, Some(&kubelet.authority()), request(Method::GET, &target, headers)?, false).await;
    let response = judged(answered.map_err(told)?, &url, outing.way).await?;
    let (ends, kept) = outing.keep();
    let log = until_stopped(&outing, response.into_body(), kept);
    let Some((answer, agreed)) = socket else {
        let mut answer = warp::reply::stream(log).into_response();
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        return Ok(Answered { response: answer, ends: Some(ends) });
    };
    let client = outing.head.upgrade.take().ok_or_else(|| failed("the connection cannot go on as a WebSocket"))?;
    outing.lifecycle.spawn_upgraded(async move {
        match upgraded(client).await {
            Ok(client) => {
                let source = StreamReader::new(Box::pin(log.map_err(std::io::Error::other)));
                send_all(client, MessageForm::of(&agreed.protocol), source, ConnectionLimits::default()).await;
            }
            Err(error) => tracing::debug!(%error, "a WebSocket was not opened"),
        }
    });
    let (parts, ()) = answer.into_parts();
    Ok(Answered { response: Response::from_parts(parts, Bytes::new().into()), ends: Some(ends) })
}

/// The pieces of a container's log, until the log ends or this server stops.
fn until_stopped(
    outing: &Outing<'_>,
    body: Incoming,
    kept: Kept,
) -> impl Stream<Item = Result<Bytes, hyper::Error>> + Send + Sync + 'static {
    body.into_data_stream().take_until(Box::pin(outing.lifecycle.stopped())).inspect(move |_| {
        // This use moves `kept` into the stream, so that its values are dropped with the stream.
        let _ = &kept;
    })
}

/// The answer if it is a success, otherwise the refusal for the client.
async fn judged(
    response: http::Response<Incoming>,
    url: &str,
    way: &holdfast_service::Connecting,
) -> Result<http::Response<Incoming>, Refusal> {
    let status = response.status();
    if status.is_redirection() && response.headers().contains_key(LOCATION) {
        return Err(failed(format!("Get {url:?}: redirects forbidden")));
    }
    if (200..=206).contains(&status.as_u16()) {
        return Ok(response);
    }
    let words = beginning(response.into_body(), WORDS_BYTES_MAX).await;
    let words = String::from_utf8_lossy(&words).into_owned();
    Err(match status {
        StatusCode::INTERNAL_SERVER_ERROR => {
            let details = json!({"causes": [{"message": words}]});
            let message = format!("Internal error occurred: {words}");
            let (kind, reason) = (RulingKind::Internal, "InternalError".to_owned());
            Refusal::Ruled(Box::new(Ruling { kind, reason, message, details }))
        }
        StatusCode::BAD_REQUEST => ruled(RulingKind::BadRequest, "BadRequest", words),
        status => unexpected(status, &words, way),
    })
}

/// The refusal for an unexpected answer of a kubelet, in the wording of Kubernetes' client.
fn unexpected(status: StatusCode, words: &str, way: &holdfast_service::Connecting) -> Refusal {
    let (reason, message) = match status.as_u16() {
        401 => ("Unauthorized", "the server has asked for the client to provide credentials".to_owned()),
        403 => ("Forbidden", words.to_owned()),
        404 => ("NotFound", "the server could not find the requested resource".to_owned()),
        405 => ("MethodNotAllowed", "the server does not allow this method on the requested resource".to_owned()),
        429 => {
            let message = "the server has received too many requests and has asked us to try again later";
            ("TooManyRequests", message.to_owned())
        }
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request".to_owned()),
        code if code >= 500 => {
            ("InternalError", format!("an error on the server ({words:?}) has prevented the request from succeeding"))
        }
        code => {
            ("Unknown", format!("the server responded with the status code {code} but did not return more details"))
        }
    };
    let message = format!("{message} ( {}/log {})", way.resource, way.name);
    let details = json!({
        "name": way.name, "kind": format!("{}/log", way.resource),
        "causes": [{"reason": "UnexpectedServerResponse", "message": words}],
    });
    let (kind, reason) = (RulingKind::Given(GivenCode(status.as_u16())), reason.to_owned());
    Refusal::Ruled(Box::new(Ruling { kind, reason, message, details }))
}
