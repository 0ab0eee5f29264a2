//! Signs and verifies service account tokens, which are valid only while the objects that they are bound to exist.

mod bound;
mod keys;
pub mod legacy;
mod remembered;
mod uses;

use holdfast_core::admission::Told;
use holdfast_core::authz::User;
use holdfast_core::pipeline::{BoundTo, SignedToken, TokenClaims};
use holdfast_core::state::State;
use holdfast_service::Reviewed;
use holdfast_service::housekeeping::legacy_tokens::Used;
use holdfast_tls::jwt;
use holdfast_value::{Value, json};
use keys::{Signing, Verifying, signing_key, verifying_keys};
use remembered::Remembered;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use uses::{Use, Uses};

/// The lifetime of an extended token in seconds: a year.
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

pub struct ServiceAccountTokens {
    keys: Arc<Keys>,
    pub audiences: Vec<String>,
    /// The names of the forks from which this server's fork was made, followed by the name of its own log; empty if
    /// this server is no fork. A token that is signed in a fork is valid only in that fork and its forks, although all
    /// forks have the same keys.
    forks: Vec<String>,
    remembered: Remembered,
    /// The counts of the uses of tokens, which the server and all its forks share.
    pub uses: Arc<Uses>,
    /// Secrets whose label does not show the last use of their token yet.
    pub used: Arc<Used>,
}

/// The documents that an issuer of tokens publishes.
pub struct Published {
    pub issuer: Value,
    pub keys: Value,
}

