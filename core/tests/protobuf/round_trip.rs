//! Converts JSON documents to Protobuf and back, for every message of the schema table.

use holdfast_core::{
    schema::{MessageId, check, schema},
    wire::protobuf::codec,
};
use holdfast_value::Value;
use proptest::prelude::*;

use crate::generate::{Choices, document};

fn returns(id: MessageId, document: &Value) {
    let name = &schema().message(id).name;
    let bytes = codec().encode(id, document).unwrap_or_else(|error| panic!("{name}: {error}\n{document:#}"));
    let back = codec().decode(id, &bytes).unwrap_or_else(|error| panic!("{name}: {error}\n{document:#}"));
    assert_eq!(back, *document, "{name}");
}

#[test]
fn every_message_returns_full_and_empty() {
    for id in (0..schema().messages.len() as u32).map(MessageId) {
        returns(id, &document(id, &mut Choices::new(&[])));
        for depth_max in 1..3 {
            for choice in 0..6 {
                returns(id, &document(id, &mut Choices::full(&[choice; 4096], depth_max)));
            }
        }
    }
}

/// Generates a message and a document of it, in which every field may be set that the choices reach.
fn any_document() -> impl Strategy<Value = (MessageId, Value)> {
    let messages = schema().messages.len() as u32;
    (0..messages, prop::collection::vec(any::<u8>(), 0..2000)).prop_map(|(id, bytes)| {
        let id = MessageId(id);
        (id, document(id, &mut Choices::new(&bytes)))
    })
}

/// Removes some values from a document, because clients may omit them.
fn thin(value: &mut Value, choices: &mut dyn Iterator<Item = u8>) {
    match value {
        Value::Object(object) => {
            object.retain(|_, _| choices.next().is_none_or(|choice| choice % 8 > 0));
            object.values_mut().for_each(|value| thin(value, choices));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| thin(item, choices)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_message_returns((id, document) in any_document()) {
        returns(id, &document);
    }

    /// A document with omitted fields must come back with them in the form that Kubernetes shows. Further round trips
    /// must change nothing.
    #[test]
    fn a_thin_document_settles((id, mut document) in any_document(), choices in prop::collection::vec(any::<u8>(), 200)) {
        thin(&mut document, &mut choices.into_iter());
        let Ok(bytes) = codec().encode(id, &document) else { return Ok(()) };
        let shown = codec().decode(id, &bytes).expect("our own bytes");
        prop_assert_eq!(codec().encode(id, &shown).expect("our own document"), bytes);
    }

    /// The check against the schema must find no faults in a document that was decoded.
    #[test]
    fn what_is_decoded_passes_the_check((id, document) in any_document()) {
        // Messages for special values, such as times, are not documents.
        prop_assume!(schema().message(id).typed);
        let bytes = codec().encode(id, &document).expect("a document");
        let mut shown = codec().decode(id, &bytes).expect("our own bytes");
        prop_assert!(check(schema(), id, &mut shown).is_ok_and(|unknown| unknown.is_empty()));
        prop_assert_eq!(codec().encode(id, &shown).expect("a document"), bytes);
    }

    #[test]
    fn no_bytes_panic((id, document) in any_document(), damage in prop::collection::vec((any::<u16>(), any::<u8>()), 1..4)) {
        let mut bytes = codec().encode(id, &document).expect("a document");
        for (at, byte) in damage {
            let length = bytes.len().max(1);
            match bytes.get_mut(usize::from(at) % length) {
                Some(place) => *place = byte,
                None => bytes.push(byte),
            }
        }
        if let Ok(document) = codec().decode(id, &bytes) {
            codec().encode(id, &document).expect("what can be read can be written");
        }
        let _ = codec().decode_object(&bytes);
    }

    #[test]
    fn no_noise_panics(id in 0..schema().messages.len() as u32, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = codec().decode(MessageId(id), &bytes);
        let _ = codec().decode_object(&[b"k8s\0", &bytes[..]].concat());
    }
}
