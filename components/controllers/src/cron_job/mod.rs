//! The controller of CronJobs, which create a Job at each time of a schedule.

mod times;

#[cfg(test)]
mod tests;

use crate::claim;
use crate::planted::{Bug, planted};
use crate::subject::{Subject, part};
use holdfast_core::schema::schedule::{self, Schedule};
use holdfast_value::{Value, json};
use holdfast_world::views::batch::CronJobStatus;
use holdfast_world::views::{CronJob, Job};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Plan, PlannedEvent, Propagation, Refused, Resource, Stamp, Text, Time, Verb,
    View, Viewed, World,
};
use times::Missed;

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// The index of CronJobs by the Jobs that their status lists.
const LISTED: &str = "listed jobs";

#[derive(Default)]
pub struct CronJobs;

impl Controller for CronJobs {
    fn name(&self) -> &'static str {
        "cronjob-controller"
    }

    fn queue(&self) -> &'static str {
        "cronjob"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![CronJob::resource().clone(), Job::resource().clone()]
    }

    fn indexes(&self, world: &mut World) {
        world.index::<CronJob>(LISTED, |object| {
            let listed = object.view::<CronJob>().into_iter().flat_map(|cron_job| &cron_job.status.active);
            listed.filter_map(|job| Some(listed_place(&object.meta.namespace, job["name"].as_str()?))).collect()
        });
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<CronJob>() {
            match after_new_schedule(world, change) {
                Some(millis) => keys.add_after(change.key.clone(), millis),
                None => keys.add(change.key.clone()),
            }
            return;
        }
        let owners = [&change.before, &change.after].into_iter().flatten().filter_map(|job| job.meta.controller());
        for owner in owners.filter(|owner| claim::names_kind::<CronJob>(owner)) {
            keys.add(Key::new(&change.key.namespace, &owner.name));
        }
        if change.after.is_none() {
            // The status may also list Jobs that the CronJob no longer owns.
            let place = listed_place(&change.key.namespace, &change.key.name);
            world.indexed::<CronJob>(LISTED, &place).for_each(|cron_job| keys.add(cron_job.object.key()));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        match world.get::<CronJob>(key) {
            Some(cron_job) => Sync::new(world, cron_job, stamp.time).plan(),
            None => Plan::default(),
        }
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], _: Stamp) -> Plan {
        let Some(cron_job) = world.get::<CronJob>(key) else { return Plan::default() };
        let owner = Subject::from(cron_job);
        let note = |Refused { action, refusal }: &Refused| match action.verb {
            Verb::Create(_) if refusal.is("AlreadyExists") => None,
            Verb::Create(_) if refusal.causes.iter().any(|cause| cause == "NamespaceTerminating") => None,
            Verb::Create(_) => Some(owner.warning("FailedCreate", format!("Error creating job: {}", refusal.message))),
            Verb::Delete { .. } => Some(owner.warning("FailedDelete", format!("Deleted job: {}", refusal.message))),
            _ => None,
        };
        Plan {
            events: refused.iter().filter(|refused| !refused.refusal.is_stale()).filter_map(note).collect(),
            ..Plan::default()
        }
    }
}

fn listed_place(namespace: &str, name: &str) -> Text {
    format!("{namespace}/{name}").into()
}

/// How many milliseconds a CronJob waits after its schedule changed. A time of the new schedule that has already passed
/// then starts no Job.
fn after_new_schedule(world: &World, change: &Change) -> Option<i64> {
    let times = |cron_job: Viewed<'_, CronJob>| (cron_job.spec.schedule.clone(), cron_job.spec.time_zone.clone());
    let (before, after) = (change.before::<CronJob>()?, change.after::<CronJob>()?);
    if times(before) == times(after) {
        return None;
    }
    let now = after.object.received_at;
    let sync = Sync::new(world, after, now);
    let clock = sync.clock().ok()??;
    Some(sync.next(&clock)?.millis_since(now))
}

/// The plan for one CronJob, while it is being made.
struct Sync<'w> {
    world: &'w World,
    owner: Subject<'w>,
    cron_job: Viewed<'w, CronJob>,
    jobs: Vec<Viewed<'w, Job>>,
    now: Time,
    status: CronJobStatus,
    plan: Plan,
    /// The actions that follow the write of the status.
    after: Vec<Action>,
}

