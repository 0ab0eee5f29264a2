//! The credentials of the users in a kubeconfig, and the selection of a user for a server.

use crate::identity::Identity;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_core::object::yaml;
use holdfast_value::Value;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The port of a server whose URL has none.
const PORT: &str = "443";
/// The prefix of the headers for a user's extra attributes; the attribute's name follows.
const EXTRA: &str = "impersonate-extra-";

/// The credentials of one user in a kubeconfig.
#[derive(Default)]
pub struct Credentials {
    pub(crate) identity: Option<Arc<Identity>>,
    headers: HeaderMap,
    /// The file with a token. The file is read again for each call, because the token may be replaced.
    token_file: Option<PathBuf>,
}

impl Credentials {
    /// The credentials of a kubeconfig's user. Relative paths start at `folder`, the kubeconfig's folder.
    pub(crate) fn of(user: &Value, folder: &Path) -> Result<Credentials, String> {
        let text = |field: &str| user[field].as_str().filter(|text| !text.is_empty());
        if let Some(field) = ["exec", "auth-provider"].into_iter().find(|field| !user[*field].is_null()) {
            return Err(format!("a user with {field} cannot be used here: give it a token or a certificate"));
        }
        let identity = match (pem(user, "client-certificate", folder)?, pem(user, "client-key", folder)?) {
            (Some(certificate), Some(key)) => Some(Arc::new(Identity::from_pem(&certificate, &key)?)),
            (None, None) => None,
            _ => return Err("client-certificate and client-key must be given together".into()),
        };
        let mut headers = HeaderMap::new();
        if let Some(token) = text("token") {
            headers.insert(AUTHORIZATION, bearer(token)?);
        } else if let Some(name) = text("username") {
            let both = STANDARD.encode(format!("{name}:{}", text("password").unwrap_or_default()));
            headers.insert(AUTHORIZATION, secret(&format!("Basic {both}"))?);
        }
        impersonate(user, &mut headers)?;
        Ok(Credentials { identity, headers, token_file: text("tokenFile").map(|file| folder.join(file)) })
    }

    /// Adds the credentials to the headers of a request.
    pub(crate) fn show(&self, headers: &mut HeaderMap) -> Result<(), String> {
        headers.extend(self.headers.clone());
        if let Some(file) = &self.token_file {
            let token = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
            headers.insert(AUTHORIZATION, bearer(token.trim())?);
        }
        Ok(())
    }
}

/// The users of a kubeconfig, by the servers after which they are named.
pub struct Users {
    named: HashMap<String, Arc<Credentials>>,
    /// The user of the current context, for servers after which no user is named.
    current: Option<Arc<Credentials>>,
}

impl Users {
    pub fn from_file(file: &Path) -> Result<Users, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let document: Value = yaml::read(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        Users::of(&document, file.parent().unwrap_or(Path::new(""))).map_err(|why| format!("{}: {why}", file.display()))
    }

    fn of(document: &Value, folder: &Path) -> Result<Users, String> {
        let mut named = HashMap::new();
        for entry in document["users"].as_array().into_iter().flatten() {
            let name = entry["name"].as_str().unwrap_or_default();
            let credentials = Credentials::of(&entry["user"], folder).map_err(|why| format!("user {name:?}: {why}"))?;
            named.insert(name.to_owned(), Arc::new(credentials));
        }
        let current = match document["current-context"].as_str().unwrap_or_default() {
            "" => None,
            context => {
                let user = self::named(document, "contexts", "context", context)?["user"].as_str().unwrap_or_default();
                named.get(user).cloned()
            }
        };
        Ok(Users { named, current })
    }

    /// The user for a server. The user named after the host with its port is tried first, then users whose name is a
    /// pattern (`*.suffix`) that matches host and port. For port 443, users that are named after the host without the
    /// port, or whose pattern matches that host, are tried next. The user `*` is tried after these, and the user of the
    /// current context is tried last.
    pub fn speaking_to(&self, host: &str, port: u16) -> Option<&Arc<Credentials>> {
        let port = port.to_string();
        let with_port = format!("{host}:{port}");
        let targets = [Some(with_port.as_str()), (port == PORT).then(|| host.trim_matches(['[', ']']))];
        let found = targets.into_iter().flatten().find_map(|target| self.matching(target));
        found.or_else(|| self.named.get("*")).or(self.current.as_ref())
    }

    fn matching(&self, target: &str) -> Option<&Arc<Credentials>> {
        let mut dots = target.match_indices('.').map(|(at, _)| at);
        self.named.get(target).or_else(|| dots.find_map(|at| self.named.get(&format!("*{}", &target[at..]))))
    }
}

/// Adds the impersonation headers of a user.
fn impersonate(user: &Value, headers: &mut HeaderMap) -> Result<(), String> {
    let mut say = |name: HeaderName, value: &Value| {
        let Some(value) = value.as_str().filter(|value| !value.is_empty()) else { return Ok(()) };
        let value = HeaderValue::from_str(value).map_err(|_| format!("{value:?} is not a value of a header"))?;
        headers.append(name, value);
        Ok::<(), String>(())
    };
    say(HeaderName::from_static("impersonate-user"), &user["as"])?;
    say(HeaderName::from_static("impersonate-uid"), &user["as-uid"])?;
    for group in user["as-groups"].as_array().into_iter().flatten() {
        say(HeaderName::from_static("impersonate-group"), group)?;
    }
    for (key, values) in user["as-user-extra"].as_object().into_iter().flatten() {
        let name = format!("{EXTRA}{}", key.to_ascii_lowercase());
        let name: HeaderName = name.parse().map_err(|_| format!("{key:?} is not a name of a header"))?;
        for value in values.as_array().into_iter().flatten() {
            say(name.clone(), value)?;
        }
    }
    Ok(())
}

