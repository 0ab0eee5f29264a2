//! Requests that are forwarded to a node, a pod or a Service.

use super::links::{self, Way};
use super::{Answered, Outing, failed, keeping, ruled, unreached, upgrade};
use crate::aggregate::{passed_on, say_client, strip};
use crate::respond::Response;
use bytes::Buf;
use futures_util::{Stream, StreamExt};
use holdfast_core::Refusal;
use holdfast_core::kinds::Destination;
use holdfast_core::refusal::RulingKind;
use holdfast_outbound::kubelets::{Kubelet, Unreached, send};
use holdfast_outbound::{Link, OutBody};
use http::header::{self, HeaderName, HeaderValue, LOCATION};
use http::{Method, Request, StatusCode, Uri};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use std::net::IpAddr;
use warp::Reply as _;

/// The server to which a request is forwarded.
struct Goal<'a> {
    scheme: &'static str,
    /// The host and the port, as in URLs.
    authority: String,
    server: Server<'a>,
}

enum Server<'a> {
    Kubelet(Kubelet<'a>),
    /// Another server within the cluster, which gets no credentials.
    Other {
        host: String,
        port: u16,
    },
}

impl Goal<'_> {
    async fn dial(&self, outing: &Outing<'_>) -> Result<Link, Unreached> {
        match &self.server {
            Server::Kubelet(kubelet) => kubelet.dial(false).await,
            Server::Other { host, port } => outing.kubelets().dial_server(host, *port, self.scheme == "https").await,
        }
    }
}

pub async fn answer<B, D, E>(outing: Outing<'_>, body: Option<B>) -> Result<Answered, Refusal>
where
    B: Stream<Item = Result<D, E>> + Send + 'static,
    D: Buf,
    E: std::fmt::Display,
{
    let kubelets = outing.kubelets().clone();
    let goal = goal(&kubelets, &outing.way.destination)?;
    let (prefix, rest) = cut(&outing.head.path, !outing.way.is_namespaced);
    let query = if outing.head.query.is_empty() { String::new() } else { format!("?{}", outing.head.query) };
    let target = format!("{}{query}", if rest.is_empty() { "/" } else { rest });
    if outing.head.upgrade.is_some() && holdfast_streams::upgrade::wire(&outing.head.headers).is_some() {
        let link = goal.dial(&outing).await.map_err(unreached)?;
        let host = goal.authority.clone();
        return upgrade::pass(outing, link, &target, Some(&host)).await;
    }
    if rest.is_empty() && matches!(outing.head.method, Method::GET | Method::HEAD) {
        // Without the slash at the end, relative links of a page would lose the `proxy` segment.
        let mut response = super::empty(StatusCode::MOVED_PERMANENTLY);
        if let Ok(place) = HeaderValue::from_str(&format!("{}/{query}", outing.head.path)) {
            response.headers_mut().insert(LOCATION, place);
        }
        return Ok(Answered::now(response));
    }
    let request = asked(&outing, &goal, &target, prefix, body)?;
    let link = match goal.dial(&outing).await {
        Ok(link) => link,
        Err(Unreached::NotDialled(why)) => return Err(no_service(&why)),
        Err(why) => return Err(unreached(why)),
    };
    let response = match send(link, Some(&goal.authority), request, true).await {
        Ok(response) => response,
        Err(why) => return Err(no_service(&why.to_string())),
    };
    let response = passed_on(response, false, Some(outing.lifecycle));
    let host = outing.head.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let way = Way { authority: goal.authority.clone(), host: host.to_owned(), prefix: prefix.to_owned() };
    let response = lead_back(response, way, outing.head.method == Method::HEAD);
    let (ends, kept) = outing.keep();
    Ok(Answered { response: keeping(response, kept), ends: Some(ends) })
}

fn no_service(why: &str) -> Refusal {
    ruled(RulingKind::Unavailable, "ServiceUnavailable", format!("error trying to reach service: {why}"))
}

fn goal<'a>(
    kubelets: &'a holdfast_outbound::kubelets::Kubelets,
    destination: &Destination,
) -> Result<Goal<'a>, Refusal> {
    let other = |host: String, port: Option<u16>, is_secure: bool| {
        let scheme = if is_secure { "https" } else { "http" };
        let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let authority = port.map_or(shown.clone(), |port| format!("{shown}:{port}"));
        let port = port.unwrap_or(if is_secure { 443 } else { 80 });
        Goal { scheme, authority, server: Server::Other { host, port } }
    };
    match destination {
        Destination::Server { is_secure, host, port } => Ok(other(IpAddr::to_string(host), *port, *is_secure)),
        Destination::Node { machine, is_secure, port } => {
            let kubelet = kubelets.find(machine).map_err(unreached)?;
            match port {
                Some(port) if !kubelet.listens_on(*port) => {
                    if kubelet.is_inside() {
                        return Err(ruled(RulingKind::BadRequest, "BadRequest", "address not allowed"));
                    }
                    Ok(other(kubelet.host().to_owned(), Some(*port), *is_secure))
                }
                _ => {
                    let (scheme, authority) = (kubelet.scheme(), kubelet.authority());
                    Ok(Goal { scheme, authority, server: Server::Kubelet(kubelet) })
                }
            }
        }
        _ => Err(Refusal::NoSuchPath),
    }
}

