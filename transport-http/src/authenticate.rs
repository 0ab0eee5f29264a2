//! Who is asking: client certificates, bearer tokens, and nobody in particular.

use crate::tokens::ServiceAccountTokens;
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::state::State;
use holdfast_service::{Reviewed, Tokens};
use holdfast_tls::front_proxy::RequestHeaders;
use holdfast_tls::peer::{AUTHENTICATED, Peer};
use http::HeaderMap;
use std::collections::HashMap;
use std::sync::Arc;

/// Tries each method in turn; a credential that is there and wrong is refused, not ignored.
#[derive(Default)]
pub struct Authenticator {
    pub anonymous: bool,
    pub static_tokens: Arc<HashMap<String, Arc<User>>>,
    pub service_accounts: Option<Arc<ServiceAccountTokens>>,
    pub request_headers: Arc<RequestHeaders>,
}

impl Authenticator {
    /// The same for a fork, which is called so: it knows the tokens of the cluster that it was made of, and has its own.
    pub fn beside(&self, cluster: String) -> Authenticator {
        let service_accounts = self.service_accounts.as_ref().map(|tokens| Arc::new(tokens.beside(cluster)));
        Authenticator {
            anonymous: self.anonymous,
            static_tokens: self.static_tokens.clone(),
            service_accounts,
            request_headers: self.request_headers.clone(),
        }
    }

    pub fn authenticate(&self, state: &State, peer: &Peer, headers: &HeaderMap) -> Result<Arc<User>, Refusal> {
        match peer {
            Peer::Certificate(user) | Peer::Internal(user) => return Ok(user.clone()),
            Peer::FrontProxy(proxy) => {
                return match self.request_headers.user(headers) {
                    Some(user) => Ok(Arc::new(user)),
                    None => self.authenticate(state, proxy, headers),
                };
            }
            Peer::Untrusted(_) | Peer::Unknown => {}
        }
        if let Some(token) = bearer(headers) {
            return self.token(state, token).ok_or(Refusal::Unauthorized);
        }
        match peer {
            Peer::Untrusted(_) => Err(Refusal::Unauthorized),
            _ if self.anonymous => Ok(Arc::new(User::new("system:anonymous", &["system:unauthenticated"]))),
            _ => Err(Refusal::Unauthorized),
        }
    }

    /// The user that a token stands for, which is meant for this server.
    fn token(&self, state: &State, token: &str) -> Option<Arc<User>> {
        Some(self.review(state, token, &[])?.user)
    }
}

impl Tokens for Authenticator {
    fn review(&self, state: &State, token: &str, audiences: &[String]) -> Option<Reviewed> {
        let own = self.audiences();
        let asked = if audiences.is_empty() { own } else { audiences };
        if let Some(user) = self.static_tokens.get(token) {
            // A token that names no audience is meant for this server.
            let audiences: Vec<String> = asked.iter().filter(|audience| own.contains(audience)).cloned().collect();
            let meant = !audiences.is_empty() || asked.is_empty();
            return meant.then(|| Reviewed { user: user.clone(), audiences });
        }
        self.service_accounts.as_ref()?.verify(state, token, asked)
    }
}

impl Authenticator {
    /// The server's own audiences.
    fn audiences(&self) -> &[String] {
        self.service_accounts.as_ref().map_or(&[], |tokens| &tokens.audiences)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Reads the lines `token,user,uid[,"group,group"]` of a static token file.
pub fn static_tokens(text: &str) -> Result<HashMap<String, Arc<User>>, String> {
    let mut tokens = HashMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fields = split_csv(line);
        let [token, name, uid, rest @ ..] = fields.as_slice() else {
            let found = fields.len();
            return Err(format!("line {}: a token needs token, user name and uid, found {found} fields", index + 1));
        };
        if token.is_empty() {
            return Err(format!("line {}: the token is empty", index + 1));
        }
        let mut user = User::new(name.as_str(), &[]);
        user.uid = uid.clone();
        if let Some(groups) = rest.first() {
            user.groups = groups.split(',').map(|group| group.trim().to_owned()).filter(|g| !g.is_empty()).collect();
        }
        user.groups.push(AUTHENTICATED.into());
        if tokens.insert(token.clone(), Arc::new(user)).is_some() {
            return Err(format!("line {}: the token is there twice", index + 1));
        }
    }
    Ok(tokens)
}

/// Comma-separated fields, of which some may stand in double quotes.
fn split_csv(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => fields.last_mut().unwrap_or_else(|| unreachable!("starts with one field")).push(other),
        }
    }
    fields.iter().map(|field| field.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_files_read_or_say_which_line() {
        let tokens = static_tokens("t1,jane,7\n# note\nt2,joe,8,\"a, b\"\n").unwrap();
        assert_eq!(tokens["t1"].groups, ["system:authenticated"]);
        assert_eq!(tokens["t2"].groups, ["a", "b", "system:authenticated"]);
        assert!(static_tokens("ok,a,1\nbad,b").unwrap_err().starts_with("line 2"));
        assert!(static_tokens("a,b,c\na,d,e").unwrap_err().contains("twice"));
    }
}
