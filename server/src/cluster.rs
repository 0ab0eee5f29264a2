//! The options about publishing this server's address in the cluster, and about other servers of the same API.

use clap::ArgAction;
use holdfast_component::values::{parse_bool, parse_duration};
use holdfast_core::election::Term;
use holdfast_core::kinds::core::ServiceRanges;
use holdfast_core::presence::{Identity, Reconciler, Settings};
use holdfast_core::stamp::Stamp;
use holdfast_tls::server::Pem;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

// The addresses and ports of Services.
#[derive(clap::Args, Debug, Clone)]
#[group(skip)]
pub struct ServiceArgs {
    /// IP ranges for Services: one CIDR, or one IPv4 and one IPv6 CIDR. The family of the first CIDR is the default for
    /// Services.
    #[arg(long, default_value = "10.0.0.0/24", value_name = "CIDR[,CIDR]")]
    pub service_cluster_ip_range: ServiceRanges,
    /// Range of the ports for Services of type NodePort.
    #[arg(long, default_value = "30000-32767", value_parser = parse_ports, value_name = "FIRST-LAST")]
    pub service_node_port_range: (u16, u16),
}

fn parse_ports(text: &str) -> Result<(u16, u16), String> {
    let parse = |port: &str| port.trim().parse().map_err(|_| format!("{port:?} is not a port"));
    let (first, last) = match (text.split_once('-'), text.split_once('+')) {
        (Some((first, last)), _) => (parse(first)?, parse(last)?),
        (None, Some((first, more))) => {
            let first: u16 = parse(first)?;
            (first, first.checked_add(parse(more)?).ok_or("the range ends behind port 65535")?)
        }
        (None, None) => (parse(text)?, parse(text)?),
    };
    if first == 0 || last < first {
        return Err(format!("{text:?} is not a range of ports, such as 30000-32767"));
    }
    Ok((first, last))
}

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Port at which the cluster reaches the server if it is behind a proxy, as with k3s [default: the secure port].
    #[arg(long, value_name = "PORT")]
    pub advertise_port: Option<u16>,
    /// How the endpoints of the Service kubernetes are maintained: lease, master-count or none.
    #[arg(long, default_value = "lease", value_name = "TYPE")]
    pub endpoint_reconciler_type: String,
    /// Maximum number of servers in the endpoints, with --endpoint-reconciler-type=master-count.
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, value_name = "COUNT")]
    pub apiserver_count: i64,
    /// Node port of the Service kubernetes; 0 for none.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "PORT")]
    pub kubernetes_service_node_port: i64,
    /// Duration of the server's identity Lease in kube-system [default: 3600, and no lease with up].
    #[arg(long, allow_negative_numbers = true, value_name = "SECONDS")]
    pub identity_lease_duration_seconds: Option<i64>,
    /// How often the identity Lease is renewed [default: 10].
    #[arg(long, allow_negative_numbers = true, value_name = "SECONDS")]
    pub identity_lease_renew_interval_seconds: Option<i64>,
    /// Garbage collection: delete dependents together with their owner, and support foreground deletion and orphaning.
    #[arg(long, default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub enable_garbage_collector: bool,

    /// CA certificates for other API servers of the cluster. No effect: this server answers every request itself.
    #[arg(long, value_name = "FILE")]
    pub peer_ca_file: Option<PathBuf>,
    /// Address at which other API servers of the cluster reach this one. No effect: no request is passed between
    /// servers.
    #[arg(long, value_name = "ADDRESS")]
    pub peer_advertise_ip: Option<String>,
    /// Port at which other API servers of the cluster reach this one. No effect: no request is passed between servers.
    #[arg(long, value_name = "PORT")]
    pub peer_advertise_port: Option<String>,

    /// Duration of the Lease of the server that coordinates leader elections, with the feature
    /// CoordinatedLeaderElection: when the Lease has not been renewed for this time, another server takes it over.
    #[arg(long, default_value = "15s", value_parser = parse_duration, value_name = "DURATION")]
    pub coordinated_leadership_lease_duration: Duration,
    /// How long the server tries to renew the Lease for coordinating leader elections before it stops coordinating.
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "DURATION")]
    pub coordinated_leadership_renew_deadline: Duration,
    /// How often the server renews the Lease for coordinating leader elections, or tries to acquire it.
    #[arg(long, default_value = "2s", value_parser = parse_duration, value_name = "DURATION")]
    pub coordinated_leadership_retry_period: Duration,
}

