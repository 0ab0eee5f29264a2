//! The keys of objects in etcd, such as `/registry/deployments/default/web`.

use super::Fault;
use crate::kinds::records::{self, Record};
use crate::kinds::{Kind, KindId, Registry};

/// The keys under one storage prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// The prefix of all keys, which begins and ends with a slash.
    root: String,
}

/// What is stored under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'k> {
    /// An object. Its key within the kind is `namespace/name`, or only the name.
    Object { kind: KindId, key: &'k str },
    /// A record that servers store for their own use. The name is empty if there is only one such record.
    Record { record: &'static Record, name: &'k str },
    /// An object of an unknown kind. Its definition may arrive later, or another server may serve it.
    Strange,
}

impl Keys {
    /// `registry`, `/registry` and `/registry/` are the same prefix.
    pub fn new(prefix: &str) -> Keys {
        let mut parts: Vec<&str> = Vec::new();
        for part in prefix.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        let mut root = String::from("/");
        for part in parts {
            root.push_str(part);
            root.push('/');
        }
        Keys { root }
    }

    /// The prefix of all keys.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The prefix of the keys of a kind's objects. It ends with a slash, so that no key of another kind begins with it.
    pub fn all_of(&self, kind: &Kind) -> String {
        self.below(&kind.storage.path, "")
    }

    /// The key of an object. `key` is the object's key within its kind.
    pub fn of(&self, kind: &Kind, key: &str) -> String {
        self.below(&kind.storage.path, key)
    }

    /// The key of a record; `name` is used only if records of its kind have names.
    pub fn of_record(&self, record: &Record, name: &str) -> String {
        let mut key = self.below(record.storage, if record.is_named { name } else { "" });
        if !record.is_named {
            key.pop();
        }
        key
    }

    /// The key of an object of the kind with this storage path.
    pub fn at(&self, storage: &str, key: &str) -> String {
        self.below(storage, key)
    }

    /// Splits the key of a custom kind's object into the storage path of the kind and the object's key within it. This
    /// does not need the definition.
    pub fn custom<'k>(&self, key: &'k [u8]) -> Option<(&'k str, &'k str)> {
        let path = std::str::from_utf8(key).ok()?.strip_prefix(&self.root)?;
        let (group, rest) = path.split_once('/')?;
        let (plural, names) = rest.split_once('/')?;
        let is_right = |name: &str| !matches!(name, "" | "." | "..");
        let is_object =
            group.contains('.') && is_right(plural) && names.split('/').count() <= 2 && names.split('/').all(is_right);
        is_object.then(|| (&path[..group.len() + 1 + plural.len()], names))
    }

    /// Whether a key begins like a key of a custom kind, that is with a group that contains a dot. An object with
    /// this key need not exist.
    pub fn is_of_custom_kind(&self, key: &[u8]) -> bool {
        let path = key.strip_prefix(self.root.as_bytes()).unwrap_or_default();
        path.split(|byte| *byte == b'/').next().is_some_and(|group| group.contains(&b'.') && group.len() < path.len())
    }

    /// The kind under whose prefix a key is, and the rest of the key after the prefix. The key need not be valid for an
    /// object of the kind.
    pub fn under(&self, registry: &Registry, key: &[u8]) -> Option<(KindId, String)> {
        let text = String::from_utf8_lossy(key);
        let (kind, rest) = kind_of(registry, text.strip_prefix(&self.root)?)?;
        Some((kind, rest.to_owned()))
    }

    fn below(&self, storage: &str, key: &str) -> String {
        let mut found = String::with_capacity(self.root.len() + storage.len() + 1 + key.len());
        for part in [&self.root, storage, "/", key] {
            found.push_str(part);
        }
        found
    }

    /// Determines what is stored under a key.
    pub fn place<'k>(&self, registry: &Registry, key: &'k [u8]) -> Result<Place<'k>, Fault> {
        let fault = |problem: &str| Fault::new(key, problem);
        let Ok(text) = std::str::from_utf8(key) else { return Err(fault("the key is not valid UTF-8")) };
        let Some(path) = text.strip_prefix(&self.root) else {
            return Err(fault(&format!("the key does not begin with the prefix {}", self.root)));
        };
        if let Some(place) = record(path) {
            return Ok(place);
        }
        let Some((kind, key)) = kind_of(registry, path) else { return Ok(Place::Strange) };
        let is_namespaced = registry.get(kind).is_namespaced();
        let mut names = key.split('/');
        let right = if is_namespaced { 2 } else { 1 };
        if names.clone().count() != right || names.any(|name| matches!(name, "" | "." | "..")) {
            let wanted = if is_namespaced { "a namespace and a name" } else { "a name" };
            return Err(fault(&format!("behind {} a key has {wanted}, and nothing else", registry.get(kind).resource)));
        }
        Ok(Place::Object { kind, key })
    }
}

/// Storage paths have one or two segments. No path of two segments begins with a path of one segment.
fn kind_of<'p>(registry: &Registry, path: &'p str) -> Option<(KindId, &'p str)> {
    let first = path.find('/')?;
    let second = path[first + 1..].find('/').map(|second| first + 1 + second);
    [second, Some(first)]
        .into_iter()
        .flatten()
        .find_map(|end| Some((registry.by_storage(&path[..end])?, &path[end + 1..])))
}

