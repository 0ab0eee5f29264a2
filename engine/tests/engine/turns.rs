//! Tests that no request is refused for a race, even if many requests write the same object or a webhook is slow. The
//! only exception is a webhook that itself writes the object.

use super::stage::{Stage, config_map, create, patch, poll, set};
use async_trait::async_trait;
use holdfast_core::Refusal;
use holdfast_core::kinds::{Kind, KindId, registry};
use holdfast_core::object::meta::Document;
use holdfast_core::pipeline::{Settings, SignedToken, TokenClaims};
use holdfast_core::request::Request;
use holdfast_core::stamp::Stamp;
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::{Clock, Engine, Options, Outside, Reply};
use holdfast_value::{Value, json};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinSet;

type Mutation = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;

fn mutation(stage: &Stage, request: Request) -> Mutation {
    let engine = stage.engine.clone();
    Box::pin(async move { engine.mutate(&request).await })
}

fn stage() -> Stage {
    let mut stage = Stage::new(Arc::new(MemoryLog::default()));
    stage.must(&config_map("a"));
    stage
}

fn is_done(mutation: &mut Mutation) -> bool {
    match poll(mutation) {
        Poll::Ready(outcome) => {
            assert!(outcome.is_ok(), "{:?}", outcome.err());
            true
        }
        Poll::Pending => false,
    }
}

/// Runs rounds. In each round a new writer writes before the slow request. Returns how many rounds the slow request
/// needed, and the requests that still wait.
fn rounds(stage: &mut Stage, slow: &mut Mutation, max: usize) -> (Option<usize>, Vec<Mutation>) {
    let mut fast = Vec::new();
    for round in 0..max {
        fast.push(mutation(stage, set("a", &format!("fast {round}"))));
        fast.retain_mut(|fast| !is_done(fast));
        if is_done(slow) {
            return (Some(round), fast);
        }
        stage.commit();
    }
    (None, fast)
}

fn finish(stage: &mut Stage, mut waiting: Vec<Mutation>) {
    for _ in 0..100 {
        waiting.retain_mut(|waiting| !is_done(waiting));
        if waiting.is_empty() {
            return;
        }
        stage.commit();
    }
    panic!("{} wait for ever", waiting.len());
}

#[test]
fn who_always_comes_second_gets_its_turn() {
    let mut stage = stage();
    let mut slow = mutation(&stage, set("a", "slow"));
    let (done, waiting) = rounds(&mut stage, &mut slow, 50);
    assert!(done.is_some(), "others always came first");
    finish(&mut stage, waiting);
}

#[test]
fn who_goes_away_in_its_turn_lets_the_others_go_on() {
    let mut stage = stage();
    let mut slow = mutation(&stage, set("a", "slow"));
    // After five lost races the slow request gets its turn.
    let (done, mut waiting) = rounds(&mut stage, &mut slow, 5);
    assert_eq!(done, None);
    let mut next = mutation(&stage, set("a", "next"));
    assert!(!is_done(&mut next));
    stage.commit();
    assert!(!is_done(&mut next), "it waits for the one whose turn it is");
    drop(slow);
    waiting.push(next);
    finish(&mut stage, waiting);
    // A further write succeeds at once, because no queue is left.
    stage.must(&set("a", "last"));
}

#[test]
fn a_turn_on_one_object_holds_up_no_other() {
    let mut stage = stage();
    stage.must(&config_map("b"));
    let mut slow = mutation(&stage, set("a", "slow"));
    let (done, waiting) = rounds(&mut stage, &mut slow, 5);
    assert_eq!(done, None);
    stage.must(&set("b", "other"));
    let mut waiting = waiting;
    waiting.push(slow);
    finish(&mut stage, waiting);
}

struct SystemClock;

impl Clock for SystemClock {
    fn stamp(&self) -> Stamp {
        Stamp { time: jiff::Timestamp::now(), seed: 1 }
    }
}

/// A slow conversion webhook that changes only the name of the version.
#[derive(Default)]
struct SlowWebhook {
    /// A write that is made while the webhook is called.
    own_write: Mutex<Option<(Weak<Engine>, Request)>>,
    asked: AtomicUsize,
}

#[async_trait]
impl Outside for SlowWebhook {
    async fn review(&self, _: &holdfast_core::admission::Call) -> Result<Vec<u8>, String> {
        Err("there is none".into())
    }

