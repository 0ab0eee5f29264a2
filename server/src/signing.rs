//! The signing keys of controllers: certificate authorities in files, and the key of service account tokens in Secrets.

use crate::files::read;
use anyhow::{Context, Result, ensure};
use holdfast_controllers::account_tokens::TokenSigner;
use holdfast_controllers::certificates::{API_CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN, Signer, Terms};
use holdfast_transport_http::tokens;
use holdfast_value::Value;
use holdfast_world::Time;
use rcgen::{
    CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SerialNumber,
};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use time::OffsetDateTime;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

/// The options of certificate signers.
#[derive(clap::Args, Debug)]
#[group(skip)]
#[command(next_help_heading = "Signing of certificates")]
pub struct Args {
    /// CA certificate for all signers of the cluster.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_key_file")]
    cluster_signing_cert_file: Option<PathBuf>,
    /// Private key of the certificate in --cluster-signing-cert-file.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_cert_file")]
    cluster_signing_key_file: Option<PathBuf>,
    /// CA certificate for the signer kubernetes.io/kubelet-serving only.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_kubelet_serving_key_file")]
    cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    /// Private key of the certificate in --cluster-signing-kubelet-serving-cert-file.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_kubelet_serving_cert_file")]
    cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// CA certificate for the signer kubernetes.io/kube-apiserver-client-kubelet only.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_kubelet_client_key_file")]
    cluster_signing_kubelet_client_cert_file: Option<PathBuf>,
    /// Private key of the certificate in --cluster-signing-kubelet-client-cert-file.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_kubelet_client_cert_file")]
    cluster_signing_kubelet_client_key_file: Option<PathBuf>,
    /// CA certificate for the signer kubernetes.io/kube-apiserver-client only.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_kube_apiserver_client_key_file")]
    cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,
    /// Private key of the certificate in --cluster-signing-kube-apiserver-client-cert-file.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_kube_apiserver_client_cert_file")]
    cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,
    /// CA certificate for the signer kubernetes.io/legacy-unknown only.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_legacy_unknown_key_file")]
    cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,
    /// Private key of the certificate in --cluster-signing-legacy-unknown-cert-file.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_legacy_unknown_cert_file")]
    cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
}

pub type Signers = BTreeMap<String, Arc<dyn Signer>>;

impl Args {
    pub fn signers(&self) -> Result<Signers> {
        let own = [
            (
                KUBELET_SERVING,
                &self.cluster_signing_kubelet_serving_cert_file,
                &self.cluster_signing_kubelet_serving_key_file,
            ),
            (
                KUBELET_CLIENT,
                &self.cluster_signing_kubelet_client_cert_file,
                &self.cluster_signing_kubelet_client_key_file,
            ),
            (
                API_CLIENT,
                &self.cluster_signing_kube_apiserver_client_cert_file,
                &self.cluster_signing_kube_apiserver_client_key_file,
            ),
            (
                LEGACY_UNKNOWN,
                &self.cluster_signing_legacy_unknown_cert_file,
                &self.cluster_signing_legacy_unknown_key_file,
            ),
        ];
        let shared = self.cluster_signing_cert_file.as_deref().zip(self.cluster_signing_key_file.as_deref());
        let given = own.iter().find(|(_, certificate, _)| certificate.is_some());
        if let (Some(_), Some((name, ..))) = (shared, given) {
            anyhow::bail!(
                "--cluster-signing-cert-file is for all signers, and {name} has a file of its own: give one of them"
            );
        }
        if let Some((certificate, key)) = shared {
            return all_signers(certificate, key);
        }
        let mut signers = Signers::new();
        for (name, certificate, key) in own {
            if let (Some(certificate), Some(key)) = (certificate, key) {
                signers.insert(name.to_owned(), authority(certificate, key)?);
            }
        }
        Ok(signers)
    }
}

/// One authority for all built-in signers of the cluster.
pub fn all_signers(certificate: &Path, key: &Path) -> Result<Signers> {
    let authority = authority(certificate, key)?;
    let names = [KUBELET_SERVING, KUBELET_CLIENT, API_CLIENT, LEGACY_UNKNOWN];
    Ok(names.into_iter().map(|name| (name.to_owned(), authority.clone())).collect())
}

