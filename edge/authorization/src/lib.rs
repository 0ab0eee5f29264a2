//! The authorizers that options and files configure, including authorization webhooks.
//!
//! [`configuration`] parses an AuthorizationConfiguration and returns all errors at once. [`Webhooks`] calls the
//! configured servers and caches their answers. [`ChainFile`] updates the chain from the file while the server runs.
//! The core uses the chain to decide.

pub mod configuration;
mod follow;
mod metrics;
mod webhook;

pub use configuration::{Authorizer, Configuration};
pub use follow::ChainFile;
pub use webhook::{Connection, Webhook, Webhooks};

use holdfast_core::authz::abac::Policies;
use holdfast_core::authz::chain::{Chain, Mode, Way};
use holdfast_outbound::Dialer;
use std::sync::Arc;

/// Why the chain could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    #[error("authorization-mode ABAC's authorization policy file not passed")]
    NoPolicies,
    /// A webhook cannot be called, for example because its kubeconfig is invalid.
    #[error("{0}")]
    Webhook(String),
}

/// The chain of the configured authorizers, and the webhooks in the chain, which `dialer` connects to.
pub fn chain(
    authorizers: Vec<Authorizer>,
    policies: Option<&Arc<Policies>>,
    dialer: &Dialer,
) -> Result<(Chain, Vec<Webhook>), Vec<ChainFault>> {
    let (mut webhooks, mut ways, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for authorizer in authorizers {
        ways.push(match authorizer {
            Authorizer::Webhook { webhook, connection } => {
                match Webhook::new(&webhook.name, &connection, dialer) {
                    Ok(asked) => webhooks.push(asked),
                    Err(why) => faults.push(ChainFault::Webhook(format!("webhook {:?}: {why}", webhook.name))),
                }
                Way::Webhook(webhook)
            }
            Authorizer::Of(Mode::Abac) => match policies {
                Some(policies) => Way::Abac(policies.clone()),
                None => {
                    faults.push(ChainFault::NoPolicies);
                    continue;
                }
            },
            Authorizer::Of(Mode::AlwaysAllow) => Way::AlwaysAllow,
            Authorizer::Of(Mode::AlwaysDeny) => Way::AlwaysDeny,
            Authorizer::Of(Mode::Rbac) => Way::Rbac,
            Authorizer::Of(Mode::Node) => Way::Node,
            Authorizer::Of(Mode::Webhook) => {
                faults.push(ChainFault::Webhook("a webhook needs a connection".into()));
                continue;
            }
        });
    }
    if faults.is_empty() { Ok((Chain::new(ways), webhooks)) } else { Err(faults) }
}
