//! User names and passwords, as Kubernetes accepted them until 1.18.

use super::users;
use crate::secrets::same;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_core::authz::User;
use http::{HeaderMap, header};
use std::collections::HashMap;
use std::sync::Arc;

/// Passwords and users, by the user's name.
#[derive(Default)]
pub struct Passwords(HashMap<String, (String, Arc<User>)>);

impl Passwords {
    /// Reads the lines `password,user,uid[,"group,group"]` of a file.
    pub fn read(text: &str) -> Result<Passwords, String> {
        let users = users(text, "password")?.into_iter();
        Ok(Passwords(users.map(|(_, password, user)| (user.name.clone(), (password, user))).collect()))
    }

    /// The user that the headers name, if the password in the headers is right.
    pub(super) fn user(&self, headers: &HeaderMap) -> Result<Option<Arc<User>>, String> {
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
        let credentials = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic"));
        let Some((_, encoded)) = credentials.filter(|_| !self.0.is_empty()) else { return Ok(None) };
        let decoded = STANDARD.decode(encoded.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let wrong = || "invalid username/password combination".to_owned();
        let (name, password) = decoded.as_deref().and_then(|text| text.split_once(':')).ok_or_else(wrong)?;
        let known = self.0.get(name).filter(|(kept, _)| same(kept.as_bytes(), password.as_bytes()));
        known.map(|(_, user)| Some(user.clone())).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_proves_a_name() {
        let passwords = Passwords::read("pass:word,jane,1,\"a,b\"\n").expect("a file");
        let user = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", value.parse().expect("a header"));
            passwords.user(&headers)
        };
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let jane = user(&basic("jane:pass:word")).expect("a user").expect("a user");
        assert_eq!((jane.name.as_str(), jane.groups.join(" ")), ("jane", "a b system:authenticated".to_owned()));
        for wrong in [basic("jane:pass"), basic("joe:pass:word"), basic("jane"), "basic ???".into()] {
            assert!(user(&wrong).is_err(), "{wrong}");
        }
        assert_eq!(user("Bearer x"), Ok(None));
        assert_eq!(Passwords::default().user(&HeaderMap::new()), Ok(None));
        assert!(Passwords::read("a,b").is_err_and(|why| why.contains("at least 3 columns (password")));
    }
}
