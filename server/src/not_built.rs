//! Options of Kubernetes' components that this release does not have.
//!
//! They are refused by name: ignoring them silently would mislead, and "unexpected argument" would suggest a
//! misspelling.

use std::ffi::OsString;

/// The arguments that name such an option, each with the reason why the server cannot start with it.
pub fn refused<'a>(args: &'a [OsString], unbuilt: &[Unbuilt]) -> Vec<(&'a str, String)> {
    let options = args.iter().take_while(|arg| *arg != "--").filter_map(|arg| arg.to_str());
    let named = options.filter_map(|option| {
        let name = option.strip_prefix("--")?.split('=').next()?;
        let at = unbuilt.binary_search_by(|(unbuilt, _)| (*unbuilt).cmp(canonical(name).as_str())).ok()?;
        Some((name, format!("the option --{name} is not built yet: {}", unbuilt[at].1)))
    });
    named.collect()
}

/// The name as Kubernetes spells it: with dashes, and with the names that placeholders stand for.
fn canonical(name: &str) -> String {
    let mut name = name.replace('_', "-");
    for (placeholder, real) in PLACEHOLDERS {
        name = name.replace(placeholder, real);
    }
    name
}

const PLACEHOLDERS: &[(&str, &str)] = &[
    ("<vendor>-", "kubernetes-"),
    ("<cloud>", "gce"),
    ("nodeagent-", "kubelet-"),
    ("coreconfig", "kubeconfig"),
    ("core-api-", "kube-api-"),
];

/// An option and the reason why it is refused.
pub type Unbuilt = (&'static str, &'static str);

const OVERRIDES: &str = "all kinds are in the etcd of --etcd-servers";
const SSH: &str =
    "Kubernetes gave up SSH tunnels to nodes in 1.22; proxies of --egress-selector-config-file take their place";

