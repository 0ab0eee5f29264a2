//! What clients are told of flow control: whose turn it was by, and what is in progress.

use crate::query::Query;
use crate::respond::{self, Response};
use crate::transport::Transport;
use holdfast_service::fairness::{Dump, Flow};
use http::header::{HeaderName, HeaderValue};

const SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Says in the answer which schema and which level the request belonged to.
pub fn tell(response: &mut Response, flow: &Flow) {
    for (name, uid) in [(SCHEMA, &flow.schema_uid), (LEVEL, &flow.level_uid)] {
        // A server that is about to make the objects does not know their uids yet.
        if let Ok(uid) = HeaderValue::from_maybe_shared(uid.clone())
            && !uid.is_empty()
        {
            response.headers_mut().insert(name, uid);
        }
    }
}

/// Shows levels, queues or requests; `None` where requests do not wait for their turn, or there is no such table.
pub fn answer(transport: &Transport, table: &str, query: &Query) -> Option<Response> {
    // Who rules in a fork need not know who asks for what outside.
    let fairness = transport.service.fairness().filter(|_| transport.place.is_none())?;
    let dump = match table {
        "dump_priority_levels" => Dump::PriorityLevels,
        "dump_queues" => Dump::Queues,
        "dump_requests" => {
            Dump::Requests { details: query.get("includeRequestDetails").is_some_and(|text| !text.is_empty()) }
        }
        _ => return None,
    };
    Some(respond::text(200, fairness.dump(dump)))
}
