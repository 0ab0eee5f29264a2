//! Repairs the records of reserved addresses and node ports. Only one of the servers on an etcd repairs them.

use holdfast_core::amends::{Leaks, Wrong};
use holdfast_core::kinds::networking::AddressOwner;
use holdfast_service::Service;
use holdfast_storage_etcd::claims::{Address, Allocations};
use holdfast_storage_etcd::client::Fault;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A difference between the records and the Services that lasts longer than this pause is not caused by a write in
/// progress.
const PAUSE: Duration = Duration::from_secs(5);

/// Repairs once per interval, while `is_first` is true.
pub async fn run(service: Arc<Service>, claims: Arc<Allocations>, is_first: Arc<AtomicBool>, interval: Duration) {
    let mut leaks = Leaks::default();
    // After this pause `is_first` has its right value.
    tokio::time::sleep(PAUSE).await;
    loop {
        if is_first.load(Ordering::Relaxed) {
            if let Err(why) = repair(&service, &claims, &mut leaks).await {
                tracing::warn!(%why, "the addresses and node ports of Services could not be compared with their records");
            }
        } else {
            leaks = Leaks::default();
        }
        tokio::time::sleep(interval).await;
    }
}

async fn repair(service: &Arc<Service>, claims: &Arc<Allocations>, leaks: &mut Leaks) -> Result<(), Fault> {
    let earlier = find(service, claims).await?;
    tokio::time::sleep(PAUSE).await;
    let wrong = earlier.still(&find(service, claims).await?);
    let due = leaks.due(&wrong.leaked_ports);
    let news = wrong.news(&service.engine().snapshot(), service.engine().stamp());
    for step in news {
        if let Err(refusal) = service.act(step.request).await {
            tracing::debug!(?refusal, "an Event about a repair was refused");
        }
    }
    let claims = claims.clone();
    blocking(move || mend(&claims, &wrong, &due)).await
}

async fn find(service: &Arc<Service>, claims: &Arc<Allocations>) -> Result<Wrong, Fault> {
    let claims = claims.clone();
    let ports = blocking(move || claims.read_ports()).await?;
    Ok(Wrong::find(&service.engine().snapshot(), &ports, service.engine().stamp().time))
}

fn mend(claims: &Allocations, wrong: &Wrong, due: &BTreeSet<u16>) -> Result<(), Fault> {
    // If etcd has no bitmap of node ports yet, this call creates the bitmap.
    claims.mend_ports(&wrong.unrecorded_ports.keys().copied().collect(), due)?;
    if !due.is_empty() {
        tracing::info!("node ports {due:?} are free: no Service has them");
    }
    let leaked: Vec<(&str, &AddressOwner)> =
        wrong.leaked.iter().map(|(address, holder)| (address.as_str(), holder)).collect();
    claims.free_addresses(&leaked)?;
    let unrecorded: Vec<(&str, &AddressOwner)> =
        wrong.unrecorded.iter().map(|(address, holder)| (address.as_str(), holder)).collect();
    for ((address, holder), answer) in unrecorded.iter().zip(claims.take_addresses(&unrecorded)) {
        let AddressOwner { namespace, name } = holder;
        match answer? {
            Address::Made(_) => tracing::warn!("{address} of the Service {namespace}/{name} was recorded as free"),
            Address::Had => {}
            Address::Taken(_) => tracing::warn!(
                "{address} of the Service {namespace}/{name} is recorded for another Service: please delete and recreate the Service"
            ),
        }
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Fault> + Send + 'static) -> Result<T, Fault> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Fault::Unknown(error.to_string())))
}
