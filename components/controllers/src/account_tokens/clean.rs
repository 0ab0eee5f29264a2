//! Removes the Secrets with tokens that clusters once made for every service account, if nobody uses them. An unused
//! token is first marked invalid, and its Secret is deleted later.

use super::{BY_SECRET, TYPE, account_of, index, place};
use crate::Settings;
use crate::subject::{Subject, part};
use holdfast_value::json;
use holdfast_world::views::{ConfigMap, Pod, Secret, ServiceAccount};
use holdfast_world::{Change, Controller, Key, Keys, Plan, Resource, Stamp, Text, Time, Verb, View, Viewed, World};

const DAY_SECONDS: i64 = 24 * 3_600;
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// The namespace and name of the ConfigMap with the date since which the API server records the use of tokens.
const TRACKING: (&str, &str) = ("kube-system", "kube-apiserver-legacy-service-account-token-tracking");
/// An index of pods by the Secrets that they mount.
const MOUNTED: &str = "mounted";

/// Each plan is for one Secret.
pub struct TokenCleaner {
    period_seconds: i64,
}

impl TokenCleaner {
    pub fn new(settings: &Settings) -> TokenCleaner {
        TokenCleaner { period_seconds: settings.account_token_period_seconds }
    }
}

impl Controller for TokenCleaner {
    fn name(&self) -> &'static str {
        "legacy-serviceaccount-token-cleaner-controller"
    }

    fn account(&self) -> &'static str {
        "legacy-service-account-token-cleaner"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![
            Secret::resource().clone(),
            ServiceAccount::resource().clone(),
            Pod::resource().clone(),
            ConfigMap::resource().clone(),
        ]
    }

    fn indexes(&self, world: &mut World) {
        index(world);
        world.index::<Pod>(MOUNTED, |object| {
            let pod = object.view::<Pod>();
            let volumes = pod.into_iter().flat_map(|pod| &pod.spec.volumes);
            volumes
                .filter_map(|volume| Some(place(&object.meta.namespace, volume.secret.as_ref()?.secret_name.as_str())))
                .collect::<Vec<Text>>()
        });
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<Secret>() {
            keys.add(change.key.clone());
        } else if (&*change.key.namespace, &*change.key.name) == TRACKING {
            let tokens = world.all::<Secret>().filter(|secret| secret.kind == TYPE);
            tokens.for_each(|secret| keys.add(secret.object.key()));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let tracking = world.get::<ConfigMap>(&Key::new(TRACKING.0, TRACKING.1));
        let since = tracking.and_then(|map| date(part(map.object, &["data", "since"]).as_str()?));
        let (Some(since), Some(secret)) = (since, world.get::<Secret>(key)) else { return plan };
        if secret.kind != TYPE || !was_made_for_an_account(world, secret) {
            return plan;
        }
        let used = secret.meta().label(LAST_USED).map(date);
        if used == Some(None) {
            // The label with the token's last use is no date, so the Secret is kept: the token may be in use.
            return plan;
        }
        let period = self.period_seconds;
        let last = [Some(since), secret.meta().creation_timestamp, used.flatten()].into_iter().flatten().max();
        let end = last.unwrap_or(since).plus_seconds(period);
        // The labels have the precision of a day, and pods that mount the Secret do not trigger a plan, so the Secret
        // is planned daily.
        plan.requeue_at(stamp.time.plus_seconds(DAY_SECONDS));
        let is_mounted = world.indexed::<Pod>(MOUNTED, &place(&key.namespace, &key.name)).next().is_some();
        if end > stamp.time || is_mounted {
            return plan;
        }
        match label(secret, INVALID_SINCE) {
            None => {
                let today = &stamp.time.to_string()[..10];
                let patch = json!({"metadata": {"labels": {INVALID_SINCE: today}}});
                plan.then(Subject::from(secret).strategic_patch(patch));
            }
            Some(invalid) if invalid.plus_seconds(period) <= stamp.time => {
                let mut action = Subject::from(secret).delete();
                if let Verb::Delete { version, .. } = &mut action.verb {
                    *version = Some(secret.meta().resource_version.as_str().into());
                }
                plan.then(action);
            }
            Some(_) => {}
        }
        plan
    }
}

/// Whether a controller made the token for its service account, without a user's request: the account lists such a
/// token in its `secrets`.
fn was_made_for_an_account(world: &World, secret: Viewed<'_, Secret>) -> bool {
    let listed = place(&secret.meta().namespace, &secret.meta().name);
    let Some(account) = account_of(world, secret) else { return false };
    world.indexed::<ServiceAccount>(BY_SECRET, &listed).any(|listing| listing.meta().uid == account.meta().uid)
}

fn label(secret: Viewed<'_, Secret>, name: &str) -> Option<Time> {
    date(secret.meta().label(name)?)
}

/// The beginning of the day that a label names as `2026-11-21`; `None` if the text is no date.
fn date(text: &str) -> Option<Time> {
    Time::parse(&format!("{text}T00:00:00Z"))
}
