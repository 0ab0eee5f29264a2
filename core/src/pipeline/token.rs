//! Decides the claims of service account tokens. The engine signs the tokens.

use super::candidate::Made;
use super::claims::{BoundTo, TokenClaims};
use super::decision::{Answer, Decision};
use super::{Context, Effect, Endpoint, SignedToken, Stop, admit, body, decode};
use crate::authz::service_account_user;
use crate::kinds::known::TOKEN_REQUEST;
use crate::kinds::{self, Known, known};
use crate::merge::managed;
use crate::object::meta;
use crate::refusal::{BadRequest, Cause, Conflict, Internal, Mismatch, Refusal, Subject};
use crate::schema::layout::Layout;
use crate::stamp::rfc3339;
use holdfast_value::{Value, json};
use jiff::SignedDuration;

/// The lifetime of a token if the request names none, in seconds.
const SECONDS: i64 = 3600;
/// The shortest lifetime of a token, in seconds.
const SECONDS_MIN: i64 = 600;
/// The longest lifetime of a token, in seconds.
const SECONDS_MAX: i64 = 1 << 32;
/// The lifetime in seconds that a kubelet requests for the token of a pod. The server may extend a token with this
/// lifetime.
const EXTENDED: i64 = 3607;

pub(super) fn request(context: &Context, _: &Endpoint) -> Result<Made, Stop> {
    let layout = decode::layout_of("io.k8s.api.authentication.v1.TokenRequest")?;
    let mut body = context.decode_as("authentication.k8s.io", "v1", "TokenRequest", layout)?;
    body::match_namespace(context, meta::metadata_mut(meta::fields_mut(&mut body)))?;
    // An empty list of audiences also counts as naming audiences, so the request's sender owns the field.
    let names_audiences = body["spec"]["audiences"].is_array();
    let mut account = None;
    let mut body = admit::completed_part(context, TOKEN_REQUEST, body, |body| {
        same_name(context, body)?;
        let found = account.insert(context.existing()?);
        Ok(complete(context, layout, body, &found.document)?)
    })?;
    let Some(account) = account else { return Err(Refusal::Internal(Internal::NoDecision { verb: "create" }).into()) };
    let asked = body["spec"]["expirationSeconds"].as_i64().unwrap_or(SECONDS);
    let seconds = context.settings.token_seconds_max.map_or(asked, |most| asked.min(most));
    if seconds < asked {
        context.warn([format!("requested expiration of {asked} seconds shortened to {seconds} seconds")]);
    }
    let claims = TokenClaims { account: bound_to(&account.document), ..claims(context, &body["spec"], seconds)? };
    let extends = context.settings.extend_tokens && claims.pod.is_some() && seconds == EXTENDED;
    let claims = TokenClaims { extends, ..claims };
    let Some(signed) = context.answers.token(&claims) else {
        return Err(Stop::Needs(Effect::Sign(Box::new(claims))));
    };
    if !names_audiences && let Some(spec) = body["spec"].as_object_mut() {
        // The server set the audiences, so no manager owns them.
        spec.remove("audiences");
    }
    // Requests made with the token have the same annotation, so that the audit log leads from them to the token's
    // creation.
    context.annotate("authentication.kubernetes.io/issued-credential-id", format!("JTI={}", claims.id));
    let document = answer(context, layout, body, seconds, signed);
    let answer = Answer::Document { document: meta::fields(&document).clone() };
    let (writes, expects, warnings, changes) = Default::default();
    let decision = Decision { writes, expects, answer, fixed: false, warnings, changes };
    Ok(Made::Answer(Box::new(decision)))
}

/// Checks a TokenRequest, and fills in its missing fields.
fn complete(context: &Context, layout: Layout, body: &mut Value, account: &Value) -> Result<(), Refusal> {
    if !context.settings.gates_off.contains("TokenRequestServiceAccountUIDValidation") {
        same_uid(context, body, account)?;
    }
    let named = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    kinds::default(layout, body)?;
    seconds(&named, &body["spec"]["expirationSeconds"])?;
    for (field, value) in [
        ("name", context.request.name()),
        ("namespace", context.request.namespace().unwrap_or("")),
        ("uid", meta::uid(meta::fields(account))),
        ("creationTimestamp", &context.stamp.rfc3339()),
    ] {
        body["metadata"][field] = value.into();
    }
    let audiences = &mut body["spec"]["audiences"];
    if audiences.as_array().is_none_or(Vec::is_empty) {
        *audiences = context.settings.api_audiences.clone().into();
    }
    body["status"] = json!({"token": "", "expirationTimestamp": null});
    Ok(())
}

/// Checks that the request names the account of the path, or no account.
fn same_name(context: &Context, body: &Value) -> Result<(), Refusal> {
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    if name.is_empty() || name == context.request.name() {
        return Ok(());
    }
    let why = "must match the service account name if specified";
    Err(Refusal::Invalid {
        subject: Subject::new("authentication.k8s.io", "TokenRequest", context.request.name()),
        causes: Cause::invalid("metadata.name", &name.into(), why).into(),
    })
}

/// Checks the account's UID. A request with another UID is for an account that was deleted.
fn same_uid(context: &Context, body: &Value, account: &Value) -> Result<(), Refusal> {
    let (wanted, found) = (meta::uid(meta::fields(body)), meta::uid(meta::fields(account)));
    if wanted.is_empty() || wanted == found {
        return Ok(());
    }
    let uids = Mismatch { wanted: wanted.to_owned(), found: found.to_owned() };
    Err(Refusal::Conflict {
        subject: Subject::new("authentication.k8s.io", "TokenRequest", context.request.name()),
        why: Conflict::AccountUid(Box::new(uids)),
    })
}

