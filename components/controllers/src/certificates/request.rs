//! The content of certificate requests, and the rules for requests of kubelets.

use crate::encoded::decode;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer;

const NODES: &str = "system:nodes";
const NODE: &str = "system:node:";
const DIGITAL_SIGNATURE: &str = "digital signature";
const KEY_ENCIPHERMENT: &str = "key encipherment";
const CLIENT_AUTH: &str = "client auth";
const SERVER_AUTH: &str = "server auth";

/// The content of a decoded certificate request, as far as the rules of kubelets need it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Requested {
    pub der: Vec<u8>,
    pub common_name: String,
    pub organizations: Vec<String>,
    pub dns_names: usize,
    pub addresses: usize,
    pub emails: usize,
    pub uris: usize,
}

impl Requested {
    /// Decodes a certificate request that is PEM text in base64, as the field `spec.request` contains it.
    pub fn decode(text: &str) -> Result<Requested, String> {
        let pem = decode(text).ok_or("it is not base64")?;
        let (_, block) = parse_x509_pem(&pem).map_err(|fault| fault.to_string())?;
        if block.label != "CERTIFICATE REQUEST" {
            return Err("PEM block type must be CERTIFICATE REQUEST".into());
        }
        let (_, request) = X509CertificationRequest::from_der(&block.contents).map_err(|fault| fault.to_string())?;
        let subject = &request.certification_request_info.subject;
        let mut found = Requested {
            common_name: subject
                .iter_common_name()
                .filter_map(|name| name.as_str().ok())
                .last()
                .unwrap_or_default()
                .into(),
            organizations: subject
                .iter_organization()
                .filter_map(|name| name.as_str().ok())
                .map(str::to_owned)
                .collect(),
            ..Requested::default()
        };
        for extension in request.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(_) => found.dns_names += 1,
                    GeneralName::IPAddress(_) => found.addresses += 1,
                    GeneralName::RFC822Name(_) => found.emails += 1,
                    GeneralName::URI(_) => found.uris += 1,
                    _ => {}
                }
            }
        }
        found.der = block.contents;
        Ok(found)
    }

    /// Returns `Err` with the reason if this is not a valid request for a kubelet's client certificate.
    pub fn kubelet_client(&self, usages: &[String]) -> Result<(), String> {
        self.of_nodes()?;
        none(self.dns_names, "DNS")?;
        none(self.emails, "Email")?;
        none(self.addresses, "IP")?;
        none(self.uris, "URI")?;
        self.of_a_node()?;
        just(usages, CLIENT_AUTH)
    }

    /// Returns `Err` with the reason if this is not a valid request for a kubelet's serving certificate.
    pub fn kubelet_serving(&self, usages: &[String]) -> Result<(), String> {
        self.of_nodes()?;
        if self.dns_names + self.addresses == 0 {
            return Err("DNS or IP subjectAltName is required".into());
        }
        none(self.emails, "Email")?;
        none(self.uris, "URI")?;
        just(usages, SERVER_AUTH)?;
        self.of_a_node()
    }

    fn of_nodes(&self) -> Result<(), String> {
        if self.organizations == [NODES] { Ok(()) } else { Err(format!("subject organization is not {NODES}")) }
    }

    fn of_a_node(&self) -> Result<(), String> {
        let begins = self.common_name.starts_with(NODE);
        if begins { Ok(()) } else { Err(format!("subject common name does not begin with {NODE}")) }
    }
}

/// Returns `Err` with the reason if these usages are not allowed in the certificate of a client of the API server.
pub fn client_usages(usages: &[String]) -> Result<(), String> {
    let known = [DIGITAL_SIGNATURE, KEY_ENCIPHERMENT, CLIENT_AUTH];
    if let Some(other) = usages.iter().find(|usage| !known.contains(&usage.as_str())) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    let has = usages.iter().any(|usage| usage == CLIENT_AUTH);
    if has { Ok(()) } else { Err(format!("missing required usage for client certificate: {CLIENT_AUTH}")) }
}

fn none(number: usize, what: &str) -> Result<(), String> {
    if number == 0 { Ok(()) } else { Err(format!("{what} subjectAltNames are not allowed")) }
}

/// Checks that the usages are exactly `purpose` and `digital signature`. `key encipherment`, which only RSA keys use,
/// may be added.
fn just(usages: &[String], purpose: &str) -> Result<(), String> {
    let mut wanted = vec![DIGITAL_SIGNATURE, purpose];
    let mut named: Vec<&str> = usages.iter().map(String::as_str).filter(|usage| *usage != KEY_ENCIPHERMENT).collect();
    wanted.sort_unstable();
    named.sort_unstable();
    named.dedup();
    if named == wanted {
        return Ok(());
    }
    let mut with_encipherment = [DIGITAL_SIGNATURE, KEY_ENCIPHERMENT, purpose];
    with_encipherment.sort_unstable();
    Err(format!("usages did not match [{}]", with_encipherment.join(" ")))
}
