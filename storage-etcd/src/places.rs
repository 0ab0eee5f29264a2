//! The keys of etcd that a server reads and writes: those of Kubernetes, and a few of Holdfast's own beside them.

use crate::client;
use bytes::Bytes;
use holdfast_core::etcd::{Fault, Keys, Place};
use holdfast_core::kinds::{Kind, Registry};

/// The keys of a cluster.
pub struct Places {
    pub keys: Keys,
    /// `/registry.holdfast/`: API servers do not list it, and it is next to `/registry/`, so that one watch covers
    /// both.
    own: String,
}

/// The meaning of a key.
pub enum Found<'k> {
    /// `kind` is `None` for custom kinds.
    Object { kind: Option<&'static Kind>, resource: &'k str, key: &'k str },
    /// Says who wrote the object with the same revision.
    Who,
    /// A key that the log does not keep.
    Other,
}

impl Places {
    pub fn new(prefix: &str) -> Places {
        let keys = Keys::new(prefix);
        let own = format!("{}.holdfast/", keys.root().trim_end_matches('/'));
        Places { keys, own }
    }

    /// All keys that are watched.
    pub fn watched(&self) -> client::Keys {
        client::Keys::between(self.own.clone(), self.behind())
    }

    /// All objects, and the records that API servers keep beside them.
    pub fn objects(&self) -> client::Keys {
        client::Keys::between(self.keys.root().to_owned(), self.behind())
    }

    fn behind(&self) -> String {
        // In byte order `0` follows the slash, so this key is right behind all keys of the prefix.
        format!("{}0", self.keys.root().trim_end_matches('/'))
    }

    /// Written with each object, to tell watches who wrote it. It holds only this server's last write.
    pub fn who(&self, server: &str) -> Bytes {
        format!("{}who/{server}", self.own).into()
    }

    /// Each transaction of the server compares this key. Once the key has been written again, delayed transactions
    /// fail.
    pub fn fence(&self, server: &str) -> Bytes {
        format!("{}fences/{server}", self.own).into()
    }

    /// Written with each object that has claims.
    pub fn claims(&self) -> Bytes {
        format!("{}claims", self.own).into()
    }

    /// Written only for the revision that the write gets.
    pub fn tick(&self, server: &str) -> Bytes {
        format!("{}ticks/{server}", self.own).into()
    }

    /// The secret that the servers of this cluster share.
    pub fn secret(&self) -> Bytes {
        format!("{}secret", self.own).into()
    }

    /// Which epoch this is: it changes when a store that was restored from a backup is accepted.
    pub fn epoch(&self) -> Bytes {
        format!("{}epoch", self.own).into()
    }

    /// How far a migration into this prefix has come, until it is finished.
    pub fn migration(&self) -> Bytes {
        format!("{}migration", self.own).into()
    }

    pub fn find<'k>(&self, registry: &'static Registry, key: &'k [u8]) -> Result<Found<'k>, Fault> {
        if let Some(name) = key.strip_prefix(self.own.as_bytes()) {
            return Ok(if name.starts_with(b"who/") { Found::Who } else { Found::Other });
        }
        Ok(match self.keys.place(registry, key)? {
            Place::Object { kind, key } => {
                let kind = registry.get(kind);
                Found::Object { kind: Some(kind), resource: &kind.storage, key }
            }
            Place::Record { .. } => Found::Other,
            Place::Strange => match self.keys.custom(key) {
                Some((resource, key)) => Found::Object { kind: None, resource, key },
                None => Found::Other,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::kinds::registry;

    fn told(places: &Places, key: &str) -> String {
        match places.find(registry(), key.as_bytes()) {
            Ok(Found::Object { kind, resource, key }) => format!("{resource} {key} {}", kind.is_some()),
            Ok(Found::Who) => "who".into(),
            Ok(Found::Other) => "other".into(),
            Err(fault) => fault.to_string(),
        }
    }

    #[test]
    fn keys_are_told_from_each_other() {
        let places = Places::new("/registry");
        for (key, expected) in [
            ("/registry/pods/a/b", "pods a/b true"),
            ("/registry/services/specs/a/b", "services/specs a/b true"),
            ("/registry/example.com/gadgets/a/b", "example.com/gadgets a/b false"),
            ("/registry/ranges/servicenodeports", "other"),
            ("/registry/health", "other"),
            ("/registry.holdfast/who/a", "who"),
            ("/registry.holdfast/fences/a", "other"),
        ] {
            assert_eq!(told(&places, key), expected, "{key}");
        }
        assert!(told(&places, "/registry/pods/a").contains("/registry/pods/a cannot be read"));
    }

    #[test]
    fn one_range_has_the_objects_and_what_is_told_of_them_and_nothing_else() {
        for prefix in ["/registry", "/", "a/b"] {
            let places = Places::new(prefix);
            let (watched, objects) = (places.watched(), places.objects());
            let pod = places.keys.at("pods", "a/b");
            assert!(watched.contains(pod.as_bytes()) && objects.contains(pod.as_bytes()), "{prefix}");
            for own in [places.who("x"), places.fence("x"), places.secret()] {
                assert!(watched.contains(&own) && !objects.contains(&own), "{prefix}");
            }
        }
        let watched = Places::new("/registry").watched();
        for other in ["/registry-b/pods/a/b", "/registry", "/registry0", "compact_rev_key", "/registryx/pods/a/b"] {
            assert!(!watched.contains(other.as_bytes()), "{other}");
        }
    }
}
