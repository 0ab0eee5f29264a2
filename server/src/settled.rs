//! Options that have only one possible effect in Holdfast, or none.
//!
//! Such an option is accepted with every value whose meaning the server fulfils, and refused with any other value.
//! Options of features that Kubernetes has removed are in [`removed`](crate::removed).

use crate::offered::read_minor;
use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use holdfast_component::values::{parse_bool, parse_duration};
use holdfast_core::kinds::offered::{NEWEST, OLDEST};
use std::marker::PhantomData;
use std::net::IpAddr;

/// The settled options of one command, which clap parses, and the options among them that were given.
#[derive(Debug, Clone)]
pub struct Settled<T> {
    given: Vec<&'static Row>,
    of: PhantomData<T>,
}

impl<T> Settled<T> {
    /// Warns of options that have no effect because Kubernetes has removed their feature.
    pub fn warn(&self) {
        for row in self.given.iter().filter(|row| row.gone) {
            tracing::warn!("Flag --{} has been deprecated, it has no effect: {}", row.name, row.because);
        }
    }

    /// Logs, in one line, which settled options were given.
    pub fn warn_of_all(&self) {
        let names: Vec<&str> = self.given.iter().map(|row| row.name).collect();
        if !names.is_empty() {
            tracing::warn!("options without effect here (see --help): --{}", names.join(", --"));
        }
    }
}

/// The list of the settled options of a command.
pub trait Options: Send + Sync + 'static {
    const OPTIONS: &'static [Row];
}

#[derive(Debug)]
pub struct Row {
    name: &'static str,
    form: Form,
    /// Accepts a value, or returns why the server cannot do what the value demands.
    takes: fn(&str) -> Result<(), String>,
    /// Why the option changes nothing, as the help shows it.
    because: &'static str,
    /// Kubernetes has removed the feature, so the option should no longer be given.
    gone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A switch: `--name` without a value means true.
    Switch,
    Value,
}

const fn row(name: &'static str, form: Form, takes: fn(&str) -> Result<(), String>, because: &'static str) -> Row {
    Row { name, form, takes, because, gone: false }
}

/// An option of a feature that Kubernetes has removed.
const fn gone(name: &'static str, form: Form, takes: fn(&str) -> Result<(), String>, because: &'static str) -> Row {
    Row { name, form, takes, because, gone: true }
}

impl Row {
    fn arg(&'static self) -> Arg {
        let parser = ValueParser::new(|text: &str| (self.takes)(text).map(|()| text.to_owned()));
        let arg = Arg::new(self.name).long(self.name).value_parser(parser).action(ArgAction::Append).help(self.because);
        // The help does not show options of removed features: people should not use them, and envtest passes options
        // that it finds in the help.
        let arg = arg.help_heading("Options without effect").hide(self.gone);
        match self.form {
            Form::Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("BOOL"),
            Form::Value => arg.num_args(1).value_name("VALUE"),
        }
    }
}

