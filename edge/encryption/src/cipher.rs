//! The ciphers, each bound to the place of the value that it encrypts.
//!
//! AES-GCM authenticates the place together with the value. Secretbox cannot authenticate additional data, and AES-CBC
//! authenticates nothing. So in Holdfast's logs the output of these two ciphers ends with a MAC over the output and the
//! place, with a key derived from the cipher's key. In etcd, where kube-apiserver must be able to read the value, there
//! is no MAC.

use aes_gcm::aead::consts::U12;
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{AesGcm, KeyInit};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use crypto_secretbox::XSalsa20Poly1305;
use hmac::{Hmac, Mac};
use sha2::Sha256;

const GCM_NONCE: usize = 12;
const CBC_IV: usize = 16;
const SECRETBOX_NONCE: usize = 24;
const MAC: usize = 32;

/// The valid lengths of AES keys, in bytes.
pub const AES_KEYS: &[usize] = &[16, 24, 32];
pub const SECRETBOX_KEYS: &[usize] = &[32];

/// The place at which an encrypted value is stored. A value that is bound to its place cannot be decrypted after it is
/// copied to another place.
#[derive(Debug, Clone, Copy)]
pub enum ValuePlace<'p> {
    /// An event in a log of Holdfast. Every cipher binds the value to its event.
    Event(&'p [u8]),
    /// A key in etcd, in the format of kube-apiserver. Only AES-GCM binds the value to the key.
    Key(&'p [u8]),
}

impl<'p> ValuePlace<'p> {
    fn bytes(self) -> &'p [u8] {
        match self {
            ValuePlace::Event(bytes) | ValuePlace::Key(bytes) => bytes,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cipher {
    AesGcm,
    AesCbc,
    Secretbox,
}

/// The system has no random bytes, or the key has a length that no configuration allows.
#[derive(Debug, thiserror::Error)]
#[error("cannot encrypt: {0}")]
pub struct Unsealed(String);

impl Cipher {
    pub fn key_lengths(self) -> &'static [usize] {
        match self {
            Self::AesGcm | Self::AesCbc => AES_KEYS,
            Self::Secretbox => SECRETBOX_KEYS,
        }
    }

    /// Encrypts a value, and binds it to its place in the cases that [`ValuePlace`] lists.
    pub fn seal(self, key: &[u8], plain: &[u8], place: ValuePlace) -> Result<Vec<u8>, Unsealed> {
        let wrong = || Unsealed(format!("a key of {} bytes", key.len()));
        match self {
            Self::AesGcm => {
                let nonce = random::<GCM_NONCE>()?;
                let sealed = gcm_seal(key, &nonce, plain, place.bytes()).ok_or_else(wrong)?;
                Ok([&nonce[..], &sealed].concat())
            }
            Self::AesCbc => {
                let iv = random::<CBC_IV>()?;
                let sealed = cbc_seal(key, &iv, plain).ok_or_else(wrong)?;
                Ok(with_mac(key, [&iv[..], &sealed].concat(), place))
            }
            Self::Secretbox => {
                let nonce = random::<SECRETBOX_NONCE>()?;
                let cipher = XSalsa20Poly1305::new_from_slice(key).map_err(|_| wrong())?;
                let sealed = cipher.encrypt(&nonce.into(), plain).map_err(|_| wrong())?;
                Ok(with_mac(key, [&nonce[..], &sealed].concat(), place))
            }
        }
    }

    /// Decrypts a value; `None` if the value was encrypted with another key, or is bound to another place.
    pub fn open(self, key: &[u8], sealed: &[u8], place: ValuePlace) -> Option<Vec<u8>> {
        match self {
            Self::AesGcm => {
                let (nonce, sealed) = sealed.split_at_checked(GCM_NONCE)?;
                gcm_open(key, nonce, sealed, place.bytes())
            }
            Self::AesCbc => {
                let (iv, sealed) = without_mac(key, sealed, place)?.split_at_checked(CBC_IV)?;
                cbc_open(key, iv, sealed)
            }
            Self::Secretbox => {
                let (nonce, sealed) = without_mac(key, sealed, place)?.split_at_checked(SECRETBOX_NONCE)?;
                XSalsa20Poly1305::new_from_slice(key).ok()?.decrypt(nonce.into(), sealed).ok()
            }
        }
    }
}

pub fn random<const N: usize>() -> Result<[u8; N], Unsealed> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| Unsealed(error.to_string()))?;
    Ok(bytes)
}

/// Derives a key for one purpose, by HKDF-Expand with SHA-256 for one block.
pub fn expand(key: &[u8], purpose: &[u8]) -> [u8; 32] {
    mac(key, &[purpose, &[1]]).finalize().into_bytes().into()
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let made = <Hmac<Sha256> as Mac>::new_from_slice(key);
    let mut mac = made.unwrap_or_else(|never| unreachable!("a MAC takes keys of any length: {never}"));
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// The MAC of an encrypted value and its place. The length of the place is hashed first, so that no other split of
/// place and value gives the same bytes.
fn bound(key: &[u8], sealed: &[u8], place: &[u8]) -> Hmac<Sha256> {
    let key = expand(key, b"holdfast: the place of a value");
    mac(&key, &[&(place.len() as u64).to_be_bytes(), place, sealed])
}

fn with_mac(key: &[u8], mut sealed: Vec<u8>, place: ValuePlace) -> Vec<u8> {
    let ValuePlace::Event(place) = place else { return sealed };
    let mac = bound(key, &sealed, place).finalize().into_bytes();
    sealed.extend_from_slice(&mac);
    sealed
}

fn without_mac<'a>(key: &[u8], sealed: &'a [u8], place: ValuePlace) -> Option<&'a [u8]> {
    let ValuePlace::Event(place) = place else { return Some(sealed) };
    let (sealed, mac) = sealed.split_at_checked(sealed.len().checked_sub(MAC)?)?;
    bound(key, sealed, place).verify_slice(mac).ok()?;
    Some(sealed)
}

