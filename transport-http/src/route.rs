//! Parses a method and a path to a [`Route`]. Later code uses the route and no paths.
//!
//! The route contains whether a resource is within a namespace or cluster-scoped. So authorization judges the same
//! object on which the request then acts.

use crate::issuer::Document;
use holdfast_core::request::Verb;
use holdfast_service::ResourcePath;
pub use holdfast_tls::front_proxy::{decode, decode_key};
use http::Method;
use std::borrow::Cow;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Objects of a resource; `verb` is `None` if the method is no verb on them.
    Resource {
        verb: Option<Verb>,
        path: Arc<ResourcePath>,
    },
    /// The path `/`, whose document is the list of all paths.
    Root,
    /// OpenID discovery of this server as an issuer of tokens.
    Issuer(Document),
    Version,
    /// `/healthz`, `/livez` or `/readyz`, and a single check below it.
    Health {
        kind: &'static str,
        check: String,
    },
    Metrics,
    /// `/metrics/slis`: whether each health check passes.
    HealthMetrics,
    /// The program's debug pages: `/flagz`, `/statusz`, `/debug/…`.
    Page(String),
    Discovery(Discovery),
    OpenApiV2,
    /// The OpenAPI v3 index, or the document of one group version.
    OpenApiV3(String),
    /// The dumps of flow control, by the name of the table.
    FlowControl(String),
    /// The event log; the path after [`LOG`].
    Log(String),
    /// Forks; the name after [`FORKS`].
    Forks(String),
    Unknown,
}

/// The discovery documents of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discovery {
    /// The document of `/api`, which lists the versions of the core group.
    Core,
    /// The document of `/apis`, which lists all other groups.
    Groups,
    Group(String),
    /// The resources of one version; the core group's name is empty.
    Resources {
        group: String,
        version: String,
    },
}

/// The path below which the event log is read.
pub const LOG: &str = "/holdfast/v1/log";
/// The path at which forks are made, listed and ended.
pub const FORKS: &str = "/holdfast/v1/forks";
/// The prefix of the paths that a fork in memory serves; the fork's name follows.
pub const FORK: &str = "/forks/";
/// The prefix of paths in a view of the past; the moment follows.
const PAST: &str = "/at/";

/// Subresources of a namespace itself; any other third segment of such a path is a resource within the namespace.
const NAMESPACE_SUBRESOURCES: &[&str] = &["status", "finalize"];

impl Route {
    /// `path` is percent-decoded by segments; `watch` is true if the query requests a watch.
    pub fn new(method: &Method, path: &str, watch: bool) -> Route {
        let inner = path.trim_matches('/');
        let parts: Vec<Cow<'_, str>> = inner.split('/').map(decode).collect();
        let parts: Vec<&str> = parts.iter().map(|part| &**part).collect();
        let ends_with_slash = path.ends_with('/');
        match parts.as_slice() {
            _ if path.starts_with("//") => Route::Unknown,
            [""] => Route::Root,
            ["apis", "", ..] => Route::Unknown,
            ["api", version, rest @ ..] if !rest.is_empty() => resource(method, ("", version), rest, watch),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => resource(method, (group, version), rest, watch),
            ["api"] => Route::Discovery(Discovery::Core),
            ["apis"] => Route::Discovery(Discovery::Groups),
            ["api", version] => {
                Route::Discovery(Discovery::Resources { group: String::new(), version: (*version).to_owned() })
            }
            ["apis", group] => Route::Discovery(Discovery::Group((*group).to_owned())),
            ["apis", group, version] => {
                Route::Discovery(Discovery::Resources { group: (*group).to_owned(), version: (*version).to_owned() })
            }
            ["version"] => Route::Version,
            [".well-known", "openid-configuration"] => Route::Issuer(Document::Configuration),
            ["openid", "v1", "jwks"] => Route::Issuer(Document::Keys),
            ["holdfast", "v1", "forks", rest @ ..] => Route::Forks(rest.join("/")),
            ["holdfast", "v1", "log", rest @ ..] => Route::Log(rest.join("/")),
            // The paths of the next arms exist only without a trailing slash.
            _ if ends_with_slash => Route::Unknown,
            ["openapi", "v2"] => Route::OpenApiV2,
            ["openapi", "v3", rest @ ..] => Route::OpenApiV3(rest.join("/")),
            ["metrics"] => Route::Metrics,
            ["metrics", "slis"] => Route::HealthMetrics,
            ["debug", "api_priority_and_fairness", table] => Route::FlowControl((*table).to_owned()),
            ["configz" | "flagz" | "statusz"] | ["debug", ..] => Route::Page(format!("/{}", parts.join("/"))),
            ["healthz", rest @ ..] => Route::Health { kind: "healthz", check: rest.join("/") },
            ["livez", rest @ ..] => Route::Health { kind: "livez", check: rest.join("/") },
            ["readyz", rest @ ..] => Route::Health { kind: "readyz", check: rest.join("/") },
            _ => Route::Unknown,
        }
    }

