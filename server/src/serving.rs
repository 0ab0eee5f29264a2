//! The options of serving besides TLS: how requests are handled, where the server listens, and how it starts and stops.

use crate::limits;
use crate::tracing_config::{self, TracingConfig};
use anyhow::{Context, Result};
use clap::ArgAction;
use holdfast_component::values::{parse_bool, parse_duration};
use holdfast_tls::bounds::{Bounds, HANDSHAKES_MAX, connections_within};
use holdfast_transport_http::LifecycleSettings;
use holdfast_transport_http::manners::Manners;
use http::HeaderValue;
use regex::Regex;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};

/// The length of the accept queue; the system may limit it further.
const BACKLOG: u32 = 1 << 14;
/// The largest `--goaway-chance`, the share of requests after which a connection is closed.
const GOAWAY_CHANCE_MAX: f64 = 0.02;

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Serving")]
pub struct ServingArgs {
    /// Origins that CORS allows, as regular expressions; each must have ^ or // before the host and $ or : after it.
    #[arg(long, value_delimiter = ',', value_name = "REGEXES")]
    pub cors_allowed_origins: Vec<String>,
    /// Directives of the header Strict-Transport-Security: max-age=SECONDS, includeSubDomains, preload.
    #[arg(long, value_delimiter = ',', value_name = "DIRECTIVES")]
    pub strict_transport_security_directives: Vec<String>,
    /// Share of HTTP/2 requests, up to 0.02, after which the server asks the client to reconnect (GOAWAY): in this way
    /// clients spread over servers again.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true, value_name = "SHARE")]
    pub goaway_chance: f64,
    /// Maximum duration of a request, except watches and other long-running requests; 0 for no limit.
    #[arg(long, default_value = "1m0s", value_parser = parse_duration, value_name = "DURATION")]
    pub request_timeout: Duration,
    /// Minimum duration, in seconds, of a watch without timeoutSeconds; the server picks a duration between this and
    /// twice this value.
    #[arg(long, default_value_t = 1800, allow_negative_numbers = true, value_name = "SECONDS")]
    pub min_request_timeout: i64,
    /// Serve HTTP/1.1 only.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub disable_http2_serving: bool,
    /// Maximum number of connections [default: as many as the limit on open files allows, but no more than fit into a
    /// quarter of the memory at 64 KiB each].
    #[arg(long, value_name = "COUNT")]
    pub connections_max: Option<usize>,
    /// How many connections of --connections-max are reserved for clients that have not authenticated, such as new
    /// clients and probes [default: a sixteenth].
    #[arg(long, value_name = "COUNT")]
    pub connections_reserve: Option<usize>,
    /// Maximum number of connections from one address without an authenticated user; when there are more, the oldest is
    /// closed [default: half of all].
    #[arg(long, value_name = "COUNT")]
    pub connections_per_address_max: Option<usize>,
    /// Maximum number of connections of one user [default: half of all].
    #[arg(long, value_name = "COUNT")]
    pub connections_per_user_max: Option<usize>,
    /// Maximum number of TLS handshakes at the same time, of which one address gets at most half; further handshakes
    /// wait.
    #[arg(long, default_value_t = HANDSHAKES_MAX, value_name = "COUNT")]
    pub handshakes_max: usize,
    /// Allow other processes to listen on the same port (SO_REUSEPORT).
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub permit_port_sharing: bool,
    /// Listen even if old connections to the address are still closing (SO_REUSEADDR). No effect: this is always on.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub permit_address_sharing: bool,
    /// How long after the start /livez succeeds even if the start is not complete.
    #[arg(long, alias = "max-startup-sequence-duration", alias = "maximum-startup-sequence-duration", default_value = "0s", value_parser = parse_duration, value_name = "DURATION")]
    pub livez_grace_period: Duration,
    /// How long the server continues to serve after the signal to stop; /readyz fails during this time.
    #[arg(long, default_value = "0s", value_parser = parse_duration, value_name = "DURATION")]
    pub shutdown_delay_duration: Duration,
    /// While the server stops, answer new requests with 429 and Retry-After instead of refusing connections.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub shutdown_send_retry_after: bool,
    /// Period over which the server ends its watches, one after the other, when it stops.
    #[arg(long, default_value = "0s", value_parser = parse_duration, value_name = "DURATION")]
    pub shutdown_watch_termination_grace_period: Duration,
    /// A TracingConfiguration: which requests are traced, and the OpenTelemetry collector for their spans.
    #[arg(long, value_name = "FILE")]
    pub tracing_config_file: Option<PathBuf>,
    /// A Unix socket that serves the pages below /debug, without authentication, to every process that may open it.
    #[arg(long, value_name = "FILE")]
    pub debug_socket_path: Option<PathBuf>,
}

