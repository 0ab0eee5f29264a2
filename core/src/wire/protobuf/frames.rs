//! Sequences of objects in Protobuf: lists, and the frames of a watch.

use holdfast_value::{Map, Value};

use super::{
    Codec, EncodeError,
    bytes::{Backward, varint_length},
    envelope,
};
use crate::schema::MessageId;

/// The bytes of a list after its last item.
pub const LIST_END: [u8; 4] = envelope::END;

/// The bytes of a list before its first item; `list` is the list as a document without items. The caller appends each
/// item with [`list_item`], and then [`LIST_END`]. `items_size` must be the sum of the [`item_size`] of all items.
pub fn list_start(
    codec: &Codec<'_>,
    message: MessageId,
    list: &Value,
    items_size: usize,
) -> Result<Vec<u8>, EncodeError> {
    let text = |key| list.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut rest = Map::new();
    if let Some(metadata) = list.get("metadata") {
        rest.insert("metadata".to_string(), metadata.clone());
    }
    let rest = codec.encode(message, &Value::Object(rest))?;
    let mut out = envelope::start(text("apiVersion"), text("kind"), rest.len() + items_size);
    out.extend_from_slice(&rest);
    Ok(out)
}

/// Appends an item to the list in `out`. `number` is what [`Codec::items_number`] returns for the list.
pub fn list_item(out: &mut Vec<u8>, number: u32, item: &[u8]) {
    push_varint(out, u64::from(number) << 3 | 2);
    push_varint(out, item.len() as u64);
    out.extend_from_slice(item);
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The number of bytes that an item of `length` bytes takes in a list. The key takes one byte, because the field
/// numbers of `items` are small.
pub fn item_size(length: usize) -> usize {
    1 + varint_length(length) + length
}

/// One event of a watch in the format `application/vnd.kubernetes.protobuf;stream=watch`: its length in four bytes,
/// then a WatchEvent without an envelope. The object in the event has an envelope. `event` is the type of the event:
/// `ADDED`, `BOOKMARK` and so on.
pub fn watch_frame(event: &str, object: &[u8]) -> Vec<u8> {
    const TYPE: u32 = 1;
    const OBJECT: u32 = 2;
    const RAW: u32 = 1;
    let mut out = Backward::with_capacity(object.len() + event.len() + 24);
    let end = out.len();
    out.bytes(RAW, object);
    out.close(OBJECT, end);
    out.bytes(TYPE, event.as_bytes());
    // The bodies that this server makes are far smaller than four gigabytes.
    let length = u32::try_from(out.len()).unwrap_or(u32::MAX);
    out.put(&length.to_be_bytes());
    out.finish()
}

#[cfg(test)]
mod tests {
    use holdfast_value::json;

    use super::super::{codec, unwrap, wrap};
    use super::*;

    #[test]
    fn a_list_is_made_of_finished_items() {
        let codec = codec();
        for (api_version, kind) in [
            ("v1", "ConfigMap"),
            ("meta.k8s.io/v1", "PartialObjectMetadata"),
            ("meta.k8s.io/v1beta1", "PartialObjectMetadata"),
        ] {
            let item = codec.find(api_version, kind).expect("a kind");
            let list_kind = format!("{kind}List");
            let list = codec.find(api_version, &list_kind).expect("a list");
            let documents: Vec<Value> = ["a", "b"].iter().map(|name| json!({"metadata": {"name": name}})).collect();
            let items: Vec<Vec<u8>> =
                documents.iter().map(|document| codec.encode(item, document).expect("a document")).collect();
            let mut document = json!({"apiVersion": api_version, "kind": list_kind,
                "metadata": {"resourceVersion": "7", "remainingItemCount": 3}});
            let size = items.iter().map(|item| item_size(item.len())).sum();
            let mut body = list_start(codec, list, &document, size).expect("a list");
            items.iter().for_each(|item| list_item(&mut body, codec.items_number(list), item));
            body.extend_from_slice(&LIST_END);
            document["items"] = Value::Array(documents);
            assert_eq!(codec.decode_object(&body), Ok(document.clone()), "{kind}");
            // A list that is written item by item equals the list that is encoded as a whole, except for the order of
            // fields.
            let whole = codec.encode_object(list, &document).expect("a list");
            if codec.items_number(list) == 2 {
                assert_eq!(body, whole);
            }
        }
    }

    #[test]
    fn a_frame_counts_its_event() {
        let object = wrap("v1", "ConfigMap", &[]);
        let frame = watch_frame("ADDED", &object);
        let (length, event) = frame.split_at(4);
        assert_eq!(u32::from_be_bytes(length.try_into().expect("four bytes")) as usize, event.len());
        let head = [b"\x0a\x05ADDED\x12".as_slice(), &[object.len() as u8 + 2, 0x0a, object.len() as u8]].concat();
        assert_eq!(event, [head, object.clone()].concat());
        let message = codec().find("v1", "WatchEvent").expect("an event");
        let event = codec().decode(message, event).expect("an event");
        assert_eq!(
            event,
            json!({"type": "ADDED", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}})
        );
        assert!(unwrap(&object).is_ok());
    }
}