    /// The group version that the request is about, if it is only one.
    pub fn group_version(&self) -> Option<(&str, &str)> {
        match self {
            Route::Resource { path, .. } => Some((&path.group, &path.version)),
            Route::Discovery(Discovery::Resources { group, version }) => Some((group, version)),
            Route::OpenApiV3(path) => match path.split('/').collect::<Vec<_>>().as_slice() {
                ["api", version] => Some(("", version)),
                ["apis", group, version] => Some((group, version)),
                _ => None,
            },
            _ => None,
        }
    }
}

fn resource(method: &Method, (group, version): (&str, &str), rest: &[&str], watch: bool) -> Route {
    let (mut is_watch_path, mut rest, mut within) = (false, rest, false);
    if let ["watch", below @ ..] = rest
        && !below.is_empty()
    {
        (is_watch_path, rest) = (true, below);
    }
    let mut namespace = "";
    if let ["namespaces", name, below @ ..] = rest {
        namespace = name;
        if below.first().is_some_and(|first| !NAMESPACE_SUBRESOURCES.contains(first)) {
            (rest, within) = (below, true);
        }
    }
    let part = |index: usize| rest.get(index).copied().unwrap_or("").to_owned();
    let path = ResourcePath {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        within,
        resource: part(0),
        name: part(1),
        subresource: part(2),
        rest: rest.get(3..).unwrap_or_default().join("/"),
    };
    let verb = match *method {
        // The deprecated watch paths have only this verb. Of all paths, only these may name a single object to watch.
        Method::GET if is_watch_path && path.subresource.is_empty() => Some(Verb::Watch),
        _ if is_watch_path => None,
        Method::GET if watch && path.name.is_empty() && path.subresource.is_empty() => Some(Verb::Watch),
        Method::GET if path.name.is_empty() => Some(Verb::List),
        Method::GET => Some(Verb::Get),
        Method::HEAD if path.subresource == "proxy" && !path.name.is_empty() => Some(Verb::Get),
        Method::POST => Some(Verb::Create),
        Method::PUT => Some(Verb::Update),
        Method::PATCH => Some(Verb::Patch),
        Method::DELETE if path.name.is_empty() => Some(Verb::DeleteCollection),
        Method::DELETE => Some(Verb::Delete),
        _ => None,
    };
    Route::Resource { verb, path: path.into() }
}

/// The verb of a method on a path that is no resource, for authorization and metrics.
pub fn method_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

