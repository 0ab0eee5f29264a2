//! Validation of a claim's status: the claim's allocation, the allocation's users, and the devices' state.

use super::shapes::LIST_MAX;
use super::shapes::{configuration, device_name, parameters, pool_name};
use super::validate::{Requests, reference, references, requests};
use crate::kinds::core::validate::node_selector;
use crate::kinds::rules::{At, IMMUTABLE, Seen, distinct, same};
use crate::kinds::shapes::{at_most, conditions, distinct_items, driver_name, need_one_of, not_longer};
use crate::object::address::network;
use crate::refusal::{Cause, Causes};
use holdfast_value::{Value, json};
use std::collections::BTreeSet;

const RESERVED_MAX: usize = 256;
const CONDITIONS_MAX: usize = 8;
const DATA_BYTES_MAX: usize = 10 * 1024;
const INTERFACE_BYTES_MAX: usize = 256;
const HARDWARE_BYTES_MAX: usize = 128;
const IPS_MAX: usize = 16;

pub fn claim(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let known = requests(spec.get("devices").value);
    let status = root.get("status");
    let (reserved, allocation) = (status.get("reservedFor"), status.get("allocation"));
    for user in reserved.items() {
        for field in ["resource", "name", "uid"] {
            if user.get(field).is_empty() {
                causes.push(user.get(field).required(""));
            }
        }
    }
    at_most(reserved, RESERVED_MAX, &mut causes);
    distinct(reserved, "uid", &mut causes);
    device_statuses(status, &mut causes);
    if !reserved.is_empty() && !allocation.is_set() {
        causes.push(reserved.forbidden("may not be specified when `allocated` is not set"));
    }
    let before = old.map_or(&Value::Null, |old| &old["status"]);
    if !new["metadata"]["deletionTimestamp"].is_null() {
        let known = before["reservedFor"].as_array().map_or(&[][..], Vec::as_slice);
        let known: BTreeSet<String> = known.iter().map(Value::to_string).collect();
        if reserved.items().any(|user| !known.contains(&user.value.to_string())) {
            let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            causes.push(reserved.forbidden(detail));
        }
    }
    if allocation.is_set() {
        if before["allocation"].is_null() {
            allocated(allocation, &known, &mut causes);
        } else if !same(allocation.value, &before["allocation"]) {
            causes.push(allocation.invalid(IMMUTABLE));
        }
    }
    causes
}

fn allocated(allocation: At, known: &Requests, causes: &mut Causes) {
    let devices = allocation.get("devices");
    let (results, configs) = (devices.get("results"), devices.get("config"));
    for result in results.items() {
        reference(result.get("request"), known, causes);
        device_place(result, causes);
    }
    at_most(results, LIST_MAX, causes);
    for config in configs.items() {
        need_one_of(config.get("source"), &["FromClaim", "FromClass"], causes);
        references(config.get("requests"), known, causes);
        configuration(config, causes);
    }
    at_most(configs, 2 * LIST_MAX, causes);
    if allocation.get("nodeSelector").is_set() {
        node_selector(allocation.get("nodeSelector"), causes);
    }
}

fn device_place(at: At, causes: &mut Causes) {
    driver_name(at.get("driver"), causes);
    pool_name(at.get("pool"), causes);
    device_name(at.get("device"), causes);
}

fn device_statuses(status: At, causes: &mut Causes) {
    let place = |at: &Value| ["driver", "pool", "device", "shareID"].map(|field| at[field].clone());
    let allocated = &status.value["allocation"]["devices"]["results"];
    let allocated = allocated.as_array().map_or(&[][..], Vec::as_slice);
    let allocated: BTreeSet<String> = allocated.iter().map(|result| json!(place(result)).to_string()).collect();
    let mut seen = Seen::default();
    for device in status.get("devices").items() {
        device_place(device, causes);
        let id = json!(place(device.value));
        let text = ["driver", "pool", "device"].map(|field| device.get(field).text()).join("/");
        if !allocated.contains(&id.to_string()) {
            causes.push(Cause::invalid(
                device.path(),
                &text.as_str().into(),
                "must be an allocated device in the claim",
            ));
        }
        if seen.again(&id) {
            causes.push(Cause::duplicate(device.get("deviceID").path(), &text.into()));
        }
        at_most(device.get("conditions"), CONDITIONS_MAX, causes);
        conditions(device.get("conditions"), causes);
        let data = device.get("data");
        if data.is_set() {
            parameters(data, DATA_BYTES_MAX, causes);
        }
        let interface = device.get("networkData");
        not_longer(interface.get("interfaceName"), INTERFACE_BYTES_MAX, causes);
        not_longer(interface.get("hardwareAddress"), HARDWARE_BYTES_MAX, causes);
        let addresses = interface.get("ips");
        at_most(addresses, IPS_MAX, causes);
        distinct_items(addresses, causes);
        for address in addresses.items() {
            if network(address.text()).is_none() {
                let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
                causes.push(address.invalid(detail));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::validate::tests::claim;
    use crate::kinds::rules::testing::check_part;
    use holdfast_value::{Value, json};

    #[test]
    fn what_is_told_of_claims() {
        let result = json!({"request": "r", "driver": "d.example.com", "pool": "p", "device": "x"});
        let mut done = claim();
        done["status"] = json!({
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}],
        });
        check_part(
            &claim(),
            "status",
            &[
                ("/status", done["status"].clone(), ""),
                (
                    "/status/reservedFor",
                    done["status"]["reservedFor"].clone(),
                    "status.reservedFor: Forbidden: may not b",
                ),
                (
                    "/status/allocation",
                    json!({"devices": {"results": [{"request": "x", "driver": "d", "pool": "p", "device": "x"}]}}),
                    "status.allocation.devices.results[0].request: Invalid value: \"x\": must be the name of a request",
                ),
            ],
        );
        check_part(
            &done,
            "status",
            &[
                ("/status/reservedFor/0/uid", json!(""), "status.reservedFor[0].uid: Required value"),
                ("/status/allocation/devices/results/0/device", json!("y"), "status.allocation: Invalid value: {"),
                ("/status/allocation", Value::Null, "status.reservedFor: Forbidden: may not be specified when"),
                (
                    "/status/devices",
                    json!([{"driver": "d.example.com", "pool": "p", "device": "y"}]),
                    "status.devices[0]: Invalid value: \"d.example.com/p/y\": must be an allocated device in the claim",
                ),
                (
                    "/status/devices",
                    json!([{"driver": "d.example.com", "pool": "p", "device": "x",
                        "networkData": {"ips": ["10.0.0.1"]}}]),
                    "status.devices[0].networkData.ips[0]: Invalid value: \"10.0.0.1\": must be a valid address in CIDR",
                ),
            ],
        );
        let mut going = done;
        going["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        let user = json!({"resource": "pods", "name": "q", "uid": "2"});
        let added = "status.reservedFor: Forbidden: new entries may not be added while";
        check_part(&going, "status", &[("/status/reservedFor/1", user, added)]);
    }
}
