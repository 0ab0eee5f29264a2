//! The signatures of tokens, made and checked by `ring`, which TLS already uses.
//!
//! `jsonwebtoken` offers two other libraries: one would be a second C library beside `ring`, the other has an RSA
//! implementation that leaks keys by its timing (RUSTSEC-2023-0071). It accepts a third library in their place.

use jsonwebtoken::crypto::{CryptoProvider, JwkUtils, JwtSigner, JwtVerifier};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Signer, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::rand::SystemRandom;
use ring::signature as rings;

/// Makes `ring` the library for signing and verifying tokens. All code that reads a key calls this, because not only
/// servers have keys: a controller manager signs with a key of its own.
pub fn install() {
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: signer,
        verifier_factory: verifier,
        // No server reads keys in JWK form.
        jwk_utils: JwkUtils::new_unimplemented(),
    };
    // A second call does nothing.
    let _ = PROVIDER.install_default();
}

enum Pair {
    Rsa(rings::RsaKeyPair),
    Ecdsa(rings::EcdsaKeyPair),
}

struct Signing {
    algorithm: Algorithm,
    pair: Pair,
}

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    let ecdsa = match algorithm {
        Algorithm::RS256 if key.family() == AlgorithmFamily::Rsa => None,
        Algorithm::ES256 if key.family() == AlgorithmFamily::Ec => Some(&rings::ECDSA_P256_SHA256_FIXED_SIGNING),
        Algorithm::ES384 if key.family() == AlgorithmFamily::Ec => Some(&rings::ECDSA_P384_SHA384_FIXED_SIGNING),
        _ => return Err(ErrorKind::InvalidAlgorithm.into()),
    };
    let pair = match ecdsa {
        Some(curve) => rings::EcdsaKeyPair::from_pkcs8(curve, key.inner(), &SystemRandom::new()).map(Pair::Ecdsa),
        None => rings::RsaKeyPair::from_pkcs8(key.inner()).map(Pair::Rsa),
    };
    let pair = pair.map_err(|error| Error::from(ErrorKind::Provider(error.to_string())))?;
    Ok(Box::new(Signing { algorithm: *algorithm, pair }))
}

impl Signer<Vec<u8>> for Signing {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signed = vec![0; pair.public().modulus_len()];
                pair.sign(&rings::RSA_PKCS1_SHA256, &random, message, &mut signed)
                    .map_err(|_| signature::Error::new())?;
                Ok(signed)
            }
            Pair::Ecdsa(pair) => {
                let signed = pair.sign(&random, message).map_err(|_| signature::Error::new())?;
                Ok(signed.as_ref().to_vec())
            }
        }
    }
}

impl JwtSigner for Signing {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

struct Verifying {
    algorithm: Algorithm,
    with: &'static dyn rings::VerificationAlgorithm,
    key: Vec<u8>,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let with: &'static dyn rings::VerificationAlgorithm = match (algorithm, key.family()) {
        (Algorithm::RS256, AlgorithmFamily::Rsa) => &rings::RSA_PKCS1_2048_8192_SHA256,
        (Algorithm::ES256, AlgorithmFamily::Ec) => &rings::ECDSA_P256_SHA256_FIXED,
        (Algorithm::ES384, AlgorithmFamily::Ec) => &rings::ECDSA_P384_SHA384_FIXED,
        _ => return Err(ErrorKind::InvalidAlgorithm.into()),
    };
    match key.kind() {
        DecodingKeyKind::SecretOrDer(key) => Ok(Box::new(Verifying { algorithm: *algorithm, with, key: key.clone() })),
        DecodingKeyKind::RsaModulusExponent { .. } => Err(ErrorKind::InvalidKeyFormat.into()),
    }
}

impl Verifier<Vec<u8>> for Verifying {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let key = rings::UnparsedPublicKey::new(self.with, &self.key);
        key.verify(message, signature).map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Verifying {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
