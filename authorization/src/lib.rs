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
use std::sync::Arc;

/// A chain of what is configured, and the webhooks that it asks.
pub fn chain(authorizers: Vec<Authorizer>, policies: Option<&Arc<Policies>>) -> Result<(Chain, Vec<Webhook>), String> {
    let (mut webhooks, mut ways, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for authorizer in authorizers {
        ways.push(match authorizer {
            Authorizer::Webhook { webhook, connection } => {
                match Webhook::new(&webhook.name, &connection) {
                    Ok(asked) => webhooks.push(asked),
                    Err(why) => faults.push(format!("webhook {:?}: {why}", webhook.name)),
                }
                Way::Webhook(webhook)
            }
            Authorizer::Of(Mode::Abac) => match policies {
                Some(policies) => Way::Abac(policies.clone()),
                None => {
                    faults.push("authorization-mode ABAC's authorization policy file not passed".into());
                    continue;
                }
            },
            Authorizer::Of(Mode::AlwaysAllow) => Way::AlwaysAllow,
            Authorizer::Of(Mode::AlwaysDeny) => Way::AlwaysDeny,
            Authorizer::Of(Mode::Rbac) => Way::Rbac,
            Authorizer::Of(Mode::Node) => Way::Node,
            Authorizer::Of(Mode::Webhook) => {
                faults.push("a webhook needs a connection".into());
                continue;
            }
        });
    }
    if faults.is_empty() { Ok((Chain::new(ways), webhooks)) } else { Err(faults.join("; ")) }
}
