//! Leader election between servers on one etcd, for work that only one of them may do. The server that holds a Lease
//! does the work, as with several processes of kube-controller-manager.

use clap::ArgAction;
use holdfast_component::api::Api;
use holdfast_component::election::run::identity;
use holdfast_component::election::{Election, ElectionOutcome, LockKind, Terms};
use holdfast_component::metrics::Metrics;
use holdfast_component::options::ElectionSettings;
use holdfast_component::values::{parse_bool, parse_duration};
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_service::housekeeping::bootstrap;
use holdfast_transport_http::{Transport, memory};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The names of the Leases in kube-system. All but the last are Kubernetes' names, so that a component in a process of
/// its own does not run beside the same component of a server.
pub const CONTROLLERS: &str = "kube-controller-manager";
pub const SCHEDULER: &str = "kube-scheduler";
pub const CLOUD: &str = "cloud-controller-manager";
pub const NODES: &str = "holdfast-nodes";

/// How long an ending server may take to release its leases.
const LEAVING_MAX: Duration = Duration::from_secs(3);

#[derive(clap::Args, Debug, Clone, Default)]
#[group(skip)]
#[command(next_help_heading = "Leader election")]
pub struct Args {
    /// Run controllers, the scheduler and simulated nodes only as the elected leader among the servers of the cluster
    /// [default: true with --etcd-servers].
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    leader_elect: Option<bool>,
    /// How long other candidates wait for a leader that does not renew its lease [default: 15s].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    leader_elect_lease_duration: Option<Duration>,
    /// How long a leader tries to renew its lease before it gives up [default: 10s].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    leader_elect_renew_deadline: Option<Duration>,
    /// How long to wait between two attempts to acquire or renew the lease [default: 2s].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    leader_elect_retry_period: Option<Duration>,
}

impl Args {
    /// All faults that parsing does not show.
    pub fn faults(&self) -> Vec<String> {
        let is_off = self.leader_elect == Some(false);
        let settings =
            ElectionSettings { leader_elect: !is_off, terms: self.terms(), ..ElectionSettings::usual(CONTROLLERS) };
        settings.faults("leaderElection")
    }

    fn terms(&self) -> Terms {
        let Terms { lease, renew, retry } = ElectionSettings::usual(CONTROLLERS).terms;
        Terms {
            lease: self.leader_elect_lease_duration.unwrap_or(lease),
            renew: self.leader_elect_renew_deadline.unwrap_or(renew),
            retry: self.leader_elect_retry_period.unwrap_or(retry),
        }
    }
}

/// This server as a candidate in the leader elections of its components.
#[derive(Clone)]
pub struct Elections {
    asked: Option<bool>,
    terms: Terms,
    identity: String,
    metrics: Arc<Metrics>,
    /// Whether the server is about to end. Each running election has a receiver.
    ends: Arc<watch::Sender<bool>>,
}

impl Elections {
    pub fn new(args: &Args) -> Elections {
        let metrics = Arc::new(Metrics::new(Default::default()));
        let ends = Arc::new(watch::Sender::new(false));
        Elections { asked: args.leader_elect, terms: args.terms(), identity: identity(), metrics, ends }
    }

    /// Whether the components of a server, or of a fork, run only while it is the elected leader. Without
    /// `--leader-elect`, this is the case if other servers write to the server's log.
    pub fn are_held(&self, transport: &Arc<Transport>) -> bool {
        self.asked.unwrap_or_else(|| transport.service().engine().is_shared())
    }

    /// Registers the metrics of elections, if there are any.
    pub fn register(&self, transport: &Arc<Transport>) {
        if self.are_held(transport) {
            transport.service().with_registry(|registry| self.metrics.register_elections(registry));
        }
    }

    /// Runs work while this server leads, or always if no elections are held. `work` is called each time that the
    /// server becomes the leader.
    pub async fn lead<W: Future<Output = ()>>(
        &self,
        transport: Arc<Transport>,
        lease: &'static str,
        work: impl Fn() -> W,
    ) {
        if !self.are_held(&transport) {
            drop(transport);
            return work().await;
        }
        let mut ends = self.ends.subscribe();
        let user = Arc::new(User::new(bootstrap::USER, &[PRIVILEGED_GROUP]));
        let api = Api::new(kube::Client::new(memory::service_called(transport, user, lease), "default"));
        let api = Arc::new(api);
        loop {
            let election = Election {
                api: api.clone(),
                form: LockKind::Leases,
                namespace: "kube-system".into(),
                name: lease.into(),
                terms: self.terms,
                identity: self.identity.clone(),
                component: lease.into(),
                metrics: self.metrics.clone(),
                standing: Arc::default(),
            };
            let end = async {
                // An error means that the server has ended.
                let _ = ends.wait_for(|ends| *ends).await;
            };
            match election.lead(work(), end).await {
                // The server continues to serve, and may lead again.
                ElectionOutcome::Lost => {}
                ElectionOutcome::Done(()) | ElectionOutcome::Stopped => return,
            }
        }
    }

    /// Ends the work of this server as leader, and releases its leases, so that another server can lead at once.
    pub async fn leave(&self) {
        self.ends.send_replace(true);
        let left = tokio::time::timeout(LEAVING_MAX, self.ends.closed()).await;
        if left.is_err() {
            tracing::warn!("leases in kube-system are not given back: other servers lead when they have expired");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn times_that_contradict_each_other_are_told() {
        let faults = |options: &[&str]| Command::parse_from(["up"].iter().chain(options)).args.faults();
        assert_eq!(faults(&[]), Vec::<String>::new());
        assert_eq!(faults(&["--leader-elect-lease-duration=3s"]).len(), 1);
        assert!(faults(&["--leader-elect-lease-duration=3s", "--leader-elect=false"]).is_empty());
        let short =
            ["--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=1s"];
        assert_eq!(faults(&short), Vec::<String>::new());
    }
}
