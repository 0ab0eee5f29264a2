//! The Pod Security Standards: the checks of each level, with Kubernetes' messages.

use super::policy::{Level, Standard, Version};
use crate::admission::plugins::pods::{containers, list};
use holdfast_value::{CompactString, Value};
use std::collections::BTreeSet;

/// One violation of a standard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    pub reason: String,
    pub detail: String,
}

/// A pod or a pod template.
#[derive(Clone, Copy)]
pub(super) struct Pod<'a> {
    pub annotations: &'a Value,
    pub spec: &'a Value,
}

struct Check {
    id: &'static str,
    level: Level,
    /// The versions of the check, by the minor Kubernetes version from which each applies, ascending.
    since: &'static [(u32, Judge)],
    /// The identifier of the lower level's check that this check replaces; empty if this check replaces none.
    replaces: &'static str,
}

type Judge = fn(Pod) -> Option<Violation>;

const fn baseline(id: &'static str, since: &'static [(u32, Judge)]) -> Check {
    Check { id, level: Level::Baseline, since, replaces: "" }
}

const fn restricted(id: &'static str, since: &'static [(u32, Judge)], replaces: &'static str) -> Check {
    Check { id, level: Level::Restricted, since, replaces }
}

/// The checks, in the order in which violations are reported.
static CHECKS: &[Check] = &[
    baseline("appArmorProfile", &[(0, app_armor)]),
    baseline("capabilities_baseline", &[(0, default_capabilities)]),
    baseline("hostNamespaces", &[(0, host_namespaces)]),
    baseline("hostPathVolumes", &[(0, host_paths)]),
    baseline("hostPorts", &[(0, host_ports)]),
    baseline("hostProbesAndhostLifecycle", &[(34, probe_hosts)]),
    baseline("privileged", &[(0, privileged)]),
    baseline("procMount", &[(0, proc_mount), (35, |pod| on_host(pod, proc_mount))]),
    baseline("seLinuxOptions", &[(0, |pod| se_linux(pod, SE_LINUX)), (31, |pod| se_linux(pod, SE_LINUX_LATER))]),
    baseline("seccompProfile_baseline", &[(0, seccomp_annotations), (19, seccomp)]),
    baseline(
        "sysctls",
        &[
            (0, |pod| sysctls(pod, SYSCTLS)),
            (27, |pod| sysctls(pod, SYSCTLS + 1)),
            (29, |pod| sysctls(pod, SYSCTLS + 5)),
            (32, |pod| sysctls(pod, SYSCTLS + 7)),
        ],
    ),
    baseline("windowsHostProcess", &[(0, host_process)]),
    restricted("allowPrivilegeEscalation", &[(8, escalation), (25, |pod| on_linux(pod, escalation))], ""),
    restricted(
        "capabilities_restricted",
        &[(22, few_capabilities), (25, |pod| on_linux(pod, few_capabilities))],
        "capabilities_baseline",
    ),
    restricted("procMount_restricted", &[(35, proc_mount)], "procMount"),
    restricted("restrictedVolumes", &[(0, volume_types)], "hostPathVolumes"),
    restricted("runAsNonRoot", &[(0, non_root), (35, |pod| on_host(pod, non_root))], ""),
    restricted("runAsUser", &[(23, root_user), (35, |pod| on_host(pod, root_user))], ""),
    restricted(
        "seccompProfile_restricted",
        &[(19, seccomp_set), (25, |pod| on_linux(pod, seccomp_set))],
        "seccompProfile_baseline",
    ),
];

/// All violations of a standard by a pod.
pub(super) fn violations(standard: &Standard, pod: Pod) -> Vec<Violation> {
    let minor = match standard.version {
        Version::Latest => u32::MAX,
        Version::Minor(minor) => minor,
    };
    let judge = |check: &Check| check.since.iter().rev().find(|(since, _)| *since <= minor).map(|(_, judge)| *judge);
    let applies = |check: &&Check| check.level <= standard.level && judge(check).is_some();
    let replaced: Vec<&str> = CHECKS.iter().filter(applies).map(|check| check.replaces).collect();
    let checks = CHECKS.iter().filter(applies).filter(|check| !replaced.contains(&check.id));
    checks.filter_map(|check| judge(check)?(pod)).collect()
}

/// Skips the check for pods in a user namespace (`hostUsers: false`): their users are not users of the host.
fn on_host(pod: Pod, judge: Judge) -> Option<Violation> {
    if pod.spec["hostUsers"] == false { None } else { judge(pod) }
}

fn on_linux(pod: Pod, judge: Judge) -> Option<Violation> {
    if pod.spec["os"]["name"] == "windows" { None } else { judge(pod) }
}

fn found(reason: &str, detail: String) -> Option<Violation> {
    Some(Violation { reason: reason.to_owned(), detail })
}