/// The requested lifetime in seconds.
fn seconds(name: &str, asked: &Value) -> Result<i64, Refusal> {
    let seconds = asked.as_i64().unwrap_or(SECONDS);
    let why = match seconds {
        ..SECONDS_MIN => "may not specify a duration less than 10 minutes",
        SECONDS_MIN..=SECONDS_MAX => return Ok(seconds),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    Err(Refusal::Invalid {
        subject: Subject::new("authentication.k8s.io", "TokenRequest", name),
        causes: Cause::invalid("spec.expirationSeconds", &seconds.into(), why).into(),
    })
}

fn claims(context: &Context, spec: &Value, seconds: i64) -> Result<TokenClaims, Refusal> {
    let namespace = context.request.namespace().unwrap_or("");
    let audiences = spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let issued = context.stamp.seconds();
    let claims = TokenClaims {
        id: context.stamp.uid(0),
        subject: service_account_user(namespace, context.request.name()),
        audiences: audiences.map(str::to_owned).collect(),
        issued,
        expires: issued.saturating_add(seconds),
        extends: false,
        namespace: namespace.to_owned(),
        account: BoundTo::default(),
        pod: None,
        secret: None,
        node: None,
    };
    bind(context, claims, &spec["boundObjectRef"])
}

/// Binds the token to the requested object: a pod (and through it its node), a Secret, or a node.
fn bind(context: &Context, claims: TokenClaims, asked: &Value) -> Result<TokenClaims, Refusal> {
    let namespace = Some(claims.namespace.clone());
    let namespace = namespace.as_deref();
    if asked.is_null() {
        return Ok(claims);
    }
    let kind = asked["kind"].as_str().unwrap_or("");
    let version = asked["apiVersion"].as_str().unwrap_or("");
    let (group, version) = match version.split_once('/') {
        None => ("", version),
        // As in Kubernetes, an apiVersion that cannot be parsed counts as empty.
        Some((_, rest)) if rest.contains('/') => ("", ""),
        Some(parts) => parts,
    };
    // The version in the request's apiVersion is not compared, only the group.
    let bindable = [known::POD, known::SECRET, known::NODE];
    let bindable = bindable.into_iter().find(|known| known.kind == kind && known.group == group);
    match bindable {
        Some(known::POD) => {
            let pod = named(context, known::POD, namespace, asked)?;
            let account = context.request.name();
            if pod["spec"]["serviceAccountName"].as_str().unwrap_or("") != account {
                return Err(Refusal::BadRequest(BadRequest::OtherAccount { account: account.into() }));
            }
            let node = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
            // The node of the pod may not exist. The token then names the node without a UID.
            let node = node.map(|name| match find(context, known::NODE, None, name) {
                Some(node) => bound_to(&node),
                None => BoundTo { name: name.to_owned(), uid: String::new() },
            });
            Ok(TokenClaims { pod: Some(bound_to(&pod)), node, ..claims })
        }
        Some(known::SECRET) => {
            let secret = named(context, known::SECRET, namespace, asked)?;
            Ok(TokenClaims { secret: Some(bound_to(&secret)), ..claims })
        }
        Some(known::NODE) => {
            let node = named(context, known::NODE, None, asked)?;
            Ok(TokenClaims { node: Some(bound_to(&node)), ..claims })
        }
        _ => Err(Refusal::BadRequest(BadRequest::NotBindable { kind: format!("{group}/{version}, Kind={kind}") })),
    }
}

/// The object to which the token is to be bound. It must exist and have the requested UID.
fn named(context: &Context, known: Known, namespace: Option<&str>, asked: &Value) -> Result<Value, Refusal> {
    let name = asked["name"].as_str().unwrap_or("");
    if name.is_empty() {
        return Err(Refusal::BadRequest(BadRequest::NoNameParameter));
    }
    let document = find(context, known, namespace, name)
        .ok_or_else(|| Refusal::NotFound(Subject::new(known.group, known.resource, name)))?;
    let (uid, wanted) = (meta::uid(meta::fields(&document)), asked["uid"].as_str().unwrap_or(""));
    if !wanted.is_empty() && wanted != uid {
        // The conflict names the object by kind, as the request does.
        let subject = Subject::new(known.group, known.kind, name);
        return Err(Refusal::Conflict { subject, why: Conflict::BoundUid(wanted.into()) });
    }
    Ok(document)
}

fn find(context: &Context, known: Known, namespace: Option<&str>, name: &str) -> Option<Value> {
    let (id, _) = context.state.registry.known(known)?;
    Some(context.state.get(id, &meta::key(namespace, name))?.document())
}

fn bound_to(object: &Value) -> BoundTo {
    let fields = meta::fields(object);
    BoundTo { name: meta::name(fields).to_owned(), uid: meta::uid(fields).to_owned() }
}

/// The TokenRequest that is answered: as granted, and with the token.
fn answer(context: &Context, layout: Layout, body: Value, seconds: i64, signed: &SignedToken) -> Value {
    let stamp = context.stamp;
    let expires = stamp.time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(stamp.time);
    let mut answer = body;
    answer["kind"] = "TokenRequest".into();
    answer["apiVersion"] = "authentication.k8s.io/v1".into();
    let now = stamp.rfc3339();
    managed::track_update(
        None,
        &mut answer,
        &managed::Writer {
            layout,
            api_version: "authentication.k8s.io/v1",
            manager: context.request.options.field_manager.as_deref().unwrap_or("unknown"),
            subresource: "token",
            now: &now,
            reset: &[],
            convert: None,
        },
    );
    answer["spec"]["audiences"] = signed.audiences.clone().into();
    answer["spec"]["expirationSeconds"] = seconds.into();
    answer["status"] = json!({"token": signed.token, "expirationTimestamp": rfc3339(expires)});
    answer
}
