//! Sets defaults, and converts the object into the hub version, in which all later stages work.

use super::candidate::Candidate;
use super::endpoint::Part;
use super::{Context, Endpoint};
use crate::kinds;
use crate::refusal::Refusal;
use crate::request::Format;
use crate::schema::layout::Layout;

/// Shows unset fields of a built-in object as Kubernetes does: a status that was never set as an empty object, and an
/// empty list that is always shown as null.
pub(super) fn show_zeros(context: &Context, endpoint: &Endpoint, object: &mut Candidate) -> Result<(), Refusal> {
    if !endpoint.part.is_of_server() && context.kind.custom.is_none() {
        let stored = object.old.as_ref().map(|old| &old.document);
        kinds::show_zeros_of_change(context.kind.message(0)?, &mut object.new, stored)?;
    }
    Ok(())
}

/// Sets the defaults of the path's version, converts to the hub version, and sets the defaults of the hub version.
///
/// A deletion and a binding change no field that has a default. So if an object was stored before its kind had a
/// default, it may stay without that default.
pub(super) fn to_hub(context: &Context, endpoint: &Endpoint, object: &mut Candidate) -> Result<(), Refusal> {
    let stored = object.old.as_ref().map(|old| &old.document);
    match endpoint.part {
        Part::Deletion | Part::Assignment => Ok(()),
        _ if context.kind.custom.is_some() => match context.layout()? {
            Layout::Custom(custom) if context.request.body.format == Format::ApplyPatch => {
                kinds::default_beside_nulls(custom, &mut object.new)
            }
            layout => kinds::default(layout, &mut object.new),
        },
        // The candidate was made from the stored object, which is in the hub version already.
        Part::Replicas => context.kind.default_to_hub(0, &mut object.new, stored),
        _ => context.kind.default_to_hub(context.request.target.version, &mut object.new, stored),
    }
}
