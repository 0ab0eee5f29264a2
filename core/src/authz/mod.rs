//! Authorization: users, request attributes, and the authorizers that judge them.
//!
//! Start at [`Authorizer`](chain::Authorizer), which asks the configured authorizers in order: `rbac` (the index of
//! roles and bindings), `nodes` (the objects that each node's pods need), `abac` (the lines of a policy file) and
//! `webhook` (another server). A new server creates the objects of `bootstrap` and `bootstrap_objects`. `reviews`
//! answers the access review kinds, and `impersonation` decides which users may act as others. Another crate
//! authenticates: a [`User`] is already authenticated.

pub mod abac;
pub mod aggregation;
pub mod bootstrap;
pub mod bootstrap_objects;
pub mod chain;
pub mod cover;
pub mod escalation;
pub mod impersonation;
pub mod nodes;
pub mod paths;
pub mod rbac;
pub mod reviews;
pub mod role;
mod roles;
pub mod rule;
mod rule_index;
mod table;
pub mod upkeep;
pub mod user;
pub mod webhook;

pub use chain::{Authorizer, Chain, Judged, Mode};
pub use impersonation::ActingAs;
pub use nodes::NodeGraph;
pub use rbac::RbacIndex;
pub use rule::PolicyRule;
pub use user::{PRIVILEGED_GROUP, User, service_account_user};
pub use webhook::{Consulted, Opinions};

pub(crate) use crate::refusal::quoted;
use crate::refusal::{Denied, DeniedTarget, Forbidden, Refusal, Subject};
use crate::select::{FieldSelector, LabelSelector, Operator};

/// The attributes of a request by which authorizers decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, a special verb such
    /// as `bind`, or the lower-case HTTP method for a path.
    pub verb: &'a str,
    pub target: Target<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    Resource(ResourceTarget<'a>),
    /// A non-resource path: `/metrics`.
    Path(&'a str),
}

/// A resource, or one object of it. Empty text means absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceTarget<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    /// The namespace; empty for cluster-scoped resources and for all namespaces.
    pub namespace: &'a str,
    pub name: &'a str,
    /// The selectors of the request. A user may be allowed to see only a part of the objects.
    pub selected: Option<&'a Selected>,
}

/// The selectors of a list, watch or collection deletion, for authorizers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selected {
    pub fields: Vec<Requirement>,
    pub labels: Vec<Requirement>,
}

/// One requirement of a field selector or label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    /// How the value is compared: `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: &'static str,
    pub values: Vec<String>,
}

impl Requirement {
    const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

    /// Parses a requirement in a review; `None` if it is malformed.
    fn from_value(value: &holdfast_value::Value) -> Option<Requirement> {
        let operator = Self::OPERATORS.into_iter().find(|operator| value["operator"] == *operator)?;
        let values = value["values"].as_array().into_iter().flatten();
        let values = values.filter_map(|value| value.as_str().map(str::to_owned)).collect();
        Some(Requirement { key: value["key"].as_str()?.to_owned(), operator, values })
    }
}

impl Selected {
    /// Parses a field selector and a label selector. An invalid selector counts as a selector without requirements.
    pub fn parse(fields: &str, labels: &str) -> Selected {
        let of_field = |requirement: &crate::select::FieldRequirement| Requirement {
            key: requirement.field.clone(),
            operator: if requirement.equal { "In" } else { "NotIn" },
            values: vec![requirement.value.clone()],
        };
        let of_label = |requirement: &crate::select::Requirement| {
            let operator = match requirement.operator {
                Operator::In | Operator::Equals => "In",
                Operator::NotIn | Operator::NotEquals => "NotIn",
                Operator::Exists => "Exists",
                Operator::DoesNotExist => "DoesNotExist",
                // Access reviews have no operators that compare numbers.
                Operator::GreaterThan | Operator::LessThan => return None,
            };
            Some(Requirement { key: requirement.key.clone(), operator, values: requirement.values.clone() })
        };
        let fields = FieldSelector::parse(fields).map(|own| own.requirements().iter().map(of_field).collect());
        let labels = LabelSelector::parse(labels).map(|own| own.requirements().iter().filter_map(of_label).collect());
        Selected { fields: fields.unwrap_or_default(), labels: labels.unwrap_or_default() }
    }

