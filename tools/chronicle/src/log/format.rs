//! The lines of an export. docs/LOG-FORMAT.md describes them.

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdfast_core::event::{Actor, ChangedBy, Offset, Operation, Record};
use holdfast_core::visible;
use holdfast_encryption::Keyring;
use holdfast_engine::log::{Identity, Origin};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

pub const FORMAT: &str = "holdfast-log";
/// The newest version of the format, which this release writes. This release can read all earlier versions, too.
pub const VERSION: u32 = 1;
pub const FOOTER: &[u8] = b"{\"footer\":";
/// The start of an event's last member. No earlier string can contain these bytes, because quotes in strings are
/// escaped.
const OBJECT: &[u8] = b",\"object\":";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub format: String,
    pub version: u32,
    /// The offset of the first exported event.
    #[serde(default)]
    pub from: u64,
    /// The offset of the last exported event.
    #[serde(default)]
    pub to: u64,
    /// Events that were replaced or deleted at or before this offset were missing in the log at the time of the export.
    #[serde(default)]
    pub oldest: u64,
    /// Gaps up to this offset are the result of `holdfast log repair`.
    #[serde(default)]
    pub repaired: u64,
    /// The log's id; `None` if no server of a release with ids has opened it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The log from which this one was forked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Forked>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub version: u64,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footer {
    pub events: u64,
    /// The last event's offset; 0 if there is none.
    pub last: u64,
    /// The digest of all lines before the footer, with their newlines.
    pub digest: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct FooterLine {
    pub footer: Footer,
}

/// The members of an event's line except the object.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Head {
    offset: u64,
    time_ms: i64,
    resource: String,
    key: String,
    replaces: u64,
    operation: Done,
    actor: Who,
    /// The stored bytes in base64, if they are not one line of JSON with a newline, or have hidden characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    raw: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Done {
    Put,
    Delete,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Who {
    user: String,
    manager: String,
    verb: String,
    request_id: String,
    /// The changes that webhooks and policies made to the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    changes: Vec<Changed>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Changed {
    by: String,
    fields: Vec<String>,
}

impl From<Origin> for Forked {
    fn from(origin: Origin) -> Forked {
        Forked { id: origin.id, version: origin.version.0 }
    }
}

impl Header {
    /// The identity of the exported log.
    pub fn identity(&self) -> Identity {
        let origin = self.origin.clone();
        let origin = origin.map(|origin| Origin { id: origin.id, version: Offset(origin.version) });
        Identity { id: self.id.clone(), origin }
    }

    pub fn parse(line: &[u8]) -> Result<Header> {
        let header: Header =
            serde_json::from_slice(line).ok().filter(|header: &Header| header.format == FORMAT).ok_or_else(|| {
                anyhow!("line 1 is not a header of a Holdfast log: this is not an export of `holdfast log`")
            })?;
        ensure!(
            (1..=VERSION).contains(&header.version),
            "line 1: the export has version {}, which a newer release wrote; this release reads up to version {VERSION}: \
             import it with that release, or a newer one",
            header.version
        );
        Ok(header)
    }
}

/// Appends one event as a line, with its newline.
pub fn event(record: &Record, line: &mut Vec<u8>) -> Result<()> {
    let operation = match Operation::try_from(record.operation) {
        Ok(Operation::Put) => Done::Put,
        Ok(Operation::Delete) => Done::Delete,
        Err(_) => bail!("event {} has operation {}, which is unknown", record.offset, record.operation),
    };
    let object = record.object.strip_suffix(b"\n").filter(|object| is_line(object) && is_visible(object));
    let changes = record.actor.changes.iter();
    let head = Head {
        offset: record.offset,
        time_ms: record.time_ms,
        resource: record.resource.clone(),
        key: record.key.clone(),
        replaces: record.replaces,
        operation,
        actor: Who {
            user: record.actor.user.clone(),
            manager: record.actor.manager.clone(),
            verb: record.actor.verb.clone(),
            request_id: record.actor.request_id.clone(),
            changes: changes.map(|change| Changed { by: change.by.clone(), fields: change.fields.clone() }).collect(),
        },
        raw: object.is_none().then(|| STANDARD.encode(&record.object)),
    };
    line.extend_from_slice(visible::json(&serde_json::to_string(&head)?).as_bytes());
    if let Some(object) = object {
        line.pop();
        line.extend_from_slice(OBJECT);
        line.extend_from_slice(object);
        line.push(b'}');
    }
    line.push(b'\n');
    Ok(())
}

