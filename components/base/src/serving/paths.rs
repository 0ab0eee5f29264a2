//! The pages of a component, by path.

use crate::gates::Gates;
use crate::health::{self, Health, HealthReport};
use crate::logging;
use crate::metrics::{self, Metrics};
use holdfast_value::{Map, Value, json};
use http::{Method, StatusCode};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

const TEXT: &str = "text/plain; charset=utf-8";
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.";

/// A request for a page, after its user was authorized.
pub struct PageRequest<'a> {
    pub method: &'a Method,
    pub path: &'a str,
    pub query: &'a str,
    pub accept: &'a str,
    pub body: &'a [u8],
}

pub struct PageResponse {
    pub code: StatusCode,
    pub content_type: &'static str,
    pub text: String,
}

impl PageResponse {
    pub fn text(code: StatusCode, text: impl Into<String>) -> PageResponse {
        PageResponse { code, content_type: TEXT, text: text.into() }
    }

    pub fn json(code: StatusCode, document: &Value) -> PageResponse {
        PageResponse { code, content_type: "application/json", text: document.to_string() }
    }
}

/// A page that only one component has.
pub type PageHandler = Arc<dyn Fn() -> PageResponse + Send + Sync>;

pub struct Paths {
    /// The component's name, such as `kube-scheduler`.
    pub name: &'static str,
    /// The component's version, such as `v1.35.0`.
    pub version: String,
    /// The emulated release, such as `1.18`, if it differs from the component's own release.
    pub emulated: Option<String>,
    pub started: Timestamp,
    pub health: Arc<Health>,
    pub metrics: Arc<Metrics>,
    /// Whether the debug pages are served.
    pub profiling: bool,
    pub shown: Zpages,
    /// The component's options, each with its value.
    pub flags: Vec<(String, String)>,
    pub configz: RwLock<Map>,
    pub pages: RwLock<BTreeMap<&'static str, PageHandler>>,
}

/// The z-pages that gates turn on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zpages {
    pub flagz: bool,
    pub statusz: bool,
}

impl Zpages {
    pub fn of(gates: &Gates) -> Zpages {
        Zpages { flagz: gates.enabled("ComponentFlagz"), statusz: gates.enabled("ComponentStatusz") }
    }
}

impl Paths {
    pub fn answer(&self, asked: &PageRequest<'_>) -> PageResponse {
        let health = asked.path.trim_start_matches('/').split_once('/').map_or_else(
            || (asked.path.trim_start_matches('/'), None),
            |(kind, check)| (kind, Some(check).filter(|check| !check.is_empty())),
        );
        match asked.path {
            _ if health::PATHS.contains(&health.0) => self.health(asked, health.0, health.1),
            "/metrics" => {
                PageResponse { code: StatusCode::OK, content_type: metrics::CONTENT_TYPE, text: self.metrics.render() }
            }
            "/metrics/slis" => {
                let text = metrics::render_health(&self.health);
                PageResponse { code: StatusCode::OK, content_type: metrics::CONTENT_TYPE, text }
            }
            "/configz" => {
                let configz = self.configz.read().unwrap_or_else(PoisonError::into_inner);
                PageResponse::json(StatusCode::OK, &Value::Object(configz.clone()))
            }
            "/version" => PageResponse::json(StatusCode::OK, &version(&self.version)),
            "/flagz" if self.shown.flagz => self.flagz(asked),
            "/statusz" if self.shown.statusz => self.statusz(asked),
            path if path.starts_with("/debug/") && self.profiling => debug(asked),
            path => {
                let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
                let page = pages.get(path).cloned();
                drop(pages);
                page.map_or_else(|| PageResponse::text(StatusCode::NOT_FOUND, "404 page not found\n"), |page| page())
            }
        }
    }

    fn health(&self, asked: &PageRequest<'_>, kind: &str, check: Option<&str>) -> PageResponse {
        let values = |name: &str| {
            let pairs = asked.query.split('&').filter_map(|pair| match pair.split_once('=') {
                Some((key, value)) => Some((key, value)),
                None => (!pair.is_empty()).then_some((pair, "")),
            });
            pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).collect::<Vec<_>>()
        };
        let verdict = match check {
            Some(name) => self.health.check_one(kind, name),
            None => {
                let excluded = values("exclude");
                let excluded: Vec<&str> = excluded.iter().map(String::as_str).collect();
                Some(self.health.all(kind, !values("verbose").is_empty(), &excluded))
            }
        };
        match verdict {
            None => PageResponse::text(StatusCode::NOT_FOUND, "404 page not found\n"),
            Some(HealthReport { healthy: true, text }) => PageResponse::text(StatusCode::OK, text),
            Some(HealthReport { healthy: false, text }) => PageResponse::text(StatusCode::INTERNAL_SERVER_ERROR, text),
        }
    }

    fn flagz(&self, asked: &PageRequest<'_>) -> PageResponse {
        if asked.accept.contains("as=Flagz") {
            let flags: Map = self.flags.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            return self.structured("Flagz", json!({"flags": flags}));
        }
        let mut text = format!("\n{} flagz\n{WARNING}\n\n", self.name);
        for (name, value) in &self.flags {
            text.push_str(&format!("{name}={value}\n"));
        }
        PageResponse::text(StatusCode::OK, text)
    }

    fn statusz(&self, asked: &PageRequest<'_>) -> PageResponse {
        let number = self.version.trim_start_matches('v');
        let minor = number.rsplit_once('.').map_or(number, |(minor, _)| minor);
        let minor = self.emulated.as_deref().unwrap_or(minor);
        let up = Timestamp::now().duration_since(self.started).as_secs().max(0);
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let own = [
            "/configz",
            "/flagz",
            "/healthz",
            "/livez",
            "/metrics",
            "/metrics/slis",
            "/readyz",
            "/statusz",
            "/version",
        ];
        let mut paths: Vec<&str> = own.into_iter().chain(pages.keys().copied()).collect();
        paths.sort_unstable();
        if asked.accept.contains("as=Statusz") {
            let fields = json!({
                "startTime": self.started.round(jiff::Unit::Second).unwrap_or(self.started).to_string(),
                "uptimeSeconds": up,
                "binaryVersion": number,
                "emulationVersion": minor,
                "paths": paths,
            });
            return self.structured("Statusz", fields);
        }
        let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
        let started = self.started.strftime("%a %b %e %H:%M:%S UTC %Y");
        PageResponse::text(
            StatusCode::OK,
            format!(
                "\n{} statusz\n{WARNING}\n\nStarted: {started}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\n\
                 Binary version: {number}\nEmulation version: {minor}\n\nPaths: {}\n",
                self.name,
                paths.join(" ")
            ),
        )
    }

    fn structured(&self, kind: &str, fields: Value) -> PageResponse {
        let mut document = json!({
            "kind": kind,
            "apiVersion": "config.k8s.io/v1alpha1",
            "metadata": {"name": self.name},
        });
        if let (Some(document), Value::Object(fields)) = (document.as_object_mut(), fields) {
            document.extend(fields);
        }
        PageResponse::json(StatusCode::OK, &document)
    }
}

