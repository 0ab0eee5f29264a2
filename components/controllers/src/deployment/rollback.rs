//! Rolls back to an older template, as `rollbackTo` of old API versions requests; the request is stored as an
//! annotation.

use super::history::is_own;
use super::{Flow, ROLLBACK_TO, STOP, Set, Sync};
use holdfast_value::{Value, json};

const NOT_FOUND: &str = "DeploymentRollbackRevisionNotFound";

impl Sync<'_> {
    /// The revision number of the requested template; 0 means the revision before the newest.
    pub fn rollback_wanted(&self) -> Option<i64> {
        self.deployment.meta().annotation(ROLLBACK_TO)?.parse().ok()
    }

    pub fn roll_back(&mut self, wanted: i64) -> Flow {
        self.set_revision()?;
        self.ensure_new_set()?;
        let revision = if wanted == 0 { self.revision_before_the_newest() } else { wanted };
        let set = self
            .sets()
            .find(|set| set.seen.meta().annotations.contains_key(super::REVISION) && set.revision() == revision);
        let name = &self.deployment.meta().name;
        let mut document = self.deployment.object.document();
        let note = match set {
            _ if revision == 0 => self.subject().warning(NOT_FOUND, "Unable to find last revision.".to_owned()),
            None => {
                let message = "Unable to find the revision to rollback to.";
                self.subject().warning(NOT_FOUND, message.to_owned())
            }
            Some(set) if set.has_template(self.template()) => {
                let message =
                    format!("The rollback revision contains the same template as current deployment \"{name}\"");
                self.subject().warning("DeploymentRollbackTemplateUnchanged", message)
            }
            Some(set) => {
                take_from(&mut document, set);
                let message = format!("Rolled back deployment \"{name}\" to revision {revision}");
                self.subject().normal("DeploymentRollback", message)
            }
        };
        if let Some(annotations) = document["metadata"]["annotations"].as_object_mut() {
            annotations.remove(ROLLBACK_TO);
        }
        let update = self.subject().update(document).with_event(note);
        self.then(update);
        STOP
    }

    fn revision_before_the_newest(&self) -> i64 {
        let mut revisions: Vec<i64> = self.sets().map(Set::revision).collect();
        revisions.sort_unstable();
        revisions.iter().rev().nth(1).copied().unwrap_or(0)
    }
}

/// Copies the template and annotations of a set into a Deployment.
fn take_from(document: &mut Value, set: &Set<'_>) {
    document["spec"]["template"] = set.template().clone();
    let old = document["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let kept = old.into_iter().filter(|(name, _)| is_own(name));
    let of_set = set.seen.meta().annotations.iter().filter(|(name, _)| !is_own(name));
    let of_set = of_set.map(|(name, value)| (name.into(), json!(value)));
    document["metadata"]["annotations"] = Value::Object(kept.chain(of_set).collect());
}
