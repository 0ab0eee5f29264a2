//! The keys of etcd that a server reads and writes: Kubernetes' keys, and a few keys that only Holdfast uses.

use crate::client::{self, Transactions};
use crate::strays::Stray;
use bytes::Bytes;
use holdfast_core::etcd::{Fault, Keys, Place};
use holdfast_core::kinds::{Kind, Registry};
use std::fmt::{self, Display};

/// The kinds whose objects a log has, by their storage paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Kinds {
    #[default]
    All,
    /// All kinds except the kinds with these storage paths, which are in another etcd.
    Except(Vec<String>),
    Only(Vec<String>),
}

impl Kinds {
    pub fn have(&self, storage: &str) -> bool {
        match self {
            Kinds::All => true,
            Kinds::Except(others) => others.iter().all(|other| other != storage),
            Kinds::Only(own) => own.iter().any(|own| own == storage),
        }
    }
}

impl Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kinds::All => Ok(()),
            Kinds::Except(others) => write!(f, "all but {}", others.join(", ")),
            Kinds::Only(own) => write!(f, "only {}", own.join(", ")),
        }
    }
}

/// The keys of one cluster in etcd.
pub struct KeySpace {
    pub keys: Keys,
    pub kinds: Kinds,
    /// The prefix `/registry.holdfast/`, which API servers do not list. In byte order it is next to `/registry/`, so
    /// one watch covers both prefixes. In a store with plain transactions the prefix is `/registry/holdfast/`, because
    /// such a store may watch only prefixes. No resource has keys below these prefixes.
    own: String,
    is_within: bool,
}

/// What a key in etcd means to the log.
pub enum KeyMeaning<'k> {
    /// The key of an object. `kind` is `None` for custom kinds.
    Object { kind: Option<&'static Kind>, resource: &'k str, key: &'k str },
    /// A key whose value names the author of the object with the same revision.
    Who,
    /// A key that the log ignores.
    Other,
    /// A key that belongs to no object.
    Stray(Stray),
}

impl KeySpace {
    pub fn new(prefix: &str, kinds: Kinds, transactions: Transactions) -> KeySpace {
        let keys = Keys::new(prefix);
        let is_within = transactions == Transactions::Plain;
        let own = match is_within {
            true => format!("{}holdfast/", keys.root()),
            false => format!("{}.holdfast/", keys.root().trim_end_matches('/')),
        };
        KeySpace { keys, kinds, own, is_within }
    }

    /// The range of all watched keys.
    pub fn watched(&self) -> client::KeyRange {
        if self.is_within {
            return self.objects();
        }
        client::KeyRange::between(self.own.clone(), self.behind())
    }

    /// The range of all objects, and of the records that API servers store beside the objects.
    pub fn objects(&self) -> client::KeyRange {
        client::KeyRange::between(self.keys.root().to_owned(), self.behind())
    }

    fn behind(&self) -> String {
        // In byte order `0` follows the slash, so this key comes directly after all keys of the prefix.
        format!("{}0", self.keys.root().trim_end_matches('/'))
    }

    /// The key of the author record. It is written together with each object, so that watches receive the author. The
    /// record names only the author of the last write of this server.
    pub fn who(&self, server: &str) -> Bytes {
        format!("{}who/{server}", self.own).into()
    }

    /// The key of the server's fence. Each transaction of the server compares this key, so delayed transactions fail
    /// once the key has been written again.
    pub fn fence(&self, server: &str) -> Bytes {
        format!("{}fences/{server}", self.own).into()
    }

    /// The claims key. It is written together with each object that has claims.
    pub fn claims(&self) -> Bytes {
        format!("{}claims", self.own).into()
    }

    /// The tick key. It is written only to get the revision of the write.
    pub fn tick(&self, server: &str) -> Bytes {
        format!("{}ticks/{server}", self.own).into()
    }

    /// The key of the options that a server publishes to the other servers.
    pub fn options(&self, server: &str) -> Bytes {
        format!("{}options/{server}", self.own).into()
    }

    /// The range of the keys of the options that all servers have published.
    pub fn all_options(&self) -> client::KeyRange {
        // In byte order `0` follows the slash, so the range ends after all keys that begin with `options/`.
        client::KeyRange::between(format!("{}options/", self.own), format!("{}options0", self.own))
    }

    /// The key of the secret that the servers of this cluster share.
    pub fn secret(&self) -> Bytes {
        format!("{}secret", self.own).into()
    }

    /// The key of the current epoch. The epoch changes when a store that was restored from a backup is accepted.
    pub fn epoch(&self) -> Bytes {
        format!("{}epoch", self.own).into()
    }

    /// The key of the progress of a migration into this prefix, until the migration is finished.
    pub fn migration(&self) -> Bytes {
        format!("{}migration", self.own).into()
    }

    /// The key of the value that all servers of this cluster share. The first server writes it.
    pub fn cluster(&self) -> Bytes {
        format!("{}cluster", self.own).into()
    }

    /// Whether the key is known although it belongs to no object: health checks read it, and kine writes it.
    fn is_known(&self, key: &[u8]) -> bool {
        key.strip_prefix(self.keys.root().as_bytes()) == Some(b"health")
    }

