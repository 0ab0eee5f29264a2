//! Rules for requests of all kinds: CORS and HSTS, time limits, and responses while the server shuts down.

use crate::query::Query;
use crate::respond::{self, Response};
use crate::route::Route;
use holdfast_core::Refusal;
use holdfast_core::object::duration;
use holdfast_core::refusal::BadRequest;
use holdfast_core::request::Verb;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER,
    STRICT_TRANSPORT_SECURITY,
};
use http::{HeaderMap, Method, StatusCode};
use regex::Regex;
use std::time::Duration;

/// The operator's settings of these rules.
#[derive(Debug, Clone)]
pub struct Manners {
    /// The origins whose pages may read responses, by the rules of CORS.
    pub origins: Vec<Regex>,
    /// The HSTS header. It makes browsers use only TLS for later requests.
    pub strict_transport: Option<HeaderValue>,
    /// The share of HTTP/2 requests whose response also ends the connection, from 0 to 1.
    pub goaway_chance: f64,
    /// The longest time of a request that is not long-running; zero for no limit.
    pub request_timeout: Duration,
}

impl Default for Manners {
    fn default() -> Manners {
        Manners {
            origins: Vec::new(),
            strict_transport: None,
            goaway_chance: 0.0,
            request_timeout: Duration::from_secs(60),
        }
    }
}

/// Marks a response that ends its connection: over any version of HTTP, or only over HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    Always,
    OverHttp2,
}

