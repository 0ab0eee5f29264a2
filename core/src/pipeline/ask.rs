//! Requests that write nothing: posted reviews, and connections to nodes. Admission runs for them as for writes. The
//! answer has the document as admission leaves it. The caller then computes the result of the review, or connects to
//! the node.

use super::candidate::Made;
use super::decision::{Answer, Decision};
use super::{Context, Endpoint, Stop, admit, body, decode};
use crate::admission::Operation;
use crate::kinds;
use crate::object::meta;
use holdfast_value::Value;

pub(super) fn question(context: &Context, _: &Endpoint) -> Result<Made, Stop> {
    let mut posted = decode::posted(context)?;
    body::match_namespace(context, meta::metadata_mut(meta::fields_mut(&mut posted)))?;
    Ok(done(&admit::question(context, posted)?))
}

pub(super) fn connect(context: &Context, _: &Endpoint) -> Result<Made, Stop> {
    let target = &context.request.target;
    let subresource = target.subresource.as_deref().unwrap_or("");
    let options = &context.request.options.connect;
    let (body, document) = kinds::connect_document(context.kind, target.version, subresource, options)?;
    Ok(done(&admit::part(context, body, Operation::Connect, document, &Value::Null)?))
}

fn done(document: &Value) -> Made {
    let answer = Answer::Document { document: meta::fields(document).clone() };
    let (writes, expects, warnings, changes) = Default::default();
    Made::Answer(Box::new(Decision { writes, expects, answer, fixed: false, warnings, changes }))
}