    pub fn find<'k>(&self, registry: &'static Registry, key: &'k [u8]) -> Result<KeyMeaning<'k>, Fault> {
        if let Some(name) = key.strip_prefix(self.own.as_bytes()) {
            return Ok(if name.starts_with(b"who/") { KeyMeaning::Who } else { KeyMeaning::Other });
        }
        Ok(match self.keys.place(registry, key)? {
            Place::Object { kind, .. } if !self.kinds.have(&registry.get(kind).storage.path) => KeyMeaning::Other,
            Place::Object { kind, key } => {
                let kind = registry.get(kind);
                KeyMeaning::Object { kind: Some(kind), resource: &kind.storage.path, key }
            }
            Place::Record { .. } => KeyMeaning::Other,
            Place::Strange if matches!(self.kinds, Kinds::Only(_)) => KeyMeaning::Other,
            Place::Strange => match self.keys.custom(key) {
                Some((resource, key)) => KeyMeaning::Object { kind: None, resource, key },
                None if self.is_known(key) => KeyMeaning::Other,
                None => KeyMeaning::Stray(if self.keys.is_of_custom_kind(key) { Stray::Depth } else { Stray::Kind }),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::kinds::registry;

    fn told(places: &KeySpace, key: &str) -> String {
        match places.find(registry(), key.as_bytes()) {
            Ok(KeyMeaning::Object { kind, resource, key }) => format!("{resource} {key} {}", kind.is_some()),
            Ok(KeyMeaning::Who) => "who".into(),
            Ok(KeyMeaning::Other) => "other".into(),
            Ok(KeyMeaning::Stray(Stray::Depth)) => "too deep or not deep enough".into(),
            Ok(KeyMeaning::Stray(Stray::Kind)) => "of no kind".into(),
            Err(fault) => fault.to_string(),
        }
    }

    #[test]
    fn keys_are_told_from_each_other() {
        let places = KeySpace::new("/registry", Kinds::All, Transactions::Full);
        for (key, expected) in [
            ("/registry/pods/a/b", "pods a/b true"),
            ("/registry/services/specs/a/b", "services/specs a/b true"),
            ("/registry/example.com/gadgets/a/b", "example.com/gadgets a/b false"),
            ("/registry/ranges/servicenodeports", "other"),
            ("/registry/health", "other"),
            ("/registry/example.com/gadgets/a/b/c", "too deep or not deep enough"),
            ("/registry/example.com/gadgets/a//b", "too deep or not deep enough"),
            ("/registry/example.com/gadgets", "too deep or not deep enough"),
            ("/registry/gizmos/a/b", "of no kind"),
            ("/registry/stuff", "of no kind"),
            ("/registry/masterleases/a/b", "of no kind"),
            ("/registry.holdfast/who/a", "who"),
            ("/registry.holdfast/fences/a", "other"),
        ] {
            assert_eq!(told(&places, key), expected, "{key}");
        }
        assert!(told(&places, "/registry/pods/a").contains("/registry/pods/a cannot be read"));
    }

    #[test]
    fn in_a_store_for_kubernetes_alone_all_keys_have_one_prefix() {
        let places = KeySpace::new("/registry", Kinds::All, Transactions::Plain);
        assert_eq!(places.watched(), client::KeyRange::between("/registry/", "/registry0"));
        for own in [places.secret(), places.tick("x")] {
            assert!(places.watched().contains(&own));
            assert_eq!(told(&places, &String::from_utf8_lossy(&own)), "other");
        }
    }

    #[test]
    fn a_log_of_some_kinds_has_the_keys_of_those_alone() {
        let events = vec!["events".to_owned()];
        for (key, of_all, of_others, of_events) in [
            ("/registry/events/a/b", "events a/b true", "other", "events a/b true"),
            ("/registry/pods/a/b", "pods a/b true", "pods a/b true", "other"),
            (
                "/registry/example.com/gadgets/a/b",
                "example.com/gadgets a/b false",
                "example.com/gadgets a/b false",
                "other",
            ),
            ("/registry.holdfast/who/a", "who", "who", "who"),
        ] {
            for (kinds, expected) in [
                (Kinds::All, of_all),
                (Kinds::Except(events.clone()), of_others),
                (Kinds::Only(events.clone()), of_events),
            ] {
                assert_eq!(
                    told(&KeySpace::new("/registry", kinds.clone(), Transactions::Full), key),
                    expected,
                    "{kinds:?} {key}"
                );
            }
        }
    }

    #[test]
    fn one_range_has_the_objects_and_what_is_told_of_them_and_nothing_else() {
        for prefix in ["/registry", "/", "a/b"] {
            let places = KeySpace::new(prefix, Kinds::All, Transactions::Full);
            let (watched, objects) = (places.watched(), places.objects());
            let pod = places.keys.at("pods", "a/b");
            assert!(watched.contains(pod.as_bytes()) && objects.contains(pod.as_bytes()), "{prefix}");
            for own in [places.who("x"), places.fence("x"), places.secret()] {
                assert!(watched.contains(&own) && !objects.contains(&own), "{prefix}");
            }
        }
        let watched = KeySpace::new("/registry", Kinds::All, Transactions::Full).watched();
        for other in ["/registry-b/pods/a/b", "/registry", "/registry0", "compact_rev_key", "/registryx/pods/a/b"] {
            assert!(!watched.contains(other.as_bytes()), "{other}");
        }
    }
}
