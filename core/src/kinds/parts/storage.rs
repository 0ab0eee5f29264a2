//! Where and how objects of a kind are stored.

use crate::cached::Cached;
use crate::object::{Body, Packer};
use bytes::Bytes;

/// The place and the form of a kind's objects in the log, in an etcd that is shared with Kubernetes, and in memory. The
/// last stage of a write reads this description, as does everything that loads or migrates a store.
#[derive(Default)]
pub struct KindStorage {
    /// The storage path below the prefix: `deployments`, `services/specs`.
    pub path: String,
    /// The hub group's version in which stores shared with Kubernetes contain the objects up to a minor release, if it
    /// differs from [`Kind::stored_version`](crate::kinds::Kind::stored_version).
    pub(in crate::kinds) stored_in: Option<(&'static str, u32)>,
    /// Whether stores that are shared with Kubernetes always contain the objects in JSON, even if another media type is
    /// configured.
    pub as_json: bool,
    /// Packs the converted forms of objects of this kind.
    packer: Cached<Packer>,
}

impl KindStorage {
    /// Objects at a path below the prefix.
    pub fn at(path: &str) -> KindStorage {
        KindStorage { path: path.into(), ..KindStorage::default() }
    }

    /// Makes the body of a converted object. The body is packed if it still exists after many newer bodies were made.
    pub fn keep(&self, made: Bytes) -> Body {
        let body = Body::new(made);
        self.packer.lock().note(&body);
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_forms_of_old_objects_are_kept_in_pieces() {
        let storage = KindStorage::at("pods");
        let form =
            |number: usize| Bytes::from(format!("{}\n\u{7}web-{number}", "what all pods of it say; ".repeat(80)));
        let kept: Vec<Body> = (0..1100).map(|number| storage.keep(form(number))).collect();
        assert!(kept[1..50].iter().all(Body::is_in_pieces));
        assert!(!kept[1099].is_in_pieces(), "its watchers read it now");
        assert!((0..).zip(&kept).all(|(number, body)| body.bytes() == form(number)));
    }
}
