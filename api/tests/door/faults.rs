//! A fault in one call ends only that call.

use crate::people::{admin, ask, call, cluster, map, must, named};
use futures_util::future::BoxFuture;
use holdfast_core::Refusal;
use holdfast_core::admission::Told;
use holdfast_core::refusal::Internal;
use holdfast_core::request::Verb;
use holdfast_core::state::State;
use holdfast_service::{AnswerCode, Limits, Options, Reviewed, Statuses, Tokens};
use holdfast_value::{Value, json};
use std::sync::Arc;

/// An authenticator that panics at any token.
struct Broken;

impl Tokens for Broken {
    fn review<'a>(
        &'a self,
        _: &'a State,
        _: &'a str,
        _: &'a [String],
        _: &'a mut Told,
    ) -> BoxFuture<'a, Result<Reviewed, String>> {
        panic!("a fault of the server")
    }
}

#[tokio::test]
async fn a_panic_ends_one_request_and_gives_its_place_back() {
    let limits = Limits { reading_max: 1, mutating_max: 1 };
    // This transport gives every answer the code 500.
    let statuses = Statuses { code: |_| AnswerCode(500), ..Statuses::default() };
    let tokens = Arc::new(Broken);
    let service = cluster(Options { limits, tokens, statuses, ..Options::default() }).await;
    let review = json!({"spec": {"token": "t"}});
    for _ in 0..3 {
        let call = call(&admin(), named(Verb::Create, "/apis/authentication.k8s.io/v1/tokenreviews", &review));
        let refusal = service.call(call).await.reply.expect_err("a fault");
        assert!(matches!(&refusal, Refusal::Internal(Internal::Panicked)), "{refusal:?}");
    }
    must(&service, Verb::Create, "/api/v1/namespaces/default/configmaps", map("a")).await;
    let metrics = service.metrics().await;
    let is_counted = |line: &str| line.contains("resource=\"tokenreviews\"") && line.contains("code=\"500\"");
    assert!(metrics.lines().any(is_counted), "{metrics}");
    service.engine().close();
}

#[tokio::test]
async fn what_strangers_make_up_is_counted_without_a_name() {
    let service = cluster(Options::default()).await;
    for number in 0..20 {
        let path = format!("/apis/made.up-{number}/v1/namespaces/n{number}/things{number}/x");
        let refusal = ask(&service, &admin(), Verb::Get, &path, Value::Null).await.expect_err("no such path");
        assert_eq!(refusal, Refusal::NoSuchPath);
        let path = format!("/api/v1/namespaces/default/configmaps/x/made-up-{number}");
        ask(&service, &admin(), Verb::Get, &path, Value::Null).await.expect_err("no such subresource");
    }
    let metrics = service.metrics().await;
    assert!(!metrics.contains("made-up") && !metrics.contains("things") && !metrics.contains("made.up"), "{metrics}");
    service.engine().close();
}
