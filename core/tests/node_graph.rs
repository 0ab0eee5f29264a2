//! Tests that after any sequence of events the node authorizer's graph equals the graph that is built from the objects
//! in the state.

use holdfast_core::apply::apply;
use holdfast_core::event::Offset;
use holdfast_core::kinds::{Kind, KindId, registry};
use holdfast_core::object::Draft;
use holdfast_core::state::{Change, Entry, Index, State};
use holdfast_value::{Value, json};
use proptest::prelude::*;
use std::sync::Arc;

fn change(kind: &Kind, id: KindId, key: &str, document: &Value, offset: u64, deleted: bool) -> Change {
    let draft = Draft::new(&kind.versions[0].api_version(), &kind.kind, document.as_object().expect("an object"));
    let index = Index::new(kind, document);
    let offset = Offset(offset);
    let entry = Entry::new(draft.seal(offset), draft.head(), offset, 0, index);
    Change { offset, kind: id, key: key.into(), entry: Arc::new(entry), deleted }
}

/// Generates a pod. There are few names for the objects to which pods refer, so that pods often refer to the same
/// object.
fn pod() -> impl Strategy<Value = Value> {
    let letter = || prop::sample::select(vec!["a", "b", "c"]);
    let node = prop::sample::select(vec!["", "one", "two"]);
    let extra = (any::<bool>(), any::<bool>(), any::<bool>(), letter());
    (node, letter(), letter(), extra).prop_map(|(node, secret, claim, (mirror, debug, made, phase))| {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"nodeName": "x", "spec": "y", "status": "z"}},
            "spec": {
                "volumes": [{"name": "v", "secret": {"secretName": secret}}],
                "resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}],
            },
            "status": {"phase": phase},
        });
        if !node.is_empty() {
            pod["spec"]["nodeName"] = node.into();
        }
        if mirror {
            pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        }
        if debug {
            pod["spec"]["ephemeralContainers"] = json!([{"name": "d", "envFrom": [{"configMapRef": {"name": claim}}]}]);
        }
        if made {
            pod["status"]["resourceClaimStatuses"] = json!([{"name": "r", "resourceClaimName": claim}]);
        }
        pod
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_kept_is_what_would_be_built(events in prop::collection::vec((0..3usize, pod(), 0..5u8), 1..40)) {
        let mut state = State::new(Arc::new(registry().clone()));
        state.follow_nodes();
        let (id, _) = state.registry.find("", "v1", "pods").expect("pods");
        let kind = state.registry.share(id);
        for (number, (pod, document, chance)) in events.into_iter().enumerate() {
            let key = format!("n/p{pod}");
            let deleted = chance == 0;
            let there = state.get(id, &key).map(|entry| entry.document());
            let document = match there {
                Some(there) if deleted => there,
                None if deleted => continue,
                _ => document,
            };
            apply(&mut state, &change(&kind, id, &key, &document, number as u64 + 1, deleted));
        }
        let mut built = state.clone();
        built.follow_nodes();
        prop_assert_eq!(state.nodes, built.nodes);
    }
}
