//! The chain of configured authorizers, asked in order.

use super::abac::Policies;
use super::nodes::{self, NodeGraph};
use super::paths::OpenPath;
use super::rbac::{RULES_BYTES_MAX, RbacIndex};
use super::webhook::{Concern, Consulted, Webhook};
use super::{Attributes, PolicyRule, Target, User, Verdict};
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Authorization modes, as options and files name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    AlwaysAllow,
    AlwaysDeny,
    Abac,
    Webhook,
    Rbac,
    Node,
}

impl Mode {
    pub const ALL: [Mode; 6] = [Mode::AlwaysAllow, Mode::AlwaysDeny, Mode::Abac, Mode::Webhook, Mode::Rbac, Mode::Node];

    pub fn name(self) -> &'static str {
        match self {
            Self::AlwaysAllow => "AlwaysAllow",
            Self::AlwaysDeny => "AlwaysDeny",
            Self::Abac => "ABAC",
            Self::Webhook => "Webhook",
            Self::Rbac => "RBAC",
            Self::Node => "Node",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Parses `Node,RBAC`. An empty list or a repeated mode is an error.
    pub fn parse_list(names: &[&str]) -> Result<Vec<Self>, String> {
        let names: Vec<&str> = names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).collect();
        let modes = names
            .iter()
            .map(|name| Self::named(name).ok_or_else(|| format!("authorization-mode \"{name}\" is not a valid mode")));
        let modes: Vec<Self> = modes.collect::<Result<_, _>>()?;
        if modes.iter().enumerate().any(|(at, mode)| modes[..at].contains(mode)) {
            let shown: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
            return Err(format!("authorization-mode [{}] has mode specified more than once", shown.join(" ")));
        }
        if modes.is_empty() { Err("at least one authorization-mode must be passed".into()) } else { Ok(modes) }
    }
}

/// One authorizer with its configuration. The cluster's objects are passed to it separately.
#[derive(Debug)]
pub enum Way {
    AlwaysAllow,
    AlwaysDeny,
    Abac(Arc<Policies>),
    Webhook(Webhook),
    Rbac,
    Node,
    /// Paths that are open to everybody. They are not an authorization mode.
    Paths(Vec<OpenPath>),
}

impl Way {
    pub fn mode(&self) -> Option<Mode> {
        Some(match self {
            Self::AlwaysAllow => Mode::AlwaysAllow,
            Self::AlwaysDeny => Mode::AlwaysDeny,
            Self::Abac(_) => Mode::Abac,
            Self::Webhook(_) => Mode::Webhook,
            Self::Rbac => Mode::Rbac,
            Self::Node => Mode::Node,
            Self::Paths(_) => return None,
        })
    }

    /// The mode and the name of the authorizer in metrics. Only webhooks have names of their own.
    fn named(&self) -> Option<(Mode, String)> {
        let mode = self.mode()?;
        let name = match self {
            Self::Webhook(webhook) => webhook.name.clone(),
            _ => mode.name().to_ascii_lowercase(),
        };
        Some((mode, name))
    }
}

/// The authorizers, in the order in which they are asked.
#[derive(Debug)]
pub struct Chain {
    ways: Vec<Way>,
}

impl Chain {
    pub fn new(ways: Vec<Way>) -> Chain {
        Chain { ways }
    }

    /// A chain that allows everything.
    pub fn always_allow() -> &'static Arc<Chain> {
        static CHAIN: LazyLock<Arc<Chain>> = LazyLock::new(|| Arc::new(Chain::new(vec![Way::AlwaysAllow])));
        &CHAIN
    }

    /// This chain with another authorizer in front.
    pub fn behind(mut self, first: Way) -> Chain {
        self.ways.insert(0, first);
        self
    }

    pub fn has(&self, mode: Mode) -> bool {
        self.ways.iter().any(|way| way.mode() == Some(mode))
    }

    /// Whether any authorizer uses selectors; otherwise selectors need not be parsed.
    pub fn reads_selectors(&self) -> bool {
        self.has(Mode::Node) || self.has(Mode::Webhook)
    }
}

/// The chain, and the data of one state of the cluster that its authorizers read.
#[derive(Debug, Clone, Copy)]
pub struct Authorizer<'a> {
    pub chain: &'a Arc<Chain>,
    pub rbac: &'a RbacIndex,
    /// The graph for the Node authorizer; `None` if the chain has no such authorizer.
    pub nodes: Option<&'a NodeGraph>,
    /// The webhooks' answers so far, and the questions to webhooks that have no answer yet.
    pub consulted: &'a Consulted,
}

/// The decision of the chain about one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    pub verdict: Verdict,
    /// Errors of authorizers. A refusal with an error is reported as a server error.
    pub errors: Vec<String>,
    /// The mode and the name of the authorizer that allowed or denied; `None` for privileged users, because no
    /// authorizer is asked about them.
    pub by: Option<(Mode, String)>,
    /// The webhooks that were skipped because of their match conditions.
    pub passed_over: Vec<PassedOver>,
}

