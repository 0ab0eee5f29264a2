//! Envelope encryption with a KMS plug-in. Values are encrypted here, with keys that only the plug-in can decrypt.
//!
//! A key is made before it is needed, because [`Kms::seal`], which the log calls while it writes, must not call a
//! plug-in. Version 1 makes a key for each write. Version 2 has one seed for as long as the plug-in reports the same
//! key id, and derives a key for each value from the seed. Values are decrypted with cached keys; the plug-in is called
//! once for an unknown key.

mod cache;
pub mod client;
pub mod wire;

use crate::cipher::{Cipher, ValuePlace, expand, random};
use crate::metrics::{Direction, Metrics, hash};
use arc_swap::ArcSwapOption;
use cache::Cache;
use client::{Client, Endpoint};
use holdfast_grpc::{Failure, code_name};
use prost::Message;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tonic::Code;
use wire::{v1, v2};

/// How long a seed may be used after the plug-in last reported that it is healthy.
const GOOD: Duration = Duration::from_secs(3 * 60);
/// The interval between reads of the status of a healthy plug-in.
const PERIOD: Duration = Duration::from_secs(60);
/// The interval between reads of the status of a plug-in that is not healthy.
const PERIOD_FAILING: Duration = Duration::from_secs(10);
/// The time for which health checks use a good status.
const CHECK_GOOD: Duration = Duration::from_secs(20);
/// The time for which health checks use a bad status.
const CHECK_BAD: Duration = Duration::from_secs(3);
/// The time for which writers without a usable seed use a bad status, before one of them calls the plug-in again.
const RETRY: Duration = Duration::from_millis(500);
/// The maximum number of bytes of a plug-in's key id, which is stored with each value.
const KEY_ID_BYTES_MAX: usize = 1 << 10;
/// The maximum number of bytes of an encrypted key or seed, which is stored with each value.
const SOURCE_BYTES_MAX: usize = 1 << 10;
/// The maximum number of bytes of a plug-in's annotations, which are stored with each value.
const ANNOTATIONS_BYTES_MAX: usize = 32 << 10;
/// The maximum number of cached seeds of version 2.
const SEEDS_MAX: usize = 1000;
/// The number of random bytes from which, together with the seed, a value's key is derived.
const INFO: usize = 32;
/// The values of the field `encrypted_dek_source_type`. `KEY` stands for a key, as kube-apiserver used before release
/// 1.29; `SEED` stands for a seed of keys.
const KEY: i32 = 0;
const SEED: i32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

impl Version {
    fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

/// The configuration of a plug-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub name: String,
    pub version: Version,
    pub endpoint: Endpoint,
    pub timeout: Duration,
    /// The maximum number of cached keys of version 1; 0 or less means none.
    pub cache_size: i64,
}

/// Why a value cannot be decrypted.
pub enum Closed {
    Changed,
    Unreachable(String),
}

/// A plug-in, and the keys that the plug-in has encrypted or decrypted.
pub struct Kms {
    name: String,
    version: Version,
    prefix: String,
    client: Client,
    /// The key or seed that encrypts new values.
    current: ArcSwapOption<Source>,
    known: Mutex<Cache>,
    /// When the plug-in's status was last read, and the result.
    checked: Mutex<Option<(Instant, Result<(), String>)>>,
    checking: tokio::sync::Mutex<()>,
    metrics: Arc<Metrics>,
}

/// A key or a seed, with its encrypted form.
#[derive(Clone)]
struct Source {
    secret: [u8; 32],
    sealed: Vec<u8>,
    key_id: String,
    annotations: HashMap<String, Vec<u8>>,
    until: Instant,
}

