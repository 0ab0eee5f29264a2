//! The authorizers that options and files name, and the webhooks among them.
//!
//! [`configuration`] reads an AuthorizationConfiguration, all faults at once; [`Webhooks`] asks the servers that it or
//! options name, and keeps their answers for a while; [`follow`] has the chain become what the file says while the
//! server runs. What a chain decides is the core's.

mod answers;
pub mod configuration;
mod follow;
mod metrics;
mod webhook;

pub use configuration::{Authorizer, Configuration};
pub use follow::{Followed, follow};
pub use webhook::{Connection, Version, Webhook, Webhooks};

use holdfast_core::authz::abac::Policies;
use holdfast_core::authz::chain::{Chain, Mode, Way};
use holdfast_outbound::Dialer;
use std::sync::Arc;

/// Why there is no chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    #[error("authorization-mode ABAC's authorization policy file not passed")]
    NoPolicies,
    /// One that cannot be asked.
    #[error("{0}")]
    Webhook(String),
}

/// A chain of what is configured, and the webhooks that it asks, by way of a proxy where there is one.
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