/// The version information of `/version`, from a version such as `v1.35.0`.
pub fn version(version: &str) -> Value {
    let mut parts = version.trim_start_matches('v').split('.');
    let mut part = || parts.next().unwrap_or("");
    json!({
        "major": part(),
        "minor": part(),
        "gitVersion": version,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// The debug pages. Profiles of a Go runtime are missing, because there is no Go runtime.
fn debug(asked: &PageRequest<'_>) -> PageResponse {
    if asked.path != "/debug/flags/v" {
        let text =
            format!("{} is not served: this process has no Go runtime whose profiles it could show\n", asked.path);
        return PageResponse::text(StatusCode::NOT_IMPLEMENTED, text);
    }
    if asked.method != Method::PUT {
        return PageResponse::text(StatusCode::NOT_ACCEPTABLE, "unrecognized http method\n");
    }
    let text = String::from_utf8_lossy(asked.body);
    match text.trim().parse::<i32>() {
        Ok(level) => {
            logging::set_verbosity(level);
            PageResponse::text(StatusCode::OK, format!("successfully set klog.logging.verbosity to {level}"))
        }
        Err(_) => PageResponse::text(
            StatusCode::BAD_REQUEST,
            format!("error setting klog.logging.verbosity to {text}: {text:?} is not a number\n"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> Paths {
        let metrics = Arc::new(Metrics::new(Default::default()));
        Paths {
            name: "kube-scheduler",
            version: "v1.35.0".into(),
            emulated: None,
            started: Timestamp::now(),
            health: Arc::default(),
            metrics,
            profiling: true,
            shown: Zpages { flagz: true, statusz: true },
            flags: vec![("v".into(), "2".into())],
            configz: RwLock::new(Map::from_iter([("componentconfig".to_owned(), json!({"parallelism": 16}))])),
            pages: RwLock::default(),
        }
    }

    fn get(paths: &Paths, target: &str, accept: &str) -> (u16, String) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let answer = paths.answer(&PageRequest { method: &Method::GET, path, query, accept, body: b"" });
        (answer.code.as_u16(), answer.text)
    }

    #[test]
    fn every_path_has_its_page() {
        let paths = paths();
        paths.health.add("leaderElection", &["healthz"], || Err("lost".into()));
        let own: PageHandler = Arc::new(|| PageResponse::text(StatusCode::OK, "own"));
        paths.pages.write().unwrap().insert("/metrics/resources", own);
        for (target, code, part) in [
            ("/livez", 200, "ok"),
            ("/livez?verbose", 200, "livez check passed"),
            ("/livez/ping", 200, "ok"),
            ("/livez/none", 404, "404"),
            ("/healthz", 500, "healthz check failed"),
            ("/healthz?exclude=leaderElection", 200, "ok"),
            ("/healthz/leaderElection", 500, "lost"),
            ("/metrics", 200, "# EOF"),
            ("/metrics/slis", 200, "kubernetes_healthcheck{name=\"leaderElection\",type=\"healthz\"} 0"),
            ("/metrics/resources", 200, "own"),
            ("/configz", 200, "{\"componentconfig\":{\"parallelism\":16}}"),
            ("/version", 200, "\"minor\":\"35\""),
            ("/flagz", 200, "\nv=2\n"),
            ("/statusz", 200, "Emulation version: 1.35\n"),
            ("/debug/pprof/heap", 501, "no Go runtime"),
            ("/debug/flags/v", 406, "unrecognized"),
            ("/", 404, "404"),
        ] {
            let (found, text) = get(&paths, target, "");
            assert!(found == code && text.contains(part), "{target}: {found} {text}");
        }
        let flags = get(&paths, "/flagz", "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz").1;
        assert_eq!(serde_json::from_str::<Value>(&flags).unwrap()["flags"]["v"], "2");
        let hidden = Paths { profiling: false, shown: Zpages { flagz: false, statusz: false }, ..paths };
        for target in ["/debug/pprof/heap", "/flagz", "/statusz"] {
            assert_eq!(get(&hidden, target, "").0, 404, "{target}");
        }
    }
}
