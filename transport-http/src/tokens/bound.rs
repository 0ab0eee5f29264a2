//! Checks whether a token is still valid, by its times and by the objects that it is bound to.

use super::{Claims, Reference};
use holdfast_core::kinds::{Known, known};
use holdfast_core::object::meta;
use holdfast_core::state::State;
use holdfast_value::Value;

/// How far clocks may differ, and how long a token stays valid after the deletion of its object begins, so that a pod
/// can shut down in order.
const LEEWAY_SECONDS: i64 = 60;
const INVALIDATED: &str = "service account token has been invalidated";

/// Returns an error with the reason if the token is not valid.
pub(super) fn check(state: &State, claims: &Claims, now: i64) -> Result<(), String> {
    if claims.exp < now - LEEWAY_SECONDS {
        return Err("service account token has expired".into());
    }
    if claims.nbf > now + LEEWAY_SECONDS {
        return Err("service account token is not valid yet".into());
    }
    if claims.iat > now + LEEWAY_SECONDS {
        return Err("service account token is issued in the future".into());
    }
    let bound = &claims.kubernetes;
    let (namespace, account) = (&bound.namespace, &bound.serviceaccount);
    let Some(found) = find(state, known::SERVICE_ACCOUNT, Some(namespace), account) else {
        return Err(format!("serviceaccounts {:?} not found", account.name));
    };
    let uid = uid_of(&found);
    if uid != account.uid {
        return Err(format!("service account UID ({uid}) does not match claim ({})", account.uid));
    }
    if has_gone(&found, now) {
        return Err(format!("service account {namespace}/{} has been deleted", account.name));
    }
    // A pod's token names the node only for information: its validity depends on the pod.
    let node = bound.node.as_ref().filter(|_| bound.pod.is_none());
    let objects = [
        ("secret", known::SECRET, Some(namespace), bound.secret.as_ref()),
        ("pod", known::POD, Some(namespace), bound.pod.as_ref()),
        ("node", known::NODE, None, node),
    ];
    for (what, known, namespace, reference) in objects {
        let Some(reference) = reference else { continue };
        let found = find(state, known, namespace, reference).ok_or(INVALIDATED)?;
        let uid = uid_of(&found);
        if uid != reference.uid {
            let claimed = &reference.uid;
            return Err(format!("{what} UID ({uid}) does not match service account {what} ref claim ({claimed})"));
        }
        if has_gone(&found, now) {
            return Err(INVALIDATED.into());
        }
    }
    Ok(())
}

fn find(state: &State, known: Known, namespace: Option<&String>, reference: &Reference) -> Option<Value> {
    let (id, _) = state.registry.known(known)?;
    Some(state.get(id, &meta::key(namespace.map(String::as_str), &reference.name))?.document())
}

fn uid_of(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Whether an object's deletion began more than the leeway ago.
fn has_gone(object: &Value, now: i64) -> bool {
    let deleted = object["metadata"]["deletionTimestamp"].as_str();
    let deleted = deleted.and_then(|time| time.parse::<jiff::Timestamp>().ok());
    deleted.is_some_and(|deleted| deleted.as_second() < now - LEEWAY_SECONDS)
}
