//! Impersonation: decides whether a user may act as another user, and returns the resulting user.
//!
//! [`legacy`] checks the permission `impersonate`. [`by_modes`] also checks constrained impersonation: permissions for
//! some requests only, by the kind of user impersonated.

use super::chain::{Authorizer, Judged};
use super::rbac::joined_errors;
use super::{Attributes, PRIVILEGED_GROUP, ResourceTarget, User, forbidden, quoted};
use crate::kinds::known;
use crate::object::names;
use crate::refusal::Refusal;
use std::collections::BTreeMap;

/// The user as whom a caller requests to act.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActingAs {
    pub name: String,
    pub uid: Option<String>,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl ActingAs {
    /// Prints the value as Go prints it.
    pub fn printed(&self) -> String {
        let list = |items: &[String]| {
            let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
            format!("[]string{{{}}}", items.join(", "))
        };
        let groups = if self.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&self.groups) };
        let extra: Vec<String> =
            self.extra.iter().map(|(key, values)| format!("{}:{}", quoted(key), list(values))).collect();
        let extra = if extra.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", extra.join(", ")) };
        let (name, uid) = (quoted(&self.name), quoted(self.uid.as_deref().unwrap_or_default()));
        format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:map[string][]string{extra}}}")
    }

    fn is_a_name_alone(&self) -> bool {
        self.uid.is_none() && self.groups.is_empty() && self.extra.is_empty()
    }
}

/// A mode of impersonation, with its own verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Impersonation of the node on which the caller's pod runs.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// Impersonation of users other than nodes and service accounts.
    UserInfo,
    /// Impersonation of any user for all requests, by the verb `impersonate`.
    Legacy,
}

impl Mode {
    /// All modes, in the order in which an impersonation tries them.
    const ALL: [Mode; 5] =
        [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

    /// The verb that is checked for the user, its groups, its UID and its extra fields.
    fn verb(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "impersonate:associated-node",
            Mode::ArbitraryNode => "impersonate:arbitrary-node",
            Mode::ServiceAccount => "impersonate:serviceaccount",
            Mode::UserInfo => "impersonate:user-info",
            Mode::Legacy => "impersonate",
        }
    }

    /// The verb that audit events show for constrained impersonation; `None` for the mode [`Mode::Legacy`].
    pub fn constraint(self) -> Option<&'static str> {
        (self != Mode::Legacy).then(|| self.verb())
    }

    /// Whether this mode can impersonate the wanted user.
    fn leads_to(self, wanted: &ActingAs, caller: &User) -> bool {
        let (node, account) = (node_of(&wanted.name), service_account_of(&wanted.name));
        match self {
            Mode::AssociatedNode => {
                let own = caller.extra.get(NODE_NAME).filter(|values| values.len() == 1).map(|values| &*values[0]);
                let is_own = node.is_some() && node == own && service_account_of(&caller.name).is_some();
                wanted.is_a_name_alone() && is_own
            }
            Mode::ArbitraryNode => wanted.is_a_name_alone() && node.is_some(),
            Mode::ServiceAccount => wanted.is_a_name_alone() && account.is_some(),
            Mode::UserInfo => node.is_none() && account.is_none(),
            Mode::Legacy => true,
        }
    }
}

/// The extra field in which a service account's token names the node of its pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// The extra field that shows authorizers that a caller impersonates its own node. It contains the keys of the token's
/// fields, not their values, so that one permission applies to all nodes.
const ASSOCIATED: &str = "authentication.kubernetes.io/associated-node-keys";
const AUTHENTICATION: &str = "authentication.k8s.io";
/// If a constrained impersonation asks for at least this many groups, extra fields or values of extra fields,
/// permission for `*` is checked first.
const MANY: usize = 4;

/// Namespace and name in `system:serviceaccount:NAMESPACE:NAME`; `None` if no service account can have the name.
pub fn service_account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (names::label(namespace).is_empty() && names::subdomain(name).is_empty()).then_some((namespace, name))
}

/// The node's name in the user name `system:node:NAME`; `None` for other user names.
fn node_of(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| names::subdomain(name).is_empty())
}

