//! The client of the server's own calls, for webhooks: its answers and error messages.

use bytes::Bytes;
use holdfast_core::apiservices::resolve::Routing;
use holdfast_core::kinds::registry;
use holdfast_core::pipeline::Settings;
use holdfast_core::stamp::Stamp;
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::{Clock, Engine, Options};
use holdfast_outbound::{CallTarget, Identity, Outbound, ServerAddress, TlsTrust, Users};
use holdfast_tests::authority::Authority;
use holdfast_tests::backend::{GROUP, ThingsServer};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

const PATIENCE: Duration = Duration::from_secs(10);

struct SystemClock;

impl Clock for SystemClock {
    fn stamp(&self) -> Stamp {
        Stamp { time: jiff::Timestamp::now(), seed: rand::random() }
    }
}

/// A client without a cluster, so it resolves no Services.
fn client(identity: Option<Identity>) -> Outbound {
    let options = Options::new(Settings::default(), Arc::new(SystemClock));
    let engine = Engine::open(Arc::new(MemoryLog::default()), Arc::new(registry().clone()), options).unwrap();
    Outbound::new(engine, Default::default(), Routing::Service, identity.map(Arc::new), Default::default())
}

fn endpoint(port: u16, path: &str, trust: &TlsTrust) -> CallTarget {
    let url = format!("https://localhost:{port}{path}").parse().unwrap();
    CallTarget { place: ServerAddress::Url(url), trust: trust.clone() }
}

#[tokio::test]
async fn documents_are_posted_and_answered() {
    let (servers, proxies) = (Authority::new("servers"), Authority::new("proxies"));
    let own = proxies.client("front", &[]);
    let identity = Identity::from_pem(own.certificate.as_bytes(), own.key.as_bytes()).unwrap();
    let outbound = client(Some(identity));
    let backend = ThingsServer::start(&servers.server(&["localhost"]), proxies.pem(), true).await;
    let trust = TlsTrust { authorities: servers.pem().into(), insecure: false, identified: true };
    let things = format!("/apis/{GROUP}/v1/namespaces/default/things");
    let sent = json!({"text": "x".repeat(100_000)});
    for _ in 0..3 {
        let mut begin = Bytes::from(sent.to_string());
        let pieces = vec![begin.split_to(50_000), begin];
        let answer =
            outbound.post_json(&endpoint(backend.port, &things, &trust), None, pieces, PATIENCE).await.unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&answer).unwrap(), sent);
    }
    let seen = backend.seen(&things);
    assert_eq!((seen.len(), &seen[0].headers["content-type"]), (3, &"application/json".parse().unwrap()));

    let refused = outbound.post_json(&endpoint(backend.port, "/nowhere", &trust), None, Vec::new(), PATIENCE).await;
    assert_eq!(refused.unwrap_err().to_string(), "the server could not find the requested resource");
    let large = Bytes::from(format!("\"{}\"", "x".repeat(33 << 20)));
    let refused = outbound.post_json(&endpoint(backend.port, &things, &trust), None, vec![large], PATIENCE).await;
    assert!(refused.unwrap_err().to_string().contains("length limit exceeded"));
}

/// Each identity shows its own certificate, and connections are not shared between identities.
#[tokio::test]
async fn users_show_their_own_certificates() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let folder = holdfast_tests::Folder::new();
    let (certificate, key) = clients.client("speaker", &[]).write(&folder.join(""), "speaker");
    let user = json!({"client-certificate": certificate, "client-key": key, "as": "jane"});
    let file = folder.join("users.kubeconfig");
    std::fs::write(&file, json!({"users": [{"name": "localhost", "user": user}]}).to_string()).unwrap();
    let users = Users::from_file(&file).unwrap();
    assert!(users.speaking_to("localhost", 8443).is_none());
    let speaker = users.speaking_to("localhost", 443).unwrap();

    let outbound = client(None);
    let backend = ThingsServer::start(&servers.server(&["localhost"]), clients.pem(), true).await;
    let trust = TlsTrust { authorities: servers.pem().into(), insecure: false, identified: false };
    let things = format!("/apis/{GROUP}/v1/namespaces/default/things");
    let target = endpoint(backend.port, &things, &trust);
    for (user, is_known) in [(None, false), (Some(&**speaker), true), (None, false)] {
        let answer = outbound.post_json(&target, user, vec![Bytes::from_static(b"{}")], PATIENCE).await;
        assert_eq!(answer.is_ok(), is_known, "{answer:?}");
    }
    assert_eq!(backend.seen(&things)[0].headers["impersonate-user"], "jane");
}

#[tokio::test]
async fn faults_are_told_in_the_words_of_gos_client() {
    let (servers, proxies) = (Authority::new("servers"), Authority::new("proxies"));
    let backend = ThingsServer::start(&servers.server(&["other.example.com"]), proxies.pem(), true).await;
    let outbound = client(None);
    let trusting = TlsTrust { authorities: servers.pem().into(), insecure: false, identified: false };
    let strangers = TlsTrust { authorities: Authority::new("strangers").pem().into(), ..trusting.clone() };
    let machine = TlsTrust::default();
    let insecure = TlsTrust { insecure: true, ..TlsTrust::default() };
    // Calls must fail at a server that never answers, at a port without a server, and at a server that speaks another
    // protocol.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_port = silent.local_addr().unwrap().port();
    let gone_port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let babbling = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let babbling_port = babbling.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = babbling.accept().await {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let port = backend.port;
    let verify = "tls: failed to verify certificate: x509: ";
    for (port, trust, expected) in [
        (port, &trusting, format!("{verify}certificate is valid for other.example.com, not localhost")),
        (port, &strangers, format!("{verify}certificate signed by unknown authority")),
        (port, &machine, format!("{verify}certificate signed by unknown authority")),
        (port, &insecure, "remote error: tls: certificate required".into()),
        (silent_port, &trusting, "context deadline exceeded".into()),
        (gone_port, &trusting, format!("dial tcp 127.0.0.1:{gone_port}: connect: connection refused")),
        (babbling_port, &trusting, "tls: first record does not look like a TLS handshake".into()),
    ] {
        let patience = if port == silent_port { Duration::from_millis(300) } else { PATIENCE };
        let found =
            outbound.post_json(&endpoint(port, "/convert", trust), None, Vec::new(), patience).await.unwrap_err();
        let found = found.to_string().replace("[::1]", "127.0.0.1");
        assert_eq!(found, format!("Post \"https://localhost:{port}/convert\": {expected}"));
    }
    let service = CallTarget::service("default", "hook", 443, "/convert?timeout=10s", trusting);
    let found = outbound.post_json(&service, None, Vec::new(), PATIENCE).await.unwrap_err().to_string();
    let url = "https://hook.default.svc:443/convert?timeout=10s";
    assert_eq!(found, format!("Post \"{url}\": service \"hook\" not found"));
}
