//! Fetches distributed claims. For such a claim, a token names another server, which answers with a token that has the
//! claim.

use super::claims::{Mapping, Rules, TextSource};
use super::{Issuer, Settings};
use holdfast_tls::jwt::Token;
use holdfast_value::Value;
use std::sync::{Arc, PoisonError};

/// The maximum number of issuers of distributed claims that are cached for one issuer.
const OTHERS_MAX: usize = 16;
const NAMES: &str = "_claim_names";
const SOURCES: &str = "_claim_sources";

impl Issuer {
    /// Fetches a distributed claim and adds it to `claims`. A claim that already has a value is not fetched.
    pub(super) async fn gather(&self, claims: &mut Value, name: &str) -> Result<(), String> {
        if claims.get(name).is_some() {
            return Ok(());
        }
        let Some(source) = claims[NAMES][name].as_str() else { return Ok(()) };
        let source = &claims[SOURCES][source];
        let wrong = |why: String| format!("oidc: could not expand distributed claims: {why}");
        let text = |field: &str| source[field].as_str().filter(|text| !text.is_empty());
        let endpoint = text("endpoint").ok_or_else(|| wrong(format!("no endpoint of the claim {name:?}")))?;
        let fetched = self.fetch_text(endpoint, text("access_token")).await;
        let fetched = fetched.and_then(|text| Ok(String::from_utf8(text)?));
        let fetched = fetched.map_err(|error| wrong(format!("{endpoint:?}: {error:#}")))?;
        let token = Token::read(fetched.trim()).ok_or_else(|| wrong(format!("{endpoint:?} answers no token")))?;
        let issuer = self.other(token.claims["iss"].as_str().unwrap_or(""));
        if !issuer.is_known() {
            issuer.try_discover().await.map_err(|error| wrong(format!("{error:#}")))?;
        }
        // The future is boxed, because verifying a token of one issuer can require verifying a token of another issuer.
        Box::pin(issuer.verify(&token)).await.map_err(wrong)?;
        self.keep(issuer);
        match token.claims.get(name) {
            Some(value) => claims[name] = value.clone(),
            None => return Err(wrong(format!("the token of {endpoint:?} has no claim {name:?}"))),
        }
        Ok(())
    }

    /// The issuer of a URL, with the same authority, audiences and algorithms as this issuer.
    fn other(&self, url: &str) -> Arc<Issuer> {
        if let Some(known) = self.others.lock().unwrap_or_else(PoisonError::into_inner).get(url) {
            return known.clone();
        }
        let own = &self.settings;
        Issuer::new(Settings {
            url: url.to_owned(),
            discovery_url: None,
            authority: own.authority.clone(),
            audiences: own.audiences.clone(),
            algorithms: own.algorithms.clone(),
            // Such a token only proves a claim and never becomes a user.
            mapping: Mapping {
                username: TextSource::Claim { name: "sub".into(), prefix: String::new() },
                groups: None,
                uid: None,
                extra: Vec::new(),
            },
            rules: Rules::default(),
            dialer: own.dialer.clone(),
        })
    }

    /// Caches an issuer that has proved a claim, so that its keys stay cached.
    fn keep(&self, issuer: Arc<Issuer>) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if others.len() < OTHERS_MAX {
            others.insert(issuer.url().to_owned(), issuer);
        }
    }
}
