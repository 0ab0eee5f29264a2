//! The pages that clients request from a kubelet, and the permissions that a client needs for each.

use http::Method;
use std::collections::BTreeMap;

/// The maximum number of parameters of a query.
const PARAMETERS_MAX: usize = 1000;

/// The page of the kubelet API to which a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePage {
    Healthz,
    Pods,
    RunningPods,
    /// `/metrics` and the paths below it.
    Metrics(String),
    Stats,
    Configz,
    Logs(ContainerTarget),
    Exec(ContainerTarget),
    Attach(ContainerTarget),
    Run(ContainerTarget),
    Forward(ContainerTarget),
}

/// The container of a pod that a path names. `container` is empty if the path names only the pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerTarget {
    pub namespace: String,
    pub pod: String,
    pub uid: Option<String>,
    pub container: String,
}

impl NodePage {
    /// Parses a path; `None` if the kubelet API has no such path.
    pub fn of(path: &str) -> Option<NodePage> {
        let parts: Vec<String> = path.trim_matches('/').split('/').map(decoded).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let target = |parts: &[&str]| {
            let text = |part: &str| part.to_owned();
            match parts {
                [namespace, pod, container] => Some(ContainerTarget {
                    namespace: text(namespace),
                    pod: text(pod),
                    uid: None,
                    container: text(container),
                }),
                [namespace, pod, uid, container] => Some(ContainerTarget {
                    namespace: text(namespace),
                    pod: text(pod),
                    uid: Some(text(uid)),
                    container: text(container),
                }),
                _ => None,
            }
        };
        let (first, rest) = parts.split_first()?;
        match (*first, rest) {
            ("healthz", [] | ["ping" | "log" | "syncloop"]) => Some(NodePage::Healthz),
            ("pods", []) => Some(NodePage::Pods),
            ("runningpods", []) => Some(NodePage::RunningPods),
            ("metrics", []) => Some(NodePage::Metrics(String::new())),
            ("metrics", [what @ ("cadvisor" | "resource" | "probes" | "slis")]) => {
                Some(NodePage::Metrics((*what).to_owned()))
            }
            ("stats", ["summary"]) => Some(NodePage::Stats),
            ("configz", []) => Some(NodePage::Configz),
            ("containerLogs", rest) if rest.len() == 3 => target(rest).map(NodePage::Logs),
            ("exec", rest) => target(rest).map(NodePage::Exec),
            ("attach", rest) => target(rest).map(NodePage::Attach),
            ("run", rest) => target(rest).map(NodePage::Run),
            ("portForward", [namespace, pod]) => target(&[namespace, pod, ""]).map(NodePage::Forward),
            ("portForward", [namespace, pod, uid]) => target(&[namespace, pod, uid, ""]).map(NodePage::Forward),
            _ => None,
        }
    }

    /// The subresources of the Node that stand for this page, in the order in which access to them is checked. Access
    /// to one of them is enough.
    pub fn subresources(&self) -> &'static [&'static str] {
        match self {
            NodePage::Healthz => &["healthz", "proxy"],
            NodePage::Pods | NodePage::RunningPods => &["pods", "proxy"],
            NodePage::Metrics(_) => &["metrics"],
            NodePage::Stats => &["stats"],
            NodePage::Configz => &["configz", "proxy"],
            _ => &["proxy"],
        }
    }

    pub fn allows(&self, method: &Method) -> bool {
        match self {
            NodePage::Exec(_) | NodePage::Attach(_) | NodePage::Forward(_) => {
                matches!(*method, Method::GET | Method::POST)
            }
            NodePage::Run(_) => *method == Method::POST,
            _ => *method == Method::GET,
        }
    }
}

/// The verb that stands for an HTTP method when a request is authorized.
pub fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

/// Decodes percent-encoding such as `%41`.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| bytes[at] == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(byte.unwrap_or(bytes[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The parameters of a query, each with all its values.
#[derive(Debug, Default)]
pub struct Query(BTreeMap<String, Vec<String>>);

impl Query {
    pub fn of(query: Option<&str>) -> Query {
        let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()).take(PARAMETERS_MAX) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let plain = |text: &str| decoded(&text.replace('+', " "));
            parameters.entry(plain(name)).or_default().push(plain(value));
        }
        Query(parameters)
    }

    pub fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    pub fn first(&self, name: &str) -> Option<&str> {
        self.all(name).first().map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether the parameter has a value that Go parses as true.
    pub fn is_set(&self, name: &str) -> bool {
        matches!(self.first(name), Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_understood() {
        let target = |uid: Option<&str>, container: &str| ContainerTarget {
            namespace: "n".into(),
            pod: "p".into(),
            uid: uid.map(str::to_owned),
            container: container.into(),
        };
        for (path, expected) in [
            ("/healthz", Some(NodePage::Healthz)),
            ("/containerLogs/n/p/c", Some(NodePage::Logs(target(None, "c")))),
            ("/containerLogs/n/p/u/c", None),
            ("/exec/n/p/u/c", Some(NodePage::Exec(target(Some("u"), "c")))),
            ("/portForward/n/p", Some(NodePage::Forward(target(None, "")))),
            ("/metrics/resource", Some(NodePage::Metrics("resource".into()))),
            ("/metrics/x", None),
            ("/", None),
        ] {
            assert_eq!(NodePage::of(path), expected, "{path}");
        }
        let query = Query::of(Some("command=ls&command=-l+%2Ftmp&tty=1&x"));
        assert_eq!(query.all("command"), ["ls", "-l /tmp"]);
        assert!(query.is_set("tty") && !query.is_set("x") && query.first("x").is_none());
    }
}
