//! Converts values to documents of the hub version.

use super::{Fault, cbor};
use crate::kinds::records::Record;
use crate::kinds::{Kind, custom, show_zeros};
use crate::object::decode;
use crate::object::meta::{self, DEPTH_MAX};
use crate::refusal::Refusal;
use crate::schema::{check, schema};
use crate::wire::protobuf::{self, codec};
use base64::{Engine, engine::general_purpose::STANDARD};
use holdfast_value::Value;

const ENCRYPTED: &[u8] = b"k8s:enc:";
/// The number of parts, each ended by a colon, of `k8s:enc:PROVIDER:VERSION:NAME:`, the prefix of an encrypted value.
const ENCRYPTED_PARTS: usize = 5;

/// The object stored under a key, as a document of the kind's hub version with its defaults.
///
/// An object of a custom kind with a conversion webhook stays in the version in which it is stored.
pub fn read(kind: &Kind, key: &str, value: &[u8]) -> Result<Value, Fault> {
    let fault = |problem: String| Fault::new(key.as_bytes(), &problem);
    let is_custom = kind.custom.is_some();
    let mut document = plain(value, is_custom).map_err(fault)?;
    let version = version_of(kind, &document).map_err(fault)?;
    if is_custom {
        let (stored, object) = custom::as_stored(kind, document);
        document = match kind.converts_elsewhere() {
            true => object,
            false => custom::relabelled(kind, stored, 0, object),
        };
    } else {
        let message = kind.message(version).map_err(|refusal| fault(refusal.message()))?;
        check(schema(), message, &mut document).map_err(|error| fault(error.to_string()))?;
        to_hub(kind, version, &mut document).map_err(|refusal| fault(refusal.message()))?;
    }
    finished(document).map_err(fault)
}

/// Reads an object of a custom kind in the version in which it is stored. This does not need the definition.
pub(super) fn read_custom(key: &str, value: &[u8]) -> Result<Value, Fault> {
    let fault = |problem: String| Fault::new(key.as_bytes(), &problem);
    let document = plain(value, true).map_err(fault)?;
    if ["apiVersion", "kind"].iter().any(|field| document[*field].as_str().unwrap_or_default().is_empty()) {
        return Err(fault("it has no apiVersion or no kind".into()));
    }
    finished(document).map_err(fault)
}

/// Removes the metadata that servers derive from the key and the revision.
fn finished(mut document: Value) -> Result<Value, String> {
    let metadata = meta::metadata_mut(meta::fields_mut(&mut document));
    metadata.remove("resourceVersion");
    metadata.remove("selfLink");
    match meta::depth(&document) {
        depth if depth > DEPTH_MAX => Err(format!("it is deeper than {DEPTH_MAX} levels")),
        _ => Ok(document),
    }
}

/// Reads a record that servers store in addition to objects, as a document of its kind.
pub fn read_record(record: &Record, key: &str, value: &[u8]) -> Result<Value, Fault> {
    let fault = |problem: String| Fault::new(key.as_bytes(), &problem);
    let mut document = plain(value, false).map_err(fault)?;
    let named = [&document["apiVersion"], &document["kind"]].map(|name| name.as_str().unwrap_or_default());
    if named != [record.api_version, record.kind] {
        return Err(fault(stranger(named, record.kind)));
    }
    let message = schema().id(record.message).ok_or_else(|| fault("its type is unknown".into()))?;
    check(schema(), message, &mut document).map_err(|error| fault(error.to_string()))?;
    show_zeros(message, &mut document);
    Ok(document)
}

fn to_hub(kind: &Kind, version: usize, document: &mut Value) -> Result<(), Refusal> {
    kind.default_to_hub(version, document, None)?;
    show_zeros(kind.message(0)?, document);
    Ok(())
}

/// The document in a value, not validated.
fn plain(value: &[u8], is_custom: bool) -> Result<Value, String> {
    let document = match formed(value, is_custom) {
        // The oldest API servers stored only text in etcd. They encoded other values as base64.
        Err(problem) if !is_custom => match STANDARD.decode(value.trim_ascii()) {
            Ok(decoded) if !decoded.is_empty() => formed(&decoded, is_custom)?,
            _ => return Err(problem),
        },
        document => document?,
    };
    Ok(document)
}

