//! The servers on one etcd publish proofs of their keys, so that each server finds out whether it can read the values
//! that the other servers write.
//!
//! A key is published as its prefix, which the values in etcd also show, and a MAC of a random salt. Another server
//! that has the key computes the same MAC. Without the key, the MAC reveals no more than a value does. The key of a KMS
//! plug-in is not known here, so plug-ins are compared by their prefixes alone.

use super::{Keyring, Provider};
use crate::cipher::{expand, random};
use crate::configuration::{Pattern, ResourceEntry};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdfast_core::visible;
use holdfast_value::{Value, json};
use std::collections::BTreeMap;

const SALT_BYTES: usize = 16;
/// The maximum number of entries, resources and keys of another server that are compared.
const COMPARED_MAX: usize = 1_000;
/// The maximum number of characters of a text in an error; names of keys are shorter.
const SHOWN_MAX: usize = 400;

/// The advice in errors on how to put a key into use.
const ADVICE: &str = "each server must read what the others write, so add a key to all servers behind the others first, \
                      and put it first when all have it";

/// The keys of one server, as the server publishes them.
struct ServerKeys {
    entries: Vec<Covering>,
    all: Vec<KeyName>,
}

/// An entry of a server's encryption configuration: its resources, and how their values are written and read.
struct Covering {
    resources: Vec<Pattern>,
    /// The key that encrypts new values; `None` if values are written in plain.
    writer: Option<KeyName>,
    reads_plain: bool,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct KeyName {
    prefix: String,
    /// The MAC of the salt under this key; empty for the keys of KMS plug-ins.
    mac: String,
}

impl Keyring {
    /// The description of this server's keys that other servers read, with a new salt.
    pub fn published(&self) -> Result<Value, String> {
        let salt = random::<SALT_BYTES>().map_err(|error| error.to_string())?;
        let name = |key: &KeyName| json!({"prefix": key.prefix, "mac": key.mac});
        let ServerKeys { entries, all } = self.keys(&salt);
        let entry = |entry: &Covering| {
            let resources: Vec<Value> = entry.resources.iter().map(|one| one.to_string().into()).collect();
            let writer = entry.writer.as_ref().map_or(Value::Null, name);
            json!({"resources": resources, "writer": writer, "readsPlain": entry.reads_plain})
        };
        let entries: Vec<Value> = entries.iter().map(entry).collect();
        let all: Vec<Value> = all.iter().map(name).collect();
        Ok(json!({"salt": STANDARD.encode(salt), "entries": entries, "keys": all}))
    }

    /// Why this server cannot read values of another server, or the other server cannot read values of this server;
    /// `None` if both servers can read all values. `published` has the keys of the other server, and `server` is its
    /// name in errors.
    pub fn conflict(&self, published: &Value, server: &str) -> Option<String> {
        let (salt, theirs) = read(published)?;
        let own = self.keys(&salt);
        let here = |(writer, resources): (Option<&KeyName>, String)| match writer {
            Some(key) if theirs.all.iter().any(|other| other.prefix == key.prefix) => {
                format!(
                    "{resources} would be encrypted by this server with {}, and {server} has another key of that name",
                    key.prefix
                )
            }
            Some(key) => {
                format!(
                    "{resources} would be encrypted by this server with {}, which {server} does not have",
                    key.prefix
                )
            }
            None => format!("{resources} would be written by this server in plain, which {server} does not read"),
        };
        let there = |(writer, resources): (Option<&KeyName>, String)| match writer {
            Some(key) if own.all.iter().any(|other| other.prefix == key.prefix) => {
                format!(
                    "{server} encrypts {resources} with {}, and this server has another key of that name",
                    key.prefix
                )
            }
            Some(key) => format!("{server} encrypts {resources} with {}, which this server does not have", key.prefix),
            None => format!("{server} writes {resources} in plain, which this server does not read"),
        };
        let found = unread(&own, &theirs).into_iter().map(here).chain(unread(&theirs, &own).into_iter().map(there));
        let found: Vec<String> = found.collect();
        (!found.is_empty()).then(|| format!("--encryption-provider-config: {}: {ADVICE}", found.join("; ")))
    }