impl ClusterArgs {
    /// All faults of the options. `node_ports` is the range of node ports, `advertised` the value of
    /// `--advertise-address`.
    pub fn faults(&self, ranges: ServiceRanges, node_ports: (u16, u16), advertised: Option<IpAddr>) -> Vec<String> {
        let mut faults = Vec::new();
        let mut fault = |is_wrong: bool, why: String| faults.extend(is_wrong.then_some(why));
        fault(
            self.reconciler().is_none(),
            format!("--endpoint-reconciler-type not implemented: {}", self.endpoint_reconciler_type),
        );
        fault(
            self.apiserver_count <= 0,
            format!("--apiserver-count should be a positive number, but value '{}' provided", self.apiserver_count),
        );
        let port = self.kubernetes_service_node_port;
        fault(
            !(0..=65535).contains(&port),
            format!(
                "--kubernetes-service-node-port {port} must be between 0 and 65535, inclusive. If 0, the Kubernetes \
                 master service will be of type ClusterIP"
            ),
        );
        let (first, last) = node_ports;
        let is_outside = (1..=65535).contains(&port) && !(i64::from(first)..=i64::from(last)).contains(&port);
        fault(is_outside, format!("kubernetes service node port range {first}-{last} doesn't contain {port}"));
        let (lease, renewal) = self.identity_seconds();
        fault(lease <= 0, "--identity-lease-duration-seconds should be a positive number".into());
        fault(renewal <= 0, "--identity-lease-renew-interval-seconds should be a positive number".into());
        fault(
            lease > 0 && renewal >= lease,
            "--identity-lease-renew-interval-seconds must be less than --identity-lease-duration-seconds".into(),
        );
        if let Some(advertised) = advertised {
            let is_other_family = advertised.is_ipv4() != ranges.first.address(1).is_ipv4();
            fault(
                is_other_family && self.reconciler() != Some(Reconciler::Nobody),
                format!(
                    "service IP family {:?} must match public address family {:?}",
                    ranges.first.to_string(),
                    advertised.to_string()
                ),
            );
        }
        faults.extend(self.peer_faults());
        let order = [
            (
                "lease-duration",
                self.coordinated_leadership_lease_duration,
                "renew-deadline",
                self.coordinated_leadership_renew_deadline,
            ),
            (
                "renew-deadline",
                self.coordinated_leadership_renew_deadline,
                "retry-period",
                self.coordinated_leadership_retry_period,
            ),
        ];
        if self.coordinated_leadership_retry_period.is_zero() {
            faults.push("--coordinated-leadership-retry-period must be greater than zero".into());
        }
        for (longer, long, shorter, short) in order {
            if long <= short {
                faults.push(format!(
                    "--coordinated-leadership-{longer} must be greater than --coordinated-leadership-{shorter}"
                ));
            }
        }
        faults
    }

