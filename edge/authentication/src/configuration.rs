//! The configured issuers, from the options for one issuer or from a file that is read again while the server runs.

use crate::metrics::Metrics;
use crate::oidc::claims::{Expression, Mapping, Rules, TextSource};
use crate::oidc::{Issuer, Settings};
use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use holdfast_core::cel::Type;
use holdfast_core::object::reader::{Reader, read_text};
use holdfast_edge::Followed;
use holdfast_outbound::{Dialer, Egress};
use holdfast_service::{Elsewhere, Reviewed};
use holdfast_tls::server::Pem;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the file is read again.
const PERIOD: Duration = Duration::from_secs(5);
/// How long discovery of new issuers may take before the file is rejected.
const HEALTHY_MAX: Duration = Duration::from_secs(60);
const ISSUERS_MAX: usize = 64;

/// The accepted signature algorithms: Kubernetes' algorithms except ES512, which the libraries here cannot verify.
pub const ALGORITHMS: [&str; 8] = ["RS256", "RS384", "RS512", "ES256", "ES384", "PS256", "PS384", "PS512"];

const GROUP: &str = "apiserver.config.k8s.io";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// A parsed AuthenticationConfiguration.
#[derive(Debug)]
pub struct Configuration {
    pub issuers: Vec<Settings>,
    pub anonymous: Option<Anonymous>,
}

/// Whether requests without credentials are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anonymous {
    pub enabled: bool,
    /// The paths on which requests without credentials are accepted; empty for all paths.
    pub paths: Vec<String>,
}

/// The server's own settings. A configuration must be compatible with these settings.
#[derive(Debug, Clone, Default)]
pub struct ServerAuthentication {
    /// The issuers of the server's own service account tokens. A configuration must not name them as issuers of JWTs.
    pub own_issuers: Vec<String>,
    /// The dialers for issuers that name an egress; `None` if no issuer may name an egress.
    pub egress: Option<Egress>,
}

impl Configuration {
    /// Parses a document in YAML or JSON; all errors are returned at once.
    pub fn read(text: &str, server: &ServerAuthentication) -> Result<Configuration, Vec<String>> {
        read_text(text, |reader| read(reader, server))
    }
}

fn read(reader: &Reader<'_>, server: &ServerAuthentication) -> Configuration {
    let (kind, version) = (reader.text("kind").unwrap_or(""), reader.text("apiVersion").unwrap_or(""));
    let known = version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
    if kind != "AuthenticationConfiguration" || !known.is_some_and(|known| VERSIONS.contains(&known)) {
        reader.fault("", format!("no kind {kind:?} is registered for version {version:?}"));
    }
    let list = reader.list("jwt").unwrap_or_default();
    if list.len() > ISSUERS_MAX {
        reader.fault("jwt", format!("Too many: {}: must have at most {ISSUERS_MAX} items", list.len()));
    }
    let issuers: Vec<Settings> = list.iter().take(ISSUERS_MAX).filter_map(|one| issuer(one, server)).collect();
    let mut urls = BTreeSet::new();
    for (at, one) in issuers.iter().enumerate() {
        for (field, url) in [("url", Some(&one.url)), ("discoveryURL", one.discovery_url.as_ref())] {
            if let Some(url) = url.filter(|url| !url.is_empty())
                && !urls.insert((field, url))
            {
                reader.fault(&format!("jwt[{at}].issuer.{field}"), format!("Duplicate value: {url:?}"));
            }
        }
    }
    Configuration { issuers, anonymous: anonymous(reader) }
}

fn anonymous(reader: &Reader<'_>) -> Option<Anonymous> {
    let own = reader.child("anonymous")?;
    let enabled = own.bool("enabled").unwrap_or(false);
    let conditions = own.list("conditions").unwrap_or_default();
    let paths: Vec<String> =
        conditions.iter().map(|condition| condition.text("path").unwrap_or("").to_owned()).collect();
    if !enabled && !paths.is_empty() {
        own.invalid("conditions", format!("{paths:?}"), "enabled should be set to true when conditions are defined");
    }
    Some(Anonymous { enabled, paths })
}

