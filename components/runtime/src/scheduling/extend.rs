//! Calls extenders over HTTP: posts a JSON document to the path of a verb, and reads the JSON document in the answer.

use super::answer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdfast_scheduler::configuration::extender::{Extender, Tls};
use holdfast_value::Value;
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Limited};
use kube::{Client, Config};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// The maximum size of an answer in bytes is this number plus twice the size of the request. An answer contains names
/// and reasons, or whole nodes.
const ANSWER_MAX: usize = 16 << 20;

/// The HTTP clients of extenders. A client is made at the first call. Extenders at one address may have different TLS
/// settings, so the TLS settings are part of the key.
#[derive(Default)]
pub struct Extenders {
    clients: Mutex<HashMap<ClientSettings, Client>>,
}

/// The settings of a client: the URL prefix, whether HTTPS is enabled, and the TLS settings.
type ClientSettings = (String, bool, Tls);

impl Extenders {
    pub async fn call(&self, extender: &Extender, verb: &str, body: &Value) -> Result<Value, String> {
        let url = format!("{}/{verb}", extender.url_prefix.trim_end_matches('/'));
        let call = async {
            let client = self.client(extender)?;
            let request = Request::builder().method(Method::POST).uri(format!("/{}", verb.trim_start_matches('/')));
            let request = request.header("Content-Type", "application/json");
            let request_body = body.to_string().into_bytes();
            let most = request_body.len().saturating_mul(2).saturating_add(ANSWER_MAX);
            let request = request.body(request_body.into()).map_err(|error| error.to_string())?;
            let response = client.send(request).await.map_err(|error| format!("Post \"{url}\": {error}"))?;
            if response.status() != http::StatusCode::OK {
                let code = response.status().as_u16();
                return Err(format!("failed {verb} with extender at URL {url}, code {code}"));
            }
            let body = Limited::new(response.into_body(), most).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            // A large answer is parsed on another thread, so that other tasks on this thread are not delayed.
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
        let address = (extender.url_prefix.clone(), extender.enable_https, extender.tls.clone());
        if let Some(client) = clients.get(&address) {
            return Ok(client.clone());
        }
        let client = Client::try_from(config(extender)?).map_err(|error| error.to_string())?;
        clients.insert(address, client.clone());
        Ok(client)
    }
}

fn config(extender: &Extender) -> Result<Config, String> {
    let url: Uri = extender.url_prefix.trim_end_matches('/').parse().map_err(|error| format!("{error}"))?;
    let mut config = Config::new(url);
    // Each call has its own time limit, and a failed call is not repeated.
    config.default_retry = false;
    let tls = &extender.tls;
    let trusted = !(tls.ca_file.is_empty() && tls.ca_data.is_empty());
    config.accept_invalid_certs = tls.insecure || (extender.enable_https && !trusted);
    config.root_cert = trusted_certificates(tls)?;
    config.tls_server_name = non_empty(&tls.server_name);
    config.auth_info.client_certificate = non_empty(&tls.cert_file);
    config.auth_info.client_certificate_data = non_empty(&tls.cert_data);
    config.auth_info.client_key = non_empty(&tls.key_file);
    config.auth_info.client_key_data = non_empty(&tls.key_data).map(Into::into);
    Ok(config)
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// The CA certificates that the client trusts. The data in the configuration is used even if the configuration names a
/// file, too.
fn trusted_certificates(tls: &Tls) -> Result<Option<Vec<Vec<u8>>>, String> {
    let pem = match (tls.ca_data.is_empty(), tls.ca_file.is_empty()) {
        (false, _) => STANDARD.decode(&tls.ca_data).map_err(|error| format!("caData: {error}"))?,
        (true, false) => {
            let file = PathBuf::from(&tls.ca_file);
            std::fs::read(&file).map_err(|error| format!("read {}: {error}", file.display()))?
        }
        (true, true) => return Ok(None),
    };
    let certificates = CertificateDer::pem_slice_iter(&pem).map(|one| one.map(|one| one.to_vec()));
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    match certificates.is_empty() {
        true => Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned()),
        false => Ok(Some(certificates)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    /// The result of a call to a server that sends `first` and then sends `more` again and again.
    async fn call_result(first: &'static [u8], more: Vec<u8>) -> Result<Value, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, first, more.clone()));
            }
        });
        let url_prefix = format!("http://{address}");
        let extender = Extender { url_prefix, http_timeout_seconds: 2.0, ..Extender::default() };
        Extenders::default().call(&extender, "filter", &json!({"Pod": null})).await
    }

    async fn answer(mut stream: TcpStream, first: &'static [u8], more: Vec<u8>) {
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(first).await;
        while !more.is_empty() && stream.write_all(&more).await.is_ok() {}
        // The server keeps the connection open and sends nothing more.
        std::future::pending::<()>().await;
    }

    #[tokio::test]
    async fn each_extender_has_its_own_tls_settings() {
        let url_prefix = "https://127.0.0.1:1/".to_owned();
        let own = Extender { url_prefix, tls: Tls { insecure: true, ..Tls::default() }, ..Extender::default() };
        let ca_data = STANDARD.encode("no certificate");
        let other = Extender { tls: Tls { ca_data, ..Tls::default() }, ..own.clone() };
        let extenders = Extenders::default();
        assert!(extenders.client(&own).is_ok());
        assert!(extenders.client(&other).is_err());
    }

    fn chunk(text: &str) -> Vec<u8> {
        format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
    }

    #[tokio::test]
    async fn calls_of_extenders_are_bounded_in_time_and_size() {
        const ENDLESS: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[0\r\n";
        for (what, first, more, why) in [
            ("it says nothing", &b""[..], Vec::new(), "context deadline exceeded"),
            ("it begins", ENDLESS, Vec::new(), "context deadline exceeded"),
            ("it never ends", ENDLESS, chunk(&",0".repeat(1 << 20)), "length limit exceeded"),
            ("it says nonsense", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{{{{", Vec::new(), "answer of"),
            ("it speaks another language", b"SSH-2.0-x\r\n", Vec::new(), "Post \"http://"),
            (
                "it sends elsewhere",
                b"HTTP/1.1 307 x\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
                Vec::new(),
                "code 307",
            ),
        ] {
            let error = call_result(first, more).await.expect_err(what);
            assert!(error.contains(why), "{what}: {error}");
        }
        let good = b"HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{\"nodeNames\":[]}\n";
        assert_eq!(call_result(good, Vec::new()).await, Ok(json!({"nodeNames": []})));
    }
}