impl Kms {
    pub fn new(settings: &Settings, metrics: Arc<Metrics>) -> std::io::Result<Arc<Kms>> {
        let Settings { name, version, endpoint, timeout, cache_size } = settings;
        let most = match version {
            Version::V1 => usize::try_from(*cache_size).unwrap_or(0),
            Version::V2 => SEEDS_MAX,
        };
        Ok(Arc::new(Kms {
            name: name.clone(),
            version: *version,
            prefix: format!("k8s:enc:kms:{}:{name}:", version.as_str()),
            client: Client::new(endpoint.clone(), *timeout)?,
            current: ArcSwapOption::empty(),
            known: Mutex::new(Cache::new(most)),
            checked: Mutex::default(),
            checking: tokio::sync::Mutex::default(),
            metrics,
        }))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The prefix of the values of this plug-in.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Checks the plug-in periodically until the last other owner has dropped this value. The checks of a plug-in of
    /// version 1 end with the first success.
    pub fn follow(self: &Arc<Self>) {
        let kms: Weak<Kms> = Arc::downgrade(self);
        let is_polled = self.version == Version::V2;
        self.client.spawn(async move {
            loop {
                let Some(alive) = kms.upgrade() else { return };
                let well = alive.check().await;
                if let Err(why) = &well {
                    tracing::warn!(provider = alive.name, why, "the KMS plug-in is not well");
                }
                if !is_polled && well.is_ok() {
                    return;
                }
                // This task must not own the `Kms` during the sleep, otherwise the `Kms` would never be dropped.
                drop(alive);
                tokio::time::sleep(if well.is_ok() { PERIOD } else { PERIOD_FAILING }).await;
            }
        });
    }

    /// The health of the plug-in. If there was a recent check, its result is used.
    pub async fn health(&self) -> Result<(), String> {
        if let Some(known) = self.last_check(CHECK_GOOD, CHECK_BAD) {
            return known;
        }
        let _alone = self.checking.lock().await;
        // A caller that had to wait uses the result of the previous check.
        match self.last_check(CHECK_GOOD, CHECK_BAD) {
            Some(known) => known,
            None => self.check_alone().await,
        }
    }

    /// Checks the plug-in. If it is healthy, there is a key afterwards.
    pub async fn check(&self) -> Result<(), String> {
        let _alone = self.checking.lock().await;
        self.check_alone().await
    }

    async fn check_alone(&self) -> Result<(), String> {
        let well = match self.version {
            Version::V1 => self.check_v1().await,
            Version::V2 => self.check_v2().await,
        };
        *lock(&self.checked) = Some((Instant::now(), well.clone()));
        well
    }

    fn last_check(&self, good: Duration, bad: Duration) -> Option<Result<(), String>> {
        let checked = lock(&self.checked);
        let (at, well) = checked.as_ref()?;
        let lasts = if well.is_ok() { good } else { bad };
        (at.elapsed() < lasts).then(|| well.clone())
    }

    /// Whether there is a key for encryption. The key may be too old for writes of clients.
    pub fn has_key(&self) -> bool {
        self.current.load().is_some()
    }

    /// Prepares a key for a write; `None` if there is already a usable key.
    pub fn prepare(self: &Arc<Self>) -> Option<impl Future<Output = Result<(), String>> + Send + use<>> {
        if self.version == Version::V2 && self.good().is_some() {
            return None;
        }
        let kms = self.clone();
        Some(async move {
            match kms.version {
                Version::V1 => kms.new_key().await.map_err(|failure| failure.to_string()),
                Version::V2 => kms.new_seed().await,
            }
        })
    }

    fn good(&self) -> Option<Arc<Source>> {
        self.current.load_full().filter(|source| source.until > Instant::now())
    }

    /// Makes a seed for writers that found no usable seed. One writer calls the plug-in, and all of them use the
    /// result.
    async fn new_seed(&self) -> Result<(), String> {
        let _alone = self.checking.lock().await;
        if self.good().is_some() {
            return Ok(());
        }
        let well = match self.last_check(Duration::ZERO, RETRY) {
            Some(known) => known,
            None => self.check_alone().await,
        };
        let why = match well {
            Ok(()) => return Ok(()),
            Err(why) => why,
        };
        Err(match self.current.load_full() {
            None => format!("got unexpected nil transformer: {why}"),
            Some(old) => format!("encryptedDEKSource with keyID hash {:?} expired: {why}", hash(&old.key_id)),
        })
    }

    /// A new key of version 1, for the next write.
    async fn new_key(&self) -> Result<(), Failure> {
        let began = Instant::now();
        let secret = random::<32>().map_err(|error| Failure::new(Code::Internal, error));
        self.metrics.made(secret.is_ok(), began.elapsed());
        let secret = secret?;
        let request = v1::EncryptRequest { version: "v1beta1".into(), plain: secret.to_vec() };
        let answer: v1::EncryptResponse = self.call("/v1beta1.KeyManagementService/Encrypt", request).await?;
        if answer.cipher.is_empty() || u16::try_from(answer.cipher.len()).is_err() {
            let message = format!("the encrypted key has {} bytes", answer.cipher.len());
            return Err(Failure::new(Code::Internal, message));
        }
        self.learn(&answer.cipher, secret);
        self.current.store(Some(Arc::new(Source {
            secret,
            sealed: answer.cipher,
            key_id: String::new(),
            annotations: HashMap::new(),
            until: Instant::now(),
        })));
        Ok(())
    }

    /// Checks that an encrypted key can be decrypted again.
    async fn check_v1(&self) -> Result<(), String> {
        self.new_key().await.map_err(|failure| failure.to_string())?;
        let Some(source) = self.current.load_full() else { return Err("there is no key".into()) };
        let request = v1::DecryptRequest { version: "v1beta1".into(), cipher: source.sealed.clone() };
        let answer: v1::DecryptResponse =
            self.call("/v1beta1.KeyManagementService/Decrypt", request).await.map_err(|failure| failure.to_string())?;
        match answer.plain == source.secret {
            true => Ok(()),
            false => Err("the KMS plug-in does not decrypt what it has encrypted to the same text".into()),
        }
    }

    /// Reads the status. If the key id has changed, makes a new seed.
    async fn check_v2(&self) -> Result<(), String> {
        let status: v2::StatusResponse = self
            .call("/v2.KeyManagementService/Status", v2::StatusRequest {})
            .await
            .map_err(|failure| failure.to_string())?;
        if !["v2", "v2beta1"].contains(&status.version.as_str()) {
            return Err(format!("expected KMSv2 API version v2, got {}", status.version));
        }
        if status.healthz != "ok" {
            return Err(format!("got unexpected healthz status: {}", status.healthz));
        }
        check_key_id(&status.key_id).map_err(|(why, word)| {
            self.metrics.invalid(&self.name, word);
            format!("failed to validate keyID: {why}")
        })?;
        self.metrics.told(&self.name, &status.key_id);
        let until = Instant::now() + GOOD;
        if let Some(source) = self.current.load_full()
            && source.key_id == status.key_id
        {
            self.current.store(Some(Arc::new(Source { until, ..Source::clone(&source) })));
            return Ok(());
        }
        let began = Instant::now();
        let made = self.encrypted_seed(until).await;
        self.metrics.made(made.is_ok(), began.elapsed());
        let source = made.map_err(|why| format!("failed to encrypt DEK, error: {why}"))?;
        tracing::info!(
            provider = self.name,
            key = hash(&source.key_id),
            "values are encrypted under a new seed of the KMS plug-in"
        );
        // The seed is cached before it is used, so that its values can be decrypted without a call of the plug-in.
        self.learn(&source.sealed, source.secret);
        self.current.store(Some(Arc::new(source)));
        Ok(())
    }

    async fn encrypted_seed(&self, until: Instant) -> Result<Source, String> {
        let secret = random::<32>().map_err(|error| error.to_string())?;
        let request = v2::EncryptRequest { plaintext: secret.to_vec(), uid: uid() };
        let answer: v2::EncryptResponse =
            self.call("/v2.KeyManagementService/Encrypt", request).await.map_err(|failure| failure.to_string())?;
        let v2::EncryptResponse { ciphertext: sealed, key_id, annotations } = answer;
        check_key_id(&key_id).map_err(|(why, _)| why)?;
        check_source(&sealed)?;
        check_annotations(&annotations)?;
        Ok(Source { secret, sealed, key_id, annotations, until })
    }

    async fn call<A: Message + Default + 'static>(
        &self,
        method: &'static str,
        request: impl Message + 'static,
    ) -> Result<A, Failure> {
        let began = Instant::now();
        let answer = self.client.call(method, request).await;
        let code = answer.as_ref().map_or_else(|failure: &Failure| code_name(failure.code), |_| "OK");
        self.metrics.called(&self.name, method, code, began.elapsed());
        answer
    }

