//! What a path and a method ask for, before anything is looked up: enough to authorize.

use http::Method;

/// A request taken apart. Strings only: whether such a resource exists is decided later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    pub is_resource: bool,
    pub verb: &'static str,
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub subresource: String,
    pub name: String,
    pub path: String,
}

/// Subresources of a namespace itself; any other third part of such a path is a resource within it.
const NAMESPACE_SUBRESOURCES: &[&str] = &["status", "finalize"];

impl RequestInfo {
    /// `path` is percent-decoded part by part; `watch` says that the query asks for one.
    pub fn new(method: &Method, path: &str, watch: bool) -> RequestInfo {
        let verb = match *method {
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            Method::OPTIONS => "options",
            _ => "",
        };
        let mut info = RequestInfo { verb, path: path.to_owned(), ..RequestInfo::default() };
        let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let mut rest = match parts.first().map(String::as_str) {
            Some("api") if parts.len() >= 3 => {
                info.version = parts[1].clone();
                &parts[2..]
            }
            Some("apis") if parts.len() >= 4 => {
                info.group = parts[1].clone();
                info.version = parts[2].clone();
                &parts[3..]
            }
            _ => return info,
        };
        info.is_resource = true;
        let mut watch = watch;
        if rest[0] == "watch" && rest.len() > 1 {
            watch = true;
            rest = &rest[1..];
        }
        if rest[0] == "namespaces" && rest.len() > 1 {
            info.namespace = rest[1].clone();
            let is_namespace = rest.len() == 2 || NAMESPACE_SUBRESOURCES.contains(&rest[2].as_str());
            if !is_namespace {
                rest = &rest[2..];
            }
        }
        info.resource = rest[0].clone();
        info.name = rest.get(1).cloned().unwrap_or_default();
        info.subresource = rest.get(2..).map(|rest| rest.join("/")).unwrap_or_default();
        info.verb = match (verb, info.name.is_empty(), watch) {
            ("get", _, true) if info.subresource.is_empty() => "watch",
            ("get", true, false) => "list",
            ("delete", true, _) => "deletecollection",
            _ => verb,
        };
        info
    }
}

/// Undoes percent-encoding; a malformed escape stays as it is.
pub fn decode(text: &str) -> String {
    if !text.contains('%') && !text.contains('+') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |byte: u8| (byte as char).to_digit(16);
        if bytes[at] == b'%'
            && let (Some(high), Some(low)) =
                (bytes.get(at + 1).copied().and_then(hex), bytes.get(at + 2).copied().and_then(hex))
        {
            out.push((high * 16 + low) as u8);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        // method, path, watch -> verb group/version ns resource name subresource
        let cases = [
            ("GET", "/api/v1/pods", false, "list /v1  pods  "),
            ("GET", "/api/v1/pods", true, "watch /v1  pods  "),
            ("GET", "/api/v1/namespaces", false, "list /v1  namespaces  "),
            ("GET", "/api/v1/namespaces/a", false, "get /v1 a namespaces a "),
            ("PUT", "/api/v1/namespaces/a/finalize", false, "update /v1 a namespaces a finalize"),
            ("GET", "/api/v1/namespaces/a/pods", false, "list /v1 a pods  "),
            ("GET", "/api/v1/namespaces/a/pods/b", false, "get /v1 a pods b "),
            ("GET", "/api/v1/namespaces/a/pods/b/log", false, "get /v1 a pods b log"),
            ("DELETE", "/apis/apps/v1/namespaces/a/deployments", false, "deletecollection apps/v1 a deployments  "),
            ("DELETE", "/apis/apps/v1/namespaces/a/deployments/b", false, "delete apps/v1 a deployments b "),
            ("GET", "/apis/apps/v1/watch/namespaces/a/deployments/b", false, "watch apps/v1 a deployments b "),
            ("PATCH", "/apis/x.io/v1/things/a%2Fb", false, "patch x.io/v1  things a/b "),
        ];
        for (method, path, watch, expected) in cases {
            let info = RequestInfo::new(&method.parse().unwrap(), path, watch);
            assert!(info.is_resource, "{path}");
            let found = format!(
                "{} {}/{} {} {} {} {}",
                info.verb, info.group, info.version, info.namespace, info.resource, info.name, info.subresource
            );
            assert_eq!(found, expected, "{method} {path}");
        }
        for path in ["/", "/api", "/apis", "/apis/apps/v1", "/healthz", "/api/v1", "/version"] {
            assert!(!RequestInfo::new(&Method::GET, path, false).is_resource, "{path}");
        }
    }
}
