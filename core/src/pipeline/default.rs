//! Defaults, and the way into the hub version, where all later stages work.

use super::candidate::Candidate;
use super::endpoint::Part;
use super::{Context, Endpoint, decode, to_hub as convert_to_hub};
use crate::kinds::Kind;
use crate::object::meta;
use crate::refusal::Refusal;
use crate::schema::{check, defaults, schema};
use serde_json::Value;

/// Fills in the defaults of the path's version, converts to the hub version, and fills in that version's defaults.
///
/// A deletion changes nothing that has defaults, and what was stored before a default came to be may go without it.
pub(super) fn to_hub(context: &Context, endpoint: &Endpoint, object: &mut Candidate) -> Result<(), Refusal> {
    match endpoint.part {
        Part::Deletion => Ok(()),
        _ if context.kind.custom.is_some() => {
            context.layout()?.default(&mut object.new);
            Ok(())
        }
        // These candidates are made from the object as it is stored.
        Part::Replicas | Part::Assignment => built_in(context.kind, 0, &mut object.new),
        _ => built_in(context.kind, context.request.target.version, &mut object.new),
    }
}

fn built_in(kind: &Kind, version: usize, document: &mut Value) -> Result<(), Refusal> {
    defaults::apply(decode::message(kind, version)?, document);
    if version == 0 {
        return Ok(());
    }
    convert_to_hub(kind, version, meta::fields_mut(document));
    let hub = decode::message(kind, 0)?;
    if kind.versions[version].convert.is_some() {
        // Conversion reads annotations, where nothing has checked what the client wrote.
        check(schema(), hub, document).map_err(|error| {
            Refusal::BadRequest(format!(
                "{} in version \"{}\" cannot be converted to \"{}\": {error}",
                kind.kind, kind.versions[version].version, kind.versions[0].version
            ))
        })?;
    }
    defaults::apply(hub, document);
    Ok(())
}
