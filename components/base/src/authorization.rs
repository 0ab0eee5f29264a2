//! Authorization of a component's clients: some paths are open to all users, and the API server reviews access to all
//! other paths.

use crate::api::{Api, ApiError};
use holdfast_core::authz::User;
pub use holdfast_core::authz::paths::OpenPath;
use holdfast_core::kinds::known::Known;
use holdfast_edge::Cache;
use holdfast_value::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest name or path whose answer is cached, in bytes. Answers to requests with a longer name or path are not
/// cached.
const QUESTION_BYTES_MAX: usize = 10_000;

/// Decides which user may use which verb on which path or object.
pub struct Authorizer {
    /// The API server that reviews access. Without it, only open paths are allowed.
    pub api: Option<Arc<Api>>,
    pub open: Vec<OpenPath>,
    pub allowed_time: Duration,
    pub refused_time: Duration,
    answers: Cache<Question, bool>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Question {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: Vec<(String, Vec<String>)>,
    verb: String,
    about: About,
}

/// The path or the object to which a request for access refers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum About {
    Path(String),
    /// A subresource of an object. A kubelet authorizes a request by subresources of its own Node.
    Object {
        of: Known,
        name: String,
        subresource: String,
    },
}

impl About {
    fn size(&self) -> usize {
        match self {
            About::Path(path) => path.len(),
            About::Object { name, subresource, .. } => name.len() + subresource.len(),
        }
    }

    /// The name of the attributes' field in a SubjectAccessReview, and the attributes of this access.
    fn attributes(&self, verb: &str) -> (&'static str, Value) {
        match self {
            About::Path(path) => ("nonResourceAttributes", json!({"path": path, "verb": verb})),
            About::Object { of: Known { group, version, resource, .. }, name, subresource } => (
                "resourceAttributes",
                json!({
                    "verb": verb, "group": group, "version": version, "resource": resource, "subresource": subresource,
                    "name": name,
                }),
            ),
        }
    }
}

impl Question {
    fn size(&self) -> usize {
        let texts = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
        let extra = self.extra.iter().map(|(key, values)| key.len() + texts(values)).sum::<usize>();
        self.user.len() + self.uid.len() + texts(&self.groups) + extra + self.verb.len() + self.about.size()
    }
}

impl Authorizer {
    pub fn new(
        api: Option<Arc<Api>>,
        open: Vec<OpenPath>,
        allowed_time: Duration,
        refused_time: Duration,
    ) -> Authorizer {
        Authorizer { api, open, allowed_time, refused_time, answers: Cache::default() }
    }

    /// Whether `user` may use `verb` on `path`. Returns an error if the API server did not review the access.
    pub async fn allows(&self, user: &User, verb: &str, path: &str) -> Result<bool, ApiError> {
        if self.open.iter().any(|open| open.covers(path)) {
            return Ok(true);
        }
        self.allows_with(user, verb, About::Path(path.to_owned())).await
    }

    /// Like [`Self::allows`], for subjects other than paths.
    pub async fn allows_with(&self, user: &User, verb: &str, about: About) -> Result<bool, ApiError> {
        if user.is_privileged() {
            return Ok(true);
        }
        let Some(api) = &self.api else { return Ok(false) };
        let question = Question {
            user: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone().into_iter().collect(),
            verb: verb.to_owned(),
            about,
        };
        if let Some(allowed) = self.answers.get(&question, Instant::now()) {
            return Ok(allowed);
        }
        let (field, attributes) = question.about.attributes(verb);
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {
                field: attributes,
                "user": user.name,
                "groups": user.groups,
                "uid": user.uid,
                "extra": user.extra,
            },
        });
        let answer = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await?;
        let allowed = answer["status"]["allowed"] == true;
        let time = if allowed { self.allowed_time } else { self.refused_time };
        if question.size() <= QUESTION_BYTES_MAX {
            let user = question.user.clone();
            self.answers.put(question, &user, allowed, Instant::now(), time);
        }
        Ok(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn some_paths_are_everybodys() {
        let open = ["/healthz", "livez", "/open/*"].map(|text| text.parse().unwrap()).to_vec();
        let time = Duration::from_secs(10);
        let authorizer = Authorizer::new(None, open, time, time);
        let (nobody, admin) = (User::new("system:anonymous", &[]), User::new("admin", &["system:masters"]));
        for (path, expected) in [
            ("/healthz", true),
            ("/healthz/ping", false),
            ("/livez", true),
            ("/open/a/b", true),
            ("/opened", false),
            ("/metrics", false),
        ] {
            assert_eq!(authorizer.allows(&nobody, "get", path).await.unwrap(), expected, "{path}");
            assert!(authorizer.allows(&admin, "get", path).await.unwrap());
        }
    }
}