/// Decodes a value. Its first bytes identify its encoding.
fn formed(value: &[u8], is_custom: bool) -> Result<Value, String> {
    let document = match value {
        [] => return Err("it is empty".into()),
        _ if value.starts_with(&protobuf::MAGIC) && !is_custom => {
            codec().decode_object(value).map_err(|error| error.to_string())?
        }
        _ if value.starts_with(ENCRYPTED) => return Err(encrypted(value)),
        _ if value.starts_with(&cbor::MAGIC) => cbor::value(&value[cbor::MAGIC.len()..])?,
        _ if is_custom || value.trim_ascii_start().starts_with(b"{") => json(value)?,
        _ => decode::yaml(value).map_err(|error| error.to_string())?.value,
    };
    match document.is_object() {
        true => Ok(document),
        false => Err("it is not an object".into()),
    }
}

fn json(value: &[u8]) -> Result<Value, String> {
    let mut document = decode::json(value).map_err(|error| error.to_string())?.value;
    // Go encodes a negative zero as `-0`, and Kubernetes reads it as the integer 0.
    if memchr::memmem::find(value, b"-0").is_some() {
        drop_signs_of_zeros(&mut document);
    }
    Ok(document)
}

fn drop_signs_of_zeros(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) => *value = 0.into(),
        Value::Array(items) => items.iter_mut().for_each(drop_signs_of_zeros),
        Value::Object(fields) => fields.values_mut().for_each(drop_signs_of_zeros),
        _ => {}
    }
}

/// The start of an encrypted value, for messages. It names the provider and the key, and is not secret.
fn encrypted(value: &[u8]) -> String {
    let end = value.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at).nth(ENCRYPTED_PARTS - 1);
    let prefix = String::from_utf8_lossy(&value[..end.unwrap_or(ENCRYPTED.len() - 1).min(ENCRYPTED_PREFIX_MAX)]);
    format!("it is encrypted ({prefix}), and no key of the encryption configuration opens it")
}

const ENCRYPTED_PREFIX_MAX: usize = 256;

/// The kind's version in which a document is written.
fn version_of(kind: &Kind, document: &Value) -> Result<usize, String> {
    let named = [&document["apiVersion"], &document["kind"]].map(|name| name.as_str().unwrap_or_default());
    let found = kind.version_named(named[0]).filter(|_| named[1] == kind.kind);
    found.ok_or_else(|| stranger(named, &kind.kind))
}

