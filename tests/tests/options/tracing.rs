//! Spans of requests, as a collector receives them.

use super::{MAPS, text_of};
use bytes::Bytes;
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, eventually};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A span collector that keeps the messages received.
async fn collector() -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
    let seen = kept.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let seen = seen.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let seen = seen.clone();
                async move {
                    assert_eq!(request.uri().path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
                    let body = request.into_body().collect().await?.to_bytes();
                    seen.lock().unwrap().extend(&body[5..]);
                    let answer = Full::new(Bytes::from_static(b"\0\0\0\0\0"));
                    Ok::<_, hyper::Error>(Response::builder().header("grpc-status", "0").body(answer).unwrap())
                }
            });
            let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    (address, kept)
}

#[tokio::test]
async fn requests_are_followed_to_a_collector() {
    let (address, kept) = collector().await;
    let folder = Folder::new();
    let file = folder.join("tracing.yaml");
    let text =
        format!("apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\nendpoint: {address}\n");
    std::fs::write(&file, text).expect("write");
    let server = Server::start(&folder.join("data"), &["--tracing-config-file", text_of(&file)]);
    let admin = HttpClient::admin(&server);
    let parent = [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")];
    // The webhook's address has no server. The call of the webhook is traced nevertheless.
    let webhook = json!({"metadata": {"name": "absent"}, "webhooks": [{
        "name": "absent.example.com", "clientConfig": {"url": "https://127.0.0.1:1/absent"}, "failurePolicy": "Ignore",
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
    }]});
    let webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    admin.post(webhooks, &webhook).await.expect(201);
    admin.get(&format!("{MAPS}/unfollowed")).await.expect(404);
    admin.post(MAPS, &json!({"metadata": {"name": "unfollowed"}})).await.expect(201);
    admin.send(Method::GET, &format!("{MAPS}/followed"), &parent, "").await.expect(404);
    let made = json!({"metadata": {"name": "made"}}).to_string();
    let json = ("content-type", "application/json");
    admin.send(Method::POST, MAPS, &[parent[0], json], made).await.expect(201);
    let (sent, calls) = eventually(Duration::from_secs(20), || async {
        let sent = kept.lock().unwrap().clone();
        let calls = sent.windows(9).filter(|window| window == b"HTTP POST").count();
        if calls == 0 { Err("nothing has come of the webhook") } else { Ok((sent, calls)) }
    })
    .await;
    let has = |bytes: &[u8]| sent.windows(bytes.len()).any(|window| window == bytes);
    assert!(has(b"GET /api/v1/namespaces/{:namespace}/configmaps/{:name}"));
    assert!(has(b"POST /api/v1/namespaces/{:namespace}/configmaps"));
    assert!(has(b"https://127.0.0.1:1/absent?timeout=10s"));
    assert_eq!(calls, 1, "the webhook was called for one request that is followed");
    assert!(
        has(&0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes())
            && has(&0xb7ad_6b71_6920_3331_u64.to_be_bytes())
    );
    assert!(has(b"/configmaps/followed") && !has(b"/configmaps/unfollowed"));
    server.stop();

    std::fs::write(
        &file,
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: -1\n",
    )
    .expect("write");
    let refused = Server::try_start(&folder.join("data"), &["--tracing-config-file", text_of(&file)]).err();
    let refused = refused.expect("a refusal").stderr;
    assert!(refused.contains("--tracing-config-file") && refused.contains("samplingRatePerMillion"), "{refused}");
    let missing = Server::try_start(&folder.join("data"), &["--tracing-config-file=/nowhere.yaml"]).err();
    assert!(missing.expect("a refusal").stderr.contains("/nowhere.yaml"));
}