struct Keys {
    /// The issuers. New tokens have the first issuer; tokens of all these issuers are accepted.
    issuers: Vec<String>,
    signing: Option<Signing>,
    verifying: Vec<Verifying>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claims {
    /// The audiences. A token without audiences is for the server that signed it.
    #[serde(default)]
    pub aud: Audience,
    pub exp: i64,
    pub iat: i64,
    pub iss: String,
    #[serde(default)]
    pub jti: String,
    /// The name of the fork that signed the token; `None` if no fork signed it.
    #[serde(rename = "holdfast.dev/fork", default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<String>,
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: Kubernetes,
    #[serde(default)]
    pub nbf: i64,
    pub sub: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Audience {
    One(String),
    Many(Vec<String>),
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Kubernetes {
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    pub serviceaccount: Reference,
    /// The time, in seconds since 1970, after which a client should have replaced the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    pub name: String,
    #[serde(default)]
    pub uid: String,
}

impl ServiceAccountTokens {
    /// `signing` and `verifying` are PEM texts; a private key also verifies.
    pub fn new(
        issuers: Vec<String>,
        audiences: Vec<String>,
        signing: Option<&str>,
        verifying: &[String],
    ) -> Result<ServiceAccountTokens, String> {
        let signing_key = signing.map(signing_key).transpose()?;
        let mut keys = Vec::new();
        for pem in verifying.iter().map(String::as_str).chain(signing) {
            keys.extend(verifying_keys(pem)?);
        }
        if keys.is_empty() {
            return Err("no key to verify service account tokens with".into());
        }
        let audiences = if audiences.is_empty() { issuers.clone() } else { audiences };
        let keys = Arc::new(Keys { issuers, signing: signing_key, verifying: keys });
        Ok(ServiceAccountTokens {
            keys,
            audiences,
            forks: Vec::new(),
            remembered: Remembered::default(),
            uses: Arc::default(),
            used: Arc::default(),
        })
    }

    /// The value that signs and verifies the tokens of a fork with this name.
    pub fn beside(&self, fork: String) -> ServiceAccountTokens {
        let forks = self.forks.iter().cloned().chain([fork]).collect();
        let (keys, audiences, uses) = (self.keys.clone(), self.audiences.clone(), self.uses.clone());
        ServiceAccountTokens { keys, audiences, forks, remembered: Remembered::default(), uses, used: Arc::default() }
    }

    /// The issuer that new tokens name.
    pub fn issuer(&self) -> &str {
        self.keys.issuers.first().map_or("", String::as_str)
    }

    /// The documents with which other servers verify tokens of this server: the issuer's configuration, and its keys.
    /// Returns `None` if the issuer is no HTTPS URL, from which they could be read.
    pub fn published(&self, keys_url: &str) -> Option<Published> {
        let issuer = self.issuer();
        let url: http::Uri = issuer.parse().ok()?;
        if url.scheme_str() != Some("https") || url.query().is_some() || issuer.contains('#') {
            return None;
        }
        let mut algorithms: Vec<String> =
            self.keys.verifying.iter().map(|key| format!("{:?}", key.algorithm)).collect();
        algorithms.sort();
        algorithms.dedup();
        let mut ids = std::collections::BTreeSet::new();
        let keys = self.keys.verifying.iter().filter(|key| ids.insert(key.id.clone()));
        Some(Published {
            issuer: json!({
                "issuer": issuer,
                "jwks_uri": keys_url,
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": algorithms,
            }),
            keys: json!({"keys": keys.map(|key| key.published.clone()).collect::<Vec<_>>()}),
        })
    }

    /// A token with these claims, in the issuer's name; `None` if the server has no signing key.
    pub fn issue(&self, claims: &TokenClaims) -> Option<Result<SignedToken, String>> {
        let audiences = if claims.audiences.is_empty() { self.audiences.clone() } else { claims.audiences.clone() };
        let reference = |bound: &BoundTo| Reference { name: bound.name.clone(), uid: bound.uid.clone() };
        // Only a token that is just for this server may be valid for longer than the expiration that its client gets.
        let extended = claims.extends && audiences.iter().all(|audience| self.audiences.contains(audience));
        let written = Claims {
            aud: Audience::Many(audiences.clone()),
            exp: if extended { claims.issued.saturating_add(EXTENDED_SECONDS) } else { claims.expires },
            iat: claims.issued,
            iss: self.issuer().to_owned(),
            jti: claims.id.clone(),
            fork: self.forks.last().cloned(),
            kubernetes: Kubernetes {
                namespace: claims.namespace.clone(),
                node: claims.node.as_ref().map(reference),
                pod: claims.pod.as_ref().map(reference),
                secret: claims.secret.as_ref().map(reference),
                serviceaccount: reference(&claims.account),
                warnafter: extended.then_some(claims.expires),
            },
            nbf: claims.issued,
            sub: claims.subject.clone(),
        };
        Some(self.sign(&written)?.map(|token| SignedToken { token, audiences }))
    }

    /// Signs a token; `None` if the server has no signing key.
    fn sign(&self, claims: &Claims) -> Option<Result<String, String>> {
        let (algorithm, id, key) = self.keys.signing.as_ref()?;
        Some(jwt::sign(*algorithm, id, key, claims))
    }

    /// The user of a token, and the given audiences for which the token is valid. The token must be signed by this
    /// issuer, be current, and be for one of the audiences, and its account must still exist. Returns `None` if another
    /// issuer or another fork signed the token, and an error if the token is not valid. `told` receives the warnings
    /// for the client and the audit annotations.
    pub fn verify(
        &self,
        state: &State,
        token: &str,
        audiences: &[String],
        told: &mut Told,
    ) -> Result<Option<Reviewed>, String> {
        let issuer = jwt::unverified_issuer(token);
        if issuer.as_deref() == Some(legacy::ISSUER) {
            // A token that names no audience is valid only for this server.
            let audiences: Vec<String> =
                audiences.iter().filter(|asked| self.audiences.contains(asked)).cloned().collect();
            if audiences.is_empty() {
                return Ok(None);
            }
            let heard = legacy::Heard { uses: &self.uses, used: &self.used, told };
            let user = legacy::verify(&self.keys.verifying, state, token, heard)?;
            return Ok(Some(Reviewed { user: Arc::new(user), audiences }));
        }
        if !issuer.is_some_and(|issuer| self.keys.issuers.contains(&issuer)) {
            return Ok(None);
        }
        let claims = self.claims(token)?;
        if claims.fork.as_ref().is_some_and(|fork| !self.forks.contains(fork)) {
            return Ok(None);
        }
        let (asked, mut meant) = (audiences, claims.aud.all());
        if meant.is_empty() {
            told.annotations.add("authentication.k8s.io/legacy-token", claims.sub.as_str());
            self.uses.count(Use::Legacy);
            meant = &self.audiences;
        }
        let audiences: Vec<String> = asked.iter().filter(|asked| meant.contains(asked)).cloned().collect();
        if audiences.is_empty() {
            let (meant, asked) = (shown(meant), shown(asked));
            return Err(format!("token audiences {meant} is invalid for the target audiences {asked}"));
        }
        let now = jiff::Timestamp::now().as_second();
        bound::check(state, &claims, now)?;
        match claims.kubernetes.warnafter.filter(|after| *after < now) {
            Some(after) => {
                let text = format!("subject: {}, seconds after warning threshold: {}", claims.sub, now - after);
                told.annotations.add("authentication.k8s.io/stale-token", text);
                self.uses.count(Use::Stale);
            }
            None => self.uses.count(Use::Valid),
        }
        Ok(Some(Reviewed { user: Arc::new(claims.user()), audiences }))
    }

    /// The claims of a token of this issuer, if one of its keys signed them.
    fn claims(&self, token: &str) -> Result<Arc<Claims>, String> {
        if let Some(claims) = self.remembered.get(token) {
            return Ok(claims);
        }
        // The caller checks the audiences and times of the token.
        let claims = Arc::new(proved::<Claims>(&self.keys.verifying, token)?);
        self.remembered.put(token, claims.clone());
        Ok(claims)
    }
}

impl Claims {
    /// The service account that the claims describe, as a user.
    fn user(&self) -> User {
        let bound = &self.kubernetes;
        let mut user = User::service_account(&bound.namespace, &bound.serviceaccount.name, &bound.serviceaccount.uid);
        let mut extra = |name: &str, value: String| {
            user.extra.insert(format!("authentication.kubernetes.io/{name}"), vec![value]);
        };
        if !self.jti.is_empty() {
            extra("credential-id", format!("JTI={}", self.jti));
        }
        for (what, reference) in [("pod", &bound.pod), ("node", &bound.node)] {
            if let Some(reference) = reference {
                extra(&format!("{what}-name"), reference.name.clone());
                extra(&format!("{what}-uid"), reference.uid.clone());
            }
        }
        user
    }
}

/// The claims of a token, if one of the keys signed it. If the token names a key, only that key counts.
fn proved<T: DeserializeOwned + Clone>(keys: &[Verifying], token: &str) -> Result<T, String> {
    let (algorithm, id) = jwt::header(token)?;
    let mut named = keys.iter().filter(|key| id.as_ref().is_none_or(|id| *id == key.id)).peekable();
    if named.peek().is_none() {
        return Err("invalid signature, no keys found".into());
    }
    let mut fitting = named.filter(|key| key.algorithm == algorithm);
    let claims = fitting.find_map(|key| jwt::verified(token, key.algorithm, &key.key));
    claims.ok_or_else(|| "go-jose/go-jose: error in cryptographic primitive".into())
}

/// Formats audiences as Kubernetes prints them in a message.
fn shown(audiences: &[String]) -> String {
    let quoted: Vec<String> = audiences.iter().map(|audience| format!("{audience:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

impl Audience {
    fn all(&self) -> &[String] {
        match self {
            Audience::One(one) => std::slice::from_ref(one),
            Audience::Many(many) => many,
        }
    }
}

impl Default for Audience {
    fn default() -> Audience {
        Audience::Many(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_signed_here_is_known_here() {
        let pair = rcgen::KeyPair::generate().unwrap();
        let tokens =
            ServiceAccountTokens::new(vec!["https://x".into()], Vec::new(), Some(&pair.serialize_pem()), &[]).unwrap();
        let now = jiff::Timestamp::now().as_second();
        let reference = Reference { name: "a".into(), uid: "u".into() };
        let kubernetes = Kubernetes { namespace: "n".into(), serviceaccount: reference, ..Kubernetes::default() };
        let claims = Claims {
            aud: Audience::Many(vec!["https://x".into()]),
            exp: now + 600,
            iat: now,
            iss: "https://x".into(),
            jti: "j".into(),
            fork: None,
            kubernetes,
            nbf: now,
            sub: "system:serviceaccount:n:a".into(),
        };
        let token = tokens.sign(&claims).unwrap().unwrap();
        assert!(tokens.claims(&token).is_ok());
        let public =
            ServiceAccountTokens::new(vec!["https://x".into()], Vec::new(), None, &[pair.public_key_pem()]).unwrap();
        assert!(public.claims(&token).is_ok());
        let stranger = rcgen::KeyPair::generate().unwrap();
        let other = ServiceAccountTokens::new(vec!["https://x".into()], Vec::new(), None, &[stranger.public_key_pem()])
            .unwrap();
        assert_eq!(other.claims(&token).err().as_deref(), Some("invalid signature, no keys found"));
        // The audience must be checked before the account is looked up, because the state has no accounts.
        let state = State::new(Arc::new(holdfast_core::kinds::registry().clone()));
        let refused = |token: &str, audience: &str, told: &mut Told| {
            tokens.verify(&state, token, &[audience.to_owned()], told).expect_err("there is no account")
        };
        let mut told = Told::default();
        let other = "token audiences [\"https://x\"] is invalid for the target audiences [\"https://y\"]";
        assert_eq!(refused(&token, "https://y", &mut told), other);
        assert!(
            !refused(&token, "https://x", &mut told).contains("audiences") && told.annotations.iter().next().is_none()
        );
        let without = tokens.sign(&Claims { aud: Audience::default(), ..claims }).unwrap().unwrap();
        assert_eq!(refused(&without, "https://y", &mut told), other);
        assert!(!refused(&without, "https://x", &mut told).contains("audiences"));
        assert_eq!(told.annotations.get("authentication.k8s.io/legacy-token"), Some("system:serviceaccount:n:a"));
    }
}