/// The schedule with its time zone.
struct ZonedSchedule {
    schedule: Schedule,
    zone: jiff::tz::TimeZone,
}

impl ZonedSchedule {
    fn next(&self, after: Time) -> Option<Time> {
        self.schedule.next(after.0, &self.zone).map(Time)
    }
}

impl<'w> Sync<'w> {
    fn new(world: &'w World, cron_job: Viewed<'w, CronJob>, now: Time) -> Sync<'w> {
        let status = cron_job.view.status.clone();
        let jobs = claim::owned(world, &cron_job.meta().uid).collect();
        let owner = Subject::from(cron_job);
        Sync { world, owner, cron_job, jobs, now, status, plan: Plan::default(), after: Vec::new() }
    }

    fn plan(mut self) -> Plan {
        self.clean_up();
        let started = match self.clock() {
            Ok(Some(clock)) => self.follow(&clock),
            Ok(None) => None,
            Err(note) => {
                self.plan.events.push(note);
                None
            }
        };
        self.look_after_active(started.as_deref());
        if let Some(action) = self.write() {
            self.plan.then(action);
        }
        self.plan.together(std::mem::take(&mut self.after));
        self.plan
    }

    fn note(&mut self, note: PlannedEvent) {
        self.plan.events.push(note);
    }

    /// Deletes the oldest finished Jobs beyond the history limits.
    fn clean_up(&mut self) {
        let spec = &self.cron_job.view.spec;
        let limits = [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)];
        let mut going = Vec::new();
        for (kind, limit) in limits {
            let Some(limit) = limit else { continue };
            let ended = |job: &&Viewed<'_, Job>| job.end().is_some_and(|end| end.kind == kind);
            let mut ended: Vec<_> = self.jobs.iter().filter(ended).copied().collect();
            // Jobs that never started count as the newest, so that they are kept longest.
            let start = |job: &Viewed<'_, Job>| (job.status.start_time.is_none(), job.status.start_time);
            ended.sort_by(|a, b| (start(a), &a.meta().name).cmp(&(start(b), &b.meta().name)));
            let surplus = ended.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
            going.extend(ended.into_iter().take(surplus));
        }
        let actions = going.iter().filter(|job| !job.meta().is_deleting()).map(|job| self.delete(*job)).collect();
        self.plan.together(actions);
        going.iter().for_each(|job| self.drop_active(&job.meta().uid));
    }

    fn delete(&self, job: Viewed<'_, Job>) -> Action {
        let verb = Verb::Delete {
            uid: Some(job.meta().uid.as_str().into()),
            version: None,
            propagation: Some(Propagation::Background),
            grace_seconds: None,
        };
        let note = self.owner.normal("SuccessfulDelete", format!("Deleted job {}", job.meta().name));
        Action::new(Job::resource(), job.object.key(), verb).with_event(note)
    }

    fn is_active(&self, uid: &str) -> bool {
        self.status.active.iter().any(|job| job["uid"] == uid)
    }

    fn drop_active(&mut self, uid: &str) {
        self.status.active.retain(|job| job["uid"] != uid);
    }

    /// The schedule to follow; `Ok(None)` if the CronJob follows no schedule at present, for example because it is
    /// suspended, and `Err` with an Event if the schedule is invalid.
    #[expect(clippy::result_large_err, reason = "it is told, and then it is gone")]
    fn clock(&self) -> Result<Option<ZonedSchedule>, PlannedEvent> {
        let spec = &self.cron_job.view.spec;
        if self.cron_job.meta().is_deleting() {
            return Ok(None);
        }
        let unknown = |name: &str| {
            let message = format!("invalid timeZone: {}: unknown time zone {name}", Value::from(name));
            self.owner.warning("UnknownTimeZone", message)
        };
        if let Some(name) = spec.time_zone.as_deref().filter(|name| schedule::zone(name).is_none()) {
            return Err(unknown(name));
        }
        if spec.suspend {
            return Ok(None);
        }
        let schedule = Schedule::parse(&spec.schedule).map_err(|fault| {
            let message = format!("unparseable schedule: {} : {fault}", Value::from(spec.schedule.as_str()));
            self.owner.warning("UnparseableSchedule", message)
        })?;
        // A schedule without a time zone is in UTC, whatever the machine's time zone is.
        let name = spec.time_zone.as_deref().or(schedule.zone()).unwrap_or("UTC");
        let zone = schedule::zone(name).ok_or_else(|| unknown(name))?;
        Ok(Some(ZonedSchedule { schedule, zone }))
    }

    /// Starts the Job that is due, and sets the time of the next plan. Returns the name of the Job of the newest passed
    /// time, if that Job exists already.
    fn follow(&mut self, clock: &ZonedSchedule) -> Option<String> {
        if clock.schedule.zone().is_some() && self.cron_job.spec.time_zone.is_none() {
            let message = format!(
                "CRON_TZ or TZ used in schedule {} is not officially supported, see \
                 https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
                Value::from(self.cron_job.spec.schedule.as_str())
            );
            self.note(self.owner.warning("UnsupportedSchedule", message));
        }
        let last = self.last();
        let deadline = self.cron_job.spec.starting_deadline_seconds;
        // Times that passed longer ago than `startingDeadlineSeconds` start no Job any more.
        let since = deadline.map_or(last, |seconds| last.max(self.now.plus_seconds(seconds.saturating_neg())));
        let missed = match Missed::since(since, self.now, |time| clock.next(time)) {
            Ok(missed) => missed,
            Err(fault) => {
                let message = format!("invalid schedule: {} : {fault}", self.cron_job.spec.schedule);
                self.note(self.owner.warning("InvalidSchedule", message));
                return None;
            }
        };
        // Missed times are reported once: if the Job of the newest time exists already, only the status remains to be
        // written.
        let is_started = |time: Time| self.world.get::<Job>(&self.key_of(time)).is_some();
        if missed.is_many && !missed.newest.is_some_and(is_started) {
            let message =
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.note(self.owner.warning("TooManyMissedTimes", message.into()));
        }
        if let Some(next) = self.next(clock) {
            self.plan.requeue_at(next);
        }
        let time = missed.newest?;
        if deadline.is_some_and(|seconds| time.plus_seconds(seconds) < self.now) {
            let text = time.0.strftime("%a, %d %b %Y %H:%M:%S +0000");
            self.note(self.owner.warning("MissSchedule", format!("Missed scheduled time to start a job: {text}")));
            return None;
        }
        self.start(time, clock)
    }

    /// When a Job was last started, according to the CronJob's status; if no Job was started yet, when the CronJob was
    /// created.
    fn last(&self) -> Time {
        self.status.last_schedule_time.or(self.cron_job.meta().creation_timestamp).unwrap_or(self.now)
    }

    /// The next time of the schedule after now.
    fn next(&self, clock: &ZonedSchedule) -> Option<Time> {
        let last = self.last();
        let newest = Missed::since(last, self.now, |time| clock.next(time)).ok().and_then(|missed| missed.newest);
        clock.next(newest.unwrap_or(last))
    }

    /// The key of the Job for a time of the schedule.
    fn key_of(&self, time: Time) -> Key {
        let name = format!("{}-{}", self.cron_job.meta().name, time.seconds().div_euclid(60));
        Key::new(&self.cron_job.meta().namespace, &name)
    }

    fn start(&mut self, time: Time, clock: &ZonedSchedule) -> Option<String> {
        let key = self.key_of(time);
        let name = key.name.to_string();
        if self.status.active.iter().any(|job| job["name"] == name.as_str())
            || self.status.last_schedule_time == Some(time)
        {
            return None;
        }
        if let Some(job) = self.world.get::<Job>(&key) {
            // The previous plan created the Job. Now that the Job exists, the status can list it.
            if !job.meta().is_controlled_by(&self.cron_job.meta().uid) {
                return None;
            }
            self.status.active.push(reference(job));
            self.status.last_schedule_time = Some(time);
            return Some(name);
        }
        let policy = self.cron_job.view.spec.concurrency_policy.as_str();
        let running = self.running();
        if policy == "Forbid" && !running.is_empty() && !planted(Bug::ForbidIgnored) {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            self.note(self.owner.normal("JobAlreadyActive", message.into()));
            return None;
        }
        if policy == "Replace" {
            let actions = running.iter().map(|(_, job)| self.delete(*job)).collect();
            self.plan.together(actions);
            running.iter().for_each(|(uid, _)| self.drop_active(uid));
            self.jobs.retain(|job| !running.iter().any(|(uid, _)| *uid == job.meta().uid));
        }
        let note = self.owner.normal("SuccessfulCreate", "Created job {name}".into());
        let body = self.job(&name, time, clock);
        self.after.push(Action::new(Job::resource(), key, Verb::Create(body)).with_event(note));
        None
    }

    /// The Jobs that the status lists as active and that have not finished, with the listed uids. A Job that the
    /// CronJob does not own is returned as long as it exists, finished or not.
    fn running(&self) -> Vec<(String, Viewed<'w, Job>)> {
        let running = |listed: &Value| {
            let uid = listed["uid"].as_str()?;
            let job = match self.jobs.iter().find(|job| job.meta().uid == uid) {
                Some(job) => Some(*job).filter(|job| !job.is_finished()),
                None => self.listed(listed),
            };
            Some((uid.to_owned(), job?))
        };
        self.status.active.iter().filter_map(running).collect()
    }

    /// The Job with the name that an item of the status has, whatever the Job's owner is.
    fn listed(&self, listed: &Value) -> Option<Viewed<'w, Job>> {
        self.world.get::<Job>(&Key::new(&self.cron_job.meta().namespace, listed["name"].as_str()?))
    }

    fn job(&self, name: &str, time: Time, clock: &ZonedSchedule) -> Value {
        let template = part(self.owner.object, &["spec", "jobTemplate"]);
        let zone = if self.cron_job.spec.time_zone.is_some() { clock.zone.clone() } else { jiff::tz::TimeZone::UTC };
        let zoned = time.0.to_zoned(zone);
        let offset = zoned.strftime("%:z").to_string();
        let offset = if zoned.offset().is_zero() { "Z" } else { &offset };
        let mut metadata = json!({
            "name": name,
            "namespace": self.cron_job.meta().namespace,
            "ownerReferences": [self.owner.reference()],
            "annotations": template["metadata"]["annotations"],
        });
        if !template["metadata"]["labels"].is_null() {
            metadata["labels"] = template["metadata"]["labels"].clone();
        }
        metadata["annotations"][SCHEDULED] = format!("{}{offset}", zoned.strftime("%Y-%m-%dT%H:%M:%S")).into();
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]})
    }

    /// Updates the status's list of active Jobs by the Jobs that exist and that have finished.
    fn look_after_active(&mut self, started: Option<&str>) {
        for job in self.jobs.clone() {
            let (uid, name) = (&job.meta().uid, &job.meta().name);
            match (self.is_active(uid), job.end()) {
                (false, None) => {
                    let message = format!("Saw a job that the controller did not create or forgot: {name}");
                    self.note(self.owner.warning("UnexpectedJob", message));
                }
                (true, Some(end)) if started != Some(name) => {
                    let message = format!("Saw completed job: {name}, condition: {}", end.kind);
                    self.note(self.owner.normal("SawCompletedJob", message));
                    self.drop_active(uid);
                }
                _ => {}
            }
            if job.end().is_some_and(|end| end.kind == "Complete") {
                self.status.last_successful_time = self.status.last_successful_time.max(job.status.completion_time);
            }
        }
        // A Job that the CronJob no longer owns still exists, so it is not reported as missing.
        let gone = |job: &&Value| self.listed(job).is_none();
        let gone: Vec<Value> = self.status.active.iter().filter(gone).cloned().collect();
        for job in gone {
            let (uid, name) = (job["uid"].as_str().unwrap_or_default(), job["name"].as_str().unwrap_or_default());
            self.note(self.owner.normal("MissingJob", format!("Active job went missing: {name}")));
            self.drop_active(uid);
        }
    }

    fn write(&self) -> Option<Action> {
        self.owner.status(|status| {
            match self.status.active.is_empty() {
                true => status.remove("active"),
                false => status.insert("active", self.status.active.clone().into()),
            };
            let times = [
                ("lastScheduleTime", self.status.last_schedule_time),
                ("lastSuccessfulTime", self.status.last_successful_time),
            ];
            for (field, time) in times {
                if let Some(time) = time {
                    status.insert(field, time.to_string().into());
                }
            }
        })
    }
}

fn reference(job: Viewed<'_, Job>) -> Value {
    let meta = job.meta();
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    })
}
