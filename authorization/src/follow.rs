//! Follows the AuthorizationConfiguration file while the server runs, and updates the authorizer chain.

use crate::configuration::Configuration;
use crate::webhook::Webhooks;
use crate::{Authorizer, chain};
use holdfast_core::authz::abac::Policies;
use holdfast_core::authz::chain::{Configured, Mode};
use holdfast_outbound::Dialer;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often the file is read again.
const PERIOD: Duration = Duration::from_secs(2);

/// A file, and what its content changes.
pub struct Followed {
    pub file: PathBuf,
    /// The text that was last applied.
    pub text: String,
    /// The policies of the ABAC file, which is not followed.
    pub policies: Option<Arc<Policies>>,
    pub chain: Configured,
    pub webhooks: Arc<Webhooks>,
    /// How connections to webhooks are made.
    pub dialer: Dialer,
}

/// Follows the file for ever. An invalid file is reported once and changes nothing.
pub async fn follow(mut followed: Followed) {
    let metrics = &followed.webhooks.metrics;
    metrics.configured(&followed.text);
    loop {
        tokio::time::sleep(PERIOD).await;
        let read = tokio::fs::read_to_string(&followed.file).await;
        let text = match read {
            Ok(text) if text == followed.text => continue,
            Ok(text) => text,
            Err(error) => {
                tracing::error!(file = %followed.file.display(), %error, "the authorization configuration cannot be read");
                metrics.reloaded(&Err(error.to_string()));
                followed.text.clear();
                continue;
            }
        };
        let taken = followed.apply(&text);
        metrics.reloaded(&taken);
        match taken {
            Ok(()) => {
                tracing::info!(file = %followed.file.display(), "the authorization configuration was reloaded");
                metrics.configured(&text);
            }
            Err(why) => {
                let file = followed.file.display();
                tracing::error!(%file, why, "the new authorization configuration is invalid: the old one stays in use");
            }
        }
        followed.text = text;
    }
}

impl Followed {
    fn apply(&self, text: &str) -> Result<(), String> {
        let configuration = Configuration::read(text).map_err(|faults| faults.join(", "))?;
        self.check_modes(&configuration.authorizers)?;
        let (chain, webhooks) = chain(configuration.authorizers, self.policies.as_ref(), &self.dialer)
            .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        // Webhooks are replaced before the chain, so that a webhook in the chain can always be asked.
        self.webhooks.replace(webhooks);
        self.chain.replace(chain);
        Ok(())
    }

    /// Refuses to add or remove authorizers that have an index or a file of their own, as Kubernetes does.
    fn check_modes(&self, wanted: &[Authorizer]) -> Result<(), String> {
        let now = self.chain.now();
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
