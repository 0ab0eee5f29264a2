//! Authentication: client certificates, bearer tokens, passwords, a proxy's headers, and anonymous users.

pub mod basic;
mod bootstrap;

use crate::tokens::ServiceAccountTokens;
use arc_swap::ArcSwap;
use basic::Passwords;
use futures_util::future::BoxFuture;
use holdfast_core::admission::Told;
use holdfast_core::authz::User;
use holdfast_core::object::csv;
use holdfast_core::state::State;
use holdfast_service::{Elsewhere, Reviewed, Tokens, UNKNOWN_TOKEN};
use holdfast_tls::bearer::Bearer;
use holdfast_tls::front_proxy::RequestHeaders;
use holdfast_tls::peer::{Peer, anonymous, authenticated};
use http::HeaderMap;
use std::collections::HashMap;
use std::sync::Arc;

/// Tries each method in turn. A wrong credential is refused, not ignored.
#[derive(Default)]
pub struct Authenticator {
    pub anonymous: Anonymous,
    pub static_tokens: Arc<HashMap<String, Arc<User>>>,
    /// The users that may authenticate with a password.
    pub passwords: Arc<Passwords>,
    pub service_accounts: Option<Arc<ServiceAccountTokens>>,
    /// Whether Secrets of the cluster can contain bootstrap tokens, with which requests authenticate.
    pub bootstrap_tokens: bool,
    /// Verifies tokens that this server cannot verify itself.
    pub elsewhere: Option<Arc<dyn Elsewhere>>,
    /// The headers in which a proxy names the user; they can be changed at run time.
    pub request_headers: Arc<ArcSwap<RequestHeaders>>,
}

/// Whether requests without credentials are accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Anonymous {
    #[default]
    Never,
    Always,
    /// Requests without credentials are accepted only for exactly these paths.
    Paths(Vec<String>),
}

impl Anonymous {
    fn allows(&self, path: &str) -> bool {
        match self {
            Anonymous::Never => false,
            Anonymous::Always => true,
            Anonymous::Paths(paths) => paths.iter().any(|allowed| allowed == path),
        }
    }
}

impl Authenticator {
    /// The authenticator of a fork whose log has the name `cluster`: it accepts the tokens of the original cluster, and
    /// the tokens of the fork.
    pub fn beside(&self, cluster: String) -> Authenticator {
        let service_accounts = self.service_accounts.as_ref().map(|tokens| Arc::new(tokens.beside(cluster)));
        Authenticator {
            anonymous: self.anonymous.clone(),
            static_tokens: self.static_tokens.clone(),
            passwords: self.passwords.clone(),
            service_accounts,
            bootstrap_tokens: self.bootstrap_tokens,
            elsewhere: self.elsewhere.clone(),
            request_headers: self.request_headers.clone(),
        }
    }

    /// The user of a request. Returns `None` if the request has no credential and the path does not accept anonymous
    /// users, and an error if a credential is wrong. `told` receives the warnings for the client and the audit
    /// annotations, whether the credential is valid or not.
    pub async fn authenticate(
        &self,
        state: &State,
        mut peer: &Peer,
        headers: &HeaderMap,
        path: &str,
        told: &mut Told,
    ) -> Result<Option<Arc<User>>, String> {
        while let Peer::FrontProxy(proxy) = peer {
            if let Some(user) = self.request_headers.load().user(headers) {
                return Ok(Some(Arc::new(user)));
            }
            // If a proxy names no user, the proxy itself makes the request.
            peer = proxy;
        }
        if let Peer::Certificate(user) | Peer::Internal(user) = peer {
            return Ok(Some(user.clone()));
        }
        if let Bearer::Token(token) = Bearer::of(headers) {
            return self.find(state, token, &[], told).await.map(|reviewed| Some(reviewed.user));
        }
        if let Some(user) = self.passwords.user(headers)? {
            return Ok(Some(user));
        }
        match peer {
            Peer::Untrusted(why) => Err(why.to_string()),
            _ => Ok(self.anonymous.allows(path).then(|| Arc::new(anonymous()))),
        }
    }

