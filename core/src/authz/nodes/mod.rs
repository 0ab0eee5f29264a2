//! The Node authorizer: a node may make only the requests that running its pods requires.
//!
//! `graph` records which objects lead to which node and follows every event, `references` finds the objects that a pod
//! or volume refers to, and this module decides which requests on them a node may make. This module never denies:
//! another authorizer may allow more.

mod graph;
pub mod references;

pub use graph::{NodeGraph, Object, Relation};

use super::bootstrap::bootstrap_policy;
use super::rule::Part;
use super::{Attributes, PolicyRule, ResourceTarget, User, Verdict};
use std::sync::LazyLock;

const GROUP: &str = "system:nodes";
const USER_PREFIX: &str = "system:node:";
const LEASES: &str = "kube-node-lease";
const ROLE: &str = "system:node";

/// The name in a node's user name; `None` for other users.
pub fn node_of(user: &User) -> Option<&str> {
    let node = user.name.strip_prefix(USER_PREFIX)?;
    user.groups.iter().any(|group| group == GROUP).then_some(node)
}

/// The rules for every node, independent of its pods.
static EVERY_NODE: LazyLock<Vec<PolicyRule>> = LazyLock::new(|| {
    let role = bootstrap_policy().into_iter().find(|document| document["metadata"]["name"] == ROLE);
    role.as_ref().map(PolicyRule::list_from).unwrap_or_default()
});

/// How nodes may access a kind.
enum Access {
    /// Nodes may get, list and watch single objects of the kind.
    Read(Object),
    /// Nodes may get single objects of the kind.
    Get(Object),
    Claims,
    Accounts,
    Leases,
    StorageNodes,
    Slices,
    Nodes,
    Pods,
    CertificateRequests,
}

/// The access by group and resource. Other resources follow the rules for every node.
static KINDS: &[(&str, &str, Access)] = &[
    ("", "secrets", Access::Read(Object::Secret)),
    ("", "configmaps", Access::Read(Object::ConfigMap)),
    ("", "pods", Access::Pods),
    ("", "nodes", Access::Nodes),
    ("", "persistentvolumeclaims", Access::Claims),
    ("", "persistentvolumes", Access::Get(Object::Volume)),
    ("", "serviceaccounts", Access::Accounts),
    ("coordination.k8s.io", "leases", Access::Leases),
    ("storage.k8s.io", "csinodes", Access::StorageNodes),
    ("storage.k8s.io", "volumeattachments", Access::Get(Object::Attachment)),
    ("resource.k8s.io", "resourceclaims", Access::Get(Object::ResourceClaim)),
    ("resource.k8s.io", "resourceslices", Access::Slices),
    ("certificates.k8s.io", "podcertificaterequests", Access::CertificateRequests),
];

/// `Ok` if the request is allowed, otherwise the reason for the refusal. The reason is empty if the rules for every
/// node decide.
type Decision = Result<(), String>;

pub(super) fn authorize(graph: Option<&NodeGraph>, user: &User, attributes: &Attributes<'_>) -> Verdict {
    let decided = match node_of(user) {
        None => Err(String::new()),
        Some("") => Err(format!("unknown node for user {}", super::quoted(&user.name))),
        Some(node) => judge(graph, node, attributes),
    };
    match decided {
        Ok(()) => Verdict::Allow { reason: String::new() },
        Err(reason) => Verdict::NoOpinion { reason },
    }
}

fn judge(graph: Option<&NodeGraph>, node: &str, attributes: &Attributes<'_>) -> Decision {
    let subdivided = attributes.target().and_then(|target| {
        let access = KINDS.iter().find(|(group, resource, _)| *resource == target.resource && *group == target.group);
        access.map(|(_, _, access)| (access, target))
    });
    match subdivided {
        Some((access, target)) => {
            let asked = Asked { graph, node, verb: attributes.verb, target };
            access.judge(&asked)
        }
        None => by_verb(EVERY_NODE.iter().any(|rule| rule.grants(&Part::needed(attributes)))),
    }
}

fn by_verb(allowed: bool) -> Decision {
    if allowed { Ok(()) } else { Err(String::new()) }
}

fn check(holds: bool, reason: &str) -> Decision {
    if holds { Ok(()) } else { Err(reason.to_owned()) }
}

/// A request of a node.
struct Asked<'a> {
    graph: Option<&'a NodeGraph>,
    node: &'a str,
    verb: &'a str,
    target: &'a ResourceTarget<'a>,
}

impl Asked<'_> {
    fn does(&self, verbs: &[&str]) -> bool {
        verbs.contains(&self.verb)
    }

    /// Whether the object leads to this node.
    fn leads_here(&self, what: Object) -> Decision {
        let ResourceTarget { namespace, name, .. } = self.target;
        if name.is_empty() {
            return Err("No Object name found".into());
        }
        let leads = self.graph.is_some_and(|graph| graph.leads(what, namespace, name, self.node));
        check(leads, "").map_err(|_| format!("no relationship found between node '{}' and this object", self.node))
    }

    fn get(&self, what: Object) -> Decision {
        check(self.does(&["get"]), "can only get individual resources of this type")?;
        check(self.target.subresource.is_empty(), "cannot get subresource")?;
        self.leads_here(what)
    }

    /// Whether a selector restricts the request to this node.
    fn selects(&self, field: &str) -> bool {
        self.target.selected.is_some_and(|selected| selected.pins(field, self.node))
    }
}

