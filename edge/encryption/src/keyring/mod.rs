//! Selects the key that encrypts a value, and the keys that may decrypt it.
//!
//! The first provider of the first entry that covers a resource encrypts the values of this resource. To decrypt a
//! value, every provider with the prefix of the value is tried, including providers of other resources, because history
//! may be older than the current configuration. Plain values are accepted if no entry covers their resource, or if a
//! covering entry has the identity provider.

mod peers;

use crate::cipher::{Cipher, ValuePlace};
use crate::configuration::{Configuration, Provider as Described, ResourceEntry};
use crate::kms::{Closed, Kms};
use crate::locked::Locked;
use crate::metrics::{Direction, Metrics};
use holdfast_core::event::Record;
use holdfast_core::kinds::{records, registry};
use holdfast_engine::Fault;
use holdfast_engine::log::sealing::{Prepared, Values};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

/// The prefix of every encrypted value, and of no document.
const MARK: &[u8] = b"k8s:enc:";
/// The number of colons in a full prefix, `k8s:enc:PROVIDER:VERSION:NAME:`.
const PREFIX_PARTS: usize = 5;
const PREFIX_BYTES_MAX: usize = 300;
/// The maximum number of cached resources. The number is limited because clients can define new kinds.
const COVERED_MAX: usize = 10_000;

/// The providers of a configuration. [`Keyring::none`] is the keyring without a configuration.
pub struct Keyring {
    entries: Vec<(ResourceEntry, Vec<Arc<Provider>>)>,
    is_configured: bool,
    covered: RwLock<HashMap<String, Arc<Covered>>>,
    metrics: Arc<Metrics>,
}

enum Provider {
    Identity,
    Keys { cipher: Cipher, keys: Vec<Key> },
    Kms(Arc<Kms>),
}

struct Key {
    /// The prefix of encrypted values, including the provider's name.
    prefix: String,
    secret: Vec<u8>,
}

/// The providers of one resource.
struct Covered {
    /// The resource's name in metrics.
    name: String,
    writer: Option<Arc<Provider>>,
    readers: Vec<Arc<Provider>>,
    reads_plain: bool,
}

impl Provider {
    fn new(described: &Described, metrics: &Arc<Metrics>) -> Result<Provider, String> {
        Ok(match described {
            Described::Identity => Provider::Identity,
            Described::Keys { cipher, keys } => {
                let provider = match cipher {
                    Cipher::AesGcm => "aesgcm",
                    Cipher::AesCbc => "aescbc",
                    Cipher::Secretbox => "secretbox",
                };
                let key = |(name, secret): &(String, Vec<u8>)| Key {
                    prefix: format!("k8s:enc:{provider}:v1:{name}:"),
                    secret: secret.clone(),
                };
                Provider::Keys { cipher: *cipher, keys: keys.iter().map(key).collect() }
            }
            Described::Kms(settings) => {
                let kms = Kms::new(settings, metrics.clone());
                Provider::Kms(kms.map_err(|error| format!("KMS provider {}: {error}", settings.name))?)
            }
        })
    }

    /// The prefix of values that this provider encrypts.
    fn prefix(&self) -> &str {
        match self {
            Provider::Identity => "identity",
            Provider::Keys { keys, .. } => keys.first().map_or("", |key| &key.prefix),
            Provider::Kms(kms) => kms.prefix(),
        }
    }

    fn seal(&self, plain: &[u8], place: ValuePlace) -> Result<Vec<u8>, String> {
        match self {
            Provider::Identity => Ok(plain.to_vec()),
            Provider::Keys { cipher, keys } => {
                let key = keys.first().ok_or("the provider has no key")?;
                let sealed = cipher.seal(&key.secret, plain, place).map_err(|error| error.to_string())?;
                Ok([key.prefix.as_bytes(), &sealed].concat())
            }
            Provider::Kms(kms) => kms.seal(plain, place),
        }
    }

