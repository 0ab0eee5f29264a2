//! The `authorizer` library. Only admission expressions have an authorizer value. Elsewhere the functions are declared
//! but cannot be called.

use super::{Cost, EvalError, Overload, Value, own, text};
use crate::cel::functions::overload;
use crate::cel::value::Opaque;
use std::any::Any;
use std::fmt;
use std::rc::Rc;

pub const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
pub const RESOURCE_CHECK: &str = "kubernetes.authorization.ResourceCheck";

/// Answers the authorization checks that an expression makes.
pub trait Authority {
    /// Decides whether `account` (namespace and name of a service account), or without it the user of the request, may
    /// do `verb`.
    fn judge(&self, account: Option<(&str, &str)>, question: &Question, verb: &str) -> Decision;
}

/// The subject of an authorization check: a path that is not a resource, or a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    Path(String),
    Resource(Resource),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resource {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// The field selector of the request that is checked, as text.
    pub fields: String,
    /// The label selector of the request that is checked, as text.
    pub labels: String,
}

/// The decision of an authority.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    pub is_allowed: bool,
    pub reason: String,
    /// The error of an authorizer, if one occurred while it decided.
    pub error: Option<String>,
}

/// The value of the variable `authorizer`, which expressions ask for permissions.
#[derive(Clone)]
pub struct Authorizer {
    authority: Rc<dyn Authority>,
    account: Option<(String, String)>,
}

impl Authorizer {
    pub fn new(authority: Rc<dyn Authority>) -> Self {
        Self { authority, account: None }
    }

    /// The value of the variable `authorizer.requestResource`: a check of the resource that the request names.
    pub fn resource<'a>(&self, resource: Resource) -> Value<'a> {
        Value::opaque(Check { of: self.clone(), question: Question::Resource(resource), ty: RESOURCE_CHECK })
    }
}

/// A check of a path, a group or a resource, whose authority has not been asked yet.
#[derive(Clone)]
struct Check {
    of: Authorizer,
    question: Question,
    ty: &'static str,
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authorizer({:?})", self.account)
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Check({:?})", self.question)
    }
}

impl Opaque for Authorizer {
    fn type_name(&self) -> &'static str {
        AUTHORIZER
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Self>().is_some_and(|other| self.account == other.account)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Opaque for Check {
    fn type_name(&self) -> &'static str {
        self.ty
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| self.question == other.question && self.of.equals(&other.of))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Opaque for Decision {
    fn type_name(&self) -> &'static str {
        "kubernetes.authorization.Decision"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Self>().is_some_and(|other| self == other)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub static TABLE: &[Overload] = &[
    overload(
        "<kubernetes.authorization.Authorizer>.path(string) -> kubernetes.authorization.PathCheck",
        path,
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.Authorizer>.group(string) -> kubernetes.authorization.GroupCheck",
        group,
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.Authorizer>.serviceAccount(string, string) -> kubernetes.authorization.Authorizer",
        service_account,
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.GroupCheck>.resource(string) -> kubernetes.authorization.ResourceCheck",
        resource,
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.ResourceCheck>.subresource(string) -> kubernetes.authorization.ResourceCheck",
        |arguments| narrowed(arguments, |check, text| check.subresource = text),
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.ResourceCheck>.namespace(string) -> kubernetes.authorization.ResourceCheck",
        |arguments| narrowed(arguments, |check, text| check.namespace = text),
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.ResourceCheck>.name(string) -> kubernetes.authorization.ResourceCheck",
        |arguments| narrowed(arguments, |check, text| check.name = text),
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.ResourceCheck>.fieldSelector(string) -> kubernetes.authorization.ResourceCheck",
        |arguments| narrowed(arguments, |check, text| check.fields = text),
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.ResourceCheck>.labelSelector(string) -> kubernetes.authorization.ResourceCheck",
        |arguments| narrowed(arguments, |check, text| check.labels = text),
        Cost::One,
    ),
    overload("<kubernetes.authorization.PathCheck>.check(string) -> kubernetes.authorization.Decision", check, CHECK),
    overload(
        "<kubernetes.authorization.ResourceCheck>.check(string) -> kubernetes.authorization.Decision",
        check,
        CHECK,
    ),
    overload(
        "<kubernetes.authorization.Decision>.allowed() -> bool",
        |arguments| Ok(Value::Bool(own::<Decision>(arguments, 0)?.is_allowed)),
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.Decision>.reason() -> string",
        |arguments| Ok(Value::text(own::<Decision>(arguments, 0)?.reason.clone())),
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.Decision>.error() -> string",
        |arguments| Ok(Value::text(own::<Decision>(arguments, 0)?.error.clone().unwrap_or_default())),
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.Decision>.errored() -> bool",
        |arguments| Ok(Value::Bool(own::<Decision>(arguments, 0)?.error.is_some())),
        Cost::One,
    ),
];

/// The cost of a check. The cost is so high that the budget of an expression allows at most two checks.
const CHECK: Cost = Cost::Fixed(350_000);

fn path<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let of = own::<Authorizer>(arguments, 0)?.clone();
    let path = text(&arguments[1..])?;
    if path.trim().is_empty() {
        return Err(EvalError::new("path must not be empty"));
    }
    let question = Question::Path(path.to_owned());
    Ok(Value::opaque(Check { of, question, ty: "kubernetes.authorization.PathCheck" }))
}

fn group<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let of = own::<Authorizer>(arguments, 0)?.clone();
    let group = text(&arguments[1..])?.to_owned();
    let question = Question::Resource(Resource { group, ..Resource::default() });
    Ok(Value::opaque(Check { of, question, ty: "kubernetes.authorization.GroupCheck" }))
}

fn resource<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    if text(&arguments[1..])?.trim().is_empty() {
        return Err(EvalError::new("resource must not be empty"));
    }
    narrowed(arguments, |check, text| check.resource = text)
}

fn service_account<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let of = own::<Authorizer>(arguments, 0)?.clone();
    let (namespace, name) = (text(&arguments[1..])?, text(&arguments[2..])?);
    if !crate::object::names::subdomain(name).is_empty() {
        return Err(EvalError::new("Invalid service account name"));
    }
    if !crate::object::names::label(namespace).is_empty() {
        return Err(EvalError::new("Invalid service account namespace"));
    }
    let account = Some((namespace.to_owned(), name.to_owned()));
    Ok(Value::opaque(Authorizer { account, ..of }))
}

fn narrowed<'a>(arguments: &[Value<'a>], narrow: impl FnOnce(&mut Resource, String)) -> Result<Value<'a>, EvalError> {
    let mut check = own::<Check>(arguments, 0)?.clone();
    let text = text(&arguments[1..])?.to_owned();
    if let Question::Resource(resource) = &mut check.question {
        narrow(resource, text);
    }
    Ok(Value::opaque(Check { ty: RESOURCE_CHECK, ..check }))
}

fn check<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let check = own::<Check>(arguments, 0)?;
    let verb = text(&arguments[1..])?;
    let account = check.of.account.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
    Ok(Value::opaque(check.of.authority.judge(account, &check.question, verb)))
}
