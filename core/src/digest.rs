//! The digest of a state: 32 bytes that depend only on the objects, not on the events that created them. Two logs that
//! result in the same objects have the same digest.
//!
//! A collection's digest is the SHA-256 over its objects in key order. Each object contributes the length and the bytes
//! of its key, then the length and the bytes of its canonical JSON. The state's digest is the SHA-256 over the
//! collections in order of their storage path. Each collection contributes the length and the bytes of that path, the
//! number of its objects, and its digest. Lengths and numbers are eight bytes, big endian. Empty collections and the
//! state's offset do not count.

use crate::state::{Collection, State};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;

/// The digest of a state, shown as `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub fn of(state: &State) -> Digest {
        let mut whole = Sha256::new();
        for (storage, collection) in sorted(state) {
            text(&mut whole, storage.as_bytes());
            whole.update((collection.len() as u64).to_be_bytes());
            let mut part = Sha256::new();
            for (key, entry) in collection.iter() {
                text(&mut part, key.as_bytes());
                text(&mut part, &entry.json());
            }
            whole.update(part.finalize());
        }
        Digest(whole.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The differences between two states, ordered by `resource/key`: at most `limit` objects, each with the kind of
/// difference.
pub fn differences(folded: &State, served: &State, limit: usize) -> Vec<String> {
    let (folded, served) = (sorted(folded), sorted(served));
    let storages: std::collections::BTreeSet<&str> = folded.keys().chain(served.keys()).copied().collect();
    let none = Collection::default();
    let mut found = Vec::new();
    for storage in storages {
        let of = |side: &BTreeMap<&str, &'_ Collection>| side.get(storage).map(|collection| (*collection).clone());
        let (folded, served) = (of(&folded).unwrap_or(none.clone()), of(&served).unwrap_or(none.clone()));
        for (key, entry) in folded.iter() {
            match served.get(key) {
                None => found.push(format!("{storage}/{key} is in the log, and not served")),
                Some(other) if other.body() != entry.body() => found.push(format!(
                    "{storage}/{key} is version {} in the log and is served as version {}, with other bytes",
                    entry.offset, other.offset
                )),
                Some(_) => {}
            }
        }
        for (key, _) in served.iter().filter(|(key, _)| folded.get(key).is_none()) {
            found.push(format!("{storage}/{key} is served, and the log does not lead to it"));
        }
        if found.len() >= limit {
            found.truncate(limit);
            break;
        }
    }
    found
}

fn sorted(state: &State) -> BTreeMap<&str, &Collection> {
    state.collections().collect()
}

/// Adds the length of a text and then the text to the hash. The length keeps adjacent texts apart.
fn text(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::replay;
    use crate::event::{Operation, Record};
    use crate::kinds::registry;
    use bytes::Bytes;
    use std::sync::Arc;

    /// Offset, resource, key and text of an event; the text `None` means a deletion.
    type Told = (u64, &'static str, &'static str, Option<&'static str>);

    fn state(events: &[Told]) -> State {
        let mut state = State::new(Arc::new(registry().clone()));
        for (offset, resource, key, text) in events {
            let record = Record {
                offset: *offset,
                resource: (*resource).into(),
                key: (*key).into(),
                operation: if text.is_some() { Operation::Put } else { Operation::Delete } as i32,
                object: Bytes::from(format!("{{\"metadata\":{{}},\"data\":{:?}}}\n", text.unwrap_or_default())),
                ..Record::default()
            };
            replay(&mut state, &record).unwrap();
        }
        state
    }

    #[test]
    fn the_digest_is_of_what_is_there_and_not_of_how_it_came() {
        let plain = state(&[(1, "configmaps", "a/b", Some("x")), (2, "secrets", "a/c", Some("y"))]);
        let same: &[&[Told]] = &[
            &[(1, "secrets", "a/c", Some("y")), (2, "configmaps", "a/b", Some("x"))],
            &[
                (1, "configmaps", "a/b", Some("old")),
                (4, "configmaps", "a/b", Some("x")),
                (9, "secrets", "a/c", Some("y")),
            ],
            &[
                (1, "pods", "a/p", Some("gone")),
                (2, "configmaps", "a/b", Some("x")),
                (3, "pods", "a/p", None),
                (4, "secrets", "a/c", Some("y")),
            ],
        ];
        for events in same {
            assert_eq!(Digest::of(&state(events)), Digest::of(&plain), "{events:?}");
            assert_eq!(differences(&state(events), &plain, 9), Vec::<String>::new());
        }
        let other: &[(&[Told], &str)] = &[
            (&[(1, "configmaps", "a/b", Some("x"))], "secrets/a/c is served, and the log does not lead to it"),
            (
                &[(1, "configmaps", "a/b", Some("x")), (2, "secrets", "a/c", Some("z"))],
                "secrets/a/c is version 2 in the log and is served as version 2, with other bytes",
            ),
            (
                &[(1, "configmaps", "a/b", Some("x")), (2, "secrets", "a/c", Some("y")), (3, "pods", "a/p", Some(""))],
                "pods/a/p is in the log, and not served",
            ),
        ];
        for (events, difference) in other {
            assert_ne!(Digest::of(&state(events)), Digest::of(&plain), "{events:?}");
            assert_eq!(differences(&state(events), &plain, 9), [*difference]);
        }
    }

    #[test]
    fn neighbours_are_kept_apart() {
        let digest = |key: &'static str, resource: &'static str| Digest::of(&state(&[(1, resource, key, Some("x"))]));
        let all = [digest("a/b", "configmaps"), digest("a/bc", "configmaps"), digest("a/b", "secrets")];
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
        let empty = Digest::of(&state(&[])).to_string();
        assert_eq!(empty, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn objects_whose_kind_nothing_defines_count() {
        let orphan: &[(u64, &str, &str, Option<&str>)] = &[(1, "example.com/widgets", "a/w", Some("x"))];
        assert_ne!(Digest::of(&state(orphan)), Digest::of(&state(&[])));
        let gone = [orphan[0], (2, "example.com/widgets", "a/w", None)];
        assert_eq!(Digest::of(&state(&gone)), Digest::of(&state(&[])));
    }
}