impl Access {
    fn judge(&self, asked: &Asked<'_>) -> Decision {
        let Asked { node, verb, target, .. } = asked;
        match self {
            Self::Read(what) => {
                check(asked.does(&["get", "list", "watch"]), "can only read resources of this type")?;
                check(target.subresource.is_empty(), "cannot read subresource")?;
                check(!target.namespace.is_empty(), "can only read namespaced object of this type")?;
                asked.leads_here(*what)
            }
            Self::Get(what) => asked.get(*what),
            Self::Claims if target.subresource == "status" => {
                check(asked.does(&["update", "patch"]), "can only get/update/patch this type")?;
                asked.leads_here(Object::Claim)
            }
            Self::Claims => asked.get(Object::Claim),
            Self::Accounts if *verb == "get" && target.subresource.is_empty() => asked.leads_here(Object::Account),
            Self::Accounts => {
                let one = *verb == "create" && !target.name.is_empty();
                check(one, "can only create tokens for individual service accounts")?;
                check(target.subresource == "token", "can only create token subresource of serviceaccount")?;
                asked.leads_here(Object::Account)
            }
            Self::Leases => {
                let why = "can only get, create, update, patch, or delete a node lease";
                check(asked.does(&OWN_OBJECT), why)?;
                let why = format!("can only access leases in the {LEASES:?} system namespace");
                check(target.namespace == LEASES, &why)?;
                let own = *verb == "create" || target.name == *node;
                check(own, "can only access node lease with the same name as the requesting node")
            }
            Self::StorageNodes => {
                check(asked.does(&OWN_OBJECT), "can only get, create, update, patch, or delete a CSINode")?;
                check(target.subresource.is_empty(), "cannot authorize CSINode subresources")?;
                let own = *verb == "create" || target.name == *node;
                check(own, "can only access CSINode with the same name as the requesting node")
            }
            Self::Slices => slices(asked),
            Self::Nodes => nodes(asked),
            Self::Pods => pods(asked),
            Self::CertificateRequests => certificate_requests(asked),
        }
    }
}

/// Verbs on an object with the node's own name. Admission checks the name of a new object.
const OWN_OBJECT: [&str; 5] = ["get", "create", "update", "patch", "delete"];

fn slices(asked: &Asked<'_>) -> Decision {
    check(asked.target.subresource.is_empty(), "cannot authorize ResourceSlice subresources")?;
    match asked.verb {
        // Admission checks which node the slice is for.
        "create" => Ok(()),
        "get" | "update" | "patch" | "delete" => asked.leads_here(Object::Slice),
        "list" | "watch" | "deletecollection" => {
            let why = "can only list/watch/deletecollection resourceslices with nodeName field selector";
            check(asked.selects("spec.nodeName"), why)
        }
        _ => Err("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                  delete, deletecollection"
            .into()),
    }
}

/// Decides whether the node may make this request for a Node. Admission checks which Node is written.
fn nodes(asked: &Asked<'_>) -> Decision {
    let own = asked.node;
    match (asked.target.subresource, asked.verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match asked.target.name {
            name if name == own => Ok(()),
            "" => Err(format!("node '{own}' cannot read all nodes, only its own Node object")),
            other => Err(format!("node '{own}' cannot read '{other}', only its own Node object")),
        },
        _ => Err(String::new()),
    }
}

/// Decides whether the node may make this request for a pod. Admission checks which pod is written.
fn pods(asked: &Asked<'_>) -> Decision {
    match (asked.target.subresource, asked.verb) {
        ("", "get") => asked.leads_here(Object::Pod),
        ("", "list" | "watch") if asked.selects("spec.nodeName") => Ok(()),
        ("", "list" | "watch") if !asked.target.name.is_empty() => asked.leads_here(Object::Pod),
        ("", "list" | "watch") => Err("can only list/watch pods with spec.nodeName field selector".into()),
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
        _ => Err(String::new()),
    }
}

fn certificate_requests(asked: &Asked<'_>) -> Decision {
    let subresource = asked.target.subresource;
    let why = format!("nodes may not access the {subresource} subresource of PodCertificateRequests");
    check(subresource.is_empty(), &why)?;
    match asked.verb {
        "create" => Ok(()),
        "get" => asked.leads_here(Object::CertificateRequest),
        "list" | "watch" => {
            let why = "can only list/watch podcertificaterequests with nodeName field selector";
            check(asked.selects("spec.nodeName"), why)
        }
        verb => Err(format!("nodes may not {verb} podcertificaterequests")),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
