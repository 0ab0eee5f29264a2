//! Measures reads and writes of a state with few and with many objects: `cargo bench -p holdfast-core --bench state`.
//!
//! Each printed line has the times for a state with few objects and for a state with many. The two should be about
//! equal.

#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

use holdfast_core::apply::apply;
use holdfast_core::event::Offset;
use holdfast_core::kinds::KindId;
use holdfast_core::list::{Selection, page};
use holdfast_core::select::{FieldSelector, LabelSelector};
use holdfast_core::state::{Change, Entry, Index, State};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const NAMESPACES: usize = 50;
const PAGE: u64 = 500;

fn main() {
    for objects in [35_000, 1_000_000] {
        println!("{objects} objects");
        let (mut state, kind) = (State::new(Arc::new(holdfast_core::kinds::registry().clone())), KindId(0));
        let kind = state.registry.find("", "v1", "configmaps").map_or(kind, |(kind, _)| kind);
        let each = objects / NAMESPACES;
        let key = |number: usize| format!("ns-{:02}/object-{:07}", number / each, number % each);
        let began = Instant::now();
        for number in 0..objects {
            apply(&mut state, &change(kind, &key(number), number as u64 + 1));
        }
        println!("  start, an object      {:>9.3} µs", micros(began, objects));

        let selection = |prefix: &str| Selection {
            kind,
            version: 0,
            prefix: prefix.to_owned(),
            key: None,
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
        };
        for (what, prefix) in [("everywhere", ""), ("in a namespace", "ns-07/")] {
            let selection = selection(prefix);
            let first = page(&state, &selection, Some(PAGE), None);
            let measure = |which: &str, from| {
                let began = Instant::now();
                (0..200).for_each(|_| drop(black_box(page(&state, &selection, Some(PAGE), from))));
                println!("  {which} page {what:<14} {:>9.3} µs", micros(began, 200));
            };
            measure("first ", None);
            measure("second", first.next.as_ref());
        }

        // Each key is 7,919 objects after the key before it, so all objects are visited, but neighbours never one after
        // another.
        let scattered = |step: usize| key(step * 7_919 % objects);
        let keys: Vec<String> = (0..20_000).map(scattered).collect();
        let began = Instant::now();
        for key in &keys {
            black_box(state.get(kind, key));
        }
        println!("  get                   {:>9.3} µs", micros(began, keys.len()));

        for batch in [1, 16] {
            let began = Instant::now();
            for keys in keys.chunks(batch) {
                // While `snapshot` exists, a batch of writes may not change the tree nodes that it shares, and copies
                // them.
                let snapshot = state.clone();
                for key in keys {
                    let offset = state.offset.0 + 1;
                    apply(&mut state, &change(kind, key, offset));
                }
                drop(snapshot);
            }
            println!("  write, {batch:>2} at a time   {:>9.3} µs", micros(began, keys.len()));
        }
    }
}

fn change(kind: KindId, key: &str, offset: u64) -> Change {
    let entry = Entry::new(Default::default(), 0, Offset(offset), 0, Index::default());
    Change { offset: Offset(offset), kind, key: key.into(), entry: Arc::new(entry), deleted: false }
}

fn micros(began: Instant, count: usize) -> f64 {
    began.elapsed().as_secs_f64() * 1e6 / count as f64
}
