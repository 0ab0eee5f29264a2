//! OpenID Connect: issuers, their published keys, and the users of tokens that the issuers signed.

pub mod claims;
mod distributed;
mod keys;

use anyhow::{Context, Result};
use claims::{Mapping, Rules, TextSource};
use futures_util::future::BoxFuture;
use holdfast_outbound::{Dialer, TlsTrust, fetch};
use holdfast_service::{Elsewhere, Reviewed};
use holdfast_tls::jwt::Token;
use holdfast_tls::server::Pem;
use holdfast_value::Value;
use keys::PublicKey;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The interval between attempts at discovery until one succeeds.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(10);
/// How long an issuer may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// A token is accepted this long before its `nbf` time, because clocks differ.
const NOT_BEFORE_LEEWAY: i64 = 300;
/// The minimum time between two fetches of keys, regardless of the number of unknown keys that tokens name.
const KEYS_PERIOD: Duration = Duration::from_secs(1);

/// The issuer whose tokens may omit the URL's scheme.
const WITHOUT_SCHEME: &str = "accounts.google.com";

/// The configuration of an issuer.
#[derive(Debug)]
pub struct Settings {
    /// The issuer's name in tokens.
    pub url: String,
    /// The URL of the discovery document, if it is not below the URL of the issuer.
    pub discovery_url: Option<String>,
    /// The authority that signs the certificate of the issuer's server; `None` for the authorities that the machine
    /// trusts.
    pub authority: Option<Pem>,
    /// A token must be for one of these audiences.
    pub audiences: Vec<String>,
    pub algorithms: Vec<String>,
    pub mapping: Mapping,
    pub rules: Rules,
    /// Makes the connections to the issuer.
    pub dialer: Dialer,
}

/// An issuer, with its cached keys.
pub struct Issuer {
    settings: Settings,
    /// The URL of the issuer's keys, once discovery has succeeded.
    keys_url: RwLock<Option<String>>,
    keys: RwLock<Arc<Vec<PublicKey>>>,
    fetches: tokio::sync::Mutex<Fetches>,
    /// Issuers of distributed claims, by URL.
    others: Mutex<BTreeMap<String, Arc<Issuer>>>,
}

/// When the keys were last fetched.
#[derive(Default)]
struct Fetches {
    began: Option<Instant>,
    /// When the last fetch ended; `None` if it was cancelled.
    ended: Option<Instant>,
}

impl Issuer {
    pub fn new(settings: Settings) -> Arc<Issuer> {
        Arc::new(Issuer {
            settings,
            keys_url: RwLock::default(),
            keys: RwLock::default(),
            fetches: Default::default(),
            others: Mutex::default(),
        })
    }

    pub fn url(&self) -> &str {
        &self.settings.url
    }

