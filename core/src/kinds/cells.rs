//! Table columns: the functions that all kinds share for making columns, reading documents, and printing ages and
//! selectors.
//!
//! A cell never fails: for a missing field it shows the same text as Kubernetes.

use super::{Cell, Column, Description};
use holdfast_value::{Map, Value};
use jiff::Timestamp;

/// The text that is shown for a time that is not set.
pub const UNKNOWN: &str = "<unknown>";
/// The text that is shown for an empty set, selector or reference.
pub const NONE: &str = "<none>";
/// The text that is shown for an optional value that is not set.
pub const UNSET: &str = "<unset>";

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// A column that shows one field of the hub version. Its path gives the cell, the description, and the field to read.
pub fn of_field(
    name: &str,
    ty: &'static str,
    priority: i32,
    path: &'static str,
    show: fn(&Value, &str) -> Value,
) -> Column {
    let cell = Cell::Field { path, show };
    Column { name: name.into(), ty, format: "", description: field(path), priority, cell, reads: None }
}

/// A column whose cells a function makes.
pub fn column(
    name: &str,
    ty: &'static str,
    priority: i32,
    description: impl Into<Description>,
    read: fn(&Value, i64) -> Value,
) -> Column {
    let (description, cell) = (description.into(), Cell::Read(read));
    Column { name: name.into(), ty, format: "", description, priority, cell, reads: None }
}

/// How [`of_field`] shows the field at a path.
pub mod show {
    use super::{NONE, UNKNOWN, UNSET, Value};

    pub fn text(doc: &Value, path: &str) -> Value {
        super::text(doc, path).into()
    }

    pub fn text_or_none(doc: &Value, path: &str) -> Value {
        super::text_or(doc, path, NONE)
    }

    pub fn text_or_unset(doc: &Value, path: &str) -> Value {
        super::text_or(doc, path, UNSET)
    }

    pub fn text_or_unknown(doc: &Value, path: &str) -> Value {
        super::text_or(doc, path, UNKNOWN)
    }

    pub fn number(doc: &Value, path: &str) -> Value {
        super::number(doc, path).into()
    }

    pub fn truth(doc: &Value, path: &str) -> Value {
        super::truth(doc, path).into()
    }

    /// The number of items or entries.
    pub fn count(doc: &Value, path: &str) -> Value {
        super::count(doc, path).into()
    }

    pub fn labels(doc: &Value, path: &str) -> Value {
        super::labels(doc, path).into()
    }

    pub fn selector(doc: &Value, path: &str) -> Value {
        super::selector(doc, path).into()
    }
}

/// Describes a column by the description of this field in the hub version.
pub fn field(path: &'static str) -> Description {
    Description::Field(path)
}

/// The first column of nearly every kind.
pub fn name() -> Column {
    Column { format: "name", ..of_field("Name", "string", 0, "metadata.name", show::text) }
}

/// The column Age: the time since the object was created.
pub fn age_column() -> Column {
    column("Age", "string", 0, field("metadata.creationTimestamp"), |doc, now| {
        since(text(doc, "metadata.creationTimestamp"), now).into()
    })
    .reading(&[])
}

/// A duration as kubectl prints it: at most two units, coarser for longer times.
pub fn age(seconds: i64) -> String {
    /// A unit of time: its seconds and its letter.
    type Unit = (i64, char);
    // For ages below each limit: the shown unit, and a finer unit that is added unless it is zero.
    const STEPS: [(i64, Unit, Option<Unit>); 8] = [
        (2 * MINUTE, (1, 's'), None),
        (10 * MINUTE, (MINUTE, 'm'), Some((1, 's'))),
        (3 * HOUR, (MINUTE, 'm'), None),
        (8 * HOUR, (HOUR, 'h'), Some((MINUTE, 'm'))),
        (2 * DAY, (HOUR, 'h'), None),
        (8 * DAY, (DAY, 'd'), Some((HOUR, 'h'))),
        (2 * YEAR, (DAY, 'd'), None),
        (8 * YEAR, (YEAR, 'y'), Some((DAY, 'd'))),
    ];
    match seconds {
        // A time that is one second ahead is shown as now, because the clocks of two machines may differ a little.
        ..-1 => return "<invalid>".into(),
        -1 => return "0s".into(),
        _ => {}
    }
    let step = STEPS.iter().find(|(limit, ..)| seconds < *limit);
    let ((size, unit), finer) = step.map_or(((YEAR, 'y'), None), |(_, unit, finer)| (*unit, *finer));
    let rest = finer.map(|(size_finer, unit_finer)| (seconds % size / size_finer, unit_finer));
    match rest {
        Some((count, unit_finer)) if count > 0 => format!("{}{unit}{count}{unit_finer}", seconds / size),
        _ => format!("{}{unit}", seconds / size),
    }
}