    fn peer_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if let Some(file) = self.peer_ca_file.as_ref().filter(|file| !file.as_os_str().is_empty())
            && let Err(why) = Pem::File(file.clone()).certificates()
        {
            faults.push(format!("--peer-ca-file: {why}"));
        }
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(address) = given(&self.peer_advertise_ip)
            && address.parse::<IpAddr>().is_err()
        {
            faults.push(format!("--peer-advertise-ip: {address:?} is not an address"));
        }
        if let Some(port) = given(&self.peer_advertise_port)
            && !port.parse::<u16>().is_ok_and(|port| port > 0)
        {
            faults.push(format!("--peer-advertise-port: {port:?} must be between 1 and 65535"));
        }
        faults
    }

    fn reconciler(&self) -> Option<Reconciler> {
        match self.endpoint_reconciler_type.as_str() {
            "lease" => Some(Reconciler::Lease),
            "master-count" => Some(Reconciler::MasterCount(usize::try_from(self.apiserver_count).unwrap_or(1))),
            "none" => Some(Reconciler::Nobody),
            _ => None,
        }
    }

    fn identity_seconds(&self) -> (i64, i64) {
        (self.identity_lease_duration_seconds.unwrap_or(3600), self.identity_lease_renew_interval_seconds.unwrap_or(10))
    }

    /// How clients in the cluster reach the server.
    pub fn settings(&self, ranges: ServiceRanges, reached: Option<IpAddr>, bound: SocketAddr) -> Settings {
        Settings {
            ranges,
            address: reached,
            port: self.advertise_port.filter(|port| *port != 0).unwrap_or(bound.port()),
            node_port: u16::try_from(self.kubernetes_service_node_port).unwrap_or_default(),
            reconciler: self.reconciler().unwrap_or(Reconciler::Lease),
            servers: Vec::new(),
        }
    }

    /// The lease terms of coordinated leader election, and the retry period.
    pub fn term(&self, host: &str, stamp: Stamp) -> (Term, Duration) {
        let term = Term {
            holder: format!("{host}_{}", stamp.uid(u64::MAX)),
            lease: self.coordinated_leadership_lease_duration,
            renew_deadline: self.coordinated_leadership_renew_deadline,
        };
        (term, self.coordinated_leadership_retry_period)
    }

    /// The server's identity Lease and how often it is renewed; `None` if no option asks for one and `usually` is
    /// false.
    pub fn identity(&self, usually: bool, host: String, stamp: Stamp) -> Option<(Identity, Duration)> {
        let asked =
            self.identity_lease_duration_seconds.is_some() || self.identity_lease_renew_interval_seconds.is_some();
        let (lease, renewal) = self.identity_seconds();
        let identity =
            Identity { host, lease_seconds: u32::try_from(lease).unwrap_or(u32::MAX), holder: stamp.uid(u64::MAX) };
        let period = Duration::from_secs(u64::try_from(renewal).unwrap_or(1));
        (asked || usually).then_some((identity, period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        cluster: ClusterArgs,
    }

    fn faults(options: &[&str]) -> Vec<String> {
        let cluster = Cli::parse_from(["holdfast"].iter().chain(options)).cluster;
        cluster.faults(ServiceRanges::default(), (30_000, 32_767), "::1".parse().ok())
    }

    #[test]
    fn what_is_wrong_is_told_all_at_once() {
        assert_eq!(faults(&["--endpoint-reconciler-type=none"]), Vec::<String>::new());
        let faults = faults(&[
            "--endpoint-reconciler-type=ring",
            "--apiserver-count=0",
            "--kubernetes-service-node-port=80",
            "--identity-lease-duration-seconds=5",
            "--peer-ca-file=/nowhere/ca.crt",
            "--peer-advertise-ip=here",
            "--peer-advertise-port=0",
            "--coordinated-leadership-renew-deadline=15s",
        ]);
        let expected = [
            "--endpoint-reconciler-type not implemented: ring",
            "--apiserver-count should be a positive number, but value '0' provided",
            "kubernetes service node port range 30000-32767 doesn't contain 80",
            "--identity-lease-renew-interval-seconds must be less than",
            "service IP family \"10.0.0.0/24\" must match public address family \"::1\"",
            "/nowhere/ca.crt",
            "--peer-advertise-ip",
            "--peer-advertise-port",
            "--coordinated-leadership-lease-duration must be greater than",
        ];
        assert_eq!(faults.len(), expected.len(), "{faults:#?}");
        for (fault, part) in faults.iter().zip(expected) {
            assert!(fault.contains(part), "{part} in {fault}");
        }
    }

    #[test]
    fn port_ranges_parse_or_say_why() {
        assert_eq!(parse_ports("30000-32767"), Ok((30000, 32767)));
        assert_eq!(parse_ports("30000+10"), Ok((30000, 30010)));
        assert!(parse_ports("9-8").is_err());
        assert!(parse_ports("0-8").is_err());
        assert!(parse_ports("x").is_err());
        assert!(parse_ports("65000+1000").is_err());
    }
}
