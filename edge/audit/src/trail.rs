//! The trail of one request records an event at each stage of the request.

use crate::event::{Impersonation, RequestFields, ResponseStatus};
use crate::latency::{Latencies, SLOW};
use crate::{Backend, Event, Level, ObjectReference, Policy, Ruling, Spent, Stage, Subject};
use futures_util::future::join_all;
use holdfast_core::admission::Annotations;
use holdfast_core::authz::User;
use holdfast_value::Value;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The maximum number of recorded bytes of a user agent.
const AGENT_BYTES_MAX: usize = 1024;

/// Records requests as the policy demands, to every backend.
pub struct Auditor {
    policy: Policy,
    backends: Vec<Backend>,
    counts: AuditCounts,
}

/// Counts of audit events and of requests, which the metrics show.
#[derive(Debug, Default)]
pub struct AuditCounts {
    events: AtomicU64,
    rejected: AtomicU64,
    /// The number of requests for each level that the policy gave them.
    levels: [AtomicU64; 4],
}

/// The properties of a request that are known when it arrives.
#[derive(Debug, Clone)]
pub struct Begun {
    pub id: String,
    pub verb: &'static str,
    /// The authenticated user, before impersonation.
    pub user: Arc<User>,
    pub received: Timestamp,
    pub uri: String,
    pub source_ips: Vec<IpAddr>,
    pub agent: String,
    pub object: Option<ObjectReference>,
    /// How long authentication took.
    pub authentication: Duration,
    pub deadline: Option<Deadline>,
    /// Whether the request is long-running, such as a watch or a followed log.
    pub lasts: bool,
}

/// The time at which a request is ended, and the response that its client then receives.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    pub at: Instant,
    pub ended: fn() -> RequestEnd,
}

/// How a request ended: its status code, and the documents in the response.
#[derive(Debug, Clone, Default)]
pub struct RequestEnd {
    pub code: u16,
    /// The `Status` in the response, if there is one.
    pub status: Option<Value>,
    /// The document in the response; `None` if the response is not recorded.
    pub object: Option<Value>,
}

/// An event that must be stored before the request continues could not be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotStored;

/// The record of one request. If the trail is dropped before the request has ended, the request was cut off.
pub struct Trail {
    auditor: Arc<Auditor>,
    ruling: Ruling,
    event: Event,
    latencies: Latencies,
    deadline: Option<Deadline>,
    /// Whether the request is long-running.
    lasts: bool,
    /// Finds the name of the object if neither the path nor the reply contains it.
    name: Option<Box<dyn FnOnce() -> String + Send + Sync>>,
    /// Finds the uid and the version in the client's object.
    reference: Option<Box<dyn FnOnce() -> (String, String) + Send + Sync>>,
    state: TrailState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrailState {
    Open,
    Started,
    Ended,
}

impl Auditor {
    pub fn new(policy: Policy, backends: Vec<Backend>) -> Arc<Auditor> {
        Arc::new(Auditor { policy, backends, counts: AuditCounts::default() })
    }

    /// Records the arrival of a request; `None` if the policy omits the request.
    pub async fn begin(
        self: &Arc<Self>,
        ruling: Ruling,
        begun: impl FnOnce() -> Begun,
    ) -> Result<Option<Trail>, NotStored> {
        let Some(mut trail) = self.trail(ruling, begun) else { return Ok(None) };
        if trail.tell(Stage::RequestReceived).await.is_err() {
            self.counts.rejected.fetch_add(1, Ordering::Relaxed);
            // A request that is refused at its arrival has no further event.
            trail.state = TrailState::Ended;
            return Err(NotStored);
        }
        Ok(Some(trail))
    }

    /// Records a request that was refused at once, for example because its user could not be authenticated.
    pub async fn record_unauthenticated(
        self: &Arc<Self>,
        ruling: Ruling,
        begun: impl FnOnce() -> Begun,
        annotations: &Annotations,
        ended: RequestEnd,
    ) {
        let Some(mut trail) = self.trail(ruling, begun) else { return };
        trail.annotate_all(annotations);
        trail.answer(ended);
        trail.state = TrailState::Ended;
        _ = trail.tell(Stage::ResponseStarted).await;
    }

    /// The policy's decision about a request.
    pub fn judge(&self, subject: Subject<'_>) -> Ruling {
        self.policy.judge(subject)
    }