fn issuer(one: &Reader<'_>, server: &ServerAuthentication) -> Option<Settings> {
    let Some(issuer) = one.child("issuer") else {
        one.required("issuer", "");
        return None;
    };
    let url = issuer.text("url").unwrap_or("").to_owned();
    check_url(&issuer, "url", &url);
    if server.own_issuers.contains(&url) {
        issuer.invalid("url", format!("{url:?}"), "URL must not overlap with disallowed issuers");
    }
    let discovery_url = issuer.text("discoveryURL").filter(|url| !url.is_empty()).map(str::to_owned);
    if let Some(discovery) = &discovery_url {
        check_url(&issuer, "discoveryURL", discovery);
        if discovery.trim_end_matches('/') == url.trim_end_matches('/') {
            issuer.invalid("discoveryURL", format!("{discovery:?}"), "discoveryURL must be different from URL");
        }
    }
    let authority = issuer.text("certificateAuthority").filter(|text| !text.is_empty());
    let authority = authority.map(|text| Pem::Text(text.to_owned()));
    if let Some(Err(why)) = authority.as_ref().map(Pem::certificates) {
        issuer.invalid("certificateAuthority", "<omitted>", &why);
    }
    let dialer = dialer(&issuer, server);
    let (mapping, uses_email, verifies_email) = mapping(one);
    let (rules, checks_email) = rules(one);
    if uses_email && !verifies_email && !checks_email {
        let why = "claims.email_verified must be used in claimMappings.username.expression or \
                   claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used \
                   in claimMappings.username.expression";
        one.fault("claimMappings.username.expression", format!("Invalid value: {why}"));
    }
    let algorithms = ALGORITHMS.map(str::to_owned).into();
    Some(Settings { audiences: audiences(&issuer), url, discovery_url, authority, algorithms, mapping, rules, dialer })
}

/// The dialer for connections to the issuer.
fn dialer(issuer: &Reader<'_>, server: &ServerAuthentication) -> Dialer {
    let egress = issuer.text("egressSelectorType").unwrap_or("");
    if egress.is_empty() {
        return Dialer::Direct;
    }
    let Some(selector) = &server.egress else {
        let why = "egress selector is not supported when StructuredAuthenticationConfigurationEgressSelector feature \
                   gate is disabled";
        issuer.invalid("egressSelectorType", format!("{egress:?}"), why);
        return Dialer::Direct;
    };
    match egress {
        "controlplane" => selector.control_plane.clone(),
        "cluster" => selector.cluster.clone(),
        _ => {
            let why = "egress selector must be either controlplane or cluster";
            issuer.invalid("egressSelectorType", format!("{egress:?}"), why);
            Dialer::Direct
        }
    }
}

fn check_url(issuer: &Reader<'_>, field: &str, text: &str) {
    if text.is_empty() {
        return issuer.required(field, "URL is required");
    }
    let why = match text.parse::<http::Uri>() {
        Err(error) => error.to_string(),
        Ok(url) if url.scheme_str() != Some("https") => "URL scheme must be https".into(),
        Ok(url) if url.authority().is_some_and(|authority| authority.as_str().contains('@')) => {
            "URL must not contain a username or password".into()
        }
        Ok(url) if url.query().is_some() => "URL must not contain a query".into(),
        Ok(_) if text.contains('#') => "URL must not contain a fragment".into(),
        Ok(_) => return,
    };
    issuer.invalid(field, format!("{text:?}"), &why);
}

fn audiences(issuer: &Reader<'_>) -> Vec<String> {
    let audiences: Vec<String> = issuer.texts("audiences").unwrap_or_default().into_iter().map(str::to_owned).collect();
    if audiences.is_empty() {
        issuer.required("audiences", "at least one issuer.audiences is required");
    }
    let mut seen = BTreeSet::new();
    for (at, audience) in audiences.iter().enumerate() {
        let field = format!("audiences[{at}]");
        if audience.is_empty() {
            issuer.required(&field, "audience can't be empty");
        } else if !seen.insert(audience) {
            issuer.fault(&field, format!("Duplicate value: {audience:?}"));
        }
    }
    match issuer.text("audienceMatchPolicy").unwrap_or("") {
        "" if audiences.len() > 1 => {
            let why = "audienceMatchPolicy must be MatchAny for multiple audiences";
            issuer.invalid("audienceMatchPolicy", "\"\"", why);
        }
        "" | "MatchAny" => {}
        other => {
            let why = "audienceMatchPolicy must be empty or MatchAny for single audience";
            issuer.invalid("audienceMatchPolicy", format!("{other:?}"), why);
        }
    }
    audiences
}