/// The CORS headers of a response to a page of another origin.
const CORS: [(HeaderName, &str); 4] = [
    (ACCESS_CONTROL_ALLOW_METHODS, "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
    (
        ACCESS_CONTROL_ALLOW_HEADERS,
        "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, \
         If-Modified-Since",
    ),
    (ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
    (ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
];

impl Manners {
    /// The origin of the page that sends the request, if it is allowed.
    pub fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if self.origins.is_empty() {
            return None;
        }
        let origin = headers.get(ORIGIN)?;
        let text = origin.to_str().ok()?;
        self.origins.iter().any(|allowed| allowed.is_match(text)).then(|| origin.clone())
    }

    /// The response to a CORS preflight request, which needs no authentication.
    pub fn preflight(method: &Method, origin: Option<&HeaderValue>) -> Option<Response> {
        let asks = origin.is_some() && *method == Method::OPTIONS;
        asks.then(|| {
            let mut response = respond::text(StatusCode::NO_CONTENT.as_u16(), "");
            response.headers_mut().remove(http::header::CONTENT_TYPE);
            response
        })
    }

    /// Adds the CORS and HSTS headers, and decides by chance whether the response ends its connection. `drawn` makes a
    /// random number.
    pub fn mark(&self, response: &mut Response, origin: Option<HeaderValue>, drawn: impl FnOnce() -> u64) {
        if let Some(origin) = origin {
            let headers = response.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            for (name, value) in CORS {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
        if let Some(directives) = &self.strict_transport {
            response.headers_mut().entry(STRICT_TRANSPORT_SECURITY).or_insert_with(|| directives.clone());
        }
        // 53 bits of the random number are used, because that is the precision of a float.
        if self.goaway_chance > 0.0 && ((drawn() >> 11) as f64) < self.goaway_chance * (1u64 << 53) as f64 {
            response.extensions_mut().insert(Farewell::OverHttp2);
        }
    }

    /// The longest time of this request; `None` if it is not limited.
    pub fn patience(&self, route: &Route, query: &Query) -> Result<Option<Duration>, Refusal> {
        if lasts(route) {
            return Ok(None);
        }
        let longest = Some(self.request_timeout).filter(|longest| !longest.is_zero());
        let asked = match query.get("timeout") {
            None | Some("") => return Ok(longest),
            Some(text) => duration::nanos(text).map_err(|why| Refusal::BadRequest(BadRequest::Timeout(why)))?,
        };
        let asked = u64::try_from(asked).ok().filter(|nanos| *nanos > 0).map(Duration::from_nanos);
        Ok(match (asked, longest) {
            (Some(asked), Some(longest)) => Some(asked.min(longest)),
            (asked, longest) => asked.or(longest),
        })
    }
}

/// Whether a request is long-running, so that its time is not limited.
pub fn lasts(route: &Route) -> bool {
    match route {
        Route::Resource { verb: Some(Verb::Watch), .. } => true,
        Route::Resource { path, .. } => {
            matches!(path.subresource.as_str(), "attach" | "exec" | "log" | "portforward" | "proxy")
        }
        // A client may follow the log like a watch, and making a fork takes as long as the disk needs.
        Route::Log(_) | Route::Forks(_) => true,
        Route::Page(path) => path.starts_with("/debug/pprof/"),
        _ => false,
    }
}

/// The response to a request while the server shuts down, unless the request is about health or metrics.
pub fn going(path: &str) -> Option<Response> {
    let is_asked_about = ["/healthz", "/livez", "/readyz", "/metrics"].iter().any(|looked| path.starts_with(looked));
    if is_asked_about {
        return None;
    }
    let mut response = respond::text(429, "The apiserver is shutting down, please try again later.\n");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    response.extensions_mut().insert(Farewell::Always);
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: &Method, path: &str, watch: bool) -> Route {
        Route::new(method, path, watch)
    }

    #[test]
    fn patience_is_the_shorter_of_what_is_asked_and_what_is_allowed() {
        let manners = Manners::default();
        let patience = |target: &str| {
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let query = Query::parse(query);
            manners.patience(&route(&Method::GET, path, query.flag("watch")), &query).map_err(|why| why.message())
        };
        let seconds = |seconds| Ok(Some(Duration::from_secs(seconds)));
        assert_eq!(patience("/api/v1/pods"), seconds(60));
        assert_eq!(patience("/api/v1/pods?timeout=5s"), seconds(5));
        assert_eq!(patience("/api/v1/pods?timeout=1h"), seconds(60));
        assert_eq!(patience("/api/v1/pods?timeout=-1s"), seconds(60));
        assert_eq!(patience("/api/v1/pods?timeout=0"), seconds(60));
        assert_eq!(patience("/api/v1/pods?watch=1"), Ok(None));
        assert_eq!(patience("/api/v1/namespaces/a/pods/b/log"), Ok(None));
        let refused = patience("/api/v1/pods?timeout=5").unwrap_err();
        assert!(refused.contains("invalid timeout specified in the request URL - time: missing unit"), "{refused}");
        let patient = Manners { request_timeout: Duration::ZERO, ..manners.clone() };
        let query = Query::parse("timeout=2m");
        let asked = patient.patience(&route(&Method::GET, "/version", false), &query);
        assert_eq!(asked.ok(), Some(Some(Duration::from_secs(120))));
    }

    #[test]
    fn pages_of_origins_that_match_may_read() {
        let manners =
            Manners { origins: vec![Regex::new(r"^https://.*\.example\.com$").unwrap()], ..Manners::default() };
        let origin = |text: &'static str| {
            let headers = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static(text))]);
            manners.origin(&headers)
        };
        assert!(origin("http://a.example.com").is_none());
        let allowed = origin("https://a.example.com").expect("it matches");
        assert!(Manners::preflight(&Method::GET, Some(&allowed)).is_none());
        assert_eq!(Manners::preflight(&Method::OPTIONS, Some(&allowed)).expect("an answer").status(), 204);
        assert!(Manners::preflight(&Method::OPTIONS, None).is_none());
        let mut response = respond::text(200, "ok");
        manners.mark(&mut response, Some(allowed.clone()), || 0);
        assert_eq!(response.headers()[ACCESS_CONTROL_ALLOW_ORIGIN], allowed);
        assert_eq!(response.headers()[ACCESS_CONTROL_EXPOSE_HEADERS], "Date");
    }

    #[test]
    fn a_share_of_the_answers_is_the_last_of_its_connection() {
        let manners = Manners { goaway_chance: 0.02, ..Manners::default() };
        let said = |drawn: u64| {
            let mut response = respond::text(200, "ok");
            manners.mark(&mut response, None, || drawn);
            response.extensions().get::<Farewell>().copied()
        };
        assert_eq!(said(0), Some(Farewell::OverHttp2));
        assert_eq!(said(u64::MAX / 51), Some(Farewell::OverHttp2));
        assert_eq!(said(u64::MAX / 49), None);
        assert_eq!(said(u64::MAX), None);
    }
}