/// The time since an RFC 3339 timestamp.
pub fn since(timestamp: &str, now: i64) -> String {
    epoch_seconds(timestamp).map_or_else(|| UNKNOWN.into(), |then| age(now - then))
}

/// Seconds since the epoch; `None` if the text is not a timestamp.
pub fn epoch_seconds(timestamp: &str) -> Option<i64> {
    timestamp.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

/// The value at a dotted path. Null counts as absent.
pub fn at<'a>(doc: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(doc, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// The text at a path; empty if it is absent.
pub fn text<'a>(doc: &'a Value, path: &str) -> &'a str {
    at(doc, path).and_then(Value::as_str).unwrap_or_default()
}

/// The text at a path, or `otherwise` if it is absent or empty.
pub fn text_or(doc: &Value, path: &str, otherwise: &str) -> Value {
    let found = text(doc, path);
    if found.is_empty() { otherwise.into() } else { found.into() }
}

pub fn number(doc: &Value, path: &str) -> i64 {
    at(doc, path).and_then(Value::as_i64).unwrap_or_default()
}

pub fn truth(doc: &Value, path: &str) -> bool {
    at(doc, path).and_then(Value::as_bool).unwrap_or_default()
}

pub fn items<'a>(doc: &'a Value, path: &str) -> &'a [Value] {
    at(doc, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The entries of the map at a path, ordered by key.
pub fn entries<'a>(doc: &'a Value, path: &str) -> Vec<(&'a str, &'a Value)> {
    sorted(at(doc, path).and_then(Value::as_object))
}

fn sorted(map: Option<&Map>) -> Vec<(&str, &Value)> {
    let mut entries: Vec<_> = map.into_iter().flatten().map(|(key, value)| (key.as_str(), value)).collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries
}

/// The number of entries of the list or map at a path.
pub fn count(doc: &Value, path: &str) -> usize {
    match at(doc, path) {
        Some(Value::Array(list)) => list.len(),
        Some(Value::Object(map)) => map.len(),
        _ => 0,
    }
}

/// A scalar as text: strings bare, numbers in digits. The columns use it for quantities, and for values that are a
/// number or a string.
pub fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The value of an annotation. Annotation keys contain dots, so paths cannot name them.
pub fn annotation<'a>(doc: &'a Value, key: &str) -> Option<&'a str> {
    at(doc, "metadata.annotations")?.get(key)?.as_str()
}

/// `status` of the condition of this type; empty if there is none.
pub fn condition<'a>(doc: &'a Value, ty: &str) -> &'a str {
    let found = items(doc, "status.conditions").iter().find(|condition| text(condition, "type") == ty);
    found.map_or("", |condition| text(condition, "status"))
}

/// The texts at `path` inside each item of a list, joined by commas.
pub fn joined(list: &[Value], path: &str) -> String {
    list.iter().map(|item| text(item, path)).collect::<Vec<_>>().join(",")
}

/// The first items of a list, and the number of further items.
pub fn first_few(list: &[String], most: usize) -> String {
    if list.len() <= most {
        return list.join(",");
    }
    format!("{} + {} more...", list[..most].join(","), list.len() - most)
}

/// The map of labels at a path, in the text form of a selector.
pub fn labels(doc: &Value, path: &str) -> String {
    let pairs: Vec<_> = entries(doc, path).into_iter().map(|(key, value)| format!("{key}={}", plain(value))).collect();
    if pairs.is_empty() { NONE.into() } else { pairs.join(",") }
}

/// A label selector at a path in its text form; `<none>` if it is empty, `<error>` if an operator is unknown.
pub fn selector(doc: &Value, path: &str) -> String {
    match selector_text(at(doc, path)) {
        None => "<error>".into(),
        Some(shown) if shown.is_empty() => NONE.into(),
        Some(shown) => shown,
    }
}

