//! Health checks include the writer: a server that accepts no writes is not ready, and `/livez` fails on a server whose
//! writer has panicked.

use holdfast_engine::memory::{MemoryLog, Planned};
use holdfast_tests::memory::Memory;
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use std::sync::Arc;

/// The code and body of a path.
async fn check(admin: &Client, path: &str) -> (u16, String) {
    let request = Request::get(path).body(Vec::new()).expect("a request");
    match admin.request_text(request).await {
        Ok(text) => (200, text),
        Err(Error::Api(status)) => (status.code, status.message.clone()),
        Err(error) => panic!("{path}: {error}"),
    }
}

async fn write(admin: &Client, name: &str) -> Result<(), Error> {
    let map = ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some(name.into()), ..Default::default() },
        ..Default::default()
    };
    Api::namespaced(admin.clone(), "default").create(&PostParams::default(), &map).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_is_the_writers() {
    let log = Arc::new(MemoryLog::default());
    let server = Memory::start(log.clone()).await;
    let admin = server.admin();
    for path in ["/livez", "/readyz", "/healthz", "/livez/writer", "/readyz/writer", "/readyz/log"] {
        assert_eq!(check(&admin, path).await.0, 200, "{path}");
    }

    // With a full disk `/livez` succeeds, and `/readyz` fails.
    log.refuse_recoveries(usize::MAX);
    log.plan(Planned::Full);
    assert!(write(&admin, "full").await.is_err());
    for (path, code) in [
        ("/livez", 200),
        ("/livez/log", 200),
        ("/readyz", 500),
        ("/healthz", 500),
        ("/readyz/log", 500),
        ("/readyz/writer", 200),
    ] {
        assert_eq!(check(&admin, path).await.0, code, "{path}");
    }
    let told = check(&admin, "/readyz").await.1;
    assert!(told.contains("full"), "{told}");
    log.refuse_recoveries(0);
    write(&admin, "room").await.expect("there is room again");
    assert_eq!(check(&admin, "/readyz").await.0, 200);

    // When the writer has panicked, `/livez` fails, and writes fail with the reason.
    log.plan(Planned::Panic);
    assert!(write(&admin, "last").await.is_err());
    let engine_died = check(&admin, "/livez/writer").await;
    assert!(engine_died.0 == 500 && engine_died.1.contains("planned panic"), "{engine_died:?}");
    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(check(&admin, path).await.0, 500, "{path}");
    }
    let refused = write(&admin, "late").await.expect_err("nobody writes it");
    assert!(refused.to_string().contains("the writer died"), "{refused}");
    server.stop();
}