/// The mapping, whether its expression for the user name reads the e-mail address, and whether an expression reads
/// whether the address is verified.
fn mapping(one: &Reader<'_>) -> (Mapping, bool, bool) {
    let nobody = TextSource::Claim { name: String::new(), prefix: String::new() };
    let empty = |username| Mapping { username, groups: None, uid: None, extra: Vec::new() };
    let Some(mappings) = one.child("claimMappings") else {
        one.required("claimMappings.username", "claim or expression is required");
        return (empty(nobody), false, false);
    };
    let mut written = Vec::new();
    let username = match mappings.child("username") {
        Some(username) => source(&username, &[Type::String], true, &mut written),
        None => None,
    };
    if username.is_none() {
        mappings.required("username", "claim or expression is required");
    }
    let uses_email = written.iter().any(|text| mentions(text, "claims.email"));
    let texts = [Type::String, Type::list(Type::String), Type::Null, Type::list(Type::Dyn)];
    let groups = mappings.child("groups").and_then(|groups| source(&groups, &texts, true, &mut Vec::new()));
    let uid = mappings.child("uid").and_then(|uid| source(&uid, &[Type::String], false, &mut Vec::new()));
    let extra = extra(&mappings, &texts, &mut written);
    let verifies = written.iter().any(|text| mentions(text, "claims.email_verified"));
    (Mapping { username: username.unwrap_or(nobody), groups, uid, extra }, uses_email, verifies)
}

/// Whether an expression contains this path as a whole, and not only as the beginning of a longer name.
fn mentions(text: &str, path: &str) -> bool {
    text.match_indices(path).any(|(at, _)| {
        let next = text[at + path.len()..].chars().next();
        !next.is_some_and(|next| next.is_ascii_alphanumeric() || next == '_')
    })
}

fn source(own: &Reader<'_>, types: &[Type], prefixed: bool, written: &mut Vec<String>) -> Option<TextSource> {
    let (claim, expression) = (own.text("claim").unwrap_or(""), own.text("expression").unwrap_or(""));
    let prefix = if prefixed { own.text("prefix") } else { None };
    match (claim, expression) {
        ("", "") => {
            if prefix.is_some() {
                own.invalid(
                    "prefix",
                    format!("{:?}", prefix.unwrap_or("")),
                    "non-empty claim name is required when prefix is set",
                );
            }
            None
        }
        ("", text) => {
            if prefix.is_some() {
                own.invalid(
                    "prefix",
                    format!("{:?}", prefix.unwrap_or("")),
                    "prefix can't be set when expression is set",
                );
            }
            written.push(text.to_owned());
            match Expression::over_claims(text, types) {
                Ok(expression) => Some(TextSource::Expression(expression)),
                Err(why) => {
                    own.invalid("expression", format!("{text:?}"), &why);
                    None
                }
            }
        }
        (name, "") => {
            if prefixed && prefix.is_none() {
                own.required(
                    "prefix",
                    "prefix is required when claim is set. It can be set to an empty string to disable prefixing",
                );
            }
            Some(TextSource::Claim { name: name.to_owned(), prefix: prefix.unwrap_or("").to_owned() })
        }
        _ => {
            own.invalid("", "\"\"", "claim and expression can't both be set");
            None
        }
    }
}