    /// Decrypts a value with this prefix. Returns `None` if the prefix belongs to another provider.
    fn open(&self, prefix: &str, sealed: &[u8], place: ValuePlace) -> Option<Result<Vec<u8>, Closed>> {
        match self {
            Provider::Identity => None,
            Provider::Keys { cipher, keys } => {
                let mut own = keys.iter().filter(|key| key.prefix == prefix).peekable();
                own.peek()?;
                Some(own.find_map(|key| cipher.open(&key.secret, sealed, place)).ok_or(Closed::Changed))
            }
            Provider::Kms(kms) => (kms.prefix() == prefix).then(|| kms.open(sealed, place)),
        }
    }

    /// Whether this provider would now store the value differently.
    fn is_outdated(&self, kept: &[u8]) -> bool {
        match self {
            Provider::Identity => kept.starts_with(MARK),
            provider => match kept.strip_prefix(provider.prefix().as_bytes()) {
                None => true,
                Some(sealed) => matches!(provider, Provider::Kms(kms) if kms.is_outdated(sealed)),
            },
        }
    }
}

impl Keyring {
    /// A keyring without a configuration. It encrypts nothing, and cannot decrypt encrypted values.
    pub fn none() -> Keyring {
        let metrics = Arc::default();
        Keyring { entries: Vec::new(), is_configured: false, covered: RwLock::default(), metrics }
    }

    pub(crate) fn new(configuration: Configuration, metrics: &Arc<Metrics>) -> Result<Keyring, String> {
        let entry = |entry: ResourceEntry| {
            let providers = entry.providers.iter().map(|one| Ok(Arc::new(Provider::new(one, metrics)?)));
            let providers = providers.collect::<Result<_, String>>()?;
            Ok((entry, providers))
        };
        let entries = configuration.entries.into_iter().map(entry).collect::<Result<_, String>>()?;
        Ok(Keyring { entries, is_configured: true, covered: RwLock::default(), metrics: metrics.clone() })
    }

    /// The KMS plug-ins, in the order in which the configuration names them.
    pub fn kms(&self) -> impl Iterator<Item = &Arc<Kms>> {
        let all = self.entries.iter().flat_map(|(_, providers)| providers);
        all.filter_map(|provider| match provider.as_ref() {
            Provider::Kms(kms) => Some(kms),
            _ => None,
        })
    }

    pub fn is_configured(&self) -> bool {
        self.is_configured
    }

    /// Whether a stored event is encrypted.
    pub fn is_sealed(record: &Record) -> bool {
        record.object.starts_with(MARK)
    }

    /// Encrypts the plain value of a key in etcd as kube-apiserver does. `storage` is the storage path of the key's
    /// resource.
    pub fn seal_value(&self, storage: &str, key: &str, plain: Vec<u8>) -> Result<Vec<u8>, Locked> {
        if !self.is_configured {
            return Ok(plain);
        }
        let sealed = self.sealed(&self.covered(storage), &plain, ValuePlace::Key(key.as_bytes()));
        Ok(sealed?.unwrap_or(plain))
    }

