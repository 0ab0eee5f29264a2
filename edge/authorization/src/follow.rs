//! Reads the AuthorizationConfiguration file again while the server runs, and updates the authorizer chain.

use crate::configuration::Configuration;
use crate::webhook::Webhooks;
use crate::{Authorizer, chain};
use arc_swap::ArcSwap;
use holdfast_core::authz::abac::Policies;
use holdfast_core::authz::{Chain, Mode};
use holdfast_edge::Followed;
use holdfast_outbound::Dialer;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often the file is read again.
const PERIOD: Duration = Duration::from_secs(2);

/// The file that configures the chain, and the parts that change with its content.
pub struct ChainFile {
    pub file: PathBuf,
    /// The text of the file that is in effect.
    pub text: String,
    /// The policies of the ABAC file, which is read only at the start.
    pub policies: Option<Arc<Policies>>,
    pub chain: Arc<ArcSwap<Chain>>,
    pub webhooks: Arc<Webhooks>,
    /// Makes the connections to webhooks.
    pub dialer: Dialer,
}

impl ChainFile {
    /// Reads the file periodically, without end.
    pub async fn follow(self) {
        let (name, reloads) = ("authorization configuration", self.webhooks.metrics.reloads.clone());
        let mut file = Followed::new(name, self.file.clone(), self.text.clone(), PERIOD, reloads);
        loop {
            let text = file.changed().await;
            file.applied(&self.apply(&text));
        }
    }

    fn apply(&self, text: &str) -> Result<(), String> {
        let configuration = Configuration::read(text).map_err(|faults| faults.join(", "))?;
        self.check_modes(&configuration.authorizers)?;
        let (chain, webhooks) = chain(configuration.authorizers, self.policies.as_ref(), &self.dialer)
            .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        // Webhooks are replaced before the chain, so that every webhook in the chain can be called.
        self.webhooks.replace(webhooks);
        self.chain.store(Arc::new(chain));
        Ok(())
    }

    /// Refuses to add or remove authorizers that need an index or a file of their own, as Kubernetes does.
    fn check_modes(&self, wanted: &[Authorizer]) -> Result<(), String> {
        let now = self.chain.load();
        let lasting = [Mode::Abac, Mode::Node, Mode::Rbac];
        let is_wanted = |mode: &Mode| wanted.iter().any(|authorizer| authorizer.mode() == *mode);
        if let Some(new) = lasting.iter().find(|mode| is_wanted(mode) && !now.has(**mode)) {
            return Err(format!(
                "authorizer type {new} is not allowed if it was not enabled at initial server startup"
            ));
        }
        let missing: Vec<&str> =
            lasting.iter().filter(|mode| now.has(**mode) && !is_wanted(mode)).map(|mode| mode.name()).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("missing required types: [{}]", missing.join(" "))) }
    }
}