fn record(path: &str) -> Option<Place<'_>> {
    records::ALL.into_iter().find_map(|record| {
        let name = path.strip_prefix(record.storage)?;
        match name.strip_prefix('/') {
            Some(name) if record.is_named && !name.is_empty() && !name.contains('/') => {
                Some(Place::Record { record, name })
            }
            None if !record.is_named && name.is_empty() => Some(Place::Record { record, name }),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::registry;

    #[test]
    fn a_prefix_is_a_path() {
        for (prefix, root) in [
            ("/registry", "/registry/"),
            ("registry/", "/registry/"),
            ("", "/"),
            ("/", "/"),
            ("a//b/./c/../d", "/a/b/d/"),
            ("../..", "/"),
        ] {
            assert_eq!(Keys::new(prefix).root(), root, "{prefix}");
        }
    }

    #[test]
    fn every_kind_has_a_place_of_its_own() {
        let (keys, registry) = (Keys::new("/registry"), registry());
        for (id, kind) in registry.iter().filter(|(_, kind)| kind.stored) {
            let own = if kind.is_namespaced() { "default/a" } else { "a" };
            let key = keys.of(kind, own);
            assert_eq!(keys.place(registry, key.as_bytes()), Ok(Place::Object { kind: id, key: own }), "{key}");
            assert!(key.starts_with(&keys.all_of(kind)) && keys.all_of(kind).ends_with('/'));
            // These keys have one segment too many or too few.
            for wrong in [format!("{key}/b"), format!("{}{}", keys.all_of(kind), if own == "a" { "" } else { "a" })] {
                let fault = keys.place(registry, wrong.as_bytes()).expect_err(&wrong).to_string();
                assert!(fault.contains(&wrong) && fault.contains(&kind.resource), "{fault}");
            }
        }
        for record in records::ALL {
            let key = keys.of_record(record, "10.0.0.1");
            let name = if record.is_named { "10.0.0.1" } else { "" };
            assert_eq!(keys.place(registry, key.as_bytes()), Ok(Place::Record { record, name }), "{key}");
        }
    }

    #[test]
    fn keys_are_those_of_kubernetes() {
        let (keys, registry) = (Keys::new("/registry"), registry());
        for (group, version, resource, key) in [
            ("", "v1", "pods", "/registry/pods/a/b"),
            ("", "v1", "nodes", "/registry/minions/b"),
            ("", "v1", "services", "/registry/services/specs/a/b"),
            ("", "v1", "endpoints", "/registry/services/endpoints/a/b"),
            ("", "v1", "replicationcontrollers", "/registry/controllers/a/b"),
            ("networking.k8s.io", "v1", "ingresses", "/registry/ingress/a/b"),
            ("extensions", "v1beta1", "deployments", "/registry/deployments/a/b"),
            ("events.k8s.io", "v1", "events", "/registry/events/a/b"),
            (
                "apiextensions.k8s.io",
                "v1",
                "customresourcedefinitions",
                "/registry/apiextensions.k8s.io/customresourcedefinitions/b",
            ),
            ("apiregistration.k8s.io", "v1", "apiservices", "/registry/apiregistration.k8s.io/apiservices/b"),
        ] {
            let kind = registry.get(registry.find(group, version, resource).expect(resource).0);
            assert_eq!(keys.of(kind, if kind.is_namespaced() { "a/b" } else { "b" }), key);
        }
        for (record, key) in [
            (&records::SERVICE_ADDRESSES, "/registry/ranges/serviceips"),
            (&records::SECOND_SERVICE_ADDRESSES, "/registry/ranges/secondaryserviceips"),
            (&records::NODE_PORTS, "/registry/ranges/servicenodeports"),
            (&records::SERVERS, "/registry/masterleases/::1"),
            (&records::PEERS, "/registry/peerserverleases/::1"),
        ] {
            assert_eq!(keys.of_record(record, "::1"), key);
        }
    }

    #[test]
    fn objects_of_definitions_are_told_by_their_group() {
        let keys = Keys::new("/registry");
        for (key, expected) in [
            ("/registry/example.com/gadgets/a/b", Some(("example.com/gadgets", "a/b"))),
            ("/registry/example.com/gadgets/b", Some(("example.com/gadgets", "b"))),
            ("/registry/example.com/gadgets/a/b/c", None),
            ("/registry/example.com/gadgets/", None),
            ("/registry/example.com/gadgets", None),
            ("/registry/podsx/a/b", None),
            ("/other/example.com/gadgets/a/b", None),
        ] {
            assert_eq!(keys.custom(key.as_bytes()), expected, "{key}");
        }
        assert_eq!(keys.at("example.com/gadgets", "a/b"), "/registry/example.com/gadgets/a/b");
    }

    #[test]
    fn what_is_of_no_kind_is_told_from_what_is_wrong() {
        let (keys, registry) = (Keys::new("/registry"), registry());
        for strange in ["health", "example.com/widgets/a/b", "podsx/a/b", "", "ranges/other", "masterleases/a/b", "x/"]
        {
            let key = format!("/registry/{strange}");
            assert_eq!(keys.place(registry, key.as_bytes()), Ok(Place::Strange), "{key}");
        }
        for wrong in ["compact_rev_key", "/other/pods/a/b", "/registry/pods/a/", "/registry/pods/../b", "/registry"] {
            assert!(keys.place(registry, wrong.as_bytes()).is_err(), "{wrong}");
        }
        let fault = keys.place(registry, b"/registry/pods/\xff\x1b/b").expect_err("no text").to_string();
        assert!(!fault.contains('\x1b'), "{fault}");
        let long = [b"/registry/pods/".as_slice(), &b"x".repeat(1 << 20)].concat();
        assert!(keys.place(registry, &long).expect_err("a name is missing").to_string().len() < 2048);
    }
}