    fn trail(self: &Arc<Self>, ruling: Ruling, begun: impl FnOnce() -> Begun) -> Option<Trail> {
        if let Some(count) = self.counts.levels.get(ruling.level as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if ruling.level == Level::None {
            return None;
        }
        let Begun { id, verb, user, received, uri, source_ips, mut agent, object, authentication, deadline, lasts } =
            begun();
        if agent.len() > AGENT_BYTES_MAX {
            let cut = (0..=AGENT_BYTES_MAX).rev().find(|at| agent.is_char_boundary(*at)).unwrap_or(0);
            agent.truncate(cut);
            agent.push_str("...TRUNCATED");
        }
        let event = Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: ruling.level,
            audit_id: id,
            stage: Stage::RequestReceived,
            request_uri: uri,
            verb,
            user,
            impersonated_user: None,
            authentication_metadata: None,
            source_ips,
            user_agent: agent,
            object_ref: object,
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: received,
            stage_timestamp: received,
            annotations: BTreeMap::new(),
            known: RequestFields::default(),
        };
        let mut latencies = Latencies::default();
        latencies.add(Spent::Authentication, authentication);
        let auditor = self.clone();
        let (name, reference, state) = (None, None, TrailState::Open);
        Some(Trail { auditor, ruling, event, latencies, deadline, lasts, name, reference, state })
    }

    /// Waits until all recorded events are written, at most for `patience`. Events that are not written by then are
    /// lost.
    pub async fn close(&self, patience: Duration) {
        join_all(self.backends.iter().map(|backend| backend.close(patience))).await;
    }

    /// The counts of audit events and requests, in Prometheus' text form.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        let mut counter = |name: &str, help: &str, values: &[(String, u64)]| {
            _ = write!(text, "# HELP {name} {help}\n# TYPE {name} counter\n");
            for (labels, value) in values {
                _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        counter(
            "apiserver_audit_event_total",
            "Audit events generated and sent to the audit backends.",
            &[(String::new(), read(&self.counts.events))],
        );
        let errors: Vec<_> = self
            .backends
            .iter()
            .map(|backend| (format!("{{plugin=\"{}\"}}", backend.name()), backend.errors()))
            .collect();
        counter("apiserver_audit_error_total", "Audit events that failed to be audited properly.", &errors);
        let levels: Vec<_> = [Level::None].into_iter().chain(Level::TOLD).collect();
        let levels: Vec<_> = levels
            .into_iter()
            .map(|level| {
                let count = self.counts.levels.get(level as usize).map_or(0, read);
                (format!("{{level=\"{}\"}}", level.as_str()), count)
            })
            .collect();
        counter("apiserver_audit_level_total", "Requests by their audit policy level.", &levels);
        counter(
            "apiserver_audit_requests_rejected_total",
            "Requests rejected because their audit event could not be stored.",
            &[(String::new(), read(&self.counts.rejected))],
        );
        text
    }

    /// Passes an event to every backend. Fails if a strict backend could not store the event.
    async fn tell(&self, event: &Event, may_wait: bool) -> Result<(), NotStored> {
        self.counts.events.fetch_add(1, Ordering::Relaxed);
        let mut outcome = Ok(());
        for backend in &self.backends {
            if backend.accept(event, may_wait).await.is_err() && backend.is_strict() {
                outcome = Err(NotStored);
            }
        }
        outcome
    }
}

impl Trail {
    /// Whether the client's object is recorded.
    pub fn wants_request(&self) -> bool {
        self.ruling.level >= Level::Request
    }

    /// Whether the response is recorded.
    pub fn wants_response(&self) -> bool {
        self.ruling.level >= Level::RequestResponse
    }

    /// Sets the impersonated user, and the verb that allowed the impersonation if the impersonation is constrained.
    pub fn impersonates(&mut self, user: &Arc<User>, constraint: Option<&'static str>) {
        self.event.impersonated_user = Some(user.clone());
        self.event.authentication_metadata = constraint.map(|constraint| Impersonation { constraint });
        self.event.known = RequestFields::default();
    }

    /// Adds an annotation, unless the key exists.
    pub fn annotate(&mut self, key: &str, value: &str) {
        self.event.annotations.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }

    /// Adds all annotations that the request's audit level allows.
    pub fn annotate_all(&mut self, annotations: &Annotations) {
        for (key, annotation) in annotations.iter() {
            if !annotation.shows_object || self.wants_request() {
                self.annotate(key, &annotation.value);
            }
        }
    }

    /// Adds time that the request spent in the step `on`.
    pub fn spent(&mut self, on: Spent, time: Duration) {
        self.latencies.add(on, time);
    }

    /// Records the client's object.
    pub fn request(&mut self, object: Value) {
        if self.wants_request() {
            self.event.request_object = Some(Arc::new(self.shown(object)));
        }
    }

    /// Sets the object's name if the path does not contain it or the server has generated it. For most requests the
    /// name is known, so `name` is not called.
    pub fn names(&mut self, name: impl FnOnce() -> String) {
        if let Some(object) = &mut self.event.object_ref
            && object.name.is_empty()
        {
            object.name = name();
        }
    }

