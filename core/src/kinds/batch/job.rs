//! The selector and labels that separate the pods of a Job from all other pods.

use holdfast_value::{Map, Value};

pub const UID: &str = "batch.kubernetes.io/controller-uid";
pub const NAME: &str = "batch.kubernetes.io/job-name";
/// The older label with the UID of a pod's Job. Its key has no domain.
pub const OLD_UID: &str = "controller-uid";
/// The older label with the name of a pod's Job. Its key has no domain.
pub const OLD_NAME: &str = "job-name";

/// Sets labels and selector unless the client manages the selector itself. Existing values stay; validation reports
/// wrong values.
pub fn prepare_create(job: &mut Value) {
    let Some(fields) = job.as_object_mut() else { return };
    fields.remove("status");
    let meta = |field: &str| job["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (uid, name) = (meta("uid"), meta("name"));
    if job["spec"]["manualSelector"] == true {
        return;
    }
    // A job whose labels are absent, or were set by defaults, gets its pods' labels.
    let own = job.pointer("/metadata/labels").and_then(Value::as_object).filter(|labels| !labels.is_empty());
    // A job with a generated name may be a copy of another job, so its labels stay even if they equal the labels of the
    // template.
    let is_named = !name.starts_with(job["metadata"]["generateName"].as_str().unwrap_or("-"));
    let pods = job.pointer("/spec/template/metadata/labels").and_then(Value::as_object);
    let is_defaulted = own.is_none() || is_named && own == pods;
    let labels = within(job, &["spec", "template", "metadata", "labels"]);
    for (label, value) in [(OLD_NAME, &name), (NAME, &name), (OLD_UID, &uid), (UID, &uid)] {
        labels.entry(label).or_insert_with(|| value.as_str().into());
    }
    if is_defaulted {
        *within(job, &["metadata", "labels"]) = labels.clone();
    }
    within(job, &["spec", "selector", "matchLabels"]).entry(UID).or_insert_with(|| uid.into());
}

/// The object at a path, created if missing.
fn within<'a>(job: &'a mut Value, path: &[&str]) -> &'a mut Map {
    let inner = path.iter().fold(job, |at, step| {
        if !at.is_object() {
            *at = Map::new().into();
        }
        &mut at[*step]
    });
    if !inner.is_object() {
        *inner = Map::new().into();
    }
    inner.as_object_mut().expect("made an object just above")
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn a_job_selects_its_own_pods() {
        let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {}}, "status": {"active": 1}});
        prepare_create(&mut job);
        let labels = json!({UID: "u", NAME: "j", OLD_UID: "u", OLD_NAME: "j"});
        assert_eq!(
            job["spec"],
            json!({"selector": {"matchLabels": {UID: "u"}}, "template": {"metadata": {"labels": labels}}})
        );
        assert_eq!(job["metadata"]["labels"], labels);
        assert_eq!(job.get("status"), None);

        let spec = json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "template": {}});
        let mut manual = json!({"metadata": {"name": "j", "uid": "u"}, "spec": spec});
        prepare_create(&mut manual);
        assert_eq!(manual["spec"], spec);
    }
}
