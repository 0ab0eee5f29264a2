//! Faults of the API server's options that parsing them does not show.

use crate::flags::Args;
use crate::{admission, aggregation, authentication, read_memory, tls};
use anyhow::Result;

impl Args {
    /// All faults of the options, found before the server starts.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.serving.manners().err().unwrap_or_default();
        faults.extend(self.storage.etcd.faults(&self.storage.etcd_servers));
        faults.extend(self.serving.bounds().err().into_iter().flatten());
        faults.extend(self.limits.read_memory.and_then(read_memory::fault));
        let (ranges, ports) = (self.services.service_cluster_ip_range, self.services.service_node_port_range);
        faults.extend(self.cluster.faults(ranges, ports, self.network.advertise_address));
        faults.extend(self.metrics.shown().err().into_iter().flatten());
        faults.extend(self.serving.tracing().err().map(|why| why.to_string()));
        faults.extend(self.offered.offer().err().into_iter().flatten());
        faults.extend(authentication::faults(self));
        let egress = aggregation::egress(self).map_err(|why| faults.push(format!("{why:#}"))).unwrap_or_default();
        faults.extend(self.authorization.faults(&egress.control_plane));
        match admission::chain(&self.admission, &[]) {
            Ok(chain) => faults.extend(admission::faults(&chain)),
            Err(found) => faults.extend(found),
        }
        faults.extend(self.audit.faults());
        faults.extend(tls::faults(self));
        faults.extend(self.kubelets.faults());
        faults.extend(aggregation::identity(self).and_then(Result::err).map(|why| format!("{why:#}")));
        match self.api_gates() {
            Ok(gates) => {
                if !gates.dual_stack && self.services.service_cluster_ip_range.second.is_some() {
                    faults.push(
                        "--service-cluster-ip-range: a second range needs the feature gate IPv6DualStack, which is off"
                            .into(),
                    );
                }
                if self.limits.is_fair(&gates) {
                    faults.extend(self.fairness_faults());
                }
                let live = self.encryption.live(&gates);
                faults.extend(live.err().map(|why| format!("{why:#}")));
                if !gates.request_header_uid && !self.front_proxy.requestheader_uid_headers.is_empty() {
                    faults.push(
                        "--requestheader-uid-headers can not be set while feature gate RemoteRequestHeaderUID is off"
                            .into(),
                    );
                }
            }
            Err(why) => faults.push(why.to_string()),
        }
        faults
    }

    /// The faults of options that contradict priority and fairness while it is on.
    fn fairness_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let (reading, mutating) = (self.limits.max_requests_inflight, self.limits.max_mutating_requests_inflight);
        if (reading, mutating) == (0, 0) {
            faults.push(format!(
                "--enable-priority-and-fairness: --max-requests-inflight={reading} and \
                 --max-mutating-requests-inflight={mutating} are the seats of the server, and they must add up to \
                 something positive"
            ));
        }
        let asked = self.offered.offer().map(|(offer, _)| offer.asked).unwrap_or_default();
        let names = ["flowcontrol.apiserver.k8s.io/v1", "api/ga", "api/all"];
        // The more specific name takes precedence.
        if let Some((name, false)) = names.iter().find_map(|name| Some((*name, *asked.get(*name)?))) {
            faults.push(format!("--runtime-config={name}=false conflicts with --enable-priority-and-fairness=true"));
        }
        faults
    }
}
