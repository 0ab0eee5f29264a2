//! Helpers for tests of controllers.

use holdfast_core::admission::{Admission, Choice};
use holdfast_value::{Value, json};
use holdfast_world::Trial;

/// A pod template with the label `app` of this value, and a container with this image.
pub fn template(app: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": image}]},
    })
}

/// Lets controllers run and deletes each pod as soon as it is created, without time passing; returns how many pods were
/// created.
pub fn delete_new_pods(trial: &mut Trial) -> usize {
    let mut made = 0;
    for _ in 0..100 {
        trial.run();
        for name in trial.names("pods") {
            made += 1;
            trial.delete_as("pods", &name, None, Some(0));
        }
    }
    made
}

/// Acts as a node: sets the pod's status to running and ready.
pub fn make_ready(trial: &mut Trial, pod: &str) {
    let now = trial.now();
    trial.patch_status(
        "pods",
        pod,
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}]}),
    );
}

/// Creates a ResourceQuota that limits the resource `what` to `number`. `what` is for example `pods` or
/// `count/endpoints`.
pub fn allow(trial: &mut Trial, what: &str, number: i64) {
    admit_with(trial, &["NamespaceLifecycle", "ResourceQuota"]);
    let hard = json!({what: number.to_string()});
    trial.create(
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}),
    );
    let used = match what.strip_prefix("count/") {
        Some(resource) => trial.list(resource).len(),
        None => trial.list(what).len(),
    };
    trial.patch_status("resourcequotas", "q", json!({"hard": hard, "used": {what: used.to_string()}}));
}

/// Starts the deletion of the namespace of all objects, so that nothing more can be created in it.
pub fn terminate_namespace(trial: &mut Trial) {
    admit_with(trial, &[]);
    trial.delete("namespaces", "default");
    admit_with(trial, &["NamespaceLifecycle"]);
}

fn admit_with(trial: &mut Trial, plugins: &[&str]) {
    let only = Some(plugins.iter().map(|&name| name.to_owned()).collect());
    trial.settings.admission = Admission::chosen(&Choice { only, ..Choice::default() }).expect("known plug-ins");
}

/// Makes every pending pod ready.
pub fn make_all_ready(trial: &mut Trial) {
    for pod in trial.list("pods") {
        if pod["status"]["phase"] == "Pending" && pod["metadata"]["deletionTimestamp"].is_null() {
            make_ready(trial, pod["metadata"]["name"].as_str().unwrap_or_default());
        }
    }
}

/// The value at `pointer` in each object of a kind.
pub fn all(trial: &Trial, kind: &str, pointer: &str) -> Vec<Value> {
    trial.list(kind).iter().map(|object| object.pointer(pointer).cloned().unwrap_or_default()).collect()
}

/// The Events since the last call, each with its count, in the form `Normal SuccessfulCreate Created pod: r-*`:
/// generated names are cut off.
pub fn event_counts(trial: &mut Trial) -> Vec<(String, usize)> {
    let mut lines: Vec<(String, usize)> = Vec::new();
    for note in trial.take_event_texts() {
        let line: Vec<String> = note.split(' ').map(cut_name).collect();
        let line = line.join(" ");
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, number)) => *number += 1,
            None => lines.push((line, 1)),
        }
    }
    lines
}

fn cut_name(word: &str) -> String {
    match word.rsplit_once('-') {
        Some((base, end)) if end.len() == 5 && end.bytes().all(|b| b"bcdfghjklmnpqrstvwxz2456789".contains(&b)) => {
            format!("{base}-*")
        }
        _ => word.to_owned(),
    }
}