/// The user that the caller may act as, by the verb `impersonate`.
pub fn legacy(authorizer: &Authorizer<'_>, caller: &User, wanted: &ActingAs) -> Result<User, Refusal> {
    let asking = Asking { authorizer, caller, mode: Mode::Legacy, tells_errors: false };
    asking.may_be_named(wanted)?;
    asking.may_have_groups(wanted)?;
    asking.may_have_extra(wanted)?;
    asking.may_have_uid(wanted)?;
    Ok(asking.user(wanted))
}

/// The impersonated user, and the first mode that allows the impersonation. The mode `last`, which allowed the previous
/// request, is tried first. If no mode allows the impersonation, the refusal of the mode that was tried first is
/// returned.
pub fn by_modes(
    authorizer: &Authorizer<'_>,
    caller: &User,
    wanted: &ActingAs,
    asked: &Attributes<'_>,
    last: Option<Mode>,
) -> Result<(Mode, User), Refusal> {
    let mut refused = None;
    let others = Mode::ALL.into_iter().filter(|mode| Some(*mode) != last);
    for mode in last.into_iter().chain(others).filter(|mode| mode.leads_to(wanted, caller)) {
        match by_mode(authorizer, caller, wanted, asked, mode) {
            Ok(user) => return Ok((mode, user)),
            Err(refusal) => _ = refused.get_or_insert(refusal),
        }
    }
    // `Mode::Legacy` applies to all users, so at least one mode has refused.
    Err(refused.unwrap_or(Refusal::Unauthorized))
}

fn by_mode(
    authorizer: &Authorizer<'_>,
    caller: &User,
    wanted: &ActingAs,
    asked: &Attributes<'_>,
    mode: Mode,
) -> Result<User, Refusal> {
    let hidden;
    let caller = if mode == Mode::AssociatedNode {
        let keys = caller.extra.keys().cloned().collect();
        hidden = User { extra: [(ASSOCIATED.to_owned(), keys)].into(), ..caller.clone() };
        &hidden
    } else {
        caller
    };
    let asking = Asking { authorizer, caller, mode, tells_errors: true };
    if let Some(constraint) = mode.constraint() {
        let verb = format!("{}:{}", constraint.replacen("impersonate:", "impersonate-on:", 1), asked.verb);
        asking.may(&Attributes { verb: &verb, target: asked.target })?;
    }
    asking.may_be_named(wanted)?;
    asking.may_have_uid(wanted)?;
    asking.may_have_groups(wanted)?;
    asking.may_have_extra(wanted)?;
    Ok(asking.user(wanted))
}

/// A caller that requests to act as another user, in one mode.
struct Asking<'a> {
    authorizer: &'a Authorizer<'a>,
    caller: &'a User,
    mode: Mode,
    /// Whether a refusal includes the authorizers' errors.
    tells_errors: bool,
}

