//! Labels the Secrets that contain service account tokens with the day of the token's last use, so that a controller
//! can remove unused Secrets. Also records the day since which uses are tracked.

use super::bootstrap::{MANAGER, USER};
use crate::Service;
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_core::kinds::{Known, known};
use holdfast_core::object::meta;
use holdfast_core::request::{Body, Format, Options, Request, Target, Verb};
use holdfast_core::state::State;
use holdfast_value::{Value, json};
use jiff::civil::Date;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// The label of a Secret with the day on which its token was last used.
pub const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const NAMESPACE: &str = "kube-system";
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
const SINCE: &str = "since";
/// The maximum number of Secrets that wait to be labelled. Secrets above this number are labelled at the next use of
/// their tokens.
const WAITING_MAX: usize = 1024;
/// The time for which uses are collected before they are written.
const PAUSE: Duration = Duration::from_millis(100);
/// The interval at which the server checks the ConfigMap that records since which day uses are tracked.
const PERIOD: Duration = Duration::from_secs(30 * 60);

/// Secrets whose tokens were used today, but which are not labelled with today yet.
#[derive(Default)]
pub struct Used {
    waiting: Mutex<BTreeSet<SecretId>>,
    came: Notify,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SecretId {
    namespace: String,
    name: String,
    uid: String,
}

impl Used {
    /// Records that a Secret's token is used now. A label with tomorrow's date stays, because another server's clock
    /// may be ahead.
    pub fn note(&self, secret: &Value) {
        let metadata = &secret["metadata"];
        let last = metadata["labels"][LAST_USED].as_str().unwrap_or_default();
        let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
        let tomorrow = today.tomorrow().unwrap_or(today);
        if last == today.to_string() || last == tomorrow.to_string() {
            return;
        }
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        let mut waiting = self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if waiting.len() < WAITING_MAX {
            waiting.insert(SecretId { namespace: text("namespace"), name: text("name"), uid: text("uid") });
            self.came.notify_one();
        }
    }

    fn take(&self) -> BTreeSet<SecretId> {
        std::mem::take(&mut self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

/// Writes the labels of used Secrets until the service ends.
pub async fn run(service: Weak<Service>, used: Arc<Used>) {
    loop {
        let Some(held) = service.upgrade() else { return };
        let state = held.engine().snapshot();
        let today = held.engine().stamp().time.to_zoned(jiff::tz::TimeZone::UTC).date();
        if let Some(request) = tracking(&state, today) {
            act(&held, request).await;
        }
        for place in used.take() {
            let Some((kind, version)) = state.registry.known(known::SECRET) else { continue };
            // The patch contains the UID, so that it cannot change another Secret of the same name.
            let patch = json!({"metadata": {"uid": place.uid, "labels": {LAST_USED: today.to_string()}}});
            let target =
                Target { kind, version, namespace: Some(place.namespace), name: Some(place.name), subresource: None };
            act(&held, request(Verb::Patch, target, &patch, Format::MergePatch)).await;
        }
        drop((held, state));
        _ = tokio::time::timeout(PERIOD, used.came.notified()).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// The request that records the day since which uses are tracked; `None` if the day is already recorded.
fn tracking(state: &State, today: Date) -> Option<Request> {
    let find = |known: Known, namespace: Option<&str>, name: &str| {
        let (kind, version) = state.registry.known(known)?;
        Some((kind, version, state.get(kind, &meta::key(namespace, name)).map(|entry| entry.document())))
    };
    // If the namespace `kube-system` does not exist, the cluster is still being set up, or is part of a test.
    find(known::NAMESPACE, None, NAMESPACE)?.2?;
    let (kind, version, existing) = find(known::CONFIG_MAP, Some(NAMESPACE), TRACKING)?;
    let target =
        |name: Option<String>| Target { kind, version, namespace: Some(NAMESPACE.into()), name, subresource: None };
    match existing {
        None => {
            let map = json!({"apiVersion": "v1", "kind": known::CONFIG_MAP.kind,
                "metadata": {"name": TRACKING, "namespace": NAMESPACE}, "data": {SINCE: today.to_string()}});
            Some(request(Verb::Create, target(None), &map, Format::Json))
        }
        Some(map) if map["data"][SINCE].as_str().is_some_and(|since| since.parse::<Date>().is_ok()) => None,
        Some(_) => {
            let patch = json!({"data": {SINCE: today.to_string()}});
            Some(request(Verb::Patch, target(Some(TRACKING.into())), &patch, Format::MergePatch))
        }
    }
}

async fn act(service: &Arc<Service>, request: Request) {
    if let Err(refusal) = service.act(request).await {
        tracing::debug!(?refusal, "the use of a token could not be noted");
    }
}

fn request(verb: Verb, target: Target, document: &Value, format: Format) -> Request {
    let user = Arc::new(User::new(USER, &[PRIVILEGED_GROUP]));
    let options = Options { field_manager: Some(MANAGER.into()), ..Options::default() };
    let body = Body { content: document.to_string().into(), format };
    Request { user, verb, target, options, body, id: "legacy-tokens".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_noted_once_a_day() {
        let used = Used::default();
        let secret =
            |last: &str| json!({"metadata": {"namespace": "n", "name": "s", "uid": "u", "labels": {LAST_USED: last}}});
        let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
        used.note(&secret(&today.tomorrow().unwrap().to_string()));
        assert_eq!(used.take().len(), 0);
        used.note(&secret(&today.yesterday().unwrap().to_string()));
        used.note(&secret("rubbish"));
        assert_eq!(used.take().len(), 1);
    }

    #[test]
    fn those_who_wait_are_bounded() {
        let used = Used::default();
        for name in 0..2 * WAITING_MAX {
            used.note(&json!({"metadata": {"namespace": "n", "name": name.to_string(), "uid": "u"}}));
        }
        assert_eq!(used.take().len(), WAITING_MAX);
    }
}
