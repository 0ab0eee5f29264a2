//! The subresources that are answered outside the API server.

use crate::kinds::{CheckConnect, ConnectOptions, Lead};
use crate::refusal::Refusal;
use std::collections::BTreeSet;

/// The rules of a kind for connect requests such as `pods/exec` and `services/proxy`. The service's layer `connect`
/// reads these rules.
#[derive(Default)]
pub struct ConnectRules {
    /// Finds the destination of subresources that are answered outside the API server: `proxy`, `log`. It is `None` if
    /// the kind has no such subresource.
    pub leads: Option<Lead>,
    /// Checks the options of such a subresource, before any look-up.
    pub(in crate::kinds) options: Option<CheckConnect>,
}

impl ConnectRules {
    /// Whether the kind has subresources that are answered outside the API server.
    pub fn is_possible(&self) -> bool {
        self.leads.is_some()
    }

    /// Refuses options that are invalid for every object. `gates_off` are the feature gates that are off.
    pub fn check_options(
        &self,
        name: &str,
        part: &str,
        options: &ConnectOptions,
        gates_off: &BTreeSet<&'static str>,
    ) -> Result<(), Refusal> {
        self.options.map_or(Ok(()), |check| check(name, part, options, gates_off))
    }
}