fn plural(one: &'static str, many: &'static str, count: usize) -> &'static str {
    if count == 1 { one } else { many }
}

fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

fn name(container: &Value) -> &str {
    container["name"].as_str().unwrap_or("")
}

/// Names containers in a message: `containers "a", "b"`.
fn named(containers: &[&Value]) -> String {
    let names = containers.iter().map(|container| name(container));
    format!("{} {}", plural("container", "containers", containers.len()), quoted(names))
}

/// The containers of the pod for which `is` returns true.
fn those<'a>(pod: Pod<'a>, is: impl Fn(&Value) -> bool) -> Vec<&'a Value> {
    containers(pod.spec).filter(|container| is(container)).collect()
}

/// The parts of a pod that set a forbidden value, such as `pod and container "a"`; `None` if there are none.
fn setters(in_pod: bool, containers: &[&Value]) -> Option<String> {
    let pod = in_pod.then(|| "pod".to_owned());
    let containers = (!containers.is_empty()).then(|| named(containers));
    let setters: Vec<String> = pod.into_iter().chain(containers).collect();
    (!setters.is_empty()).then(|| setters.join(" and "))
}

fn app_armor(pod: Pod) -> Option<Violation> {
    const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
    let profile = |holder: &Value| holder["securityContext"]["appArmorProfile"]["type"].as_str().map(str::to_owned);
    let is_bad = |profile: &str| !matches!(profile, "RuntimeDefault" | "Localhost");
    let bad = |holder: &Value| profile(holder).filter(|profile| is_bad(profile));
    let containers = those(pod, |container| bad(container).is_some());
    let mut setters: Vec<String> = setters(bad(pod.spec).is_some(), &containers).into_iter().collect();
    let mut values: BTreeSet<String> = bad(pod.spec).into_iter().collect();
    values.extend(containers.iter().filter_map(|container| bad(container)));
    let annotations = pod.annotations.as_object().into_iter().flatten();
    let annotations = annotations.filter(|(key, _)| key.starts_with(PREFIX));
    let annotations = annotations.filter_map(|(key, value)| Some((key, value.as_str()?)));
    let annotations: Vec<_> = annotations
        .filter(|(_, value)| !(value.is_empty() || *value == "runtime/default" || value.starts_with("localhost/")))
        .collect();
    if !annotations.is_empty() {
        let shown: Vec<String> = annotations.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        setters.push(format!("{} {}", plural("annotation", "annotations", shown.len()), shown.join(", ")));
        values.extend(annotations.iter().map(|(_, value)| (*value).to_owned()));
    }
    if setters.is_empty() {
        return None;
    }
    let reason = plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len());
    let values = quoted(values.iter().map(String::as_str));
    found(reason, format!("{} must not set AppArmor profile type to {values}", setters.join(" and ")))
}

const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The violation `container "a" must not include "X" in …`, if a container adds a capability that is not in `allowed`.
fn added_beyond(pod: Pod, allowed: &[&str]) -> Option<String> {
    let added = |container: &'_ Value| {
        let added = list(&container["securityContext"]["capabilities"]["add"]).filter_map(Value::as_str);
        added.filter(|capability| !allowed.contains(capability)).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let adding = those(pod, |container| !added(container).is_empty());
    if adding.is_empty() {
        return None;
    }
    let all: BTreeSet<String> = adding.iter().flat_map(|container| added(container)).collect();
    let all = quoted(all.iter().map(String::as_str));
    Some(format!("{} must not include {all} in securityContext.capabilities.add", named(&adding)))
}

fn default_capabilities(pod: Pod) -> Option<Violation> {
    found("non-default capabilities", added_beyond(pod, &DEFAULT_CAPABILITIES)?)
}

fn few_capabilities(pod: Pod) -> Option<Violation> {
    let drops_all = |container: &Value| {
        list(&container["securityContext"]["capabilities"]["drop"]).any(|capability| capability == "ALL")
    };
    let keeping = those(pod, |container| !drops_all(container));
    let keeping = (!keeping.is_empty())
        .then(|| format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", named(&keeping)));
    let details: Vec<String> = keeping.into_iter().chain(added_beyond(pod, &["NET_BIND_SERVICE"])).collect();
    if details.is_empty() { None } else { found("unrestricted capabilities", details.join("; ")) }
}

fn host_namespaces(pod: Pod) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod.spec[*field] == true);
    let shared: Vec<String> = shared.map(|field| format!("{field}=true")).collect();
    if shared.is_empty() { None } else { found("host namespaces", shared.join(", ")) }
}

fn host_paths(pod: Pod) -> Option<Violation> {
    let volumes: Vec<&str> =
        list(&pod.spec["volumes"]).filter(|volume| volume["hostPath"].is_object()).map(name).collect();
    if volumes.is_empty() {
        return None;
    }
    let count = volumes.len();
    found("hostPath volumes", format!("{} {}", plural("volume", "volumes", count), quoted(volumes)))
}

