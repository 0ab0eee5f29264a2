//! Reads and writes IPAddress objects. API servers that share a store record the Service of each address in these
//! objects.

use super::{Fault, Keys, Media, read, write};
use crate::kinds::networking::{AddressOwner, given_address, holder};
use crate::kinds::{Kind, known, registry};
use crate::object::meta::{fields_mut, metadata_mut};
use crate::stamp::Stamp;
use holdfast_value::json;

/// The key of the IPAddress object of an address.
pub fn address_key(keys: &Keys, address: &str) -> String {
    match kind() {
        Some(kind) => keys.of(kind, address),
        None => keys.at(known::IP_ADDRESS.resource, address),
    }
}

/// The value that records an address of a Service.
pub fn write_address(
    key: &str,
    address: &str,
    holder: &AddressOwner,
    stamp: Stamp,
    media: Media,
    release: u32,
) -> Result<Vec<u8>, Fault> {
    let kind = kind().ok_or_else(|| Fault::new(key.as_bytes(), "its kind is unknown"))?;
    let mut document = given_address(address, holder);
    let now = stamp.rfc3339();
    let metadata = metadata_mut(fields_mut(&mut document));
    metadata.insert("uid", stamp.uid(0).into());
    metadata.insert("creationTimestamp", now.as_str().into());
    metadata.insert(
        "managedFields",
        json!([{
            "manager": "kube-apiserver",
            "operation": "Update",
            "apiVersion": known::IP_ADDRESS.api_version(),
            "time": now,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {
                    ".": {},
                    "f:ipaddress.kubernetes.io/ip-family": {},
                    "f:ipaddress.kubernetes.io/managed-by": {},
                }},
                "f:spec": {"f:parentRef": {".": {}, "f:name": {}, "f:namespace": {}, "f:resource": {}}},
            },
        }]),
    );
    write(kind, key, document, media, release)
}

/// The Service that owns an address; `None` if the address has another owner.
pub fn read_holder(key: &str, value: &[u8]) -> Result<Option<AddressOwner>, Fault> {
    let kind = kind().ok_or_else(|| Fault::new(key.as_bytes(), "its kind is unknown"))?;
    Ok(holder(&read(kind, key, value)?))
}

fn kind() -> Option<&'static Kind> {
    registry().known(known::IP_ADDRESS).map(|(id, _)| registry().get(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::offered::NEWEST;

    #[test]
    fn an_address_says_which_service_has_it() {
        let keys = Keys::new("/registry");
        let stamp = Stamp { time: "2026-11-28T19:42:58Z".parse().expect("a time"), seed: 7 };
        let of = AddressOwner { namespace: "a".into(), name: "b".into() };
        for address in ["10.0.0.1", "fd00::1"] {
            let key = address_key(&keys, address);
            assert_eq!(key, format!("/registry/ipaddresses/{address}"));
            let value = write_address(&key, address, &of, stamp, Media::Protobuf, NEWEST).expect("a value");
            assert_eq!(read_holder(&key, &value), Ok(Some(of.clone())));
            let document = read(kind().expect("the kind"), &key, &value).expect("a document");
            let labels = &document["metadata"]["labels"];
            let family = if address.contains(':') { "IPv6" } else { "IPv4" };
            assert_eq!(labels["ipaddress.kubernetes.io/ip-family"], family);
            assert_eq!(labels["ipaddress.kubernetes.io/managed-by"], "ipallocator.k8s.io");
            assert_eq!(document["spec"]["parentRef"], json!({"resource": "services", "namespace": "a", "name": "b"}));
        }
        let gateway = br#"{"apiVersion":"networking.k8s.io/v1","kind":"IPAddress","metadata":{"name":"10.0.0.1"},
            "spec":{"parentRef":{"group":"gateway.networking.k8s.io","resource":"gateways","name":"b","namespace":"a"}}}"#;
        assert_eq!(read_holder("k", gateway), Ok(None));
        assert!(read_holder("k", b"{").is_err());
    }
}