/// Reads an event from its line, which has no newline.
pub fn parse_event(line: &[u8]) -> Result<Record> {
    let split = line.windows(OBJECT.len()).position(|window| window == OBJECT);
    let (head, object) = match split {
        None => (line.to_vec(), None),
        Some(at) => {
            let object = line[at + OBJECT.len()..].strip_suffix(b"}").context("the line has no end")?;
            ensure!(is_line(object), "its object is not JSON, or not the last member");
            ([&line[..at], b"}"].concat(), Some([object, b"\n"].concat()))
        }
    };
    let head: Head = serde_json::from_slice(&head)?;
    let object = match (object, head.raw) {
        (Some(object), None) => object,
        (None, Some(raw)) => STANDARD.decode(raw).context("its raw object is not base64")?,
        _ => bail!("an event has either an object or a raw one"),
    };
    let named = |name: &str| !name.is_empty() && !name.contains('\0');
    ensure!(head.offset > 0 && named(&head.resource) && named(&head.key), "offset, resource or key is empty");
    ensure!(head.replaces < head.offset, "it replaces event {}, which comes later", head.replaces);
    let changes = head.actor.changes.into_iter();
    let record = Record {
        offset: head.offset,
        time_ms: head.time_ms,
        resource: head.resource,
        key: head.key,
        replaces: head.replaces,
        operation: match head.operation {
            Done::Put => Operation::Put,
            Done::Delete => Operation::Delete,
        } as i32,
        actor: Actor {
            user: head.actor.user,
            manager: head.actor.manager,
            verb: head.actor.verb,
            request_id: head.actor.request_id,
            changes: changes.map(|change| ChangedBy { by: change.by, fields: change.fields }).collect(),
        },
        object: object.into(),
    };
    if !Keyring::is_sealed(&record) {
        serde_json::from_slice::<IgnoredAny>(&record.object).context("its object is not JSON")?;
    }
    Ok(record)
}

fn is_line(object: &[u8]) -> bool {
    !object.contains(&b'\n')
        && object.first() == Some(&b'{')
        && object.last() == Some(&b'}')
        && serde_json::from_slice::<IgnoredAny>(object).is_ok()
}

/// Whether the object has no hidden characters.
fn is_visible(object: &[u8]) -> bool {
    std::str::from_utf8(object).is_ok_and(|object| !object.chars().any(visible::is_hidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_read_back_byte_for_byte() {
        let objects: [&[u8]; 7] = [
            b"{\"a\":{\"object\":1.50},\"b\":\"\\u00fc\"}\n",
            b"{\"a\":1}",
            b"{\n}\n",
            b"{ \"x\":[] }\n",
            b"{}\n",
            "{\"a\":\"\u{9b}31m\"}\n".as_bytes(),
            "{\"\u{202e}\":\"\u{fc}\"}\n".as_bytes(),
        ];
        for object in objects {
            let record = Record {
                offset: 7,
                time_ms: -1,
                resource: "example.com/widgets".into(),
                key: "a/,\"object\":{}".into(),
                replaces: 3,
                operation: Operation::Delete as i32,
                actor: Actor { user: "j\"\n\u{fc}\u{9b}\u{e0041}".into(), ..Actor::default() },
                object: object.to_vec().into(),
            };
            let mut line = Vec::new();
            event(&record, &mut line).unwrap();
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert!(is_visible(line.strip_suffix(b"\n").unwrap()), "{}", String::from_utf8_lossy(&line));
            assert_eq!(parse_event(line.strip_suffix(b"\n").unwrap()).unwrap(), record);
        }
    }

    #[test]
    fn damaged_lines_are_refused() {
        let good = br#"{"offset":1,"timeMs":1,"resource":"pods","key":"a/b","replaces":0,"operation":"put","actor":{"user":"","manager":"","verb":"","requestId":""},"object":{}}"#;
        assert!(parse_event(good).is_ok());
        for end in 0..good.len() {
            assert!(parse_event(&good[..end]).is_err(), "cut at {end}");
        }
        let good = String::from_utf8(good.to_vec()).unwrap();
        for (from, to) in [
            ("\"offset\":1", "\"offset\":0"),
            ("\"put\"", "\"patch\""),
            ("\"replaces\":0", "\"replaces\":1"),
            ("\"object\":{}", "\"object\":[]"),
            ("\"object\":{}", "\"object\":{},\"more\":1"),
            ("\"object\":{}", "\"raw\":\"e30=\",\"object\":{}"),
            ("\"key\":\"a/b\"", "\"key\":\"\""),
            ("\"timeMs\":1", "\"timeMs\":1,\"unknown\":2"),
        ] {
            assert!(parse_event(good.replace(from, to).as_bytes()).is_err(), "{to}");
        }
    }
    const PIECES: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "\"offset\":1",
        "\"offset\":18446744073709551615",
        "\"timeMs\":-9223372036854775808",
        "\"resource\":\"pods\"",
        "\"key\":\"a/b\"",
        "\"replaces\":0",
        "\"operation\":\"put\"",
        "\"actor\":{\"user\":\"\",\"manager\":\"\",\"verb\":\"\",\"requestId\":\"\"}",
        ",\"object\":",
        "\"raw\":\"e30=\"",
        "{}",
        "null",
        "\"format\":\"holdfast-log\"",
        "\"version\":1",
        "\"version\":4294967295",
        "\"from\":18446744073709551615",
        "\"footer\":",
        "\"events\":1",
        "\"last\":1",
        "\"digest\":\"\"",
        "\u{0}",
        "é",
        "1e400",
    ];

    proptest::proptest! {
        /// Reading a line of a foreign export never panics: each line is read or refused.
        #[test]
        fn no_line_panics(pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..24), cut in 0..200usize) {
            let text = pieces.concat();
            for line in [text.as_bytes(), &text.as_bytes()[cut.min(text.len())..]] {
                let _ = Header::parse(line);
                let _ = serde_json::from_slice::<FooterLine>(line);
                if let Ok(record) = parse_event(line) {
                    let mut again = Vec::new();
                    event(&record, &mut again).unwrap();
                    proptest::prop_assert_eq!(parse_event(again.strip_suffix(b"\n").unwrap()).unwrap(), record);
                }
            }
        }
    }
}
