//! Decides whether a kind may be stored in a separate etcd (`--etcd-servers-overrides`).

use super::{KindId, Registry, known};

impl Registry {
    /// Finds the built-in kind of a resource whose objects may be in a store of their own. The error is the reason why
    /// the objects must be in the main store.
    pub fn apart(&self, group: &str, resource: &str) -> Result<KindId, String> {
        let shown = || format!("{group}/{resource}");
        let has = |kind: &super::Kind| {
            kind.resource == resource && kind.versions.iter().any(|version| version.group == group)
        };
        let found = self.iter().find(|(_, kind)| has(kind));
        let (id, kind) = found.ok_or_else(|| format!("{} is not a resource of this server", shown()))?;
        let hub = &kind.hub().group;
        if hub != group {
            return Err(format!("the objects of {} are stored under {hub}/{resource}: name that resource", shown()));
        }
        match self.tie(id) {
            Some(why) => Err(format!("{} must stay in the etcd of --etcd-servers: {why}", shown())),
            None => Ok(id),
        }
    }

    /// The reason why a kind must be in the main store; `None` if it may be in another store. Admission, authorization
    /// and claims judge by indexes of the state, and these are built only from the log of the main store.
    fn tie(&self, id: KindId) -> Option<&'static str> {
        let kind = self.get(id);
        if !kind.stored {
            Some("its objects are not stored")
        } else if kind.storage.as_json {
            Some("overrides are for the resources of kube-apiserver itself")
        } else if self.known(known::IP_ADDRESS).is_some_and(|(address, _)| address == id) {
            Some("the server reserves the addresses of Services with it")
        } else if id == self.namespaces() {
            Some("every create checks that its namespace exists")
        } else if id == self.quotas() {
            Some("quotas limit the bytes that a namespace stores")
        } else if kind.influence.role.is_some() {
            Some("authorization decides by it")
        } else if kind.influence.relation.is_some() {
            Some("the Node authorizer decides by it")
        } else if kind.influence.registers.is_some() {
            Some("admission decides by it")
        } else if kind.claims.are_possible() {
            Some("the server checks that no two objects have the same address or port")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::registry;

    #[test]
    fn what_others_are_judged_by_stays_where_they_are() {
        for (group, resource, expected) in [
            ("", "events", None),
            ("coordination.k8s.io", "leases", None),
            ("apps", "deployments", None),
            ("networking.k8s.io", "ingresses", None),
            ("", "configmaps", None),
            (
                "events.k8s.io",
                "events",
                Some("the objects of events.k8s.io/events are stored under /events: name that"),
            ),
            ("apps", "events", Some("apps/events is not a resource of this server")),
            ("example.com", "gadgets", Some("example.com/gadgets is not a resource")),
            ("", "bindings", Some("its objects are not stored")),
            ("networking.k8s.io", "ipaddresses", Some("the server reserves the addresses of Services with it")),
            ("", "namespaces", Some("/namespaces must stay in the etcd of --etcd-servers: every create checks")),
            ("", "resourcequotas", Some("quotas limit")),
            ("", "services", Some("no two objects have the same address")),
            ("", "pods", Some("the Node authorizer decides by it")),
            ("rbac.authorization.k8s.io", "roles", Some("authorization decides by it")),
            ("admissionregistration.k8s.io", "validatingwebhookconfigurations", Some("admission decides by it")),
            ("apiextensions.k8s.io", "customresourcedefinitions", Some("of kube-apiserver itself")),
            ("apiregistration.k8s.io", "apiservices", Some("of kube-apiserver itself")),
        ] {
            let found = registry().apart(group, resource).err();
            match expected {
                None => assert_eq!(found, None, "{group}/{resource}"),
                Some(part) => {
                    assert!(found.as_ref().is_some_and(|why| why.contains(part)), "{group}/{resource}: {found:?}")
                }
            }
        }
    }
}