/// The API server's, sorted. Remove an option here when it is built.
pub const API_SERVER: &[Unbuilt] = &[("etcd-servers-overrides", OVERRIDES), ("ssh-keyfile", SSH), ("ssh-user", SSH)];

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(args: &[&str]) -> Option<String> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        refused(&args, API_SERVER).into_iter().next().map(|(_, why)| why)
    }

    #[test]
    fn the_table_is_sorted() {
        assert!(API_SERVER.is_sorted_by(|a, b| a.0 < b.0), "the search needs it, and none twice");
    }

    #[test]
    fn options_are_refused_in_the_spelling_that_was_used() {
        for (option, name) in [
            ("--etcd-servers-overrides=/pods#http://a:1", "etcd-servers-overrides"),
            ("--etcd-servers-overrides", "etcd-servers-overrides"),
            ("--etcd_servers_overrides=x", "etcd_servers_overrides"),
            ("--ssh-user=c", "ssh-user"),
            ("--ssh_keyfile=c", "ssh_keyfile"),
        ] {
            let expected = format!("the option --{name} is not built yet: ");
            let found = refusal(&["holdfast", "apiserver", "--secure-port=0", option]).expect(option);
            assert!(found.starts_with(&expected), "{found}");
        }
    }

    #[test]
    fn what_is_built_or_unknown_or_no_option_passes() {
        for option in BUILT {
            assert_eq!(refusal(&[&format!("--{option}"), &format!("--{option}=x")]), None, "{option}");
        }
        for args in [
            &["holdfast", "up"][..],
            &["--no-such-option"],
            &["--ssh-userx"],
            &["ssh-user", "-ssh-user"],
            &["--", "--ssh-user"],
            &["--data-dir=--ssh-user"],
            &[],
        ] {
            assert_eq!(refusal(args), None, "{args:?}");
        }
    }

    const BUILT: &[&str] = &[
        "add-dir-header",
        "address",
        "advertise-address",
        "advertise-port",
        "aggregator-reject-forwarding-redirect",
        "allow-metric-labels",
        "allow-metric-labels-manifest",
        "allow-privileged",
        "alsologtostderr",
        "anonymous-auth",
        "api-audiences",
        "apiserver-count",
        "audit-dynamic-configuration",
        "authentication-coreconfig",
        "authentication-kubeconfig",
        "authentication-skip-lookup",
        "authentication-tolerate-lookup-failure",
        "authorization-coreconfig",
        "authorization-kubeconfig",
        "authorization-mode",
        "azure-container-registry-config",
        "basic-auth-file",
        "bind-address",
        "cert-dir",
        "client-ca-file",
        "cloud-config",
        "cloud-provider",
        "cloud-provider-gce-l7lb-src-cidrs",
        "cloud-provider-gce-lb-src-cidrs",
        "contention-profiling",
        "coordinated-leadership-lease-duration",
        "coordinated-leadership-renew-deadline",
        "coordinated-leadership-retry-period",
        "cors-allowed-origins",
        "data-dir",
        "debug-socket-path",
        "egress-selector-config-file",
        "default-watch-cache-size",
        "deserialization-cache-size",
        "disable-admission-plugins",
        "disable-http2-serving",
        "disabled-metrics",
        "enable-admission-plugins",
        "enable-aggregator-routing",
        "enable-garbage-collector",
        "enable-logs-handler",
        "enable-swagger-ui",
        "endpoint-reconciler-type",
        "etcd-cafile",
        "etcd-certfile",
        "etcd-compaction-interval",
        "etcd-count-metric-poll-period",
        "etcd-db-metric-poll-interval",
        "etcd-healthcheck-timeout",
        "etcd-keyfile",
        "etcd-prefix",
        "etcd-quorum-read",
        "etcd-readycheck-timeout",
        "etcd-servers",
        "experimental-logging-sanitization",
        "feature-gates",
        "goaway-chance",
        "help",
        "http2-max-streams-per-connection",
        "identity-lease-duration-seconds",
        "identity-lease-renew-interval-seconds",
        "insecure-bind-address",
        "insecure-port",
        "kubernetes-service-node-port",
        "kubelet-certificate-authority",
        "kubelet-client-certificate",
        "kubelet-client-key",
        "kubelet-https",
        "kubelet-port",
        "kubelet-preferred-address-types",
        "kubelet-read-only-port",
        "kubelet-timeout",
        "lease-reuse-duration-seconds",
        "livez-grace-period",
        "log-backtrace-at",
        "log-dir",
        "log-file",
        "log-file-max-size",
        "log-flush-frequency",
        "log-json-info-buffer-size",
        "log-json-split-stream",
        "log-text-info-buffer-size",
        "log-text-split-stream",
        "logging-format",
        "logtostderr",
        "master-service-namespace",
        "max-connection-bytes-per-sec",
        "max-mutating-requests-inflight",
        "max-requests-inflight",
        "max-startup-sequence-duration",
        "min-request-timeout",
        "namespace-grace-period",
        "nodeagent-certificate-authority",
        "nodeagent-timeout",
        "one-output",
        "peer-advertise-ip",
        "peer-advertise-port",
        "peer-ca-file",
        "permit-address-sharing",
        "permit-port-sharing",
        "profiling",
        "proxy-client-cert-file",
        "proxy-client-key-file",
        "repair-malformed-updates",
        "request-timeout",
        "requestheader-allowed-names",
        "requestheader-client-ca-file",
        "requestheader-extra-headers-prefix",
        "requestheader-group-headers",
        "requestheader-uid-headers",
        "requestheader-username-headers",
        "runtime-config",
        "secure-port",
        "service-account-api-audiences",
        "service-account-issuer",
        "service-account-key-file",
        "service-account-lookup",
        "service-account-signing-endpoint",
        "service-account-signing-key-file",
        "service-cluster-ip-range",
        "service-node-port-range",
        "show-hidden-metrics-for-version",
        "shutdown-delay-duration",
        "shutdown-send-retry-after",
        "shutdown-watch-termination-grace-period",
        "skip-headers",
        "skip-log-headers",
        "stderrthreshold",
        "storage-backend",
        "storage-initialization-timeout",
        "storage-media-type",
        "storage-versions",
        "strict-transport-security-directives",
        "tls-cert-file",
        "tls-cipher-suites",
        "tls-curve-preferences",
        "tls-min-version",
        "tls-private-key-file",
        "tls-sni-cert-key",
        "token-auth-file",
        "v",
        "version",
        "vmodule",
        "watch-cache",
        "watch-cache-sizes",
    ];
}
