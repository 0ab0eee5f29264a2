//! The part of flow control that clients see: headers with the flow schema and the priority level, and dumps of the
//! requests in progress.

use crate::query::Query;
use crate::respond::{self, Response};
use holdfast_service::fairness::{Dump, Fairness, Flow};
use http::header::{HeaderName, HeaderValue};

const SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Adds the headers with the request's flow schema and priority level.
pub fn tell(response: &mut Response, flow: &Flow) {
    for (name, uid) in [(SCHEMA, &flow.schema_uid), (LEVEL, &flow.level_uid)] {
        // The uids are empty until the server has made the flow control objects.
        if let Ok(uid) = HeaderValue::from_maybe_shared(uid.clone())
            && !uid.is_empty()
        {
            response.headers_mut().insert(name, uid);
        }
    }
}

/// Shows levels, queues or requests; `None` if there is no such table.
pub fn answer(fairness: &Fairness, table: &str, query: &Query) -> Option<Response> {
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