    async fn convert(&self, _: &Kind, _: &Value, to: &str, objects: Vec<Value>) -> Result<Vec<Document>, Refusal> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(5)).await;
        let own_write = self.own_write.lock().unwrap().clone();
        if let Some((engine, write)) = own_write {
            let engine = engine.upgrade().unwrap();
            // The value differs each time, because an unchanged object gets no new version.
            let value = self.asked.load(Ordering::Relaxed);
            let body = patch("configmaps", "default", "one", json!({"spec": {"own": value}})).body;
            engine.mutate(&Request { body, ..write }).await?;
        }
        let converted = objects.into_iter().map(|object| {
            let mut object = object.as_object().cloned().unwrap_or_default();
            object.insert("apiVersion", to.into());
            object
        });
        Ok(converted.collect())
    }

    async fn authorize(&self, _: &holdfast_core::authz::webhook::Question) -> holdfast_core::authz::webhook::Answer {
        Err("there is none".into())
    }

    async fn sign(&self, _: &TokenClaims) -> Result<SignedToken, Refusal> {
        Err(Refusal::fault("there is no key"))
    }
}

fn definition() -> Value {
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    let webhook = json!({"clientConfig": {"url": "https://example.com/"}, "conversionReviewVersions": ["v1"]});
    json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "things", "kind": "Thing"},
            "scope": "Namespaced",
            "versions": [version("v1", true), version("v2", false)],
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        },
    })
}

fn found(engine: &Engine, version: &str) -> (KindId, usize) {
    engine.snapshot().registry.find("example.com", version, "things").unwrap()
}

fn to_thing(engine: &Engine, mut request: Request, version: &str) -> Request {
    (request.target.kind, request.target.version) = found(engine, version);
    request
}

/// An engine with one object of a kind that a webhook converts.
async fn with_a_thing(webhook: Arc<SlowWebhook>) -> Arc<Engine> {
    let options = Options::new(Settings::default(), Arc::new(SystemClock));
    let engine = Engine::open(Arc::new(MemoryLog::default()), Arc::new(registry().clone()), options).unwrap();
    engine.set_outside(webhook);
    let done = |outcome: Result<Reply, Refusal>| assert!(outcome.is_ok(), "{:?}", outcome.err());
    done(engine.mutate(&create("namespaces", "", json!({"metadata": {"name": "default"}}))).await);
    done(engine.mutate(&create("customresourcedefinitions", "", definition())).await);
    let thing = create("configmaps", "default", json!({"metadata": {"name": "one"}}));
    done(engine.mutate(&to_thing(&engine, thing, "v1")).await);
    engine
}

/// The webhook's own write waits for the turn of the request that waits for the webhook. So the turn must end, and the
/// request must be refused with a conflict.
#[test]
fn a_webhook_that_writes_what_it_is_asked_about_ends_in_a_conflict() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let webhook = Arc::new(SlowWebhook::default());
        let engine = with_a_thing(webhook.clone()).await;
        let change = |field: &str, version| {
            to_thing(&engine, patch("configmaps", "default", "one", json!({"spec": {field: 1}})), version)
        };
        let own = change("own", "v1");
        *webhook.own_write.lock().unwrap() = Some((Arc::downgrade(&engine), own));
        let refused = engine.mutate(&change("outer", "v2")).await.err().expect("a conflict");
        assert!(matches!(refused, Refusal::Conflict { .. }), "{refused:?}");
        // There were five attempts. Each attempt converts the object to the other version and back.
        assert_eq!(webhook.asked.load(Ordering::Relaxed), 10);
        *webhook.own_write.lock().unwrap() = None;
        assert!(engine.mutate(&change("outer", "v2")).await.is_ok());
        engine.close();
    });
}

#[test]
fn writers_with_a_slow_webhook_all_get_through() {
    const WRITERS: usize = 24;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let engine = with_a_thing(Arc::new(SlowWebhook::default())).await;
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            // Writes in the stored version need no webhook, so they always overtake the request that waits for the
            // webhook.
            let version = if writer % 2 == 0 { "v1" } else { "v2" };
            let engine = engine.clone();
            let field = format!("w{writer}");
            let change = to_thing(&engine, patch("configmaps", "default", "one", json!({"spec": {field: 1}})), version);
            writers.spawn(async move {
                for _ in 0..3 {
                    let outcome = engine.mutate(&change).await;
                    assert!(outcome.is_ok(), "{:?}", outcome.err());
                }
            });
        }
        while let Some(writer) = writers.join_next().await {
            writer.unwrap();
        }
        let state = engine.snapshot();
        let thing = state.get(found(&engine, "v1").0, "default/one").unwrap().document();
        assert_eq!(thing["spec"].as_object().unwrap().len(), WRITERS);
        engine.close();
    });
}