fn host_ports(pod: Pod) -> Option<Violation> {
    let ports = |container: &'_ Value| {
        let ports = list(&container["ports"]).filter_map(|port| port["hostPort"].as_i64());
        ports.filter(|port| *port != 0).map(|port| port.to_string()).collect::<BTreeSet<_>>()
    };
    let using = those(pod, |container| !ports(container).is_empty());
    if using.is_empty() {
        return None;
    }
    let all: BTreeSet<String> = using.iter().flat_map(|container| ports(container)).collect();
    let (uses, port) = (plural("uses", "use", using.len()), plural("hostPort", "hostPorts", all.len()));
    let all = all.into_iter().collect::<Vec<_>>().join(", ");
    found("hostPort", format!("{} {uses} {port} {all}", named(&using)))
}

fn probe_hosts(pod: Pod) -> Option<Violation> {
    let hosts = |container: &'_ Value| {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| &container[probe]);
        let hooks = ["postStart", "preStop"].map(|hook| &container["lifecycle"][hook]);
        let handlers = probes.into_iter().chain(hooks);
        let hosts = handlers.flat_map(|handler| [&handler["httpGet"]["host"], &handler["tcpSocket"]["host"]]);
        let hosts = hosts.filter_map(Value::as_str).filter(|host| !host.is_empty());
        hosts.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let using = those(pod, |container| !hosts(container).is_empty());
    if using.is_empty() {
        return None;
    }
    let all: BTreeSet<String> = using.iter().flat_map(|container| hosts(container)).collect();
    let (uses, host) = (plural("uses", "use", using.len()), plural("host", "hosts", all.len()));
    let all = quoted(all.iter().map(String::as_str));
    found("probe or lifecycle host", format!("{} {uses} probe or lifecycle {host} {all}", named(&using)))
}

fn privileged(pod: Pod) -> Option<Violation> {
    let bad = those(pod, |container| container["securityContext"]["privileged"] == true);
    if bad.is_empty() {
        return None;
    }
    found("privileged", format!("{} must not set securityContext.privileged=true", named(&bad)))
}

fn proc_mount(pod: Pod) -> Option<Violation> {
    let mount = |container: &'_ Value| {
        let mount = container["securityContext"]["procMount"].as_str();
        mount.filter(|mount| *mount != "Default").map(str::to_owned)
    };
    let bad = those(pod, |container| mount(container).is_some());
    if bad.is_empty() {
        return None;
    }
    let all: BTreeSet<String> = bad.iter().filter_map(|container| mount(container)).collect();
    let all = quoted(all.iter().map(String::as_str));
    found("procMount", format!("{} must not set securityContext.procMount to {all}", named(&bad)))
}

const SE_LINUX: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t"];
const SE_LINUX_LATER: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

fn se_linux(pod: Pod, types: &[&str]) -> Option<Violation> {
    let options = |holder: &'_ Value| holder["securityContext"]["seLinuxOptions"].clone();
    let is_set = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let bad_type = |options: &Value| options["type"].as_str().filter(|ty| !types.contains(ty)).map(str::to_owned);
    let is_bad = |options: &Value| bad_type(options).is_some() || is_set(&options["user"]) || is_set(&options["role"]);
    let of_pod = options(pod.spec);
    let bad = those(pod, |container| is_bad(&options(container)));
    let setters = setters(is_bad(&of_pod), &bad)?;
    let all: Vec<Value> = std::iter::once(of_pod).chain(bad.iter().map(|container| options(container))).collect();
    let bad_types: BTreeSet<String> = all.iter().filter_map(bad_type).collect();
    let mut faults = Vec::new();
    if !bad_types.is_empty() {
        let shown = quoted(bad_types.iter().map(String::as_str));
        faults.push(format!("{} {shown}", plural("type", "types", bad_types.len())));
    }
    for field in ["user", "role"] {
        if all.iter().any(|options| is_set(&options[field])) {
            faults.push(format!("{field} may not be set"));
        }
    }
    found("seLinuxOptions", format!("{setters} set forbidden securityContext.seLinuxOptions: {}", faults.join("; ")))
}

fn seccomp_annotations(pod: Pod) -> Option<Violation> {
    const OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let is_bad =
        |value: &str| !matches!(value, "" | "runtime/default" | "docker/default") && !value.starts_with("localhost/");
    let keys = std::iter::once(OF_POD.to_owned());
    let keys = keys.chain(containers(pod.spec).map(|container| format!("{OF_CONTAINER}{}", name(container))));
    let bad = keys.filter_map(|key| {
        let value = pod.annotations[&key].as_str().filter(|value| is_bad(value))?;
        Some(format!("{key}=\"{value}\""))
    });
    let bad: BTreeSet<String> = bad.collect();
    if bad.is_empty() {
        return None;
    }
    let annotations = plural("annotation", "annotations", bad.len());
    found("seccompProfile", format!("forbidden {annotations} {}", bad.into_iter().collect::<Vec<_>>().join(", ")))
}

