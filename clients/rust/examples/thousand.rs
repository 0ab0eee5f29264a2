//! Measures the cost of a thousand tests that have a cluster each: `cargo run --release -p holdfast-testing --example
//! thousand`.

use holdfast_testing::Cluster;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use std::time::{Duration, Instant};

const COUNT: u32 = 1000;

async fn test(cluster: &Cluster, name: &str) {
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let map = serde_json::from_value(serde_json::json!({"metadata": {"name": name}, "data": {"a": "b"}}));
    maps.create(&PostParams::default(), &map.expect("a map")).await.expect("created");
    assert!(maps.get(name).await.expect("read").data.is_some());
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let began = Instant::now();
    let prepared = Cluster::start().await;
    println!("the first cluster of the process: {:?}", began.elapsed());
    test(&prepared, "prepared").await;
    let (began, cpu) = (Instant::now(), spent());
    for number in 0..COUNT {
        test(&prepared, &format!("number-{number}")).await;
    }
    println!("one cluster for all: {:?} a test, {:?} of CPU", began.elapsed() / COUNT, (spent() - cpu) / COUNT);
    let (began, cpu, mut asked) = (Instant::now(), spent(), Duration::ZERO);
    for _ in 0..COUNT {
        let began = Instant::now();
        let cluster = prepared.fork().await;
        asked += began.elapsed();
        test(&cluster, "mine").await;
    }
    println!("a fork for every test: {:?} a test, {:?} of CPU", began.elapsed() / COUNT, (spent() - cpu) / COUNT);
    println!("from asking for a fork to having it: {:?}", asked / COUNT);
}

/// The CPU time of all threads of this process.
fn spent() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}