    fn keys(&self, salt: &[u8]) -> ServerKeys {
        let names: Vec<(&ResourceEntry, Vec<Option<Vec<KeyName>>>)> = self
            .entries
            .iter()
            .map(|(entry, providers)| (entry, providers.iter().map(|one| names(one, salt)).collect()))
            .collect();
        let entries = names.iter().map(|(entry, providers)| Covering {
            resources: entry.resources.clone(),
            writer: providers.first().and_then(|first| first.as_ref()?.first().cloned()),
            reads_plain: providers.iter().any(Option::is_none),
        });
        let entries = entries.collect();
        ServerKeys {
            entries,
            all: names.into_iter().flat_map(|(_, providers)| providers).flatten().flatten().collect(),
        }
    }
}

/// The keys of a provider; `None` if the provider does not encrypt.
fn names(provider: &Provider, salt: &[u8]) -> Option<Vec<KeyName>> {
    match provider {
        Provider::Identity => None,
        Provider::Keys { keys, .. } => {
            let name = |key: &super::Key| {
                let purpose = [b"holdfast: a key that servers share", salt, key.prefix.as_bytes()].concat();
                KeyName { prefix: shown(&key.prefix), mac: STANDARD.encode(expand(&key.secret, &purpose)) }
            };
            Some(keys.iter().map(name).collect())
        }
        Provider::Kms(kms) => Some(vec![KeyName { prefix: shown(kms.prefix()), mac: String::new() }]),
    }
}

impl ServerKeys {
    /// The key that encrypts a resource, and whether plain values of the resource are accepted.
    fn of(&self, (resource, group): (&str, &str)) -> (Option<&KeyName>, bool) {
        let covers = |entry: &&Covering| entry.resources.iter().any(|one| one.covers(resource, group));
        let mut own = self.entries.iter().filter(covers).peekable();
        let writer = own.peek().and_then(|first| first.writer.as_ref());
        let is_covered = own.peek().is_some();
        (writer, !is_covered || own.any(|entry| entry.reads_plain))
    }
}

/// The keys with which `writer` writes values that `reader` cannot read; `None` stands for writing without encryption.
/// Each key is returned with the resources, as far as the configurations name them.
fn unread<'k>(writer: &'k ServerKeys, reader: &ServerKeys) -> Vec<(Option<&'k KeyName>, String)> {
    let named = |keys: &ServerKeys| -> Vec<Pattern> {
        keys.entries.iter().flat_map(|entry| entry.resources.clone()).take(COMPARED_MAX).collect()
    };
    let mut all = [named(writer), named(reader)].concat();
    all.sort();
    all.dedup();
    let mut found: BTreeMap<Option<&KeyName>, Vec<String>> = BTreeMap::new();
    for pattern in all {
        let example = pattern.example();
        let ((key, _), (_, reads_plain)) = (writer.of(example), reader.of(example));
        if !key.map_or(reads_plain, |key| reader.all.contains(key)) {
            found.entry(key).or_default().push(pattern.to_string());
        }
    }
    found.into_iter().map(|(key, resources)| (key, shown(&resources.join(", ")))).collect()
}

/// The salt and the keys that another server published; `None` if the published value has another form.
fn read(published: &Value) -> Option<(Vec<u8>, ServerKeys)> {
    let text = |value: &Value| value.as_str().map(shown);
    let name = |value: &Value| Some(KeyName { prefix: text(&value["prefix"])?, mac: text(&value["mac"])? });
    let entry = |entry: &Value| {
        let resources = entry["resources"].as_array()?.iter().take(COMPARED_MAX);
        Some(Covering {
            resources: resources.map(|one| Some(Pattern::parse(&text(one)?))).collect::<Option<_>>()?,
            writer: if entry["writer"].is_null() { None } else { Some(name(&entry["writer"])?) },
            reads_plain: entry["readsPlain"].as_bool()?,
        })
    };
    let salt = STANDARD.decode(published["salt"].as_str()?).ok()?;
    let entries = published["entries"].as_array()?.iter().take(COMPARED_MAX).map(entry).collect::<Option<_>>()?;
    let all = published["keys"].as_array()?.iter().take(COMPARED_MAX).map(name).collect::<Option<_>>()?;
    Some((salt, ServerKeys { entries, all }))
}

