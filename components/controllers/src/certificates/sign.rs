//! Signs approved certificate requests that name one of this cluster's own signers.

use super::request::{Requested, client_usages};
use super::{API_CLIENT, FAILED, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN, Signer, Terms, is, is_approved};
use crate::Settings;
use crate::encoded::encode;
use crate::subject::Subject;
use holdfast_value::{Value, json};
use holdfast_world::views::CertificateSigningRequest;
use holdfast_world::{BackOff, Change, Controller, Key, Keys, Plan, Resource, Stamp, Time, View, World};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The shortest validity of a certificate, in seconds. A shorter requested duration is raised to this duration.
const SECONDS_MIN: i64 = 600;
/// A certificate becomes valid this many seconds before the present time, for clients whose clocks are slow.
const EARLIER_SECONDS: i64 = 300;
/// A duration below this many seconds counts from the present time, although the certificate is valid from an earlier
/// time on. Any other duration counts from that earlier time.
const SHORT_SECONDS: i64 = 8 * 3600;

/// Each plan is for one CertificateSigningRequest.
pub struct Signing {
    signers: BTreeMap<String, Arc<dyn Signer>>,
    longest_seconds: i64,
}

impl Signing {
    pub fn new(settings: &Settings) -> Signing {
        Signing { signers: settings.signers.clone(), longest_seconds: settings.signing_seconds }
    }

    fn terms(&self, asked: Option<i64>, end: Time, usages: &[String], stamp: Stamp) -> Terms {
        let seconds = asked.map_or(self.longest_seconds, |asked| asked.max(SECONDS_MIN).min(self.longest_seconds));
        let not_before = stamp.time.plus_seconds(-EARLIER_SECONDS);
        let from = if seconds < SHORT_SECONDS { stamp.time } else { not_before };
        Terms { not_before, not_after: from.plus_seconds(seconds).min(end), usages: usages.to_vec(), seed: stamp.seed }
    }
}

impl Controller for Signing {
    fn name(&self) -> &'static str {
        "certificatesigningrequest-signing-controller"
    }

    fn queue(&self) -> &'static str {
        "certificate"
    }

    fn account(&self) -> &'static str {
        "certificate-controller"
    }

    fn back_off(&self) -> BackOff {
        BackOff { first_ms: 200, last_ms: 1_000_000 }
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
        let spec = &found.spec;
        let Some(signer) = self.signers.get(&spec.signer_name) else { return plan };
        if !found.status.certificate.is_empty() || !is_approved(&found) || is(&found, FAILED) {
            return plan;
        }
        let requested = match Requested::decode(&spec.request) {
            Ok(requested) => requested,
            Err(why) => {
                plan.skipped.push(format!("unable to parse csr {:?}: {why}", key.name));
                return plan;
            }
        };
        let subject = Subject::from(found);
        if let Err(why) = fits(&spec.signer_name, &requested, &spec.usages) {
            let failed = json!({"type": FAILED, "status": "True", "reason": "SignerValidationFailure", "message": why,
                "lastUpdateTime": stamp.time, "lastTransitionTime": stamp.time});
            plan.steps.extend(subject.status(|status| push(status, failed)).map(|action| vec![action]));
            return plan;
        }
        let terms = self.terms(spec.expiration_seconds, signer.end(), &spec.usages, stamp);
        match signer.sign(&requested.der, &terms) {
            Ok(certificate) => {
                let encoded = encode(certificate.as_bytes());
                let signed = subject.status(|status| drop(status.insert("certificate", encoded.into())));
                plan.steps.extend(signed.map(|action| vec![action]));
            }
            Err(why) => {
                plan.skipped.push(format!("error auto signing csr: {why}"));
                plan.unready = true;
            }
        }
        plan
    }
}

fn push(status: &mut holdfast_value::Map, condition: Value) {
    if let Some(conditions) = status.entry("conditions").or_insert_with(|| json!([])).as_array_mut() {
        conditions.push(condition);
    }
}

/// Returns `Err` with the reason if a signer must not sign a request even though the request is approved.
fn fits(signer: &str, requested: &Requested, usages: &[String]) -> Result<(), String> {
    match signer {
        KUBELET_CLIENT => requested.kubelet_client(usages),
        KUBELET_SERVING => requested.kubelet_serving(usages),
        API_CLIENT => client_usages(usages),
        LEGACY_UNKNOWN => Ok(()),
        other => Err(format!("unrecognized signer: {other:?}")),
    }
}
