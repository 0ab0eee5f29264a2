//! The documents that a server publishes about itself: its version, the documents of its API, its keys, its pages, its
//! metrics and its health checks.

use crate::documents::{API_VERSION, Documents, Library, git_version};
use crate::issuer::{self, Document};
use crate::pages::{self, Pages};
use crate::respond::{Response, Shape};
use crate::tokens::{Published, ServiceAccountTokens};
use crate::understood::Head;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use holdfast_core::authz::User;
use holdfast_core::kinds::offered::NEWEST;
use holdfast_core::wire::discovery::documents::{VersionInfo, indented};
use holdfast_engine::ReadMemory;
use holdfast_service::Scene;
use http::HeaderMap;
use std::sync::Arc;

/// A check on which the server's health depends.
pub trait HealthCheck: Send + Sync {
    /// The name under which health paths show the check.
    fn name(&self) -> &str;
    fn check(&self) -> BoxFuture<'_, Result<(), String>>;
}

/// A function that turns the text of all metrics into the text that `/metrics` shows.
pub type ShownMetrics = Arc<dyn Fn(String) -> String + Send + Sync>;

/// The operator's settings of what a server publishes about itself.
#[derive(Default)]
pub struct ServerInfoSettings {
    /// The address at which clients reach the server, such as `10.0.0.1:6443`.
    pub address: String,
    /// The URL of the keys of service account tokens; `None` if the keys are not published.
    pub keys_url: Option<String>,
    pub version: ServerVersion,
    /// The debug pages of the program.
    pub pages: Option<Pages>,
    /// Filters the text of `/metrics` before it is shown.
    pub shown_metrics: Option<ShownMetrics>,
    /// Health checks in addition to the checks of the server itself.
    pub checks: Vec<Arc<dyn HealthCheck>>,
}

/// The version of Kubernetes that the server reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerVersion {
    pub git_version: String,
    /// The minor release that the server emulates.
    pub emulated_minor: u32,
    /// The oldest minor release with which the server is compatible.
    pub min_compatible_minor: u32,
}

impl Default for ServerVersion {
    fn default() -> ServerVersion {
        ServerVersion { git_version: git_version(), emulated_minor: NEWEST, min_compatible_minor: NEWEST - 1 }
    }
}

impl ServerVersion {
    /// The document of `/version`.
    fn document(&self) -> Bytes {
        let mut numbers = API_VERSION.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let (emulated, oldest) = (self.emulated_minor.to_string(), self.min_compatible_minor.to_string());
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        indented(&VersionInfo {
            major,
            minor,
            emulation_major: major,
            emulation_minor: &emulated,
            min_compatibility_major: major,
            min_compatibility_minor: &oldest,
            git_version: &self.git_version,
            git_commit: option_env!("HOLDFAST_COMMIT").unwrap_or(""),
            git_tree_state: "",
            build_date: "1970-01-01T00:00:00Z",
            go_version: "",
            compiler: "rustc",
            platform: &format!("{}/{architecture}", std::env::consts::OS),
        })
    }
}

pub(crate) struct ServerInfo {
    /// The documents of OpenID discovery; `None` if the server publishes none.
    issuer: Option<Arc<Published>>,
    documents: Library,
    version: ServerVersion,
    pages: Option<Pages>,
    shown_metrics: Option<ShownMetrics>,
    checks: Arc<[Arc<dyn HealthCheck>]>,
}

impl ServerInfo {
    pub fn new(settings: ServerInfoSettings, tokens: Option<&ServiceAccountTokens>) -> ServerInfo {
        let ServerInfoSettings { address, keys_url, version, pages, shown_metrics, checks } = settings;
        ServerInfo {
            issuer: keys_url.and_then(|url| tokens?.published(&url)).map(Arc::new),
            documents: Library::new(address),
            version,
            pages,
            shown_metrics,
            checks: checks.into(),
        }
    }

    /// The information of a fork. Its API is the same as the API of this server up to this revision.
    pub fn beside(&self, revision: u64) -> ServerInfo {
        ServerInfo {
            issuer: self.issuer.clone(),
            documents: self.documents.beside(revision),
            version: self.version.clone(),
            pages: self.pages.clone(),
            shown_metrics: self.shown_metrics.clone(),
            checks: self.checks.clone(),
        }
    }

    /// The documents that describe the API in the state of the scene.
    pub fn documents(&self, scene: &Scene, memory: &ReadMemory, user: &User) -> Arc<Documents> {
        self.documents.of(scene, memory, user)
    }

    /// The response with a document of OpenID discovery; `None` if the server publishes none.
    pub fn issuer(&self, document: Document, headers: &HeaderMap, shape: Shape) -> Option<Response> {
        issuer::answer(self.issuer.as_deref(), document, headers, shape)
    }

    /// The document of `/version`.
    pub fn version(&self) -> Bytes {
        self.version.document()
    }

    /// The response with a debug page of the program.
    pub fn page(&self, head: &Head, path: &str, body: &[u8]) -> Response {
        pages::answer(self.pages.as_ref(), head, path, body)
    }

    pub fn has_pages(&self) -> bool {
        self.pages.is_some()
    }

    /// Filters the text of all metrics. The result is the text of `/metrics`.
    pub fn shown_metrics(&self, text: String) -> String {
        match &self.shown_metrics {
            Some(shown) => shown(text),
            None => text,
        }
    }

    /// The health checks in addition to the checks of the server itself.
    pub fn checks(&self) -> &[Arc<dyn HealthCheck>] {
        &self.checks
    }
}