fn shown(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN_MAX).collect();
    visible::line(&cut).into_owned()
}

#[cfg(test)]
mod tests {
    use crate::configuration::Configuration;
    use crate::keyring::Keyring;
    use holdfast_value::{Value, json};
    use std::sync::Arc;

    /// A keyring of entries, each with resources and providers. `aescbc=1,2` means the keys 1 and 2, and `aescbc=1x`
    /// means a key with the name of 1 and another secret.
    fn keyring(entries: &[(&str, &[&str])]) -> Keyring {
        if entries.is_empty() {
            return Keyring::none();
        }
        let key = |name: &str| {
            let (name, byte) = name.strip_suffix('x').map_or((name, name), |plain| (plain, "9"));
            let secret = byte.as_bytes().repeat(32);
            json!({"name": format!("k{name}"), "secret": super::Engine::encode(&super::STANDARD, secret)})
        };
        let provider = |text: &&str| match text.split_once('=') {
            None => json!({"identity": {}}),
            Some(("kms", name)) => {
                json!({"kms": {"apiVersion": "v2", "name": name, "endpoint": "unix:///nowhere"}})
            }
            Some((cipher, keys)) => {
                let keys: Vec<Value> = keys.split(',').map(key).collect();
                let mut one = json!({});
                one[cipher] = json!({"keys": keys});
                one
            }
        };
        let entry = |(resources, providers): &(&str, &[&str])| {
            let resources: Vec<&str> = resources.split(' ').collect();
            let providers: Vec<Value> = providers.iter().map(provider).collect();
            json!({"resources": resources, "providers": providers})
        };
        let entries: Vec<Value> = entries.iter().map(entry).collect();
        let text = json!({"apiVersion": "v1", "kind": "EncryptionConfig", "resources": entries}).to_string();
        Keyring::new(Configuration::read(&text, true).expect("a configuration"), &Arc::default()).expect("a keyring")
    }

    fn conflicts(own: &Keyring, other: &Keyring) -> Vec<String> {
        let Some(found) = own.conflict(&other.published().expect("keys"), "the server at x") else { return Vec::new() };
        let found = found.strip_prefix("--encryption-provider-config: ").expect("the option");
        let (found, _) = found.split_once(": each server must").expect("an advice");
        found.split("; ").map(str::to_owned).collect()
    }

