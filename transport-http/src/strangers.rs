//! Checks that arbitrary paths, queries and headers are parsed or refused, and that nothing panics.

use crate::query::Query;
use crate::respond::Shape;
use crate::route::{Route, decode};
use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use proptest::prelude::*;

const PATHS: &[&str] = &[
    "/",
    "//",
    "/api",
    "/apis",
    "/v1",
    "/watch",
    "/namespaces",
    "/pods",
    "/a",
    "/status",
    "/finalize",
    "/proxy",
    "/at/",
    "/5",
    "/holdfast/v1/log",
    "/openapi/v3",
    "/healthz",
    "/%",
    "/%2",
    "/%zz",
    "/%2F",
    "/%00",
    "/%C3",
    "/%c3%a9",
    "/é",
    "+",
    "?",
    "#",
    ".",
    "/..",
];
const QUERIES: &[&str] = &[
    "&",
    "=",
    "%",
    "%2",
    "%zz",
    "%C3",
    "+",
    "é",
    "watch",
    "=1",
    "=true",
    "limit",
    "=-1",
    "=9223372036854775807",
    "=9223372036854775808",
    "=18446744073709551616",
    "continue",
    "resourceVersion",
    "timeoutSeconds",
    "gracePeriodSeconds",
    "=-9223372036854775808",
    "dryRun",
    "=All",
    "fieldValidation",
    "=Strict",
    "labelSelector",
    "fieldSelector",
    "propagationPolicy",
    "pretty",
    "includeObject",
    "sendInitialEvents",
];
const ACCEPTS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "*/*",
    ";",
    ",",
    "=",
    "as=Table",
    "as=PartialObjectMetadata",
    "g=meta.k8s.io",
    "v=v1",
    "v=v1beta1",
    "q=",
    "q=1e400",
    "q=-1",
    "q=NaN",
    "q=0",
    " ",
    "gzip",
    "\t",
    "é",
    "curl/8",
];
const METHODS: &[Method] = &[Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// Meaningful pieces of text in any order, with any characters between them.
fn pieces(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => prop::sample::select(of).prop_map(str::to_owned),
        1 => "\\PC{0,4}",
    ];
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_path_panics(path in pieces(PATHS), method in prop::sample::select(METHODS), watch in any::<bool>()) {
        Route::new(&method, &path, watch);
        prop_assert!(decode(&path).len() <= path.len() * 3, "what is broken becomes one sign of three bytes");
    }

    #[test]
    fn no_query_panics(raw in pieces(QUERIES), kind in prop::sample::select(vec!["ListOptions", "CreateOptions"])) {
        let query = Query::parse(&raw);
        query.flag("watch");
        let _ = query.options(kind);
    }

    #[test]
    fn no_header_panics(accept in pieces(ACCEPTS), other in pieces(ACCEPTS), query in pieces(QUERIES)) {
        let mut headers = HeaderMap::new();
        for (name, text) in [(ACCEPT, &accept), (ACCEPT_ENCODING, &other), (USER_AGENT, &other)] {
            if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
                headers.insert(name, value);
            }
        }
        let query = Query::parse(&query);
        let shape = Shape::negotiate(&headers, query.get("pretty"), query.get("includeObject"));
        if let Ok(shape) = shape {
            let _ = (shape.without_protobuf(&headers), shape.without_table(&headers));
        }
    }
}