fn extra(mappings: &Reader<'_>, types: &[Type], written: &mut Vec<String>) -> Vec<(String, Expression)> {
    let mut extra: Vec<(String, Expression)> = Vec::new();
    for one in mappings.list("extra").unwrap_or_default() {
        let (key, text) = (one.text("key").unwrap_or(""), one.text("valueExpression").unwrap_or(""));
        check_key(&one, key);
        if extra.iter().any(|(own, _)| own == key) {
            one.fault("key", format!("Duplicate value: {key:?}"));
        }
        if text.is_empty() {
            one.required("valueExpression", "valueExpression is required");
            continue;
        }
        written.push(text.to_owned());
        match Expression::over_claims(text, types) {
            Ok(expression) => extra.push((key.to_owned(), expression)),
            Err(why) => one.invalid("valueExpression", format!("{text:?}"), &why),
        }
    }
    extra
}

fn check_key(one: &Reader<'_>, key: &str) {
    let domain = key.split_once('/').filter(|(domain, path)| !domain.is_empty() && !path.is_empty());
    let reserved = |domain: &str| {
        ["k8s.io", "kubernetes.io"].iter().any(|own| domain == *own || domain.ends_with(&format!(".{own}")))
    };
    let why = match domain {
        None if key.is_empty() => return one.required("key", "key is required"),
        None => "must be a domain-prefixed path (such as \"acme.io/foo\")",
        Some(_) if key.chars().any(char::is_uppercase) => "key must be lowercase",
        Some((domain, _)) if reserved(domain) => {
            "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"
        }
        Some((domain, _)) if !domain.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)) => {
            "the part before the slash must be a domain"
        }
        Some(_) => return,
    };
    one.invalid("key", format!("{key:?}"), why);
}

/// The rules, and whether the expression of a rule reads whether the e-mail address is verified.
fn rules(one: &Reader<'_>) -> (Rules, bool) {
    let mut rules = Rules::default();
    let mut checks_email = false;
    let mut seen = BTreeSet::new();
    let mut is_new = |rule: &Reader<'_>, field: &'static str, of: &'static str, text: &str| {
        let is_new = seen.insert((of, field, text.to_owned()));
        if !is_new {
            rule.fault(field, format!("Duplicate value: {text:?}"));
        }
        is_new
    };
    for rule in one.list("claimValidationRules").unwrap_or_default() {
        let (claim, text) = (rule.text("claim").unwrap_or(""), rule.text("expression").unwrap_or(""));
        let (wanted, message) = (rule.text("requiredValue"), rule.text("message"));
        match (claim, text) {
            ("", "") => rule.required("", "claim or expression is required"),
            (name, "") => {
                if message.is_some() {
                    rule.invalid(
                        "message",
                        format!("{:?}", message.unwrap_or("")),
                        "message can't be set when claim is set",
                    );
                }
                if is_new(&rule, "claim", "claims", name) {
                    rules.required.push((name.to_owned(), wanted.unwrap_or("").to_owned()));
                }
            }
            ("", text) => {
                if wanted.is_some() {
                    let why = "requiredValue can't be set when expression is set";
                    rule.invalid("requiredValue", format!("{:?}", wanted.unwrap_or("")), why);
                }
                checks_email |= mentions(text, "claims.email_verified");
                if !is_new(&rule, "expression", "claims", text) {
                    continue;
                }
                match Expression::over_claims(text, &[Type::Bool]) {
                    Ok(expression) => rules.claims.push((expression, message.unwrap_or("").to_owned())),
                    Err(why) => rule.invalid("expression", format!("{text:?}"), &why),
                }
            }
            _ => rule.invalid("", "\"\"", "claim and expression can't both be set"),
        }
    }
    for rule in one.list("userValidationRules").unwrap_or_default() {
        let (text, message) = (rule.text("expression").unwrap_or(""), rule.text("message").unwrap_or(""));
        if text.is_empty() {
            rule.required("expression", "expression is required");
            continue;
        }
        if !is_new(&rule, "expression", "user", text) {
            continue;
        }
        match Expression::over_user(text, &[Type::Bool]) {
            Ok(expression) => rules.users.push((expression, message.to_owned())),
            Err(why) => rule.invalid("expression", format!("{text:?}"), &why),
        }
    }
    (rules, checks_email)
}

