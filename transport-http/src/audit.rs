//! The parts of an audit event that only the transport has: the origin of the request, and the response.

use crate::lists;
use crate::respond::{self, Encoding, Response, Shape};
use crate::route::Route;
use crate::status::{self, Status};
use crate::transport::Transport;
use crate::understood::Understood;
use holdfast_audit::{Deadline, RequestEnd, Trail};
use holdfast_core::Refusal;
use holdfast_core::list::Page;
use holdfast_core::refusal::Timeout;
use holdfast_service::{Listed, Reply, Source};
use holdfast_tls::front_proxy::text;
use holdfast_value::Value;
use http::HeaderMap;
use http::header::{HeaderName, USER_AGENT};
use http_body_util::BodyExt;
use jiff::Timestamp;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// The header with the client's address, and the addresses of the proxies between client and server.
pub const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The header in which a proxy names only the client's address.
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The origin of a request, as audit events show it.
pub fn source(path: &str, query: &str, headers: &HeaderMap, client: Option<SocketAddr>) -> Source {
    let uri = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let said = |name: HeaderName| headers.get(name).map(text);
    let address = |text: &str| text.trim().parse::<IpAddr>().ok();
    let mut addresses: Vec<IpAddr> =
        said(FORWARDED_FOR).map(|list| list.split(',').filter_map(address).collect()).unwrap_or_default();
    let peer = client.map(|client| client.ip().to_canonical());
    for address in said(REAL_IP).as_deref().and_then(address).into_iter().chain(peer) {
        if addresses.last() != Some(&address) {
            addresses.push(address);
        }
    }
    let agent = said(USER_AGENT).unwrap_or_default();
    let (authentication, deadline) = (Duration::ZERO, None);
    Source { received: Timestamp::now(), uri, addresses, agent, authentication, deadline }
}

/// The deadline of a request that may take this long, with the end that audit records if the deadline passes.
pub fn deadline(patience: Duration) -> Deadline {
    Deadline { at: Instant::now() + patience, ended: || ended(&Refusal::Timeout(Timeout::Backend)) }
}

/// The end of a refused request, as its audit event shows it.
pub fn ended(refusal: &Refusal) -> RequestEnd {
    let Status { code, document, .. } = Status::from(refusal);
    RequestEnd { code, status: Some(document.clone()), object: Some(document) }
}

/// Records the end of a request if the reply ends the request. Otherwise the trail is returned or moved into the reply,
/// and the end of the response is recorded later.
pub async fn tell(
    transport: &Transport,
    mut trail: Box<Trail>,
    reply: &mut Result<Reply, Refusal>,
    Understood { route, shape, .. }: &Understood,
) -> Option<Box<Trail>> {
    let (lasting, shape) = (is_lasting(route), *shape);
    let code = status::code(reply.as_ref());
    let ended = match reply {
        Ok(Reply::Granted(_)) => return Some(trail),
        Ok(Reply::Connect(way)) => {
            way.trail = Some(trail);
            return None;
        }
        Ok(Reply::Watch(watched)) => {
            trail.start(RequestEnd { code, ..RequestEnd::default() }).await;
            watched.trail = Some(trail);
            return None;
        }
        Ok(Reply::Deleted { subject, uid }) => {
            let status = Value::Object(status::deleted(subject, uid));
            RequestEnd { code, object: Some(status.clone()), status: Some(status) }
        }
        Ok(Reply::Success { .. }) => {
            let status = Value::Object(status::success(code));
            RequestEnd { code, object: Some(status.clone()), status: Some(status) }
        }
        Ok(reply) => {
            let object = match trail.wants_response().then(|| shown(transport, reply, shape)).flatten() {
                Some(Shown::Document(document)) => Some(document),
                Some(Shown::Answer(answer)) => read(answer).await,
                None => None,
            };
            RequestEnd { code, status: None, object }
        }
        Err(refusal) => ended(refusal),
    };
    if lasting {
        trail.start(ended.clone()).await;
    }
    trail.end(ended).await;
    None
}

/// Whether responses of the subresource may last for an unlimited time.
fn is_lasting(route: &Route) -> bool {
    let Route::Resource { path, .. } = route else { return false };
    matches!(path.subresource.as_str(), "attach" | "exec" | "log" | "portforward" | "proxy")
}

/// The response's document, or a response whose body is a document.
enum Shown {
    Document(Value),
    Answer(Response),
}

fn shown(transport: &Transport, reply: &Reply, shape: Shape) -> Option<Shown> {
    let shape = Shape { encoding: Encoding::Json, pretty: false, gzip: false, ..shape };
    let (code, now) = (status::code(Ok(reply)), transport.engine().stamp().seconds());
    Some(Shown::Answer(match reply {
        Reply::Object(object) => respond::object(&object.kind, object.version, &object.entry, code, shape, now),
        Reply::List(Listed { kind, version, page, continue_token, .. }) => {
            let (offset, remaining) = (page.offset, page.remaining);
            let page = Page { offset, entries: page.entries.clone(), next: None, remaining };
            let head = lists::Head { continue_token: continue_token.clone(), self_link: String::new() };
            lists::list(kind, *version, page, &head, shape, now)
        }
        Reply::Draft(draft) => respond::draft(draft, code, shape, now),
        Reply::Document { document, .. } => return Some(Shown::Document(Value::Object(document.clone()))),
        Reply::Success { .. } | Reply::Deleted { .. } | Reply::Watch(_) => return None,
        Reply::Granted(_) | Reply::Connect(_) => return None,
    }))
}

async fn read(answer: Response) -> Option<Value> {
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    serde_json::from_slice(&body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_is_named_in_any_letters() {
        let mut headers = HeaderMap::new();
        let bytes = |bytes: &[u8]| http::HeaderValue::from_bytes(bytes).expect("a value");
        headers.insert(USER_AGENT, bytes("bücher/1".as_bytes()));
        headers.insert(FORWARDED_FOR, bytes(b"\xff, 1.2.3.4"));
        let source = source("/a", "", &headers, None);
        assert_eq!((source.agent.as_str(), source.addresses.len()), ("bücher/1", 1));
    }

    #[test]
    fn addresses_are_those_of_the_client_and_of_the_proxies_between() {
        let peer = Some("[::ffff:10.0.0.9]:1234".parse().expect("an address"));
        for (headers, expected) in [
            (vec![], vec!["10.0.0.9"]),
            (vec![("x-forwarded-for", "1.2.3.4, rubbish,10.0.0.9")], vec!["1.2.3.4", "10.0.0.9"]),
            (vec![("x-forwarded-for", "1.2.3.4"), ("x-real-ip", "5.6.7.8")], vec!["1.2.3.4", "5.6.7.8", "10.0.0.9"]),
            (vec![("x-real-ip", "5.6.7.8")], vec!["5.6.7.8", "10.0.0.9"]),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(name, value.parse().expect("a value"));
            }
            let addresses = source("/a", "b=c", &map, peer).addresses;
            assert_eq!(addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>(), expected);
        }
    }
}