    /// Repeats discovery until it succeeds, while the issuer is in use.
    pub fn discover(self: &Arc<Self>) {
        let issuer = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(issuer) = issuer.upgrade() {
                match issuer.try_discover().await {
                    Ok(()) => return,
                    Err(error) => {
                        tracing::error!(issuer = issuer.url(), "oidc authenticator: initializing plugin: {error:#}")
                    }
                }
                drop(issuer);
                tokio::time::sleep(DISCOVERY_PERIOD).await;
            }
        });
    }

    /// Reads the discovery document.
    pub async fn try_discover(&self) -> Result<()> {
        let well_known = format!("{}/.well-known/openid-configuration", self.settings.url.trim_end_matches('/'));
        let url = self.settings.discovery_url.clone().unwrap_or(well_known);
        let document = self.get(&url).await?;
        let told = document["issuer"].as_str().unwrap_or("");
        anyhow::ensure!(
            told == self.settings.url,
            "oidc: issuer did not match the issuer returned by provider, expected {:?} got {told:?}",
            self.settings.url
        );
        let keys = document["jwks_uri"]
            .as_str()
            .context("oidc: the provider's discovery document has no jwks_uri")?
            .to_owned();
        *self.keys_url.write().unwrap_or_else(PoisonError::into_inner) = Some(keys);
        Ok(())
    }

    async fn get(&self, url: &str) -> Result<Value> {
        let text = self.fetch_text(url, None).await.with_context(|| format!("Get {url:?}"))?;
        serde_json::from_slice(&text).with_context(|| format!("Get {url:?}: the answer is not JSON"))
    }

    /// Fetches a URL, with a bearer token if given.
    async fn fetch_text(&self, url: &str, token: Option<&str>) -> Result<Vec<u8>> {
        let authorities = match &self.settings.authority {
            Some(authority) => authority.read().map_err(anyhow::Error::msg)?.into_owned().into_bytes(),
            None => Vec::new(),
        };
        let trust = TlsTrust { authorities, insecure: false, identified: false };
        let (code, body) = fetch(url, &trust, &self.settings.dialer, token, ANSWER_MAX).await?;
        anyhow::ensure!(code.is_success(), "the server answered {code}");
        Ok(body.into())
    }

    /// The user of a token, if this issuer has issued the token.
    async fn ask(&self, text: &str, audiences: &[String]) -> Result<Option<Reviewed>, String> {
        let Some(mut token) = Token::read(text) else { return Ok(None) };
        let issuer = token.claims["iss"].as_str().unwrap_or("");
        let alike = issuer == WITHOUT_SCHEME && self.settings.url == format!("https://{WITHOUT_SCHEME}");
        if issuer != self.settings.url && !alike {
            return Ok(None);
        }
        self.verify(&token).await?;
        if let Some(TextSource::Claim { name, .. }) = &self.settings.mapping.groups {
            self.gather(&mut token.claims, name).await?;
        }
        let user = self.settings.mapping.user(&token.claims, &self.settings.rules)?;
        Ok(Some(Reviewed { user: Arc::new(user), audiences: audiences.to_vec() }))
    }

    /// Checks that this issuer signed a token, that the token is for this server, and that it is valid now.
    async fn verify(&self, token: &Token<'_>) -> Result<(), String> {
        let Settings { audiences, algorithms, .. } = &self.settings;
        if !self.is_known() {
            return Err(format!("oidc: authenticator for issuer {:?} is not initialized", self.settings.url));
        }
        // The signature is checked last, because an unknown key makes this server fetch keys. A token that is invalid
        // for another reason must not cause a fetch.
        let meant = claims::audiences(&token.claims);
        if !meant.iter().any(|one| audiences.iter().any(|audience| audience == one)) {
            return Err(format!("oidc: verify token: oidc: expected audience in {audiences:?} got {meant:?}"));
        }
        let now = jiff::Timestamp::now().as_second();
        if claims::seconds(&token.claims, "exp").is_none_or(|end| end <= now) {
            return Err("oidc: verify token: oidc: token is expired".into());
        }
        if claims::seconds(&token.claims, "nbf").is_some_and(|begin| begin > now + NOT_BEFORE_LEEWAY) {
            return Err("oidc: verify token: oidc: current time is before the nbf (not before) time".into());
        }
        if !algorithms.contains(&token.algorithm) {
            return Err(format!(
                "oidc: verify token: oidc: id token signed with unsupported algorithm, expected {algorithms:?} got {:?}",
                token.algorithm
            ));
        }
        if keys::verify(&self.known_keys(), token) {
            return Ok(());
        }
        self.refresh().await.map_err(|error| format!("oidc: verify token: fetching keys {error:#}"))?;
        match keys::verify(&self.known_keys(), token) {
            true => Ok(()),
            false => Err("oidc: verify token: failed to verify signature: failed to verify id token signature".into()),
        }
    }

    /// Whether discovery has succeeded.
    fn is_known(&self) -> bool {
        self.keys_url.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn known_keys(&self) -> Arc<Vec<PublicKey>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fetches the keys again, because the issuer may have begun to sign with a new key. One request fetches the keys
    /// for all requests that wait. So a new key is available to all at once, and unknown tokens cannot cause more
    /// fetches.
    async fn refresh(&self) -> Result<()> {
        let came = Instant::now();
        let mut fetches = self.fetches.lock().await;
        if fetches.ended.is_some_and(|ended| ended > came) {
            return Ok(());
        }
        if let Some(began) = fetches.began {
            tokio::time::sleep_until((began + KEYS_PERIOD).into()).await;
        }
        fetches.began = Some(Instant::now());
        let fetched = self.fetch().await;
        fetches.ended = Some(Instant::now());
        fetched
    }

    async fn fetch(&self) -> Result<()> {
        let url = self.keys_url.read().unwrap_or_else(PoisonError::into_inner).clone();
        let document = self.get(&url.unwrap_or_default()).await?;
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys::read(&document));
        Ok(())
    }
}

impl Elsewhere for Issuer {
    fn review<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [String],
    ) -> BoxFuture<'a, Result<Option<Reviewed>, String>> {
        Box::pin(self.ask(token, audiences))
    }
}