fn gcm_seal(key: &[u8], nonce: &[u8; GCM_NONCE], plain: &[u8], place: &[u8]) -> Option<Vec<u8>> {
    fn seal<C: KeyInit + Aead<NonceSize = U12>>(key: &[u8], nonce: &[u8], payload: Payload) -> Option<Vec<u8>> {
        C::new_from_slice(key).ok()?.encrypt(nonce.into(), payload).ok()
    }
    let payload = Payload { msg: plain, aad: place };
    match key.len() {
        16 => seal::<AesGcm<aes::Aes128, U12>>(key, nonce, payload),
        24 => seal::<AesGcm<aes::Aes192, U12>>(key, nonce, payload),
        _ => seal::<AesGcm<aes::Aes256, U12>>(key, nonce, payload),
    }
}

fn gcm_open(key: &[u8], nonce: &[u8], sealed: &[u8], place: &[u8]) -> Option<Vec<u8>> {
    fn open<C: KeyInit + Aead<NonceSize = U12>>(key: &[u8], nonce: &[u8], payload: Payload) -> Option<Vec<u8>> {
        C::new_from_slice(key).ok()?.decrypt(nonce.into(), payload).ok()
    }
    let payload = Payload { msg: sealed, aad: place };
    match key.len() {
        16 => open::<AesGcm<aes::Aes128, U12>>(key, nonce, payload),
        24 => open::<AesGcm<aes::Aes192, U12>>(key, nonce, payload),
        _ => open::<AesGcm<aes::Aes256, U12>>(key, nonce, payload),
    }
}

fn cbc_seal(key: &[u8], iv: &[u8; CBC_IV], plain: &[u8]) -> Option<Vec<u8>> {
    fn seal<C: KeyIvInit + BlockEncryptMut>(key: &[u8], iv: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        Some(C::new_from_slices(key, iv).ok()?.encrypt_padded_vec_mut::<Pkcs7>(plain))
    }
    match key.len() {
        16 => seal::<cbc::Encryptor<aes::Aes128>>(key, iv, plain),
        24 => seal::<cbc::Encryptor<aes::Aes192>>(key, iv, plain),
        _ => seal::<cbc::Encryptor<aes::Aes256>>(key, iv, plain),
    }
}

fn cbc_open(key: &[u8], iv: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    fn open<C: KeyIvInit + BlockDecryptMut>(key: &[u8], iv: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        C::new_from_slices(key, iv).ok()?.decrypt_padded_vec_mut::<Pkcs7>(sealed).ok()
    }
    match key.len() {
        16 => open::<cbc::Decryptor<aes::Aes128>>(key, iv, sealed),
        24 => open::<cbc::Decryptor<aes::Aes192>>(key, iv, sealed),
        _ => open::<cbc::Decryptor<aes::Aes256>>(key, iv, sealed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIPHERS: [Cipher; 3] = [Cipher::AesGcm, Cipher::AesCbc, Cipher::Secretbox];

    #[test]
    fn values_open_with_their_key_in_their_place_and_nowhere_else() {
        for cipher in CIPHERS {
            for length in cipher.key_lengths() {
                let key = vec![7; *length];
                for plain in [&b""[..], b"{}\n", &[9; 16], &[3; 1000]] {
                    let sealed = cipher.seal(&key, plain, ValuePlace::Event(b"place")).expect("sealed");
                    assert_eq!(cipher.open(&key, &sealed, ValuePlace::Event(b"place")).as_deref(), Some(plain));
                    assert_ne!(
                        cipher.seal(&key, plain, ValuePlace::Event(b"place")).expect("sealed"),
                        sealed,
                        "no two are alike"
                    );
                    assert_eq!(cipher.open(&key, &sealed, ValuePlace::Event(b"other")), None, "{cipher:?} elsewhere");
                    assert_eq!(
                        cipher.open(&vec![8; *length], &sealed, ValuePlace::Event(b"place")),
                        None,
                        "{cipher:?} another key"
                    );
                }
            }
        }
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_found() {
        for cipher in CIPHERS {
            let sealed = cipher.seal(&[7; 32], b"a value of some length", ValuePlace::Event(b"place")).expect("sealed");
            for at in 0..sealed.len() {
                let mut changed = sealed.clone();
                changed[at] ^= 1;
                assert_eq!(cipher.open(&[7; 32], &changed, ValuePlace::Event(b"place")), None, "{cipher:?} at {at}");
                assert_eq!(
                    cipher.open(&[7; 32], &sealed[..at], ValuePlace::Event(b"place")),
                    None,
                    "{cipher:?} cut at {at}"
                );
            }
        }
    }

    /// The first test case of RFC 5869 gives the same key.
    #[test]
    fn keys_are_derived_as_hkdf_says() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
        };
        let key = hex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
        let expected = hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
        assert_eq!(expand(&key, &hex("f0f1f2f3f4f5f6f7f8f9")).to_vec(), expected);
    }
}