    fn call_blocking<A: Message + Default + 'static>(
        &self,
        method: &'static str,
        request: impl Message + 'static,
    ) -> Result<A, Failure> {
        let began = Instant::now();
        let answer = self.client.call_blocking(method, request);
        let code = answer.as_ref().map_or_else(|failure: &Failure| code_name(failure.code), |_| "OK");
        self.metrics.called(&self.name, method, code, began.elapsed());
        answer
    }

    /// Encrypts a value with the key or seed that was prepared before.
    pub fn seal(&self, plain: &[u8], place: ValuePlace) -> Result<Vec<u8>, String> {
        let source = self.current.load_full().ok_or("there is no key of the KMS to encrypt with")?;
        let mut out = self.prefix.as_bytes().to_vec();
        match self.version {
            Version::V1 => {
                let length = u16::try_from(source.sealed.len()).map_err(|error| error.to_string())?;
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&source.sealed);
                let sealed = Cipher::AesGcm.seal(&source.secret, plain, place).map_err(|error| error.to_string())?;
                out.extend_from_slice(&sealed);
            }
            Version::V2 => {
                let info = random::<INFO>().map_err(|error| error.to_string())?;
                let key = expand(&source.secret, &info);
                let sealed = Cipher::AesGcm.seal(&key, plain, place).map_err(|error| error.to_string())?;
                let object = v2::EncryptedObject {
                    encrypted_data: [&info[..], &sealed].concat(),
                    key_id: source.key_id.clone(),
                    encrypted_dek_source: source.sealed.clone(),
                    annotations: source.annotations.clone(),
                    encrypted_dek_source_type: SEED,
                };
                out.extend_from_slice(&object.encode_to_vec());
                self.metrics.used(Direction::ToStorage, &self.name, &source.key_id);
            }
        }
        Ok(out)
    }

    /// Decrypts a value without its prefix. The plug-in is called only if the key is not cached.
    pub fn open(&self, sealed: &[u8], place: ValuePlace) -> Result<Vec<u8>, Closed> {
        match self.version {
            Version::V1 => {
                let (length, rest) = sealed.split_first_chunk().ok_or(Closed::Changed)?;
                let (key, sealed) = rest.split_at_checked(u16::from_be_bytes(*length).into()).ok_or(Closed::Changed)?;
                let secret = self.secret(key, || {
                    let request = v1::DecryptRequest { version: "v1beta1".into(), cipher: key.to_vec() };
                    let answer = self.call_blocking("/v1beta1.KeyManagementService/Decrypt", request);
                    answer.map(|answer: v1::DecryptResponse| answer.plain)
                })?;
                let opened = Cipher::AesGcm.open(&secret, sealed, place);
                // kube-apiserver up to release 1.24 encrypted values of version 1 with AES-CBC.
                let older = || match place {
                    ValuePlace::Key(_) => Cipher::AesCbc.open(&secret, sealed, place),
                    ValuePlace::Event(_) => None,
                };
                opened.or_else(older).ok_or(Closed::Changed)
            }
            Version::V2 => {
                let object = v2::EncryptedObject::decode(sealed).map_err(|_| Closed::Changed)?;
                if ![KEY, SEED].contains(&object.encrypted_dek_source_type) {
                    return Err(Closed::Changed);
                }
                self.metrics.used(Direction::FromStorage, &self.name, &object.key_id);
                let secret = self.secret(&object.encrypted_dek_source, || {
                    let request = v2::DecryptRequest {
                        ciphertext: object.encrypted_dek_source.clone(),
                        uid: uid(),
                        key_id: object.key_id.clone(),
                        annotations: object.annotations.clone(),
                    };
                    let answer = self.call_blocking("/v2.KeyManagementService/Decrypt", request);
                    answer.map(|answer: v2::DecryptResponse| answer.plaintext)
                })?;
                if object.encrypted_dek_source_type == KEY {
                    return Cipher::AesGcm.open(&secret, &object.encrypted_data, place).ok_or(Closed::Changed);
                }
                let (info, sealed) = object.encrypted_data.split_at_checked(INFO).ok_or(Closed::Changed)?;
                Cipher::AesGcm.open(&expand(&secret, info), sealed, place).ok_or(Closed::Changed)
            }
        }
    }

    /// Whether a value of this plug-in, without its prefix, has another key id than the current key id.
    pub fn is_outdated(&self, sealed: &[u8]) -> bool {
        let Some(current) = self.current.load_full().filter(|_| self.version == Version::V2) else { return false };
        v2::EncryptedObject::decode(sealed)
            .is_ok_and(|object| object.key_id != current.key_id || object.encrypted_dek_source_type != SEED)
    }

    fn secret(&self, sealed: &[u8], ask: impl FnOnce() -> Result<Vec<u8>, Failure>) -> Result<[u8; 32], Closed> {
        if let Some(current) = self.current.load_full().filter(|current| current.sealed == sealed) {
            return Ok(current.secret);
        }
        if let Some(known) = lock(&self.known).get(sealed) {
            return Ok(known);
        }
        self.metrics.missed();
        let secret = ask().map_err(|failure| Closed::Unreachable(failure.to_string()))?;
        let secret = <[u8; 32]>::try_from(secret).map_err(|_| Closed::Changed)?;
        self.learn(sealed, secret);
        Ok(secret)
    }

    fn learn(&self, sealed: &[u8], secret: [u8; 32]) {
        let mut known = lock(&self.known);
        known.put(sealed, secret);
        let (count, most) = (known.len(), known.most());
        drop(known);
        self.metrics.cached(&self.name, count, most);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An id for one call, which appears in the log of the plug-in.
fn uid() -> String {
    let bytes = random::<16>().unwrap_or_default();
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn check_key_id(key_id: &str) -> Result<(), (String, &'static str)> {
    match key_id.len() {
        0 => Err(("keyID is empty".into(), "empty")),
        length if length > KEY_ID_BYTES_MAX => {
            Err((format!("keyID is {length} bytes, which exceeds the max size of {KEY_ID_BYTES_MAX}"), "too_long"))
        }
        _ => Ok(()),
    }
}

fn check_source(sealed: &[u8]) -> Result<(), String> {
    match sealed.len() {
        0 => Err("encrypted DEK source is empty".into()),
        length if length > SOURCE_BYTES_MAX => {
            Err(format!("encrypted DEK source is {length} bytes, which exceeds the max size of {SOURCE_BYTES_MAX}"))
        }
        _ => Ok(()),
    }
}

fn check_annotations(annotations: &HashMap<String, Vec<u8>>) -> Result<(), String> {
    let size: usize = annotations.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > ANNOTATIONS_BYTES_MAX {
        return Err(format!(
            "total size of annotations is {size}, which exceeds the max size of {ANNOTATIONS_BYTES_MAX}"
        ));
    }
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.chars().all(inner)
    };
    let is_domain = |name: &str| name.contains('.') && name.split('.').all(label);
    match annotations.keys().find(|name| !is_domain(name)) {
        Some(name) => Err(format!("should be a domain with at least two segments separated by dots: {name:?}")),
        None => Ok(()),
    }
}
