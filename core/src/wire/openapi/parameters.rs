//! The parameters shared by many operations, as data.

use super::operation::{Parameter, Place};
use std::borrow::Cow;

/// Name, type, description.
type Row = (&'static str, &'static str, &'static str);

#[rustfmt::skip]
const QUERY: &[Row] = &[
    ("allowWatchBookmarks", "boolean", "Asks a watch for events of type BOOKMARK, which carry a newer resourceVersion and nothing else. The server decides when to send them. Means nothing without watch."),
    ("continue", "string", "The token from the previous page of a list. All other parameters must be those of the first page. A token that has grown too old is answered with 410; that answer may carry a token to go on from the newest state."),
    ("dryRun", "string", "With the value All the request goes through every stage, but nothing is stored."),
    ("fieldManager", "string", "The name of whoever makes this change, at most 128 printable characters. Required for apply patches; otherwise taken from the user agent."),
    ("fieldSelector", "string", "Restricts the objects by the values of their fields. Defaults to everything."),
    ("fieldValidation", "string", "What to do with unknown and duplicate fields: Ignore drops them silently, Warn (the default) drops them and sends a warning each, Strict refuses the request."),
    ("force", "boolean", "For apply patches only: takes over fields that other managers own instead of failing."),
    ("gracePeriodSeconds", "integer", "Seconds to wait before the object goes; 0 is immediately. Unset: the default of the object's type."),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean", "Deletes an object that cannot be read from the store, without regard for finalizers and preconditions. May break the cluster."),
    ("labelSelector", "string", "Restricts the objects by their labels. Defaults to everything."),
    ("limit", "integer", "The greatest number of objects in one page of a list. When there are more, the list's metadata carries a token for continue; all pages show one state. Means nothing with watch."),
    ("orphanDependents", "boolean", "Deprecated: use propagationPolicy. Whether dependent objects are left alone."),
    ("pretty", "string", "With the value true the output is indented. That is the default for browsers, curl and wget."),
    ("propagationPolicy", "string", "What becomes of dependent objects: Orphan leaves them, Background deletes them after the object, Foreground before it. Not to be combined with orphanDependents."),
    ("resourceVersion", "string", "Which state the request may be served from. See https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions for details."),
    ("resourceVersionMatch", "string", "How resourceVersion constrains a list: Exact or NotOlderThan. See https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions for details."),
    ("sendInitialEvents", "boolean", "A watch begins with one event for every object that exists, closed by a bookmark with the annotation k8s.io/initial-events-end. Needs resourceVersionMatch."),
    ("timeoutSeconds", "integer", "How long a list or watch may last at most."),
    ("watch", "boolean", "Sends changes as they happen instead of a list, from resourceVersion on."),
];

/// Name and description of the options of logs and connections. Their types are those of the fields.
#[rustfmt::skip]
const OPTIONS: &[(&str, &str)] = &[
    ("command", "The program to run and its arguments, one for each parameter of this name. No shell is involved."),
    ("container", "Which container of the pod is meant. May be left out when there is but one."),
    ("follow", "Whether the log is sent on as it grows."),
    ("insecureSkipTLSVerifyBackend", "Whether the server may read the log from a node whose certificate it cannot verify. What comes back may then have been changed on the way."),
    ("limitBytes", "How many bytes of the log are sent at most. The last line may be cut short."),
    ("path", "The path of the proxied request."),
    ("ports", "The ports to forward, one for each parameter of this name. Required with WebSockets."),
    ("previous", "Whether the log of the container's previous run is meant."),
    ("sinceSeconds", "How many seconds back the log is to begin. Not to be combined with sinceTime."),
    ("stderr", "Whether the standard error stream is connected."),
    ("stdin", "Whether the standard input stream is connected."),
    ("stdout", "Whether the standard output stream is connected."),
    ("stream", "Which stream of the container's log is sent: All (the default), Stdout or Stderr."),
    ("tailLines", "How many lines from the end of the log are sent. Everything when it is left out."),
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

/// The shared query parameters with these names.
pub(super) fn query(names: &[&str]) -> Vec<Parameter> {
    names.iter().filter_map(|name| QUERY.iter().find(|row| row.0 == *name)).map(shared).collect()
}

/// Like [`query`], but written in full: kubectl before 1.27 looks for `dryRun` and `fieldValidation` in the patch
/// operations themselves and does not follow references there.
pub(super) fn query_inline(names: &[&str]) -> Vec<Parameter> {
    let mut parameters = query(names);
    parameters.iter_mut().for_each(|parameter| parameter.shared = false);
    parameters
}

/// All parameters that version 2 defines once. Parameters of patches only are not among them, since they are written in
/// full.
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

/// An option of a log or a connection.
pub(super) fn option(name: &str, ty: &'static str) -> Parameter {
    let description = OPTIONS.iter().find(|row| row.0 == name).map_or("", |row| row.1);
    Parameter { name: name.to_owned().into(), place: Place::Query, ty, description: description.into(), shared: false }
}

/// The rest of a proxied path.
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