impl Asking<'_> {
    fn is_constrained(&self) -> bool {
        self.mode != Mode::Legacy
    }

    /// The API group of the resources `users` and `groups`, on which the caller needs the verb of the mode. The
    /// constrained verbs and `impersonate` have different groups.
    fn group(&self) -> &'static str {
        if self.is_constrained() { AUTHENTICATION } else { "" }
    }

    fn may(&self, attributes: &Attributes<'_>) -> Result<(), Refusal> {
        let judged = self.authorizer.authorize(self.caller, attributes);
        if judged.is_allowed() { Ok(()) } else { Err(forbidden(self.caller, attributes, &self.reason(&judged))) }
    }

    fn reason(&self, judged: &Judged) -> String {
        match judged.error().filter(|_| self.tells_errors) {
            Some(error) if judged.reason().is_empty() => error,
            Some(error) => format!("{error}: {}", judged.reason()),
            None => judged.reason().to_owned(),
        }
    }

    fn part<'t>(&self, group: &'t str, resource: &'t str, name: &'t str) -> Attributes<'t> {
        let target = ResourceTarget { group, version: "v1", resource, name, ..ResourceTarget::default() };
        Attributes::resource(self.mode.verb(), target)
    }

    fn may_be_named(&self, wanted: &ActingAs) -> Result<(), Refusal> {
        let group = self.group();
        if let Some((namespace, name)) = service_account_of(&wanted.name) {
            let resource = known::SERVICE_ACCOUNT.resource;
            let target =
                ResourceTarget { group, version: "v1", resource, namespace, name, ..ResourceTarget::default() };
            return self.may(&Attributes::resource(self.mode.verb(), target));
        }
        match node_of(&wanted.name).filter(|_| self.is_constrained()) {
            Some(_) if self.mode == Mode::AssociatedNode => self.may(&self.part(group, known::NODE.resource, "*")),
            Some(name) => self.may(&self.part(group, known::NODE.resource, name)),
            None => self.may(&self.part(group, "users", &wanted.name)),
        }
    }

    fn may_have_uid(&self, wanted: &ActingAs) -> Result<(), Refusal> {
        wanted.uid.as_ref().map_or(Ok(()), |uid| self.may(&self.part(AUTHENTICATION, "uids", uid)))
    }

    fn may_have_groups(&self, wanted: &ActingAs) -> Result<(), Refusal> {
        let has = |name: &str| wanted.groups.iter().any(|group| group == name);
        if self.is_constrained() {
            for (name, shown) in [("", "empty string group"), (PRIVILEGED_GROUP, "system:masters group")] {
                if has(name) {
                    let why = format!("impersonating the {shown} is not allowed");
                    return Err(forbidden(self.caller, &self.part(self.group(), "groups", name), &why));
                }
            }
            if wanted.groups.len() >= MANY && self.may(&self.part(self.group(), "groups", "*")).is_ok() {
                return Ok(());
            }
        }
        wanted.groups.iter().try_for_each(|group| self.may(&self.part(self.group(), "groups", group)))
    }

    fn may_have_extra(&self, wanted: &ActingAs) -> Result<(), Refusal> {
        let value = |subresource, name| {
            let (group, version, resource) = (AUTHENTICATION, "v1", "userextras");
            let target = ResourceTarget { group, version, resource, subresource, name, ..ResourceTarget::default() };
            Attributes::resource(self.mode.verb(), target)
        };
        if self.is_constrained() {
            if let Some(why) = wanted.extra.iter().find_map(|(key, values)| unfit(key, values)) {
                return Err(forbidden(self.caller, &value("", ""), &why));
            }
            let count: usize = wanted.extra.values().map(Vec::len).sum();
            if (count >= MANY || wanted.extra.len() >= MANY) && self.may(&value("*", "*")).is_ok() {
                return Ok(());
            }
        }
        let mut all = wanted.extra.iter().flat_map(|(key, values)| values.iter().map(move |text| (key, text)));
        all.try_for_each(|(key, text)| self.may(&value(key, text)))
    }

    /// The impersonated user, with the groups that all users of its kind have.
    fn user(&self, wanted: &ActingAs) -> User {
        let mut groups = wanted.groups.clone();
        if groups.is_empty() {
            match (service_account_of(&wanted.name), node_of(&wanted.name)) {
                (Some((namespace, name)), _) => groups = User::service_account(namespace, name, "").groups,
                (None, Some(_)) if self.is_constrained() => groups.push("system:nodes".into()),
                _ => {}
            }
        }
        let has = |name: &str| groups.iter().any(|group| group == name);
        let (known, unknown) = ("system:authenticated", "system:unauthenticated");
        let everybody = match wanted.name == "system:anonymous" {
            true => Some(unknown).filter(|group| !has(group)),
            false => Some(known).filter(|group| !has(group) && !has(unknown)),
        };
        groups.extend(everybody.map(str::to_owned));
        let uid = wanted.uid.clone().unwrap_or_default();
        User { name: wanted.name.clone(), uid, groups, extra: wanted.extra.clone() }
    }
}

/// The reason why the constrained verbs cannot impersonate a user with this extra field.
fn unfit(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".into());
    }
    let faults = names::domain_prefixed_path(key);
    if !faults.is_empty() {
        let faults = faults.iter().map(|(part, why)| format!("extra.key: Invalid value: {}: {why}", quoted(part)));
        let why = joined_errors(faults);
        return Some(format!("impersonating an invalid key in extra is not allowed: {why}"));
    }
    if key.chars().any(char::is_uppercase) {
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {}", quoted(key)));
    }
    if values.is_empty() {
        return Some("impersonating empty values in extra is not allowed".into());
    }
    values.iter().any(String::is_empty).then(|| "impersonating the empty string value in extra is not allowed".into())
}

#[cfg(test)]
#[path = "impersonation_tests.rs"]
mod tests;