impl ServingArgs {
    /// The tracing configuration, if a file is named.
    pub fn tracing(&self) -> Result<Option<TracingConfig>> {
        let file = self.tracing_config_file.as_ref().filter(|file| !file.as_os_str().is_empty());
        file.map(|file| tracing_config::read(file)).transpose()
    }

    /// How requests are handled, or all faults of the options that determine it.
    pub fn manners(&self) -> Result<Manners, Vec<String>> {
        let mut faults = Vec::new();
        let origins = origins(&self.cors_allowed_origins, &mut faults);
        let strict_transport = strict_transport(&self.strict_transport_security_directives, &mut faults);
        if !(0.0..=GOAWAY_CHANCE_MAX).contains(&self.goaway_chance) {
            faults.push("--goaway-chance can not be less than 0 or greater than 0.02".into());
        }
        if self.min_request_timeout < 0 {
            faults.push("--min-request-timeout can not be negative value".into());
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Manners {
            origins,
            strict_transport,
            goaway_chance: self.goaway_chance,
            request_timeout: self.request_timeout,
        })
    }

    /// The settings with which the server starts and stops.
    pub fn lifecycle(&self) -> LifecycleSettings {
        LifecycleSettings {
            livez_grace: self.livez_grace_period,
            watch_grace: self.shutdown_watch_termination_grace_period,
            send_retry_after: self.shutdown_send_retry_after,
        }
    }

    /// The limits on connections and on the resources that each connection may use, or the faults of the options about
    /// these limits.
    pub fn bounds(&self) -> Result<Bounds, Vec<String>> {
        let all = self.connections_max.unwrap_or_else(|| connections_within(limits::files(), limits::memory()));
        let usual = Bounds::of_connections(all);
        let bounds = Bounds {
            reserve: self.connections_reserve.unwrap_or(usual.reserve),
            strangers_of_one_max: self.connections_per_address_max.unwrap_or(usual.strangers_of_one_max),
            connections_of_user_max: self.connections_per_user_max.unwrap_or(usual.connections_of_user_max),
            handshakes_max: self.handshakes_max,
            ..usual
        };
        let counts = [
            ("--connections-max", all),
            ("--connections-per-address-max", bounds.strangers_of_one_max),
            ("--connections-per-user-max", bounds.connections_of_user_max),
            ("--handshakes-max", bounds.handshakes_max),
        ];
        let none = counts.iter().filter(|(_, count)| *count == 0);
        let mut faults: Vec<String> = none.map(|(option, _)| format!("{option} must be at least 1")).collect();
        if bounds.reserve >= all && all > 0 {
            faults.push(format!("--connections-reserve must be less than --connections-max, which is {all}"));
        }
        if faults.is_empty() { Ok(bounds) } else { Err(faults) }
    }