fn bearer(token: &str) -> Result<HeaderValue, String> {
    secret(&format!("Bearer {token}"))
}

fn secret(text: &str) -> Result<HeaderValue, String> {
    let mut value =
        HeaderValue::from_str(text).map_err(|_| "the token has characters that no header has".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// An entry in one of a kubeconfig's lists.
pub(crate) fn named<'a>(document: &'a Value, list: &str, field: &str, name: &str) -> Result<&'a Value, String> {
    let entries = document[list].as_array().into_iter().flatten();
    let found = entries.filter(|entry| entry["name"] == name).map(|entry| &entry[field]).next();
    found.ok_or_else(|| format!("{field} {name:?} does not exist"))
}

/// PEM data, from the kubeconfig itself or from a file that the kubeconfig names.
pub(crate) fn pem(value: &Value, field: &str, folder: &Path) -> Result<Option<Vec<u8>>, String> {
    let text = |field: &str| value[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    if let Some(data) = text(&format!("{field}-data")) {
        return STANDARD.decode(data).map(Some).map_err(|error| format!("{field}-data is not base64: {error}"));
    }
    let Some(file) = text(field) else { return Ok(None) };
    let file = folder.join(file);
    std::fs::read(&file).map(Some).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    fn shown(users: &Users, host: &str, port: u16) -> Option<String> {
        let mut headers = HeaderMap::new();
        users.speaking_to(host, port)?.show(&mut headers).expect("headers");
        let value = headers.get(AUTHORIZATION)?.to_str().expect("text");
        Some(value.trim_start_matches("Bearer ").to_owned())
    }

    fn users(names: &[&str]) -> Value {
        names.iter().map(|name| json!({"name": name, "user": {"token": name}})).collect()
    }

    #[test]
    fn a_server_is_spoken_to_by_the_user_that_names_it_best() {
        let all = ["h.a.svc", "h.a.svc:8443", "*.a.svc", "*.svc:8443", "*.b.svc:443", "*", "[::1]:1"];
        let users = |names: &[&str]| Users::of(&json!({"users": users(names)}), Path::new("")).expect("users");
        let known = users(&all);
        for (host, port, expected) in [
            ("h.a.svc", 443, "h.a.svc"),
            ("h.a.svc", 8443, "h.a.svc:8443"),
            ("h.a.svc", 9443, "*"),
            ("other.a.svc", 443, "*.a.svc"),
            ("other.a.svc", 8443, "*.svc:8443"),
            ("h.b.svc", 443, "*.b.svc:443"),
            ("svc", 443, "*"),
            ("[::1]", 1, "[::1]:1"),
        ] {
            assert_eq!(shown(&known, host, port).as_deref(), Some(expected), "{host}:{port}");
        }
        assert_eq!(shown(&users(&all[..1]), "h.a.svc", 8443), None);
    }

    #[test]
    fn the_current_context_speaks_to_all_others() {
        let mut document = json!({
            "users": users(&["a", "b.example"]),
            "contexts": [{"name": "c", "context": {"user": "a"}}],
            "current-context": "c",
        });
        let known = Users::of(&document, Path::new("")).expect("users");
        assert_eq!(shown(&known, "h", 443).as_deref(), Some("a"));
        assert_eq!(shown(&known, "b.example", 443).as_deref(), Some("b.example"));
        document["current-context"] = "d".into();
        assert_eq!(Users::of(&document, Path::new("")).err().as_deref(), Some("context \"d\" does not exist"));
    }

    #[test]
    fn users_may_speak_for_others() {
        let user = json!({
            "username": "u", "password": "p", "as": "jane", "as-uid": "1", "as-groups": ["a", "b"],
            "as-user-extra": {"Scopes": ["s"]},
        });
        let mut headers = HeaderMap::new();
        Credentials::of(&user, Path::new("")).expect("credentials").show(&mut headers).expect("headers");
        let all = |name: &str| headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(all("authorization"), ["Basic dTpw"]);
        assert_eq!(all("impersonate-user"), ["jane"]);
        assert_eq!(all("impersonate-uid"), ["1"]);
        assert_eq!(all("impersonate-group"), ["a", "b"]);
        assert_eq!(all("impersonate-extra-scopes"), ["s"]);
        for (user, fault) in [
            (json!({"exec": {}}), "a user with exec cannot be used here: give it a token or a certificate"),
            (json!({"client-key-data": "YQ=="}), "client-certificate and client-key must be given together"),
            (json!({"token": "a\nb"}), "the token has characters that no header has"),
        ] {
            assert_eq!(Credentials::of(&user, Path::new("")).err().as_deref(), Some(fault));
        }
    }
}
