//! Options of the etcd that several servers share.

use anyhow::{Result, anyhow};
use clap::ArgAction;
use holdfast_component::values::{parse_bool, parse_duration};
use holdfast_core::etcd::Media;
use holdfast_outbound::trust::ServerVerifier;
use holdfast_outbound::{Identity, TlsTrust, client_config};
use holdfast_storage_etcd::Transactions;
use holdfast_storage_etcd::grpc::Address;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub mod overrides;

/// The default prefix of all keys in etcd, which is Kubernetes' default too.
const PREFIX: &str = "/registry";

#[derive(clap::Args, Debug, Clone, Default)]
#[group(skip)]
pub struct EtcdArgs {
    /// Resources that are stored in another etcd, as group/resource#URL;URL, such as /events#http://10.0.0.4:2379.
    /// Possible for built-in resources that admission, authorization and Service addresses do not depend on.
    #[arg(long, value_delimiter = ',', value_name = "OVERRIDES")]
    pub etcd_servers_overrides: Vec<String>,
    /// Prefix of all keys in etcd [default: /registry].
    #[arg(long, value_name = "PREFIX")]
    pub etcd_prefix: Option<String>,
    /// CA certificates for etcd's members [default: the CA certificates of the machine].
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd. The server reloads the file when it changes.
    #[arg(long, requires = "etcd_keyfile", value_name = "FILE")]
    pub etcd_certfile: Option<PathBuf>,
    /// Private key of the certificate in --etcd-certfile.
    #[arg(long, requires = "etcd_certfile", value_name = "FILE")]
    pub etcd_keyfile: Option<PathBuf>,
    /// How often addresses and node ports of Services are compared with the allocations that are recorded in etcd.
    /// Tests set a shorter interval than kube-apiserver's [default: 3m].
    #[arg(long, hide = true, value_parser = parse_duration, value_name = "DURATION")]
    pub etcd_repair_interval: Option<Duration>,
    /// How often one of the servers compacts old revisions in etcd; 0 if another program compacts [default: 5m].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub etcd_compaction_interval: Option<Duration>,
    /// 0 leaves the metric apiserver_storage_objects out. With any other value, objects are counted whenever metrics
    /// are requested [default: 1m].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub etcd_count_metric_poll_period: Option<Duration>,
    /// How often the database sizes of etcd's members are read, for metrics; 0 for never [default: 30s].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub etcd_db_metric_poll_interval: Option<Duration>,
    /// Timeout of the health check "etcd" [default: 2s].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub etcd_healthcheck_timeout: Option<Duration>,
    /// Timeout of the health check "etcd-readiness" [default: 2s].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub etcd_readycheck_timeout: Option<Duration>,
    /// For how many seconds new Events share one etcd lease [default: 60].
    #[arg(long, allow_hyphen_values = true, value_name = "SECONDS")]
    pub lease_reuse_duration_seconds: Option<i64>,
    /// Accept an etcd that was restored from a backup, and is older than this server's copy. Objects that differ from
    /// the copy are written again with etcd's content and new versions, and existing watches must start again. Use this
    /// option for one start after a restore.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub etcd_accept_restored: bool,
    /// Every read shows all earlier writes. Only true is accepted, as in Kubernetes since 1.17.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub etcd_quorum_read: Option<bool>,
    /// Transactions that the store supports: full (as etcd does), plain (only Kubernetes' own, which write one key, as
    /// kine does) or auto (the server finds out at the start) [default: auto].
    #[arg(long, value_name = "KIND")]
    pub etcd_transactions: Option<String>,
    /// Encoding of built-in objects in etcd: application/json, application/yaml or application/vnd.kubernetes.protobuf.
    /// No effect on the log in a data folder [default: application/vnd.kubernetes.protobuf].
    #[arg(long, value_name = "TYPE")]
    pub storage_media_type: Option<String>,
}