    pub fn watch_min(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.min_request_timeout).unwrap_or_default())
    }

    /// Opens the socket on which the server listens for clients.
    pub fn listen(&self, address: IpAddr, port: u16) -> Result<TcpListener> {
        let listen = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            // Connections of the previous process may still be closing.
            socket.set_reuseaddr(true)?;
            socket.set_reuseport(self.permit_port_sharing)?;
            socket.bind((address, port).into())?;
            socket.listen(BACKLOG)
        };
        listen().with_context(|| format!("listen on {address}:{port}"))
    }
}

/// Parses the regular expressions of allowed origins. Each must fix where an origin's host begins and ends: otherwise
/// hosts that merely contain the name would be allowed.
fn origins(texts: &[String], faults: &mut Vec<String>) -> Vec<Regex> {
    let mut origins = Vec::new();
    for text in texts.iter().filter(|text| !text.is_empty()) {
        let has = |signs: [&str; 2]| signs.iter().any(|sign| text.contains(sign));
        let loose = [("start", has(["^", "//"])), ("end", has(["$", ":"]))];
        let unpinned = loose
            .iter()
            .filter(|(_, pins)| !pins)
            .map(|(end, _)| format!("regular expression does not pin to {end} of host in the origin header: {text:?}"));
        let mut wrong: Vec<String> = unpinned.collect();
        match Regex::new(text) {
            Ok(origin) => origins.push(origin),
            Err(why) => wrong.push(format!("{text:?}: {why}")),
        }
        faults.extend(
            wrong.into_iter().map(|why| format!("--cors-allowed-origins has an invalid regular expression: {why}")),
        );
    }
    origins
}

fn strict_transport(directives: &[String], faults: &mut Vec<String>) -> Option<HeaderValue> {
    let is_known = |directive: &&String| {
        let age = directive.strip_prefix("max-age=");
        matches!(directive.as_str(), "includeSubDomains" | "preload")
            || age.is_some_and(|age| age.parse::<u64>().is_ok())
    };
    let directives: Vec<&String> = directives.iter().filter(|directive| !directive.is_empty()).collect();
    if !directives.iter().all(is_known) {
        faults.push(
            "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, \
             preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information"
                .into(),
        );
        return None;
    }
    let joined = directives.iter().map(|directive| directive.as_str()).collect::<Vec<_>>().join("; ");
    HeaderValue::from_str(&joined).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        serving: ServingArgs,
    }

    fn serving(options: &[&str]) -> ServingArgs {
        Cli::parse_from(["holdfast"].iter().chain(options)).serving
    }

    #[test]
    fn what_is_wrong_is_told_all_at_once() {
        let faults = serving(&[
            "--cors-allowed-origins=example.com,^http://(",
            "--strict-transport-security-directives=max-age=x",
            "--goaway-chance=0.5",
            "--min-request-timeout=-1",
        ])
        .manners()
        .unwrap_err();
        let expected = [
            "does not pin to start of host in the origin header: \"example.com\"",
            "does not pin to end of host",
            "invalid regular expression: \"^http://(\"",
            "--strict-transport-security-directives invalid, allowed values",
            "--goaway-chance can not be less than 0 or greater than 0.02",
            "--min-request-timeout can not be negative value",
        ];
        assert_eq!(faults.len(), expected.len(), "{faults:#?}");
        for (fault, part) in faults.iter().zip(expected) {
            assert!(fault.contains(part), "{part} in {fault}");
        }
    }

    #[test]
    fn what_is_said_is_done() {
        let serving = serving(&[
            "--cors-allowed-origins=//example.com:",
            "--strict-transport-security-directives=max-age=5,includeSubDomains",
            "--max-startup-sequence-duration=3s",
        ]);
        let manners = serving.manners().unwrap();
        assert_eq!(manners.origins.len(), 1);
        assert_eq!(manners.strict_transport.unwrap(), "max-age=5; includeSubDomains");
        assert_eq!(serving.lifecycle().livez_grace, Duration::from_secs(3));
        assert_eq!(manners.request_timeout, Duration::from_secs(60));
    }
}
