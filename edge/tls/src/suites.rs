//! Cipher suites by their names in Go.

use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, SupportedCipherSuite};

/// All cipher suites that Go has, including suites that it calls insecure; the suites of TLS 1.3 come first.
const KNOWN: [&str; 27] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

pub fn exists(name: &str) -> bool {
    KNOWN.contains(&name)
}

/// Whether a suite has this name. Two suites have an additional, shorter name in Go.
pub fn is(suite: CipherSuite, name: &str) -> bool {
    let standard = format!("{suite:?}").replace("TLS13_", "TLS_");
    standard == name || standard.strip_suffix("_SHA256").is_some_and(|short| short == name)
}

/// The names of suites that the TLS library does not support. These suites encrypt without authentication, or allow
/// decrypting recorded connections once the server's key is stolen.
pub fn unserved(names: &[String]) -> Vec<&str> {
    let served = rustls::crypto::ring::default_provider().cipher_suites;
    let is_served = |name: &&str| served.iter().any(|suite| is(suite.suite(), name));
    names.iter().map(String::as_str).filter(|name| exists(name) && !is_served(name)).collect()
}

/// Orders suites as Go does on processors with instructions for AES: first AES-128, whose handshakes use the hash
/// SHA-256. SHA-384 costs several times as much.
pub fn by_cost(provider: &mut CryptoProvider) {
    let cost = |suite: &SupportedCipherSuite| match suite.suite() {
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => 0,
        _ => 1,
    };
    // Suites of newer versions of TLS stay first.
    provider.cipher_suites.sort_by_key(|suite| (suite.tls13().is_none(), cost(suite)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_that_is_served_has_a_name() {
        for suite in rustls::crypto::ring::default_provider().cipher_suites {
            assert!(KNOWN.iter().any(|name| is(suite.suite(), name)), "{suite:?}");
        }
    }

    #[test]
    fn what_is_not_served_is_told() {
        let names = ["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_NONSENSE"];
        let names = names.map(str::to_owned);
        assert_eq!(unserved(&names), ["TLS_RSA_WITH_AES_128_CBC_SHA"]);
        assert!(!exists("TLS_NONSENSE"));
    }
}