/// The issuers whose tokens a server accepts, which change with the configuration file.
pub struct Issuers {
    all: ArcSwap<Vec<Arc<Issuer>>>,
    metrics: Metrics,
}

impl Issuers {
    /// Starts discovery of all issuers.
    pub fn start(all: Vec<Settings>, metrics: Metrics) -> Arc<Issuers> {
        let all: Vec<Arc<Issuer>> = all.into_iter().map(Issuer::new).collect();
        all.iter().for_each(Issuer::discover);
        Arc::new(Issuers { all: ArcSwap::from_pointee(all), metrics })
    }

    async fn ask(&self, token: &str, audiences: &[String]) -> Result<Option<Reviewed>, String> {
        let all = self.all.load_full();
        for issuer in all.iter() {
            let began = Instant::now();
            let judged = issuer.review(token, audiences).await;
            // Tokens of other issuers are not counted.
            if !matches!(judged, Ok(None)) {
                self.metrics.judged(issuer.url(), judged.is_ok(), began.elapsed());
                return judged;
            }
        }
        Ok(None)
    }

    /// Reads the configuration file again whenever it changes. `text` is the content that is in effect.
    pub async fn follow(
        self: Arc<Self>,
        file: PathBuf,
        text: String,
        anonymous: Option<Anonymous>,
        server: ServerAuthentication,
    ) {
        let mut file = Followed::new("authentication configuration", file, text, PERIOD, self.metrics.reloads.clone());
        loop {
            let text = file.changed().await;
            file.applied(&self.take(&text, &anonymous, &server).await);
        }
    }

