//! Tests that requests of one user cannot block the requests of another user.

use crate::people::{allow, ask, call, cluster, jane, map, must, named};
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::request::Verb;
use holdfast_service::{Answer, Limits, Options, Service};
use holdfast_value::{Value, json};
use std::sync::Arc;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Sends GET requests. Their answers are not rendered yet, so the requests keep their places.
async fn hold(service: &Arc<Service>, user: &User, count: usize) -> Vec<Answer> {
    let mut held = Vec::new();
    for _ in 0..count {
        let answer = service.call(call(user, named(Verb::Get, &format!("{MAPS}/a"), &Value::Null))).await;
        if answer.reply.is_ok() {
            held.push(answer);
        }
    }
    held
}

#[tokio::test]
async fn nobody_takes_every_place() {
    let limits = Limits { reading_max: 10, mutating_max: 10 };
    let service = cluster(Options { limits, ..Options::default() }).await;
    must(&service, Verb::Create, MAPS, map("a")).await;
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]});
    let greedy = User::new("greedy", &["system:authenticated"]);
    allow(&service, &jane(), "default", rule.clone()).await;
    allow(&service, &greedy, "default", rule).await;
    let held = hold(&service, &greedy, 20).await;
    assert_eq!(held.len(), 5);
    let over = ask(&service, &greedy, Verb::Get, &format!("{MAPS}/a"), Value::Null).await;
    assert!(matches!(over, Err(Refusal::TooManyRequests { retry_after_seconds: 1, .. })), "{over:?}");
    // Writes and the requests of other users have separate places.
    ask(&service, &greedy, Verb::Create, MAPS, map("b")).await.expect("a place");
    let janes = hold(&service, &jane(), 20).await;
    assert_eq!(janes.len(), 5);
    // A privileged user must be served even when no place is left.
    must(&service, Verb::Get, &format!("{MAPS}/a"), Value::Null).await;
    drop(held);
    assert_eq!(hold(&service, &greedy, 5).await.len(), 5);
    service.engine().close();
}

#[tokio::test]
async fn waiting_reads_and_watches_hold_no_place() {
    let limits = Limits { reading_max: 2, mutating_max: 2 };
    let service = cluster(Options { limits, ..Options::default() }).await;
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]});
    allow(&service, &jane(), "default", rule).await;
    let far = service.engine().snapshot().offset.0 + 1;
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let mut named = named(Verb::List, MAPS, &Value::Null);
        named.options.resource_version = Some(far.to_string());
        let (service, call) = (service.clone(), call(&jane(), named));
        waiting.push(tokio::spawn(async move { service.call(call).await.reply }));
    }
    tokio::task::yield_now().await;
    let watches: Vec<Answer> = futures_util::future::join_all(
        (0..8).map(|_| service.call(call(&jane(), named(Verb::Watch, MAPS, &Value::Null)))),
    )
    .await;
    assert!(watches.iter().all(|answer| answer.reply.is_ok()));
    ask(&service, &jane(), Verb::List, MAPS, Value::Null).await.expect("a place");
    must(&service, Verb::Create, MAPS, map("a")).await;
    for waited in waiting {
        waited.await.unwrap().expect("the version has come");
    }
    service.engine().close();
}
