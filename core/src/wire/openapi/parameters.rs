//! The parameters that many operations have, as data.

use super::operation::{Parameter, Place};
use std::borrow::Cow;

/// The name, the type and the description of a parameter.
type Row = (&'static str, &'static str, &'static str);

#[rustfmt::skip]
const QUERY: &[Row] = &[
    ("allowWatchBookmarks", "boolean", "Asks a watch for events of type BOOKMARK, which carry a newer resourceVersion and nothing else. The server decides when to send them. Has no effect without watch."),
    ("continue", "string", "The token from the previous page of a list. All other parameters must be the same as for the first page. The server answers an expired token with 410; that answer may contain a token that continues from the newest state."),
    ("dryRun", "string", "With the value All the server processes the request completely, but stores nothing."),
    ("fieldManager", "string", "The name of the client or user that makes this change, at most 128 printable characters. Required for apply patches; the default for others is taken from the user agent."),
    ("fieldSelector", "string", "Selects objects by the values of their fields. Default: all objects."),
    ("fieldValidation", "string", "What to do with unknown and duplicate fields: Ignore drops them silently, Warn (the default) drops them and sends one warning for each, Strict rejects the request."),
    ("force", "boolean", "For apply patches only: takes ownership of fields that other managers own. Without it such a patch fails with a conflict."),
    ("gracePeriodSeconds", "integer", "Seconds before the object is deleted; 0 deletes it at once. Default: the value for the object's kind."),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean", "Deletes an object that the server cannot read from its store, and ignores finalizers and preconditions. May break the cluster."),
    ("labelSelector", "string", "Selects objects by their labels. Default: all objects."),
    ("limit", "integer", "The maximum number of objects in one page of a list. If there are more, the list's metadata contains a token for the parameter continue; all pages show the same version of the cluster. Has no effect with watch."),
    ("orphanDependents", "boolean", "Deprecated: use propagationPolicy. Whether dependent objects are kept."),
    ("pretty", "string", "With the value true the output is indented, which is the default for browsers, curl and wget."),
    ("propagationPolicy", "string", "What happens to dependent objects: Orphan keeps them, Background deletes them after the object, Foreground before it. Cannot be combined with orphanDependents."),
    ("resourceVersion", "string", "Which version of the data the answer may show. See https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions for details."),
    ("resourceVersionMatch", "string", "How resourceVersion constrains a list: Exact or NotOlderThan. See https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions for details."),
    ("sendInitialEvents", "boolean", "The watch begins with one event for every existing object, followed by a bookmark with the annotation k8s.io/initial-events-end. Requires resourceVersionMatch."),
    ("timeoutSeconds", "integer", "The maximum duration of a list or watch, in seconds."),
    ("watch", "boolean", "Sends changes after resourceVersion as they happen, instead of a list."),
];

/// The query parameters of logs and connections: name and description. Their types come from the fields of the options
/// message.
#[rustfmt::skip]
const OPTIONS: &[(&str, &str)] = &[
    ("command", "The program to run and its arguments; repeat the parameter for each. No shell interprets them."),
    ("container", "The name of the container. Optional if the pod has only one."),
    ("follow", "Whether to keep the connection open and send new log lines as the container writes them."),
    ("insecureSkipTLSVerifyBackend", "Whether the server may read the log from a node whose certificate it cannot verify. An attacker on the network could then change the log."),
    ("limitBytes", "The maximum number of bytes of the log to send. The last line may be incomplete."),
    ("path", "The path of the proxied request."),
    ("ports", "The ports to forward; repeat the parameter for each. Required with WebSockets."),
    ("previous", "Whether to send the log of the container's previous run."),
    ("sinceSeconds", "Send only log lines of the last so many seconds. Cannot be combined with sinceTime."),
    ("stderr", "Whether the standard error stream is connected."),
    ("stdin", "Whether the standard input stream is connected."),
    ("stdout", "Whether the standard output stream is connected."),
    ("stream", "Which stream of the container's log to send: All (the default), Stdout or Stderr."),
    ("tailLines", "How many lines from the end of the log to send. Default: the whole log."),
    ("timestamps", "Whether every line of the log begins with its time."),
    ("tty", "Whether a terminal is allocated."),
];

pub(super) const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
pub(super) const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
pub(super) const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
pub(super) const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
pub(super) const DELETE_COLLECTION: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
];

/// The shared query parameters with these names. They are in the order of `names`.
pub(super) fn query(names: &[&str]) -> Vec<Parameter> {
    names.iter().filter_map(|name| QUERY.iter().find(|row| row.0 == *name)).map(shared).collect()
}

/// Like [`query`], but each parameter is written in full in OpenAPI version 2. kubectl before 1.27 looks for `dryRun`
/// and `fieldValidation` in patch operations and does not follow references there.
pub(super) fn query_inline(names: &[&str]) -> Vec<Parameter> {
    let mut parameters = query(names);
    parameters.iter_mut().for_each(|parameter| parameter.shared = false);
    parameters
}

/// All parameters that a document of OpenAPI version 2 defines once, and to which its operations refer. Parameters that
/// only patches have are not among them, because they are written in full.
pub(super) fn all_shared() -> Vec<Parameter> {
    let names = [LIST, WRITE, DELETE, DELETE_COLLECTION, &["pretty"]].concat();
    QUERY.iter().filter(|row| names.contains(&row.0)).map(shared).chain([namespace()]).collect()
}

pub(super) fn namespace() -> Parameter {
    Parameter {
        name: "namespace".into(),
        place: Place::Path,
        ty: "string",
        description: "object name and auth scope, such as for teams and projects".into(),
        shared: true,
    }
}

pub(super) fn name(kind: &str) -> Parameter {
    Parameter {
        name: "name".into(),
        place: Place::Path,
        ty: "string",
        description: format!("name of the {kind}").into(),
        shared: false,
    }
}

/// The query parameter for an option of a log or a connection.
pub(super) fn option(name: &str, ty: &'static str) -> Parameter {
    let description = OPTIONS.iter().find(|row| row.0 == name).map_or("", |row| row.1);
    Parameter { name: name.to_owned().into(), place: Place::Query, ty, description: description.into(), shared: false }
}

/// The path parameter for the path that a proxy passes on to the other server.
pub(super) fn rest_of_path() -> Parameter {
    Parameter {
        name: "path".into(),
        place: Place::Path,
        ty: "string",
        description: "path to the resource".into(),
        shared: false,
    }
}

fn shared(row: &Row) -> Parameter {
    let (name, ty, description) = *row;
    Parameter { name: name.into(), place: Place::Query, ty, description: Cow::Borrowed(description), shared: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known() {
        for names in [LIST, WRITE, PATCH, DELETE, DELETE_COLLECTION, &["pretty"]] {
            assert_eq!(query(names).len(), names.len(), "{names:?}");
        }
    }
}