impl EtcdArgs {
    /// All faults of the options. Without `--etcd-servers` the other options are refused.
    pub fn faults(&self, servers: &[String]) -> Vec<String> {
        let mut faults = Vec::new();
        if servers.is_empty() {
            let name = |name: &str| format!("--{name} is about etcd, and --etcd-servers names none");
            faults.extend(self.given().into_iter().map(name));
            return faults;
        }
        faults.extend(addresses(servers).err().into_iter().flatten());
        faults.extend(overrides::read(&self.etcd_servers_overrides, servers).err().into_iter().flatten());
        faults.extend(self.prefix().err());
        faults.extend(self.media().err());
        faults.extend(self.transactions().err());
        faults.extend(self.tls().err().map(|why| format!("{why:#}")));
        for (name, timeout) in [
            ("etcd-healthcheck-timeout", self.etcd_healthcheck_timeout),
            ("etcd-readycheck-timeout", self.etcd_readycheck_timeout),
        ] {
            if timeout.is_some_and(|timeout| timeout.is_zero()) {
                faults.push(format!("--{name}=0s: no etcd answers in no time"));
            }
        }
        if let Some(seconds @ ..0) = self.lease_reuse_duration_seconds {
            faults.push(format!("--lease-reuse-duration-seconds={seconds}: it must not be less than 0"));
        }
        if self.etcd_quorum_read == Some(false) {
            faults.push("--etcd-quorum-read=false: reads always see all that was written before them".into());
        }
        faults
    }

    /// The names of the given options, without options that Kubernetes' components are usually started with even if
    /// they have no effect.
    fn given(&self) -> Vec<&'static str> {
        let all = [
            ("etcd-servers-overrides", !self.etcd_servers_overrides.is_empty()),
            ("etcd-prefix", self.etcd_prefix.is_some()),
            ("etcd-cafile", self.etcd_cafile.is_some()),
            ("etcd-certfile", self.etcd_certfile.is_some()),
            ("etcd-keyfile", self.etcd_keyfile.is_some()),
            ("etcd-repair-interval", self.etcd_repair_interval.is_some()),
            ("etcd-compaction-interval", self.etcd_compaction_interval.is_some()),
            ("etcd-db-metric-poll-interval", self.etcd_db_metric_poll_interval.is_some()),
            ("etcd-healthcheck-timeout", self.etcd_healthcheck_timeout.is_some()),
            ("etcd-readycheck-timeout", self.etcd_readycheck_timeout.is_some()),
            ("lease-reuse-duration-seconds", self.lease_reuse_duration_seconds.is_some()),
            ("etcd-transactions", self.etcd_transactions.is_some()),
            ("etcd-quorum-read", self.etcd_quorum_read.is_some()),
            ("etcd-accept-restored", self.etcd_accept_restored),
        ];
        all.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect()
    }

    /// The prefix of all keys, without a trailing slash; `/registry` by default.
    pub fn prefix(&self) -> Result<String, String> {
        let text = self.etcd_prefix.as_deref().unwrap_or(PREFIX);
        let wrong = |why: &str| Err(format!("--etcd-prefix={text:?}: {why}"));
        let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        match parts.as_slice() {
            [] => wrong("it is empty, and every key in etcd would be the cluster's"),
            parts if parts.contains(&"..") => wrong("it has a part \"..\""),
            parts if parts.iter().any(|part| part.contains(char::is_control)) => wrong("it has control characters"),
            parts => Ok(format!("/{}", parts.join("/"))),
        }
    }

    pub fn media(&self) -> Result<Media, String> {
        match self.storage_media_type.as_deref() {
            None | Some("") => Ok(Media::default()),
            Some(name) => Media::named(name).ok_or_else(|| {
                let known: Vec<&str> = Media::ALL.iter().map(|(known, _)| *known).collect();
                format!("--storage-media-type={name:?}: there are {}", known.join(", "))
            }),
        }
    }

    /// The transactions that the store supports; `None` means that the server finds out by asking the store.
    pub fn transactions(&self) -> Result<Option<Transactions>, String> {
        match self.etcd_transactions.as_deref() {
            None | Some("" | "auto") => Ok(None),
            Some("full") => Ok(Some(Transactions::Full)),
            Some("plain") => Ok(Some(Transactions::Plain)),
            Some(other) => Err(format!("--etcd-transactions={other:?}: there are auto, full and plain")),
        }
    }

    /// The TLS configuration of the client for `https` members.
    pub fn tls(&self) -> Result<Arc<rustls::ClientConfig>> {
        let mut trust = TlsTrust { identified: true, ..TlsTrust::default() };
        if let Some(file) = &self.etcd_cafile {
            let told = |why: String| anyhow!("--etcd-cafile={}: {why}", file.display());
            trust.authorities = std::fs::read(file).map_err(|error| told(error.to_string()))?;
            if trust.authorities.is_empty() {
                return Err(told("the file is empty".into()));
            }
            ServerVerifier::new(&trust).map_err(told)?;
        }
        let mut config = client_config(&trust, None).map_err(|why| anyhow!("TLS to etcd: {why}"))?;
        if let (Some(certificate), Some(key)) = (&self.etcd_certfile, &self.etcd_keyfile) {
            let told = |why| anyhow!("--etcd-certfile={}: {why}", certificate.display());
            let identity = Identity::of_files(certificate, key).map_err(told)?;
            config.client_auth_cert_resolver = Arc::new(identity).looking();
        }
        // Members that serve only gRPC refuse clients that do not offer HTTP/2.
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }

    /// How often this server compacts; `None` if another program compacts.
    pub fn compaction_interval(&self) -> Option<Duration> {
        Some(self.etcd_compaction_interval.unwrap_or(Duration::from_secs(300))).filter(|interval| !interval.is_zero())
    }

    /// How often Services are compared with the records of reserved addresses and node ports. The default is the same
    /// as in kube-apiserver.
    pub fn repair_interval(&self) -> Duration {
        self.etcd_repair_interval.unwrap_or(Duration::from_secs(180))
    }

    /// How often the database size is requested; `None` if it is never requested.
    pub fn size_interval(&self) -> Option<Duration> {
        Some(self.etcd_db_metric_poll_interval.unwrap_or(Duration::from_secs(30)))
            .filter(|interval| !interval.is_zero())
    }

    /// Whether metrics count the stored objects.
    pub fn counts_objects(&self) -> bool {
        self.etcd_count_metric_poll_period.is_none_or(|period| !period.is_zero())
    }

    /// The timeouts of the health checks `etcd` and `etcd-readiness`.
    pub fn check_timeouts(&self) -> [Duration; 2] {
        [self.etcd_healthcheck_timeout, self.etcd_readycheck_timeout]
            .map(|timeout| timeout.unwrap_or(Duration::from_secs(2)))
    }

    pub fn lease_reuse(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.lease_reuse_duration_seconds.unwrap_or(60)).unwrap_or(0))
    }
}

