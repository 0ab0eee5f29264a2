//! Traces: a span for each sampled request, in the terms of OpenTelemetry and of W3C's `traceparent`.
//!
//! This module begins and ends spans, and passes ended spans on to be exported.

use crate::route::Route;
use holdfast_core::authz::User;
pub use holdfast_outbound::trace::{Context, Side, Span, Take};
use http::{HeaderMap, Method};
use std::time::SystemTime;

/// Users in these groups may continue their own trace with a request. Requests of other users begin a new trace.
const MAY_ASK: [&str; 2] = ["system:masters", "system:monitoring"];
const MILLION: u64 = 1_000_000;

/// Chooses the requests that are traced, and takes their spans.
#[derive(Clone)]
pub struct Tracer {
    /// How many of a million requests are sampled. If a request continues its client's trace, the client decides
    /// whether the request is sampled.
    pub per_million: u32,
    pub take: Take,
}

/// The client's trace that the request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parent {
    trace: u128,
    id: u64,
    sampled: bool,
}

/// A sampled request. Its span is exported when the request has [ended](Self::end).
pub struct Following {
    span: Span,
    take: Take,
}

impl Tracer {
    /// Begins the span of a request, if the request is sampled. Each drawn number is random.
    pub fn begin(
        &self,
        (method, path, route): (&Method, &str, &Route),
        headers: &HeaderMap,
        user: &User,
        mut draw: impl FnMut() -> u64,
    ) -> Option<Following> {
        let may_ask = user.groups.iter().any(|group| MAY_ASK.contains(&group.as_str()));
        let parent = headers.get("traceparent").and_then(|value| parse(value.to_str().ok()?)).filter(|_| may_ask);
        let trace = match parent {
            Some(parent) => parent.trace,
            None => (u128::from(draw()) << 64 | u128::from(draw())).max(1),
        };
        let sampled = match parent {
            Some(parent) => parent.sampled,
            // The low bits of the trace id decide, as in other servers of a trace.
            None => (trace as u64 >> 1) % MILLION < u64::from(self.per_million),
        };
        if !sampled {
            return None;
        }
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
        let now = SystemTime::now();
        let span = Span {
            side: Side::Server,
            trace,
            id: draw().max(1),
            parent: parent.map_or(0, |parent| parent.id),
            name: name(method, route),
            began: now,
            ended: now,
            code: 0,
            attributes: vec![
                ("http.request.method", method.to_string()),
                ("url.path", path.to_owned()),
                ("url.scheme", "https".into()),
                ("user_agent.original", text("user-agent")),
            ],
        };
        Some(Following { span, take: self.take.clone() })
    }
}

impl Following {
    /// The trace context that is sent with calls that this server makes for the request.
    pub fn context(&self) -> Context {
        Context { trace: self.span.trace, id: self.span.id, take: self.take.clone() }
    }

    pub fn end(mut self, code: u16, audit_id: &str) {
        self.span.ended = SystemTime::now();
        self.span.code = code;
        self.span.attributes.push(("audit-id", audit_id.to_owned()));
        (self.take)(self.span);
    }
}

/// The name of a span, such as `GET /apis/apps/v1/namespaces/{:namespace}/deployments/{:name}`. All objects of a kind
/// have one name.
fn name(method: &Method, route: &Route) -> String {
    let Route::Resource { path, .. } = route else { return method.to_string() };
    let prefix = match path.group.as_str() {
        "" => format!("/api/{}", path.version),
        group => format!("/apis/{group}/{}", path.version),
    };
    let within = if path.within { "/namespaces/{:namespace}" } else { "" };
    let one = if path.name.is_empty() { "" } else { "/{:name}" };
    let part = if path.subresource.is_empty() { String::new() } else { format!("/{}", path.subresource) };
    format!("{method} {prefix}{within}/{}{one}{part}", path.resource)
}

/// Parses `00-TRACE-SPAN-FLAGS`; a later version may append more.
fn parse(text: &str) -> Option<Parent> {
    let mut parts = text.split('-');
    let (version, trace, id, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_well_formed = is_hex(version, 2) && is_hex(trace, 32) && is_hex(id, 16) && is_hex(flags, 2);
    if !is_well_formed || version == "ff" || version == "00" && parts.next().is_some() {
        return None;
    }
    let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
    let id = u64::from_str_radix(id, 16).ok().filter(|id| *id != 0)?;
    let sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
    Some(Parent { trace, id, sampled })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use std::sync::{Arc, Mutex};

    const TRACE: u128 = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn headers_of_others_are_read_or_left() {
        assert_eq!(parse(PARENT), Some(Parent { trace: TRACE, id: 0xb7ad_6b71_6920_3331, sampled: true }));
        assert!(!parse(&format!("{}00", &PARENT[..53])).unwrap().sampled);
        assert!(parse(&format!("01{}-more", &PARENT[2..])).is_some());
        for text in ["", "00", &format!("{PARENT}-more"), &PARENT.to_uppercase(), &format!("ff{}", &PARENT[2..])] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("00-00000000000000000000000000000000-b7ad6b7169203331-01"), None);
    }

    #[test]
    fn the_trusted_say_what_is_followed_and_the_rate_says_the_rest() {
        let seen: Arc<Mutex<Vec<Span>>> = Arc::default();
        let kept = seen.clone();
        let take = Arc::new(move |span| kept.lock().unwrap().push(span));
        let follow = |per_million: u32, group: &str, parent: Option<&'static str>| {
            let tracer = Tracer { per_million, take: take.clone() };
            let headers: HeaderMap = parent
                .into_iter()
                .map(|text| (http::HeaderName::from_static("traceparent"), HeaderValue::from_static(text)))
                .collect();
            let path = "/apis/apps/v1/namespaces/a/deployments/b/scale";
            let route = Route::new(&Method::GET, path, false);
            let following = tracer.begin((&Method::GET, path, &route), &headers, &User::new("jane", &[group]), || 7);
            following.map(|following| following.end(200, "id"))?;
            seen.lock().unwrap().pop()
        };
        let span = follow(0, "system:masters", Some(PARENT)).expect("it is followed");
        assert_eq!((span.trace, span.parent, span.code), (TRACE, 0xb7ad_6b71_6920_3331, 200));
        assert_eq!(span.name, "GET /apis/apps/v1/namespaces/{:namespace}/deployments/{:name}/scale");
        assert_eq!(follow(0, "system:authenticated", Some(PARENT)), None);
        let own = follow(1_000_000, "system:authenticated", Some(PARENT)).expect("all are followed");
        assert_eq!((own.trace, own.parent), (7 << 64 | 7, 0));
        assert_eq!(follow(3, "x", None), None);
        assert!(follow(4, "x", None).is_some());
        let unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        assert_eq!(follow(1_000_000, "system:masters", Some(unsampled)), None);
    }
}