/// Removes the moment of a view of the past from the beginning of the path, and returns the moment.
pub fn take_moment(path: &mut String) -> Option<String> {
    let rest = path.strip_prefix(PAST)?;
    let (moment, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let moment = decode(moment).into_owned();
    *path = if rest.is_empty() { "/".to_owned() } else { rest.to_owned() };
    Some(moment)
}

/// Splits the path of a fork in memory into the fork's name and the path within the fork.
pub fn fork(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix(FORK)?;
    Some(rest.split_at(rest.find('/').unwrap_or(rest.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        // Each case has a method, a path and whether the query asks for a watch. The expected text has the verb, the
        // group and version, the namespace (`+` for a path within it, `-` for a path outside), the resource, the name
        // and the subresource.
        let cases = [
            ("GET", "/api/v1/pods", false, "list /v1 - pods  "),
            ("GET", "/api/v1/pods", true, "watch /v1 - pods  "),
            ("GET", "/api/v1/namespaces", false, "list /v1 - namespaces  "),
            ("GET", "/api/v1/pods/", true, "watch /v1 - pods  "),
            ("GET", "/api/v1/namespaces/a/pods/b", true, "get /v1 a+ pods b "),
            ("GET", "/api/v1/namespaces//pods", false, "list /v1 + pods  "),
            ("GET", "/api/v1/namespaces//pods/b", false, "get /v1 + pods b "),
            ("GET", "/api/v1/namespaces/a/pods//log", false, "list /v1 a+ pods  log"),
            ("GET", "/api/v1//pods", false, "get /v1 -  pods "),
            ("GET", "/api//v1/pods", false, "get / - v1 pods "),
            ("GET", "/api/v1/namespaces/a//pods", false, "get /v1 a+  pods "),
            ("DELETE", "/api/v1/namespaces/a/pods//", false, "deletecollection /v1 a+ pods  "),
            ("GET", "/api/v1/watch/pods", false, "watch /v1 - pods  "),
            ("GET", "/api/v1/watch/nodes/b", false, "watch /v1 - nodes b "),
            ("GET", "/api/v1/namespaces/a", false, "get /v1 a- namespaces a "),
            ("PUT", "/api/v1/namespaces/a/finalize", false, "update /v1 a- namespaces a finalize"),
            ("GET", "/api/v1/namespaces/a/pods", false, "list /v1 a+ pods  "),
            ("GET", "/api/v1/namespaces/a/pods/b", false, "get /v1 a+ pods b "),
            ("GET", "/api/v1/namespaces/a/pods/b/log", false, "get /v1 a+ pods b log"),
            ("GET", "/api/v1/namespaces/a/pods/b/proxy/x/y", false, "get /v1 a+ pods b proxy"),
            ("DELETE", "/api/v1/namespaces/a/namespaces/b", false, "delete /v1 a+ namespaces b "),
            ("DELETE", "/api/v1/namespaces/a/namespaces", false, "deletecollection /v1 a+ namespaces  "),
            ("PUT", "/api/v1/namespaces/a/namespaces/b/finalize", false, "update /v1 a+ namespaces b finalize"),
            ("DELETE", "/apis/apps/v1/namespaces/a/deployments", false, "deletecollection apps/v1 a+ deployments  "),
            ("DELETE", "/apis/apps/v1/namespaces/a/deployments/b", false, "delete apps/v1 a+ deployments b "),
            ("GET", "/apis/apps/v1/watch/namespaces/a/deployments/b", false, "watch apps/v1 a+ deployments b "),
            ("PATCH", "/apis/x.io/v1/things/a%2Fb", false, "patch x.io/v1 - things a/b "),
        ];
        for (method, path, watch, expected) in cases {
            let Route::Resource { verb: Some(verb), path: found } = Route::new(&method.parse().unwrap(), path, watch)
            else {
                panic!("{path} is a resource");
            };
            let within = if found.within { "+" } else { "-" };
            let found = format!(
                "{} {}/{} {}{within} {} {} {}",
                verb.as_str(),
                found.group,
                found.version,
                found.namespace,
                found.resource,
                found.name,
                found.subresource
            );
            assert_eq!(found, expected, "{method} {path}");
        }
        for path in ["/", "/api", "/apis", "/apis/apps/v1", "/healthz", "/api/v1", "/version", "/api/"] {
            assert!(!matches!(Route::new(&Method::GET, path, false), Route::Resource { .. }), "{path}");
        }
        for (method, path) in [(Method::OPTIONS, "/api/v1/pods"), (Method::POST, "/api/v1/watch/namespaces/a/pods")] {
            assert!(matches!(Route::new(&method, path, false), Route::Resource { verb: None, .. }), "{path}");
        }
    }

    #[test]
    fn slashes_count_as_in_kubernetes() {
        for (path, known) in [
            ("/version/", true),
            ("/api/", true),
            ("/apis/apps/", true),
            ("/healthz/ping", true),
            ("/healthz/", false),
            ("/livez/ping/", false),
            ("/readyz/", false),
            ("/metrics", true),
            ("/metrics/", false),
            ("/openapi/v2/", false),
            ("//api/v1/pods", false),
            ("//", false),
            ("/apis//v1/pods", false),
        ] {
            assert_eq!(Route::new(&Method::GET, path, false) != Route::Unknown, known, "{path}");
        }
    }

    #[test]
    fn a_path_may_name_a_fork() {
        for (path, found) in [
            ("/api/v1/pods", None),
            ("/forks", None),
            ("/forksmith/x", None),
            ("/forks/ab12", Some(("ab12", ""))),
            ("/forks/ab12/", Some(("ab12", "/"))),
            ("/forks/ab12/at/7/api", Some(("ab12", "/at/7/api"))),
            ("/forks//api", Some(("", "/api"))),
        ] {
            assert_eq!(fork(path), found, "{path}");
        }
    }

    #[test]
    fn a_path_may_name_a_moment() {
        for (path, moment, rest) in [
            ("/api/v1/pods", None, "/api/v1/pods"),
            ("/at", None, "/at"),
            ("/attic/7/x", None, "/attic/7/x"),
            ("/at/7", Some("7"), "/"),
            ("/at/7/", Some("7"), "/"),
            ("/at/7/api/v1/pods", Some("7"), "/api/v1/pods"),
            ("/at/-15m/apis", Some("-15m"), "/apis"),
            ("/at/2026-11-21T10%3A00:00Z/at/8/api", Some("2026-11-21T10:00:00Z"), "/at/8/api"),
            ("/at//api", Some(""), "/api"),
        ] {
            let mut taken = path.to_owned();
            assert_eq!(take_moment(&mut taken).as_deref(), moment, "{path}");
            assert_eq!(taken, rest, "{path}");
        }
    }
}