    #[test]
    fn each_step_of_a_rotation_is_fit_beside_the_one_before() {
        type Step<'s> = &'s [(&'s str, &'s [&'s str])];
        let steps: [Step<'_>; 10] = [
            &[],
            &[("secrets", &["identity", "aescbc=1"])],
            &[("secrets", &["aescbc=1", "identity"])],
            &[("secrets", &["aescbc=1"])],
            &[("secrets", &["aescbc=1,2"])],
            &[("secrets", &["aescbc=2,1"])],
            &[("secrets", &["aescbc=2"])],
            &[("secrets", &["aescbc=2", "kms=plug"])],
            &[("secrets", &["kms=plug", "aescbc=2", "identity"])],
            &[("secrets", &["identity", "kms=plug", "aescbc=2"])],
        ];
        for pair in steps.windows(2) {
            let [before, after] = [keyring(pair[0]), keyring(pair[1])];
            assert_eq!(conflicts(&before, &after), Vec::<String>::new(), "{pair:?}");
            assert_eq!(conflicts(&after, &before), Vec::<String>::new(), "{pair:?}");
        }
        // The order of entries and of their resources does not matter, and neither does the position of a key.
        let one = keyring(&[("secrets configmaps", &["aescbc=1"]), ("*.apps", &["aesgcm=3"])]);
        let other = keyring(&[("*.apps", &["aesgcm=3"]), ("configmaps secrets", &["aescbc=1"])]);
        assert_eq!(conflicts(&one, &other), Vec::<String>::new());
    }

    #[test]
    fn what_the_other_cannot_read_is_named_with_its_key() {
        let secrets = |providers: &'static [&'static str]| keyring(&[("secrets", providers)]);
        for (own, other, expected) in [
            (
                secrets(&["aescbc=1"]),
                secrets(&["aescbc=2,1"]),
                vec!["the server at x encrypts secrets with k8s:enc:aescbc:v1:k2:, which this server does not have"],
            ),
            (
                secrets(&["aescbc=2,1"]),
                secrets(&["aescbc=1"]),
                vec![
                    "secrets would be encrypted by this server with k8s:enc:aescbc:v1:k2:, which the server at x does not have",
                ],
            ),
            (
                secrets(&["aescbc=1"]),
                secrets(&["aescbc=1x"]),
                vec![
                    "secrets would be encrypted by this server with k8s:enc:aescbc:v1:k1:, and the server at x has another \
                     key of that name",
                    "the server at x encrypts secrets with k8s:enc:aescbc:v1:k1:, and this server has another key of that \
                     name",
                ],
            ),
            (
                secrets(&["aescbc=1", "identity"]),
                keyring(&[]),
                vec![
                    "secrets would be encrypted by this server with k8s:enc:aescbc:v1:k1:, which the server at x does not have",
                ],
            ),
            (
                secrets(&["aescbc=1"]),
                secrets(&["identity", "aescbc=1"]),
                vec!["the server at x writes secrets in plain, which this server does not read"],
            ),
            (
                secrets(&["identity", "aescbc=1"]),
                secrets(&["aescbc=1"]),
                vec!["secrets would be written by this server in plain, which the server at x does not read"],
            ),
            (
                keyring(&[("secrets configmaps", &["aescbc=1"]), ("*.*", &["aescbc=1,2"])]),
                keyring(&[("configmaps", &["aescbc=1"]), ("*.", &["aescbc=3,1"]), ("*.apps", &["aescbc=2"])]),
                vec![
                    "the server at x encrypts *., secrets with k8s:enc:aescbc:v1:k3:, which this server does not have",
                    "the server at x writes *.* in plain, which this server does not read",
                ],
            ),
            (
                secrets(&["kms=plug"]),
                secrets(&["kms=other"]),
                vec![
                    "secrets would be encrypted by this server with k8s:enc:kms:v2:plug:, which the server at x does not \
                     have",
                    "the server at x encrypts secrets with k8s:enc:kms:v2:other:, which this server does not have",
                ],
            ),
        ] {
            let mut found = conflicts(&own, &other);
            found.sort();
            let mut expected = expected;
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn what_is_published_shows_no_secret_and_differs_each_time() {
        let one = keyring(&[("secrets", &["aescbc=1", "aesgcm=2"])]);
        let [first, second] = [one.published().expect("keys"), one.published().expect("keys")];
        assert_ne!(first["keys"], second["keys"]);
        for secret in [[b'1'; 32], [b'2'; 32]] {
            let text = first.to_string();
            assert!(!text.contains(&super::Engine::encode(&super::STANDARD, secret)), "{text}");
        }
    }

    #[test]
    fn what_is_of_another_form_is_not_compared() {
        let one = keyring(&[("secrets", &["aescbc=1"])]);
        let long: Vec<String> = (0..100_000).map(|nth| format!("r{nth}")).collect();
        for published in [
            Value::Null,
            json!({}),
            json!({"salt": "!", "entries": [], "keys": []}),
            json!({"salt": "", "entries": [{}], "keys": []}),
            json!({"salt": "", "entries": [{"resources": [1], "writer": null, "readsPlain": true}], "keys": []}),
        ] {
            assert_eq!(one.conflict(&published, "x"), None, "{published}");
        }
        let writer = json!({"prefix": "\u{1b}[31m", "mac": ""});
        let many =
            json!({"salt": "", "entries": [{"resources": long, "writer": writer, "readsPlain": true}], "keys": []});
        let found = one.conflict(&many, "x").expect("a conflict");
        assert!(found.len() < 2_000 && !found.contains('\u{1b}'), "{found}");
    }
}
