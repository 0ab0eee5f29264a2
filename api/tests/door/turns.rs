//! Tests how requests wait for a seat, and which waiting request gets the next seat.

use crate::people::{allow, ask, call, cluster, jane, map, must, named};
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::request::Verb;
use holdfast_service::fairness::Dump;
use holdfast_service::{Answer, Limits, Options, Service};
use holdfast_value::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LONG: Duration = Duration::from_secs(600);

/// A cluster in which ordinary users share one seat.
async fn one_seat(wait_max: Duration) -> Arc<Service> {
    let limits = Limits { reading_max: 1, mutating_max: 1 };
    let service = cluster(Options { limits, fairness: Some(wait_max), ..Options::default() }).await;
    service.fairness().expect("it is fair").configure(&service.engine().snapshot());
    must(&service, Verb::Create, MAPS, map("a")).await;
    for user in [jane(), joe()] {
        allow(&service, &user, "default", json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}))
            .await;
    }
    service
}

fn joe() -> User {
    User::new("joe", &["system:authenticated"])
}

/// Makes a get. Its answer is not rendered, so the request keeps its seat until the answer is dropped.
async fn get(service: &Arc<Service>, user: &User) -> Answer {
    service.call(call(user, named(Verb::Get, &format!("{MAPS}/a"), &Value::Null))).await
}

/// The columns of the ordinary users' level in the dump, in order.
fn level(service: &Service) -> Vec<String> {
    let text = service.fairness().expect("it is fair").dump(Dump::PriorityLevels);
    let line = text.lines().find(|line| line.starts_with("global-default,")).expect("the level");
    line.split(',').map(|cell| cell.trim().to_owned()).collect()
}

async fn settle(service: &Service, waiting: &str, executing: &str) {
    while level(service)[4..6] != [waiting, executing] {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn who_finds_no_seat_waits_for_one() {
    let service = one_seat(LONG).await;
    let held = get(&service, &jane()).await;
    assert!(held.reply.is_ok() && held.record.flow().is_some_and(|flow| flow.schema == "global-default"));
    let waiting = tokio::spawn({
        let service = service.clone();
        async move { get(&service, &joe()).await.reply.map(drop) }
    });
    settle(&service, "1", "1").await;
    // Exempt users do not wait, and neither does the server itself.
    must(&service, Verb::Get, &format!("{MAPS}/a"), Value::Null).await;
    drop(held);
    waiting.await.unwrap().expect("the seat is joe's");
    settle(&service, "0", "0").await;
    service.engine().close();
}

#[tokio::test]
async fn who_waits_too_long_is_refused() {
    let service = one_seat(Duration::from_millis(10)).await;
    let held = get(&service, &jane()).await;
    let over = get(&service, &joe()).await;
    assert!(
        matches!(over.reply, Err(Refusal::TooManyRequests { retry_after_seconds: 1, .. })),
        "{:?}",
        over.reply.err()
    );
    assert!(over.record.flow().is_some());
    assert_eq!(level(&service)[7..], ["1", "1", "0"]);
    drop(held);
    ask(&service, &joe(), Verb::Get, &format!("{MAPS}/a"), Value::Null).await.expect("a seat");
    let metrics = service.metrics().await;
    let counted = "apiserver_flowcontrol_rejected_requests_total{priority_level=\"global-default\",\
                   flow_schema=\"global-default\",reason=\"time-out\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
    service.engine().close();
}

#[tokio::test]
async fn who_gives_up_leaves_the_queue() {
    let service = one_seat(LONG).await;
    let held = get(&service, &jane()).await;
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { get(&service, &joe()).await.reply.map(drop) })
        })
        .collect();
    settle(&service, "5", "1").await;
    waiting[..4].iter().for_each(tokio::task::JoinHandle::abort);
    settle(&service, "1", "1").await;
    drop(held);
    for (place, waited) in waiting.into_iter().enumerate() {
        let waited = waited.await;
        assert_eq!(waited.is_ok(), place == 4);
    }
    settle(&service, "0", "0").await;
    assert_eq!(level(&service)[7..], ["4", "0", "4"]);
    service.engine().close();
}

#[tokio::test]
async fn a_turn_that_comes_to_one_who_has_gone_goes_to_the_next() {
    let service = one_seat(LONG).await;
    for _ in 0..50 {
        let held = get(&service, &jane()).await;
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let service = service.clone();
                tokio::spawn(async move { get(&service, &joe()).await.reply.map(drop) })
            })
            .collect();
        settle(&service, "2", "1").await;
        // The first request is woken, and is cancelled before it runs.
        drop(held);
        waiting[0].abort();
        assert!(waiting.into_iter().next_back().unwrap().await.unwrap().is_ok());
        settle(&service, "0", "0").await;
    }
    service.engine().close();
}

#[tokio::test]
async fn a_write_that_many_hear_of_keeps_seats_for_a_while() {
    let limits = Limits { reading_max: 300, mutating_max: 300 };
    let service = cluster(Options { limits, fairness: Some(LONG), ..Options::default() }).await;
    allow(&service, &jane(), "default", json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]})).await;
    let mut watches = Vec::new();
    for _ in 0..25 {
        watches.push(service.call(call(&jane(), named(Verb::Watch, MAPS, &Value::Null))).await);
    }
    watches.iter_mut().for_each(|watch| drop(watch.place.take()));
    let seats = || -> u32 {
        let text = service.fairness().expect("it is fair").dump(Dump::Queues);
        let queues = text.lines().filter(|line| line.starts_with("global-default,"));
        queues.map(|line| line.split(',').nth(4).and_then(|cell| cell.trim().parse::<u32>().ok()).expect("seats")).sum()
    };
    assert_eq!(seats(), 0);
    ask(&service, &jane(), Verb::Create, MAPS, map("a")).await.expect("it is written");
    // The task that gives the seats back has not run on this thread yet.
    assert_eq!(seats(), 3);
    while seats() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    service.engine().close();
}

/// Prints how long flow control takes for a request; `--nocapture` shows it.
#[tokio::test]
async fn the_cost_of_flow_control() {
    const ROUNDS: usize = 5;
    const REQUESTS: u32 = 2_000;
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]});
    let mut best = [Duration::MAX; 2];
    let mut services = Vec::new();
    for fairness in [None, Some(LONG)] {
        let limits = Limits { reading_max: 400, mutating_max: 200 };
        let service = cluster(Options { limits, fairness, ..Options::default() }).await;
        must(&service, Verb::Create, MAPS, map("a")).await;
        allow(&service, &jane(), "default", rule.clone()).await;
        services.push(service);
    }
    for _ in 0..ROUNDS {
        for (service, best) in services.iter().zip(&mut best) {
            let began = Instant::now();
            for _ in 0..REQUESTS {
                assert!(get(service, &jane()).await.reply.is_ok());
            }
            *best = (*best).min(began.elapsed() / REQUESTS);
        }
    }
    println!("a get through the door: {:?} with in-flight limits, {:?} with priority and fairness", best[0], best[1]);
    services.iter().for_each(|service| service.engine().close());
}
