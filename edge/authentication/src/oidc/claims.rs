//! Derives the user from the claims of a token, by names of claims or by expressions.

use holdfast_core::authz::User;
use holdfast_core::cel::{Budget, Environment, Program, Type, Value, compile};
use holdfast_tls::peer::authenticated;
use holdfast_value::{Map, Value as Json, json};
use std::sync::LazyLock;

/// The cost limit of one expression. It equals the limit for all expressions of an admission policy.
const COST_MAX: u64 = 10_000_000;
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

static CLAIMS: LazyLock<Type> = LazyLock::new(|| Type::map(Type::String, Type::Dyn));
static USER: LazyLock<Type> = LazyLock::new(|| {
    let texts = || Type::list(Type::String);
    Type::object(
        "kubernetes.UserInfo",
        [
            ("username", Type::String),
            ("uid", Type::String),
            ("groups", texts()),
            ("extra", Type::map(Type::String, texts())),
        ],
    )
});

/// The audiences of a token.
pub fn audiences(claims: &Json) -> Vec<String> {
    match &claims["aud"] {
        Json::String(one) => vec![one.to_string()],
        Json::Array(all) => all.iter().filter_map(Json::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// The time in a claim, in seconds since 1970.
pub fn seconds(claims: &Json, claim: &str) -> Option<i64> {
    let time = &claims[claim];
    time.as_i64().or_else(|| time.as_f64().map(|time| time as i64))
}

/// An expression that reads either the variable `claims` or the variable `user`.
#[derive(Debug)]
pub struct Expression {
    program: Program,
    over: &'static LazyLock<Type>,
}

impl Expression {
    pub fn over_claims(text: &str, types: &[Type]) -> Result<Expression, String> {
        Expression::new(text, "claims", &CLAIMS, types)
    }

    pub fn over_user(text: &str, types: &[Type]) -> Result<Expression, String> {
        Expression::new(text, "user", &USER, types)
    }

    fn new(text: &str, name: &str, over: &'static LazyLock<Type>, types: &[Type]) -> Result<Expression, String> {
        let environment = Environment::kubernetes().variable(name, (**over).clone());
        let program = compile(text, &environment).map_err(|faults| {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            format!("compilation failed: {}", faults.join("\n"))
        })?;
        let result = program.result();
        if !types.contains(result) && *result != Type::Dyn {
            let wanted: Vec<&str> = types.iter().map(Type::value_name).collect();
            return Err(format!("must evaluate to {}", wanted.join(" or ")));
        }
        Ok(Expression { program, over })
    }

    /// Evaluates the expression, and reads the result with `read`.
    fn evaluate<T>(&self, document: &Json, read: impl FnOnce(&Value<'_>) -> Result<T, String>) -> Result<T, String> {
        let value = Value::json(document, self.over).map_err(|error| error.to_string())?;
        let mut budget = Budget::new(COST_MAX);
        let result = self.program.eval(&[value], &mut budget).map_err(|error| error.to_string())?;
        read(&result)
    }
}

fn text_of(value: &Value<'_>) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.to_string()),
        _ => Err("expression must return a string".into()),
    }
}

/// Reads the result of an expression, which must be a string, a list of strings, or null.
fn texts_of(value: &Value<'_>) -> Result<Vec<String>, String> {
    let wrong = || "expression must return a string or a list of strings".to_owned();
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(Some(text.to_string()).into_iter().filter(|text| !text.is_empty()).collect()),
        list if list.list_len().is_some() => list
            .items()
            .map(|item| match item.map_err(|error| error.to_string())? {
                Value::String(text) => Ok(text.to_string()),
                _ => Err(wrong()),
            })
            .collect(),
        _ => Err(wrong()),
    }
}

/// Where one text of a user, such as the name, comes from.
#[derive(Debug)]
pub enum TextSource {
    /// The value of a claim, after a prefix.
    Claim {
        name: String,
        prefix: String,
    },
    Expression(Expression),
}

/// Where the name, groups, uid and extra fields of a user come from.
#[derive(Debug)]
pub struct Mapping {
    pub username: TextSource,
    pub groups: Option<TextSource>,
    pub uid: Option<TextSource>,
    pub extra: Vec<(String, Expression)>,
}

/// Conditions that the claims of a token, and the user whom they describe, must fulfil.
#[derive(Debug, Default)]
pub struct Rules {
    /// The names of claims, each with the value that the claim must have.
    pub required: Vec<(String, String)>,
    /// Expressions over the claims that must be true, each with its error message.
    pub claims: Vec<(Expression, String)>,
    /// Expressions over the user that must be true, each with its error message.
    pub users: Vec<(Expression, String)>,
}

impl Mapping {
    /// The user whom the claims describe, if all rules hold.
    pub fn user(&self, claims: &Json, rules: &Rules) -> Result<User, String> {
        let mut user = User::new(self.username(claims)?, &[]);
        if user.name.is_empty() {
            return Err("oidc: username is empty".into());
        }
        user.groups = self.groups(claims)?;
        if let Some(uid) = &self.uid {
            user.uid = single(uid, claims).map_err(|why| format!("oidc: error evaluating uid: {why}"))?;
        }
        if let Some(id) = claims["jti"].as_str().filter(|id| !id.is_empty()) {
            user.extra.insert(CREDENTIAL_ID.into(), vec![format!("JTI={id}")]);
        }
        for (key, expression) in &self.extra {
            let values = expression.evaluate(claims, texts_of);
            let values = values.map_err(|why| format!("oidc: error evaluating extra {key:?}: {why}"))?;
            let values: Vec<String> = values.into_iter().filter(|value| !value.is_empty()).collect();
            if !values.is_empty() {
                user.extra.insert(key.clone(), values);
            }
        }
        rules.check_claims(claims)?;
        rules.check_user(&user)?;
        Ok(authenticated(user))
    }

    fn username(&self, claims: &Json) -> Result<String, String> {
        if let TextSource::Claim { name, .. } = &self.username
            && name == "email"
            && let Some(verified) = claims.get("email_verified")
        {
            match verified.as_bool() {
                Some(true) => {}
                Some(false) => return Err("oidc: email not verified".into()),
                None => return Err("oidc: parse 'email_verified' claim: it is not a boolean".into()),
            }
        }
        single(&self.username, claims).map_err(|why| format!("oidc: error evaluating username: {why}"))
    }

    fn groups(&self, claims: &Json) -> Result<Vec<String>, String> {
        match &self.groups {
            None => Ok(Vec::new()),
            Some(TextSource::Expression(expression)) => {
                let groups = expression.evaluate(claims, texts_of);
                groups.map_err(|why| format!("oidc: error evaluating group claim expression: {why}"))
            }
            Some(TextSource::Claim { name, prefix }) => {
                if claims[name].is_null() && !claims["_claim_names"][name].is_null() {
                    return Err(format!("oidc: the claim {name:?} is at another server, which is not asked"));
                }
                let texts = match &claims[name] {
                    Json::Null => Vec::new(),
                    Json::String(one) => vec![one.to_string()],
                    Json::Array(all) => {
                        let texts = all.iter().map(|one| one.as_str().map(str::to_owned)).collect::<Option<_>>();
                        texts.ok_or_else(|| wrong_groups(name))?
                    }
                    _ => return Err(wrong_groups(name)),
                };
                Ok(texts.into_iter().map(|text| format!("{prefix}{text}")).collect())
            }
        }
    }
}

fn wrong_groups(name: &str) -> String {
    format!("oidc: parse groups claim {name:?}: it is neither a string nor a list of strings")
}

fn single(source: &TextSource, claims: &Json) -> Result<String, String> {
    match source {
        TextSource::Expression(expression) => expression.evaluate(claims, text_of),
        TextSource::Claim { name, prefix } => match &claims[name] {
            Json::String(text) => Ok(format!("{prefix}{text}")),
            Json::Null => Err(format!("the claim {name:?} is not there")),
            _ => Err(format!("the claim {name:?} is not a string")),
        },
    }
}

impl Rules {
    fn check_claims(&self, claims: &Json) -> Result<(), String> {
        for (name, wanted) in &self.required {
            match claims[name].as_str() {
                Some(found) if found == wanted => {}
                Some(found) => {
                    return Err(format!(
                        "oidc: required claim {name} value does not match. Got = {found}, want = {wanted}"
                    ));
                }
                None => return Err(format!("oidc: required claim {name} not present in ID token, or no string")),
            }
        }
        check(&self.claims, claims, "oidc: error evaluating claim validation expression")
    }

    fn check_user(&self, user: &User) -> Result<(), String> {
        if self.users.is_empty() {
            return Ok(());
        }
        let mut document = Map::new();
        document.insert("username", json!(user.name));
        document.insert("uid", json!(user.uid));
        document.insert("groups", json!(user.groups));
        document.insert("extra", json!(user.extra));
        check(&self.users, &Json::Object(document), "oidc: error evaluating user info validation rule")
    }
}

fn check(rules: &[(Expression, String)], document: &Json, what: &str) -> Result<(), String> {
    for (expression, message) in rules {
        let holds = expression.evaluate(document, |value| match value {
            Value::Bool(holds) => Ok(*holds),
            _ => Err("expression must return a boolean".into()),
        });
        if !holds.map_err(|why| format!("{what}: {why}"))? {
            return Err(format!("{what}: {message}"));
        }
    }
    Ok(())
}
