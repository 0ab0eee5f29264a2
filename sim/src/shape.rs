//! The part of an object that the simulation models.
//!
//! This module shares no code with the core: an [`ObjectShape`] is read from plain JSON.
//! [`predict`](crate::act::predict) computes the effect of a request on an [`ObjectShape`], and the oracles compare the
//! core's events with this effect.

use crate::custom;
use holdfast_value::Value;
use std::collections::BTreeMap;

pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// The kinds whose objects simulated clients create and change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    ConfigMap,
    Deployment,
    Service,
    Pod,
    Lease,
    Namespace,
    /// The CustomResourceDefinition of widgets, which clients create and delete.
    CustomResourceDefinition,
    Widget,
    /// A RoleBinding. It makes a user the owner of its namespace.
    RoleBinding,
}

pub const SORTS: [Sort; 9] = [
    Sort::ConfigMap,
    Sort::Deployment,
    Sort::Service,
    Sort::Pod,
    Sort::Lease,
    Sort::Namespace,
    Sort::CustomResourceDefinition,
    Sort::Widget,
    Sort::RoleBinding,
];

/// The fields of an object that the simulation models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectShape {
    pub labels: BTreeMap<String, String>,
    pub notes: BTreeMap<String, String>,
    pub data: BTreeMap<String, String>,
    /// The finalizers of the object, sorted.
    pub finalizers: Vec<String>,
    pub replicas: Option<i64>,
    pub holder: Option<String>,
    /// A field of widgets that has a default in some variants of the definition.
    pub tier: Option<String>,
    /// The text that identifies the content of a CustomResourceDefinition.
    pub defines: Option<String>,
    /// The status of the object: its phase, or its observed generation.
    pub status: Option<String>,
    pub node: Option<String>,
    pub deleting: bool,
    pub grace: i64,
    /// Whether the object is a namespace that still has its own finalizer.
    pub held: bool,
}

impl Sort {
    /// The group and the resource of the kind. Built-in kinds are used in version v1.
    pub fn path(self) -> (&'static str, &'static str) {
        match self {
            Self::ConfigMap => ("", "configmaps"),
            Self::Deployment => ("apps", "deployments"),
            Self::Service => ("", "services"),
            Self::Pod => ("", "pods"),
            Self::Lease => ("coordination.k8s.io", "leases"),
            Self::Namespace => ("", "namespaces"),
            Self::CustomResourceDefinition => ("apiextensions.k8s.io", "customresourcedefinitions"),
            Self::Widget => (custom::GROUP, custom::PLURAL),
            Self::RoleBinding => (RBAC_GROUP, "rolebindings"),
        }
    }

    /// The path under which the log stores the objects of the kind.
    pub fn storage(self) -> &'static str {
        match self {
            Self::Service => "services/specs",
            Self::Widget => custom::STORAGE,
            Self::CustomResourceDefinition => custom::DEFINITIONS,
            _ => self.path().1,
        }
    }

    pub fn of_storage(storage: &str) -> Option<Sort> {
        SORTS.into_iter().find(|sort| sort.storage() == storage)
    }

    pub fn is_namespaced(self) -> bool {
        !matches!(self, Self::Namespace | Self::CustomResourceDefinition)
    }

    pub fn is_custom(self) -> bool {
        self == Self::Widget
    }

    /// Whether a PUT creates an object if no object has the name.
    pub fn creates_on_update(self) -> bool {
        matches!(self, Self::Service | Self::Lease | Self::RoleBinding)
    }

    /// Whether a PUT must contain the version on which it is based.
    pub fn needs_version(self) -> bool {
        matches!(self, Self::Lease | Self::Widget | Self::CustomResourceDefinition)
    }

    /// Whether the objects of the kind have `spec.replicas` and the subresource `scale`.
    pub fn is_scaled(self) -> bool {
        matches!(self, Self::Deployment | Self::Widget)
    }
}

impl ObjectShape {
    pub fn of(sort: Sort, object: &Value) -> ObjectShape {
        let meta = &object["metadata"];
        let texts = |value: &Value| -> BTreeMap<String, String> {
            let pairs = value.as_object().into_iter().flatten();
            pairs.map(|(key, value)| (key.to_string(), value.as_str().unwrap_or_default().to_owned())).collect()
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let mut finalizers: Vec<String> =
            meta["finalizers"].as_array().into_iter().flatten().filter_map(text).collect();
        finalizers.sort();
        let (spec, status) = (&object["spec"], &object["status"]);
        ObjectShape {
            labels: texts(&meta["labels"]),
            notes: texts(&meta["annotations"]),
            data: if sort == Sort::ConfigMap { texts(&object["data"]) } else { BTreeMap::new() },
            finalizers,
            replicas: spec["replicas"].as_i64().filter(|_| sort.is_scaled()),
            holder: text(&spec["holderIdentity"]),
            tier: text(&spec["tier"]),
            defines: (sort == Sort::CustomResourceDefinition).then(|| custom::fingerprint(spec)),
            status: match sort {
                Sort::Pod | Sort::Namespace | Sort::Widget => text(&status["phase"]),
                Sort::Deployment => status["observedGeneration"].as_i64().map(|generation| generation.to_string()),
                _ => None,
            },
            node: text(&spec["nodeName"]),
            deleting: !meta["deletionTimestamp"].is_null(),
            grace: meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0),
            held: sort == Sort::Namespace && spec["finalizers"].as_array().is_some_and(|list| !list.is_empty()),
        }
    }

    /// Whether nothing keeps the object any more when it is being deleted.
    pub fn is_released(&self) -> bool {
        self.finalizers.is_empty() && self.grace == 0 && !self.held
    }

    /// Whether the object is a pod that runs on a node. Only such a pod has a grace period when it is deleted.
    pub fn is_running(&self, sort: Sort) -> bool {
        sort == Sort::Pod && self.node.is_some() && !matches!(self.status.as_deref(), Some("Succeeded" | "Failed"))
    }
}