fn stranger([api_version, kind]: [&str; 2], wanted: &str) -> String {
    match kind == wanted {
        true => format!("it is of version {api_version:?}, in which there is no {wanted} here"),
        false => format!("it is {kind:?} of version {api_version:?}, where {wanted} should be"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::{Media, write};
    use crate::kinds::{offered::NEWEST, records, registry};
    use holdfast_value::json;

    fn kind(group: &str, version: &str, resource: &str) -> &'static Kind {
        registry().get(registry().find(group, version, resource).expect(resource).0)
    }

    #[test]
    fn every_form_is_read() {
        let kind = kind("", "v1", "configmaps");
        let json =
            br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","resourceVersion":"7","selfLink":"/x"}}"#;
        let document = read(kind, "k", json).expect("JSON");
        assert_eq!(document, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}));
        let yaml = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n";
        let cbor = b"\xd9\xd9\xf7\xa3JapiVersionBv1DkindIConfigMapHmetadata\xa1DnameAb";
        let protobuf = write(kind, "k", document.clone(), Media::Protobuf, NEWEST).expect("Protobuf");
        assert!(protobuf.starts_with(b"k8s\0"));
        for value in [yaml.as_slice(), cbor, &protobuf] {
            assert_eq!(read(kind, "k", value).as_ref(), Ok(&document), "{}", value.escape_ascii());
            let base64 = STANDARD.encode(value);
            assert_eq!(read(kind, "k", base64.as_bytes()).as_ref(), Ok(&document), "{base64}");
        }
    }

    #[test]
    fn older_versions_are_read_as_the_hub_with_its_defaults() {
        let kind = kind("apps", "v1", "deployments");
        let old = br#"{"apiVersion":"extensions/v1beta1","kind":"Deployment","metadata":{"name":"b","namespace":"a"},
            "spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
        let document = read(kind, "k", old).expect("a deployment");
        assert_eq!(document["apiVersion"], "apps/v1");
        // Only the version in which the object is stored has this default, so the selector shows that the defaults of
        // that version are set.
        assert_eq!(document["spec"]["selector"], json!({"matchLabels": {"a": "b"}}));
        assert_eq!(document["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"], "Always");
        let written = write(kind, "k", document.clone(), Media::Json, NEWEST).expect("JSON");
        assert!(written.starts_with(br#"{"kind":"Deployment","apiVersion":"apps/v1","#) && written.ends_with(b"}\n"));
        assert_eq!(read(kind, "k", &written), Ok(document));
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_key() {
        let kind = kind("", "v1", "secrets");
        for (value, problem) in [
            (&b""[..], "it is empty"),
            (b"k8s:enc:aescbc:v1:key1:\x00\x01", "it is encrypted (k8s:enc:aescbc:v1:key1), and no key of"),
            (b"k8s:enc:", "it is encrypted (k8s:enc), and no key of"),
            (b"k8s\0\x0a\x05", "unexpected EOF"),
            (b"k8s\0\x0a\x0e\x0a\x02v1\x12\x08Strange!", "no kind \"Strange!\" is registered for version \"v1\""),
            (b"\xd9\xd9\xf7\xff", "cbor: a break outside of a list, map or string"),
            (b"{", "unexpected end of JSON input"),
            (b"[]", "it is not an object"),
            (b"no", "it is not an object"),
            (b"\xff\xfe", "yaml"),
            (b"{}", "it is \"\" of version \"\", where Secret should be"),
            (br#"{"apiVersion":"v1","kind":"Pod"}"#, "it is \"Pod\" of version \"v1\", where Secret should be"),
            (br#"{"apiVersion":"v2","kind":"Secret"}"#, "of version \"v2\", in which there is no Secret here"),
            (br#"{"apiVersion":"v1","kind":"Secret","data":[]}"#, "cannot unmarshal array into Go"),
        ] {
            let fault = read(kind, "/registry/secrets/a/b", value).expect_err(problem).to_string();
            assert!(fault.starts_with("the value stored under /registry/secrets/a/b cannot be read: "), "{fault}");
            assert!(fault.contains(problem), "{fault}");
        }
        let long = [br#"{"apiVersion":""#.as_slice(), &b"v".repeat(1 << 20), br#"","kind":"Secret"}"#].concat();
        assert!(read(kind, "k", &long).expect_err("an unknown version").to_string().len() < 4096);
    }

    #[test]
    fn depth_is_bounded() {
        let kind = kind("apps", "v1", "controllerrevisions");
        let head =
            r#"{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"a"},"revision":1,"data":"#;
        for (depth, fits) in [(DEPTH_MAX - 1, true), (DEPTH_MAX, false), (1 << 20, false)] {
            let value = format!("{head}{}{}}}", "[".repeat(depth), "]".repeat(depth));
            assert_eq!(read(kind, "k", value.as_bytes()).is_ok(), fits, "{depth}");
        }
    }

    #[test]
    fn records_are_read_as_what_they_are() {
        let ports = br#"{"apiVersion":"v1","kind":"RangeAllocation","range":"30000-32767","data":"AQ=="}"#;
        let document = read_record(&records::NODE_PORTS, "k", ports).expect("an allocation");
        assert_eq!(document["data"], "AQ==");
        let fault = read_record(&records::SERVERS, "k", ports).expect_err("no addresses").to_string();
        assert!(fault.contains("where Endpoints should be"), "{fault}");
    }
}