    pub fn is_everything(&self) -> bool {
        self.fields.is_empty() && self.labels.is_empty()
    }

    /// Whether the selectors require that this field has this value.
    pub fn pins(&self, field: &str, value: &str) -> bool {
        let pins = |own: &Requirement| own.key == field && own.operator == "In" && own.values == [value];
        self.fields.iter().any(pins)
    }
}

impl<'a> Attributes<'a> {
    pub fn resource(verb: &'a str, target: ResourceTarget<'a>) -> Self {
        Self { verb, target: Target::Resource(target) }
    }

    pub fn path(verb: &'a str, path: &'a str) -> Self {
        Self { verb, target: Target::Path(path) }
    }
}

/// An authorizer's decision. A request that no authorizer allows is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Allow { reason: String },
    Deny { reason: String },
    NoOpinion { reason: String },
}

impl Verdict {
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow { .. })
    }

    pub fn reason(&self) -> &str {
        match self {
            Self::Allow { reason } | Self::Deny { reason } | Self::NoOpinion { reason } => reason,
        }
    }
}

/// The content of a refusal: the action that `user` is not allowed.
pub fn denied(user: &User, attributes: &Attributes<'_>, reason: &str) -> Denied {
    let target = match &attributes.target {
        Target::Path(path) => DeniedTarget::Path((*path).to_owned()),
        Target::Resource(target) => DeniedTarget::Resource {
            group: target.group.to_owned(),
            resource: target.resource.to_owned(),
            subresource: target.subresource.to_owned(),
            namespace: target.namespace.to_owned(),
        },
    };
    Denied { user: user.name.clone(), verb: attributes.verb.to_owned(), target, reason: reason.to_owned() }
}

/// The refusal of a request that `user` may not make.
pub fn forbidden(user: &User, attributes: &Attributes<'_>, reason: &str) -> Refusal {
    Refusal::Forbidden {
        subject: match attributes.target() {
            Some(target) => Subject::new(target.group, target.resource, target.name),
            None => Subject::default(),
        },
        why: Forbidden::Access(Box::new(denied(user, attributes, reason))),
    }
}

/// A list as Go's `%q` prints it: `["a" "b"]`.
pub(crate) fn quoted_list<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", items.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_read_as_kubernetes_writes_them() {
        let pods = ResourceTarget { resource: "pods", namespace: "default", ..Default::default() };
        let log = ResourceTarget { subresource: "log", name: "web", ..pods };
        let nodes = ResourceTarget { resource: "nodes", ..Default::default() };
        let leases =
            ResourceTarget { group: "coordination.k8s.io", resource: "leases", namespace: "", ..Default::default() };
        let rows = [
            (
                Attributes::resource("list", pods),
                "",
                r#"User "jane" cannot list resource "pods" in API group "" in the namespace "default""#,
            ),
            (
                Attributes::resource("get", log),
                "",
                r#"User "jane" cannot get resource "pods/log" in API group "" in the namespace "default""#,
            ),
            (
                Attributes::resource("list", nodes),
                "",
                r#"User "jane" cannot list resource "nodes" in API group "" at the cluster scope"#,
            ),
            (
                Attributes::resource("watch", leases),
                "Everything is forbidden.",
                r#"User "jane" cannot watch resource "leases" in API group "coordination.k8s.io" at the cluster scope: Everything is forbidden."#,
            ),
            (Attributes::path("get", "/metrics"), "", r#"User "jane" cannot get path "/metrics""#),
        ];
        for (attributes, reason, wanted) in rows {
            assert_eq!(denied(&User::new("jane", &[]), &attributes, reason).to_string(), wanted);
        }
    }

    #[test]
    fn quoting_escapes_what_could_forge_a_message() {
        assert_eq!(quoted("a\"b\\c\n\u{1}é"), "\"a\\\"b\\\\c\\n\\x01é\"");
        assert_eq!(quoted_list(&["a", "b"]), r#"["a" "b"]"#);
        assert_eq!(quoted_list::<&str>(&[]), "[]");
    }
}
