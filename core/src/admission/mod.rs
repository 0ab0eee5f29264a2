//! Admission: changes, refusals and warnings of a write in addition to the rules of its kind.
//!
//! Start at [`plugins::PLUGINS`], the table of plug-ins in the order in which they run, and at [`Attributes`], the
//! plug-ins' view of a write. The enabled plug-ins ([`Admission`]) form a chain that runs twice for a write: the
//! mutating half on the client's object, the validating half on the object that would be stored. A plug-in is a pair of
//! functions over a snapshot; its calls to the outside (webhooks) are effects of the pipeline.

mod asked;
mod attributes;
pub mod call;
mod changes;
mod expressions;
mod observed;
pub(crate) mod outcome;
pub mod plugins;
mod policies;
pub mod registered;
mod rules;
mod settings;
mod webhooks;

pub use attributes::{Attributes, Body};
pub use call::Call;
pub use outcome::{Admitted, Annotation, Annotations, End, Half, Observation, Operation, Ticks, Timing, Told};
pub use plugins::{ImagePolicy, Plugin};
pub use settings::{Admission, Choice, ConfigurationFault};

use crate::pipeline::effect::Stop;

/// Mutating admission: plug-ins may change the object. If a webhook or policy changed it, all plug-ins run once more,
/// because earlier plug-ins got the object before that change.
pub(crate) fn mutate(attributes: &mut Attributes) -> Result<(), Stop> {
    half(attributes, |attributes, began| {
        let ended = run(attributes, began, |plugin| plugin.mutate)?;
        if attributes.reinvocation.is_wanted {
            attributes.reinvocation.round = 1;
            run(attributes, ended, |plugin| plugin.mutate)?;
        }
        Ok(())
    })
}

fn half(attributes: &mut Attributes, work: impl FnOnce(&mut Attributes, u64) -> Result<(), Stop>) -> Result<(), Stop> {
    attributes.admitted.told.timings.reserve(attributes.admission.plugins().len() + 1);
    let began = (attributes.ticks)();
    attributes.timed(None, began, |attributes| work(attributes, began)).map(|_| ())
}

/// Runs this half's step of each plug-in. `began` is the start time of the first plug-in; the result is the end time of
/// the last plug-in.
fn run(
    attributes: &mut Attributes,
    mut began: u64,
    step: impl Fn(&Plugin) -> Option<plugins::Step>,
) -> Result<u64, Stop> {
    let admission = attributes.admission;
    for (number, plugin) in admission.plugins() {
        if let Some(step) = step(plugin) {
            began = attributes.timed(Some(*number), began, step)?;
        }
    }
    Ok(began)
}

/// Validating admission: plug-ins see the object as it would be stored.
pub(crate) fn validate(attributes: &mut Attributes) -> Result<(), Stop> {
    attributes.is_validating = true;
    half(attributes, |attributes, began| run(attributes, began, |plugin| plugin.validate).map(|_| ()))
}
