//! Who may ask a component for what: some paths are everybody's, about the others the API server is asked.

use crate::api::{Api, ApiError};
use crate::cache::Cache;
use holdfast_core::authz::User;
pub use holdfast_core::authz::paths::OpenPath;
use holdfast_value::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The answers to larger questions are not kept.
const QUESTION_BYTES_MAX: usize = 10_000;

/// Says who may ask for what.
pub struct Authorizer {
    /// Whoever is asked; without it, only what is open to all is allowed.
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
    path: String,
}

impl Question {
    fn size(&self) -> usize {
        let texts = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
        let extra = self.extra.iter().map(|(key, values)| key.len() + texts(values)).sum::<usize>();
        self.user.len() + self.uid.len() + texts(&self.groups) + extra + self.verb.len() + self.path.len()
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

    /// Whether `user` may do this; an error where nobody could tell.
    pub async fn allows(&self, user: &User, verb: &str, path: &str) -> Result<bool, ApiError> {
        if user.is_privileged() || self.open.iter().any(|open| open.covers(path)) {
            return Ok(true);
        }
        let Some(api) = &self.api else { return Ok(false) };
        let question = Question {
            user: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone().into_iter().collect(),
            verb: verb.to_owned(),
            path: path.to_owned(),
        };
        if let Some(allowed) = self.answers.get(&question, Instant::now()) {
            return Ok(allowed);
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {
                "nonResourceAttributes": {"path": path, "verb": verb},
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
