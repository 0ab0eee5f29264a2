//! Validation of Endpoints: the addresses and ports behind a service.

use crate::kinds::rules::{At, PROTOCOLS, ip, named, named_if_any, need_name, need_one_of, ordinary_ip, port_number};
use crate::object::names;
use crate::refusal::Causes;
use holdfast_value::{Value, json};

pub fn endpoints(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    for subset in root.get("subsets").items() {
        let (ready, waiting, ports) = (subset.get("addresses"), subset.get("notReadyAddresses"), subset.get("ports"));
        if ready.is_empty() && waiting.is_empty() {
            causes.push(subset.required("must specify `addresses` or `notReadyAddresses`"));
        }
        for list in [ready, waiting] {
            list.items().for_each(|entry| address(entry, &mut causes));
        }
        for entry in ports.items() {
            port(entry, ports.len() > 1, &mut causes);
        }
    }
    causes
}

fn address(entry: At, causes: &mut Causes) {
    ip(entry.get("ip"), causes);
    named_if_any(entry.get("hostname"), names::label, causes);
    let node = entry.get("nodeName");
    if node.is_set() {
        named(node, names::subdomain, causes);
    }
    ordinary_ip(entry.get("ip"), causes);
}

fn port(entry: At, several: bool, causes: &mut Causes) {
    let (name, number, protocol) = (entry.get("name"), entry.get("port"), entry.get("appProtocol"));
    if several || !name.is_empty() {
        need_name(name, names::label, causes);
    }
    let unset = json!(0);
    port_number(if number.is_set() { number } else { number.holding(&unset) }, causes);
    need_one_of(entry.get("protocol"), PROTOCOLS, causes);
    if protocol.is_set() {
        named(protocol, names::qualified_name, causes);
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use holdfast_value::json;

    #[test]
    fn each_rule_of_endpoints() {
        let good = json!({
            "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "a"},
            "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}],
        });
        let ip = "/subsets/0/addresses/0/ip";
        check_rows(
            &good,
            &[
                (
                    "/subsets/0/addresses",
                    json!([]),
                    "subsets[0]: Required value: must specify `addresses` or `notReady",
                ),
                (ip, json!("x"), "subsets[0].addresses[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g."),
                (ip, json!("10.000.0.01"), ""),
                (ip, json!("127.0.0.1"), "subsets[0].addresses[0].ip: Invalid value: \"127.0.0.1\": may not be in the"),
                (ip, json!("::"), "subsets[0].addresses[0].ip: Invalid value: \"::\": may not be unspecified (::)"),
                (
                    ip,
                    json!("fe80::1"),
                    "subsets[0].addresses[0].ip: Invalid value: \"fe80::1\": may not be in the link",
                ),
                (ip, json!("224.0.0.1"), "subsets[0].addresses[0].ip: Invalid value: \"224.0.0.1\": may not be in the"),
                ("/subsets/0/addresses/0/hostname", json!("a.b"), "subsets[0].addresses[0].hostname: Invalid value"),
                (
                    "/subsets/0/addresses/0/nodeName",
                    json!("A"),
                    "subsets[0].addresses[0].nodeName: Invalid value: \"A\"",
                ),
                ("/subsets/0/ports/1", json!({"port": 81}), "subsets[0].ports[0].name: Required value"),
                ("/subsets/0/ports/0/port", json!(0), "subsets[0].ports[0].port: Invalid value: 0: must be between 1"),
                ("/subsets/0/ports/0/protocol", json!("X"), "subsets[0].ports[0].protocol: Unsupported value: \"X\""),
                ("/subsets/0/ports/0/appProtocol", json!("a b"), "subsets[0].ports[0].appProtocol: Invalid value"),
            ],
        );
    }
}
