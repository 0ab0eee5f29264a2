//! Determines which devices a claim can get on a node.

pub mod allocate;
pub(super) mod device_counter;
mod expression;
pub mod extended_resources;
pub(crate) mod in_use;
mod limits;
pub(crate) mod pools;
pub mod searches;

#[cfg(test)]
mod tests {
    use super::in_use::DevicesInUse;
    use super::pools::Pools;
    use crate::object::{Key, Kind};
    use crate::snapshot::Snapshot;
    use crate::snapshot::assume::Reservation;
    use holdfast_value::{Value, json};
    use proptest::prelude::*;

    fn devices(first: u8, second: u8, shared: bool) -> Value {
        let device = |at: u8| {
            let mut result = json!({"request": "r", "driver": "d", "pool": "p", "device": format!("{}", at % 3)});
            if shared {
                result["shareID"] = "s".into();
                result["consumedCapacity"] = json!({"memory": format!("{at}Gi")});
            }
            result["adminAccess"] = (at % 5 == 4).into();
            result
        };
        json!({"devices": {"results": [device(first), device(second)]}})
    }

    fn claim(name: u8, allocation: Value) -> (Key, Value) {
        let meta = json!({"name": name.to_string(), "namespace": "a", "uid": name.to_string()});
        (Key::new("a", &name.to_string()), json!({"metadata": meta, "status": {"allocation": allocation}}))
    }

    fn slice(name: u8, pool: u8, generation: u8, node: u8) -> (Key, Value) {
        let mut spec = json!({"driver": "d", "devices": [{"name": "0"}],
            "pool": {"name": pool.to_string(), "generation": generation, "resourceSliceCount": 1}});
        match node {
            0 => spec["allNodes"] = true.into(),
            node => spec["nodeName"] = node.to_string().into(),
        }
        (Key::cluster(&name.to_string()), json!({"spec": spec}))
    }

    fn assert_indexes_match_tables(snapshot: &Snapshot) {
        let (mut pools, mut in_use) = (Pools::default(), DevicesInUse::default());
        snapshot.device_slices.iter().for_each(|(key, slice)| pools.slice_changed(key, None, Some(slice)));
        for claim in snapshot.device_claims.values() {
            in_use.claim_changed(None, claim.allocation.as_ref());
        }
        assert_eq!(snapshot.device_pools, pools);
        assert_eq!(snapshot.devices_in_use, in_use);
    }

    proptest! {
        #[test]
        fn indexes_follow_from_the_tables(steps in prop::collection::vec((0..8u8, 0..4u8, 0..6u8, 0..6u8), 1..60)) {
            let mut snapshot = Snapshot::new();
            for (step, name, one, other) in steps {
                let pod = Key::new("a", &name.to_string());
                match step {
                    0 | 1 => {
                        let (key, slice) = slice(name, one % 2, other % 2, one % 3);
                        snapshot.apply(Kind::ResourceSlice, &key, Some(&slice));
                    }
                    2 => _ = snapshot.apply(Kind::ResourceSlice, &Key::cluster(&name.to_string()), None),
                    3 | 4 => {
                        let (key, claim) = claim(name, if step == 3 { devices(one, other, one > 3) } else { json!(null) });
                        snapshot.apply(Kind::ResourceClaim, &key, Some(&claim));
                    }
                    5 => _ = snapshot.apply(Kind::ResourceClaim, &pod, None),
                    6 => {
                        let meta = json!({"name": name.to_string(), "namespace": "a", "uid": name.to_string()});
                        snapshot.apply(Kind::Pod, &pod, Some(&json!({"metadata": meta, "spec": {}})));
                        let (key, chosen) = claim(other % 4, devices(one, other, one > 3));
                        let chosen = crate::object::device_claim::Claim::decode(&mut Default::default(), key.clone(), &chosen);
                        let devices = vec![(key, chosen.allocation.unwrap())];
                        snapshot.assume(&pod, &"n".into(), &Reservation { devices, ..Reservation::default() });
                    }
                    _ => snapshot.forget(&pod),
                }
                assert_indexes_match_tables(&snapshot);
            }
        }
    }
}