impl<T: Options> clap::FromArgMatches for Settled<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given = |row: &&Row| matches.value_source(row.name) == Some(ValueSource::CommandLine);
        Ok(Settled { given: T::OPTIONS.iter().filter(is_given).collect(), of: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Options> clap::Args for Settled<T> {
    fn augment_args(command: Command) -> Command {
        T::OPTIONS.iter().fold(command, |command, row| command.arg(row.arg()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn any(_: &str) -> Result<(), String> {
    Ok(())
}

fn boolean(text: &str) -> Result<(), String> {
    parse_bool(text).map(|_| ())
}

fn number(text: &str) -> Result<(), String> {
    text.parse::<i64>().map(|_| ()).map_err(|error| error.to_string())
}

fn duration(text: &str) -> Result<(), String> {
    parse_duration(text).map(|_| ())
}

fn yes(text: &str) -> Result<(), String> {
    match parse_bool(text)? {
        true => Ok(()),
        false => Err("it is always true here".into()),
    }
}

fn no(text: &str) -> Result<(), String> {
    match parse_bool(text)? {
        false => Ok(()),
        true => Err("it is always false here".into()),
    }
}

fn no_signer(text: &str) -> Result<(), String> {
    match text {
        "" => Ok(()),
        _ => {
            Err("no other process is asked to sign tokens: they are signed with --service-account-signing-key-file"
                .into())
        }
    }
}

fn etcd3(text: &str) -> Result<(), String> {
    match text {
        "" | "etcd3" => Ok(()),
        other => Err(format!("{other:?} is not a storage backend of any release")),
    }
}

/// Options of `holdfast apiserver` and `holdfast up`.
#[derive(Debug, Clone)]
pub enum ApiServer {}

impl Options for ApiServer {
    const OPTIONS: &'static [Row] = &[
        gone("address", Form::Value, address, NO_PLAIN_PORT),
        gone(
            "audit-dynamic-configuration",
            Form::Switch,
            no,
            "Only false is accepted: Kubernetes removed dynamic audit sinks in 1.19",
        ),
        gone(
            "azure-container-registry-config",
            Form::Value,
            nothing,
            "Only the empty value is accepted: this is an option of kubelets",
        ),
        gone("cloud-provider-gce-l7lb-src-cidrs", Form::Value, networks, NO_FIREWALLS),
        gone("cloud-provider-gce-lb-src-cidrs", Form::Value, networks, NO_FIREWALLS),
        row("default-watch-cache-size", Form::Value, number, "No effect: watches are served from the log"),
        row("deserialization-cache-size", Form::Value, number, "No effect: the server has no such cache"),
        row("enable-logs-handler", Form::Switch, no, "Only false is accepted: log files are not served"),
        gone(
            "enable-swagger-ui",
            Form::Switch,
            boolean,
            "No effect: the server has no such page; Kubernetes removed it in 1.14",
        ),
        gone(
            "experimental-logging-sanitization",
            Form::Switch,
            no,
            "Only false is accepted: from -v=8 on, the log contains requests and answers",
        ),
        gone("insecure-bind-address", Form::Value, address, NO_PLAIN_PORT),
        gone("insecure-port", Form::Value, no_port, NO_PLAIN_PORT),
        gone(
            "master-service-namespace",
            Form::Value,
            any,
            "No effect: the Service kubernetes is in the namespace default",
        ),
        gone(
            "repair-malformed-updates",
            Form::Switch,
            yes,
            "Only true is accepted: an update without a uid gets the uid of the object",
        ),
        row(
            "service-account-lookup",
            Form::Switch,
            yes,
            "Only true is accepted: the service account of a token is always looked up",
        ),
        row(
            "service-account-signing-endpoint",
            Form::Value,
            no_signer,
            "Only the empty value is accepted: tokens are signed with --service-account-signing-key-file",
        ),
        row("storage-backend", Form::Value, etcd3, "Only etcd3 is accepted; no effect on the embedded log"),
        row(
            "storage-initialization-timeout",
            Form::Value,
            duration,
            "No effect: the server listens only when it has read the log",
        ),
        gone("storage-versions", Form::Value, any, "No effect: each kind is stored in one fixed version"),
        row("target-ram-mb", Form::Value, number, "No effect: there are no watch caches to size"),
        row("watch-cache", Form::Switch, boolean, "No effect: reads and watches are always served from memory"),
        row("watch-cache-sizes", Form::Value, any, "No effect: watches are served from the log"),
    ];
}

const NO_FIREWALLS: &str = "No effect: this server sets up no firewalls";
const NO_PLAIN_PORT: &str = "No effect: there is no port without TLS";

fn nothing(text: &str) -> Result<(), String> {
    match text {
        "" => Ok(()),
        _ => Err("this server does not read it".into()),
    }
}

fn address(text: &str) -> Result<(), String> {
    text.parse::<IpAddr>().map(|_| ()).map_err(|error| error.to_string())
}

/// Accepts only port 0: nothing is served without TLS, authentication and authorization.
fn no_port(text: &str) -> Result<(), String> {
    match text.parse::<u16>().map_err(|error| error.to_string())? {
        0 => Ok(()),
        _ => Err("there is no port without TLS: give 0, and use --secure-port".into()),
    }
}

fn networks(text: &str) -> Result<(), String> {
    let is_network = |part: &str| {
        let (address, bits) = part.split_once('/')?;
        let bits: u8 = bits.parse().ok()?;
        let address: IpAddr = address.parse().ok()?;
        (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some(())
    };
    match text.split(',').filter(|part| !part.is_empty()).find(|part| is_network(part).is_none()) {
        None => Ok(()),
        Some(part) => Err(format!("invalid CIDR address: {part}")),
    }
}

/// Options of the scheduler and of controller managers.
#[derive(Debug, Clone)]
pub enum Component {}

impl Options for Component {
    const OPTIONS: &'static [Row] = &[
        row("emulated-version", Form::Value, newest, "Only 1.35 is accepted: the component emulates no older release"),
        row(
            "min-compatibility-version",
            Form::Value,
            release,
            "Accepts any release up to 1.35, without effect: the component works with all of them",
        ),
    ];
}

/// Accepts only the newest release, as `1.35` or `kube=1.35`.
fn newest(text: &str) -> Result<(), String> {
    match read_minor(&[text.to_owned()])? {
        None | Some(NEWEST) => Ok(()),
        Some(minor) => Err(format!("emulation version 1.{minor} is not between [1.{NEWEST}, 1.{NEWEST}.0]")),
    }
}

fn release(text: &str) -> Result<(), String> {
    match read_minor(&[text.to_owned()])? {
        None | Some(OLDEST..=NEWEST) => Ok(()),
        Some(minor) => {
            Err(format!("minCompatibilityVersion version 1.{minor} is not between [1.{OLDEST}, 1.{NEWEST}]"))
        }
    }
}

/// Options of `holdfast controller-manager`.
#[derive(Debug, Clone)]
pub enum ControllerManager {}

impl Options for ControllerManager {
    const OPTIONS: &'static [Row] = &[
        row("allow-untagged-cloud", Form::Switch, no, NO_CLOUD),
        row(
            "attach-detach-reconcile-sync-period",
            Form::Value,
            duration,
            "No effect: attachments are checked at every change",
        ),
        row(
            "cidr-allocator-type",
            Form::Value,
            range_allocator,
            "Only RangeAllocator is accepted: the other allocators need a cloud",
        ),
        row("cloud-config", Form::Value, nothing, NO_CLOUD),
        row("cloud-provider", Form::Value, no_cloud, NO_CLOUD),
        row("cluster-name", Form::Value, any, NO_CLOUD),
        row(
            "concurrent-namespace-syncs",
            Form::Value,
            number,
            "No effect: Holdfast's API server itself empties and removes deleted namespaces",
        ),
        row("concurrent-service-syncs", Form::Value, number, NO_CLOUD),
        row("configure-cloud-routes", Form::Switch, boolean, NO_CLOUD),
        row("controller-start-interval", Form::Value, zero, "Only 0s is accepted: controllers start together"),
        row(
            "disable-attach-detach-reconcile-sync",
            Form::Switch,
            boolean,
            "No effect: attachments are checked at every change",
        ),
        row("enable-leader-migration", Form::Switch, no, NO_MIGRATION),
        row("external-cloud-volume-plugin", Form::Value, nothing, NO_CLOUD),
        row("flex-volume-plugin-dir", Form::Value, any, "No effect: no Flexvolume driver runs in this process"),
        row("leader-migration-config", Form::Value, nothing, NO_MIGRATION),
        row(
            "min-resync-period",
            Form::Value,
            duration,
            "No effect: controllers act on changes, without periodic resyncs",
        ),
        row(
            "namespace-sync-period",
            Form::Value,
            duration,
            "No effect: the API server empties deleted namespaces itself",
        ),
        row("node-monitor-period", Form::Value, duration, "No effect: each node has its own deadline"),
        row("node-sync-period", Form::Value, duration, NO_CLOUD),
        row("pv-recycler-increment-timeout-nfs", Form::Value, number, NO_RECYCLER),
        row("pv-recycler-minimum-timeout-hostpath", Form::Value, number, NO_RECYCLER),
        row("pv-recycler-minimum-timeout-nfs", Form::Value, number, NO_RECYCLER),
        row("pv-recycler-pod-template-filepath-hostpath", Form::Value, nothing, NO_RECYCLER),
        row("pv-recycler-pod-template-filepath-nfs", Form::Value, nothing, NO_RECYCLER),
        row("pv-recycler-timeout-increment-hostpath", Form::Value, number, NO_RECYCLER),
        row("resource-quota-sync-period", Form::Value, duration, "No effect: usage is counted at every change"),
        row("route-reconciliation-period", Form::Value, duration, NO_CLOUD),
    ];
}

/// Options of `holdfast cloud-controller-manager`.
#[derive(Debug, Clone)]
pub enum CloudControllerManager {}

impl Options for CloudControllerManager {
    const OPTIONS: &'static [Row] = &[
        row("cidr-allocator-type", Form::Value, allocator, "No effect: the controller manager allocates the ranges"),
        gone("cloud-provider-gce-l7lb-src-cidrs", Form::Value, networks, OTHERS_FIREWALLS),
        gone("cloud-provider-gce-lb-src-cidrs", Form::Value, networks, OTHERS_FIREWALLS),
        gone("external-cloud-volume-plugin", Form::Value, any, "No effect: this process attaches no volumes"),
        gone("node-sync-period", Form::Value, duration, "No effect: nodes are handled when they change"),
        row("webhooks", Form::Value, nothing, "Only the empty value is accepted: this process serves no webhooks"),
    ];
}

const OTHERS_FIREWALLS: &str = "No effect: the cloud's provider, connected over gRPC, has its own configuration";

fn allocator(text: &str) -> Result<(), String> {
    match text {
        "RangeAllocator" | "CloudAllocator" | "IPAMFromCluster" | "IPAMFromCloud" => Ok(()),
        other => Err(format!("{other:?} is not an allocator of any release")),
    }
}

const NO_CLOUD: &str = "No effect: this process uses no cloud, see holdfast cloud-controller-manager";
const NO_MIGRATION: &str =
    "Only false or the empty value is accepted: no controller of this process migrates to a cloud controller manager";
const NO_RECYCLER: &str =
    "No effect: no volume is recycled; the policy Recycle is for NFS and host folders, and is deprecated";

fn range_allocator(text: &str) -> Result<(), String> {
    match text {
        "RangeAllocator" => Ok(()),
        other => Err(format!("{other:?} needs a cloud, and this process has none: use RangeAllocator")),
    }
}

fn no_cloud(text: &str) -> Result<(), String> {
    match text {
        "" | "external" => Ok(()),
        other => Err(format!("{other:?} is not built in: use external, and holdfast cloud-controller-manager")),
    }
}

fn zero(text: &str) -> Result<(), String> {
    match parse_duration(text)?.is_zero() {
        true => Ok(()),
        false => Err("controllers start together here".into()),
    }
}

/// Options of `holdfast etcd`, which stores nothing, has no peers and writes no log.
#[derive(Debug, Clone)]
pub enum Etcd {}

impl Options for Etcd {
    const OPTIONS: &'static [Row] = &[
        row("advertise-client-urls", Form::Value, any, "No effect: no other member reads them"),
        row("auto-compaction-mode", Form::Value, any, NOTHING_KEPT),
        row("auto-compaction-retention", Form::Value, any, NOTHING_KEPT),
        row("data-dir", Form::Value, any, NOTHING_KEPT),
        row("election-timeout", Form::Value, number, NO_PEERS),
        row("heartbeat-interval", Form::Value, number, NO_PEERS),
        row("initial-advertise-peer-urls", Form::Value, any, NO_PEERS),
        row("initial-cluster", Form::Value, any, NO_PEERS),
        row("initial-cluster-state", Form::Value, any, NO_PEERS),
        row("initial-cluster-token", Form::Value, any, NO_PEERS),
        row("listen-peer-urls", Form::Value, any, NO_PEERS),
        row("log-level", Form::Value, any, NO_LINES),
        row("log-outputs", Form::Value, any, NO_LINES),
        row("logger", Form::Value, any, NO_LINES),
        row("max-request-bytes", Form::Value, number, NOTHING_KEPT),
        row("max-snapshots", Form::Value, number, NOTHING_KEPT),
        row("max-txn-ops", Form::Value, number, NOTHING_KEPT),
        row("max-wals", Form::Value, number, NOTHING_KEPT),
        row("name", Form::Value, any, NO_PEERS),
        row("quota-backend-bytes", Form::Value, number, NOTHING_KEPT),
        row("snapshot-count", Form::Value, number, NOTHING_KEPT),
        row("warning-apply-duration", Form::Value, duration, NO_LINES),
    ];
}

const NOTHING_KEPT: &str = "No effect: nothing is stored here";
const NO_PEERS: &str = "No effect: there are no other members";
const NO_LINES: &str = "No effect: nothing is logged";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    #[command(args_override_self = true)]
    struct Cli {
        #[command(flatten)]
        api_server: Settled<ApiServer>,
        #[command(flatten)]
        etcd: Settled<Etcd>,
    }

    #[derive(Parser)]
    struct Manager {
        #[command(flatten)]
        settled: Settled<ControllerManager>,
        #[command(flatten)]
        component: Settled<Component>,
    }

    #[test]
    fn what_was_given_to_no_effect_is_known() {
        let manager =
            Manager::try_parse_from(["holdfast", "--cluster-name=c", "--pv-recycler-minimum-timeout-nfs", "9"]);
        let manager = manager.expect("options that are settled");
        let names: Vec<&str> = manager.settled.given.iter().map(|row| row.name).collect();
        assert_eq!(names, ["cluster-name", "pv-recycler-minimum-timeout-nfs"]);
        for taken in ["--emulated-version=kube=1.35", "--min-compatibility-version=1.34"] {
            assert!(Manager::try_parse_from(["holdfast", taken]).is_ok(), "{taken}");
        }
        for refused in [
            "--enable-leader-migration",
            "--leader-migration-config=f",
            "--cidr-allocator-type=CloudAllocator",
            "--cloud-config=f",
            "--pv-recycler-pod-template-filepath-nfs=f",
            "--emulated-version=1.34",
            "--min-compatibility-version=1.36",
        ] {
            assert!(Manager::try_parse_from(["holdfast", refused]).is_err(), "{refused}");
        }
    }

    fn verdict(options: &[&str]) -> Result<(), String> {
        let arguments = ["holdfast"].into_iter().chain(options.iter().copied());
        Cli::try_parse_from(arguments).map(|_| ()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_tables_are_sorted() {
        for table in [ApiServer::OPTIONS, Component::OPTIONS, ControllerManager::OPTIONS, Etcd::OPTIONS] {
            assert!(table.is_sorted_by(|a, b| a.name < b.name), "sorted, and none twice");
        }
    }

    #[test]
    fn what_happens_anyhow_is_taken() {
        for options in [
            &["--service-account-lookup"][..],
            &["--service-account-lookup=true", "--watch-cache=false", "--watch-cache"],
            &["--storage-backend=etcd3", "--insecure-port=0", "--address=127.0.0.1"],
            &["--cloud-provider-gce-lb-src-cidrs=10.0.0.0/8,::/0"],
            &["--listen-peer-urls=http://localhost:0", "--data-dir", "/tmp/x", "--quota-backend-bytes=1"],
        ] {
            assert_eq!(verdict(options), Ok(()), "{options:?}");
        }
    }

    #[test]
    fn what_kubernetes_gave_up_is_told_of() {
        let cli = Cli::parse_from(["holdfast", "--insecure-port=0", "--watch-cache=true", "--address=0.0.0.0"]);
        let names: Vec<&str> = cli.api_server.given.iter().filter(|row| row.gone).map(|row| row.name).collect();
        assert_eq!(names, ["address", "insecure-port"]);
    }

    #[test]
    fn what_does_not_happen_is_refused_by_name() {
        for (option, why) in [
            ("--service-account-lookup=false", "always true here"),
            ("--service-account-lookup=maybe", "invalid syntax"),
            ("--insecure-port=8080", "no port without TLS"),
            ("--cloud-provider-gce-l7lb-src-cidrs=10.0.0.0/33", "invalid CIDR address"),
            ("--audit-dynamic-configuration", "always false here"),
            ("--storage-backend=etcd2", "etcd2"),
            ("--watch-cache=perhaps", "invalid syntax"),
            ("--default-watch-cache-size=x", "invalid digit"),
        ] {
            let refused = verdict(&[option]).expect_err(option);
            let name = option.split('=').next().expect("a name");
            assert!(refused.contains(name) && refused.contains(why), "{option}: {refused}");
        }
    }
}