fn seccomp_type(holder: &Value) -> Option<&str> {
    holder["securityContext"]["seccompProfile"]
        .as_object()
        .map(|profile| profile.get("type").and_then(Value::as_str).unwrap_or(""))
}

fn is_confined(profile: &str) -> bool {
    matches!(profile, "RuntimeDefault" | "Localhost")
}

fn seccomp(pod: Pod) -> Option<Violation> {
    let is_bad = |holder: &Value| seccomp_type(holder).is_some_and(|profile| !is_confined(profile));
    let bad = those(pod, is_bad);
    let setters = setters(is_bad(pod.spec), &bad)?;
    let holders = std::iter::once(pod.spec).filter(|spec| is_bad(spec)).chain(bad);
    let values: BTreeSet<&str> = holders.filter_map(seccomp_type).collect();
    let values = quoted(values);
    found("seccompProfile", format!("{setters} must not set securityContext.seccompProfile.type to {values}"))
}

fn seccomp_set(pod: Pod) -> Option<Violation> {
    if let Some(bad) = seccomp(pod) {
        return Some(bad);
    }
    if seccomp_type(pod.spec).is_some() {
        return None;
    }
    let unset = those(pod, |container| seccomp_type(container).is_none());
    if unset.is_empty() {
        return None;
    }
    found(
        "seccompProfile",
        format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            named(&unset)
        ),
    )
}

/// The sysctls that pods may set. The first five are allowed in every version; later versions added the rest.
const ALLOWED_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];
const SYSCTLS: usize = 5;

fn sysctls(pod: Pod, allowed: usize) -> Option<Violation> {
    let set = list(&pod.spec["securityContext"]["sysctls"]).map(name);
    let bad: Vec<&str> = set.filter(|name| !ALLOWED_SYSCTLS[..allowed].contains(name)).collect();
    if bad.is_empty() { None } else { found("forbidden sysctls", bad.join(", ")) }
}

fn host_process(pod: Pod) -> Option<Violation> {
    let is_bad = |holder: &Value| holder["securityContext"]["windowsOptions"]["hostProcess"] == true;
    let setters = setters(is_bad(pod.spec), &those(pod, is_bad))?;
    found("hostProcess", format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"))
}

fn escalation(pod: Pod) -> Option<Violation> {
    let bad = those(pod, |container| container["securityContext"]["allowPrivilegeEscalation"] != false);
    if bad.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", named(&bad));
    found("allowPrivilegeEscalation != false", detail)
}

const ALLOWED_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn volume_types(pod: Pod) -> Option<Violation> {
    let kind = |volume: &'_ Value| {
        let fields = volume.as_object().into_iter().flatten();
        let mut sources = fields.filter(|(field, _)| *field != "name").map(|(field, _)| field.clone());
        sources.next().unwrap_or_else(|| "unknown".into())
    };
    let is_bad = |volume: &&Value| !ALLOWED_VOLUMES.contains(&kind(volume).as_str());
    let bad: Vec<&Value> = list(&pod.spec["volumes"]).filter(is_bad).collect();
    if bad.is_empty() {
        return None;
    }
    let types: BTreeSet<CompactString> = bad.iter().map(|volume| kind(volume)).collect();
    let (volumes, uses) = (plural("volume", "volumes", bad.len()), plural("uses", "use", bad.len()));
    let restricted = plural("restricted volume type", "restricted volume types", types.len());
    let (names, types) =
        (quoted(bad.iter().map(|volume| name(volume))), quoted(types.iter().map(CompactString::as_str)));
    found("restricted volume types", format!("{volumes} {names} {uses} {restricted} {types}"))
}

fn non_root(pod: Pod) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let said = |holder: &Value| holder["securityContext"]["runAsNonRoot"].as_bool();
    let bad = those(pod, |container| said(container) == Some(false));
    if let Some(setters) = setters(said(pod.spec) == Some(false), &bad) {
        return found(REASON, format!("{setters} must not set securityContext.runAsNonRoot=false"));
    }
    let unset = those(pod, |container| said(container).is_none());
    if unset.is_empty() || said(pod.spec).is_some() {
        return None;
    }
    found(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", named(&unset)))
}

fn root_user(pod: Pod) -> Option<Violation> {
    let is_root = |holder: &Value| holder["securityContext"]["runAsUser"].as_i64() == Some(0);
    let setters = setters(is_root(pod.spec), &those(pod, is_root))?;
    found("runAsUser=0", format!("{setters} must not set runAsUser=0"))
}
