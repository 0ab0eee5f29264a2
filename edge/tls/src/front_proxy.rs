//! A proxy in front of a server. It names the user in headers, which the server reads only if the proxy's certificate
//! is trusted.

use crate::peer::authenticated;
use holdfast_core::authz::User;
use http::{HeaderMap, HeaderValue};
use std::borrow::Cow;

/// The headers in which a proxy names the user.
#[derive(Debug, Clone, Default)]
pub struct RequestHeaders {
    pub usernames: Vec<String>,
    pub uids: Vec<String>,
    pub groups: Vec<String>,
    pub extra_prefixes: Vec<String>,
}

impl RequestHeaders {
    /// Removes these headers, because a client may have sent them itself.
    pub fn clear(&self, headers: &mut HeaderMap) {
        for name in self.usernames.iter().chain(&self.uids).chain(&self.groups) {
            headers.remove(name.as_str());
        }
        let said = headers.keys().filter(|name| {
            self.extra_prefixes.iter().any(|prefix| name.as_str().starts_with(&prefix.to_ascii_lowercase()))
        });
        let said: Vec<http::HeaderName> = said.cloned().collect();
        said.iter().for_each(|name| drop(headers.remove(name)));
    }

    /// The user whom a proxy names in the headers; `None` if the proxy names no user.
    pub fn user(&self, headers: &HeaderMap) -> Option<User> {
        let values = |names: &[String]| {
            let all = names.iter().flat_map(|name| headers.get_all(name.as_str()));
            all.map(text).collect::<Vec<_>>()
        };
        let first = |names: &[String]| values(names).into_iter().find(|value| !value.is_empty());
        let mut user = User::new(first(&self.usernames)?, &[]);
        user.uid = first(&self.uids).unwrap_or_default();
        user.groups = values(&self.groups).into_iter().filter(|group| !group.is_empty()).collect();
        for prefix in &self.extra_prefixes {
            let prefix = prefix.to_ascii_lowercase();
            for (name, value) in headers {
                let key = name.as_str().strip_prefix(&prefix).filter(|key| !key.is_empty());
                if let Some(key) = key {
                    user.extra.entry(decode_key(key)).or_default().push(text(value));
                }
            }
        }
        Some(authenticated(user))
    }
}

/// The text of a header. Invalid bytes become replacement characters: if the name were skipped instead, the request
/// could run as another user.
pub fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Decodes percent-encoding. A malformed escape is not changed.
pub fn decode(text: &str) -> Cow<'_, str> {
    decoded(text, |out| {
        out.push(b'%');
        Some(())
    })
    .unwrap_or_default()
}

/// Decodes percent-encoding in a key of `extra`. If an escape is malformed, the whole key is not changed.
pub fn decode_key(text: &str) -> String {
    decoded(text, |_| None).map_or_else(|| text.to_owned(), Cow::into_owned)
}

fn decoded(text: &str, malformed: impl Fn(&mut Vec<u8>) -> Option<()>) -> Option<Cow<'_, str>> {
    if !text.as_bytes().contains(&b'%') {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let hex = |at: usize| bytes.get(at).and_then(|byte| (*byte as char).to_digit(16));
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match (byte, hex(at), hex(at + 1)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'%', ..) => malformed(&mut out)?,
            _ => out.push(*byte),
        }
    }
    Some(String::from_utf8_lossy(&out).into_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_names_the_user() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let known = RequestHeaders {
            usernames: names(&["X-Remote-User", "X-Other-User"]),
            uids: names(&["X-Remote-Uid"]),
            groups: names(&["X-Remote-Group"]),
            extra_prefixes: names(&["X-Remote-Extra-"]),
        };
        let mut headers = HeaderMap::new();
        assert_eq!(known.user(&headers), None);
        for (name, value) in [
            ("x-remote-user", ""),
            ("x-other-user", "jane"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", ""),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.com%2fscope", "s"),
        ] {
            headers.append(http::HeaderName::from_static(name), value.parse().unwrap());
        }
        let user = known.user(&headers).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
        assert_eq!(
            (decode("a%2fb%2"), decode_key("a%2fb%2"), decode_key("a%2Fb")),
            ("a/b%2".into(), "a%2fb%2".into(), "a/b".into())
        );
        headers.insert("x-remote-user", HeaderValue::from_bytes(b"j\xffne").unwrap());
        assert_eq!(known.user(&headers).unwrap().name, "j\u{fffd}ne");
        headers.insert("accept", "*/*".parse().unwrap());
        known.clear(&mut headers);
        assert_eq!(headers.keys().map(http::HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
        assert_eq!(user.extra.into_iter().collect::<Vec<_>>(), [("example.com/scope".into(), vec!["s".into()])]);
    }
}