    /// Sets a function that finds the name in the client's object, which is slow. The reply usually contains the name.
    pub fn names_at_last(&mut self, name: impl FnOnce() -> String + Send + Sync + 'static) {
        self.name = Some(Box::new(name));
    }

    /// Sets the uid and the version of the object that the request's body names.
    pub fn refers(&mut self, uid: &str, version: &str) {
        if let Some(object) = &mut self.event.object_ref {
            uid.clone_into(&mut object.uid);
            version.clone_into(&mut object.resource_version);
        }
    }

    /// Sets a function that finds the uid and the version in the client's object. The function is called only if a
    /// stage is recorded.
    pub fn refers_at_last(&mut self, reference: impl FnOnce() -> (String, String) + Send + Sync + 'static) {
        self.reference = Some(Box::new(reference));
    }

    /// Records that a long-running response has begun. The response lasts until the trail is dropped.
    pub async fn start(&mut self, ended: RequestEnd) {
        self.answer(ended);
        self.state = TrailState::Started;
        _ = self.tell(Stage::ResponseStarted).await;
    }

    pub async fn end(mut self, ended: RequestEnd) {
        self.answer(ended);
        self.state = TrailState::Ended;
        _ = self.tell(Stage::ResponseComplete).await;
    }

    /// Records that a panic of the server has ended the request.
    pub async fn panic(mut self, ended: RequestEnd) {
        self.answer(ended);
        self.state = TrailState::Ended;
        _ = self.tell(Stage::Panic).await;
    }

    fn answer(&mut self, ended: RequestEnd) {
        self.event.response_status = Some(ResponseStatus { code: ended.code, status: ended.status });
        if self.wants_response() {
            self.event.response_object = ended.object.map(|object| Arc::new(self.shown(object)));
        }
    }

    fn shown(&self, mut object: Value) -> Value {
        if self.ruling.omit_managed_fields {
            omit_managed_fields(&mut object);
        }
        object
    }

    async fn tell(&mut self, stage: Stage) -> Result<(), NotStored> {
        if !self.ruling.records(stage) {
            return Ok(());
        }
        self.reach(stage);
        // The line for the end of the request is written before the response begins, and the same write includes this
        // line.
        let ends_before_answer = || {
            let ends = [Stage::ResponseComplete, Stage::Panic];
            !self.lasts && ends.into_iter().all(|stage| self.ruling.records(stage))
        };
        let may_wait = stage == Stage::RequestReceived && ends_before_answer();
        self.auditor.tell(&self.event, may_wait).await
    }

    /// Sets the event's stage, and the fields that are known at this stage.
    fn reach(&mut self, stage: Stage) {
        if let Some(name) = self.name.take() {
            self.names(name);
        }
        if let Some(reference) = self.reference.take() {
            let (uid, version) = reference();
            self.refers(&uid, &version);
        }
        let event = &mut self.event;
        event.stage = stage;
        if stage != Stage::RequestReceived {
            event.stage_timestamp = Timestamp::now();
        }
        let total = event.stage_timestamp.duration_since(event.request_received_timestamp).unsigned_abs();
        if stage == Stage::ResponseComplete && self.state != TrailState::Started && total > SLOW {
            event.annotations.extend(self.latencies.annotations(total));
        }
    }

    /// Makes the event of a stage, which the caller stores later; `None` if the policy omits the stage.
    fn stage_event(&mut self, stage: Stage) -> Option<Event> {
        if !self.ruling.records(stage) {
            return None;
        }
        self.reach(stage);
        Some(self.event.clone())
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        let mut begun = None;
        match self.state {
            TrailState::Ended => return,
            TrailState::Started => {}
            TrailState::Open => {
                let ended = match self.deadline.filter(|deadline| deadline.at <= Instant::now()) {
                    Some(deadline) => (deadline.ended)(),
                    None => {
                        let status = holdfast_value::json!({
                            "metadata": {}, "status": "Success", "message": "Connection closed early",
                        });
                        RequestEnd { code: 200, status: Some(status), object: None }
                    }
                };
                self.answer(ended);
                // A long-running request must have as many started events as ended events, because monitoring counts
                // both kinds.
                begun = if self.lasts { self.stage_event(Stage::ResponseStarted) } else { None };
            }
        }
        let ended = self.stage_event(Stage::ResponseComplete);
        let auditor = self.auditor.clone();
        // If the tokio runtime has ended, there are no more connections, and the events are lost.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                for event in begun.into_iter().chain(ended) {
                    _ = auditor.tell(&event, false).await;
                }
            });
        }
    }
}