    /// Decrypts the value of a key in etcd that Holdfast or kube-apiserver has written.
    pub fn open_value<'v>(&self, storage: &str, key: &str, value: &'v [u8]) -> Result<Cow<'v, [u8]>, Locked> {
        let opened = self.opened(storage, value, ValuePlace::Key(key.as_bytes()));
        Ok(opened?.map_or(Cow::Borrowed(value), Cow::Owned))
    }

    /// Whether a value in etcd would now be stored differently.
    pub fn is_outdated_value(&self, storage: &str, value: &[u8]) -> bool {
        if !self.is_configured {
            return false;
        }
        match &self.covered(storage).writer {
            Some(writer) => writer.is_outdated(value),
            None => value.starts_with(MARK),
        }
    }

    /// If the plug-in that encrypts the resource's values has no key yet, waits for its first key. Only callers that
    /// may block and do not serve a client's request may use this.
    pub fn await_key(&self, storage: &str) -> Result<(), Fault> {
        if !self.is_configured {
            return Ok(());
        }
        match self.covered(storage).writer.as_deref() {
            Some(Provider::Kms(kms)) if !kms.has_key() => match self.prepare(storage) {
                Some(prepared) => block_on(prepared),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// The work that must be awaited before an event of the resource is written; `None` if nothing must be awaited.
    pub fn prepare(&self, storage: &str) -> Option<Prepared> {
        if !self.is_configured {
            return None;
        }
        let covered = self.covered(storage);
        let Some(Provider::Kms(kms)) = covered.writer.as_deref() else { return None };
        let prepared = kms.prepare()?;
        Some(Box::pin(async move { prepared.await.map_err(|what| Fault::Unreadable { what }) }))
    }

    /// Whether a stored event would now be stored differently.
    pub fn is_outdated(&self, kept: &Record) -> bool {
        self.is_outdated_value(&kept.resource, &kept.object)
    }

    fn covered(&self, storage: &str) -> Arc<Covered> {
        if let Some(known) = self.covered.read().unwrap_or_else(PoisonError::into_inner).get(storage) {
            return known.clone();
        }
        let covered = Arc::new(self.cover(storage));
        let mut all = self.covered.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() < COVERED_MAX {
            all.insert(storage.to_owned(), covered.clone());
        }
        covered
    }

    fn cover(&self, storage: &str) -> Covered {
        let (resource, group) = named(storage);
        let covers =
            |(entry, _): &&(ResourceEntry, Vec<_>)| entry.resources.iter().any(|one| one.covers(&resource, &group));
        let own: Vec<Arc<Provider>> =
            self.entries.iter().filter(covers).flat_map(|(_, providers)| providers.clone()).collect();
        let is_identity = |provider: &Arc<Provider>| matches!(provider.as_ref(), Provider::Identity);
        let others = self.entries.iter().filter(|entry| !covers(entry)).flat_map(|(_, providers)| providers.clone());
        let name = if group.is_empty() { resource.to_string() } else { format!("{resource}.{group}") };
        Covered {
            name,
            writer: own.first().cloned(),
            reads_plain: own.is_empty() || own.iter().any(is_identity),
            readers: own.into_iter().chain(others).collect(),
        }
    }

    fn open_sealed(
        &self,
        covered: &Covered,
        prefix: &str,
        sealed: &[u8],
        place: ValuePlace,
    ) -> Result<Vec<u8>, Locked> {
        if !self.is_configured {
            return Err(Locked::NoConfiguration);
        }
        let mut why = Locked::NoProvider { prefix: prefix.to_owned() };
        for provider in &covered.readers {
            match provider.open(prefix, sealed, place) {
                None => {}
                Some(Ok(plain)) => return Ok(plain),
                Some(Err(Closed::Changed)) => why = Locked::Changed { prefix: prefix.to_owned() },
                Some(Err(Closed::Unreachable(told))) => why = Locked::Unreachable(told),
            }
        }
        Err(why)
    }

    /// Decrypts a value. Returns `None` if the value is not encrypted and the configuration accepts plain values.
    fn opened(&self, storage: &str, value: &[u8], place: ValuePlace) -> Result<Option<Vec<u8>>, Locked> {
        if !value.starts_with(MARK) {
            return match !self.is_configured || self.covered(storage).reads_plain {
                true => Ok(None),
                false => Err(Locked::Plain),
            };
        }
        let (began, covered) = (Instant::now(), self.covered(storage));
        let prefix = prefix(value).unwrap_or_default();
        let opened = self.open_sealed(&covered, &prefix, &value[prefix.len()..], place);
        // If no provider opened the value, its prefix does not become a label, because stored values could otherwise
        // make the table of metrics grow.
        let shown = if opened.is_ok() { &prefix } else { "unknown" };
        self.metrics.transformed(Direction::FromStorage, &covered.name, shown, opened.is_ok(), began.elapsed());
        opened.map(Some)
    }

    /// Encrypts a value. Returns `None` if the value is stored without encryption.
    fn sealed(&self, covered: &Covered, plain: &[u8], place: ValuePlace) -> Result<Option<Vec<u8>>, Locked> {
        let Some(writer) = covered.writer.as_deref().filter(|writer| !matches!(writer, Provider::Identity)) else {
            return Ok(None);
        };
        let began = Instant::now();
        let sealed = writer.seal(plain, place);
        self.metrics.transformed(Direction::ToStorage, &covered.name, writer.prefix(), sealed.is_ok(), began.elapsed());
        sealed.map(Some).map_err(Locked::Unreachable)
    }
}

impl Values for Keyring {
    fn open(&self, mut record: Record) -> Result<Record, Fault> {
        // A plain value is not bound to a place.
        let bytes = if Keyring::is_sealed(&record) { place(&record) } else { Vec::new() };
        let opened = self.opened(&record.resource, &record.object, ValuePlace::Event(&bytes));
        if let Some(plain) = opened.map_err(|why| locked(&record, why))? {
            record.object = plain.into();
        }
        Ok(record)
    }

    fn seal(&self, mut record: Record) -> Result<Record, Fault> {
        if !self.is_configured {
            return Ok(record);
        }
        let sealed = self.sealed(&self.covered(&record.resource), &record.object, ValuePlace::Event(&place(&record)));
        if let Some(sealed) = sealed.map_err(|why| locked(&record, why))? {
            record.object = sealed.into();
        }
        Ok(record)
    }
}

/// A keyring for rewriting a log offline, not for serving. This keyring may block for a key, and accepts plain values,
/// because the rewrite encrypts plain values.
pub struct OfflineKeyring(pub Arc<Keyring>);

impl Values for OfflineKeyring {
    fn open(&self, record: Record) -> Result<Record, Fault> {
        if Keyring::is_sealed(&record) { self.0.open(record) } else { Ok(record) }
    }

    fn seal(&self, record: Record) -> Result<Record, Fault> {
        if let Some(prepared) = self.0.prepare(&record.resource) {
            block_on(prepared)?;
        }
        self.0.seal(record)
    }
}

fn block_on(prepared: Prepared) -> Result<(), Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.map_err(|error| Fault::io("wait for a key", error))?.block_on(prepared)
}

fn locked(record: &Record, why: Locked) -> Fault {
    why.fault(record.offset(), format!("{}/{}", record.resource, record.key))
}

/// The place of a value: the storage key of the object, and the offset of the event. Keys contain no zero byte, so the
/// boundary between the two parts is unique.
fn place(record: &Record) -> Vec<u8> {
    let mut place = ["/registry/", &record.resource, "/", &record.key, "\0"].concat().into_bytes();
    place.extend_from_slice(&record.offset.to_be_bytes());
    place
}

/// The prefix of an encrypted value: `k8s:enc:PROVIDER:VERSION:NAME:`.
fn prefix(kept: &[u8]) -> Option<String> {
    let head = &kept[..kept.len().min(PREFIX_BYTES_MAX)];
    let colons = head.iter().enumerate().filter(|(_, byte)| **byte == b':');
    let (last, _) = colons.take(PREFIX_PARTS).nth(PREFIX_PARTS - 1)?;
    std::str::from_utf8(&head[..=last]).ok().map(str::to_owned)
}

/// A resource and its group, by the storage path of its objects.
fn named(storage: &str) -> (Cow<'_, str>, Cow<'_, str>) {
    if let Some(record) = records::ALL.into_iter().find(|record| record.storage == storage) {
        return (record.resource.into(), "".into());
    }
    if let Some(id) = registry().by_storage(storage) {
        let kind = registry().get(id);
        return (Cow::Owned(kind.resource.clone()), Cow::Owned(kind.hub().group.clone()));
    }
    match storage.split_once('/') {
        Some((group, resource)) => (resource.into(), group.into()),
        None => (storage.into(), "".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::event::Operation;

    const A: &str = "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=";
    const B: &str = "YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI=";

    fn keyring(resources: &str) -> Keyring {
        let text = format!("{{apiVersion: v1, kind: EncryptionConfig, resources: [{resources}]}}");
        Keyring::new(Configuration::read(&text, true).expect("a configuration"), &Arc::default()).expect("a keyring")
    }

    fn entry(resources: &str, providers: &str) -> String {
        format!("{{resources: [{resources}], providers: [{providers}]}}")
    }

    fn key(provider: &str, keys: &[(&str, &str)]) -> String {
        let keys: Vec<String> =
            keys.iter().map(|(name, secret)| format!("{{name: {name}, secret: {secret}}}")).collect();
        format!("{{{provider}: {{keys: [{}]}}}}", keys.join(", "))
    }

    fn record(resource: &str, key: &str, offset: u64) -> Record {
        Record {
            offset,
            resource: resource.into(),
            key: key.into(),
            operation: Operation::Put as i32,
            object: "{\"a\":1}\n".into(),
            ..Record::default()
        }
    }

    fn why(opened: Result<Record, Fault>) -> Locked {
        match opened {
            Err(fault) if Locked::of(&fault).is_some() => Locked::of(&fault).cloned().expect("it is locked"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_entry_that_covers_a_resource_writes() {
        let one = key("aescbc", &[("one", A)]);
        let keyring = keyring(
            &[
                entry("secrets, widgets.example.com", &key("aesgcm", &[("two", B), ("old", A)])),
                entry("secrets", &one),
                entry("'*.apps'", &one),
                entry("events", "{identity: {}}"),
                entry("'*.*'", &key("secretbox", &[("rest", A)])),
            ]
            .join(", "),
        );
        for (resource, expected) in [
            ("secrets", "k8s:enc:aesgcm:v1:two:"),
            ("example.com/widgets", "k8s:enc:aesgcm:v1:two:"),
            ("deployments", "k8s:enc:aescbc:v1:one:"),
            ("events", "{\"a\":1}\n"),
            ("configmaps", "k8s:enc:secretbox:v1:rest:"),
            ("example.com/gadgets", "k8s:enc:secretbox:v1:rest:"),
        ] {
            let plain = record(resource, "a/b", 7);
            let sealed = keyring.seal(plain.clone()).expect("sealed");
            let kept = String::from_utf8_lossy(&sealed.object).into_owned();
            assert!(kept.starts_with(expected), "{resource}: {kept}");
            assert!(expected.starts_with('{') || !kept.contains("\"a\""), "{resource}: {kept}");
            assert!(!keyring.is_outdated(&sealed), "{resource}");
            assert_eq!(keyring.open(sealed).expect("opened"), plain, "{resource}");
        }
    }

    #[test]
    fn what_was_moved_or_changed_does_not_open() {
        for provider in ["aesgcm", "aescbc", "secretbox"] {
            let keyring = keyring(&entry("'*.*'", &key(provider, &[("one", A)])));
            let sealed = keyring.seal(record("secrets", "a/b", 7)).expect("sealed");
            for (resource, key, offset) in [("secrets", "a/c", 7), ("configmaps", "a/b", 7), ("secrets", "a/b", 8)] {
                let moved = Record { object: sealed.object.clone(), ..record(resource, key, offset) };
                assert!(
                    matches!(why(keyring.open(moved)), Locked::Changed { .. }),
                    "{provider} {resource} {key} {offset}"
                );
            }
            let mut flipped = sealed.clone();
            let mut bytes = flipped.object.to_vec();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            flipped.object = bytes.into();
            assert!(matches!(why(keyring.open(flipped)), Locked::Changed { .. }), "{provider}");
            assert_eq!(why(Keyring::none().open(sealed)), Locked::NoConfiguration);
        }
    }

    #[test]
    fn keys_rotate() {
        let plain = record("secrets", "a/b", 7);
        let of = |keys: &[(&str, &str)]| keyring(&entry("secrets", &key("aescbc", keys)));
        let (old, both, new) = (of(&[("one", A)]), of(&[("two", B), ("one", A)]), of(&[("two", B)]));
        let first = old.seal(plain.clone()).expect("sealed");
        assert!(both.is_outdated(&first) && both.is_outdated(&plain));
        assert_eq!(both.open(first.clone()).expect("opened"), plain);
        let second = both.seal(plain.clone()).expect("sealed");
        assert!(!both.is_outdated(&second) && old.is_outdated(&second));
        assert_eq!(new.open(second).expect("opened"), plain);
        assert_eq!(why(new.open(first.clone())), Locked::NoProvider { prefix: "k8s:enc:aescbc:v1:one:".into() });
        // This configuration has another secret under the same key name, so the value cannot be decrypted.
        assert!(matches!(why(of(&[("one", B)]).open(first.clone())), Locked::Changed { .. }));
        // If two keys have the same name, both keys are tried.
        assert_eq!(of(&[("one", B), ("one", A)]).open(first).expect("opened"), plain);
    }

    #[test]
    fn values_in_etcd_have_kubernetes_form() {
        let (resource, at) = ("secrets", "/registry/secrets/a/b");
        // `more` is the number of bytes that a cipher adds to 8 plain bytes: a nonce and a tag, or padding, but no MAC.
        for (provider, more, is_bound) in
            [("aesgcm", 12 + 16, true), ("aescbc", 16 + 8, false), ("secretbox", 24 + 16, false)]
        {
            let keyring = keyring(&entry("secrets", &key(provider, &[("one", A)])));
            let sealed = keyring.seal_value(resource, at, b"{\"a\":1}\n".to_vec()).expect("sealed");
            assert_eq!(sealed.len(), format!("k8s:enc:{provider}:v1:one:").len() + 8 + more, "{provider}");
            assert_eq!(&*keyring.open_value(resource, at, &sealed).expect("opened"), b"{\"a\":1}\n");
            let elsewhere = keyring.open_value(resource, "/registry/secrets/a/c", &sealed);
            assert_eq!(elsewhere.is_err(), is_bound, "{provider}");
            assert!(!keyring.is_outdated_value(resource, &sealed) && keyring.is_outdated_value(resource, b"{}"));
            // Neither form can be read as the other. The one exception is AES-CBC, which authenticates nothing in etcd:
            // it may decrypt a value of a log there to another plain text, because it decrypts the MAC as well.
            let of_log = keyring.seal(record("secrets", "a/b", 7)).expect("sealed");
            let as_value = keyring.open_value(resource, at, &of_log.object);
            assert!(as_value.is_err() || provider == "aescbc" && as_value.expect("opened") != &b"{\"a\":1}\n"[..]);
            let as_event = Record { object: sealed.into(), ..record("secrets", "a/b", 7) };
            assert!(keyring.open(as_event).is_err(), "{provider}");
        }
        let plain = keyring(&entry("secrets", "{identity: {}}")).seal_value(resource, at, b"{}".to_vec());
        assert_eq!(plain, Ok(b"{}".to_vec()));
        assert_eq!(Keyring::none().open_value(resource, at, b"k8s:enc:aesgcm:v1:one:x"), Err(Locked::NoConfiguration));
    }

    #[test]
    fn plain_values_are_read_where_identity_says_so() {
        let one = key("aesgcm", &[("one", A)]);
        let plain = record("secrets", "a/b", 7);
        assert_eq!(why(keyring(&entry("secrets", &one)).open(plain.clone())), Locked::Plain);
        let both = keyring(&entry("secrets", &format!("{one}, {{identity: {{}}}}")));
        assert!(both.is_outdated(&plain));
        assert_eq!(both.open(plain.clone()).expect("opened"), plain);
        assert!(keyring(&entry("secrets", &one)).open(record("pods", "a/b", 7)).is_ok(), "nothing covers it");
        // With this configuration, new values are written without encryption again.
        let back = keyring(&entry("secrets", &format!("{{identity: {{}}}}, {one}")));
        let sealed = both.seal(plain.clone()).expect("sealed");
        assert!(back.is_outdated(&sealed) && !back.is_outdated(&plain));
        assert_eq!(back.open(sealed).expect("opened"), plain);
    }

    #[test]
    fn no_kept_bytes_panic() {
        let keyring = keyring(&entry("'*.*'", &key("aescbc", &[("one", A)])));
        for kept in [
            "k8s:enc:",
            "k8s:enc:a:b",
            "k8s:enc:aescbc:v1:one:",
            "k8s:enc:aescbc:v1:one:x",
            "k8s:enc:::::",
            "k8s:enc:\u{fc}:::",
        ] {
            let kept = Record { object: kept.as_bytes().to_vec().into(), ..record("secrets", "a/b", 1) };
            assert!(keyring.open(kept).is_err());
        }
    }
}