fn authority(certificate: &Path, key: &Path) -> Result<Arc<dyn Signer>> {
    let pem = read(certificate)?;
    let pair = crate::pki::key_pair(key)?;
    let (_, parsed) = x509_parser::pem::parse_x509_pem(pem.as_bytes())
        .with_context(|| format!("{} is not a certificate", certificate.display()))?;
    let parsed = parsed.parse_x509().with_context(|| format!("{} is not a certificate", certificate.display()))?;
    ensure!(
        parsed.public_key().raw == rcgen::PublicKeyData::subject_public_key_info(&pair),
        "{} is not the key of {}",
        key.display(),
        certificate.display()
    );
    let end = Time::from_second(parsed.validity().not_after.timestamp());
    let issuer = Issuer::from_ca_cert_pem(&pem, pair).with_context(|| format!("use {}", certificate.display()))?;
    Ok(Arc::new(Authority { issuer, end, file: certificate.to_owned() }))
}

/// A certificate authority with its key.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    end: Time,
    file: PathBuf,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the authority of {}", self.file.display())
    }
}

impl Signer for Authority {
    fn sign(&self, request: &[u8], terms: &Terms) -> Result<String, String> {
        let (_, parsed) = X509CertificationRequest::from_der(request).map_err(|error| error.to_string())?;
        // A subject holds one value of each type, so all organizations but the last would be lost.
        if parsed.certification_request_info.subject.iter_organization().count() > 1 {
            return Err("a subject of more than one organization cannot be signed here".into());
        }
        let request = CertificateSigningRequestParams::from_der(&request.to_vec().into());
        let mut request = request.map_err(|error| error.to_string())?;
        let params = &mut request.params;
        params.not_before = moment(terms.not_before)?;
        params.not_after = moment(terms.not_after)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(SerialNumber::from((terms.seed >> 1).max(1)));
        params.key_usages = terms.usages.iter().filter_map(|usage| key_usage(usage)).collect();
        params.extended_key_usages = terms.usages.iter().filter_map(|usage| extended_usage(usage)).collect();
        Ok(request.signed_by(&self.issuer).map_err(|error| error.to_string())?.pem())
    }

    fn end(&self) -> Time {
        self.end
    }
}

/// Signs tokens with the first private key in a file.
pub fn token_signer(key: &Path) -> Result<Arc<dyn TokenSigner>> {
    Ok(Arc::new(TokenKey(read(key)?)))
}

struct TokenKey(String);

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key for tokens")
    }
}

impl TokenSigner for TokenKey {
    fn sign(&self, claims: &Value) -> Result<String, String> {
        tokens::legacy::sign(&self.0, claims)
    }
}

fn moment(time: Time) -> Result<OffsetDateTime, String> {
    OffsetDateTime::from_unix_timestamp(time.seconds()).map_err(|error| error.to_string())
}

fn key_usage(usage: &str) -> Option<KeyUsagePurpose> {
    Some(match usage {
        "signing" | "digital signature" => KeyUsagePurpose::DigitalSignature,
        "content commitment" => KeyUsagePurpose::ContentCommitment,
        "key encipherment" => KeyUsagePurpose::KeyEncipherment,
        "data encipherment" => KeyUsagePurpose::DataEncipherment,
        "key agreement" => KeyUsagePurpose::KeyAgreement,
        "cert sign" => KeyUsagePurpose::KeyCertSign,
        "crl sign" => KeyUsagePurpose::CrlSign,
        "encipher only" => KeyUsagePurpose::EncipherOnly,
        "decipher only" => KeyUsagePurpose::DecipherOnly,
        _ => return None,
    })
}

fn extended_usage(usage: &str) -> Option<ExtendedKeyUsagePurpose> {
    Some(match usage {
        "any" => ExtendedKeyUsagePurpose::Any,
        "server auth" => ExtendedKeyUsagePurpose::ServerAuth,
        "client auth" => ExtendedKeyUsagePurpose::ClientAuth,
        "code signing" => ExtendedKeyUsagePurpose::CodeSigning,
        "email protection" | "s/mime" => ExtendedKeyUsagePurpose::EmailProtection,
        "timestamping" => ExtendedKeyUsagePurpose::TimeStamping,
        "ocsp signing" => ExtendedKeyUsagePurpose::OcspSigning,
        _ => return None,
    })
}