/// Removes managed fields from an object, and from the objects in a list or a table.
fn omit_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    for (list, within) in [("items", None), ("rows", Some("object"))] {
        for item in object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let item = match within {
                Some(field) => item.get_mut(field),
                None => Some(item),
            };
            if let Some(metadata) = item.and_then(|item| item.get_mut("metadata")).and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, backend};
    use holdfast_value::json;
    use std::path::Path;

    fn begun() -> Begun {
        Begun {
            id: "i".into(),
            verb: "update",
            user: Arc::new(User::new("jane", &[])),
            received: Timestamp::UNIX_EPOCH,
            uri: "/x".into(),
            source_ips: Vec::new(),
            agent: "agent".into(),
            object: None,
            authentication: Duration::ZERO,
            deadline: None,
            lasts: false,
        }
    }

    fn ruling(omitted: &[Stage]) -> Ruling {
        Ruling { level: Level::Metadata, omitted: omitted.to_vec(), omit_managed_fields: false }
    }

    fn auditor(path: &Path) -> Arc<Auditor> {
        const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
        let file = backend::File::open(path.to_str().expect("a path"), backend::Format::Json, Default::default());
        let backend = Backend::new(Box::new(file.expect("a file")), Mode::Blocking, None);
        Auditor::new(Policy::read(POLICY).expect("a policy").0, vec![backend])
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).expect("a file");
        text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect()
    }

    /// The shared part of the lines is serialized once, unless the impersonated user changes it.
    #[tokio::test]
    async fn in_whose_name_somebody_acts_is_told_when_it_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        let mut trail = auditor(&path).begin(ruling(&[]), begun).await.expect("it is told of").expect("a trail");
        trail.impersonates(&Arc::new(User::new("joe", &[])), None);
        trail.end(RequestEnd { code: 200, ..RequestEnd::default() }).await;
        let lines = lines(&path);
        let told = |field: &str| lines.iter().map(|line| line[field].clone()).collect::<Vec<_>>();
        assert_eq!(told("stage"), ["RequestReceived", "ResponseComplete"]);
        assert_eq!(told("userAgent"), ["agent", "agent"]);
        assert_eq!(told("user"), [json!({"username": "jane"}), json!({"username": "jane"})]);
        assert_eq!(told("impersonatedUser")[0], Value::Null);
        assert_eq!(told("impersonatedUser")[1]["username"], "joe");
        assert_eq!(told("requestReceivedTimestamp"), ["1970-01-01T00:00:00.000000Z"; 2]);
        assert_eq!(told("stageTimestamp")[0], "1970-01-01T00:00:00.000000Z");
        assert_ne!(told("stageTimestamp")[1], "1970-01-01T00:00:00.000000Z");
    }

    #[tokio::test]
    async fn what_ends_after_its_answer_has_begun_is_told_of_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let cases: [(bool, &[Stage]); 3] =
            [(true, &[]), (false, &[Stage::ResponseComplete]), (false, &[Stage::ResponseStarted, Stage::Panic])];
        for (number, (lasts, omitted)) in cases.into_iter().enumerate() {
            let path = folder.path().join(format!("{number}.log"));
            let begun = || Begun { lasts, ..begun() };
            let trail = auditor(&path).begin(ruling(omitted), begun).await.expect("it is told of");
            assert_eq!(lines(&path).len(), 1, "{lasts} {omitted:?}");
            drop(trail);
        }
    }

    /// The events ResponseStarted and ResponseComplete of a long-running request are recorded, even if the client
    /// disconnects before the response.
    #[tokio::test]
    async fn what_is_cut_off_has_come_to_its_end() {
        let folder = tempfile::tempdir().expect("a folder");
        for (lasts, expected) in [
            (false, &["RequestReceived", "ResponseComplete"][..]),
            (true, &["RequestReceived", "ResponseStarted", "ResponseComplete"]),
        ] {
            let path = folder.path().join(format!("{lasts}.log"));
            let begun = || Begun { lasts, ..begun() };
            drop(auditor(&path).begin(ruling(&[]), begun).await.expect("it is told of"));
            let told = async {
                while lines(&path).len() < expected.len() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), told).await.expect("it is told");
            let lines = lines(&path);
            assert_eq!(lines.iter().map(|line| line["stage"].clone()).collect::<Vec<_>>(), expected);
            let status =
                json!({"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200});
            assert!(lines[1..].iter().all(|line| line["responseStatus"] == status), "{lines:?}");
        }
    }

    #[test]
    fn managed_fields_are_left_out_everywhere() {
        let bare = json!({"metadata": {"name": "a"}});
        let object = json!({"metadata": {"name": "a", "managedFields": [{}]}});
        for (mut whole, expected) in [
            (object.clone(), bare.clone()),
            (json!({"items": [object]}), json!({"items": [bare]})),
            (json!({"rows": [{"object": object}]}), json!({"rows": [{"object": bare}]})),
            (json!([1]), json!([1])),
        ] {
            omit_managed_fields(&mut whole);
            assert_eq!(whole, expected);
        }
    }
}