/// The selector as text: `a=b,c in (d,e),!f`, ordered by key; `None` if an operator does not exist.
pub fn selector_text(selector: Option<&Value>) -> Option<String> {
    let Some(selector) = selector else { return Some(String::new()) };
    let mut terms: Vec<(&str, String)> = entries(selector, "matchLabels")
        .into_iter()
        .map(|(key, value)| (key, format!("{key}={}", plain(value))))
        .collect();
    for expression in items(selector, "matchExpressions") {
        let key = text(expression, "key");
        let mut values: Vec<_> = items(expression, "values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        };
        terms.push((key, term));
    }
    terms.sort_by_key(|(key, _)| *key);
    Some(terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(","))
}

/// The wide columns of kinds that make pods from `spec.template`.
pub fn template_columns() -> [Column; 2] {
    [
        column("Containers", "string", 1, "Names of the template's containers.", |doc, _| {
            joined(items(doc, "spec.template.spec.containers"), "name").into()
        })
        .reading(&["spec.template.spec.containers.name"]),
        column("Images", "string", 1, "Images of the template's containers.", |doc, _| {
            joined(items(doc, "spec.template.spec.containers"), "image").into()
        })
        .reading(&["spec.template.spec.containers.image"]),
    ]
}

/// The wide column of kinds that own pods by `spec.selector`.
pub fn selector_column() -> Column {
    of_field("Selector", "string", 1, "spec.selector", show::selector)
}

/// The cells of a document in one line, for tests. The cells are made from only the fields that the columns read.
#[cfg(test)]
pub(crate) fn shown(columns: &[Column], doc: &Value) -> String {
    let doc = &super::parts::glance_of(columns).look(doc.to_string().as_bytes()).document;
    let cells = columns.iter().map(|column| match &column.cell {
        Cell::Field { path, show } => show(doc, path),
        Cell::Read(read) => read(doc, tests::NOW),
        Cell::Path(path) => panic!("a built-in kind reads by function, not by {path}"),
    });
    cells.map(|cell| plain(&cell)).collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use holdfast_value::json;

    /// The current time in tests, in seconds since 1970: 2026-01-10T00:00:00Z.
    pub const NOW: i64 = 1_768_003_200;

    #[test]
    fn ages() {
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (1, "1s"),
            (119, "119s"),
            (2 * MINUTE, "2m"),
            (2 * MINUTE + 1, "2m1s"),
            (9 * MINUTE + 59, "9m59s"),
            (10 * MINUTE, "10m"),
            (10 * MINUTE + 59, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (7 * HOUR + 59 * MINUTE + 59, "7h59m"),
            (8 * HOUR + 59 * MINUTE, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (3 * DAY + 4 * HOUR, "3d4h"),
            (8 * DAY - 1, "7d23h"),
            (8 * DAY + 23 * HOUR, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + 15 * DAY, "2y15d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR + 200 * DAY, "8y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(age(seconds), expected, "{seconds} s");
        }
    }

    #[test]
    fn times() {
        let cases = [
            ("2026-01-09T23:55:00Z", "5m"),
            ("2026-01-09T23:59:30.123456Z", "30s"),
            ("2026-01-10T00:59:30+01:00", "30s"),
            ("", UNKNOWN),
            ("yesterday", UNKNOWN),
        ];
        for (timestamp, expected) in cases {
            assert_eq!(since(timestamp, NOW), expected, "{timestamp}");
        }
    }

    #[test]
    fn selectors() {
        let cases = [
            (json!({}), NONE),
            (json!({"selector": {}}), NONE),
            (json!({"selector": {"matchLabels": {"b": "2", "a": "1"}}}), "a=1,b=2"),
            (
                json!({"selector": {"matchLabels": {"m": "1"}, "matchExpressions": [
                    {"key": "z", "operator": "In", "values": ["y", "x"]},
                    {"key": "c", "operator": "NotIn", "values": ["d"]},
                    {"key": "b", "operator": "DoesNotExist"},
                    {"key": "n", "operator": "Exists"},
                ]}}),
                "!b,c notin (d),m=1,n,z in (x,y)",
            ),
            (json!({"selector": {"matchExpressions": [{"key": "z", "operator": "Near"}]}}), "<error>"),
        ];
        for (doc, expected) in cases {
            assert_eq!(selector(&doc, "selector"), expected, "{doc}");
        }
    }

    /// One line for each kind: the column headers as kubectl prints them. Parentheses mark columns that only `-o wide`
    /// shows.
    const HEADERS: &str = "
core Pod: NAME READY STATUS RESTARTS AGE (IP) (NODE) (NOMINATED NODE) (READINESS GATES)
core PodTemplate: NAME CONTAINERS IMAGES POD LABELS
core ReplicationController: NAME DESIRED CURRENT READY AGE (CONTAINERS) (IMAGES) (SELECTOR)
core Service: NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE (SELECTOR)
core Endpoints: NAME ENDPOINTS AGE
core Node: NAME STATUS ROLES AGE VERSION (INTERNAL-IP) (EXTERNAL-IP) (OS-IMAGE) (KERNEL-VERSION) (CONTAINER-RUNTIME)
core Event: LAST SEEN TYPE REASON OBJECT (SUBOBJECT) (SOURCE) MESSAGE (FIRST SEEN) (COUNT) (NAME)
core Namespace: NAME STATUS AGE
core Secret: NAME TYPE DATA AGE
core ConfigMap: NAME DATA AGE
core ServiceAccount: NAME SECRETS AGE
core PersistentVolume: NAME CAPACITY ACCESS MODES RECLAIM POLICY STATUS CLAIM STORAGECLASS VOLUMEATTRIBUTESCLASS \
REASON AGE (VOLUMEMODE)
core PersistentVolumeClaim: NAME STATUS VOLUME CAPACITY ACCESS MODES STORAGECLASS VOLUMEATTRIBUTESCLASS AGE (VOLUMEMODE)
core ComponentStatus: NAME STATUS MESSAGE ERROR
core ResourceQuota: NAME REQUEST LIMIT AGE
events Event: LAST SEEN TYPE REASON OBJECT (SUBOBJECT) (SOURCE) MESSAGE (FIRST SEEN) (COUNT) (NAME)
apps Deployment: NAME READY UP-TO-DATE AVAILABLE AGE (CONTAINERS) (IMAGES) (SELECTOR)
apps ReplicaSet: NAME DESIRED CURRENT READY AGE (CONTAINERS) (IMAGES) (SELECTOR)
apps StatefulSet: NAME READY AGE (CONTAINERS) (IMAGES)
apps DaemonSet: NAME DESIRED CURRENT READY UP-TO-DATE AVAILABLE NODE SELECTOR AGE (CONTAINERS) (IMAGES) (SELECTOR)
apps ControllerRevision: NAME CONTROLLER REVISION AGE
batch Job: NAME STATUS COMPLETIONS DURATION AGE (CONTAINERS) (IMAGES) (SELECTOR)
batch CronJob: NAME SCHEDULE TIMEZONE SUSPEND ACTIVE LAST SCHEDULE AGE (CONTAINERS) (IMAGES) (SELECTOR)
autoscaling HorizontalPodAutoscaler: NAME REFERENCE TARGETS MINPODS MAXPODS REPLICAS AGE
autoscaling Scale: NAME DESIRED AVAILABLE AGE
networking Ingress: NAME CLASS HOSTS ADDRESS PORTS AGE
networking IngressClass: NAME CONTROLLER PARAMETERS AGE
networking NetworkPolicy: NAME POD-SELECTOR AGE
networking ServiceCIDR: NAME CIDRS AGE
networking IPAddress: NAME PARENTREF
policy PodDisruptionBudget: NAME MIN AVAILABLE MAX UNAVAILABLE ALLOWED DISRUPTIONS AGE
rbac RoleBinding: NAME ROLE AGE (USERS) (GROUPS) (SERVICEACCOUNTS)
rbac ClusterRoleBinding: NAME ROLE AGE (USERS) (GROUPS) (SERVICEACCOUNTS)
storage StorageClass: NAME PROVISIONER RECLAIMPOLICY VOLUMEBINDINGMODE ALLOWVOLUMEEXPANSION AGE
storage VolumeAttributesClass: NAME DRIVERNAME AGE
storage VolumeAttachment: NAME ATTACHER PV NODE ATTACHED AGE
storage CSIDriver: NAME ATTACHREQUIRED PODINFOONMOUNT STORAGECAPACITY TOKENREQUESTS REQUIRESREPUBLISH MODES AGE
storage CSINode: NAME DRIVERS AGE
storage CSIStorageCapacity:
certificates CertificateSigningRequest: NAME AGE SIGNERNAME REQUESTOR REQUESTEDDURATION CONDITION
certificates ClusterTrustBundle: NAME SIGNERNAME
certificates PodCertificateRequest: NAME PODNAME SERVICEACCOUNTNAME NODENAME SIGNERNAME STATE
discovery EndpointSlice: NAME ADDRESSTYPE PORTS ENDPOINTS AGE
coordination Lease: NAME HOLDER AGE
coordination LeaseCandidate: NAME LEASENAME BINARYVERSION EMULATIONVERSION AGE
scheduling PriorityClass: NAME VALUE GLOBAL-DEFAULT AGE PREEMPTIONPOLICY
node RuntimeClass: NAME HANDLER AGE
flowcontrol FlowSchema: NAME PRIORITYLEVEL MATCHINGPRECEDENCE DISTINGUISHERMETHOD AGE MISSINGPL
flowcontrol PriorityLevelConfiguration: NAME TYPE NOMINALCONCURRENCYSHARES QUEUES HANDSIZE QUEUELENGTHLIMIT AGE
admissionregistration MutatingWebhookConfiguration: NAME WEBHOOKS AGE
admissionregistration ValidatingWebhookConfiguration: NAME WEBHOOKS AGE
admissionregistration ValidatingAdmissionPolicy: NAME VALIDATIONS PARAMKIND AGE
admissionregistration ValidatingAdmissionPolicyBinding: NAME POLICYNAME PARAMREF AGE
admissionregistration MutatingAdmissionPolicy: NAME MUTATIONS PARAMKIND AGE
admissionregistration MutatingAdmissionPolicyBinding: NAME POLICYNAME PARAMREF AGE
apiregistration APIService: NAME SERVICE AVAILABLE AGE
resource DeviceClass: NAME AGE
resource ResourceClaim: NAME STATE AGE
resource ResourceClaimTemplate: NAME AGE
resource ResourceSlice: NAME NODE DRIVER POOL AGE
resource DeviceTaintRule: NAME KEY VALUE EFFECT TIMEADDED AGE
internal_apiserver StorageVersion: NAME COMMONENCODINGVERSION STORAGEVERSIONS AGE
storagemigration StorageVersionMigration: NAME RESOURCE
core LimitRange:
rbac Role:
rbac ClusterRole:
apiextensions CustomResourceDefinition:
";

    #[test]
    fn headers() {
        use crate::kinds;
        for line in HEADERS.trim().lines() {
            let (kind, expected) = line.split_once(':').unwrap();
            let (group, kind) = kind.split_once(' ').unwrap();
            let columns = match group {
                "core" => kinds::core::columns::of(kind),
                "events" => kinds::events::columns::of(kind),
                "apps" => kinds::apps::columns::of(kind),
                "batch" => kinds::batch::columns::of(kind),
                "autoscaling" => kinds::autoscaling::columns::of(kind),
                "networking" => kinds::networking::columns::of(kind),
                "policy" => kinds::policy::columns::of(kind),
                "rbac" => kinds::rbac::columns::of(kind),
                "storage" => kinds::storage::columns::of(kind),
                "certificates" => kinds::certificates::columns::of(kind),
                "discovery" => kinds::discovery::columns::of(kind),
                "coordination" => kinds::coordination::columns::of(kind),
                "scheduling" => kinds::scheduling::columns::of(kind),
                "node" => kinds::node::columns::of(kind),
                "flowcontrol" => kinds::flowcontrol::columns::of(kind),
                "admissionregistration" => kinds::admissionregistration::columns::of(kind),
                "apiextensions" => kinds::apiextensions::columns::of(kind),
                "apiregistration" => kinds::apiregistration::columns::of(kind),
                "resource" => kinds::resource::columns::of(kind),
                "internal_apiserver" => kinds::internal_apiserver::columns::of(kind),
                "storagemigration" => kinds::storagemigration::columns::of(kind),
                _ => panic!("no such group: {group}"),
            };
            let header = |column: &Column| match column.priority {
                0 => column.name.to_uppercase(),
                _ => format!("({})", column.name.to_uppercase()),
            };
            let named = columns.iter().filter(|column| !column.name.is_empty());
            assert_eq!(named.map(header).collect::<Vec<_>>().join(" "), expected.trim(), "{kind}");
            // Every column must accept an empty document.
            assert!(columns.is_empty() || shown(&columns, &json!({})).contains('|'), "{kind}");
        }
    }

    #[test]
    fn lists_are_cut_short() {
        let list: Vec<String> = ["a", "b", "c", "d", "e"].map(String::from).into();
        assert_eq!(first_few(&list[..0], 3), "");
        assert_eq!(first_few(&list[..3], 3), "a,b,c");
        assert_eq!(first_few(&list, 3), "a,b,c + 2 more...");
    }
}
