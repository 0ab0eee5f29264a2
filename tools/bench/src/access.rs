//! The server's address and the user's credentials, from options, a kubeconfig, or both.

use holdfast_core::object::yaml;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use base64::Engine as _;
use holdfast_outbound::trust::{ServerVerifier, TlsTrust};
use http::{HeaderValue, Uri};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde::Deserialize;

use crate::Args;

pub struct Access {
    pub host: String,
    pub port: u16,
    /// The TLS settings; `None` for `http://`, which is HTTP/2 without TLS and with prior knowledge.
    pub tls: Option<Tls>,
    pub authorization: Option<HeaderValue>,
}

pub struct Tls {
    pub config: Arc<ClientConfig>,
    pub server_name: ServerName<'static>,
}

impl Access {
    pub fn from_args(args: &Args) -> anyhow::Result<Self> {
        let mut settings = match &args.kubeconfig {
            Some(path) => read_kubeconfig(path).with_context(|| format!("kubeconfig {}", path.display()))?,
            None => Settings::default(),
        };
        settings.override_with(args)?;
        settings.resolve()
    }

    pub fn authority(&self) -> String {
        let host = &self.host;
        if host.contains(':') { format!("[{host}]:{}", self.port) } else { format!("{host}:{}", self.port) }
    }

    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.authority())
    }
}

/// The settings that result from the options and the kubeconfig. Certificates and keys are in PEM.
#[derive(Debug, Default)]
struct Settings {
    server: Option<String>,
    authority: Option<Vec<u8>>,
    insecure: bool,
    server_name: Option<String>,
    token: Option<String>,
    certificate_and_key: Option<(Vec<u8>, Vec<u8>)>,
}

impl Settings {
    fn override_with(&mut self, args: &Args) -> anyhow::Result<()> {
        let read = |path: &PathBuf| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        if let Some(server) = &args.server {
            self.server = Some(server.clone());
        }
        if let Some(path) = &args.ca {
            (self.authority, self.insecure) = (Some(read(path)?), false);
        }
        if args.insecure {
            self.insecure = true;
        }
        if let Some(token) = &args.token {
            (self.token, self.certificate_and_key) = (Some(token.clone()), None);
        }
        if let (Some(certificate), Some(key)) = (&args.client_certificate, &args.client_key) {
            (self.token, self.certificate_and_key) = (None, Some((read(certificate)?, read(key)?)));
        }
        Ok(())
    }

    fn resolve(self) -> anyhow::Result<Access> {
        let server = self.server.as_deref().context("which server? Give --server or --kubeconfig")?;
        let uri: Uri = server.parse().with_context(|| format!("{server:?} is not a URL"))?;
        let host = uri.host().with_context(|| format!("{server:?} names no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match uri.scheme_str() {
            Some("https") => Some(self.tls(&host)?),
            Some("http") => None,
            _ => bail!("{server:?} must start with https:// or http://"),
        };
        if !matches!(uri.path(), "" | "/") {
            bail!("{server:?}: a path before /api is not supported");
        }
        let port = uri.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
        let authorization = match &self.token {
            Some(token) => {
                let value = format!("Bearer {}", token.trim());
                let mut value = HeaderValue::from_str(&value).context("the token holds characters no header may")?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        Ok(Access { host, port, tls, authorization })
    }

    fn tls(&self, host: &str) -> anyhow::Result<Tls> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = if self.insecure {
            // The user asked not to verify the server, so any certificate is accepted.
            let anybody = ServerVerifier::new(&TlsTrust { insecure: true, ..TlsTrust::default() });
            let anybody = anybody.map_err(anyhow::Error::msg)?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(anybody))
        } else {
            let pem = self.authority.as_deref().context("how to trust the server? Give --ca or --insecure")?;
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate.context("the authority is not a PEM certificate")?)?;
            }
            if roots.is_empty() {
                bail!("the authority's file holds no certificate");
            }
            builder.with_root_certificates(roots)
        };
        let mut config = match &self.certificate_and_key {
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_slice_iter(certificate)
                    .collect::<Result<Vec<_>, _>>()
                    .context("the client certificate is not PEM")?;
                let key = PrivateKeyDer::from_pem_slice(key).context("the client key is not PEM")?;
                builder.with_client_auth_cert(chain, key)?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = self.server_name.as_deref().unwrap_or(host).to_owned();
        let server_name = ServerName::try_from(name).context("the server's name cannot be in a certificate")?;
        Ok(Tls { config: Arc::new(config), server_name })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(default)]
    current_context: String,
    #[serde(default)]
    contexts: Vec<ConfigEntry>,
    #[serde(default)]
    clusters: Vec<ConfigEntry>,
    #[serde(default)]
    users: Vec<ConfigEntry>,
}