    /// The user of a token that is valid for one of these audiences, or for one of the server's own audiences if no
    /// audience is given; an error if there is no such user.
    async fn find(
        &self,
        state: &State,
        token: &str,
        audiences: &[String],
        told: &mut Told,
    ) -> Result<Reviewed, String> {
        let asked = if audiences.is_empty() { self.audiences() } else { audiences };
        let mut errors = Vec::new();
        match self.find_here(state, token, asked, told) {
            Ok(Some(reviewed)) => return Ok(reviewed),
            Ok(None) => {}
            Err(why) => errors.push(why),
        }
        if let Some(elsewhere) = &self.elsewhere {
            match elsewhere.review(token, asked).await {
                Ok(Some(reviewed)) => return Ok(reviewed),
                Ok(None) => {}
                Err(why) => errors.push(why),
            }
        }
        errors.retain(|why| why != UNKNOWN_TOKEN);
        Err(match errors.as_slice() {
            [] => UNKNOWN_TOKEN.into(),
            errors => format!("[{UNKNOWN_TOKEN}, {}]", errors.join(", ")),
        })
    }

    /// Like [`Self::find`], without calling another server.
    fn find_here(
        &self,
        state: &State,
        token: &str,
        asked: &[String],
        told: &mut Told,
    ) -> Result<Option<Reviewed>, String> {
        // A token without audiences is valid only for this server.
        let meant_for_us = |user: &Arc<User>| {
            let own = self.audiences();
            let audiences: Vec<String> = asked.iter().filter(|audience| own.contains(audience)).cloned().collect();
            (!audiences.is_empty() || asked.is_empty()).then(|| Reviewed { user: user.clone(), audiences })
        };
        if let Some(user) = self.static_tokens.get(token) {
            return Ok(meant_for_us(user));
        }
        let verified = match &self.service_accounts {
            Some(tokens) => tokens.verify(state, token, asked, told),
            None => Ok(None),
        };
        if matches!(verified, Ok(None)) && self.bootstrap_tokens {
            return Ok(bootstrap::user(state, token).as_ref().and_then(meant_for_us));
        }
        verified
    }

    /// The audiences of tokens that are for this server.
    fn audiences(&self) -> &[String] {
        self.service_accounts.as_ref().map_or(&[], |tokens| &tokens.audiences)
    }
}

impl Tokens for Authenticator {
    fn review<'a>(
        &'a self,
        state: &'a State,
        token: &'a str,
        audiences: &'a [String],
        told: &'a mut Told,
    ) -> BoxFuture<'a, Result<Reviewed, String>> {
        Box::pin(self.find(state, token, audiences, told))
    }
}

/// Reads the lines `token,user,uid[,"group,group"]` of a static token file.
pub fn static_tokens(text: &str) -> Result<HashMap<String, Arc<User>>, String> {
    let mut tokens = HashMap::new();
    for (line, token, user) in users(text, "token")? {
        if token.is_empty() {
            tracing::warn!("a token is empty, and passed over: line {line}");
            continue;
        }
        if tokens.insert(token, user).is_some() {
            tracing::warn!("a token is there twice, and the last one counts: line {line}");
        }
    }
    Ok(tokens)
}

/// Reads lines `SECRET,user,uid[,"group,group"]`: the number of the line, the secret, the user.
fn users(text: &str, secret: &str) -> Result<Vec<(usize, String, Arc<User>)>, String> {
    let (mut users, mut faults) = (Vec::new(), Vec::new());
    for (number, fields) in csv::records(text)? {
        let found = fields.len();
        let mut fields = fields.into_iter();
        let (Some(proof), Some(name), Some(uid)) = (fields.next(), fields.next(), fields.next()) else {
            faults.push(format!(
                "line {number}: must have at least 3 columns ({secret}, user name, user uid), found {found}"
            ));
            continue;
        };
        let groups = fields.next().map_or_else(Vec::new, |groups| groups.split(',').map(str::to_owned).collect());
        users.push((number, proof, Arc::new(authenticated(User { uid, groups, ..User::new(name, &[]) }))));
    }
    if faults.is_empty() { Ok(users) } else { Err(faults.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_files_read_or_say_which_line() {
        // Spaces are part of a field, and a line that begins with `#` is a line like any other.
        let tokens = static_tokens("t1,jane,7\n#note, x,y\nt2,joe,8,\"a, b\"\nt3,jim,9,\n").unwrap();
        assert_eq!(tokens["t1"].groups, ["system:authenticated"]);
        assert_eq!(tokens["#note"].name, " x");
        assert_eq!(tokens["t2"].groups, ["a", " b", "system:authenticated"]);
        assert_eq!(tokens["t3"].groups, ["", "system:authenticated"]);
        assert!(static_tokens("ok,a,1\nbad,b").unwrap_err().starts_with("line 2"));
        let tokens = static_tokens("a,b,c\n,d,e\na,d,e,,more").unwrap();
        assert_eq!((tokens.len(), tokens["a"].name.as_str()), (1, "d"));
        assert_eq!(static_tokens("\"a\"\"b\",\"c,d\",1").unwrap()["a\"b"].name, "c,d");
    }
}
