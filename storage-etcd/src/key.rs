//! Keys of etcd, as Kubernetes has them: the prefix, the place of the kind in storage, the object's own key.

/// Where it is kept who wrote an object, before the object's whole key: outside of every prefix that an API server lists.
pub const WHO: &str = "/holdfast/who";

/// What all keys of a cluster begin with, as `--etcd-prefix` says it: `/registry`, without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix(String);

/// Why a text is no prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("the prefix {0:?} is empty: every key of etcd would be the cluster's")]
    Empty(String),
    #[error("the prefix {0:?} has a part that is \"..\"")]
    Up(String),
    #[error("the prefix {0:?} is where Holdfast keeps who wrote what")]
    Taken(String),
}

impl Prefix {
    /// Cleans the value of `--etcd-prefix` as Kubernetes does: `registry//a/./` becomes `/registry/a`.
    pub fn new(text: &str) -> Result<Prefix, Unfit> {
        let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        let prefix = parts.iter().map(|part| format!("/{part}")).collect::<String>();
        if parts.is_empty() {
            return Err(Unfit::Empty(text.to_owned()));
        }
        if parts.contains(&"..") {
            return Err(Unfit::Up(text.to_owned()));
        }
        let is_within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if is_within(&prefix, WHO) || is_within(WHO, &prefix) {
            return Err(Unfit::Taken(text.to_owned()));
        }
        Ok(Prefix(prefix))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Of an object: `resource` is its kind's place in storage, and `key` is `namespace/name`, or the name alone.
    pub fn key(&self, resource: &str, key: &str) -> String {
        format!("{}/{resource}/{key}", self.0)
    }

    /// Who wrote the object that is under `key`.
    pub fn who(key: &str) -> String {
        format!("{WHO}{key}")
    }

    /// The keys of all objects of a kind, from the first up to the one behind the last. They end with a slash, so that
    /// those of `pods` are none of `podtemplates`.
    pub fn range(&self, resource: &str) -> (String, String) {
        let from = format!("{}/{resource}/", self.0);
        // A slash is followed by a zero, and keys are in the order of their bytes.
        let to = format!("{}/{resource}0", self.0);
        (from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::kinds::registry;

    fn is_known(place: &str) -> bool {
        registry().by_storage(place).is_some() || place == "example.com/gadgets"
    }

    #[test]
    fn keys_are_those_of_kubernetes() {
        let prefix = Prefix::new("/registry").unwrap();
        for (resource, key, expected) in [
            ("pods", "default/web-0", "/registry/pods/default/web-0"),
            ("minions", "node-1", "/registry/minions/node-1"),
            ("services/specs", "default/kubernetes", "/registry/services/specs/default/kubernetes"),
            ("services/endpoints", "default/kubernetes", "/registry/services/endpoints/default/kubernetes"),
            ("controllers", "default/rc", "/registry/controllers/default/rc"),
            ("ingress", "default/i", "/registry/ingress/default/i"),
            ("deployments", "default/d", "/registry/deployments/default/d"),
            ("leases", "kube-system/l", "/registry/leases/kube-system/l"),
            ("ipaddresses", "10.0.0.1", "/registry/ipaddresses/10.0.0.1"),
            ("clusterroles", "system:node", "/registry/clusterroles/system:node"),
            (
                "apiextensions.k8s.io/customresourcedefinitions",
                "gadgets.example.com",
                "/registry/apiextensions.k8s.io/customresourcedefinitions/gadgets.example.com",
            ),
            ("apiregistration.k8s.io/apiservices", "v1.apps", "/registry/apiregistration.k8s.io/apiservices/v1.apps"),
            ("example.com/gadgets", "default/g", "/registry/example.com/gadgets/default/g"),
        ] {
            assert!(is_known(resource), "no kind is kept at {resource}");
            assert_eq!(prefix.key(resource, key), expected);
            let (from, to) = prefix.range(resource);
            assert!((from.as_str()..to.as_str()).contains(&expected), "{expected}");
        }
    }

    /// Of the built-in kinds these alone are kept elsewhere than under the name of their resource.
    #[test]
    fn places_in_storage_are_those_of_kubernetes() {
        let mut others: Vec<(&str, &str)> = Vec::new();
        for (_, kind) in registry().iter() {
            if kind.storage != kind.resource {
                others.push((&kind.resource, &kind.storage));
            }
        }
        others.sort_unstable();
        let expected = [
            ("apiservices", "apiregistration.k8s.io/apiservices"),
            ("customresourcedefinitions", "apiextensions.k8s.io/customresourcedefinitions"),
            ("endpoints", "services/endpoints"),
            ("ingresses", "ingress"),
            ("nodes", "minions"),
            ("replicationcontrollers", "controllers"),
            ("services", "services/specs"),
        ];
        assert_eq!(others, expected);
    }

    #[test]
    fn a_range_has_the_objects_of_its_kind_and_no_others() {
        let prefix = Prefix::new("/registry").unwrap();
        let (from, to) = prefix.range("pods");
        for (key, is_within) in [
            ("/registry/pods/a/b", true),
            ("/registry/pods/~", true),
            ("/registry/pods", false),
            ("/registry/pods-x/a/b", false),
            ("/registry/podsx/a/b", false),
            ("/registry/pods0", false),
            ("/registry/podtemplates/a/b", false),
        ] {
            assert_eq!((from.as_str()..to.as_str()).contains(&key), is_within, "{key}");
        }
    }

    #[test]
    fn prefixes_are_read_as_kubernetes_reads_them() {
        for (text, expected) in [
            ("/registry", "/registry"),
            ("registry", "/registry"),
            ("/registry/", "/registry"),
            ("//a//b/./c/", "/a/b/c"),
            ("/holdfast/whoever", "/holdfast/whoever"),
        ] {
            assert_eq!(Prefix::new(text).unwrap().as_str(), expected);
        }
        for text in ["", "/", "./", "/a/../b", "/holdfast", "/holdfast/who", "holdfast/who/registry"] {
            assert!(Prefix::new(text).is_err(), "{text}");
        }
        assert_eq!(Prefix::who("/registry/pods/a/b"), "/holdfast/who/registry/pods/a/b");
    }
}