#[derive(Deserialize)]
struct ConfigEntry {
    name: String,
    context: Option<ContextEntry>,
    cluster: Option<ClusterEntry>,
    user: Option<UserEntry>,
}

#[derive(Deserialize)]
struct ContextEntry {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterEntry {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct UserEntry {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    exec: Option<serde::de::IgnoredAny>,
}

fn read_kubeconfig(path: &Path) -> anyhow::Result<Settings> {
    let config: Kubeconfig = yaml::read(&fs::read_to_string(path)?)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    fn named<'a>(entries: &'a [ConfigEntry], name: &str, what: &str) -> anyhow::Result<&'a ConfigEntry> {
        entries.iter().find(|entry| entry.name == name).with_context(|| format!("no {what} is called {name:?}"))
    }
    let context = named(&config.contexts, &config.current_context, "context")?;
    let context = context.context.as_ref().context("the context is empty")?;
    let cluster = named(&config.clusters, &context.cluster, "cluster")?;
    let cluster = cluster.cluster.as_ref().context("the cluster is empty")?;
    let no_user = UserEntry::default();
    let user = named(&config.users, &context.user, "user")?.user.as_ref().unwrap_or(&no_user);
    if user.exec.is_some() {
        bail!("credentials from a command are not supported: give --token or --client-certificate");
    }
    let bytes = |data: &Option<String>, file: &Option<PathBuf>| -> anyhow::Result<Option<Vec<u8>>> {
        Ok(match (data, file) {
            (Some(data), _) => Some(base64::prelude::BASE64_STANDARD.decode(data).context("bad base64")?),
            (None, Some(file)) => {
                let file = folder.join(file);
                Some(fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?)
            }
            (None, None) => None,
        })
    };
    let token = match (&user.token, &user.token_file) {
        (Some(token), _) => Some(token.clone()),
        (None, Some(file)) => Some(fs::read_to_string(folder.join(file)).context("cannot read the tokenFile")?),
        (None, None) => None,
    };
    let certificate = bytes(&user.client_certificate_data, &user.client_certificate)?;
    let key = bytes(&user.client_key_data, &user.client_key)?;
    Ok(Settings {
        server: Some(cluster.server.clone()),
        authority: bytes(&cluster.certificate_authority_data, &cluster.certificate_authority)?,
        insecure: cluster.insecure_skip_tls_verify,
        server_name: cluster.tls_server_name.clone(),
        token,
        certificate_and_key: certificate.zip(key),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(server: &str) -> Result<(String, bool), String> {
        let settings = Settings { server: Some(server.into()), insecure: true, ..Settings::default() };
        settings.resolve().map(|access| (access.url(), access.tls.is_some())).map_err(|error| error.to_string())
    }

    #[test]
    fn servers() {
        let table = [
            ("https://localhost:6443", Some(("https://localhost:6443", true))),
            ("https://localhost:6443/", Some(("https://localhost:6443", true))),
            ("https://[::1]:6443", Some(("https://[::1]:6443", true))),
            ("https://example.test", Some(("https://example.test:443", true))),
            ("http://127.0.0.1:80", Some(("http://127.0.0.1:80", false))),
            ("localhost:6443", None),
            ("https://h/k8s/clusters/c", None),
            ("", None),
        ];
        for (server, expected) in table {
            let expected = expected.map(|(url, tls)| (url.to_owned(), tls));
            assert_eq!(resolve(server).ok(), expected, "{server}");
        }
    }

    #[test]
    fn trust_must_be_chosen() {
        let settings = Settings { server: Some("https://h:1".into()), ..Settings::default() };
        assert!(settings.resolve().err().unwrap().to_string().contains("--ca or --insecure"));
    }

    #[test]
    fn kubeconfig_takes_data_or_files_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), "authority").unwrap();
        let path = folder.path().join("config");
        let text = "
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: other, context: {cluster: x, user: x}}, {name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'https://h:6443', certificate-authority: ca.pem, tls-server-name: n}}]
users: [{name: u, user: {client-certificate-data: Y2VydA==, client-key-data: a2V5}}]
";
        fs::write(&path, text).unwrap();
        let settings = read_kubeconfig(&path).unwrap();
        assert_eq!(settings.server.as_deref(), Some("https://h:6443"));
        assert_eq!(settings.authority.as_deref(), Some(b"authority".as_slice()));
        assert_eq!(settings.server_name.as_deref(), Some("n"));
        assert_eq!(settings.certificate_and_key, Some((b"cert".to_vec(), b"key".to_vec())));

        fs::write(&path, text.replace("current-context: here", "current-context: nowhere")).unwrap();
        assert!(read_kubeconfig(&path).unwrap_err().to_string().contains("nowhere"));
    }
}