/// Splits a path after `proxy` into two parts, which stay as the client wrote them.
fn cut(path: &str, is_cluster: bool) -> (&str, &str) {
    // The path is `/api/v1/nodes/NAME/proxy`, or has `namespaces/NAME` before the resource.
    let names = if is_cluster { 5 } else { 7 };
    let mut slashes = path.char_indices().filter(|(_, letter)| *letter == '/').map(|(at, _)| at);
    match slashes.nth(names) {
        Some(at) => path.split_at(at),
        None => (path, ""),
    }
}

/// Makes the forwarded request from the client's request.
fn asked<B, D, E>(
    outing: &Outing<'_>,
    goal: &Goal<'_>,
    target: &str,
    prefix: &str,
    body: Option<B>,
) -> Result<Request<OutBody>, Refusal>
where
    B: Stream<Item = Result<D, E>> + Send + 'static,
    D: Buf,
    E: std::fmt::Display,
{
    let mut headers = outing.headers();
    strip(&mut headers, false);
    say_client(&mut headers, outing.head.client);
    let uri = format!("{prefix}{}", target.split('?').next().unwrap_or_default());
    for (name, value) in [
        ("x-forwarded-uri", uri.as_str()),
        ("x-forwarded-host", goal.authority.as_str()),
        ("x-forwarded-proto", goal.scheme),
        ("audit-id", outing.id),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    let has_body =
        headers.contains_key(header::CONTENT_LENGTH) || outing.head.headers.contains_key("transfer-encoding");
    let silent = matches!(outing.head.method, Method::GET | Method::HEAD) && !has_body;
    let body: OutBody = match body.filter(|_| !silent) {
        Some(body) => {
            let pieces = body.map(|piece| match piece {
                Ok(mut piece) => Ok(Frame::data(piece.copy_to_bytes(piece.remaining()))),
                Err(error) => Err(error.to_string().into()),
            });
            BodyExt::boxed_unsync(StreamBody::new(pieces))
        }
        None => {
            headers.remove(header::CONTENT_LENGTH);
            super::without_body()
        }
    };
    let mut request = Request::new(body);
    *request.method_mut() = outing.head.method.clone();
    *request.uri_mut() = target.parse::<Uri>().map_err(|error| failed(format!("{target:?}: {error}")))?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Rewrites a redirect, and the links of a page, so that they lead through this server.
fn lead_back(mut response: Response, way: Way, is_bare: bool) -> Response {
    let place = response.headers().get(LOCATION).and_then(|place| place.to_str().ok());
    if let Some(place) = place.and_then(|place| way.lead_back(place))
        && let Ok(place) = HeaderValue::from_str(&place)
    {
        response.headers_mut().insert(LOCATION, place);
    }
    let Some(coding) = links::page(response.headers()).filter(|_| !is_bare) else { return response };
    let (mut parts, body) = response.into_parts();
    // The rewritten page is longer, and is sent without compression, so these headers no longer hold.
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::CONTENT_ENCODING);
    let pieces = links::rewritten(body.into_data_stream(), coding, way);
    let (_, body) = warp::reply::stream(pieces).into_response().into_parts();
    Response::from_parts(parts, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_behind_the_proxy() {
        for (path, is_cluster, expected) in [
            ("/api/v1/nodes/n/proxy", true, ("/api/v1/nodes/n/proxy", "")),
            ("/api/v1/nodes/n/proxy/", true, ("/api/v1/nodes/n/proxy", "/")),
            ("/api/v1/nodes/n/proxy/a%2Fb//c/", true, ("/api/v1/nodes/n/proxy", "/a%2Fb//c/")),
            ("/api/v1/namespaces/s/pods/p/proxy", false, ("/api/v1/namespaces/s/pods/p/proxy", "")),
            ("/api/v1/namespaces/s/pods/p:80/proxy/x", false, ("/api/v1/namespaces/s/pods/p:80/proxy", "/x")),
        ] {
            assert_eq!(cut(path, is_cluster), expected);
        }
    }
}
