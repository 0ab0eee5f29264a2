//! Calls extenders over HTTP: a document is posted to the path of a verb, and the answer is a document.

use super::answer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdfast_scheduler::configuration::extender::{Extender, Tls};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Limited};
use kube::{Client, Config};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// How many bytes an extender may answer: all nodes of a large cluster, whole.
const ANSWER_MAX: usize = 256 << 20;

/// The clients of extenders, made when they are first called.
#[derive(Default)]
pub struct Extenders {
    clients: Mutex<HashMap<String, Client>>,
}

impl Extenders {
    pub async fn call(&self, extender: &Extender, verb: &str, body: &Value) -> Result<Value, String> {
        let url = format!("{}/{verb}", extender.url_prefix.trim_end_matches('/'));
        let call = async {
            let client = self.client(extender)?;
            let request = Request::builder().method(Method::POST).uri(format!("/{}", verb.trim_start_matches('/')));
            let request = request.header("Content-Type", "application/json");
            let request = request.body(body.to_string().into_bytes().into()).map_err(|error| error.to_string())?;
            let response = client.send(request).await.map_err(|error| format!("Post \"{url}\": {error}"))?;
            if response.status() != http::StatusCode::OK {
                let code = response.status().as_u16();
                return Err(format!("failed {verb} with extender at URL {url}, code {code}"));
            }
            let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            // Others wait on this thread.
            let read = tokio::task::spawn_blocking(move || answer::read(&body)).await;
            let read = read.map_err(|error| error.to_string())?;
            read.map_err(|error| format!("answer of \"{url}\": {error}"))
        };
        let timeout = Duration::try_from_secs_f64(extender.http_timeout_seconds).unwrap_or_default();
        match tokio::time::timeout(timeout, call).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("Post \"{url}\": context deadline exceeded")),
        }
    }

    fn client(&self, extender: &Extender) -> Result<Client, String> {
        let mut clients = self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(client) = clients.get(&extender.url_prefix) {
            return Ok(client.clone());
        }
        let client = Client::try_from(config(extender)?).map_err(|error| error.to_string())?;
        clients.insert(extender.url_prefix.clone(), client.clone());
        Ok(client)
    }
}

fn config(extender: &Extender) -> Result<Config, String> {
    let url: Uri = extender.url_prefix.trim_end_matches('/').parse().map_err(|error| format!("{error}"))?;
    let mut config = Config::new(url);
    // Each call has a time limit of its own, and an extender that fails is not asked twice.
    config.default_retry = false;
    let tls = &extender.tls;
    let trusted = !(tls.ca_file.is_empty() && tls.ca_data.is_empty());
    config.accept_invalid_certs = tls.insecure || (extender.enable_https && !trusted);
    config.root_cert = authorities(tls)?;
    config.tls_server_name = given(&tls.server_name);
    config.auth_info.client_certificate = given(&tls.cert_file);
    config.auth_info.client_certificate_data = given(&tls.cert_data);
    config.auth_info.client_key = given(&tls.key_file);
    config.auth_info.client_key_data = given(&tls.key_data).map(Into::into);
    Ok(config)
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// The certificates of those whose word counts; what stands in the configuration wins over a file.
fn authorities(tls: &Tls) -> Result<Option<Vec<Vec<u8>>>, String> {
    let pem = match (tls.ca_data.is_empty(), tls.ca_file.is_empty()) {
        (false, _) => STANDARD.decode(&tls.ca_data).map_err(|error| format!("caData: {error}"))?,
        (true, false) => {
            let file = PathBuf::from(&tls.ca_file);
            std::fs::read(&file).map_err(|error| format!("read {}: {error}", file.display()))?
        }
        (true, true) => return Ok(None),
    };
    let certificates = CertificateDer::pem_slice_iter(&pem).map(|one| one.map(|one| one.to_vec()));
    certificates.collect::<Result<_, _>>().map(Some).map_err(|error| error.to_string())
}