/// The addresses of the members, or the faults of `--etcd-servers`.
pub fn addresses(servers: &[String]) -> Result<Vec<Address>, Vec<String>> {
    addresses_of("etcd-servers", servers)
}

/// The addresses of members that an option names.
pub fn addresses_of(option: &str, servers: &[String]) -> Result<Vec<Address>, Vec<String>> {
    let read: Vec<Result<Address, String>> =
        servers.iter().map(|server| Address::parse(server).map_err(|why| format!("--{option}: {why}"))).collect();
    let faults: Vec<String> = read.iter().filter_map(|address| address.as_ref().err().cloned()).collect();
    if faults.is_empty() { Ok(read.into_iter().flatten().collect()) } else { Err(faults) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        etcd: EtcdArgs,
    }

    fn args(options: &[&str]) -> EtcdArgs {
        let all = ["x"].iter().chain(options);
        Cli::try_parse_from(all).unwrap_or_else(|error| panic!("{options:?}: {error}")).etcd
    }

    #[track_caller]
    fn fault(options: &[&str], servers: &str, expected: &str) {
        let servers: Vec<String> = servers.split(',').filter(|url| !url.is_empty()).map(str::to_owned).collect();
        let faults = args(options).faults(&servers);
        match expected {
            "" => assert_eq!(faults, Vec::<String>::new(), "{options:?}"),
            expected => assert!(faults.len() == 1 && faults[0].contains(expected), "{options:?}: {faults:?}"),
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_option_and_its_value() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("a file");
            path.display().to_string()
        };
        let (empty, garbage) = (write("empty", ""), write("garbage", "no certificate"));
        let local = "http://127.0.0.1:2379";
        fault(&[], "", "");
        fault(&[], "http://127.0.0.1:2379,https://etcd-1.example:2379", "");
        fault(&[], "ftp://127.0.0.1:2379", "--etcd-servers: \"ftp://127.0.0.1:2379\" is not an address of etcd");
        fault(&[], "http://127.0.0.1:2379,http://etcd", "\"http://etcd\" is not an address");
        fault(&["--etcd-prefix=/a"], "", "--etcd-prefix is about etcd, and --etcd-servers names none");
        fault(&["--etcd-compaction-interval=5m"], "", "--etcd-compaction-interval is about etcd");
        fault(&["--etcd-servers-overrides=/events#http://a:1"], "", "--etcd-servers-overrides is about etcd");
        fault(&["--etcd-servers-overrides=/events"], local, "--etcd-servers-overrides=\"/events\": it must have");
        fault(&["--etcd-servers-overrides=/events#http://a:1,apps/deployments#http://a:1"], local, "");
        fault(&["--etcd-prefix=//"], local, "--etcd-prefix=\"//\": it is empty");
        fault(&["--etcd-prefix=/a/../b"], local, "\"..\"");
        fault(&["--etcd-prefix=/a\u{1b}"], local, "--etcd-prefix=\"/a\\u{1b}\": it has control characters");
        fault(
            &["--storage-media-type=text/html"],
            local,
            "--storage-media-type=\"text/html\": there are application/json",
        );
        fault(&["--storage-media-type="], local, "");
        fault(&["--etcd-healthcheck-timeout=0s"], local, "--etcd-healthcheck-timeout=0s");
        fault(&["--etcd-readycheck-timeout=0"], local, "--etcd-readycheck-timeout=0s");
        fault(&["--lease-reuse-duration-seconds=-1"], local, "--lease-reuse-duration-seconds=-1");
        fault(&["--etcd-quorum-read=false"], local, "--etcd-quorum-read=false");
        fault(&["--etcd-quorum-read"], local, "");
        fault(&["--etcd-transactions=some"], local, "--etcd-transactions=\"some\": there are auto, full and plain");
        fault(&["--etcd-transactions=plain"], local, "");
        fault(&["--etcd-transactions=plain"], "", "--etcd-transactions is about etcd");
        fault(&["--etcd-cafile=/nowhere"], local, "--etcd-cafile=/nowhere: No such file");
        fault(&["--etcd-cafile", &empty], local, "the file is empty");
        fault(&["--etcd-cafile", &garbage], local, "unable to load root certificates");
        fault(&["--etcd-certfile", &garbage, "--etcd-keyfile", &empty], local, &format!("--etcd-certfile={garbage}: "));
        assert!(Cli::try_parse_from(["x", "--etcd-certfile=a"]).is_err(), "it needs its key");
    }

    #[test]
    fn prefixes_are_read_as_kubernetes_reads_them() {
        assert_eq!(args(&[]).prefix().as_deref(), Ok("/registry"));
        for (text, prefix) in
            [("registry", "/registry"), ("/a/", "/a"), ("//a//b/./c", "/a/b/c"), ("/kubernetes.io", "/kubernetes.io")]
        {
            assert_eq!(args(&[&format!("--etcd-prefix={text}")]).prefix().as_deref(), Ok(prefix), "{text}");
        }
    }

    #[test]
    fn defaults_are_those_of_kubernetes_and_zero_means_never() {
        let (usual, never) = (args(&[]), args(&["--etcd-compaction-interval=0", "--etcd-db-metric-poll-interval=0s"]));
        let seconds = |interval: Option<Duration>| interval.map(|interval| interval.as_secs());
        assert_eq!((seconds(usual.compaction_interval()), seconds(usual.size_interval())), (Some(300), Some(30)));
        assert_eq!((never.compaction_interval(), never.size_interval()), (None, None));
        assert_eq!(usual.check_timeouts().map(|timeout| timeout.as_secs()), [2, 2]);
        assert_eq!(usual.lease_reuse().as_secs(), 60);
        assert!(usual.counts_objects() && !args(&["--etcd-count-metric-poll-period=0s"]).counts_objects());
    }
}
