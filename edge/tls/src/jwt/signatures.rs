//! The signatures of tokens, made and checked by `ring`, which TLS already uses.
//!
//! `jsonwebtoken` offers two other libraries: one would be a second C library beside `ring`, the other has an RSA
//! implementation that leaks keys by its timing (RUSTSEC-2023-0071). But `jsonwebtoken` also accepts functions of its
//! caller, and these functions use `ring`.

use jsonwebtoken::crypto::{CryptoProvider, JwkUtils, JwtSigner, JwtVerifier};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Signer, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::rand::SystemRandom;
use ring::signature as rings;
use std::sync::Once;

/// Makes `ring` the library for signing and verifying tokens.
pub fn install() {
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: signer,
        verifier_factory: verifier,
        // `jsonwebtoken` is never asked for the JWK form of a key.
        jwk_utils: JwkUtils::new_unimplemented(),
    };
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // The installation fails only if another library is installed already, and no other code installs a library.
        let _ = PROVIDER.install_default();
    });
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
    with: With,
    key: DecodingKeyKind,
}

enum With {
    Rsa(&'static rings::RsaParameters),
    Ecdsa(&'static rings::EcdsaVerificationAlgorithm),
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let with = match algorithm {
        Algorithm::RS256 => With::Rsa(&rings::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => With::Rsa(&rings::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => With::Rsa(&rings::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => With::Rsa(&rings::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => With::Rsa(&rings::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => With::Rsa(&rings::RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => With::Ecdsa(&rings::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => With::Ecdsa(&rings::ECDSA_P384_SHA384_FIXED),
        _ => return Err(ErrorKind::InvalidAlgorithm.into()),
    };
    match (&with, key.family()) {
        (With::Rsa(_), AlgorithmFamily::Rsa) | (With::Ecdsa(_), AlgorithmFamily::Ec) => {
            Ok(Box::new(Verifying { algorithm: *algorithm, with, key: key.kind().clone() }))
        }
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

impl Verifier<Vec<u8>> for Verifying {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match (&self.key, &self.with) {
            (DecodingKeyKind::SecretOrDer(key), With::Rsa(with)) => {
                rings::UnparsedPublicKey::new(*with, key).verify(message, signature)
            }
            (DecodingKeyKind::SecretOrDer(key), With::Ecdsa(with)) => {
                rings::UnparsedPublicKey::new(*with, key).verify(message, signature)
            }
            (DecodingKeyKind::RsaModulusExponent { n, e }, With::Rsa(with)) => {
                rings::RsaPublicKeyComponents { n, e }.verify(with, message, signature)
            }
            (DecodingKeyKind::RsaModulusExponent { .. }, With::Ecdsa(_)) => return Err(signature::Error::new()),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Verifying {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
