//! Options that earlier versions had for all profiles of a configuration together.

use super::arguments::Arguments;
use super::reader::Reader;
use super::version::Version;
use crate::plugin::ExtensionPoint;
use crate::plugins::{default_preemption, inter_pod_affinity, volume_binding};
use crate::profile::Profile;
use holdfast_value::{Value, json};

/// Options that earlier versions had for all profiles together. The options also apply to the profile that is made from
/// a Policy or a provider.
#[derive(Debug, Clone, Default)]
pub struct GlobalOptions {
    no_preemption: bool,
    bind_timeout_seconds: Option<i64>,
    pub(super) hard_pod_affinity_weight: Option<i64>,
}

/// The arguments of InterPodAffinity that set `hardPodAffinityWeight` to `weight`.
pub fn hard_affinity_arguments(weight: i64) -> Value {
    json!({"hardPodAffinityWeight": weight})
}

/// Reads `hardPodAffinityWeight` by its former name `hardPodAffinitySymmetricWeight`; the error has the message of the
/// earlier versions.
pub fn hard_affinity_weight(reader: &Reader<'_>) -> Option<i64> {
    let is_valid = |weight: i64| (0..=100).contains(&weight);
    super::checked_int(reader, "hardPodAffinitySymmetricWeight", "not in valid range [0-100]", is_valid)
}

impl GlobalOptions {
    pub(super) fn read(reader: &Reader<'_>, version: Version) -> Self {
        if !version.has_global_options() {
            return GlobalOptions::default();
        }
        GlobalOptions {
            no_preemption: reader.bool("disablePreemption").unwrap_or(false),
            bind_timeout_seconds: reader.int_within("bindTimeoutSeconds", 0, i64::MAX),
            hard_pod_affinity_weight: (version == Version::V1Alpha1).then(|| hard_affinity_weight(reader)).flatten(),
        }
    }

    /// For each option that is set, adds the arguments that it stands for, unless the plug-in has arguments of its own.
    pub(super) fn add_defaults(&self, arguments: &mut Arguments) {
        if let Some(seconds) = self.bind_timeout_seconds {
            arguments.set_default(volume_binding::NAME, json!({"bindTimeoutSeconds": seconds}));
        }
        if let Some(weight) = self.hard_pod_affinity_weight {
            arguments.set_default(inter_pod_affinity::NAME, hard_affinity_arguments(weight));
        }
    }

    pub(super) fn finish(&self, mut profile: Profile) -> Profile {
        if self.no_preemption {
            profile.preemption = None;
            if let Some(after) = profile.points.get_mut(&ExtensionPoint::PostFilter) {
                after.retain(|enabled| enabled.plugin.name() != default_preemption::NAME);
            }
            for set in profile.document.sets.values_mut() {
                set.enabled.retain(|(name, _)| name != default_preemption::NAME);
            }
        }
        profile
    }
}