    async fn take(
        &self,
        text: &str,
        anonymous: &Option<Anonymous>,
        server: &ServerAuthentication,
    ) -> Result<(), String> {
        let configuration = Configuration::read(text, server).map_err(|faults| faults.join(", "))?;
        if configuration.anonymous != *anonymous {
            return Err("anonymous cannot change while the server runs".into());
        }
        let issuers: Vec<Arc<Issuer>> = configuration.issuers.into_iter().map(Issuer::new).collect();
        let began = Instant::now();
        for issuer in &issuers {
            while let Err(error) = issuer.try_discover().await {
                if began.elapsed() >= HEALTHY_MAX {
                    return Err(format!("{}: {error:#}", issuer.url()));
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        self.all.store(Arc::new(issuers));
        Ok(())
    }
}

impl Elsewhere for Issuers {
    fn review<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [String],
    ) -> BoxFuture<'a, Result<Option<Reviewed>, String>> {
        Box::pin(self.ask(token, audiences))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::{Value, json};

    fn document(jwt: &str) -> String {
        format!("apiVersion: {GROUP}/v1\nkind: AuthenticationConfiguration\njwt:\n{jwt}")
    }

    const GOOD: &str = "- issuer: {url: https://i, audiences: [a]}\n  claimValidationRules:\n  - {claim: team, requiredValue: blue}\n  - {expression: 'claims.level > 2', message: too low}\n  claimMappings:\n    username: {expression: '\"str:\" + claims.sub'}\n    groups: {expression: claims.roles}\n    uid: {claim: sub}\n    extra: [{key: example.com/tenant, valueExpression: claims.tenant}, {key: example.com/empty, valueExpression: '\"\"'}]\n  userValidationRules: [{expression: '!user.username.endsWith(\":root\")', message: no root}]\n";

    #[test]
    fn claims_become_a_user() {
        let configuration =
            Configuration::read(&document(GOOD), &ServerAuthentication::default()).expect("it is right");
        let issuer = &configuration.issuers[0];
        let user = |claims: Value| issuer.mapping.user(&claims, &issuer.rules);
        let good = json!({"sub": "s", "team": "blue", "level": 3, "roles": ["r1", "r2"], "tenant": "acme", "jti": "j"});
        let with = |name: &str, value: Value| {
            let mut claims = good.clone();
            claims[name] = value;
            user(claims)
        };
        let found = user(good.clone()).expect("it is somebody");
        assert_eq!((found.name.as_str(), found.uid.as_str()), ("str:s", "s"));
        assert_eq!(found.groups, ["r1", "r2", "system:authenticated"]);
        assert_eq!(
            json!(found.extra),
            json!({"authentication.kubernetes.io/credential-id": ["JTI=j"], "example.com/tenant": ["acme"]})
        );
        assert_eq!(with("roles", json!("one")).expect("it is somebody").groups[0], "one");
        for (name, value, why) in [
            ("team", json!("red"), "required claim team value does not match. Got = red, want = blue"),
            ("level", json!(2), "too low"),
            ("level", json!("x"), "no such overload"),
            ("sub", json!("x:root"), "no root"),
            ("sub", json!(7), "username"),
            ("roles", json!({"a": 1}), "expression must return a string or a list of strings"),
            ("roles", json!([1]), "expression must return a string or a list of strings"),
        ] {
            let told = with(name, value).expect_err(name);
            assert!(told.contains(why), "{name}: {told}");
        }
        let mut without = good.clone();
        without.as_object_mut().unwrap().remove("tenant");
        assert!(user(without).expect_err("it has no tenant").contains("tenant"));
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let wrong = "- issuer: {url: http://i, audiences: [a, a], odd: 1}\n  claimMappings:\n    username: {claim: sub}\n    groups: {claim: g, expression: claims.g}\n    extra: [{key: k8s.io/x, valueExpression: 'claims.('}]\n- issuer: {url: https://own, discoveryURL: https://own/, audiences: []}\n  claimMappings: {username: {expression: claims.email}}\n  claimValidationRules: [{expression: '1'}]\n";
        let own = ServerAuthentication { own_issuers: vec!["https://own".into()], egress: None };
        let told = Configuration::read(&document(wrong), &own).expect_err("it is wrong");
        for part in [
            "jwt[0].issuer.url: Invalid value: \"http://i\": URL scheme must be https",
            "jwt[0].issuer.audiences[1]: Duplicate value: \"a\"",
            "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny",
            "strict decoding error: unknown field \"jwt[0].issuer.odd\"",
            "jwt[0].claimMappings.username.prefix: Required value",
            "jwt[0].claimMappings.groups: Invalid value: \"\": claim and expression can't both be set",
            "jwt[0].claimMappings.extra[0].key: Invalid value: \"k8s.io/x\"",
            "jwt[0].claimMappings.extra[0].valueExpression: Invalid value: \"claims.(\": compilation failed",
            "jwt[1].issuer.url: Invalid value: \"https://own\": URL must not overlap with disallowed issuers",
            "jwt[1].issuer.discoveryURL: Invalid value: \"https://own/\": discoveryURL must be different from URL",
            "jwt[1].issuer.audiences: Required value: at least one issuer.audiences is required",
            "jwt[1].claimMappings.username.expression: Invalid value: claims.email_verified must be used",
            "jwt[1].claimValidationRules[0].expression: Invalid value: \"1\": must evaluate to bool",
        ] {
            assert!(told.iter().any(|told| told.starts_with(part)), "{part}\nis not among\n{told:#?}");
        }
        let twice = "- issuer: {url: https://i, audiences: [a]}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n  claimValidationRules: [{claim: a, requiredValue: b}, {claim: a, requiredValue: c}, {expression: 'true'}, {expression: 'true'}]\n  userValidationRules: [{expression: 'true'}, {expression: 'true'}]\n";
        let told = Configuration::read(&document(twice), &own).expect_err("it is wrong");
        let expected = [
            "jwt[0].claimValidationRules[1].claim: Duplicate value: \"a\"",
            "jwt[0].claimValidationRules[3].expression: Duplicate value: \"true\"",
            "jwt[0].userValidationRules[1].expression: Duplicate value: \"true\"",
        ];
        assert_eq!(told, expected);
        let anonymous = format!(
            "apiVersion: {GROUP}/v1\nkind: AuthenticationConfiguration\nanonymous: {{enabled: false, conditions: [{{path: /x}}]}}"
        );
        assert!(
            Configuration::read(&anonymous, &ServerAuthentication::default()).expect_err("it is wrong")[0]
                .contains("enabled should be set to true")
        );
    }
}
