//! An OpenID Connect issuer, and RSA keys.

use crate::hooks::Hooks;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const HOUR: Duration = Duration::from_secs(3600);

pub struct Issuer {
    own: RsaKeyPair,
    /// A key that the issuer does not publish. Tokens that it signs must be rejected.
    other: RsaKeyPair,
}

impl Issuer {
    pub fn with_known_keys() -> Issuer {
        let pair = |name| {
            let key = PrivatePkcs8KeyDer::from_pem_slice(rsa_key(name).as_bytes()).expect("a key as PEM");
            RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).expect("an RSA key")
        };
        Issuer { own: pair("issuer"), other: pair("other") }
    }

    /// Serves the documents of the issuer `SITE/PATH`.
    pub fn serve(&self, hooks: &Hooks, site: &str, path: &str) {
        let url = format!("{site}{path}");
        let discovery = json!({"issuer": url, "jwks_uri": format!("{url}/keys"), "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["RS256"]});
        let key = PublicKeyComponents::<Vec<u8>>::from(self.own.public());
        let keys = json!({"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "key",
            "n": URL_SAFE_NO_PAD.encode(&key.n), "e": URL_SAFE_NO_PAD.encode(&key.e)}]});
        hooks.behave(&format!("{path}/.well-known/openid-configuration"), json!({"raw": discovery.to_string()}));
        hooks.behave(&format!("{path}/keys"), json!({"raw": keys.to_string()}));
    }

    /// A token with these claims. `signed` may name another key, or another key id.
    pub fn token(&self, claims: &Value, signed: &Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let claims = claims.to_string();
        let claims = claims.replace("\"<future>\"", &(now + HOUR).as_secs().to_string());
        let claims = claims.replace("\"<past>\"", &(now - HOUR).as_secs().to_string());
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": signed["kid"].as_str().unwrap_or("key")});
        let signed_text = format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims));
        let pair = if signed["key"].is_string() { &self.other } else { &self.own };
        let mut signature = vec![0; pair.public().modulus_len()];
        let done = pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed_text.as_bytes(), &mut signature);
        done.expect("a signature");
        format!("{signed_text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// A key in PEM; the same name gives the same key. Generating a key takes long, so all tests of a process share the
/// keys.
pub fn rsa_key(name: &str) -> String {
    static KEYS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let mut keys = KEYS.lock().unwrap_or_else(PoisonError::into_inner);
    let made = || {
        let arguments = ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
        let output = Command::new("openssl").args(arguments).output().expect("run openssl");
        assert!(output.status.success(), "openssl makes no key");
        String::from_utf8(output.stdout).expect("PEM")
    };
    keys.entry(name.to_owned()).or_insert_with(made).clone()
}
