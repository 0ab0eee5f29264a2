//! Client certificates of X.509 version 1, which `openssl x509 -req` makes.
//!
//! Version 1 has no extensions, so these certificates do not state their purpose. Go accepts them from clients. The TLS
//! library parses only version 3 and cannot verify them. Only the client's own certificate may have version 1, because
//! an issuer's certificate must state that it belongs to an issuer, unless the operator configured it as an authority.

use crate::signatures::Signatures;
use rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, ParsedExtension, X509Certificate, X509Error, X509Version};

/// The maximum number of certificates that a client may send in addition to its own and that are considered.
const INTERMEDIATES_MAX: usize = 8;
/// The maximum number of signatures that are checked for one client.
const SIGNATURES_MAX: usize = 32;

/// Verifies that a chain leads from the certificate to an authority. The error contains the reason why there is no such
/// chain.
pub fn verify(
    chain: &[CertificateDer<'_>],
    authorities: &[CertificateDer<'_>],
    signatures: &Signatures,
    now: UnixTime,
) -> Result<(), String> {
    let [certificate, intermediates @ ..] = chain else { return Err("there is no certificate".into()) };
    let end = parse(certificate).ok_or("the certificate cannot be read")?;
    if end.version() != X509Version::V1 || !end.extensions().is_empty() {
        return Err("the certificate is not of version 1".into());
    }
    if !is_valid(&end, now) {
        return Err("the certificate has expired or is not yet valid".into());
    }
    let intermediates = intermediates.iter().take(INTERMEDIATES_MAX);
    let signers = authorities.iter().map(|der| (der, true)).chain(intermediates.map(|der| (der, false)));
    let signers: Vec<Signer> = signers.filter_map(|(der, trusted)| Signer::new(der, trusted, now)).collect();
    let mut search = Search { signers: &signers, signatures, left: SIGNATURES_MAX };
    match search.is_vouched_for(certificate, &end, &mut Vec::new()) {
        true => Ok(()),
        false => Err("certificate signed by unknown authority".into()),
    }
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    match X509Certificate::from_der(der) {
        Ok(([], parsed)) => Some(parsed),
        _ => None,
    }
}

fn is_valid(certificate: &X509Certificate, now: UnixTime) -> bool {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = certificate.validity();
    validity.not_before.timestamp() <= now && now <= validity.not_after.timestamp()
}

/// A certificate that may sign client certificates.
struct Signer<'a> {
    der: &'a CertificateDer<'a>,
    parsed: X509Certificate<'a>,
    /// Whether the operator configured the signer as an authority.
    trusted: bool,
    /// The maximum number of intermediates between the signer and a client's certificate.
    others_max: usize,
}

impl<'a> Signer<'a> {
    fn new(der: &'a CertificateDer<'a>, trusted: bool, now: UnixTime) -> Option<Signer<'a>> {
        let parsed = parse(der).filter(|parsed| is_valid(parsed, now))?;
        let others_max = others_max(&parsed, trusted).ok().flatten()?;
        Some(Signer { der, parsed, trusted, others_max })
    }
}

/// The maximum number of intermediates; `None` if the certificate may not sign client certificates.
fn others_max(certificate: &X509Certificate, trusted: bool) -> Result<Option<usize>, X509Error> {
    // A critical extension that is unknown here might restrict what the signer may sign, as name constraints do.
    let is_heeded = |extension: &ParsedExtension| {
        use ParsedExtension::{BasicConstraints, ExtendedKeyUsage, KeyUsage, NameConstraints};
        match extension {
            BasicConstraints(_) | KeyUsage(_) | ExtendedKeyUsage(_) => Some(true),
            NameConstraints(_) => Some(false),
            _ => None,
        }
    };
    let heeded =
        |found: &x509_parser::extensions::X509Extension| is_heeded(found.parsed_extension()).unwrap_or(!found.critical);
    let signs_certificates = certificate.key_usage()?.is_none_or(|usage| usage.value.key_cert_sign());
    let signs_clients =
        certificate.extended_key_usage()?.is_none_or(|usage| usage.value.any || usage.value.client_auth);
    if !certificate.extensions().iter().all(heeded) || !signs_certificates || !signs_clients {
        return Ok(None);
    }
    Ok(match certificate.basic_constraints()? {
        Some(constraints) if constraints.value.ca => {
            let most = constraints.value.path_len_constraint;
            Some(most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX)))
        }
        // Certificates before version 3 cannot state that they belong to an issuer, so the operator's configuration
        // decides.
        None if trusted && certificate.version() != X509Version::V3 => Some(usize::MAX),
        _ => None,
    })
}

struct Search<'a> {
    signers: &'a [Signer<'a>],
    signatures: &'a Signatures,
    /// The number of signatures that may still be checked.
    left: usize,
}

impl Search<'_> {
    /// Whether a chain leads from the certificate to an authority. `passed` contains the signers between the client's
    /// certificate and this certificate.
    fn is_vouched_for(&mut self, der: &CertificateDer, certificate: &X509Certificate, passed: &mut Vec<usize>) -> bool {
        for (index, signer) in self.signers.iter().enumerate() {
            if passed.contains(&index) || passed.len() > signer.others_max || !self.signed(der, certificate, signer) {
                continue;
            }
            if signer.trusted {
                return true;
            }
            passed.push(index);
            if self.is_vouched_for(signer.der, &signer.parsed, passed) {
                return true;
            }
            passed.pop();
        }
        false
    }

    fn signed(&mut self, der: &CertificateDer, certificate: &X509Certificate, signer: &Signer) -> bool {
        if certificate.issuer().as_raw() != signer.parsed.subject().as_raw() || self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.signatures.certificate(der, signer.parsed.public_key().raw)
    }
}
