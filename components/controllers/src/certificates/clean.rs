//! Deletes certificate requests some time after they were issued, denied, failed or abandoned, and requests whose
//! certificate has expired.

use super::{APPROVED, DENIED, FAILED};
use crate::encoded::decode;
use crate::subject::Subject;
use holdfast_world::views::CertificateSigningRequest;
use holdfast_world::{Change, Controller, Key, Keys, Plan, Resource, Stamp, Time, View, Viewed, World};

const SETTLED_SECONDS: i64 = 3_600;
const OPEN_SECONDS: i64 = 24 * 3_600;

/// Each plan is for one CertificateSigningRequest.
pub struct Cleaner;

impl Controller for Cleaner {
    fn name(&self) -> &'static str {
        "certificatesigningrequest-cleaner-controller"
    }

    fn account(&self) -> &'static str {
        "certificate-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![CertificateSigningRequest::resource().clone()]
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        keys.add(change.key.clone());
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(found) = world.get::<CertificateSigningRequest>(key) else { return plan };
        match end(found) {
            Some(end) if end <= stamp.time => plan.then(Subject::from(found).delete()),
            Some(end) => plan.requeue_at(end),
            None => {}
        }
        plan
    }
}

/// The time at which a request is to be deleted; `None` if it stays for now.
fn end(found: Viewed<'_, CertificateSigningRequest>) -> Option<Time> {
    let issued = !found.status.certificate.is_empty();
    let settled = found.status.conditions.iter().filter_map(|condition| {
        let seconds = match condition.kind.as_str() {
            DENIED | FAILED => SETTLED_SECONDS,
            APPROVED if issued => SETTLED_SECONDS,
            APPROVED => OPEN_SECONDS,
            _ => return None,
        };
        Some(condition.last_update_time.or(found.meta().creation_timestamp)?.plus_seconds(seconds))
    });
    let open = || found.meta().creation_timestamp.map(|created| created.plus_seconds(OPEN_SECONDS));
    let pending = if found.status.conditions.is_empty() { open() } else { None };
    settled.chain(pending).chain(not_after(&found.status.certificate)).min()
}

fn not_after(certificate: &str) -> Option<Time> {
    let pem = decode(certificate).filter(|pem| !pem.is_empty())?;
    let (_, block) = x509_parser::pem::parse_x509_pem(&pem).ok()?;
    let certificate = block.parse_x509().ok()?;
    Some(Time::from_second(certificate.validity().not_after.timestamp()))
}
