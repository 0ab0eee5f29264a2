//! A KMS plug-in on a Unix socket, in both versions. The plug-in's key can be changed. The plug-in stops when its value
//! is dropped.

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use holdfast_encryption::kms::wire::{v1, v2};
use http::{HeaderMap, Request, Response};
use prost::Message;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;

/// The length of the header of a gRPC message.
const FRAME: usize = 5;

pub struct Plugin {
    state: Arc<Mutex<PluginState>>,
    socket: PathBuf,
    runtime: Option<Runtime>,
}

struct PluginState {
    key: u8,
    healthz: String,
    /// The names of the methods that were called, in order.
    calls: Vec<String>,
}

impl Plugin {
    /// Starts a plug-in that listens on a new socket.
    pub fn start(socket: &Path) -> Plugin {
        let state = PluginState { key: 1, healthz: "ok".into(), calls: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = {
            let _inside = runtime.enter();
            UnixListener::bind(socket).expect("listen on the socket")
        };
        runtime.spawn(serve(listener, state.clone()));
        Plugin { state, socket: socket.to_owned(), runtime: Some(runtime) }
    }

    /// Encrypts later values with another key. Earlier ciphertexts can still be decrypted.
    pub fn rotate(&self) {
        self.state.lock().expect("the state").key += 1;
    }

    /// Sets the health that the plug-in reports.
    pub fn say(&self, healthz: &str) {
        self.state.lock().expect("the state").healthz = healthz.into();
    }

    /// How often a method was called.
    pub fn calls(&self, method: &str) -> usize {
        self.state.lock().expect("the state").calls.iter().filter(|call| call.ends_with(method)).count()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(listener: UnixListener, state: Arc<Mutex<PluginState>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(connection(stream, state.clone()));
    }
}

async fn connection(stream: UnixStream, state: Arc<Mutex<PluginState>>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, answer))) = connection.accept().await {
        tokio::spawn(respond(request, answer, state.clone()));
    }
}

async fn respond(request: Request<RecvStream>, mut answer: SendResponse<Bytes>, state: Arc<Mutex<PluginState>>) {
    let method = request.uri().path().to_owned();
    let mut body = request.into_body();
    let mut bytes = BytesMut::new();
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
        bytes.extend_from_slice(&data);
    }
    let done = state.lock().expect("the state").answer(&method, &bytes[FRAME.min(bytes.len())..]);
    let mut trailers = HeaderMap::new();
    let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
    let mut stream = answer.send_response(head, false).expect("the head is sent");
    match done {
        Ok(message) => {
            let length = u32::try_from(message.len()).expect("short").to_be_bytes();
            stream.send_data([&[0][..], &length, &message].concat().into(), false).expect("sent");
            trailers.insert("grpc-status", "0".parse().expect("a value"));
        }
        Err(why) => {
            trailers.insert("grpc-status", "2".parse().expect("a value"));
            trailers.insert("grpc-message", why.replace(' ', "%20").parse().expect("a value"));
        }
    }
    stream.send_trailers(trailers).expect("sent");
}

impl PluginState {
    fn answer(&mut self, method: &str, body: &[u8]) -> Result<Vec<u8>, String> {
        self.calls.push(method.to_owned());
        let id = |key: u8| format!("key-{key}");
        let note = HashMap::from([("tests.holdfast.test".to_owned(), b"a note".to_vec())]);
        Ok(match method {
            "/v2.KeyManagementService/Status" => {
                let (version, healthz) = ("v2".into(), self.healthz.clone());
                v2::StatusResponse { version, healthz, key_id: id(self.key) }.encode_to_vec()
            }
            "/v2.KeyManagementService/Encrypt" => {
                let asked = v2::EncryptRequest::decode(body).map_err(|error| error.to_string())?;
                let ciphertext = encrypted(self.key, &asked.plaintext);
                v2::EncryptResponse { ciphertext, key_id: id(self.key), annotations: note }.encode_to_vec()
            }
            "/v2.KeyManagementService/Decrypt" => {
                let asked = v2::DecryptRequest::decode(body).map_err(|error| error.to_string())?;
                let (key, plaintext) = decrypted(&asked.ciphertext)?;
                if asked.key_id != id(key) || asked.annotations != note {
                    return Err("the key id or the annotations are not those of the value".into());
                }
                v2::DecryptResponse { plaintext }.encode_to_vec()
            }
            "/v1beta1.KeyManagementService/Encrypt" => {
                let asked = v1::EncryptRequest::decode(body).map_err(|error| error.to_string())?;
                v1::EncryptResponse { cipher: encrypted(self.key, &asked.plain) }.encode_to_vec()
            }
            "/v1beta1.KeyManagementService/Decrypt" => {
                let asked = v1::DecryptRequest::decode(body).map_err(|error| error.to_string())?;
                v1::DecryptResponse { plain: decrypted(&asked.cipher)?.1 }.encode_to_vec()
            }
            other => return Err(format!("there is no {other}")),
        })
    }
}

/// This encryption is not secure, but hides the plain text.
fn encrypted(key: u8, plain: &[u8]) -> Vec<u8> {
    std::iter::once(key).chain(plain.iter().map(|byte| byte ^ 0x5a ^ key)).collect()
}

fn decrypted(sealed: &[u8]) -> Result<(u8, Vec<u8>), String> {
    let (key, sealed) = sealed.split_first().ok_or("nothing to decrypt")?;
    Ok((*key, sealed.iter().map(|byte| byte ^ 0x5a ^ key).collect()))
}
