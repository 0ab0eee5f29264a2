//! Admission: what is changed, refused or told of a write beside the rules of its kind.
//!
//! Start at [`plugins::PLUGINS`], the table of plug-ins in their order, and at [`Attributes`], which is what each of
//! them sees. Those that are on ([`Admission`]) form a chain that runs twice for a write: its mutating half on what the
//! client sent, its validating half on what would be stored. A plug-in is a pair of functions over a snapshot; what
//! only the outside can do (a webhook) is an effect like any other of the pipeline.

mod asked;
mod attributes;
pub mod call;
mod changes;
mod expressions;
mod observed;
pub mod plugins;
mod policies;
pub mod registered;
mod rules;
mod settings;
mod webhooks;

pub use attributes::{Admitted, Attributes, Body, Operation, Told};
pub use call::Call;
pub use observed::{End, Half, Observation, Ticks, Timing};
pub use plugins::{ImagePolicy, Plugin};
pub use settings::{Admission, Choice, ConfigurationFault};
pub(crate) use webhooks::Pauses;

use crate::pipeline::effect::Stop;

/// The first half: the plug-ins may change the object. When webhooks or policies have, all run once more, because what
/// the earlier ones saw is no longer what there is.
pub(crate) fn mutate(attributes: &mut Attributes) -> Result<(), Stop> {
    attributes.timed(None, |attributes| {
        run(attributes, |plugin| plugin.mutate)?;
        if attributes.reinvocation.is_wanted {
            attributes.reinvocation.round = 1;
            run(attributes, |plugin| plugin.mutate)?;
        }
        Ok(())
    })
}

fn run(attributes: &mut Attributes, step: impl Fn(&Plugin) -> Option<plugins::Step>) -> Result<(), Stop> {
    let admission = attributes.admission;
    for (number, plugin) in admission.plugins() {
        if let Some(step) = step(plugin) {
            attributes.timed(Some(*number), step)?;
        }
    }
    Ok(())
}

/// The second half: the plug-ins see what would be stored.
pub(crate) fn validate(attributes: &mut Attributes) -> Result<(), Stop> {
    attributes.is_validating = true;
    attributes.timed(None, |attributes| run(attributes, |plugin| plugin.validate))
}