/// A webhook that was not asked because its match conditions are false or failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    pub webhook: String,
    pub failed: bool,
}

impl Judged {
    fn of(verdict: Verdict) -> Judged {
        Judged { verdict, errors: Vec::new(), by: None, passed_over: Vec::new() }
    }

    pub fn is_allowed(&self) -> bool {
        self.verdict.is_allowed()
    }

    pub fn reason(&self) -> &str {
        self.verdict.reason()
    }

    /// All errors as one text.
    pub fn error(&self) -> Option<String> {
        (!self.errors.is_empty()).then(|| super::rbac::joined_errors(self.errors.iter().cloned()))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The rules of a user, as far as the authorizers can list them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownRules {
    pub rules: Vec<PolicyRule>,
    pub errors: Vec<String>,
    /// Whether the list may be incomplete, because some authorizers cannot list all their rules.
    pub is_incomplete: bool,
}

impl Authorizer<'_> {
    /// The first authorizer that allows or denies decides. The privileged group is always allowed.
    ///
    /// If a webhook has not been asked yet, later authorizers are not asked, and the result must be discarded.
    pub fn authorize(&self, user: &User, attributes: &Attributes<'_>) -> Judged {
        if user.is_privileged() {
            return Judged::of(Verdict::Allow { reason: String::new() });
        }
        let mut judged = Judged::of(Verdict::NoOpinion { reason: String::new() });
        let mut reasons: Vec<String> = Vec::new();
        for way in &self.chain.ways {
            let (verdict, error) = match way {
                Way::AlwaysAllow => (Verdict::Allow { reason: String::new() }, None),
                Way::AlwaysDeny => (Verdict::NoOpinion { reason: "Everything is forbidden.".into() }, None),
                Way::Abac(policies) => (policies.authorize(user, attributes), None),
                Way::Rbac => (self.rbac.authorize(user, attributes), None),
                Way::Paths(open) => match attributes.target {
                    Target::Path(path) if open.iter().any(|open| open.covers(path)) => {
                        (Verdict::Allow { reason: String::new() }, None)
                    }
                    _ => (Verdict::NoOpinion { reason: String::new() }, None),
                },
                Way::Node => (nodes::authorize(self.nodes, user, attributes), None),
                Way::Webhook(webhook) => match webhook.concern(user, attributes) {
                    Concern::Asked(question) => match self.consulted.answer(question) {
                        Some(answer) => webhook.understand(&answer),
                        None => return judged,
                    },
                    Concern::NotAsked => {
                        judged.passed_over.push(PassedOver { webhook: webhook.name.clone(), failed: false });
                        (Verdict::NoOpinion { reason: String::new() }, None)
                    }
                    Concern::Unknown(why) => {
                        judged.passed_over.push(PassedOver { webhook: webhook.name.clone(), failed: true });
                        (webhook.on_failure.verdict(), Some(why))
                    }
                },
            };
            match verdict {
                Verdict::NoOpinion { reason } => {
                    reasons.extend(Some(reason).filter(|reason| !reason.is_empty()));
                    judged.errors.extend(error);
                }
                verdict => {
                    judged.by = way.named();
                    return Judged { verdict, errors: error.into_iter().collect(), ..judged };
                }
            }
        }
        judged.verdict = Verdict::NoOpinion { reason: reasons.join("\n") };
        judged
    }

    pub fn rules_for(&self, user: &User, namespace: &str) -> KnownRules {
        let mut known = KnownRules::default();
        for way in &self.chain.ways {
            match way {
                Way::AlwaysAllow => known.rules.extend(all_rules()),
                Way::AlwaysDeny | Way::Paths(_) => {}
                Way::Abac(policies) => known.rules.extend(policies.rules_for(user, namespace)),
                Way::Rbac => {
                    let found = self.rbac.rules_for(user, namespace);
                    known.rules.extend(found.rules);
                    known.errors.extend(found.errors);
                    if found.is_cut {
                        known.is_incomplete = true;
                        known.errors.push(format!("only the first {RULES_BYTES_MAX} bytes of the rules are listed"));
                    }
                }
                Way::Node => {
                    if nodes::node_of(user).is_some() {
                        known.is_incomplete = true;
                        known.errors.push("node authorizer does not support user rule resolution".into());
                    }
                }
                Way::Webhook(_) => {
                    known.is_incomplete = true;
                    known.errors.push("webhook authorizer does not support user rule resolution".into());
                }
            }
        }
        known
    }
}

/// All permissions, as two rules: one for resources and one for paths.
pub fn all_rules() -> [PolicyRule; 2] {
    let all = || vec!["*".to_owned()];
    [
        PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() },
        PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() },
    ]
}

impl<'a> Attributes<'a> {
    /// The requested resource; `None` for a path.
    pub fn target(&self) -> Option<&super::ResourceTarget<'a>> {
        match &self.target {
            Target::Resource(target) => Some(target),
            Target::Path(_) => None,
        }
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
