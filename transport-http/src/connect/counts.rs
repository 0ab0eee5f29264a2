//! Counts streams to nodes, under Kubernetes' metric names.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Method {
    subresource: &'static str,
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Usage {
    usage: &'static str,
}

#[derive(Debug, Default)]
pub struct Counts {
    translated: Family<Code, Counter>,
    tunnelled: Family<Code, Counter>,
    websockets: Family<Method, Counter>,
    logs: Family<Usage, Counter>,
}

impl Counts {
    pub fn register(&self, registry: &mut Registry) {
        let help = "Total number of requests that were handled by the StreamTranslatorProxy";
        registry.register("apiserver_stream_translator_requests", help, self.translated.clone());
        let help = "Total number of requests that were handled by the StreamTunnelProxy";
        registry.register("apiserver_stream_tunnel_requests", help, self.tunnelled.clone());
        let help = "Total number of WebSocket streaming requests by subresource, and where they are translated";
        registry.register("apiserver_websocket_streaming_requests", help, self.websockets.clone());
        let help = "Total number of requests for pods/logs sliced by usage type: enforce_tls, skip_tls_allowed, skip_tls_denied";
        registry.register("kube_apiserver_pod_logs_insecure_backend", help, self.logs.clone());
    }

    /// Counts a kubelet's answer to exec or attach whose WebSocket this server translates.
    pub fn translated(&self, code: u16) {
        self.translated.get_or_create(&Code { code }).inc();
    }

    /// Counts a kubelet's answer to port forwarding whose bytes a WebSocket carries.
    pub fn tunnelled(&self, code: u16) {
        self.tunnelled.get_or_create(&Code { code }).inc();
    }

    pub fn websocket(&self, subresource: &str, is_translated: bool) {
        let known = ["attach", "exec", "portforward"];
        let Some(subresource) = known.into_iter().find(|known| *known == subresource) else { return };
        let method = if is_translated { "translated_at_apiserver" } else { "proxied_to_kubelet" };
        self.websockets.get_or_create(&Method { subresource, method }).inc();
    }

    /// Counts a request for a log. `is_asked` is true if the client asked not to verify the kubelet's certificate.
    pub fn log(&self, is_asked: bool, is_insecure: bool) {
        let usage = match (is_asked, is_insecure) {
            (true, true) => "skip_tls_allowed",
            (true, false) => "skip_tls_denied",
            (false, _) => "enforce_tls",
        };
        self.logs.get_or_create(&Usage { usage }).inc();
    }
}
